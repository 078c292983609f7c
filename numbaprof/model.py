"""The data model: what a profile is once measuring has ended.

Instruments make parts, :mod:`numbaprof.session` assembles them into one frozen
:class:`ProfileResult`, outputs read it. Nothing here knows an address, a dispatcher or
a data frame. All times are ``int`` nanoseconds; ``None`` means "cannot be had" and
stands beside a field that says why.

Accounting
----------
One call of an overload from Python, as the engine sees it::

    t0 ------------- t1 ------------------------------ t2
    |   dispatch     |   inclusive (unbox, run, box)    |

*Dispatch* is from entering the dispatcher to entering the overload's wrapper, without
compiling and cache loading. *Exclusive* is inclusive minus everything that was measured
inside it. Over a whole tree the exclusive and dispatch times add up to the inclusive
time of the roots, to the nanosecond: :meth:`ProfileResult.check` asserts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

__all__ = [
    "HISTOGRAM_BUCKETS",
    "ArgType",
    "Argument",
    "BackendInfo",
    "BoxingSplit",
    "CallSite",
    "ClockInfo",
    "CompileEvent",
    "ContextNode",
    "DispatcherInfo",
    "Environment",
    "Fingerprint",
    "FunctionId",
    "LineFacts",
    "LineSite",
    "Losses",
    "OverloadStats",
    "ProcessRun",
    "ProfileResult",
    "PythonRow",
    "SampledStack",
    "SamplingInfo",
    "ThreadSplit",
]

HISTOGRAM_BUCKETS = 64
"""Bucket ``b`` of a histogram has calls of ``2**(b-1) <= ns < 2**b``; 0: 0 ns."""

OverloadKind = Literal[
    "function",
    "generator",
    "object mode",
    "lifted loop",
    "objmode body",
    "constructor",
    "method",
    "property",
    "ufunc loop",
    "gufunc loop",
    "cfunc",
    "stencil",
]
Origin = Literal["compiled", "cache", "eager", "internal", "none"]
CompileOutcome = Literal["compile", "cache_load", "failed"]
RowKind = Literal["python", "builtin"]
SignatureLevel = Literal["shape", "ndim", "type", "none"]
SampleBin = Literal["line", "function", "python", "compile", "native", "unresolved"]
"""Where a sample ends: on a line of compiled code; in compiled code whose line is not
known; in Python; in the compiler; in other native code; nowhere that is known."""
ContextKind = Literal[
    "thread",
    "overload",
    "python",
    "builtin",
    "compile",
    "cache_load",
    "cache_miss",
    "failed dispatch",
    "unattached",
    "dispatching",
    "truncated",
]


@dataclass(frozen=True, slots=True)
class CallSite:
    """A place in Python source."""

    file: str
    line: int
    """1-based; for a code object its first line, for a trigger the running line."""
    function: str
    module: str = ""


@dataclass(frozen=True, slots=True, order=True)
class FunctionId:
    """Identity of a dispatcher, ufunc, cfunc or stencil: never its name alone."""

    module: str
    qualname: str
    file: str
    line: int
    """Line of the ``def``, 1-based; 0 when unknown."""
    instance: int = 0
    """0, 1, ... over distinct objects that agree in everything above (factories)."""


@dataclass(frozen=True, slots=True)
class ArgType:
    """Type of one argument as the compiler saw it, in plain data.

    ``kind`` is one of: scalar, array, record, string, none, optional, omitted, literal,
    tuple, namedtuple, function, reflected list, reflected set, typed list, typed dict,
    jitclass, structref, object, other.
    """

    name: str
    """Parameter name, ``"*args[1]"`` for a star argument, "" when unknown."""
    text: str
    """Readable, short: ``float64[:, ::1]``."""
    kind: str
    dtype: str = ""
    """Element type of an array, list or set; value type of an optional."""
    ndim: int = -1
    layout: str = ""
    """C, F or A for arrays."""
    readonly: bool = False
    value: str = ""
    """Default of an omitted argument, value of a literal, identity of a function."""
    items: tuple[ArgType, ...] = ()
    """Elements of a tuple; key and value of a dict."""


@dataclass(frozen=True, slots=True)
class Argument:
    """What one argument of a Python call was, in plain data."""

    name: str
    """Parameter name; ``*args`` and ``**kw`` with their stars."""
    type: str
    """Class, as a label shows it."""
    detail: str = ""
    """Shown in place of the class: ``(int, float)``, ``jit(dot)``."""
    dtype: str = ""
    """Element type of an array."""
    ndim: int = -1
    """-1 for what is not an array."""
    shape: tuple[int, ...] | None = None
    layout: str = ""
    """C, F or A for arrays."""
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class BoxingSplit:
    """Opt-in detail: where the inclusive time of an overload went."""

    calls: int
    """Calls that were split; calls that failed while unboxing are left out."""
    unbox_ns: int
    kernel_ns: int
    box_ns: int


@dataclass(frozen=True, slots=True)
class ThreadSplit:
    """Calls of a ``parallel=True`` overload with one setting of the thread count."""

    n_threads: int
    calls: int
    inclusive_ns: int
    cpu_ns: int
    """CPU time of the whole process during these calls."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The machine code of one overload, in a few figures.

    Equal code on one target (:attr:`Environment.target`) runs the same instructions.
    """

    code: str
    """``sha256:`` and the hash of the code, without what names and places change."""
    instructions: int | None = None
    packed_fp: int | None = None
    """Of these, floating-point instructions on several numbers at once."""
    width_bits: int | None = None
    """The widest of those; 0 when there is none."""
    reason: str = ""
    """Why a figure above is None."""


@dataclass(frozen=True, slots=True)
class OverloadStats:
    """Everything known about one overload (function identity, signature)."""

    function: FunctionId
    signature: str
    """Readable: ``(float64[:, ::1], int64)``; "" for a function without own code."""
    kind: OverloadKind
    origin: Origin
    index: int = 0
    """Position among the overloads of its function, in order of creation."""
    args: tuple[ArgType, ...] = ()
    return_type: str = ""
    internal: bool = False
    """Numba's own helper (typed containers and the like)."""

    countable: bool = True
    not_countable_reason: str = ""
    """Which calls cannot be seen, and why. May be set although some are counted."""
    calls: int | None = 0
    """Calls seen from Python; None when not countable and none was seen."""
    errors: int = 0
    """Of these, calls that raised."""
    in_flight: int = 0
    """Calls entered but not finished when the session stopped (not in ``calls``)."""
    inclusive_ns: int | None = 0
    """Time inside, each moment counted once under recursion."""
    exclusive_ns: int | None = 0
    min_ns: int | None = None
    max_ns: int | None = None
    histogram: tuple[int, ...] = ()
    """Empty, or HISTOGRAM_BUCKETS counts of calls by log2 of their nanoseconds."""
    dispatch_ns: int | None = None
    """Finding this overload, summed over calls; None with ``dispatch_reason``."""
    dispatch_reason: str = ""
    elements: int | None = None
    """Ufunc loops: elements (gufuncs: outer iterations) processed."""

    compile_ns: int | None = None
    """Inclusive time of its compilations seen here; None with ``compile_reason``."""
    compile_self_ns: int | None = None
    cache_load_ns: int = 0
    compile_reason: str = ""
    created_in_session: bool = False
    boxing: BoxingSplit | None = None
    boxing_reason: str = ""
    threads: tuple[ThreadSplit, ...] = ()
    fingerprint: Fingerprint | None = None
    fingerprint_reason: str = ""


