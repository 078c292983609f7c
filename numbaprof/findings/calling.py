"""Detectors about calls: what stands between the caller and the kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from numbaprof.findings.facts import NS_PER_SECOND, Finding
from numbaprof.wording import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numbaprof.findings.facts import Facts
    from numbaprof.model import ArgType

MIN_CALLS = 100
"""Calls before a mean is held against anything: one preempted call among fewer can
carry it (a time slice is some ms, a short kernel well under 1 us)."""

SHORT_KERNEL_FACTOR = 4
"""Times our own overhead per call; below, more than a fifth of what a caller waits for
is ours."""


FIRST_DISPATCH_NS = 15_000_000
"""What a first call may take around its compilation, in Numba's own Python code; up to
13 ms was seen. It says nothing of the calls that follow."""


def find_dispatch_bound(facts: Facts) -> Iterator[Finding]:
    """Find overloads that take longer to be looked up than to run."""
    for overload in facts.overloads:
        if not overload.dispatch_ns or (overload.calls or 0) < MIN_CALLS:
            continue
        calls = overload.calls or 0
        ours_ns = 0 if math.isnan(facts.overhead_ns) else facts.overhead_ns * calls
        dispatch_ns = overload.dispatch_ns - ours_ns
        if overload.created_in_session:
            dispatch_ns -= FIRST_DISPATCH_NS
        run_ns = overload.inclusive_ns or 0
        if dispatch_ns <= run_ns or not facts.is_worth(dispatch_ns):
            continue
        yield Finding(
            slug="dispatch-bound",
            function=overload.function,
            signature=overload.signature,
            message=(
                f"{facts.names[overload.function]} spends more time in being called "
                "than in running: per call "
                f"{format_duration(dispatch_ns / calls)} of dispatch and "
                f"{format_duration(run_ns / calls)} inside"
            ),
            evidence=(
                ("cost_s", dispatch_ns / NS_PER_SECOND),
                ("run_s", run_ns / NS_PER_SECOND),
                ("calls", calls),
                ("dispatch_ns_per_call", dispatch_ns / calls),
            ),
            try_=_advise_dispatch(overload.args),
        )


SLOW_DISPATCH_KINDS = {
    "object": "object",
    "function": "function",
    "record": "record",
    "reflected list": "list",
    "reflected set": "set",
    "tuple": "tuple",
    "namedtuple": "namedtuple",
}
"""Kinds of argument that take Numba's slow path or a long one when looked up."""


def _advise_dispatch(args: Iterable[ArgType]) -> str:
    args = tuple(args)
    omitted = [f"`{arg.name}`" for arg in args if arg.kind == "omitted" and arg.name]
    slow = [
        f"`{arg.name}` ({SLOW_DISPATCH_KINDS[arg.kind]})"
        for arg in args
        if arg.kind in SLOW_DISPATCH_KINDS and arg.name
    ]
    advice = "move the loop around it into an njit function"
    if omitted:
        advice += f"; pass {', '.join(omitted)} by position, a default costs time"
    if slow:
        advice += f"; {', '.join(slow)} is slow to look up"
    return advice


def find_boxing_bound(facts: Facts) -> Iterator[Finding]:
    """Find overloads whose measured conversions outweigh their kernel."""
    for overload in facts.overloads:
        boxing = overload.boxing
        if boxing is None or not boxing.calls:
            continue
        around_ns = boxing.unbox_ns + boxing.box_ns
        if around_ns <= boxing.kernel_ns or not facts.is_worth(around_ns):
            continue
        yield Finding(
            slug="boxing-bound",
            function=overload.function,
            signature=overload.signature,
            message=(
                f"{facts.names[overload.function]} spends "
                f"{format_duration(boxing.unbox_ns)} on converting arguments and "
                f"{format_duration(boxing.box_ns)} on the result, "
                f"{format_duration(boxing.kernel_ns)} in its own code"
            ),
            evidence=(
                ("cost_s", around_ns / NS_PER_SECOND),
                ("unbox_s", boxing.unbox_ns / NS_PER_SECOND),
                ("kernel_s", boxing.kernel_ns / NS_PER_SECOND),
                ("box_s", boxing.box_ns / NS_PER_SECOND),
                ("calls", boxing.calls),
            ),
            try_=(
                "pass arrays or typed containers, write results into an array that is "
                "passed in, and do more work per call"
            ),
        )


