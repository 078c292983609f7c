"""From sampled stacks to source lines: how much time each line of compiled code took.

The time of a line is that of everything the line does, the functions it calls included,
as in line_profiler. What the line does itself is beside it. A line that is on a stack
twice (recursion) counts once, so a share never exceeds the whole.

Everything here is statistical and carries an interval; hits are exact and come from a
build of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numbaprof.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numbaprof.model import (
        FunctionId,
        LineFacts,
        LineSite,
        ProfileResult,
        SampledStack,
    )

__all__ = [
    "OWN_CODE",
    "FunctionLines",
    "LineRow",
    "SampleAccount",
    "account_samples",
    "build_line_tables",
]

OWN_CODE = ""
"""In place of a callee: the line's own instructions."""

LineKey = tuple["FunctionId", str, str, int]


@dataclass(frozen=True, slots=True)
class LineRow:
    """One source line of one overload."""

    function: FunctionId
    signature: str
    file: str
    line: int
    """0: in the function, the line is not known."""
    internal: bool
    samples: int
    """Samples with this line on the stack."""
    self_samples: int
    """Of these, samples that ended here: no other line of compiled code was below."""
    time_ns: float
    low_ns: float
    high_ns: float
    self_ns: float
    share: float
    """Of the function's samples."""
    callees: tuple[tuple[str, int], ...]
    """(what it was doing, samples), most first; "" for its own instructions."""
    hits: int | None
    hits_reason: str
    instructions: int | None
    vector_width: int | None
    remarks: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The lines of one overload, in order."""

    function: FunctionId
    signature: str
    internal: bool
    samples: int
    time_ns: float
    low_ns: float
    high_ns: float
    threads: tuple[tuple[str, int], ...]
    """Samples by thread, most first."""
    rows: tuple[LineRow, ...]


@dataclass(frozen=True, slots=True)
class SampleAccount:
    """Where all samples went; the bins add up to ``taken``."""

    taken: int
    bins: tuple[tuple[str, int], ...]
    losses: tuple[tuple[str, int], ...]
    """What happened to samples that are in no bin."""
    sampled_ns: float
    """CPU time that the samples stand for."""
    threads: tuple[tuple[str, int], ...]
    """Samples in compiled code by thread, most first."""

    @property
    def compiled(self) -> int:
        """Samples in compiled code."""
        return sum(n for name, n in self.bins if name in ("line", "function"))


def account_samples(result: ProfileResult) -> SampleAccount:
    """Count the samples of a profile by where they ended."""
    bins: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    for stack in result.stacks:
        bins[stack.bin] += stack.count
        if stack.frames:
            threads[stack.thread] += stack.count
    for info in result.sampling:
        losses.update(dict(info.losses))
    return SampleAccount(
        taken=bins.total(),
        bins=tuple(bins.most_common()),
        losses=tuple((name, n) for name, n in losses.most_common() if n),
        sampled_ns=sum(_weighted(result, result.stacks)),
        threads=tuple(threads.most_common()),
    )


def build_line_tables(
    result: ProfileResult, *, internal: bool = False
) -> tuple[FunctionLines, ...]:
    """Return the lines of every overload with samples or hits, dearest first.

    Parameters
    ----------
    result : ProfileResult
        Any profile; without samples or hits there is nothing to return.
    internal : bool, optional
        Show Numba's own functions as well. Otherwise what they do counts for the line
        that called them, as what it was doing.
    """
    tally = _Tally(result, internal)
    for stack, ns in zip(result.stacks, _weighted(result, result.stacks), strict=True):
        tally.add(stack, ns)
    tables = [tally.table(key) for key in tally.functions()]
    return tuple(sorted(tables, key=lambda table: -table.time_ns))


def _weighted(result: ProfileResult, stacks: Iterable[SampledStack]) -> Iterator[float]:
    """Yield the CPU time that each stack stands for, nanoseconds."""
    interval = {info.process: info.achieved_ns for info in result.sampling}
    for stack in stacks:
        yield float(stack.count * interval.get(stack.process, 0))


class _Tally:
    """Adds stacks up by function and by line."""

    def __init__(self, result: ProfileResult, internal: bool) -> None:
        self._sites = result.line_sites
        self._internal = internal
        self._taken = 0
        self._sampled_ns = 0.0
        self._samples: Counter[LineKey] = Counter()
        self._self: Counter[LineKey] = Counter()
        self._ns: defaultdict[LineKey, float] = defaultdict(float)
        self._self_ns: defaultdict[LineKey, float] = defaultdict(float)
        self._callees: defaultdict[LineKey, Counter[str]] = defaultdict(Counter)
        self._function_samples: Counter[tuple[FunctionId, str]] = Counter()
        self._function_ns: defaultdict[tuple[FunctionId, str], float]
        self._function_ns = defaultdict(float)
        self._threads: defaultdict[tuple[FunctionId, str], Counter[str]]
        self._threads = defaultdict(Counter)
        self._facts: dict[LineKey, LineFacts] = {}
        self._site_of: dict[LineKey, LineSite] = {}
        for fact in result.line_facts:
            site = self._sites[fact.site]
            if internal or not site.internal:
                key = self._key(site)
                self._site_of.setdefault(key, site)
                self._facts[key] = fact

    @staticmethod
    def _key(site: LineSite) -> LineKey:
        # Whether it was inlined makes no other line of it.
        return site.function, site.signature, site.file, site.line

    def add(self, stack: SampledStack, ns: float) -> None:
        """Count one stack."""
        self._taken += stack.count
        self._sampled_ns += ns
        sites = [self._sites[frame] for frame in stack.frames]
        shown = [
            at for at, site in enumerate(sites) if self._internal or not site.internal
        ]
        seen: set[LineKey] = set()
        for position, at in enumerate(shown):
            site = sites[at]
            key = self._key(site)
            self._site_of.setdefault(key, site)
            if key in seen:
                continue
            seen.add(key)
            self._samples[key] += stack.count
            self._ns[key] += ns
            below = shown[position + 1] if position + 1 < len(shown) else None
            callee = self._callee(stack, sites, at, below)
            self._callees[key][callee] += stack.count
        for function in {(key[0], key[1]) for key in seen}:
            self._function_samples[function] += stack.count
            self._function_ns[function] += ns
            self._threads[function][stack.thread] += stack.count
        if shown:
            innermost = self._key(sites[shown[-1]])
            self._self[innermost] += stack.count
            self._self_ns[innermost] += ns

    def _callee(
        self, stack: SampledStack, sites: list[LineSite], at: int, below: int | None
    ) -> str:
        """Name what the line at ``at`` was doing."""
        if below is not None:
            return sites[below].function.qualname
        if stack.callee:
            return stack.callee
        # What is left below a line that is shown is Numba's own.
        return sites[at + 1].function.qualname if at + 1 < len(sites) else OWN_CODE

    def functions(self) -> tuple[tuple[FunctionId, str], ...]:
        """Return every overload with samples, or with hits."""
        with_hits = [
            key for key, fact in self._facts.items() if fact.hits or fact.hits_reason
        ]
        found = [*self._function_samples, *((key[0], key[1]) for key in with_hits)]
        return tuple(dict.fromkeys(found))

    def table(self, function: tuple[FunctionId, str]) -> FunctionLines:
        """Build the table of one overload."""
        keys = sorted(
            (key for key in self._site_of if (key[0], key[1]) == function),
            key=lambda key: (key[2], key[3]),
        )
        rows = tuple(self._row(key) for key in keys)
        samples = self._function_samples[function]
        low, high = self._interval(samples)
        return FunctionLines(
            function=function[0],
            signature=function[1],
            internal=all(row.internal for row in rows),
            samples=samples,
            time_ns=self._function_ns[function],
            low_ns=low,
            high_ns=high,
            threads=tuple(self._threads[function].most_common()),
            rows=rows,
        )

    def _row(self, key: LineKey) -> LineRow:
        fact = self._facts.get(key)
        samples = self._samples[key]
        whole = self._function_samples[key[0], key[1]]
        low, high = self._interval(samples)
        return LineRow(
            function=key[0],
            signature=key[1],
            file=key[2] or key[0].file,
            line=key[3],
            internal=self._site_of[key].internal,
            samples=samples,
            self_samples=self._self[key],
            time_ns=self._ns[key],
            low_ns=low,
            high_ns=high,
            self_ns=self._self_ns[key],
            share=samples / whole if whole else 0.0,
            callees=tuple(self._callees[key].most_common()),
            hits=None if fact is None else fact.hits,
            hits_reason="" if fact is None else fact.hits_reason,
            instructions=None if fact is None else fact.instructions,
            vector_width=None if fact is None else fact.vector_width,
            remarks=() if fact is None else fact.remarks,
            source="" if fact is None else fact.source,
        )

    def _interval(self, samples: int) -> tuple[float, float]:
        """Return the 95 % interval of the time that samples stand for."""
        low, high = wilson(samples, self._taken)
        return low * self._sampled_ns, high * self._sampled_ns