@dataclass(frozen=True, slots=True)
class DispatcherInfo:
    """What is known about a function apart from its overloads."""

    function: FunctionId
    kind: str
    """dispatcher, vectorize, guvectorize, ufunc, cfunc, stencil, jitclass."""
    options: tuple[tuple[str, str], ...] = ()
    """Target options that were given, as text: ``(("parallel", "True"),)``."""
    n_overloads: int = 0
    eager: bool = False
    """Signatures were given; no new ones are compiled."""
    inline: bool = False
    """``inline="always"``: has no code of its own in its callers."""
    cache_enabled: bool = False
    cache_hits: int = 0
    cache_misses: int = 0
    cache_reason: str = ""
    """Why the cache cannot hit (closure over functions, unpicklable global, ...)."""
    closure_functions: tuple[str, ...] = ()
    """Names of free variables that hold compiled functions."""
    defined_in: str = ""
    """Qualified name of the enclosing function for a factory-made one, else ""."""


@dataclass(frozen=True, slots=True)
class CompileEvent:
    """One compilation, cache load or failure to compile."""

    function: FunctionId
    signature: str
    event: CompileOutcome
    kind: str
    """What compiled: dispatcher, lifted loop, objmode body, overload (an ``@overload``
    implementation), vectorize, guvectorize, loop wrapper (of either, compiled apart),
    cfunc, stencil (called from Python), nested stencil (in compiled code), literal
    request (finding out that arguments must be literals; repeated in every call)."""
    start_ns: int
    """Since the session started."""
    inclusive_ns: int
    exclusive_ns: int
    """Without nested compilations and cache loads."""
    thread: str
    parent: int = -1
    """Index of the event this one happened in, or -1."""
    process: int = 0
    """Index into ``ProfileResult.processes``."""
    trigger: CallSite | None = None
    """The user's line that caused it: innermost frame outside numba and llvmlite."""
    at_import: bool = False
    """A module was being imported (its top level was running) under the trigger."""
    import_module: str = ""
    """The innermost module being imported, when ``at_import``."""
    passes: tuple[tuple[str, int], ...] = ()
    """(pass name, ns), as Numba reports it; includes nested compilations."""
    internal: bool = False
    error: str = ""
    """``TypingError: ...`` first line, for failures."""
    cpu_ns: int | None = None
    """CPU time of the thread, exclusive as ``exclusive_ns`` is; None if not read."""
    test: str = ""
    """Under ``pytest --numbaprof``: node id of the test, with `` (setup)`` or
    `` (teardown)`` outside its call; ``(collection)`` before any test."""


