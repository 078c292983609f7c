"""LLVM's list of every object that MCJIT has loaded in this process.

For debuggers LLVM keeps ``__jit_debug_descriptor``, the head of a linked list with a
copy of each object file, its section addresses filled in (LLVM,
``GDBRegistrationListener.cpp``; GDB manual, "JIT Compilation Interface"). The symbol is
local to libllvmlite, so it is looked up in the file's symbol table. Nothing is
registered or changed: objects are found after the fact, also those that Numba loaded
from its cache.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

from llvmlite.binding import ffi

from numbaprof.errors import UnsupportedError
from numbaprof.native import memory
from numbaprof.native.elf import symbol_address

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["JitList", "library_paths"]

SYMBOL = "__jit_debug_descriptor"
_DESCRIPTOR = struct.Struct("<IIQQ")
"""version, action_flag, relevant_entry, first_entry."""
_ENTRY = struct.Struct("<QQQQ")
"""next_entry, prev_entry, symfile_addr, symfile_size."""
_VERSION = 1
_LAST_ACTION = 2
"""JIT_UNREGISTER_FN."""
MAX_OBJECTS = 1_000_000
"""A longer list is taken to be a circle, that is, not our structure."""
MAX_OBJECT_BYTES = 1 << 30
"""No object of a function comes near; a larger size is taken for garbage."""


class JitList:
    """The descriptor, found once; reading the list takes 0.1 ms per 100 objects.

    Parameters
    ----------
    paths : tuple of str, optional
        Files that may define the descriptor; by default libllvmlite, then any libLLVM.

    Raises
    ------
    UnsupportedError
        No file has the symbol, or what is there is not the descriptor; the message is
        the reason.
    """

    def __init__(self, paths: tuple[str, ...] | None = None) -> None:
        mappings = memory.Mappings.now()
        reasons = []
        for path in library_paths(mappings) if paths is None else paths:
            try:
                self.address = _locate(path, mappings)
                self._read_descriptor()
                return
            except UnsupportedError as error:
                reasons.append(str(error))
        raise UnsupportedError("; ".join(reasons) or "libllvmlite is not loaded")

    def _read_descriptor(self) -> int:
        """Return the address of the first entry."""
        raw = memory.read(self.address, _DESCRIPTOR.size)
        version, action, _, first = _DESCRIPTOR.unpack(raw)
        if version != _VERSION or action > _LAST_ACTION:
            raise UnsupportedError(
                f"{SYMBOL} at {self.address:#x} holds version {version} and action "
                f"{action}, not version {_VERSION}"
            )
        return int(first)

    def objects(self) -> tuple[bytes, ...]:
        """Return the object files, the most recently loaded first.

        Raises
        ------
        UnsupportedError
            The list leads to memory that is not mapped, or in a circle.

        Notes
        -----
        llvmlite's lock is held, without the callbacks that announce it: no other thread
        is inside LLVM to change the list meanwhile.
        """
        with ffi.lib._lock._lock:
            return tuple(self._walk())

    def _walk(self) -> Iterator[bytes]:
        entry = self._read_descriptor()
        for _ in range(MAX_OBJECTS):
            if not entry:
                return
            entry, _, start, size = _ENTRY.unpack(memory.read(entry, _ENTRY.size))
            if size > MAX_OBJECT_BYTES:
                raise UnsupportedError(
                    f"an entry of {SYMBOL} has an object of {size} bytes"
                )
            yield memory.read(start, size)
        raise UnsupportedError(f"the list of {SYMBOL} does not end")


def library_paths(mappings: memory.Mappings) -> tuple[str, ...]:
    """Return the files that may hold the descriptor: libllvmlite, then any libLLVM."""
    paths = [str(ffi.lib._name)]
    for mapping in mappings.entries:
        if os.path.basename(mapping.path).startswith("libLLVM"):
            paths.append(mapping.path)
    return tuple(dict.fromkeys(paths))


def _locate(path: str, mappings: memory.Mappings) -> int:
    """Return where the descriptor of the library ``path`` is in memory."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                value = symbol_address(content, SYMBOL)
    except (OSError, ValueError) as error:
        raise UnsupportedError(f"{path} cannot be read: {error}") from error
    if value is None:
        raise UnsupportedError(
            f"{path} has no symbol {SYMBOL} (its symbol table was stripped?)"
        )
    real = os.path.realpath(path)
    # The file on disk may be newer than the one that is loaded.
    for mapping in mappings.entries:
        # On some file systems (overlays) the two device numbers differ.
        same_file = mapping.device == status.st_dev or mapping.path == real
        if mapping.inode == status.st_ino and mapping.offset == 0 and same_file:
            return mapping.start + value
    raise UnsupportedError(f"{path} is not the file that is loaded in this process")
