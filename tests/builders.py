"""Model objects with defaults, so that a test states only what it is about.

Everything built here is consistent: totals, extremes and histogram of an overload
agree, and :func:`make_result` derives a calling-context tree whose times add up, unless
the test passes its own. Import as ``from builders import make_overload, make_result``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numbaprof.model import (
    HISTOGRAM_BUCKETS,
    ArgType,
    BackendInfo,
    BoxingSplit,
    CallSite,
    ClockInfo,
    CompileEvent,
    ContextNode,
    DispatcherInfo,
    Environment,
    FunctionId,
    LineSite,
    Losses,
    OverloadStats,
    ProcessRun,
    ProfileResult,
    PythonRow,
    SampledStack,
    SamplingInfo,
)

__all__ = [
    "array",
    "derive_contexts",
    "histogram_of",
    "make_arg",
    "make_boxing",
    "make_dispatcher",
    "make_environment",
    "make_event",
    "make_function",
    "make_line_site",
    "make_losses",
    "make_node",
    "make_overload",
    "make_process",
    "make_result",
    "make_row",
    "make_sampling",
    "make_site",
    "make_stack",
    "make_thread",
    "scalar",
]

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def make_function(qualname: str = "kernel", **changes: Any) -> FunctionId:
    """Build a function identity; the line depends on nothing but the arguments."""
    fields: dict[str, Any] = {"module": "demo", "file": "demo.py", "line": 10}
    return FunctionId(qualname=qualname, **(fields | changes))


def make_site(line: int = 40, **changes: Any) -> CallSite:
    """Build a place in the user's source."""
    fields: dict[str, Any] = {
        "file": "script.py",
        "function": "main",
        "module": "__main__",
    }
    return CallSite(line=line, **(fields | changes))


def make_line_site(line: int = 12, **changes: Any) -> LineSite:
    """Build a line of the compiled function ``kernel``."""
    fields: dict[str, Any] = {"function": make_function(), "signature": "(int64)"}
    return LineSite(line=line, **(fields | changes))


def make_stack(*frames: int, count: int = 1, **changes: Any) -> SampledStack:
    """Build equal samples; on a line when there are frames, else in Python."""
    fields: dict[str, Any] = {
        "bin": "line" if frames else "python",
        "thread": "MainThread",
    }
    return SampledStack(count=count, frames=frames, **(fields | changes))


def make_sampling(*stacks: SampledStack, **changes: Any) -> SamplingInfo:
    """Build the account of one process: 4 ms of CPU time for each sample."""
    taken = sum(stack.count for stack in stacks)
    fields: dict[str, Any] = {
        "source": "ITIMER_PROF",
        "requested_ns": 4 * MILLISECOND,
        "achieved_ns": 4 * MILLISECOND,
        "cpu_ns": 4 * MILLISECOND * taken,
        "taken": taken,
    }
    return SamplingInfo(**(fields | changes))


def make_arg(text: str = "int64", *, name: str = "x", **changes: Any) -> ArgType:
    """Build an argument type; a scalar unless told otherwise."""
    fields: dict[str, Any] = {"kind": "scalar"}
    return ArgType(name=name, text=text, **(fields | changes))


def scalar(dtype: str = "int64", *, name: str = "x") -> ArgType:
    """Build the type of a scalar argument."""
    return make_arg(dtype, name=name, dtype=dtype)


def array(
    dtype: str = "float64",
    *,
    name: str = "x",
    ndim: int = 1,
    layout: str = "C",
    readonly: bool = False,
) -> ArgType:
    """Build the type of an array argument, labelled as Numba writes it."""
    dims = [":"] * ndim
    if layout == "C":
        dims[-1] = "::1"
    elif layout == "F":
        dims[0] = "::1"
    text = f"{dtype}[{', '.join(dims)}]"
    if readonly:
        text = f"readonly {text}"
    return ArgType(
        name=name,
        text=text,
        kind="array",
        dtype=dtype,
        ndim=ndim,
        layout=layout,
        readonly=readonly,
    )