@dataclass(frozen=True, slots=True)
class PythonRow:
    """One line of the Python level: a function with one signature, or a builtin.

    There are rows only where Python calls were traced.
    """

    file: str
    """``~`` for builtins, as cProfile has it."""
    line: int
    """First line of the code object, decorators included; 0 for builtins."""
    name: str
    """``co_name``, or what cProfile shows for a builtin."""
    qualname: str
    kind: RowKind
    signature: str = ""
    """Readable: ``(a: float64[3, 4], n: int)``; "" where arguments are not told apart.
    """
    level: SignatureLevel = "none"
    """How much of the arguments is told."""
    arguments: tuple[Argument, ...] = ()
    calls: int = 0
    """Those under way when the profile ended as well, as in cProfile."""
    primitive_calls: int = 0
    """Calls made while no other call of this row was under way in the thread."""
    inclusive_ns: int = 0
    """Each moment counted once under recursion."""
    exclusive_ns: int = 0
    overflow: str = ""
    """Of a row that took the calls no finer row had room for: how large their arrays
    were."""


@dataclass(frozen=True, slots=True)
class ContextNode:
    """A node of the calling-context tree.

    Nodes with ``parent == -1`` are threads. A node's caller is its parent; ``via`` is
    the Python function that made the call, when it was not compiled code itself.
    """

    kind: ContextKind
    parent: int
    """Index into ``contexts``; always smaller than the node's own index."""
    process: int = 0
    overload: int = -1
    """Index into ``overloads`` for kind "overload", else -1."""
    python_row: int = -1
    """Index into ``python_rows`` for kinds "python" and "builtin", else -1."""
    via: CallSite | None = None
    label: str = ""
    """Thread name for kind "thread"."""
    calls: int = 0
    errors: int = 0
    inclusive_ns: int = 0
    exclusive_ns: int = 0
    dispatch_ns: int = 0
    """Not part of ``inclusive_ns``; belongs to the parent's inclusive time."""


