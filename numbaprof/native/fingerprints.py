"""The machine code of an overload as one hash, and a few facts about it.

Two overloads with equal fingerprints execute the same instructions on the same
constants. The hash is made from what the code *is*, not from how it is called or where
it lies: from the kernel on, every function and constant that can be reached through
relocations, numbered in the order in which it is reached. So neither names (which
contain module names, counters and addresses) nor places in the file nor load addresses
take part.

Left out, because they depend on where the source is and not on what it computes: the
pickled exceptions with their file names and line numbers, and their length where code
has it as a constant; the environment that only error messages use; the wrappers that
unbox and box for Python. Not seen: what is called by address from outside (libm, BLAS,
NumPy's and Numba's run time) counts by its name only.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.model import Fingerprint
from numbaprof.native.disassembly import disassemble
from numbaprof.native.elf import (
    SHN_LORESERVE,
    SHN_UNDEF,
    STT_FUNC,
    STT_OBJECT,
    STT_SECTION,
    Binding,
    Machine,
    Relocation,
    Section,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.native.objcode import JitObject, Objects

__all__ = ["fingerprint"]

_VERSION = b"numbaprof code 1"
"""Begins every hash; changes whenever equal code would hash differently."""
_MANGLED = re.compile(r"_ZN\w+")
_UNRESOLVED = ".numba.unresolved$"
"""Prefix of the pointer through which recursive code calls (numba/core/codegen.py)."""
_ENVIRONMENT = "_ZN08NumbaEnv"
"""Numba's pointer to the environment, used to build error messages."""
_PICKLE = ".const.pickle"
"""Serialized exceptions and Python objects (numba/core/pythonapi.py)."""
_PICKLED_BYTES = ".const.pickledata."
_DYNAMIC = "numba.dynamic.globals."
"""Pointers that are filled in at run time; the name goes on with a counter."""
_MAX_UNITS = 100_000


def fingerprint(symbol: str, objects: Objects) -> Fingerprint:
    """Return the fingerprint of the overload whose kernel is called ``symbol``.

    Parameters
    ----------
    symbol : str
        ``cres.fndesc.llvm_func_name``.
    objects : Objects
        From :func:`numbaprof.native.objcode.load_objects`.

    Returns
    -------
    Fingerprint
        ``instructions`` counts those of the kernel and of all functions that it calls
        within compiled code, padding left out. ``reason`` says why there is no count.

    Raises
    ------
    UnsupportedError
        The code, or that of something it calls, is not known.

    Notes
    -----
    About 1 ms for a small kernel; 1 us per instruction.
    """
    home = objects.with_symbol(symbol)
    if home is None:
        source = objects.reason or f"{len(objects)} objects are known"
        raise UnsupportedError(f"its machine code was not found: {source}")
    walk = _Walk(objects)
    walk.run(_layout(home), symbol)
    code = f"sha256:{walk.hash.hexdigest()}"
    try:
        return Fingerprint(code, *_count(tuple(walk.functions), home.elf.machine))
    except UnsupportedError as error:
        return Fingerprint(code, reason=str(error))


def _count(functions: tuple[bytes, ...], machine: int) -> tuple[int, int, int]:
    """Return instructions, packed floating-point ones, and the widest of these."""
    counts = [_count_function(code, machine) for code in functions]
    return (
        sum(count[0] for count in counts),
        sum(count[1] for count in counts),
        max((count[2] for count in counts), default=0),
    )


@functools.lru_cache(maxsize=4096)
def _count_function(code: bytes, machine: int) -> tuple[int, int, int]:
    # Callees such as NRT_incref are in every object again.
    instructions = [one for one in disassemble(code, 0, machine) if not one.is_padding]
    widths = [one.packed_fp_bits for one in instructions if one.packed_fp_bits]
    return len(instructions), len(widths), max(widths, default=0)


class _Unit(NamedTuple):
    """A function or a constant: bytes with relocations, one node of the graph."""

    layout: _Layout
    section: int
    start: int
    end: int
    name: str
    is_code: bool


class _Branch(NamedTuple):
    """A call or jump from one function into another that no relocation tells of."""

    place: int
    """Within the function."""
    blank: bytes
    """What to hash instead of the distance, from ``place`` on."""
    target: int
    """Within the section."""


