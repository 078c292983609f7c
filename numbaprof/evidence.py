"""What the machine code of a jitted function shows, as plain data.

Collected by :mod:`numbaprof.native.code_evidence`, told by
:mod:`numbaprof.explanation`. Every number counts instructions in the code that runs;
where that code could not be read there is a ``reason``, and nothing is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numbaprof.model import FunctionId

__all__ = [
    "MOVED",
    "FunctionEvidence",
    "InlinedCode",
    "LineEvidence",
    "LoopEvidence",
    "OverloadEvidence",
]

MOVED = ("hoisting ", "sinking ")
"""How LLVM's remarks on code that it moved out of a loop begin (``LICM.cpp``)."""

_WIDTH = re.compile(r"vectorization width: (?:vscale x )?(\d+)")
_INTERLEAVE = re.compile(r"interleaved count: (\d+)")


@dataclass(frozen=True, slots=True)
class LineEvidence:
    """One source line that has byte code."""

    line: int
    instructions: int
    """Instructions whose line this is, those of code inlined into it not counted."""
    inlined: int
    """Instructions of other functions that were inlined into this line."""
    stretches: int
    """In how many separate places of the code they stand."""
    in_loops: int
    """How many of ``instructions`` and ``inlined`` lie within a loop of the machine."""
    packed_bits: int
    """Widest vector that one of them computes floating-point numbers on; 0 if none."""

    @property
    def total(self) -> int:
        """All instructions of the line."""
        return self.instructions + self.inlined


@dataclass(frozen=True, slots=True)
class InlinedCode:
    """A function that was compiled into the function explained."""

    line: int
    """Line of the function explained that the code became a part of."""
    function: str
    file: str
    callee_line: int
    """First line of the callee that has instructions here."""
    instructions: int
    internal: bool
    """Whether it is Numba's own."""


@dataclass(frozen=True, slots=True)
class LoopEvidence:
    """What LLVM said of one loop."""

    file: str
    line: int
    passed: bool
    """Whether something was done (vectorized, unrolled); else why it was not."""
    text: str
    """As LLVM put it."""

    @property
    def moved(self) -> bool:
        """Whether something of the line was moved out of a loop."""
        return self.text.startswith(MOVED)

    @property
    def vector_width(self) -> int | None:
        """Iterations per vector instruction; None if the text names no width."""
        found = _WIDTH.search(self.text)
        return int(found.group(1)) if found else None

    @property
    def interleave(self) -> int | None:
        """How many vectors are worked on at a time; None if the text does not say."""
        found = _INTERLEAVE.search(self.text)
        return int(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class OverloadEvidence:
    """The machine code of one overload."""

    signature: str
    instructions: int = 0
    """Of the function and of the parallel regions made of it, without padding."""
    without_line: int = 0
    """Those LLVM kept no line for: merged from several lines, moved or made new."""
    loops: int = 0
    """Ranges that a jump backwards goes over; nested loops are one."""
    lines: tuple[LineEvidence, ...] = ()
    inlined: tuple[InlinedCode, ...] = ()
    remarks: tuple[LoopEvidence, ...] = ()
    reason: str = ""
    """Why there is none of the above."""


@dataclass(frozen=True, slots=True)
class FunctionEvidence:
    """All overloads of one dispatcher."""

    function: FunctionId
    last_line: int
    overloads: tuple[OverloadEvidence, ...]
    options: tuple[tuple[str, str], ...] = ()
    """Options of the decorator, as text."""
