"""The machine code of this process that MCJIT made: objects, symbols, load addresses.

:func:`load_objects` finds them after the fact, through LLVM's own list for debuggers
(:mod:`numbaprof.native.jit_list`); where that is not to be had, it returns what an
:class:`~numbaprof.native.object_watch.ObjectWatch` has seen since it was started. What
was given up is said in :attr:`Objects.reason`.
"""

from __future__ import annotations

import functools
import hashlib
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.native import emit, object_watch
from numbaprof.native.cfi import CfiRule, CfiTable
from numbaprof.native.dwarf import Function, LineTable
from numbaprof.native.elf import SHF_ALLOC, STT_FUNC, Elf, Section
from numbaprof.native.jit_list import JitList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["JitObject", "Objects", "Symbol", "load_objects", "watch_if_needed"]

SOURCE_LIST = "gdb-jit list"
SOURCE_WATCH = "object cache hook"
SOURCE_NONE = "none"


class Symbol(NamedTuple):
    """A function in memory."""

    name: str
    address: int
    size: int
    binding: int
    """0 local, 1 global, 2 weak (:class:`numbaprof.native.elf.Binding`)."""


class JitObject:
    """One object file with code, and where it is loaded.

    Parameters
    ----------
    elf : Elf
        The object file.
    start : int, optional
        Load address of its code; by default what the section header says, which LLVM
        fills in for its list and which is 0 in a file that was never loaded.

    Attributes
    ----------
    start : int
        Address of the first byte of code.
    size : int
        Of the code, in bytes.

    Raises
    ------
    UnsupportedError
        It does not have exactly one section of code.

    Notes
    -----
    Making one reads headers only; everything else is read when first asked for, and
    kept. Addresses are absolute everywhere. For an object that is not loaded (a twin
    from a file) they count from ``start``.
    """

    def __init__(self, elf: Elf, start: int | None = None) -> None:
        code = [section for section in elf.sections if section.executable]
        if len(code) != 1:
            raise UnsupportedError(
                f"an object with {len(code)} sections of code, not one"
            )
        self.elf = elf
        self._code = code[0]
        self.start = self._code.address if start is None else start
        self.size = self._code.size
        self._addresses = _load_addresses(elf, self._code, start)

    @classmethod
    def from_bytes(cls, data: bytes, start: int | None = None) -> JitObject:
        """Make one from an object file, such as the one stored with a twin."""
        return cls(Elf(data), start)

    @property
    def end(self) -> int:
        """The address after the last byte of code."""
        return self.start + self.size

    @functools.cached_property
    def text(self) -> bytes:
        """The code as the file has it, before relocation."""
        return self.elf.content(self._code)

    @functools.cached_property
    def text_sha256(self) -> str:
        """Hexadecimal digest of :attr:`text`."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def code_section(self) -> Section:
        """The header of the section of code."""
        return self._code

    def section(self, name: str) -> tuple[int, bytes] | None:
        """Return (load address or 0, bytes) of a section; None if there is none.

        Data is relocated to the load addresses; code is as in the file.
        """
        section = self.elf.section(name)
        if section is None:
            return None
        address = self._addresses.get(section.number, 0)
        if section.executable:
            return address, self.elf.content(section)
        return address, self.elf.relocated(section, self._addresses)

    def symbols(self) -> tuple[Symbol, ...]:
        """Return the functions in order of address."""
        return self._functions

    @functools.cached_property
    def _functions(self) -> tuple[Symbol, ...]:
        found = [
            Symbol(symbol.name, self.start + symbol.value, symbol.size, symbol.binding)
            for symbol in self.elf.symbols
            if symbol.type == STT_FUNC and symbol.section == self._code.number
        ]
        return tuple(sorted(found, key=lambda symbol: symbol.address))

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [symbol.address for symbol in self._functions]

    def symbol_at(self, pc: int) -> Symbol | None:
        """Return the function that an address lies in."""
        index = bisect_right(self._starts, pc) - 1
        if index < 0:
            return None
        symbol = self._functions[index]
        return symbol if pc < symbol.address + symbol.size else None

    def symbol(self, name: str) -> Symbol | None:
        """Return the function called ``name``."""
        return self._by_name.get(name)

    @functools.cached_property
    def _by_name(self) -> dict[str, Symbol]:
        return {symbol.name: symbol for symbol in self._functions}

    @property
    def has_lines(self) -> bool:
        """Whether it was compiled with a line table."""
        return self.elf.section(".debug_line") is not None

    def rows(self) -> LineTable:
        """Return the line table; one without rows if the object has none.

        Raises
        ------
        UnsupportedError
            It has one that cannot be read.
        """
        return self._lines

    @functools.cached_property
    def _lines(self) -> LineTable:
        if not self.has_lines:
            return LineTable.empty()
        sections = {
            section.name: self.elf.relocated(section, self._addresses)
            for section in self.elf.sections
            if section.name.startswith(".debug_")
        }
        functions = [
            Function(symbol.address, symbol.address + symbol.size, symbol.name)
            for symbol in self._functions
        ]
        return LineTable.read(sections, functions)

    @functools.cached_property
    def cfi(self) -> tuple[CfiTable, ...]:
        """The tables of call frame information, ``.eh_frame`` first.

        The second, ``.debug_frame``, is there if there is a line table, and covers the
        functions that LLVM proved not to unwind.
        """
        tables = []
        for name in (".eh_frame", ".debug_frame"):
            found = self.section(name)
            if found is not None:
                address, data = found
                tables.append(CfiTable(data, address, eh=name == ".eh_frame"))
        return tuple(tables)

    def rule(self, pc: int) -> CfiRule | None:
        """Return how to unwind from an instruction; None if nothing says so."""
        for table in self.cfi:
            rule = table.rule(pc)
            if rule is not None:
                return rule
        return None

    def __repr__(self) -> str:
        return f"<JitObject {self.start:#x}..{self.end:#x}>"


def _load_addresses(elf: Elf, code: Section, start: int | None) -> dict[int, int]:
    """Return the address of every section that has one.

    Where only the code's is known, the others count from it, so that distances in
    32 bits do not overflow; nothing is read there.
    """
    loaded = [section for section in elf.sections if section.flags & SHF_ALLOC]
    if start is None:
        return {section.number: section.address for section in loaded}
    return {section.number: start for section in loaded}


class Objects:
    """All known objects at one moment.

    Attributes
    ----------
    source : str
        Where they are from: "gdb-jit list", "object cache hook" or "none".
    reason : str
        Why not from the first, or what is missing; "" if nothing is.
    """

    def __init__(
        self, objects: Iterable[JitObject], source: str, reason: str = ""
    ) -> None:
        self.source = source
        self.reason = reason
        self._objects = sorted(objects, key=lambda found: found.start)
        self._starts = [found.start for found in self._objects]

    def find(self, pc: int) -> JitObject | None:
        """Return the object whose code ``pc`` lies in."""
        index = bisect_right(self._starts, pc) - 1
        if index < 0 or pc >= self._objects[index].end:
            return None
        return self._objects[index]

    def with_symbol(self, name: str) -> JitObject | None:
        """Return the object that defines the function called ``name``.

        A weak definition (code that was linked into a caller, too) counts only where
        there is no other.
        """
        found = self._definitions.get(name)
        return None if found is None else found[0]

    @functools.cached_property
    def _definitions(self) -> dict[str, tuple[JitObject, bool]]:
        found: dict[str, tuple[JitObject, bool]] = {}
        for jit_object in self._objects:
            for symbol in jit_object.symbols():
                strong = symbol.binding == 1
                if symbol.name not in found or (strong and not found[symbol.name][1]):
                    found[symbol.name] = (jit_object, strong)
        return found

    def __iter__(self) -> Iterator[JitObject]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


_known: dict[bytes, JitObject] = {}
"""By file content, as of the last call: parsed tables are used again."""


def load_objects() -> Objects:
    """Return every object that MCJIT has loaded in this process.

    Call again to see what was compiled since; objects already known are kept with all
    that was read of them. Costs 60 ms the first time (the symbol table of libllvmlite)
    and about 1 ms per 100 objects after that. Never raises for lack of support: then
    there are no objects, or fewer, and ``reason`` says why.
    """
    try:
        files = _jit_list().objects()
    except UnsupportedError as error:
        return _watched(str(error))
    objects, reasons = _parse((data, None) for data in files)
    _known.clear()
    _known.update((found.elf.data, found) for found in objects)
    return Objects(objects, SOURCE_LIST, _joined(reasons))


def _parse(
    files: Iterable[tuple[bytes, int | None]],
) -> tuple[list[JitObject], list[str]]:
    """Return the objects that have code, and why others cannot be read."""
    objects, reasons = [], []
    for data, start in files:
        known = _known.get(data)
        if known is not None and start is None:
            objects.append(known)
            continue
        try:
            elf = Elf(data)
            code = [section for section in elf.sections if section.executable]
            # numbaprof's engine has its rarely used code in a section apart; nobody
            # asks for its lines.
            if code and not (len(code) > 1 and _is_own(code)):
                objects.append(JitObject(elf, start))
        except UnsupportedError as error:
            reasons.append(str(error))
    return objects, reasons


def _is_own(sections: Iterable[Section]) -> bool:
    return any(
        section.address <= address < section.address + section.size
        for section in sections
        for address in emit.compiled_addresses()
    )


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))


def watch_if_needed() -> object_watch.ObjectWatch | None:
    """Start to watch the objects that are compiled if LLVM's list cannot be read.

    Returns
    -------
    ObjectWatch or None
        To be stopped by the caller; None if there is no need, or one is running.
    """
    try:
        _jit_list()
    except UnsupportedError:
        if object_watch.active() is None:
            watch = object_watch.ObjectWatch()
            watch.start()
            return watch
    return None


@functools.cache
def _jit_list() -> JitList:
    return JitList()


def _watched(reason: str) -> Objects:
    watch = object_watch.active()
    if watch is None:
        return Objects((), SOURCE_NONE, reason)
    objects, damaged = _parse(watch.objects())
    reasons = [reason, "code compiled before the session is not known", *damaged]
    if watch.unplaced:
        reasons.append(
            f"{watch.unplaced} objects without a global function have no known address"
        )
    return Objects(objects, SOURCE_WATCH, _joined(reasons))