class _Walk:
    """Breadth-first over all that a kernel reaches, hashing on the way."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._outside: dict[str, int] = {}
        self._queue: deque[_Unit] = deque()
        self.hash = hashlib.sha256(_VERSION)
        self.functions: list[bytes] = []

    def run(self, layout: _Layout, symbol: str) -> None:
        """Start from a function and go on until nothing new is reached."""
        self._number(layout.unit_of_symbol(symbol))
        while self._queue:
            unit = self._queue.popleft()
            if len(self._numbers) > _MAX_UNITS:
                raise UnsupportedError(f"{symbol} reaches over {_MAX_UNITS} functions")
            self._hash(unit)

    def _number(self, unit: _Unit) -> int:
        key = (id(unit.layout), unit.section, unit.start)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._queue.append(unit)
        return self._numbers[key]

    def _hash(self, unit: _Unit) -> None:
        layout = unit.layout
        if unit.name.startswith(_PICKLE):
            self._add("pickle")
            return
        if unit.is_code:
            self.functions.append(layout.content(unit))
        targets = []
        masked = bytearray(layout.masked(unit))
        for relocation in layout.relocations(unit):
            pickled = layout.pickled_bytes(relocation)
            if unit.is_code and pickled:
                _mask_length(masked, pickled)
            place = relocation.offset - unit.start
            targets.append((place, relocation.type, *self._target(unit, relocation)))
        for branch in layout.branches(unit):
            reached = self._number(layout.unit_at(unit.section, branch.target))
            masked[branch.place : branch.place + len(branch.blank)] = branch.blank
            targets.append((branch.place, -1, "unit", reached, 0))
        kind = "code" if unit.is_code else "data"
        content = bytes(masked)
        if not unit.is_code:
            content = _without_names(content)
        self._add(kind, content, *(repr(target) for target in targets))

    def _add(self, *parts: str | bytes) -> None:
        """Hash parts in a way that no other sequence of parts has."""
        for part in parts:
            data = part if isinstance(part, bytes) else part.encode()
            self.hash.update(struct.pack("<Q", len(data)) + data)
        self.hash.update(b"\xff" * 8)

    def _target(self, unit: _Unit, relocation: Relocation) -> tuple[str, int, int]:
        """Return what a relocation refers to: (kind or name, number, offset)."""
        layout = unit.layout
        symbol = layout.symbols[relocation.symbol]
        if symbol.section == SHN_UNDEF:
            return self._outside_target(symbol.name, relocation.addend)
        if symbol.section >= SHN_LORESERVE:  # common: a variable without a value
            return self._outside_target(symbol.name or "absolute", relocation.addend)
        if symbol.type != STT_SECTION:
            reached = layout.unit_at(symbol.section, symbol.value)
            return "unit", self._number(reached), relocation.addend
        offset = symbol.value + relocation.addend + layout.bias(unit, relocation)
        reached = layout.unit_at(symbol.section, offset)
        return "unit", self._number(reached), offset - reached.start

    def _outside_target(self, name: str, addend: int) -> tuple[str, int, int]:
        if name.startswith(_ENVIRONMENT):
            return "environment", 0, addend
        if name.startswith(_DYNAMIC):
            # Which one counts, not what it is called.
            number = self._outside.setdefault(name, len(self._outside))
            return "dynamic", number, addend
        plain = name.removeprefix(_UNRESOLVED)
        if _MANGLED.search(plain) is None:
            return plain, 0, addend
        home = self._objects.with_symbol(plain)
        found = None if home is None else home.symbol(plain)
        if home is None or found is None or found.binding != Binding.GLOBAL:
            raise UnsupportedError(f"it calls {plain}, whose machine code is not known")
        kind = "unit" if plain == name else "pointer"
        return kind, self._number(_layout(home).unit_of_symbol(plain)), addend


def _mask_length(code: bytearray, length: int) -> None:
    """Blank the 32-bit constants that are the length of a pickled exception.

    The code that raises has it as an immediate, and it changes with the length of the
    file's path. An equal constant of the user's in the same function is blanked, too.
    """
    pattern = struct.pack("<I", length)
    at = code.find(pattern)
    while at >= 0:
        code[at : at + len(pattern)] = bytes(len(pattern))
        at = code.find(pattern, at + len(pattern))


def _without_names(data: bytes) -> bytes:
    """Blank mangled names, which messages of Numba's contain, in a constant."""
    text = data.decode("latin-1")
    return _MANGLED.sub("_ZN", text).encode("latin-1") if "_ZN" in text else data


