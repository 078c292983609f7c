"""From an address in compiled code to source lines, inlined calls unfolded.

Our own reader, because it must be cheap: an object takes about 1 ms where pyelftools,
the oracle of the tests, takes 30 ms. Read lazily, once per object.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.native.dwarf_lines import END
from numbaprof.native.dwarf_units import Scope, read_units

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Function", "LineTable", "Row", "Segment", "SourceFrame"]


class SourceFrame(NamedTuple):
    """One function at one line."""

    file: str
    line: int
    """0 where LLVM kept no line and none could be inferred."""
    function: str
    """As in the debug information; the symbol's name where that has none."""
    inlined: bool
    """Whether this function's code is part of the next frame's."""


class Row(NamedTuple):
    """The code from ``address`` to the next row belongs to ``line``."""

    address: int
    file: str
    line: int
    """-1: the row before ends here and none begins; 0: LLVM kept no line."""


class Segment(NamedTuple):
    """Addresses that all have the same frames."""

    low: int
    high: int
    frames: tuple[SourceFrame, ...]
    exact: bool
    """False where the innermost line was inferred by the rule for line 0."""


class Function(NamedTuple):
    """The addresses of one symbol with code."""

    low: int
    high: int
    name: str


class LineTable:
    """The line rows and inlined scopes of one object.

    Parameters
    ----------
    rows : list of Row
        In any order of sequences.
    scopes : list of Scope
        Functions and inlined functions.
    functions : sequence of Function
        The symbols of the object, in order of address.

    Notes
    -----
    *Line 0* (instructions that LLVM merged or made, up to a quarter of the bytes): the
    nearest earlier row with a line in the same inlined scope of the same function; if
    there is none, the line that the scope was called from; at the function's own level
    line 0. A row never reaches beyond the function it begins in.
    """

    def __init__(
        self, rows: list[Row], scopes: list[Scope], functions: Sequence[Function]
    ) -> None:
        # The end of a sequence comes before what begins at the same address. Sorting
        # is stable: of several rows at one address the last one holds.
        self.rows = sorted(rows, key=lambda row: (row.address, row.line != END))
        self._addresses = [row.address for row in self.rows]
        self._functions = functions
        self._starts = [function.low for function in functions]
        self._points, self._chains = _index_scopes(scopes)

    @classmethod
    def empty(cls) -> LineTable:
        """Return the table of an object without debug information."""
        return cls([], [], ())

    @classmethod
    def read(
        cls, sections: Mapping[str, bytes], functions: Sequence[Function]
    ) -> LineTable:
        """Read the relocated debug sections of one object.

        Raises
        ------
        UnsupportedError
            They are damaged, or of a form not known here.
        """
        if ".debug_line" not in sections or ".debug_info" not in sections:
            return cls.empty()
        rows: list[Row] = []
        scopes: list[Scope] = []
        for unit in read_units(sections):
            scopes.extend(unit.scopes)
            if unit.program is not None:
                files = unit.program.files
                rows.extend(
                    Row(address, files[file], line)
                    for address, file, line in unit.program.rows
                )
        return cls(rows, scopes, functions)

    @property
    def has_lines(self) -> bool:
        """Whether there is any row."""
        return bool(self.rows)

    def lookup(self, pc: int) -> tuple[SourceFrame, ...]:
        """Return the frames at an instruction, innermost first; () without a row.

        Parameters
        ----------
        pc : int
            Address of the instruction; of a caller, its return address minus one.
        """
        frames, _ = self._frames(pc)
        return frames

    def _frames(self, pc: int) -> tuple[tuple[SourceFrame, ...], bool]:
        index = bisect_right(self._addresses, pc) - 1
        if index < 0 or self.rows[index].line == END:
            return (), False
        function = self._function(pc)
        row = self.rows[index]
        if function is None or row.address < function.low:
            return (), False
        symbol = function.name
        chain = self._chain(pc)
        file, line = row.file, row.line
        if not line:
            file, line = self._inferred(index, function.low, chain)
        frames = []
        for scope in reversed(chain):
            if not scope.inlined:
                symbol = scope.name or symbol
                continue
            if line or not scope.call_line:
                frames.append(SourceFrame(file, line, scope.name, True))
            file, line = scope.call_file, scope.call_line
        frames.append(SourceFrame(file, line, symbol, False))
        return tuple(frames), bool(row.line)

    def _function(self, pc: int) -> Function | None:
        index = bisect_right(self._starts, pc) - 1
        if index < 0 or pc >= self._functions[index].high:
            return None
        return self._functions[index]

    def _chain(self, pc: int) -> tuple[Scope, ...]:
        """Return the scopes around an address, outermost first."""
        index = bisect_right(self._points, pc) - 1
        return self._chains[index] if index >= 0 else ()

    def _inferred(
        self, index: int, start: int, chain: tuple[Scope, ...]
    ) -> tuple[str, int]:
        """Return (file, line) for row ``index``, which has line 0."""
        for row in reversed(self.rows[bisect_left(self._addresses, start) : index]):
            if row.line > 0 and self._chain(row.address) == chain:
                return row.file, row.line
        return self.rows[index].file, 0

    def function_range(self, pc: int) -> tuple[int, int]:
        """Return the addresses of the function around ``pc``; (pc, pc) if none is."""
        function = self._function(pc)
        return (pc, pc) if function is None else (function.low, function.high)

    def segments(self) -> Iterator[Segment]:
        """Yield the whole object in stretches with equal frames, in address order."""
        edges = (edge for function in self._functions for edge in function[:2])
        points = sorted({*self._addresses, *self._points, *edges})
        for low, high in pairwise(points):
            frames, exact = self._frames(low)
            if frames:
                yield Segment(low, high, frames, exact)

    def lines(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Return the address ranges of every innermost (file, line).

        Where LLVM kept no line, the inferred one counts.
        """
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for low, high, frames, _ in self.segments():
            ranges = found.setdefault((frames[0].file, frames[0].line), [])
            if ranges and ranges[-1][1] == low:
                ranges[-1] = (ranges[-1][0], high)
            else:
                ranges.append((low, high))
        return found


def _index_scopes(scopes: list[Scope]) -> tuple[list[int], list[tuple[Scope, ...]]]:
    """Return boundaries and, from each to the next, the scopes in force, outer first.

    So that finding them takes one bisection and no walk over all scopes.
    """
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for number, scope in enumerate(scopes):
        for low, high in scope.ranges:
            begins.setdefault(low, []).append(number)
            ends.setdefault(high, []).append(number)
    points = sorted({*begins, *ends})
    active: list[int] = []
    chains = []
    for point in points:
        for number in ends.get(point, ()):
            active.remove(number)
        active.extend(begins.get(point, ()))
        chains.append(
            tuple(sorted((scopes[i] for i in active), key=lambda scope: scope.depth))
        )
    return points, chains
