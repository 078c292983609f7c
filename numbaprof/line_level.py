"""The lines of a session: line tables while it compiles, samples while it runs.

Starting turns line tables on and the sampler; stopping turns both off. What the
addresses mean is found out afterwards, in the same process: code that was compiled
before or loaded from a cache has no line table, and gets one from a twin, compiled once
the measuring is over.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numbaprof.errors import AttachError, UnsupportedError
from numbaprof.line_resolution import (
    LineResolver,
    Owner,
    Owners,
    PhysicalFrame,
    SourceRange,
    source_line,
)
from numbaprof.model import (
    BackendInfo,
    LineFacts,
    LineSite,
    SampledStack,
    SamplingInfo,
)
from numbaprof.native import numba_api
from numbaprof.native.call_lines import place_call
from numbaprof.native.linetable import LineTables
from numbaprof.native.unwind import AddressSpace
from numbaprof.sampler import Sampler, SamplerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numbaprof.dispatch_hook import DispatchHook
    from numbaprof.evidence import OverloadEvidence
    from numbaprof.model import SampleBin
    from numbaprof.native.objcode import JitObject, Objects
    from numbaprof.sampler import RawSamples, ResolvedStack

__all__ = ["LineLevel", "LineParts"]

REFUSED_SHOWN = 5
"""Functions without lines that are named."""

HOT_SHARE = 0.02
"""Of the samples in compiled code: what has fewer is not asked what became of it."""

TWIN_BUDGET_S = 30.0
"""Wall time for twins, unless told otherwise; what is left over is function level."""


@dataclass(frozen=True, slots=True)
class LineParts:
    """What a session adds to its profile."""

    sites: tuple[LineSite, ...] = ()
    stacks: tuple[SampledStack, ...] = ()
    sampling: tuple[SamplingInfo, ...] = ()
    facts: tuple[LineFacts, ...] = ()


class LineLevel:
    """Samples one session and finds out its lines.

    Parameters
    ----------
    interval_ns : int, optional
        CPU time between two samples; the sampler's default when left out.
    twin_budget_s : float, optional
        Wall time for compiling twins once measuring has ended; 0 makes none.
    """

    def __init__(
        self, *, interval_ns: int | None = None, twin_budget_s: float = TWIN_BUDGET_S
    ) -> None:
        options = SamplerOptions()
        if interval_ns is not None:
            options = SamplerOptions(interval_ns=interval_ns)
        self._options = options
        self._budget_s = twin_budget_s
        self._tables: LineTables | None = None
        self._sampler: Sampler | None = None
        self._raw: RawSamples | None = None
        self._reason = ""
        self.problems: list[str] = []
        """What went wrong, in words."""
        self.unrestored: list[str] = []

    @property
    def reason(self) -> str:
        """Why nothing is sampled; "" when something is."""
        return self._reason

    @property
    def backend(self) -> BackendInfo:
        """How lines are found, and why that way."""
        if self._reason:
            return BackendInfo("lines", "none", self._reason)
        source = self._raw.source if self._raw is not None else "sampling"
        return BackendInfo("lines", source, self._raw.reason if self._raw else "")

    # -- lifetime ---------------------------------------------------------------------

    def start_tables(self) -> None:
        """Give line tables to what is compiled from now on."""
        tables = LineTables()
        try:
            tables.start()
        except (AttachError, UnsupportedError) as error:
            self.problems.append(f"no line tables for what is compiled now: {error}")
            return
        self._tables = tables

    def start_sampling(self) -> None:
        """Begin to sample; where that is impossible, ``reason`` says why."""
        sampler = Sampler(self._options)
        try:
            sampler.start()
        except (AttachError, UnsupportedError) as error:
            self._reason = str(error)
            return
        self._sampler = sampler

    def stop_sampling(self) -> None:
        """Sample no more; nothing happens when nothing is sampled."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            self._raw = sampler.stop()

    def stop_tables(self) -> None:
        """Turn line tables off; nothing happens when they are not on."""
        tables, self._tables = self._tables, None
        if tables is not None:
            self.problems += tables.problems
            self.unrestored += tables.stop()

    def reset_after_fork(self) -> None:
        """Begin to sample a forked child."""
        if self._sampler is not None:
            self._sampler.reset_after_fork()

    # -- results ----------------------------------------------------------------------

    def parts(
        self,
        dispatch: DispatchHook,
        compiling: Mapping[int, Sequence[tuple[int, int]]],
        is_pressed: Callable[[], bool] = lambda: False,
    ) -> LineParts:
        """Find out the lines of all samples.

        Parameters
        ----------
        dispatch : DispatchHook
            Knows the overloads of the session.
        compiling : mapping
            When each thread compiled, as :meth:`CompileEvents.spans` has it.
        is_pressed : callable, optional
            Tells whether to make no more twins: somebody waits.

        Notes
        -----
        Compiles twins of sampled code that has no line table. The session must be over:
        nothing of this is the program's.
        """
        if self._raw is None:
            info = SamplingInfo("none", reason=self._reason or "sampling never began")
            return LineParts(sampling=(info,))
        space = AddressSpace()
        raw = self._raw.stacks(space, compiling=compiling)
        resolved = self._raw.resolve(space, raw)
        owners = _owners(dispatch)
        deadline = time.monotonic() + self._budget_s
        tables = self._find_tables(resolved, owners, is_pressed)

        def is_late() -> bool:
            return is_pressed() or time.monotonic() >= deadline

        code = _Code(space.objects, tables)
        resolver = LineResolver(owners, numba_api.is_own_file)
        stacks = _added(
            resolver.stack(stack, code.frames(stack.jit, stack.callee))
            for stack in resolved
        )
        facts = _describe_lines(resolver, stacks, dispatch, is_late)
        self.problems += space.problems
        info = SamplingInfo(
            source=self._raw.source,
            reason=self._raw.reason,
            requested_ns=self._raw.requested_ns,
            achieved_ns=self._raw.achieved_ns,
            cpu_ns=self._raw.cpu_ns,
            taken=self._raw.taken,
            losses=self._raw.losses,
            problems=tuple(dict.fromkeys((*self._raw.problems, *self.problems))),
        )
        return LineParts(resolver.sites, stacks, (info,), facts)

    def _find_tables(
        self,
        resolved: Sequence[ResolvedStack],
        owners: Owners,
        is_pressed: Callable[[], bool],
    ) -> Mapping[int, JitObject]:
        """Return twins, by start of the code, for sampled objects without lines."""
        samples: Counter[int] = Counter()
        objects: dict[int, JitObject] = {}
        for stack in resolved:
            for found in {found for found, _ in stack.jit if not found.has_lines}:
                samples[found.start] += stack.count
                objects[found.start] = found
        if not samples:
            return {}
        if not self._budget_s:
            self.problems.append(
                "code that was compiled before is at function level only: no twin was "
                "made, as twin_budget is 0"
            )
            return {}
        from numbaprof.native import twins

        def clock() -> float:
            # Somebody waits: what is not begun yet is not begun.
            return math.inf if is_pressed() else time.monotonic()

        wanted = [start for start, _ in samples.most_common()]
        result = twins.build(wanted=wanted, budget_s=self._budget_s, clock=clock)
        self.problems += _describe_refused(
            {
                start: "interrupted" if is_pressed() else reason
                for start, reason in result.refused.items()
                if start in objects
            },
            samples,
            {start: _name_object(code, owners) for start, code in objects.items()},
        )
        self.problems += (
            f"a twin was not kept for the next run: {problem}"
            for problem in result.problems
        )
        return result.by_address