def histogram_of(*durations_ns: int) -> tuple[int, ...]:
    """Count durations into the buckets that the engine uses."""
    buckets = [0] * HISTOGRAM_BUCKETS
    for duration in durations_ns:
        buckets[min(duration.bit_length(), HISTOGRAM_BUCKETS - 1)] += 1
    return tuple(buckets)


def make_boxing(
    calls: int = 1, *, unbox_ns: int = 10, kernel_ns: int = 100, box_ns: int = 5
) -> BoxingSplit:
    """Build the opt-in split of an overload's time."""
    return BoxingSplit(
        calls=calls, unbox_ns=unbox_ns, kernel_ns=kernel_ns, box_ns=box_ns
    )


def make_overload(
    function: FunctionId | str = "kernel",
    *,
    calls: int | None = 1,
    mean_ns: int = 1000,
    args: tuple[ArgType, ...] | None = None,
    **changes: Any,
) -> OverloadStats:
    """Build an overload that was called ``calls`` times for ``mean_ns`` each.

    ``calls=None`` makes one that cannot be counted. The signature follows from the
    arguments; anything may be overridden by keyword.
    """
    if isinstance(function, str):
        function = make_function(function)
    if args is None:
        args = (scalar(),)
    fields: dict[str, Any] = {
        "kind": "function",
        "origin": "compiled",
        "signature": f"({', '.join(arg.text for arg in args)})",
        "compile_ns": 100 * MILLISECOND,
        "created_in_session": True,
        "dispatch_ns": 0,
    }
    if calls is None:
        fields |= {
            "countable": False,
            "not_countable_reason": "called from compiled code only",
            "inclusive_ns": None,
            "exclusive_ns": None,
            "dispatch_ns": None,
        }
    else:
        total_ns = calls * mean_ns
        buckets = [0] * HISTOGRAM_BUCKETS
        buckets[mean_ns.bit_length()] = calls
        fields |= {
            "inclusive_ns": total_ns,
            "exclusive_ns": total_ns,
            "min_ns": mean_ns if calls else None,
            "max_ns": mean_ns if calls else None,
            "histogram": tuple(buckets) if calls else (),
        }
    fields |= changes
    fields.setdefault("compile_self_ns", fields["compile_ns"])
    return OverloadStats(function=function, args=args, calls=calls, **fields)


def make_dispatcher(
    function: FunctionId | str = "kernel", **changes: Any
) -> DispatcherInfo:
    """Build what is known about a function apart from its overloads."""
    if isinstance(function, str):
        function = make_function(function)
    fields: dict[str, Any] = {"kind": "dispatcher", "n_overloads": 1}
    return DispatcherInfo(function=function, **(fields | changes))


def make_event(
    function: FunctionId | str = "kernel",
    *,
    signature: str = "(int64)",
    inclusive_ns: int = 100 * MILLISECOND,
    **changes: Any,
) -> CompileEvent:
    """Build a compilation without nested ones; its trigger is ``script.py:40``."""
    if isinstance(function, str):
        function = make_function(function)
    fields: dict[str, Any] = {
        "event": "compile",
        "kind": "dispatcher",
        "start_ns": 0,
        "exclusive_ns": inclusive_ns,
        "thread": "MainThread",
        "trigger": make_site(),
    }
    return CompileEvent(
        function=function,
        signature=signature,
        inclusive_ns=inclusive_ns,
        **(fields | changes),
    )


def make_row(name: str = "main", *, calls: int = 1, **changes: Any) -> PythonRow:
    """Build a row of the Python level that was called and took no time."""
    fields: dict[str, Any] = {
        "file": "script.py",
        "line": 1,
        "qualname": name,
        "kind": "python",
        "primitive_calls": calls,
    }
    return PythonRow(name=name, calls=calls, **(fields | changes))


def make_node(
    kind: str = "overload", *, parent: int = 0, **changes: Any
) -> ContextNode:
    """Build a node of the calling-context tree; exclusive defaults to inclusive."""
    fields: dict[str, Any] = {"inclusive_ns": 0}
    if kind == "overload":
        fields |= {"overload": 0, "calls": 1}
    fields |= changes
    fields.setdefault("exclusive_ns", fields["inclusive_ns"])
    return ContextNode(kind=kind, parent=parent, **fields)  # type: ignore[arg-type]


