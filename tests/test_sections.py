from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest
from builders import (
    MILLISECOND,
    SECOND,
    array,
    make_boxing,
    make_dispatcher,
    make_environment,
    make_event,
    make_function,
    make_losses,
    make_node,
    make_overload,
    make_process,
    make_result,
    make_row,
    make_site,
    make_thread,
)

from numbaprof.layout import to_text
from numbaprof.model import BackendInfo, ClockInfo, Losses, ThreadSplit
from numbaprof.sections import (
    FINDINGS_PER_SLUG,
    LOSSES,
    REASONS_PER_FUNCTION,
    SITES_SHOWN,
    render_breakdown,
    render_compiling,
    render_details,
    render_findings,
    render_header,
    render_losses,
    render_reasons,
    state_verdict,
)
from numbaprof.summary import summarize

MESSAGES = Path(__file__).parent.parent / "docs" / "messages.md"


def times(*nodes, wall_ns=1000, **changes):
    """Make a profile with these nodes under its main thread."""
    contexts = (make_thread(), *nodes)
    overload = make_overload()
    return make_result(overload, wall_ns=wall_ns, contexts=contexts, **changes)


@pytest.mark.parametrize(
    ("nodes", "verdict"),
    [
        (
            (make_node("compile", inclusive_ns=620), make_node(inclusive_ns=120)),
            "62 % of 1.00 µs wall time was compiling, 12 % was running compiled code.",
        ),
        (
            (make_node("compile", inclusive_ns=20), make_node(inclusive_ns=880)),
            "88 % of 1.00 µs wall time was running compiled code, 2 % was compiling.",
        ),
        (
            (make_node("cache_load", inclusive_ns=600),),
            "60 % of 1.00 µs wall time was loading cached code, 0 % was compiling.",
        ),
        (
            (make_node(inclusive_ns=100, dispatch_ns=600),),
            "60 % of 1.00 µs wall time was finding the overload to call, "
            "0 % was compiling.",
        ),
        (
            (make_node("compile", inclusive_ns=40), make_node(inclusive_ns=100)),
            "86 % of 1.00 µs wall time was Python and the rest, 10 % was running "
            "compiled code, 4 % was compiling.",
        ),
    ],
)
def test_verdict_names_the_largest_share_and_compiling(nodes, verdict):
    """One sentence, whatever dominates."""
    result = times(*nodes)
    assert state_verdict(result, summarize(result)) == verdict


def test_verdict_is_honest_about_nothing():
    """A profile without overloads does not talk of per cents."""
    result = make_result()
    assert state_verdict(result, summarize(result)) == (
        "No compiled function was called or compiled in 1.00 s wall time."
    )


def header_of(**changes):
    """Render the header of a profile from such an environment."""
    environment = make_environment(**changes)
    result = make_result(processes=(make_process(environment=environment),))
    return to_text(render_header(result, 200))


def test_header_names_versions_command_clock_and_overhead():
    """Everything that a figure depends on."""
    text = header_of()
    for part in (
        "numbaprof 0.1.0",
        "Python 3.12.1",
        "numba 0.68.1",
        "llvmlite 0.50.0",
        "numpy 2.5.5",
        "script.py --flag",
        "2026-01-02 03:04:05 UTC",
        "clock rdtsc ±0.02 ppm",
        "measuring adds about 25 ns to a call",
    ):
        assert part in text


def test_header_does_not_name_python_twice():
    """The version may name the implementation itself."""
    assert " · CPython 3.12.1 · " in header_of(python="CPython 3.12.1")


def test_error_of_the_clock_has_two_digits_and_no_exponent():
    """A very short run has a clock that is known to some hundred ppm."""
    clock = ClockInfo("tsc", "", 1e9, 1.0, 423.456)
    assert "clock tsc ±420 ppm" in header_of(clock=clock)


def test_header_says_why_something_fell_back():
    """A backend with a reason is a fallback; one without is not worth a line."""
    text = header_of(
        backends=(
            BackendInfo("dispatch", "trampoline"),
            BackendInfo("callers", "PyEval_GetFrame", "the frame layout is unknown"),
        ),
        clock=ClockInfo("clock_gettime", "the CPU has no steady counter", 1e9, 1.0, 0),
        overhead_ns=math.nan,
        overhead_reason="nothing could be compiled",
        numba_settings=(("NUMBA_OPT", "1"),),
    )
    assert "callers: PyEval_GetFrame, because the frame layout is unknown" in text
    assert "clock clock_gettime ±0 ppm (the CPU has no steady counter)" in text
    assert "unknown: nothing could be compiled" in text
    assert "settings: NUMBA_OPT=1" in text
    assert "trampoline" not in text


