"""LLVM's list of loaded objects: found, read, and distrusted."""

from __future__ import annotations

import ctypes
import shutil
import struct
import sys

import pytest
from llvmlite.binding import ffi
from numba import njit

from numbaprof.errors import UnsupportedError
from numbaprof.native import jit_list, memory
from numbaprof.native.jit_list import JitList

pytestmark = pytest.mark.linux


def test_object_of_a_new_overload_is_first():
    """What was compiled last heads the list, and its symbol is in the file."""

    @njit
    def fresh_kernel(x):
        return x + 1

    fresh_kernel(1)
    name = next(iter(fresh_kernel.overloads.values())).fndesc.llvm_func_name
    assert any(name.encode() in data for data in JitList().objects()[:2])


def test_every_entry_is_an_object_file():
    """All of them are ELF files of this machine's word size."""
    assert {data[:5] for data in JitList().objects()} == {b"\x7fELF\x02"}


def test_library_without_symbols_is_a_reason(tmp_path):
    """A stripped library: the reason names file and symbol."""
    path = tmp_path / "libllvmlite.so"
    without_symbols(ffi.lib._name, path)
    with pytest.raises(UnsupportedError, match=r"libllvmlite\.so has no symbol __jit"):
        JitList((str(path),))


def without_symbols(source, target) -> None:
    """Copy a library and take the types of its symbol tables away, as strip does."""
    shutil.copyfile(source, target)
    with open(target, "r+b") as file:
        file.seek(0x28)
        (at,) = struct.unpack("<Q", file.read(8))
        file.seek(0x3A)
        step, count = struct.unpack("<HH", file.read(4))
        for number in range(count):
            file.seek(at + number * step + 4)
            if struct.unpack("<I", file.read(4))[0] == 2:
                file.seek(at + number * step + 4)
                file.write(struct.pack("<I", 0))


def test_file_that_is_not_loaded_is_a_reason(tmp_path):
    """An update on disk under a running program is noticed."""
    path = tmp_path / "libllvmlite.so"
    shutil.copyfile(ffi.lib._name, path)
    with pytest.raises(UnsupportedError, match="not the file that is loaded"):
        JitList((str(path),))


def test_file_that_cannot_be_read_is_a_reason(tmp_path):
    """No library at all, or something else in its place."""
    with pytest.raises(UnsupportedError, match="cannot be read"):
        JitList((str(tmp_path / "nothing.so"),))
    other = tmp_path / "other.so"
    other.write_bytes(b"MZ" * 50)
    with pytest.raises(UnsupportedError, match="not a 64-bit"):
        JitList((str(other),))
    with pytest.raises(UnsupportedError, match="has no symbol"):
        JitList((sys.executable,))


def test_second_file_is_tried(tmp_path):
    """Distributions may have LLVM in a library of its own."""
    assert JitList((str(tmp_path / "no.so"), str(ffi.lib._name))).objects()


def test_llvm_library_is_among_the_candidates():
    """Any file called libLLVM... that is mapped comes after llvmlite's."""
    entries = (
        memory.Mapping(0, 1, "r-xp", 0, 0, 1, "/usr/lib/libLLVM-22.so"),
        memory.Mapping(1, 2, "r-xp", 0, 0, 2, "/usr/lib/libm.so"),
    )
    paths = jit_list.library_paths(memory.Mappings(entries))
    assert paths == (str(ffi.lib._name), "/usr/lib/libLLVM-22.so")


class Imagined:
    """A descriptor of our own making in place of LLVM's."""

    def __init__(self, version: int = 1, action: int = 0, first: int = 0) -> None:
        self.buffer = ctypes.create_string_buffer(
            struct.pack("<IIQQ", version, action, 0, first)
        )
        self.list = JitList.__new__(JitList)
        self.list.address = ctypes.addressof(self.buffer)
        # Whoever holds the address holds the memory.
        self.list.owner = self


def test_other_version_is_refused():
    """Whatever is at the address, if it is not version 1 it is not read."""
    with pytest.raises(UnsupportedError, match="version 7"):
        Imagined(version=7).list.objects()
    with pytest.raises(UnsupportedError, match="action 9"):
        Imagined(action=9).list.objects()


def test_list_into_nowhere_is_refused():
    """An entry that is not mapped ends in a reason, not in a fault."""
    with pytest.raises(UnsupportedError, match="0x10"):
        Imagined(first=0x10).list.objects()


def test_object_of_impossible_size_is_refused():
    """A size that no object has is not read."""
    entry = ctypes.create_string_buffer(struct.pack("<QQQQ", 0, 0, 0x1000, 1 << 40))
    with pytest.raises(UnsupportedError, match="object of"):
        Imagined(first=ctypes.addressof(entry)).list.objects()


def test_circle_is_refused(monkeypatch):
    """A list that comes back to itself ends in a reason."""
    monkeypatch.setattr(jit_list, "MAX_OBJECTS", 50)
    entry = ctypes.create_string_buffer(32)
    address = ctypes.addressof(entry)
    struct.pack_into("<QQQQ", entry, 0, address, 0, address, 8)
    with pytest.raises(UnsupportedError, match="does not end"):
        Imagined(first=address).list.objects()


def test_empty_list_has_no_objects():
    """Nothing compiled yet."""
    assert Imagined().list.objects() == ()
