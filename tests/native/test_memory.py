"""Memory is read without faults, and mappings are found by address."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import memory

pytestmark = pytest.mark.linux


def test_memory_of_the_process_is_read():
    """What a buffer holds is what is read at its address."""
    buffer = ctypes.create_string_buffer(b"numbaprof")
    assert memory.read(ctypes.addressof(buffer), 9) == b"numbaprof"


@pytest.mark.parametrize("address", [0, 8, 1 << 47, (1 << 64) - 4096, 1 << 70])
def test_unmapped_memory_is_an_error_and_not_a_fault(address):
    """Addresses that no process has mapped raise, with the address in the text."""
    with pytest.raises(UnsupportedError, match=f"{address:#x}"):
        memory.read(address, 16)


def test_memory_that_ends_halfway_is_an_error():
    """Reading beyond the last mapped page tells how far it goes."""
    size = 2 * mmap.PAGESIZE
    with mmap.mmap(-1, size) as block:
        view = ctypes.c_char.from_buffer(block)
        start = ctypes.addressof(view)
        del view
        guard = ctypes.CDLL(None).mprotect
        guard.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        last = start + mmap.PAGESIZE
        # Kernel reads through /proc/self/mem ignore protection, not absence.
        unmap = ctypes.CDLL(None).munmap
        unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        assert unmap(last, mmap.PAGESIZE) == 0
        with pytest.raises(UnsupportedError, match=r"of 16 bytes .* only 8 are mapped"):
            memory.read(last - 8, 16)
        # Put a page back, so that closing the mmap object unmaps only its own.
        remap = ctypes.CDLL(None).mmap
        remap.restype = ctypes.c_void_p
        remap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3]
        remap.argtypes.append(ctypes.c_long)
        fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
        assert remap(last, mmap.PAGESIZE, mmap.PROT_READ, fixed, -1, 0) == last


def test_mapping_is_found_by_address():
    """The C library's code is in an executable mapping of its file."""
    address = ctypes.cast(ctypes.CDLL(None).qsort, ctypes.c_void_p).value
    found = memory.Mappings.now().find(address)
    assert found is not None
    assert found.start <= address < found.end
    assert found.executable
    assert "libc" in found.path


def test_address_outside_every_mapping_has_none():
    """Page zero is never mapped."""
    assert memory.Mappings.now().find(0) is None


def test_system_without_proc_is_unsupported(monkeypatch, tmp_path):
    """Outside Linux there is a reason instead of a map."""
    monkeypatch.setattr(memory, "_MAPS", tmp_path / "maps")
    with pytest.raises(UnsupportedError, match="memory map"):
        memory.Mappings.now()
    monkeypatch.setattr(memory, "_MEMORY", str(tmp_path / "mem"))
    with pytest.raises(UnsupportedError, match="cannot be read"):
        memory.read(0x1000, 1)


def test_line_of_the_map_is_parsed():
    """Path with blanks, deletion mark and device are understood."""
    line = "7f00-8f00 r-xp 00002000 fd:01 42       /tmp/a b.so (deleted)"
    mapping = memory._parse(line)
    assert (mapping.start, mapping.end, mapping.offset) == (0x7F00, 0x8F00, 0x2000)
    assert mapping.path == "/tmp/a b.so"
    assert mapping.inode == 42
