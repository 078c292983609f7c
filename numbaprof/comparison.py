"""What a comparison found: rows with evidence, and one verdict.

A :class:`Comparison` is plain data; :mod:`numbaprof.comparing` makes it,
:mod:`numbaprof.compare_text` and :mod:`numbaprof.compare_files` show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

__all__ = [
    "EXIT_OK",
    "EXIT_REGRESSION",
    "EXIT_UNCOMPARABLE",
    "GATES",
    "Comparison",
    "Failure",
    "Gate",
    "GateOptions",
    "Noise",
    "Row",
]

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_UNCOMPARABLE = 2

Gate = Literal["time", "compile", "new", "simd", "objmode", "missing", "wall"]
GATES: tuple[Gate, ...] = (
    "time",
    "compile",
    "new",
    "simd",
    "objmode",
    "missing",
    "wall",
)
Status = Literal["common", "new", "new function", "gone", "new test", "gone test"]
Code = Literal["same", "changed", "unknown", ""]
TimeVerdict = Literal["ok", "faster", "suspect", "regression", "advisory", ""]


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Which differences fail a comparison."""

    fail: tuple[Gate, ...] = ("time", "compile", "new", "simd", "objmode")
    allow_new: tuple[str, ...] = ()
    """Patterns of ``function`` or ``function(signature)`` that may be new."""
    min_effect: float | None = None
    """Smallest change of run time that counts; None for that of the run file, 5 %."""
    strict_target: bool = False
    """Refuse to compare what was compiled for different targets."""
    ignore_code: bool = False
    """Judge run time even where the machine code is the same: what is found then are
    false alarms, for measuring how many there are."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One reason why a row fails."""

    gate: Gate
    evidence: str


@dataclass(frozen=True, slots=True)
class Row:
    """One overload, in one test where there are tests; or a whole test."""

    test: str
    """Node id; "" when profiles of programs are compared."""
    function: str
    """``module.qualname``; "" for the row of a whole test."""
    signature: str
    file: str
    line: int
    status: Status
    base_ns: float | None = None
    """Time per call. In lock-step the median over sessions, exclusive of other
    overloads; of profiles the minimum, inclusive."""
    head_ns: float | None = None
    change: float | None = None
    """Relative, positive is slower. Not head_ns / base_ns: from paired rounds."""
    change_low: float | None = None
    change_high: float | None = None
    confidence: float | None = None
    """Of each of the two bounds."""
    sessions: int = 0
    time: TimeVerdict = ""
    """"advisory": slower, but these two measurements cannot prove it; "": no times."""
    time_reason: str = ""
    code: Code = ""
    code_reason: str = ""
    base_instructions: int | None = None
    head_instructions: int | None = None
    base_packed_fp: int | None = None
    head_packed_fp: int | None = None
    base_width_bits: int | None = None
    head_width_bits: int | None = None
    base_compile_ns: float | None = None
    """Exclusive: process CPU time per session in run files, wall time in profiles."""
    head_compile_ns: float | None = None
    compile_reason: str = ""
    """Why compile times are not judged."""
    base_calls: float | None = None
    head_calls: float | None = None
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether an enabled gate fails this row."""
        return bool(self.failures)

    @property
    def name(self) -> str:
        """What the row is about: ``module.f(int64)`` or the whole test."""
        return f"{self.function}{self.signature}" if self.function else "(whole test)"

    @property
    def why(self) -> str:
        """The failures in one line."""
        return "; ".join(failure.evidence for failure in self.failures)


@dataclass(frozen=True, slots=True)
class Noise:
    """What was measured of overloads whose code is the same on both sides."""

    overloads: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two measurements, overload by overload.

    Attributes
    ----------
    verdict : str
        "incomplete" when something could not be compared, "regression" when a row
        fails, "suspect" when one is slower without proof, else "ok".
    exit_code : int
        2 when something could not be compared, 1 for a regression, else 0.
    rows : pandas.DataFrame
        One row per overload (and test), failing ones first; see :class:`Row`.
    """

    base: str
    head: str
    kind: Literal["ab", "runs", "profiles"]
    entries: tuple[Row, ...]
    gates: tuple[Gate, ...]
    min_effect: float
    advisory: str = ""
    """Why run times are no verdict here; "" when they are."""
    noise: Noise | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be compared, one sentence each."""

    @property
    def failing(self) -> tuple[Row, ...]:
        """The rows that fail."""
        return tuple(row for row in self.entries if row.failed)

    @property
    def suspects(self) -> tuple[Row, ...]:
        """The rows that are slower, or may be, and do not fail for it."""
        return tuple(
            row
            for row in self.entries
            if row.time in ("suspect", "advisory", "regression")
            and not row.failed
            # What a test does around its kernels is judged only when asked for.
            and (row.function or "wall" in self.gates)
        )

    @property
    def verdict(self) -> Literal["ok", "suspect", "regression", "incomplete"]:
        """The answer in one word."""
        if self.problems:
            return "incomplete"
        if self.failing:
            return "regression"
        return "suspect" if self.suspects else "ok"

    @property
    def exit_code(self) -> int:
        """What a CI job should end with."""
        if self.problems:
            return EXIT_UNCOMPARABLE
        return EXIT_REGRESSION if self.failing else EXIT_OK

    @property
    def rows(self) -> pd.DataFrame:
        """One row per entry; times in seconds, failures as text."""
        from numbaprof import compare_files

        return compare_files.rows_frame(self)

    def __str__(self) -> str:
        from numbaprof import compare_text

        return compare_text.render(self)

    def to_markdown(self) -> str:
        """Return the comparison as Markdown for a pull request."""
        from numbaprof import compare_text

        return compare_text.to_markdown(self)

    def to_json(self) -> str:
        """Return the comparison as JSON; schema ``docs/compare-1.schema.json``."""
        from numbaprof import compare_files

        return compare_files.to_json(self)

    def to_junit(self) -> str:
        """Return the comparison as JUnit XML; each failing row is a failure."""
        from numbaprof import compare_files

        return compare_files.to_junit(self)

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Return the rows as CSV, and write them to ``path`` if given."""
        from pathlib import Path

        from numbaprof import compare_files

        text = compare_files.to_csv(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text