@dataclass(frozen=True, slots=True)
class LineSite:
    """A source line of compiled code, in one overload."""

    function: FunctionId
    signature: str
    """Of the overload; "" when it is not known which one (code that was inlined)."""
    line: int
    """1-based; 0: somewhere in the function."""
    file: str = ""
    """Where the line is, when not in the function's file."""
    internal: bool = False
    """In a function of Numba itself."""
    inlined: bool = False
    """Within the machine code of its caller."""


@dataclass(frozen=True, slots=True)
class SampledStack:
    """Equal samples of one thread, counted."""

    count: int
    bin: SampleBin
    thread: str
    process: int = 0
    frames: tuple[int, ...] = ()
    """Lines of compiled code, outermost first: indices into ``line_sites``."""
    callee: str = ""
    """What the innermost frame was calling, ``sin (libm)``; "" for code of its own."""


@dataclass(frozen=True, slots=True)
class SamplingInfo:
    """How one process was sampled."""

    source: str
    """What interrupted the threads: "ITIMER_PROF", "perf task clock"; "none"."""
    process: int = 0
    reason: str = ""
    """Why this source; of "none", why there are no samples."""
    requested_ns: int = 0
    """Interval between two samples, nanoseconds of CPU time."""
    achieved_ns: int = 0
    """``cpu_ns`` per sample that was due; what one sample stands for."""
    cpu_ns: int = 0
    """CPU time of the process while it was sampled."""
    taken: int = 0
    """Samples in ``stacks``."""
    losses: tuple[tuple[str, int], ...] = ()
    """(what happened, samples) of those that are not in ``stacks``."""
    problems: tuple[str, ...] = ()
    """What could not be resolved as it should, and why."""


@dataclass(frozen=True, slots=True)
class LineFacts:
    """What is known of one line apart from samples."""

    site: int
    """Index into ``line_sites``."""
    hits: int | None = None
    """How often the line was run, exact, in the counting build."""
    hits_reason: str = ""
    """Why there are no hits; "" when nobody asked for them."""
    instructions: int | None = None
    """Machine instructions of this line."""
    vector_width: int | None = None
    """Numbers that a vectorised loop treats at once; 1: not vectorised."""
    remarks: tuple[str, ...] = ()
    """What LLVM says of the line."""
    source: str = ""
    """Text of the line."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What was not measured, counted."""

    in_flight_calls: int = 0
    truncated_contexts: int = 0
    """Calls whose calling context did not fit; their own totals are complete."""
    unattached: tuple[tuple[str, int], ...] = ()
    """(reason, number of overloads) that could not be attached to."""
    unfinished_compilations: int = 0
    """Compilations under way when the session began or ended; they are no events."""
    hook_errors: tuple[str, ...] = ()
    """Errors inside numbaprof itself while measuring; the program went on."""
    unrestored: tuple[str, ...] = ()
    """Places somebody else changed after us, so that we could not put them back."""
    missing_processes: tuple[str, ...] = ()
    """Child processes that started under the session and left no profile."""


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """The clock the exact figures were read from."""

    name: str
    reason: str
    ticks_per_second: float
    resolution_ns: float
    error_ppm: float
    """Bound on the calibration's error, parts per million."""


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """Which way an instrument worked, and why that one."""

    instrument: str
    backend: str
    reason: str = ""
    """"" for the best one there is; else why it fell back."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how a profile was taken."""

    python: str
    numba: str
    llvmlite: str
    numpy: str
    numbaprof: str
    platform: str
    cpu: str
    cpu_count: int
    numba_num_threads: int
    threading_layer: str
    numba_settings: tuple[tuple[str, str], ...]
    """All NUMBA_* environment variables."""
    command_line: tuple[str, ...]
    started: str
    """ISO 8601, UTC."""
    clock: ClockInfo
    overhead_ns: float
    """Added per call of an overload, measured at start, here; NaN if unknown."""
    overhead_reason: str = ""
    backends: tuple[BackendInfo, ...] = ()
    jit_disabled: bool = False
    target: str = ""
    """What machine code depends on: CPU name, features, optimisation, versions."""


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """One process that was profiled."""

    environment: Environment
    wall_ns: int
    pid: int
    label: str = "main"
    """main, fork, spawn, or a test worker's name."""
    exit: str = ""
    """How the program ended: "", "SystemExit(3)", "KeyboardInterrupt", ..."""
    tracing_ns: int = 0
    """Of ``wall_ns``, seen to be spent on tracing Python calls; in no other figure."""


