"""Which source lines call which function outside compiled code.

LLVM moves calls of mathematical functions in and out of loops as if they were
instructions, and then drops their source line (``Instruction::dropLocation``: what may
become a call of a library later is not taken for a call). In the line table such a call
belongs to whatever stands before it, which for ``s += np.sin(x)`` is often the ``for``.
What the line was is known before LLVM begins, so it is noted then, for all functions
that get a line table, and looked up when a sample was taken in a callee.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numbaprof.native.dwarf import LineTable, SourceFrame

__all__ = ["adopt", "exported", "lines_calling", "note_calls", "place_call"]

Place = tuple[str, int]

_INTRINSIC = re.compile(r"llvm\.(\w+)\.f(32|64)$")
"""LLVM's names of mathematical functions: ``llvm.sin.f64`` becomes a call of ``sin``,
``llvm.sin.f32`` one of ``sinf`` (Language Reference, "Standard C/C++ Library
Intrinsics")."""

_MADE_OF = {"sincos": ("sin", "cos"), "sincosf": ("sinf", "cosf")}
"""Calls that LLVM makes of two."""

_known: dict[str, set[Place]] = {}


def note_calls(module: Any, places: Mapping[int, Place]) -> None:
    """Note the calls in a module before it is optimised.

    Parameters
    ----------
    module : llvmlite.ir.Module
        With locations on its instructions.
    places : mapping of int to (str, int)
        File and line of each location, by ``id`` of its node.
    """
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                callee = getattr(instruction, "callee", None)
                name = getattr(callee, "name", "")
                place = places.get(id(instruction.metadata.get("dbg")))
                if name and place is not None and place[1]:
                    _known.setdefault(_library_name(name), set()).add(place)


def _library_name(name: str) -> str:
    """Return the function of the library that a callee becomes."""
    match = _INTRINSIC.match(name)
    if match is None:
        return name
    return match[1] + ("f" if match[2] == "32" else "")


def lines_calling(callee: str) -> frozenset[Place]:
    """Return every (file, line) known to call a function."""
    names = (callee, *_MADE_OF.get(callee, ()))
    return frozenset().union(*(_known.get(name, ()) for name in names))


def exported(files: Iterable[str]) -> dict[str, list[list[Any]]]:
    """Return what is known of some files, as JSON can hold it."""
    wanted = set(files)
    found = {
        name: sorted([file, line] for file, line in places if file in wanted)
        for name, places in _known.items()
    }
    return {name: places for name, places in found.items() if places}


def adopt(calls: Mapping[str, Iterable[Iterable[Any]]]) -> None:
    """Know what :func:`exported` returned, in this process or another.

    Raises
    ------
    ValueError, TypeError, AttributeError
        It is something else.
    """
    read = {
        str(name): {(str(file), int(line)) for file, line in places}
        for name, places in calls.items()
    }
    for name, places in read.items():
        _known.setdefault(name, set()).update(places)


def place_call(table: LineTable, pc: int, callee: str) -> tuple[SourceFrame, ...]:
    """Return the frames of a call, innermost first.

    Those of the line table, unless their line calls no such function: then those of the
    nearest instruction of one that does, in the same function, sooner after than
    before, as calls are moved to where their result is used.

    Parameters
    ----------
    table : LineTable
        Of the calling code.
    pc : int
        Within the call instruction.
    callee : str
        Name of the function called.
    """
    frames = table.lookup(pc)
    lines = lines_calling(callee)
    if not frames or not lines or frames[0][:2] in lines:
        return frames
    low, high = table.function_range(pc)
    best: tuple[SourceFrame, ...] = ()
    nearest = high - low
    for segment in table.segments():
        if low <= segment.low < high and segment.frames[0][:2] in lines:
            after = segment.low > pc
            distance = segment.low - pc if after else pc - segment.high + 1
            if distance < nearest or (distance == nearest and after):
                nearest, best = distance, segment.frames
    if best:
        return best
    own = [place for place in lines if place[0] == frames[-1].file]
    if len(own) == 1:
        return (frames[-1]._replace(line=own[0][1]),)
    return frames
