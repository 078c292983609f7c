from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from builders import (
    MILLISECOND,
    SECOND,
    array,
    make_arg,
    make_boxing,
    make_dispatcher,
    make_environment,
    make_event,
    make_function,
    make_overload,
    make_process,
    make_result,
    scalar,
)

from numbaprof.findings import INFO_SLUGS, SLUGS, find

MESSAGES = Path(__file__).parent.parent / "docs" / "messages.md"


def found(slug, result):
    """Keep the findings of one kind."""
    return [finding for finding in find(result) if finding.slug == slug]


def cheap(**changes):
    """Make an overload that gives no reason to speak of its compile time."""
    return make_overload(**({"compile_ns": None} | changes))


def arrays_of(number, **changes):
    """Make overloads that differ in dtype."""
    return [
        make_overload(args=(array(f"dtype{index}"),), **changes)
        for index in range(number)
    ]


def tuples_of(*lengths, **changes):
    """Make overloads that differ in the length of a tuple."""
    return [
        make_overload(
            args=(make_arg("tuple", kind="tuple", items=(scalar(),) * length),),
            **changes,
        )
        for length in lengths
    ]


def closures(number, **changes):
    """Make overloads of as many closures of one source."""
    function = {"qualname": "make.<locals>.kern"} | changes.pop("function", {})
    return [
        make_overload(make_function(**function, instance=index), **changes)
        for index in range(number)
    ]


def with_overhead(overhead_ns, *overloads, **changes):
    """Make a profile whose measuring adds so many ns to a call."""
    environment = make_environment(overhead_ns=overhead_ns)
    return make_result(
        *overloads, processes=(make_process(environment=environment),), **changes
    )


REFLECTED = make_arg("reflected list(int64)", name="xs", kind="reflected list")


def stencil_events(number, **changes):
    """Make compilations of one stencil for the same types."""
    return tuple(make_event(**({"kind": "stencil"} | changes)) for _ in range(number))


BUSY = {"calls": 1000, "mean_ns": 20_000}

# One profile for each slug that must have the finding ...
FIRING = {
    "boxing-bound": lambda: make_result(
        cheap(
            boxing=make_boxing(1, unbox_ns=30 * MILLISECOND, kernel_ns=MILLISECOND),
        )
    ),
    "cache-never-hits": lambda: make_result(
        make_overload(),
        dispatchers=(
            make_dispatcher(cache_enabled=True, cache_misses=1, cache_reason="why"),
        ),
    ),
    "compile-exceeds-run": lambda: make_result(
        make_overload(calls=4, mean_ns=MILLISECOND, compile_ns=100 * MILLISECOND)
    ),
    "compile-failed": lambda: make_result(
        events=(make_event(event="failed", error="TypingError: no"),)
    ),
    "dispatch-bound": lambda: make_result(
        cheap(calls=100_000, mean_ns=200, dispatch_ns=100_000 * 400)
    ),
    "duplicate-compile": lambda: make_result(events=(make_event(), make_event())),
    "inlined": lambda: make_result(dispatchers=(make_dispatcher(inline=True),)),
    "jit-disabled": lambda: make_result(
        processes=(make_process(environment=make_environment(jit_disabled=True)),)
    ),
    "never-called": lambda: make_result(make_overload(calls=0)),
    "object-mode": lambda: make_result(cheap(kind="object mode", **BUSY)),
    "overload-explosion": lambda: make_result(*arrays_of(9)),
    "recompiles-every-call": lambda: make_result(events=stencil_events(3)),
    "reflected-list": lambda: make_result(cheap(args=(REFLECTED,), **BUSY)),
    "same-source-compiled": lambda: make_result(*closures(3)),
    "short-kernel": lambda: with_overhead(25, cheap(calls=10**6, mean_ns=99)),
    "tuple-length-explosion": lambda: make_result(*tuples_of(1, 2, 3, 4)),
}