def test_header_counts_processes_and_tells_how_they_ended():
    """Merged profiles say so."""
    result = make_result(
        processes=(
            make_process(exit="SystemExit(3)"),
            make_process(pid=101, label="fork"),
            make_process(pid=102, label="fork"),
        )
    )
    text = to_text(render_header(result, 200))
    assert "3 processes, times added: main, 2 × fork" in text
    assert "process 100 (main) ended with SystemExit(3)" in text


def test_breakdown_shows_every_part_and_the_wall():
    """Parts that are always of interest are shown even when they are 0."""
    result = times(make_node("compile", inclusive_ns=500), make_node(inclusive_ns=250))
    lines = to_text(render_breakdown(summarize(result), 80)).splitlines()
    assert [line.split("  ")[0].strip() for line in lines] == [
        "compiling",
        "dispatch",
        "compiled code",
        "Python and the rest",
        "wall time",
    ]
    assert lines[0].endswith("50 %  " + "█" * 12)


def test_breakdown_tells_objmode_ufuncs_and_threads():
    """What is inside the rest or beside the main thread is named."""
    result = make_result(
        make_overload("block", kind="objmode body"),
        make_overload("loop", kind="ufunc loop", mean_ns=77),
        contexts=(
            make_thread(),
            make_thread("worker"),
            make_node(overload=0, inclusive_ns=33),
            make_node("compile", parent=1, inclusive_ns=44),
        ),
    )
    text = to_text(render_breakdown(summarize(result), 200))
    assert "in Python functions" not in text
    assert "33 ns in objmode blocks" in text
    assert "77 ns of compiled code ran outside the call tree" in text
    assert "Beside it, in 1 other thread: 44 ns compiling." in text


def test_breakdown_opens_the_rest_when_python_was_traced():
    """Python functions, builtins and tracing itself are named."""
    result = make_result(
        processes=(make_process(tracing_ns=66),),
        python_rows=(make_row(), make_row("len", kind="builtin")),
        contexts=(
            make_thread(),
            make_node("python", python_row=0, inclusive_ns=77, exclusive_ns=44),
            make_node("builtin", parent=1, python_row=1, inclusive_ns=33),
        ),
    )
    assert (
        "Of Python and the rest, 44 ns in Python functions, 33 ns in functions written "
        "in C, at least 66 ns in tracing them."
    ) in to_text(render_breakdown(summarize(result), 200))


def compiling_of(result, width=120):
    """Render the section about compiling."""
    return to_text(render_compiling(result, summarize(result), width))


def test_compiling_says_how_long_when_and_by_whom():
    """Time, count, share of import, and the line that caused it."""
    text = compiling_of(
        make_result(
            events=(
                make_event("a", at_import=True, import_module="lib"),
                make_event("b", event="cache_load", inclusive_ns=5 * MILLISECOND),
                make_event("c", event="failed", inclusive_ns=2 * MILLISECOND),
                make_event("d", internal=True, inclusive_ns=MILLISECOND),
            )
        )
    )
    assert text.startswith(
        "103 ms in 2 compilations and 1 failed attempt (2.00 ms), 5.00 ms in 1 cache "
        "load; 100 ms of it while importing."
    )
    assert "1.00 ms of it for 1 helper of Numba's own." in text
    assert "import of lib  script.py:40 in main" in text
    assert "  __main__  script.py:40 in main" in text


def test_compiling_is_silent_about_import_when_there_was_none():
    """A program that compiles in calls is told so."""
    assert "none of it while importing" in compiling_of(
        make_result(events=(make_event(),))
    )


def test_many_call_sites_are_summed():
    """A hundred lines of a program are not a hundred lines of a report."""
    events = tuple(make_event(trigger=make_site(line)) for line in range(1, 101))
    lines = compiling_of(make_result(events=events)).splitlines()
    assert lines[-1].endswith(f"… and {100 - SITES_SHOWN} more lines")
    assert "9.40 s" in lines[-1]


