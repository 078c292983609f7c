"""Budgets of the marker ``numbaprof``: what a test may compile and must have.

A budget is about exact facts (which overloads, what machine code, whether something
compiled), so that a test with one does not fail by chance; ``max_compile_s`` alone is a
time. Every failure names the overloads and says why they exist.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from numbaprof.analysis import display_names, explain_overloads, is_internal
from numbaprof.errors import OptionError
from numbaprof.overload_table import label_overload
from numbaprof.pytest_compile_report import is_part
from numbaprof.wording import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numbaprof.model import CompileEvent, OverloadStats, ProfileResult

__all__ = ["Budgets", "judge"]

NS_PER_SECOND = 1e9
LISTED = 8
"""Overloads named under one budget; the others are counted."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The keywords of ``@pytest.mark.numbaprof``."""

    max_overloads: int | None = None
    """Overloads of the user's functions that may be called from Python."""
    no_compile: bool = False
    """Nothing may be compiled; loading from the cache may be."""
    max_compile_s: float | None = None
    """Seconds that compiling may take, helpers of Numba's own included."""
    no_cache_miss: bool = False
    """Functions with ``cache=True`` may only be loaded."""
    no_object_mode: bool = False
    """No overload that is called may be in object mode."""
    vectorized: bool | str | tuple[str, ...] = False
    """Each overload that is called must have packed floating-point instructions; or
    those of functions whose qualified name fits one of these patterns."""
    min_vector_bits: int | None = None
    """Width that these instructions must have: 128, 256 or 512."""
    warmup: bool = False
    """No budget: the test compiles what others need, see
    ``--numbaprof-fail-on-compile``."""

    def __post_init__(self) -> None:
        for name in ("max_overloads", "max_compile_s", "min_vector_bits"):
            value: Any = getattr(self, name)
            numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and (not numeric or value < 0):
                raise OptionError(f"{name}={value!r} must be a number from 0 on")
        for name in ("no_compile", "no_cache_miss", "no_object_mode", "warmup"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise OptionError(f"{name}={value!r} must be True or False")
        patterns: Any = self.vectorized
        if isinstance(patterns, str):
            patterns = (patterns,)
        if not isinstance(patterns, bool):
            patterns = tuple(patterns) if isinstance(patterns, (list, tuple)) else None
            if not patterns or not all(isinstance(name, str) for name in patterns):
                raise OptionError(
                    f"vectorized={self.vectorized!r} must be True, False or names of "
                    "functions such as 'dot' or ['dot', 'solver.*']"
                )
        object.__setattr__(self, "vectorized", patterns)

    @classmethod
    def from_marks(cls, marks: Iterable[Any]) -> Budgets:
        """Read markers, the closest first; closer ones override.

        Raises
        ------
        OptionError
            A budget that does not exist, or a value that it cannot have.
        """
        given: dict[str, Any] = {}
        for mark in reversed(list(marks)):
            if mark.args:
                raise OptionError(
                    f"budgets are keywords, {mark.args[0]!r} has none; known are "
                    f"{_known()}"
                )
            given.update(mark.kwargs)
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise OptionError(f"no budget {name!r}{hint} Known are {_known()}")
        return cls(**given)

    @property
    def sets_any(self) -> bool:
        """Whether there is anything to judge."""
        return any(
            # By identity: a budget of 0 is one.
            (value := getattr(self, field.name)) is not None and value is not False
            for field in fields(self)
            if field.name != "warmup"
        )

    @property
    def needs_machine_code(self) -> bool:
        """Whether fingerprints have to be taken."""
        return bool(self.vectorized) or self.min_vector_bits is not None


def _known() -> str:
    return ", ".join(field.name for field in fields(Budgets))


def judge(result: ProfileResult, budgets: Budgets) -> list[str]:
    """Return one paragraph per budget that was not kept; empty if all were.

    What cannot be known is not kept: the paragraph says why it cannot.
    """
    return list(_Judge(result, budgets).find())


class _Judge:
    """Everything about one result that several budgets ask for."""

    def __init__(self, result: ProfileResult, budgets: Budgets) -> None:
        self._result = result
        self._budgets = budgets
        self._names = display_names(result)
        self._reasons = dict(
            zip(map(id, result.overloads), explain_overloads(result), strict=True)
        )
        self._why = {
            (overload.function, overload.signature): self._reasons[id(overload)]
            for overload in result.overloads
        }
        self._called = [
            overload
            for overload in result.overloads
            if not is_internal(overload) and (overload.calls or overload.in_flight)
        ]

    def find(self) -> Iterator[str]:
        """Yield the paragraphs."""
        yield from self._find_overloads()
        yield from self._find_compilations()
        yield from self._find_cache_misses()
        yield from self._find_object_mode()
        yield from self._find_scalar_code()

    def _find_overloads(self) -> Iterator[str]:
        most = self._budgets.max_overloads
        if most is None:
            return
        if blind := self._why_not_counted():
            yield f"max_overloads={most}: calls were not counted: {blind}"
        elif len(self._called) > most:
            found = plural(len(self._called), "overload")
            yield _listed(
                f"max_overloads={most}: {found} called",
                [f"{self._label(o)}: {self._reasons[id(o)]}" for o in self._called],
            )

    def _why_not_counted(self) -> str:
        for run in self._result.processes:
            for backend in run.environment.backends:
                if backend.instrument == "dispatch" and backend.backend == "none":
                    return backend.reason
        return ""

    def _find_compilations(self) -> Iterator[str]:
        compiled = [
            event
            for event in self._result.compile_events
            if event.event != "cache_load"
        ]
        total_ns = sum(event.exclusive_ns for event in compiled)
        own = [e for e in compiled if not e.internal and not is_part(e)] or compiled
        took = f"{plural(len(own), 'compilation')}, {format_duration(total_ns)}"
        lines = [self._describe(event) for event in own]
        if self._budgets.no_compile and compiled:
            yield _listed(f"no_compile: {took}", lines)
        most_s = self._budgets.max_compile_s
        if most_s is not None and total_ns > most_s * NS_PER_SECOND:
            yield _listed(f"max_compile_s={most_s}: {took}", lines)

    def _find_cache_misses(self) -> Iterator[str]:
        if not self._budgets.no_cache_miss:
            return
        cached = {
            info.function: info.cache_reason
            for info in self._result.dispatchers
            if info.cache_enabled
        }
        missed = [
            event
            for event in self._result.compile_events
            if event.event == "compile"
            and event.function in cached
            and not is_part(event)
        ]
        if missed:
            yield _listed(
                f"no_cache_miss: {plural(len(missed), 'overload')} with cache=True "
                "compiled",
                [
                    "; ".join(filter(None, [self._describe(e), cached[e.function]]))
                    for e in missed
                ],
            )

    def _find_object_mode(self) -> Iterator[str]:
        if not self._budgets.no_object_mode:
            return
        found = [o for o in self._called if o.kind == "object mode"]
        if found:
            yield _listed(
                f"no_object_mode: {plural(len(found), 'overload')} in object mode",
                [f"{self._label(o)}: {self._reasons[id(o)]}" for o in found],
            )

    def _find_scalar_code(self) -> Iterator[str]:
        if not self._budgets.needs_machine_code:
            return
        least = self._budgets.min_vector_bits or 0
        lines = [
            f"{self._label(overload)} {problem}"
            for overload in self._called
            if self._must_be_vectorized(overload)
            and (problem := _scalar_problem(overload, least))
        ]
        if not any(self._must_be_vectorized(overload) for overload in self._called):
            lines = ["none of these functions was called from Python"]
        if lines:
            yield _listed(f"{self._vector_budget()}:", lines)

    def _vector_budget(self) -> str:
        given = {
            "vectorized": self._budgets.vectorized,
            "min_vector_bits": self._budgets.min_vector_bits,
        }
        return ", ".join(f"{name}={value!r}" for name, value in given.items() if value)

    def _must_be_vectorized(self, overload: OverloadStats) -> bool:
        patterns = self._budgets.vectorized
        if isinstance(patterns, (bool, str)):
            return True
        qualname = overload.function.qualname
        full = f"{overload.function.module}.{qualname}"
        last = qualname.rpartition(".")[2]
        return any(
            fnmatchcase(name, pattern)
            for pattern in patterns
            for name in (last, qualname, full)
        )

    def _label(self, overload: OverloadStats) -> str:
        return label_overload(overload, self._names[overload.function])

    def _describe(self, event: CompileEvent) -> str:
        """Say what was compiled, for how long and why."""
        name = f"{self._names[event.function]}{event.signature}"
        took = f"{name}, {format_duration(event.exclusive_ns)}"
        if event.event == "failed":
            return f"{took}: failed, {event.error}"
        why = self._why.get((event.function, event.signature), "")
        if event.internal:
            why = "Numba's own helper"
        return f"{took}: {why or event.kind}"


def _scalar_problem(overload: OverloadStats, least: int) -> str:
    """Say what is wrong with the machine code; "" when nothing is."""
    code = overload.fingerprint
    if code is None or code.packed_fp is None:
        reason = overload.fingerprint_reason or (code.reason if code else "")
        return f"cannot be judged: {reason or 'its machine code was not read'}"
    if not code.packed_fp:
        return "has no packed floating-point instruction"
    width = code.width_bits
    if least and (width is None or width < least):
        return f"has packed instructions of {width} bits only"
    return ""


def _listed(headline: str, lines: list[str]) -> str:
    shown = [f"  {line}" for line in lines[:LISTED]]
    if len(lines) > LISTED:
        shown.append(f"  … and {len(lines) - LISTED} more")
    return "\n".join([headline, *shown])