# ... and profiles that nearly have it, each with what is missing.
SILENT = {
    ("boxing-bound", "not measured"): lambda: make_result(cheap(**BUSY)),
    ("boxing-bound", "kernel dearer"): lambda: make_result(
        cheap(boxing=make_boxing(1, unbox_ns=MILLISECOND, kernel_ns=30 * MILLISECOND))
    ),
    ("boxing-bound", "too cheap"): lambda: make_result(
        cheap(boxing=make_boxing(1, unbox_ns=1000, kernel_ns=10))
    ),
    ("cache-never-hits", "first run, no cause"): lambda: make_result(
        make_overload(),
        dispatchers=(make_dispatcher(cache_enabled=True, cache_misses=1),),
    ),
    ("cache-never-hits", "it hit"): lambda: make_result(
        make_overload(),
        dispatchers=(
            make_dispatcher(
                cache_enabled=True, cache_misses=1, cache_hits=1, cache_reason="why"
            ),
        ),
    ),
    ("cache-never-hits", "cache off"): lambda: make_result(
        make_overload(), dispatchers=(make_dispatcher(closure_functions=("f",)),)
    ),
    ("compile-exceeds-run", "ran longer"): lambda: make_result(
        make_overload(calls=1000, mean_ns=MILLISECOND)
    ),
    ("compile-exceeds-run", "never called"): lambda: make_result(
        make_overload(calls=0)
    ),
    ("compile-exceeds-run", "below a per cent"): lambda: make_result(
        make_overload(), wall_ns=60 * SECOND
    ),
    ("compile-exceeds-run", "below a millisecond"): lambda: make_result(
        make_overload(compile_ns=900_000), wall_ns=2 * MILLISECOND
    ),
    ("compile-exceeds-run", "generator"): lambda: make_result(
        make_overload(kind="generator")
    ),
    ("compile-exceeds-run", "some calls unseen"): lambda: make_result(
        make_overload(not_countable_reason="compiled code calls it as well")
    ),
    ("compile-exceeds-run", "compiled for another"): lambda: make_result(
        make_overload("inner"),
        events=(make_event("outer"), make_event("inner", parent=0)),
    ),
    ("compile-exceeds-run", "loaded from cache"): lambda: make_result(
        cheap(origin="cache", cache_load_ns=100 * MILLISECOND)
    ),
    ("compile-exceeds-run", "same-source-compiled says it"): lambda: make_result(
        *closures(3)
    ),
    ("compile-exceeds-run", "recompiles-every-call says it"): lambda: make_result(
        make_overload(kind="stencil"), events=stencil_events(3)
    ),
    ("never-called", "compiled for another overload of its own"): lambda: make_result(
        make_overload(args=(scalar(name="*args"),)),
        make_overload(args=(scalar("float64"),), calls=0),
        events=(make_event(), make_event(signature="(float64)", parent=0)),
    ),
    ("compile-failed", "nested attempt"): lambda: make_result(
        events=(make_event("f"), make_event("g", event="failed", parent=0))
    ),
    ("compile-failed", "too cheap"): lambda: make_result(
        events=(make_event(event="failed", inclusive_ns=1000),)
    ),
    ("dispatch-bound", "runs longer"): lambda: make_result(
        cheap(calls=100_000, mean_ns=500, dispatch_ns=100_000 * 400)
    ),
    ("dispatch-bound", "few calls"): lambda: make_result(
        cheap(calls=99, mean_ns=200, dispatch_ns=99 * MILLISECOND)
    ),
    ("dispatch-bound", "not measured"): lambda: make_result(
        cheap(calls=100_000, mean_ns=200, dispatch_ns=None)
    ),
    ("dispatch-bound", "the excess is ours"): lambda: with_overhead(
        250, cheap(calls=100_000, mean_ns=200, dispatch_ns=100_000 * 400)
    ),
    ("duplicate-compile", "other process"): lambda: make_result(
        events=(make_event(), make_event(process=1))
    ),
    ("duplicate-compile", "other signature"): lambda: make_result(
        events=(make_event(), make_event(signature="(float64)"))
    ),
    ("duplicate-compile", "one was a load"): lambda: make_result(
        events=(make_event(event="cache_load"), make_event())
    ),
    ("duplicate-compile", "block of the same name"): lambda: make_result(
        events=(make_event(), make_event(kind="objmode body", parent=0))
    ),
    ("inlined", "not inlined"): lambda: make_result(dispatchers=(make_dispatcher(),)),
    ("inlined", "called from Python"): lambda: make_result(
        make_overload(), dispatchers=(make_dispatcher(inline=True),)
    ),
    ("jit-disabled", "enabled"): lambda: make_result(),
    ("never-called", "called"): lambda: make_result(make_overload()),
    ("never-called", "too cheap"): lambda: make_result(
        make_overload(calls=0, compile_ns=1000)
    ),
    ("never-called", "inlined"): lambda: make_result(
        make_overload(calls=0), dispatchers=(make_dispatcher(inline=True),)
    ),
    ("object-mode", "too cheap"): lambda: make_result(cheap(kind="object mode")),
    ("overload-explosion", "eight"): lambda: make_result(*arrays_of(8)),
    ("overload-explosion", "listed by the user"): lambda: make_result(
        *arrays_of(12, origin="eager")
    ),
    ("overload-explosion", "closed to other types"): lambda: make_result(
        *arrays_of(12, origin="cache"), dispatchers=(make_dispatcher(eager=True),)
    ),
    ("overload-explosion", "another finding says it"): lambda: make_result(
        *tuples_of(*range(9))
    ),
    ("recompiles-every-call", "one call"): lambda: make_result(
        events=stencil_events(1)
    ),
    ("recompiles-every-call", "dispatcher"): lambda: make_result(
        events=stencil_events(3, kind="dispatcher")
    ),
    ("reflected-list", "typed list"): lambda: make_result(
        cheap(args=(make_arg("List[int64]", kind="typed list"),), **BUSY)
    ),
    ("reflected-list", "too cheap"): lambda: make_result(cheap(args=(REFLECTED,))),
    ("same-source-compiled", "a pair"): lambda: make_result(*closures(2)),
    ("same-source-compiled", "other lines"): lambda: make_result(
        *(make_overload(make_function("f", line=line)) for line in range(1, 5))
    ),
    ("same-source-compiled", "made by exec"): lambda: make_result(
        *closures(5, function={"file": "<string>"})
    ),
    ("same-source-compiled", "other types"): lambda: make_result(
        *(
            make_overload(
                make_function("make.<locals>.k", instance=index),
                args=(scalar(f"dtype{index}"),),
            )
            for index in range(5)
        )
    ),
    ("same-source-compiled", "loaded from cache"): lambda: make_result(
        *closures(5, origin="cache", compile_ns=None)
    ),
    ("short-kernel", "long enough"): lambda: with_overhead(
        25, cheap(calls=10**6, mean_ns=100)
    ),
    ("short-kernel", "overhead unknown"): lambda: with_overhead(
        math.nan, cheap(calls=10**6, mean_ns=20)
    ),
    ("short-kernel", "too cheap"): lambda: with_overhead(
        25, cheap(calls=1000, mean_ns=20)
    ),
    ("tuple-length-explosion", "three lengths"): lambda: make_result(
        *tuples_of(1, 2, 3, 3)
    ),
}


