"""Names for code of shared libraries: which library, which function.

The dynamic linker knows the exported functions only, and a stripped library has no
others. What a library chooses at load time by the kind of processor (``sin`` of libm
runs as ``__sin_fma``) has then no name at all; it is found by resolving each such
symbol and seeing where it leads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from numbaprof.errors import UnsupportedError
from numbaprof.native.elf import STT_FUNC, SYMBOL_ARRAY, Elf, SectionType

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LibraryKind", "NativeSymbols", "kind_of_library", "short_name"]

LibraryKind = Literal["python", "compiler", "system", "native"]
"""The interpreter, LLVM, what everybody calls (libc, libm, ...), and all else."""

STT_GNU_IFUNC = 10
_SYSTEM = frozenset(
    {"libc", "libm", "libpthread", "libdl", "librt", "libgcc_s", "libstdc++", "vdso"}
)
_PT_LOAD = 1
_RTLD_NOLOAD = 4


@functools.cache
def short_name(path: str) -> str:
    """Return ``libm`` for ``/lib/x86_64-linux-gnu/libm.so.6``.

    Also without the hash that wheels add to a name (``libscipy_openblas-6cdc3b4a.so``)
    and the tags of extension modules.
    """
    name = os.path.basename(path).strip("[]").partition(".so")[0]
    name = re.sub(r"\.(cpython-|abi3).*", "", name)
    return re.sub(r"-[0-9a-f]{6,}$", "", name)


@functools.cache
def kind_of_library(path: str) -> LibraryKind:
    """Say whose code the file at ``path`` is."""
    name = short_name(path)
    if name.startswith(("python3", "libpython")) or name == "python":
        return "python"
    if name == "libllvmlite":
        return "compiler"
    if name in _SYSTEM or name.startswith("ld-linux"):
        return "system"
    return "native"


class NativeSymbols:
    """Names of functions in the libraries of this process.

    Parameters
    ----------
    start_of : callable
        Returns the address of the first instruction of the function that an address
        lies in, from its call frame information; None if that is not known.
    """

    def __init__(self, start_of: Callable[[int], int | None]) -> None:
        self._start_of = start_of
        self._tables: dict[str, _Table | None] = {}
        self._names: dict[int, str] = {}

    def name(self, pc: int, path: str, low: int) -> str:
        """Return the function at ``pc``, "" if it has no known name.

        Parameters
        ----------
        pc : int
            Address of an instruction.
        path, low : str, int
            File of the library and where its first page is mapped.
        """
        if pc not in self._names:
            if path not in self._tables:
                self._tables[path] = _read_table(path, low)
            table = self._tables[path]
            self._names[pc] = "" if table is None else self._look_up(table, pc)
        return self._names[pc]

    def _look_up(self, table: _Table, pc: int) -> str:
        name = table.covering(pc)
        if not name:
            start = self._start_of(pc)
            name = "" if start is None else table.chosen().get(start, "")
        return name


class _Table:
    """The function symbols of one library."""

    def __init__(self, path: str, bias: int, symbols: Any, names: bytes) -> None:
        self._path = path
        self._names = names
        kind = symbols["info"] & 15
        defined = symbols["section"] != 0
        functions = symbols[(kind == STT_FUNC) & defined & (symbols["size"] > 0)]
        self._functions = functions[np.argsort(functions["value"], kind="stable")]
        self._starts = self._functions["value"].astype(np.int64) + bias
        self._ends = self._starts + self._functions["size"].astype(np.int64)
        self._indirect = symbols[(kind == STT_GNU_IFUNC) & defined]
        self._chosen: dict[int, str] | None = None

    def covering(self, pc: int) -> str:
        """Return the function whose range ``pc`` is in, the plainest of aliases."""
        index = int(np.searchsorted(self._starts, pc, "right")) - 1
        found = []
        while index >= 0 and self._starts[index] <= pc < self._ends[index]:
            found.append(self._text(int(self._functions["name"][index])))
            index -= 1
        return min(found, key=_plainness) if found else ""

    def chosen(self) -> dict[int, str]:
        """Return names by the address that an indirect function leads to."""
        if self._chosen is None:
            self._chosen = {}
            names = sorted(
                {self._text(int(name)) for name in self._indirect["name"]},
                key=_plainness,
            )
            for name, address in _resolve(self._path, names):
                self._chosen.setdefault(address, name)
        return self._chosen

    def _text(self, offset: int) -> str:
        end = self._names.index(0, offset)
        return self._names[offset:end].decode(errors="replace")


def _plainness(name: str) -> tuple[bool, int, str]:
    return name.startswith("_"), len(name), name


def _resolve(path: str, names: list[str]) -> list[tuple[str, int]]:
    try:
        # Only if it is loaded, and no constructor runs for one that is.
        library = ctypes.CDLL(path, mode=_RTLD_NOLOAD)
    except OSError:
        return []
    found = []
    for name in names:
        function = getattr(library, name, None)
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            found.append((name, address))
    return found


def _read_table(path: str, low: int) -> _Table | None:
    try:
        data = Path(path).read_bytes()
        elf = Elf(data)
        for kind in (SectionType.SYMTAB, SectionType.DYNSYM):
            for section in elf.sections:
                if section.type == kind:
                    names = elf.content(elf.sections[section.link])
                    symbols = np.frombuffer(elf.content(section), SYMBOL_ARRAY)
                    return _Table(path, low - _first_address(data), symbols, names)
    except (OSError, UnsupportedError, ValueError, IndexError):
        return None  # Removed or replaced since it was loaded: no names.
    return None


def _first_address(data: bytes) -> int:
    """Return the address that the file says its first page is at; 0 for libraries."""
    at = int.from_bytes(data[0x20:0x28], "little")
    size = int.from_bytes(data[0x36:0x38], "little")
    count = int.from_bytes(data[0x38:0x3A], "little")
    lows = [
        int.from_bytes(data[begin + 16 : begin + 24], "little")
        for begin in range(at, at + size * count, size)
        if int.from_bytes(data[begin : begin + 4], "little") == _PT_LOAD
    ]
    return min(lows, default=0)