def test_never_called_overloads_are_listed_with_their_cost():
    """Dearest first, the rest summed."""
    overloads = [
        make_overload(f"f{i}", calls=0, compile_ns=MILLISECOND * (i + 1))
        for i in range(SITES_SHOWN + 3)
    ]
    lines = compiling_of(make_result(*overloads, events=(make_event(),))).splitlines()
    at = next(i for i, line in enumerate(lines) if "never called from Python" in line)
    assert "9.00 ms  f8(int64)" in lines[at + 1]
    assert lines[-1] == "6.00 ms  … and 3 more"


def test_sites_that_cost_little_are_summed():
    """Below a hundredth of the whole, a line of its own is not worth reading."""
    events = (
        make_event("a", inclusive_ns=SECOND, trigger=make_site(1)),
        *(make_event(trigger=make_site(n), inclusive_ns=100) for n in (2, 3)),
        make_event("b", inclusive_ns=100, trigger=make_site(module="other")),
    )
    lines = compiling_of(make_result(events=events)).splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[3:]] == [
        "__main__",
        "script.py:1 in main",
        "… and 2 more lines",
        "… and 1 more module",
    ]


def test_never_called_overloads_that_cost_little_are_summed():
    """Many cheap ones are one sentence."""
    overloads = [make_overload(f"f{i}", calls=0, compile_ns=1000) for i in range(3)]
    text = compiling_of(make_result(*overloads, events=(make_event(),)))
    assert text.endswith("3 overloads made and never called from Python: 3.00 µs.")


def reasons_of(result, **changes):
    """Render the section that explains overloads."""
    options = {"sort": "total", "top": 20, "only": (), "width": 100} | changes
    return to_text(render_reasons(result, **options))


def test_reasons_are_given_where_there_is_more_than_one_overload():
    """The only overload of a function needs no reason."""
    result = make_result(
        make_overload("single"),
        make_overload("twice", args=(array(ndim=2),)),
        make_overload("twice", args=(array(ndim=2, layout="F"),)),
    )
    assert reasons_of(result).splitlines() == [
        "twice  2 overloads, demo.py:10",
        "  (float64[:, ::1])  first call",
        "  (float64[::1, :])  compiled again because of `x`: layout C to F",
    ]


def test_functions_with_listed_signatures_are_only_named():
    """Why each of the overloads exists is in the decorator."""
    listed = [
        make_overload(f"f{i}", args=(array(ndim=n),), origin="eager")
        for i in range(8)
        for n in (1, 2)
    ]
    assert reasons_of(make_result(*listed)) == (
        "8 functions have their signatures listed in the decorator: f0, f1, f2, f3, "
        "f4, f5 and 2 more."
    )
    assert reasons_of(make_result(*listed[:2])) == (
        "1 function has its signatures listed in the decorator: f0."
    )


def test_closures_are_explained_together():
    """Functions of one source are one group, told apart by number."""
    result = make_result(
        *(make_overload(make_function("m.<locals>.k", instance=i)) for i in range(2))
    )
    lines = reasons_of(result).splitlines()
    assert lines[0] == "m.<locals>.k  2 overloads of 2 functions, demo.py:10"
    assert "m.<locals>.k#2(int64)" in lines[2]
    assert lines[2].endswith("another closure of the same source (2 of 2)")


def test_reasons_stay_short():
    """Of 125 overloads a few are explained; many functions are cut at ``top``."""
    explosion = [make_overload(args=(array(f"t{i}"),)) for i in range(125)]
    lines = reasons_of(make_result(*explosion)).splitlines()
    assert len(lines) == REASONS_PER_FUNCTION + 2
    assert lines[-1].strip() == "… and 117 more; p.stats lists them all"
    pairs = [
        make_overload(f"f{i}", args=(array(dtype),)) for i in range(9) for dtype in "ab"
    ]
    assert reasons_of(make_result(*pairs), top=4).endswith("… and 7 more functions")


def details_of(result):
    """Render the section about boxing and threads."""
    return to_text(render_details(result, sort="total", only=(), width=100))


def test_details_show_the_boxing_split():
    """Where the time inside went, for overloads that were split."""
    split = make_boxing(4, unbox_ns=MILLISECOND, kernel_ns=200, box_ns=3)
    text = details_of(make_result(make_overload(boxing=split)))
    assert text.splitlines()[1].strip() == "4  1.00 ms  200 ns  3 ns  kernel(int64)"


