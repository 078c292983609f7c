"""Which steps from one byte-code instruction to the next CPython calls a new line.

A line profiler counts CPython's *line events*. Whether one is due depends on two
instructions only, the one that ran before and the one about to run, so it can be read
off the code object without running it. The rule changed with the interpreter:

3.10, 3.11
    ``maybe_call_line_trace`` in ``Python/ceval.c``: the line is another one, or the
    jump goes back.
3.12, 3.13
    ``initialize_lines`` and ``_Py_call_instrumentation_line`` in
    ``Python/instrumentation.c``: the instruction begins a line or can be jumped to,
    and the line is another one. A jump back within one line is no event any more.

The tests run code with every instruction traced and compare this rule with the events.
One case is left out on purpose: 3.13 does not announce a body that stands beside its
``def`` or ``lambda`` (it takes RESUME, whose line that is, for having been announced);
here such a line is an event, as in 3.10 to 3.12.
"""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

__all__ = ["Instruction", "LineEvents"]

HAS_RESUME = sys.version_info >= (3, 11)
"""Functions begin with RESUME, and nothing in front of it is traced."""
HAS_MONITORING = sys.version_info >= (3, 12)
"""Line events come from instrumented instructions."""

NEVER_FIRST = frozenset({"END_FOR", "END_SEND", "END_ASYNC_FOR", "RESUME", "CACHE"})
"""Instructions that ``initialize_lines`` lets begin no line."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, its EXTENDED_ARG prefixes included."""

    offset: int
    """Of the first prefix: where a jump lands."""
    name: str
    line: int | None
    """None where the compiler gave no line."""


class LineEvents:
    """The line events of one code object.

    Parameters
    ----------
    code : code
        Of any Python function.

    Attributes
    ----------
    instructions : tuple of Instruction
        In the order of their offsets, without inline caches.
    """

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.instructions = tuple(_instructions(code))
        self.index = {
            instruction.offset: position
            for position, instruction in enumerate(self.instructions)
        }

    def at(self, offset: int) -> Instruction:
        """Return the instruction at ``offset``, in bytes."""
        return self.instructions[self.index[offset]]

    def is_event(self, previous: Instruction | None, current: Instruction) -> bool:
        """Tell whether going from ``previous`` to ``current`` is a line event.

        Parameters
        ----------
        previous : Instruction or None
            What ran before in the same frame; None at its first instruction.
        current : Instruction
            What runs next.
        """
        if current.line is None or current.offset < self._first_traceable:
            return False
        if HAS_MONITORING:
            return self._is_monitored(previous, current)
        return self._is_traced(previous, current)

    def _is_traced(self, previous: Instruction | None, current: Instruction) -> bool:
        if HAS_RESUME and current.name == "RESUME":
            return False
        if previous is None or (
            HAS_RESUME and previous.offset <= self._first_traceable
        ):
            return True
        if current.offset < previous.offset:
            return current.name != "SEND"
        return current.line != previous.line

    def _is_monitored(self, previous: Instruction | None, current: Instruction) -> bool:
        if current.offset not in self._line_starts:
            return False
        if previous is None or previous.name == "RESUME":
            return True
        return current.line != previous.line

    @cached_property
    def _first_traceable(self) -> int:
        if HAS_RESUME:
            for instruction in self.instructions:
                if instruction.name == "RESUME":
                    return instruction.offset
        return 0

    @cached_property
    def _line_starts(self) -> frozenset[int]:
        starts = set(_jump_targets(self.code))
        for here, following in pairwise(self.instructions):
            # FOR_ITER and SEND jump over the END_FOR or END_SEND at their target.
            if here.offset in starts and here.name in ("END_FOR", "END_SEND"):
                starts.add(following.offset)
        line: int | None = None
        for instruction in self.instructions:
            if instruction.offset < self._first_traceable:
                continue
            if instruction.name in NEVER_FIRST:
                starts.discard(instruction.offset)
                continue
            if instruction.line != line:
                starts.add(instruction.offset)
            line = instruction.line
        return frozenset(starts)

    @cached_property
    def lines(self) -> frozenset[int]:
        """The lines that a line event can name."""
        found = set()
        for instruction in self.instructions:
            if self.is_event(None, instruction) and instruction.name != "RESUME":
                found.add(instruction.line)
        return frozenset(line for line in found if line is not None)


def _jump_targets(code: CodeType) -> list[int]:
    # Its stub wants a code object, the function wants the byte code.
    return dis.findlabels(code.co_code)  # type: ignore[arg-type]


def _instructions(code: CodeType) -> list[Instruction]:
    lines: dict[int, int | None] = {}
    for start, end, line in code.co_lines():
        for offset in range(start, end, 2):
            lines[offset] = line
    found = []
    first = -1
    for instruction in dis.get_instructions(code):
        if first < 0:
            first = instruction.offset
        if instruction.opname == "EXTENDED_ARG":
            continue
        found.append(Instruction(first, instruction.opname, lines.get(first)))
        first = -1
    return found