@functools.lru_cache(maxsize=1024)
def _layout(jit_object: JitObject) -> _Layout:
    return _Layout(jit_object)


class _Layout:
    """One object file cut into functions and constants."""

    def __init__(self, jit_object: JitObject) -> None:
        self.elf = jit_object.elf
        self.symbols = self.elf.symbols
        self._relocations: dict[int, list[Relocation]] = {}
        self._edges: dict[int, list[int]] = {}
        self._named: dict[tuple[int, int], tuple[int, str]] = {}
        for symbol in self.symbols:
            if symbol.type in (STT_FUNC, STT_OBJECT) and symbol.size:
                key = (symbol.section, symbol.value)
                self._named.setdefault(key, (symbol.value + symbol.size, symbol.name))

    def unit_of_symbol(self, name: str) -> _Unit:
        """Return the function called ``name``."""
        for symbol in self.symbols:
            if symbol.name == name and symbol.section:
                return self.unit_at(symbol.section, symbol.value)
        raise UnsupportedError(f"{name} is not in the object that should define it")

    def unit_at(self, number: int, offset: int) -> _Unit:
        """Return the function or constant that a place in a section belongs to."""
        section = self.elf.sections[number]
        edges = self._section_edges(section)
        index = max(bisect_right(edges, offset) - 1, 0)
        start = edges[index]
        end = edges[index + 1] if index + 1 < len(edges) else section.size
        name = ""
        named = self._named.get((number, start))
        if named is not None:
            end, name = named
        return _Unit(self, number, start, end, name, section.executable)

    def _section_edges(self, section: Section) -> list[int]:
        """Return where units begin: at symbols, and in data at what is referred to."""
        known = self._edges.get(section.number)
        if known is None:
            edges = {0}
            for (number, start), (end, _) in self._named.items():
                if number == section.number:
                    edges |= {start, end}
            if not section.executable:
                edges |= self._references(section)
                if section.entry_size:
                    edges |= set(range(0, section.size, section.entry_size))
            known = sorted(edge for edge in edges if edge < section.size or not edge)
            self._edges[section.number] = known
        return known

    def _references(self, section: Section) -> set[int]:
        """Return the places in ``section`` that code refers to without a name."""
        inside = self._inside_named(section)
        return {
            found
            for source in self.elf.sections
            if source.executable
            for relocation in self._of_section(source)
            for symbol in (self.symbols[relocation.symbol],)
            if symbol.type == STT_SECTION and symbol.section == section.number
            for found in (
                symbol.value + relocation.addend + self._code_bias(relocation),
            )
            if 0 <= found < section.size and not inside(found)
        }

    def _inside_named(self, section: Section) -> _Spans:
        return _Spans(
            sorted(
                (start, end)
                for (number, start), (end, _) in self._named.items()
                if number == section.number
            )
        )

    def _of_section(self, section: Section) -> list[Relocation]:
        known = self._relocations.get(section.number)
        if known is None:
            known = sorted(self.elf.relocations(section))
            self._relocations[section.number] = known
        return known

    def relocations(self, unit: _Unit) -> Iterator[Relocation]:
        """Yield the relocations within a unit in order of place."""
        for relocation in self._of_section(self.elf.sections[unit.section]):
            if unit.start <= relocation.offset < unit.end:
                yield relocation

    def content(self, unit: _Unit) -> bytes:
        """Return the bytes of a unit as in the file."""
        section = self.elf.sections[unit.section]
        return self.elf.content(section)[unit.start : unit.end]

    def masked(self, unit: _Unit) -> bytes:
        """Return the bytes of a unit with zeros where relocations write."""
        section = self.elf.sections[unit.section]
        mask = self.elf.relocation_mask(section)[unit.start : unit.end]
        content = self.content(unit)
        if self.elf.machine == Machine.AARCH64:
            # There a relocation writes bits within an instruction, which are zero in
            # the file (relocations with explicit addends), so nothing is to be masked.
            return content
        return bytes(
            0 if hidden else byte for byte, hidden in zip(content, mask, strict=True)
        )

    def branches(self, unit: _Unit) -> list[_Branch]:
        """Return the calls out of a function that the assembler has resolved.

        It does so for functions that are local to the object, which Numba's rarely are.

        Raises
        ------
        UnsupportedError
            The instructions cannot be decoded.
        """
        if not unit.is_code or not self._has_local_functions:
            return []
        code = self.content(unit)
        covered = {relocation.offset for relocation in self.relocations(unit)}
        find = _branches_on_arm if self.elf.machine == Machine.AARCH64 else _branches
        return [
            branch
            for branch in find(code, unit.start, self.elf.machine)
            if unit.start + branch.place not in covered
            and not unit.start <= branch.target < unit.end
        ]

    @functools.cached_property
    def _has_local_functions(self) -> bool:
        return any(
            symbol.type == STT_FUNC and symbol.binding == Binding.LOCAL
            for symbol in self.symbols
        )

    def _code_bias(self, relocation: Relocation) -> int:
        """Return what is missing from the addend of a reference relative to code.

        On x86-64 such a reference counts from the end of its four bytes (psABI, 4.4).
        """
        relative = (
            self.elf.machine == Machine.X86_64 and relocation.type in _X86_RELATIVE
        )
        return 4 if relative else 0

    def bias(self, unit: _Unit, relocation: Relocation) -> int:
        """Return what is missing from the addend of a relative reference.

        In data, such as a jump table, it is label minus table, so the addend contains
        the place within the table.
        """
        if unit.is_code:
            return self._code_bias(relocation)
        if relocation.type in _DATA_RELATIVE.get(self.elf.machine, ()):
            return unit.start - relocation.offset
        return 0

    def pickled_bytes(self, relocation: Relocation) -> int:
        """Return the length of the pickled data referred to; 0 for anything else."""
        symbol = self.symbols[relocation.symbol]
        if symbol.section == SHN_UNDEF or symbol.section >= SHN_LORESERVE:
            return 0
        offset = symbol.value
        if symbol.type == STT_SECTION:
            offset += relocation.addend
        end, name = self._named.get((symbol.section, offset), (0, ""))
        return end - offset if name.startswith(_PICKLED_BYTES) else 0