@pytest.mark.parametrize("slug", SLUGS)
def test_finding_is_made(slug):
    """Each kind of finding is made where the profile proves it."""
    assert found(slug, FIRING[slug]())


@pytest.mark.parametrize(("slug", "case"), SILENT)
def test_finding_is_not_made(slug, case):
    """Each kind of finding is silent where a part of the proof is missing."""
    assert found(slug, SILENT[slug, case]()) == []


def test_every_finding_has_a_silent_case():
    """No finding is tested in one direction only."""
    assert {slug for slug, _ in SILENT} == set(SLUGS) == set(FIRING)


@pytest.mark.parametrize("slug", sorted(set(SLUGS) - {"inlined", "jit-disabled"}))
def test_internal_overloads_make_no_finding(slug):
    """Numba's own helpers are not the user's to repair."""
    from dataclasses import replace

    result = FIRING[slug]()
    hidden = replace(
        result,
        overloads=tuple(replace(o, internal=True) for o in result.overloads),
        compile_events=tuple(replace(e, internal=True) for e in result.compile_events),
    )
    assert found(slug, hidden) == []


@pytest.mark.parametrize("slug", SLUGS)
def test_finding_is_complete(slug):
    """A finding has numbers as evidence, and advice unless it only explains."""
    finding = found(slug, FIRING[slug]())[0]
    assert all(isinstance(value, (int, float)) for _, value in finding.evidence)
    assert finding.evidence
    assert finding.message
    assert not finding.message.endswith(".")
    assert finding.try_ or finding.slug in INFO_SLUGS


@pytest.mark.parametrize("slug", SLUGS)
def test_slug_is_documented(slug):
    """``docs/messages.md`` has a section for every slug."""
    assert f"### `{slug}`\n" in MESSAGES.read_text(encoding="utf-8")


def test_documented_slugs_exist():
    """The findings in ``docs/messages.md`` are those of the code, in order."""
    text = MESSAGES.read_text(encoding="utf-8")
    section = text.partition("## Findings")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"### `([a-z-]+)`", section)) == SLUGS


def test_payback_is_calls_until_running_overtakes_compiling():
    """100 ms of compiling at 4 ms per call: after 25 calls."""
    result = make_result(make_overload(calls=2, mean_ns=4 * MILLISECOND))
    finding = found("compile-exceeds-run", result)[0]
    assert dict(finding.evidence) == {
        "cost_s": 0.1,
        "run_s": 0.008,
        "calls": 2,
        "payback_calls": 25,
    }
    assert "running takes over after 25 calls" in finding.message


@pytest.mark.parametrize(
    ("calls", "is_advised"), [(2, True), (999, True), (1001, False)]
)
def test_leaving_it_interpreted_is_advised_only_where_that_is_surely_faster(
    calls, is_advised
):
    """100 ms of compiling are 1000 times as long as 1000 calls of 100 ns."""
    result = make_result(make_overload(calls=calls, mean_ns=100))
    advice = found("compile-exceeds-run", result)[0].try_
    assert advice.endswith("or leave it interpreted") is is_advised


