"""Detectors about compile time: what was compiled needlessly, twice or in vain."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numbaprof.findings.facts import MIN_COST_NS, NS_PER_SECOND, Finding
from numbaprof.why import is_generated, most_similar, source_of
from numbaprof.wording import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numbaprof.findings.facts import Facts
    from numbaprof.model import (
        CompileEvent,
        DispatcherInfo,
        FunctionId,
        OverloadStats,
    )

OVERLOAD_LIMIT = 8
"""Overloads of one function before their number is a finding. Two dtypes times C, F
and A layout, read-only or not, is 12 at most; PyTorch stops recompiling at 8."""

TUPLE_LENGTH_LIMIT = 4
"""Tuple lengths (or argument counts) of one function before it is a finding: 1, 2 and
3 dimensions are common by design."""

INTERPRETED_FACTOR = 1000
"""Times that a loop may take longer in the interpreter. Whatever compiled for
longer than that many times its run would have been done sooner without."""

OWN_SHARE = 0.9
"""Of the compile time of a function; where its own part is below, others are a cost
worth telling from it."""

SAME_SOURCE_LIMIT = 3
"""Function objects of one source that compiled one signature; a pair may be meant."""


def find_compile_exceeds_run(facts: Facts) -> Iterator[Finding]:
    """Find functions that took longer to compile than they ran."""
    told = {function for group in _group_remade(facts) for function in group.functions}
    told |= facts.repeated("stencil").keys()
    for function, overloads in facts.by_function.items():
        judged = [
            overload
            for overload in overloads
            if overload.calls
            and overload.compile_ns
            and facts.is_run_complete(overload)
            and function not in told
        ]
        compile_ns = sum(overload.compile_ns or 0 for overload in judged)
        run_ns = sum(overload.inclusive_ns or 0 for overload in judged)
        if not run_ns or compile_ns <= run_ns or not facts.is_worth(compile_ns):
            continue
        calls = sum(overload.calls or 0 for overload in judged)
        payback = -(-compile_ns * calls // run_ns)
        name = facts.names[function]
        yield Finding(
            slug="compile-exceeds-run",
            function=function,
            signature=judged[0].signature if len(judged) == 1 else "",
            message=(
                f"{name} compiled for {format_duration(compile_ns)}"
                f"{_name_own_part(judged, compile_ns)} and ran for "
                f"{format_duration(run_ns)} in {plural(calls, 'call')}; at this rate "
                f"running takes over after {payback:,} calls"
            ),
            evidence=(
                ("cost_s", compile_ns / NS_PER_SECOND),
                ("run_s", run_ns / NS_PER_SECOND),
                ("calls", calls),
                ("payback_calls", payback),
            ),
            try_=_advise_caching(facts.info.get(function), judged)
            + (INTERPRETED_ADVICE if compile_ns > INTERPRETED_FACTOR * run_ns else ""),
        )


INTERPRETED_ADVICE = "; or leave it interpreted"


def _name_own_part(overloads: list[OverloadStats], compile_ns: int) -> str:
    """Say how much of the compile time is not that of functions compiled for it."""
    own_ns = sum(overload.compile_self_ns or 0 for overload in overloads)
    if not own_ns or own_ns >= OWN_SHARE * compile_ns:
        return ""
    return f" ({format_duration(own_ns)} without what it calls)"


NEVER_CACHED_KINDS = ("constructor", "method", "property", "object mode", "stencil")
NEVER_CACHED_ARGS = ("jitclass", "function")
"""What Numba does not keep between runs: members of a jitclass, object mode code with
its lifted loops, stencils, and whatever takes types that are new in every process."""


def _advise_caching(info: DispatcherInfo | None, judged: list[OverloadStats]) -> str:
    if info is not None and info.cache_enabled:
        if info.cache_reason or info.closure_functions:
            return "make its cache hit, see cache-never-hits"
        return "the cache is on: compare with a second run, which should load it"
    if info is not None and info.closure_functions:
        return (
            "define it at module level, so that cache=True can keep it between runs: "
            "a closure over compiled functions never hits the cache"
        )
    if any(
        is_generated(overload.function) or overload.kind in NEVER_CACHED_KINDS
        for overload in judged
    ):
        return "call it more often per process, it cannot be cached"
    new_types = [
        f"`{arg.name}`" if arg.name else "an argument"
        for overload in judged
        for arg in overload.args
        if arg.kind in NEVER_CACHED_ARGS
    ]
    if new_types:
        return (
            "call it more often per process, it cannot be cached: the type of "
            f"{new_types[0]} is a new one in each"
        )
    return "cache=True keeps the machine code between runs"


def find_overload_explosion(facts: Facts) -> Iterator[Finding]:
    """Find functions with needlessly many overloads."""
    for function, overloads in facts.by_function.items():
        grown = [o for o in overloads if not facts.is_listed(o)]
        cost_ns = _making_ns(grown)
        if len(grown) <= OVERLOAD_LIMIT or not facts.is_worth(cost_ns):
            continue
        if _count_lengths(grown) >= TUPLE_LENGTH_LIMIT:
            continue
        once = sum(overload.calls == 1 for overload in grown)
        causes = ", ".join(
            f"{aspect} ({count})" for aspect, count in _count_aspects(grown)
        )
        yield Finding(
            slug="overload-explosion",
            function=function,
            signature="",
            message=(
                f"{facts.names[function]} has {len(grown)} overloads, made in "
                f"{format_duration(cost_ns)}; {once} of them were called once"
                + (f"; they differ in {causes}" if causes else "")
            ),
            evidence=(
                ("cost_s", cost_ns / NS_PER_SECOND),
                ("overloads", len(grown)),
                ("called_once", once),
            ),
            try_=(
                "convert arguments to one type before the call, for instance with "
                "np.ascontiguousarray(x, dtype=np.float64), or give explicit signatures"
            ),
        )


def _count_aspects(overloads: list[OverloadStats]) -> list[tuple[str, int]]:
    """Count what told each overload from the most similar earlier one."""
    aspects: Counter[str] = Counter()
    for position, overload in enumerate(overloads[1:], start=1):
        changes = most_similar(overload, overloads[:position])
        aspects.update({change.aspect for change in changes})
    return aspects.most_common(3)


def find_tuple_length_explosion(facts: Facts) -> Iterator[Finding]:
    """Find functions compiled anew for each length of a tuple."""
    for function, overloads in facts.by_function.items():
        grown = [o for o in overloads if not facts.is_listed(o)]
        n_lengths = _count_lengths(grown)
        cost_ns = _making_ns(grown)
        if n_lengths < TUPLE_LENGTH_LIMIT or not facts.is_worth(cost_ns):
            continue
        yield Finding(
            slug="tuple-length-explosion",
            function=function,
            signature="",
            message=(
                f"{facts.names[function]} was compiled for {n_lengths} tuple lengths "
                "or argument counts, each a type of its own: "
                f"{format_duration(cost_ns)}"
            ),
            evidence=(
                ("cost_s", cost_ns / NS_PER_SECOND),
                ("lengths", n_lengths),
                ("overloads", len(grown)),
            ),
            try_="pass an array or a typed.List, whose length is not part of the type",
        )


def _count_lengths(overloads: list[OverloadStats]) -> int:
    """Count the combinations of argument count and tuple lengths."""
    return len(
        {
            (
                len(overload.args),
                tuple(
                    len(arg.items)
                    for arg in overload.args
                    if arg.kind in ("tuple", "namedtuple")
                ),
            )
            for overload in overloads
        }
    )


def find_never_called(facts: Facts) -> Iterator[Finding]:
    """Find overloads that were made for nothing, as far as Python can tell."""
    unused: dict[FunctionId, list[OverloadStats]] = defaultdict(list)
    for index in sorted(facts.never_called):
        overload = facts.result.overloads[index]
        unused[overload.function].append(overload)
    for function, overloads in unused.items():
        cost_ns = _making_ns(overloads)
        if not facts.is_worth(cost_ns):
            continue
        total = len(facts.by_function[function])
        name = facts.names[function]
        subject = (
            f"{len(overloads)} of {total} specializations of {name} "
            f"{'was' if len(overloads) == 1 else 'were'} never called"
            if total > 1
            else f"{name} was never called"
        )
        yield Finding(
            slug="never-called",
            function=function,
            signature=overloads[0].signature if len(overloads) == 1 else "",
            message=(
                f"{subject} from Python, at a cost of {format_duration(cost_ns)}"
                + _name_import(facts, overloads)
            ),
            evidence=(
                ("cost_s", cost_ns / NS_PER_SECOND),
                ("never_called", len(overloads)),
                ("overloads", total),
            ),
            try_=_advise_removal(facts, overloads),
        )


def _advise_removal(facts: Facts, overloads: list[OverloadStats]) -> str:
    action = "do not compile before it is called"
    if any(facts.is_listed(overload) for overload in overloads):
        action = "remove the signatures, so that types compile when first used"
    return f"{action}; keep what only other compiled code calls, which cannot be seen"


def _name_import(facts: Facts, overloads: list[OverloadStats]) -> str:
    wanted = {(overload.function, overload.signature) for overload in overloads}
    made = [
        event
        for event in facts.result.compile_events
        if (event.function, event.signature) in wanted and event.event != "failed"
    ]
    if not made or not all(event.at_import for event in made):
        return ""
    modules = list(dict.fromkeys(event.import_module for event in made))
    return f", compiled at import of module {', '.join(modules)}"


def find_same_source_compiled(facts: Facts) -> Iterator[Finding]:
    """Find factories whose every product compiles the same source."""
    for group in _group_remade(facts):
        first = group.functions[0]
        yield Finding(
            slug="same-source-compiled",
            function=first,
            signature=group.signature,
            message=(
                f"same source compiled {group.times} times for {group.signature}: "
                f"{first.qualname} is a new function each time, "
                f"{format_duration(group.cost_ns)} of compiling in all"
            ),
            evidence=(
                ("cost_s", group.cost_ns / NS_PER_SECOND),
                ("functions", len(group.functions)),
                ("times", group.times),
            ),
            try_=(
                "make the function once and pass what differs as an argument, or keep "
                "the made functions, for instance with functools.lru_cache"
            ),
        )


@dataclass(frozen=True, slots=True)
class _Remade:
    """Functions of one source that compiled the same types again and again."""

    functions: tuple[FunctionId, ...]
    signature: str
    """The one that was compiled most often."""
    times: int
    cost_ns: int


def _group_remade(facts: Facts) -> Iterator[_Remade]:
    groups: dict[tuple[str, str, str, int], list[FunctionId]] = defaultdict(list)
    for function in sorted(facts.by_function):
        if not is_generated(function):
            groups[source_of(function)].append(function)
    for functions in groups.values():
        if len(functions) < SAME_SOURCE_LIMIT:
            continue
        compiled = [
            overload
            for function in functions
            for overload in facts.by_function[function]
            if overload.compile_ns and overload.origin in ("compiled", "eager")
        ]
        signatures = Counter(overload.signature for overload in compiled)
        cost_ns = sum(overload.compile_ns or 0 for overload in compiled)
        for signature, times in signatures.most_common(1):
            if times >= SAME_SOURCE_LIMIT and facts.is_worth(cost_ns):
                yield _Remade(tuple(functions), signature, times, cost_ns)


def find_recompiles_every_call(facts: Facts) -> Iterator[Finding]:
    """Find stencils that are called from Python."""
    for function, events in facts.repeated("stencil").items():
        cost_ns = sum(event.inclusive_ns for event in events)
        if not facts.is_worth(cost_ns):
            continue
        yield Finding(
            slug="recompiles-every-call",
            function=function,
            signature=events[0].signature,
            message=(
                f"the stencil {facts.names[function]} was compiled "
                f"{plural(len(events), 'more time')} for the same types, "
                f"{format_duration(cost_ns)}: called from Python, it compiles on "
                "every call"
            ),
            evidence=(("cost_s", cost_ns / NS_PER_SECOND), ("repeats", len(events))),
            try_="call it from an njit function, which compiles it once",
        )


def find_duplicate_compile(facts: Facts) -> Iterator[Finding]:
    """Find functions compiled again in a process for types they had."""
    for function, events in facts.repeated("dispatcher").items():
        cost_ns = sum(event.inclusive_ns for event in events)
        if not facts.is_worth(cost_ns):
            continue
        yield Finding(
            slug="duplicate-compile",
            function=function,
            signature=events[0].signature,
            message=(
                f"{facts.names[function]} was compiled "
                f"{plural(len(events), 'more time')} for types it already had, "
                f"{format_duration(cost_ns)}"
            ),
            evidence=(("cost_s", cost_ns / NS_PER_SECOND), ("repeats", len(events))),
            try_="look for recompile() or for signatures listed twice",
        )


def find_compile_failed(facts: Facts) -> Iterator[Finding]:
    """Find functions whose compilation failed at some cost."""
    failed: dict[FunctionId, list[CompileEvent]] = defaultdict(list)
    for event in facts.result.compile_events:
        if event.event == "failed" and event.parent < 0 and not event.internal:
            failed[event.function].append(event)
    for function, events in failed.items():
        cost_ns = sum(event.inclusive_ns for event in events)
        if not facts.is_worth(cost_ns):
            continue
        error = next((event.error for event in events if event.error), "no message")
        yield Finding(
            slug="compile-failed",
            function=function,
            signature=events[0].signature,
            message=(
                f"{facts.names[function]} failed to compile "
                f"{plural(len(events), 'time')}, {format_duration(cost_ns)}: {error}"
            ),
            evidence=(("cost_s", cost_ns / NS_PER_SECOND), ("failures", len(events))),
            try_="a failed call compiles anew each time; check the types before it",
        )


def find_cache_never_hits(facts: Facts) -> Iterator[Finding]:
    """Find functions whose cache is on and cannot hit."""
    for info in facts.result.dispatchers:
        cause = info.cache_reason
        if info.closure_functions and not cause:
            cause = (
                f"it closes over compiled code ({', '.join(info.closure_functions)})"
            )
        overloads = facts.by_function.get(info.function, [])
        cost_ns = sum(overload.compile_ns or 0 for overload in overloads)
        hit = info.cache_hits > 0 or not info.cache_misses or not info.cache_enabled
        if hit or not cause or cost_ns < MIN_COST_NS:
            continue
        yield Finding(
            slug="cache-never-hits",
            function=info.function,
            signature="",
            message=(
                f"the cache never hits for {facts.names[info.function]}: {cause}; "
                f"{format_duration(cost_ns)} of compiling in every process"
            ),
            evidence=(
                ("cost_s", cost_ns / NS_PER_SECOND),
                ("misses", info.cache_misses),
                ("hits", info.cache_hits),
            ),
            try_=(
                "define it at module level with what it uses as globals, or turn "
                "cache=True off there"
            ),
        )


def _making_ns(overloads: Iterable[OverloadStats]) -> int:
    return sum((o.compile_ns or 0) + o.cache_load_ns for o in overloads)
