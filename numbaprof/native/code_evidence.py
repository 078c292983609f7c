"""Evidence about one function from its machine code, its line table and LLVM's remarks.

An overload is compiled once more, with a line table and with remarks on
(:mod:`twin_compiler`, :mod:`remarks`); the evidence counts only if the machine code is
that of the overload that runs. The user's function is not called and not changed.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher

from numbaprof.errors import AttachError, TargetError, UnsupportedError
from numbaprof.evidence import (
    MOVED,
    FunctionEvidence,
    InlinedCode,
    LineEvidence,
    LoopEvidence,
    OverloadEvidence,
)
from numbaprof.native import numba_api, objcode, remarks
from numbaprof.native.disassembly import disassemble
from numbaprof.native.line_events import LineEvents
from numbaprof.native.twin_compiler import TwinCompiler, overloads_by_symbol
from numbaprof.native.twins import different_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.native.disassembly import Instruction
    from numbaprof.native.dwarf import SourceFrame
    from numbaprof.native.objcode import JitObject
    from numbaprof.native.remarks import Remark
    from numbaprof.native.twin_compiler import Overload

__all__ = ["collect", "collect_overload", "dispatchers_in", "why_not_explainable"]

PASSES = (*remarks.PASSES, "licm")
"""What LLVM is asked for; the last one moves code out of loops."""
WRAPPERS = ("_ZN7cpython", "cfunc.", "NRT_", "__gufunc__", ".kernel", "wrapper")
"""How the symbols of code begin that Numba puts around a function."""
_JUMP = re.compile(r"j\w+|b(\.\w+)?|cbn?z|tbn?z")
"""Mnemonics of jumps within a function, on x86-64 and aarch64."""
_TARGET = re.compile(r"#?0x([0-9a-f]+)$")


def why_not_explainable(thing: Any) -> str:
    """Return why there is no machine code to explain, or ""."""
    name = getattr(thing, "__qualname__", None) or repr(thing)
    if isinstance(thing, CPUDispatcher):
        if thing.overloads:
            return ""
        return (
            f"{name} has not been compiled yet, so there is no machine code to "
            "explain. Call it once with arguments of the types that you use, or give "
            "@njit a signature, and explain it then"
        )
    if inspect.isfunction(thing) and numba_api.jit_is_disabled():
        return (
            f"NUMBA_DISABLE_JIT is set, so there is no machine code of {name}: Numba "
            "hands functions back as they are. Unset it to explain them"
        )
    if inspect.isfunction(thing) or numba_api.python_function(thing) is None:
        if inspect.isfunction(thing):
            return (
                f"{name} is a Python function, which Numba did not compile: put "
                "@numba.njit on it, or use line_profiler, the right tool for Python"
            )
        if callable(thing):
            return (
                f"{name} is a {type(thing).__name__}, which Numba did not compile; "
                "for Python code line_profiler is the right tool"
            )
        return f"{name} is a {type(thing).__name__}, not a function"
    return (
        f"{name} is a {type(thing).__name__}; explain() reads functions made by @jit "
        "and @njit. Jit the Python function behind it and explain that"
    )


def dispatchers_in(files: tuple[str, ...]) -> list[Any]:
    """Return the jitted functions alive that are defined in a file, by line.

    Parameters
    ----------
    files : tuple of str
        The names that the file may have in code objects.
    """
    found = [
        thing
        for thing in numba_api.live_dispatchers()
        if type(thing) is CPUDispatcher
        and thing.py_func.__code__.co_filename in files
        and not numba_api.jitclass_role(thing)
    ]
    return sorted(found, key=lambda thing: thing.py_func.__code__.co_firstlineno)


def collect(dispatcher: Any) -> FunctionEvidence:
    """Return the evidence for every overload of a dispatcher.

    Raises
    ------
    TargetError
        Nothing was compiled; the message says what to do.

    Notes
    -----
    Costs one compilation per overload, callees included.
    """
    reason = why_not_explainable(dispatcher)
    if reason:
        raise TargetError(reason)
    function = dispatcher.py_func
    found = [
        _evidence(overload, function)
        for overload in overloads_by_symbol([dispatcher]).values()
    ]
    info = numba_api.dispatcher_info(
        dispatcher, numba_api.FunctionRegistry().identify(dispatcher)
    )
    last = max(LineEvents(function.__code__).lines, default=info.function.line)
    return FunctionEvidence(info.function, last, tuple(found), info.options)


def collect_overload(dispatcher: Any, signature: str) -> OverloadEvidence | None:
    """Return the evidence for one overload; None if there is none of that signature.

    Parameters
    ----------
    dispatcher : CPUDispatcher
        Other things have no evidence.
    signature : str
        As in ``p.stats``.
    """
    if why_not_explainable(dispatcher):
        return None
    for overload in overloads_by_symbol([dispatcher]).values():
        if numba_api.signature_text(overload.args) == signature:
            return _evidence(overload, dispatcher.py_func)
    return None


def _evidence(overload: Overload, function: Any) -> OverloadEvidence:
    signature = numba_api.signature_text(overload.args)
    if getattr(overload.cres, "objectmode", False):
        why = "it was compiled in object mode: Python runs it, object by object"
        return OverloadEvidence(signature, reason=why)
    try:
        return _collect(overload, signature, function)
    except (NumbaError, AttachError, UnsupportedError) as error:
        return OverloadEvidence(signature, reason=str(error))


def _collect(overload: Overload, signature: str, function: Any) -> OverloadEvidence:
    before = {known.start for known in objcode.load_objects()}
    with remarks.collect(passes=PASSES) as said, TwinCompiler() as compiler:
        compiler.compile(overload)
        twin = compiler.twin(overload.thing).overloads[overload.args]
        others = {id(library) for library in compiler.libraries() - {twin.library}}
        said_of_it = [remark for remark in said if remark.module not in others]
        symbol = twin.fndesc.llvm_func_name
    objects = objcode.load_objects()
    original, rebuilt = (objects.with_symbol(s) for s in (overload.symbol, symbol))
    if original is None or rebuilt is None:
        raise UnsupportedError(
            f"its machine code was not found in memory: {objects.reason or 'no reason'}"
        )
    if different_bytes(original, rebuilt) is None:
        raise UnsupportedError(
            "compiled again it is other machine code than what runs (a global "
            "variable, the options of a cached function or Numba's settings changed), "
            "and evidence about other code would be none"
        )
    parts = [made for made in objects if made.start not in before]
    reading = _Reading(function.__code__)
    for part in parts:
        reading.read(part, symbol if part is rebuilt else "")
    return reading.evidence(signature, said_of_it)


@dataclass
class _Line:
    """What is being counted of one line."""

    own: int = 0
    inlined: int = 0
    stretches: int = 0
    in_loops: int = 0
    packed_bits: int = 0


@dataclass
class _Reading:
    """Counts the instructions of one function, wherever they are."""

    code: Any
    total: int = 0
    without_line: int = 0
    loops: int = 0
    lines: dict[int, _Line] = field(default_factory=lambda: defaultdict(_Line))
    inlined: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    callee_lines: dict[tuple[int, str, str], int] = field(default_factory=dict)
    places: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.known = LineEvents(self.code).lines
        self.first = self.code.co_firstlineno
        self.last = max(self.known, default=self.first)

    def read(self, found: JitObject, kernel: str) -> None:
        """Count the functions of an object that are made of this function.

        Parameters
        ----------
        found : JitObject
            With a line table.
        kernel : str
            Symbol of the function itself if it is in there, else "".
        """
        for symbol in found.symbols():
            if symbol.name == kernel or _may_be_part(symbol.name, kernel):
                low = symbol.address - found.start
                code = found.text[low : low + symbol.size]
                instructions = [
                    instruction
                    for instruction in disassemble(code, symbol.address)
                    if not instruction.is_padding
                ]
                self._count(found, instructions, always=symbol.name == kernel)

    def _count(
        self, found: JitObject, instructions: list[Instruction], *, always: bool
    ) -> None:
        segments = list(found.rows().segments())
        places = [_segment_at(segments, one.address) for one in instructions]
        if not always and not any(
            place is not None and self._line_of(place.frames) for place in places
        ):
            return  # of another function, or a wrapper
        loops = _loops(instructions)
        self.loops += len(loops)
        previous = 0
        for instruction, place in zip(instructions, places, strict=True):
            self.total += 1
            if place is None or not place.exact:
                self.without_line += 1
                continue
            line = self._line_of(place.frames)
            if line:
                is_in_loop = any(a <= instruction.address < b for a, b in loops)
                self._add(line, place.frames, instruction, is_in_loop)
                self.lines[line].stretches += line != previous
            previous = line

    def _add(
        self,
        line: int,
        frames: tuple[SourceFrame, ...],
        instruction: Instruction,
        is_in_loop: bool,
    ) -> None:
        counted = self.lines[line]
        callees = [f for f in frames if f.inlined and not self._is_own(f)]
        if callees:
            counted.inlined += 1
        else:
            counted.own += 1
        counted.in_loops += is_in_loop
        counted.packed_bits = max(counted.packed_bits, instruction.packed_fp_bits)
        self.places.update((frame.file, frame.line) for frame in frames)
        for frame in callees:
            key = (line, frame.function, frame.file)
            self.inlined[key] += 1
            known = self.callee_lines.get(key, frame.line)
            self.callee_lines[key] = min(known, frame.line) or known or frame.line

    def _is_own(self, frame: SourceFrame) -> bool:
        is_here = bool(frame.file == self.code.co_filename)
        return is_here and self.first <= frame.line <= self.last

    def _line_of(self, frames: tuple[SourceFrame, ...]) -> int:
        """Return the innermost line of this function, 0 if none."""
        for frame in frames:
            if self._is_own(frame):
                return frame.line
        return 0

    def evidence(self, signature: str, said: list[Remark]) -> OverloadEvidence:
        """Return what was found."""
        lines = tuple(
            LineEvidence(
                line,
                self.lines[line].own,
                self.lines[line].inlined,
                self.lines[line].stretches,
                self.lines[line].in_loops,
                self.lines[line].packed_bits,
            )
            for line in sorted(self.known)
        )
        inlined = tuple(
            InlinedCode(
                line,
                name,
                file,
                self.callee_lines[line, name, file],
                count,
                numba_api.is_own_file(file) or file.startswith("<"),
            )
            for (line, name, file), count in sorted(self.inlined.items())
        )
        loops = tuple(
            dict.fromkeys(
                LoopEvidence(
                    remark.file,
                    remark.line,
                    remark.kind == "passed" or remark.text.startswith(MOVED),
                    remark.text,
                )
                for remark in said
                if self._concerns(remark)
            )
        )
        return OverloadEvidence(
            signature, self.total, self.without_line, self.loops, lines, inlined, loops
        )

    def _concerns(self, remark: Remark) -> bool:
        if remark.file == self.code.co_filename and (
            self.first <= remark.line <= self.last
        ):
            return True
        return (remark.file, remark.line) in self.places


def _may_be_part(symbol: str, kernel: str) -> bool:
    """Tell whether a function may be made of the one explained.

    In its own object, whatever is no wrapper, such as the body of a generator; in
    others only parallel regions.
    """
    if symbol.startswith(WRAPPERS):
        return False
    return bool(kernel) or numba_api.is_loop_body(symbol)


def _segment_at(segments: list[Any], address: int) -> Any:
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].high <= address:
            low = middle + 1
        else:
            high = middle
    if low < len(segments) and segments[low].low <= address:
        return segments[low]
    return None


def _loops(instructions: list[Instruction]) -> list[tuple[int, int]]:
    """Return the ranges that jumps backwards go over, overlapping ones as one."""
    spans = sorted(_backward(instructions))
    found: list[tuple[int, int]] = []
    for low, high in spans:
        if found and low < found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def _backward(instructions: list[Instruction]) -> Iterator[tuple[int, int]]:
    first = instructions[0].address if instructions else 0
    for instruction in instructions:
        target = _TARGET.search(instruction.operands)
        if target and _JUMP.fullmatch(instruction.mnemonic):
            address = int(target.group(1), 16)
            if first <= address <= instruction.address:
                yield address, instruction.address + instruction.size