@dataclass(frozen=True, slots=True, repr=False)
class ProfileResult:
    """A finished profile."""

    processes: tuple[ProcessRun, ...]
    overloads: tuple[OverloadStats, ...] = ()
    dispatchers: tuple[DispatcherInfo, ...] = ()
    compile_events: tuple[CompileEvent, ...] = ()
    contexts: tuple[ContextNode, ...] = ()
    losses: Losses = field(default_factory=Losses)
    python_rows: tuple[PythonRow, ...] = ()
    """Python functions and builtins, where they were traced."""
    line_sites: tuple[LineSite, ...] = ()
    stacks: tuple[SampledStack, ...] = ()
    """Statistical; never added to an exact figure."""
    sampling: tuple[SamplingInfo, ...] = ()
    """One per process that was sampled, or should have been."""
    line_facts: tuple[LineFacts, ...] = ()

    @property
    def wall_ns(self) -> int:
        """Wall time, nanoseconds, summed over processes."""
        return sum(process.wall_ns for process in self.processes)

    # -- views: one-line delegates; their options live in the output modules ----------

    @property
    def stats(self) -> pd.DataFrame:
        """One row per overload; see :func:`numbaprof.frames.stats_frame`."""
        from numbaprof import frames

        return frames.stats_frame(self)

    @property
    def compiles(self) -> pd.DataFrame:
        """One row per compile event; see :func:`numbaprof.frames.compiles_frame`."""
        from numbaprof import frames

        return frames.compiles_frame(self)

    @property
    def findings(self) -> pd.DataFrame:
        """One row per finding; see :func:`numbaprof.frames.findings_frame`."""
        from numbaprof import frames

        return frames.findings_frame(self)

    @property
    def callers(self) -> pd.DataFrame:
        """One row per overload and caller; :func:`numbaprof.frames.callers_frame`."""
        from numbaprof import frames

        return frames.callers_frame(self)

    @property
    def functions(self) -> pd.DataFrame:
        """Python functions, builtins and overloads in pstats terms.

        See :func:`numbaprof.frames.functions_frame`.
        """
        from numbaprof import frames

        return frames.functions_frame(self)

    @property
    def lines(self) -> pd.DataFrame:
        """One row per overload and source line, sampled or counted.

        See :func:`numbaprof.frames.lines_frame`.
        """
        from numbaprof import frames

        return frames.lines_frame(self)

    def __add__(self, other: ProfileResult) -> ProfileResult:
        """Add two profiles; see :func:`numbaprof.merging.merge`."""
        from numbaprof import merging

        return merging.merge([self, other])

    def report(self, **options: Any) -> str:
        """Render the report as plain text; see :class:`numbaprof.report.ReportOptions`.

        Parameters
        ----------
        **options
            ``sort``, ``top``, ``only`` and ``width``.
        """
        from numbaprof import report

        return report.render(self, options=report.ReportOptions(**options))

    def __repr__(self) -> str:
        return (
            f"<numbaprof.ProfileResult, {len(self.overloads)} overloads, "
            f"{len(self.compile_events)} compile events, "
            f"{len(self.python_rows)} Python rows, {len(self.processes)} processes>"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile as JSON; see :func:`numbaprof.store.save`."""
        from numbaprof import store

        store.save(self, path)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Render as one HTML document; see :func:`numbaprof.html.to_html`."""
        from numbaprof import html

        return html.to_html(self, path)

    def check(self) -> None:
        """Raise if figures contradict each other; see :func:`numbaprof.check.check`."""
        from numbaprof import check

        check.check(self)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> dict[str, str]:
        from numbaprof import html

        return html.mimebundle(self)

    def _repr_html_(self) -> str:
        from numbaprof import html

        return html.mimebundle(self)["text/html"]