def find_reflected_list(facts: Facts) -> Iterator[Finding]:
    """Find overloads whose Python lists or sets are copied on every call."""
    for overload in facts.overloads:
        reflected = [
            arg
            for arg in overload.args
            if arg.kind in ("reflected list", "reflected set")
        ]
        run_ns = overload.inclusive_ns or 0
        if not reflected or not overload.calls or not facts.is_worth(run_ns):
            continue
        listed = ", ".join(f"`{arg.name}`" for arg in reflected if arg.name)
        kind = "set" if reflected[0].kind == "reflected set" else "list"
        yield Finding(
            slug="reflected-list",
            function=overload.function,
            signature=overload.signature,
            message=(
                f"every call of {facts.names[overload.function]} copies the Python "
                f"{kind} {listed or 'argument'} in and back: "
                f"{format_duration(run_ns)} in {plural(overload.calls, 'call')}, "
                "copying included"
            ),
            evidence=(("cost_s", run_ns / NS_PER_SECOND), ("calls", overload.calls)),
            try_=(
                "pass a NumPy array or a numba.typed.List"
                if kind == "list"
                else "pass a sorted NumPy array or a numba.typed.Dict"
            ),
        )


def find_object_mode(facts: Facts) -> Iterator[Finding]:
    """Find functions that run in object mode."""
    for overload in facts.overloads:
        run_ns = overload.inclusive_ns or 0
        if overload.kind != "object mode" or not facts.is_worth(run_ns):
            continue
        yield Finding(
            slug="object-mode",
            function=overload.function,
            signature=overload.signature,
            message=(
                f"{facts.names[overload.function]} runs in object mode, at the speed "
                f"of the interpreter: {format_duration(run_ns)} in "
                f"{plural(overload.calls or 0, 'call')}"
            ),
            evidence=(
                ("cost_s", run_ns / NS_PER_SECOND),
                ("calls", overload.calls or 0),
            ),
            try_=(
                "use njit and put what it cannot compile into a `with objmode` block, "
                "or drop the decorator"
            ),
        )


# -- explanations ----------------------------------------------------------------------


def find_short_kernel(facts: Facts) -> Iterator[Finding]:
    """Find overloads so short that our own overhead blurs their mean."""
    limit_ns = SHORT_KERNEL_FACTOR * facts.overhead_ns
    for overload in facts.overloads:
        calls, run_ns = overload.calls or 0, overload.inclusive_ns or 0
        if calls < MIN_CALLS or not facts.is_worth(run_ns):
            continue
        # A comparison with NaN, the unknown overhead, is false: nothing is said.
        if not run_ns / calls < limit_ns:
            continue
        yield Finding(
            slug="short-kernel",
            function=overload.function,
            signature=overload.signature,
            message=(
                f"a call of {facts.names[overload.function]} takes "
                f"{format_duration(run_ns / calls)}, and measuring it adds about "
                f"{format_duration(facts.overhead_ns)}: its times per call mean little"
            ),
            evidence=(
                ("mean_ns", run_ns / calls),
                ("overhead_ns", facts.overhead_ns),
                ("calls", calls),
            ),
            try_="trust its call count; time the loop around it instead",
        )


def find_inlined(facts: Facts) -> Iterator[Finding]:
    """Find functions that have no code of their own, and say so."""
    for info in facts.result.dispatchers:
        overloads = facts.by_function.get(info.function, [])
        if not info.inline or any(overload.calls for overload in overloads):
            continue
        yield Finding(
            slug="inlined",
            function=info.function,
            signature="",
            message=(
                f"{facts.names[info.function]} is inlined into its callers and has no "
                "code of its own: its time is in theirs"
            ),
            evidence=(("overloads", len(overloads)),),
            try_="",
        )


def find_jit_disabled(facts: Facts) -> Iterator[Finding]:
    """Find processes in which nothing was compiled on purpose."""
    runs = facts.result.processes
    disabled = sum(run.environment.jit_disabled for run in runs)
    if disabled:
        yield Finding(
            slug="jit-disabled",
            function=None,
            signature="",
            message="jit is disabled, numbers are for interpreted Python",
            evidence=(("processes", disabled),),
            try_="unset NUMBA_DISABLE_JIT",
        )
