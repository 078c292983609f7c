"""What a finding is, and what the detectors ask of a profile."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numbaprof.summary import (
    charge_helpers,
    display_names,
    is_internal,
    never_called,
)
from numbaprof.why import compiled_inside, eager_functions

if TYPE_CHECKING:
    from numbaprof.model import CompileEvent, FunctionId, OverloadStats, ProfileResult

__all__ = ["MIN_COST_NS", "MIN_SHARE", "NS_PER_SECOND", "Facts", "Finding"]

MIN_COST_NS = 1_000_000
"""Nothing cheaper than 1 ms in the whole profile is worth a reader's line."""

MIN_SHARE = 0.01
"""Of the wall time: the gain from acting on less is lost in run-to-run noise."""

NS_PER_SECOND = 1e9
"""Evidence is in seconds where its name ends in ``_s``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of advice."""

    slug: str
    """Stable short name, see ``docs/messages.md``."""
    function: FunctionId | None
    """None when it is about the whole profile."""
    signature: str
    """"" when it is about all overloads of the function."""
    message: str
    """One sentence without a full stop: what was seen."""
    evidence: tuple[tuple[str, float], ...]
    """(name with unit, number) that the message rests on; the dearest figure in
    seconds is ``cost_s``."""
    try_: str
    """What to try, one sentence without a full stop; "" for a mere explanation."""

    @property
    def cost_s(self) -> float:
        """Seconds at stake, 0.0 when there is none to name."""
        return float(dict(self.evidence).get("cost_s", 0.0))


class Facts:
    """What several detectors ask of one profile, computed once."""

    def __init__(self, result: ProfileResult) -> None:
        self.result = result
        self.wall_ns = result.wall_ns
        self.names = display_names(result)
        self.info = {info.function: info for info in result.dispatchers}
        self.inside = compiled_inside(result)
        self.eager = eager_functions(result)
        self.never_called = frozenset(never_called(result))
        charged = charge_helpers(result).overloads
        self.overloads = [o for o in charged if not is_internal(o)]
        self.by_function: dict[FunctionId, list[OverloadStats]] = defaultdict(list)
        for overload in self.overloads:
            self.by_function[overload.function].append(overload)
        overheads = [run.environment.overhead_ns for run in result.processes]
        known = [overhead for overhead in overheads if not math.isnan(overhead)]
        self.overhead_ns = max(known, default=math.nan)

    def is_worth(self, cost_ns: float) -> bool:
        """Tell whether a cost is large enough to speak of."""
        return cost_ns >= MIN_COST_NS and cost_ns >= MIN_SHARE * self.wall_ns

    def is_listed(self, overload: OverloadStats) -> bool:
        """Tell whether an overload comes from a signature in the decorator."""
        return overload.origin == "eager" or overload.function in self.eager

    def is_run_complete(self, overload: OverloadStats) -> bool:
        """Tell whether all time spent in an overload is in its figures."""
        return (
            overload.countable
            and not overload.not_countable_reason
            and overload.in_flight == 0
            and overload.kind not in ("generator", "objmode body", "cfunc")
            and (overload.function, overload.signature) not in self.inside
        )

    def repeated(self, kind: str) -> dict[FunctionId, list[CompileEvent]]:
        """Group compilations beyond the first of a (process, function, signature).

        One inside another of the same overload is a part of it: a jitclass method
        compiled for the wrapper that Python calls.
        """
        seen: set[tuple[int, FunctionId, str]] = set()
        again: dict[FunctionId, list[CompileEvent]] = defaultdict(list)
        for event in self.result.compile_events:
            if event.event != "compile" or event.kind != kind or event.internal:
                continue
            key = (event.process, event.function, event.signature)
            if key in seen and not self._is_part_of_itself(event):
                again[event.function].append(event)
            seen.add(key)
        return again

    def _is_part_of_itself(self, event: CompileEvent) -> bool:
        outer = event
        while outer.parent >= 0:
            outer = self.result.compile_events[outer.parent]
            if (outer.function, outer.signature) == (event.function, event.signature):
                return True
        return False