def _describe_refused(
    reasons: Mapping[int, str], samples: Counter[int], names: Mapping[int, str]
) -> list[str]:
    """Say what is left at function level, the hottest first, and sum up the rest.

    Parameters
    ----------
    reasons, samples, names : mapping
        By start of the code: why it has no twin, how often it was sampled, which
        overload it is ("" for Numba's own).
    """
    ranked = sorted(
        (start for start in reasons if names[start]), key=lambda s: -samples[s]
    )
    told = [
        f"only function level for {names[start]}, {_samples(samples[start])}: "
        f"{reasons[start]}"
        for start in ranked[:REFUSED_SHOWN]
    ]
    left = ranked[REFUSED_SHOWN:]
    if left:
        count = _samples(sum(samples[start] for start in left))
        told.append(f"only function level for {len(left)} more, {count}")
    return told


def _samples(count: int) -> str:
    return f"{count:,} sample" if count == 1 else f"{count:,} samples"


def _name_object(code: JitObject, owners: Owners) -> str:
    """Return the user's overload that an object was compiled for; "" for Numba's."""
    for symbol in code.symbols():
        if owner := owners.of_symbol(symbol.name):
            return f"{owner[0].qualname}{owner[1]}"
    return ""


class _Code:
    """The machine code of the process, with the line tables there are for it."""

    def __init__(self, objects: Objects, twins: Mapping[int, JitObject]) -> None:
        self._objects = objects
        self._twins = twins
        self._frames: dict[tuple[int, str], PhysicalFrame] = {}
        self._definers: dict[str, tuple[str, ...]] | None = None

    def frames(
        self, jit: Iterable[tuple[JitObject, int]], callee: str
    ) -> list[PhysicalFrame]:
        """Return the frames of one stack, innermost first.

        Parameters
        ----------
        jit : iterable of (JitObject, int)
            Where it is in compiled code, innermost first.
        callee : str
            What the innermost one was calling, ``sin (libm)``; "" if nothing.
        """
        found = []
        for code, pc in jit:
            found.append(self._frame(code, pc, callee.partition(" ")[0]))
            callee = ""
        return found

    def _frame(self, code: JitObject, pc: int, callee: str) -> PhysicalFrame:
        if (pc, callee) not in self._frames:
            symbol = code.symbol_at(pc)
            name = symbol.name if symbol is not None else ""
            table, at = code, pc
            if not code.has_lines and code.start in self._twins:
                table = self._twins[code.start]
                at = pc - code.start + table.start
            rows = table.rows()
            frames = place_call(rows, at, callee) if callee else rows.lookup(at)
            self._frames[pc, callee] = PhysicalFrame(
                name, frames, self._defined_with(name)
            )
        return self._frames[pc, callee]

    def _defined_with(self, name: str) -> tuple[str, ...]:
        """Return the symbols of all objects that a function was linked into.

        Of the body of a ``prange`` loop only, which is linked into the overload it is
        of: all symbols of all objects are read for it.
        """
        if not numba_api.is_loop_body(name):
            return ()
        if self._definers is None:
            self._definers = _symbols_together(self._objects)
        return self._definers.get(name, ())