def test_details_show_calls_by_thread_count():
    """Wall time per call and CPU time over wall time, per setting."""
    threads = (
        ThreadSplit(n_threads=1, calls=2, inclusive_ns=600, cpu_ns=600),
        ThreadSplit(n_threads=2, calls=2, inclusive_ns=400, cpu_ns=780),
    )
    text = details_of(make_result(make_overload(threads=threads)))
    rows = [line.split() for line in text.splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["1", "2", "300", "ns", "1.00"],
        ["2", "2", "200", "ns", "1.95"],
    ]


def test_details_are_empty_without_details():
    """No heading without a body."""
    assert details_of(make_result(make_overload())) == ""


def test_findings_say_what_to_try_and_their_slug():
    """The advice stands under the message."""
    lines = render_findings(make_result(make_overload()), top=5, only=(), width=300)
    text = to_text(lines)
    assert text.startswith("● kernel compiled for 100 ms and ran for 1.00 µs in 1 call")
    assert text.splitlines()[1].startswith("  → try: cache=True")
    assert text.endswith("[compile-exceeds-run]")


def test_more_findings_are_counted_by_slug():
    """What is not listed is named."""
    result = make_result(*(make_overload(f"f{i}") for i in range(5)))
    text = to_text(render_findings(result, top=2, only=(), width=100))
    assert text.endswith("… and 3 more (compile-exceeds-run)")


def test_one_kind_of_finding_does_not_crowd_out_the_others():
    """The dearest few of a kind are listed, then the next kind."""
    result = make_result(
        *(make_overload(f"f{i}") for i in range(9)),
        make_overload("unused", calls=0, compile_ns=20 * MILLISECOND),
    )
    text = to_text(render_findings(result, top=20, only=(), width=100))
    assert text.count("[compile-exceeds-run]") == FINDINGS_PER_SLUG
    assert "[never-called]" in text
    assert text.endswith("… and 5 more (compile-exceeds-run)")


def test_explanations_of_one_kind_are_one():
    """A library may have fifty inlined functions; that is the same news fifty times."""
    infos = tuple(make_dispatcher(f"f{i}", inline=True) for i in range(9))
    text = to_text(
        render_findings(make_result(dispatchers=infos), top=20, only=(), width=100)
    )
    assert text.count("[inlined]") == 1
    assert text.endswith("… and 8 more (inlined)")


def test_findings_of_functions_that_are_not_shown_are_left_out():
    """``only`` holds for findings as well."""
    result = make_result(make_overload("a"), make_overload("b"))
    text = to_text(render_findings(result, top=9, only=("b",), width=100))
    assert "b compiled" in text
    assert "a compiled" not in text


def losses_of(result):
    """Render the section about what was not measured."""
    return to_text(render_losses(result, 300))


def test_no_losses_are_stated():
    """Silence would leave a doubt."""
    assert losses_of(make_result()) == (
        "none lost: all that numbaprof could see is in these figures"
    )


LOST = {
    "in_flight_calls": (2, "2 calls still running"),
    "truncated_contexts": (1, "1 call without their caller"),
    "unattached": (
        (("no entry point", 3),),
        "3 overloads not measured: no entry point",
    ),
    "unfinished_compilations": (2, "2 compilations under way when profiling"),
    "hook_errors": (("KeyError: x",), "1 error inside numbaprof"),
    "unrestored": (("tp_call", "f"), "2 places changed by somebody else"),
    "missing_processes": (("pid 7",), "1 process started under the profile"),
}


@pytest.mark.parametrize("field", [field.name for field in fields(Losses)])
def test_every_loss_is_reported_with_its_slug(field):
    """Each field of the model has a line that says what became of it."""
    value, text = LOST[field]
    shown = losses_of(make_result(losses=make_losses(**{field: value})))
    slug = field.replace("_", "-")
    assert shown.startswith(text)
    assert shown.endswith(f"[{slug}]")
    assert slug in LOSSES


@pytest.mark.parametrize("slug", LOSSES)
def test_every_loss_is_documented(slug):
    """``docs/messages.md`` has a section for every loss."""
    assert f"### `{slug}`\n" in MESSAGES.read_text(encoding="utf-8")


def test_uncountable_overloads_are_a_limit_not_a_loss():
    """They are mentioned, beside the statement that nothing was lost."""
    text = losses_of(make_result(make_overload(calls=None)))
    assert text.startswith("none lost")
    assert "1 overload cannot be counted" in text


def test_wall_time_of_a_second_is_written_in_seconds():
    """Times are in the unit of their size."""
    result = make_result(make_overload(mean_ns=SECOND // 2))
    assert "500 ms" in to_text(render_breakdown(summarize(result), 80))