def make_thread(label: str = "MainThread", **changes: Any) -> ContextNode:
    """Build the root node of a thread."""
    return make_node("thread", parent=-1, label=label, **changes)


def make_environment(**changes: Any) -> Environment:
    """Build an environment; every figure in it is round."""
    fields: dict[str, Any] = {
        "python": "3.12.1",
        "numba": "0.68.1",
        "llvmlite": "0.50.0",
        "numpy": "2.5.5",
        "numbaprof": "0.1.0",
        "platform": "Linux-x86_64",
        "cpu": "Test CPU",
        "cpu_count": 2,
        "numba_num_threads": 2,
        "threading_layer": "workqueue",
        "numba_settings": (),
        "command_line": ("script.py", "--flag"),
        "started": "2026-01-02T03:04:05+00:00",
        "clock": ClockInfo(
            name="rdtsc",
            reason="",
            ticks_per_second=2.5e9,
            resolution_ns=10.0,
            error_ppm=0.02,
        ),
        "overhead_ns": 25.0,
        "backends": (BackendInfo(instrument="dispatch", backend="trampoline"),),
    }
    return Environment(**(fields | changes))


def make_process(wall_ns: int = SECOND, **changes: Any) -> ProcessRun:
    """Build one profiled process of one second."""
    fields: dict[str, Any] = {"pid": 100}
    if "environment" not in changes:
        fields["environment"] = make_environment()
    return ProcessRun(wall_ns=wall_ns, **(fields | changes))


def make_losses(**changes: Any) -> Losses:
    """Build losses; nothing was lost unless told otherwise."""
    return Losses(**changes)


def derive_contexts(
    overloads: tuple[OverloadStats, ...], events: tuple[CompileEvent, ...]
) -> tuple[ContextNode, ...]:
    """Put every overload and compile event of process 0 under one main thread."""
    nodes = [
        make_node(
            "overload",
            overload=index,
            via=make_site(),
            calls=overload.calls,
            errors=overload.errors,
            inclusive_ns=overload.exclusive_ns or 0,
            dispatch_ns=overload.dispatch_ns or 0,
        )
        for index, overload in enumerate(overloads)
        if overload.calls
    ]
    nodes += [
        make_node(
            "cache_load" if event.event == "cache_load" else "compile",
            inclusive_ns=event.exclusive_ns,
        )
        for event in events
        if event.process == 0 and event.thread == "MainThread"
    ]
    total = sum(node.inclusive_ns + node.dispatch_ns for node in nodes)
    return (make_thread(inclusive_ns=total, exclusive_ns=0), *nodes)


def make_result(
    *overloads: OverloadStats,
    events: tuple[CompileEvent, ...] = (),
    wall_ns: int = SECOND,
    contexts: tuple[ContextNode, ...] | None = None,
    **changes: Any,
) -> ProfileResult:
    """Build a profile; overloads of one function get their ``index`` by position.

    Parameters
    ----------
    *overloads : OverloadStats
        In order of creation.
    events : tuple of CompileEvent
        Compilations and cache loads.
    wall_ns : int
        Wall time of the one process; ignored when ``processes`` is given.
    contexts : tuple of ContextNode, optional
        Derived by :func:`derive_contexts` when left out.
    **changes
        Other fields of :class:`ProfileResult`.
    """
    seen: dict[FunctionId, int] = {}
    indexed = []
    for overload in overloads:
        position = seen.get(overload.function, 0)
        seen[overload.function] = position + 1
        indexed.append(replace(overload, index=position))
    fields: dict[str, Any] = {"processes": (make_process(wall_ns),)}
    if contexts is None:
        contexts = derive_contexts(tuple(indexed), events)
    return ProfileResult(
        overloads=tuple(indexed),
        compile_events=events,
        contexts=contexts,
        **(fields | changes),
    )