def _symbols_together(objects: Objects) -> dict[str, tuple[str, ...]]:
    """Map each function of a parallel loop to the functions in objects with it.

    Smaller objects first: a caller of the overload links the loop, too.
    """
    found: dict[str, dict[str, None]] = {}
    for jit_object in sorted(objects, key=lambda found: found.size):
        names = [symbol.name for symbol in jit_object.symbols()]
        for name in names:
            if numba_api.is_loop_body(name):
                found.setdefault(name, {}).update(dict.fromkeys(names))
    return {name: tuple(others) for name, others in found.items()}


def _owners(dispatch: DispatchHook) -> Owners:
    ranges = []
    for function, thing in dispatch.functions_alive():
        source = numba_api.source_range(thing)
        # A method of a jitclass is called by code that Numba wrote for it.
        if source is None or numba_api.jitclass_role(thing) is not None:
            continue
        if not numba_api.is_internal(function.module):
            ranges.append(SourceRange(*source, function))
    user = [record for record in dispatch.records if not record.internal]
    return Owners(
        {r.symbol: (r.function, r.signature) for r in user if r.symbol},
        ranges,
        [(r.function, r.signature) for r in user],
    )


def _added(stacks: Iterable[SampledStack]) -> tuple[SampledStack, ...]:
    """Add up stacks that became equal."""
    counts: Counter[tuple[SampleBin, str, tuple[int, ...], str]] = Counter()
    for stack in stacks:
        counts[stack.bin, stack.thread, stack.frames, stack.callee] += stack.count
    return tuple(
        SampledStack(count, bin_, thread, frames=frames, callee=callee)
        for (bin_, thread, frames, callee), count in counts.most_common()
    )


def _describe_lines(
    resolver: LineResolver,
    stacks: Sequence[SampledStack],
    dispatch: DispatchHook,
    is_late: Callable[[], bool],
) -> tuple[LineFacts, ...]:
    """Return what is known of every line of the functions that were sampled.

    Their text; and, for the hottest as long as there is time, what became of them.
    """
    sites = resolver.sites
    samples: Counter[Owner] = Counter()
    for stack in stacks:
        shown = (sites[frame] for frame in stack.frames if not sites[frame].internal)
        for owner in {(site.function, site.signature) for site in shown}:
            samples[owner] += stack.count
    least = HOT_SHARE * sum(stack.count for stack in stacks if stack.frames)
    alive = dict(dispatch.functions_alive())
    facts: list[LineFacts] = []
    for owner, count in samples.most_common():
        thing = alive.get(owner[0])
        evidence = None
        if thing is not None and count >= least and not is_late():
            from numbaprof.native import code_evidence

            evidence = code_evidence.collect_overload(thing, owner[1])
        for site in _lines_of(owner, sites, thing):
            facts.append(_fact(resolver.place(site), site, evidence))
    return tuple(facts)


def _lines_of(
    owner: Owner, sites: Sequence[LineSite], thing: object
) -> Iterator[LineSite]:
    """Yield the lines of a function's source, and those elsewhere that were sampled."""
    found = {
        _plain(site): None
        for site in sites
        if (site.function, site.signature) == owner and site.line
    }
    source = None if thing is None else numba_api.source_range(thing)
    if source is not None:
        _, first, last = source
        found.update({LineSite(*owner, line): None for line in range(first, last + 1)})
    yield from found


def _fact(place: int, site: LineSite, evidence: OverloadEvidence | None) -> LineFacts:
    source = source_line(site)
    if evidence is None or evidence.reason or site.file:
        return LineFacts(place, source=source)
    counts = {line.line: line.total for line in evidence.lines}
    file = site.function.file
    said = [r for r in evidence.remarks if (r.file, r.line) == (file, site.line)]
    widths = [remark.vector_width or 1 for remark in said if remark.passed]
    missed = [r.text for r in said if not r.passed and "vectorized" in r.text]
    width = max(widths, default=1 if missed else None)
    return LineFacts(
        place,
        instructions=counts.get(site.line),
        vector_width=width,
        remarks=tuple(dict.fromkeys(f"LLVM: {text}" for text in missed)),
        source=source,
    )


def _plain(site: LineSite) -> LineSite:
    return LineSite(site.function, site.signature, site.line, site.file)