def _branches(code: bytes, start: int, machine: int) -> Iterator[_Branch]:
    """Yield direct calls and jumps of x86-64 code; the distance comes last in them."""
    for one in disassemble(code, start, machine):
        if one.mnemonic.startswith(("call", "j")) and one.operands.startswith("0x"):
            end = one.address - start + one.size
            width = 4 if one.size > 2 else 1
            yield _Branch(end - width, bytes(width), int(one.operands, 16))


def _branches_on_arm(code: bytes, start: int, machine: int) -> Iterator[_Branch]:
    """Yield B and BL: six bits, then the distance in words (Arm ARM, C4.1)."""
    for place, (word,) in zip(
        range(0, len(code), 4), struct.iter_unpack("<I", code), strict=True
    ):
        if word >> 26 & 0x1F == 0b00101:
            words = (word & 0x3FFFFFF ^ 0x2000000) - 0x2000000
            blank = struct.pack("<I", word & 0xFC000000)
            yield _Branch(place, blank, start + place + 4 * words)


_X86_RELATIVE = (2, 4, 9, 41, 42)
"""R_X86_64_PC32, PLT32, GOTPCREL, GOTPCRELX, REX_GOTPCRELX."""
_DATA_RELATIVE: dict[int, tuple[int, ...]] = {
    Machine.X86_64: (2, 24),
    Machine.AARCH64: (260, 261),
}
"""PC32 and PC64; PREL64 and PREL32."""


class _Spans:
    """Tells whether an offset lies within, and not at the begin of, a span."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def __call__(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and self._starts[index] < offset < self._ends[index]