def test_compile_time_of_callees_is_told_from_a_functions_own():
    """Of 100 ms, 40 ms are its own; a difference of a tenth is not worth a word."""
    dear = make_overload(compile_self_ns=40 * MILLISECOND)
    message = found("compile-exceeds-run", make_result(dear))[0].message
    assert "compiled for 100 ms (40.0 ms without what it calls) and ran" in message
    alone = make_overload(compile_self_ns=95 * MILLISECOND)
    assert "without" not in found("compile-exceeds-run", make_result(alone))[0].message


def test_compile_and_run_are_added_over_a_function():
    """A hundred overloads of one function make one finding, without a signature."""
    findings = found("compile-exceeds-run", make_result(*arrays_of(100)))
    assert [finding.signature for finding in findings] == [""]


def test_never_called_says_how_many_and_which_import():
    """The message of the demand: 2 of 3, compiled at import of the module."""
    overloads = [
        make_overload("f", args=(scalar(dtype),), calls=calls, origin="eager")
        for dtype, calls in (("float64", 1), ("float32", 0), ("int64", 0))
    ]
    events = tuple(
        make_event("f", signature=o.signature, at_import=True, import_module="lib")
        for o in overloads
    )
    finding = found("never-called", make_result(*overloads, events=events))[0]
    assert finding.message == (
        "2 of 3 specializations of f were never called from Python, at a cost of "
        "200 ms, compiled at import of module lib"
    )
    assert finding.try_.startswith("remove the signatures")


def test_never_called_does_not_blame_signatures_that_do_not_exist():
    """Without explicit signatures there are none to remove."""
    finding = found("never-called", FIRING["never-called"]())[0]
    assert "signatures" not in finding.try_


def test_closure_over_functions_is_the_reason_for_a_cold_cache():
    """The closure's names are given when Numba's reason is not."""
    result = make_result(
        make_overload("inner"),
        dispatchers=(
            make_dispatcher(
                "inner", cache_enabled=True, cache_misses=1, closure_functions=("fn",)
            ),
        ),
    )
    message = found("cache-never-hits", result)[0].message
    assert message.startswith(
        "the cache never hits for inner: it closes over compiled code (fn)"
    )


def test_explosion_names_what_the_overloads_differ_in():
    """Eleven of twelve differ from another in dtype alone."""
    finding = found("overload-explosion", make_result(*arrays_of(12)))[0]
    assert "they differ in dtype (11)" in finding.message


def test_dispatch_advice_names_slow_arguments():
    """Omitted defaults and records are what makes this dispatch slow."""
    args = (
        make_arg("omitted(2)", name="k", kind="omitted"),
        make_arg("Record", name="rec", kind="record"),
    )
    overload = cheap(args=args, calls=100_000, mean_ns=200, dispatch_ns=100_000 * 400)
    advice = found("dispatch-bound", make_result(overload))[0].try_
    assert "`k`" in advice
    assert "`rec` (record)" in advice


@pytest.mark.parametrize(
    ("overload", "info", "advice"),
    [
        ({}, {}, "cache=True keeps the machine code"),
        ({}, {"cache_enabled": True}, "the cache is on: compare"),
        ({}, {"closure_functions": ("f",)}, "define it at module level"),
        (
            {},
            {"cache_enabled": True, "closure_functions": ("f",)},
            "make its cache hit, see cache-never-hits",
        ),
        ({"kind": "method"}, {}, "call it more often per process"),
        ({"kind": "object mode"}, {}, "call it more often per process"),
        (
            {"args": (make_arg(kind="jitclass", name="box"),)},
            {},
            "call it more often per process, it cannot be cached: the type of `box` is",
        ),
    ],
)
def test_caching_is_advised_only_where_it_can_hit(overload, info, advice):
    """What Numba cannot keep between runs is not to be cached."""
    result = make_result(
        make_overload(**overload), dispatchers=(make_dispatcher(**info),)
    )
    assert found("compile-exceeds-run", result)[0].try_.startswith(advice)


def test_dearest_finding_comes_first_and_explanations_last():
    """The whole profile, then by cost, then what only explains."""
    result = make_result(
        make_overload("cheap", compile_ns=20 * MILLISECOND),
        make_overload("dear", compile_ns=90 * MILLISECOND),
        processes=(make_process(environment=make_environment(jit_disabled=True)),),
        dispatchers=(make_dispatcher("inlined", inline=True),),
    )
    assert [(f.slug, f.cost_s) for f in find(result)] == [
        ("jit-disabled", 0.0),
        ("compile-exceeds-run", 0.09),
        ("compile-exceeds-run", 0.02),
        ("inlined", 0.0),
    ]
