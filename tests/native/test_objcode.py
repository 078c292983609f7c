"""Objects of the process: where they are from, what is in them, and what is missing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import llvmlite
import machine_code
import pytest
from numba import njit

from numbaprof.errors import UnsupportedError
from numbaprof.native import memory, objcode
from numbaprof.native.elf import Elf
from numbaprof.native.objcode import JitObject, Objects
from numbaprof.native.object_watch import ObjectWatch

pytestmark = pytest.mark.linux


@pytest.fixture
def kernel():
    """Return a compiled dispatcher."""

    @njit
    def placed_kernel(x):
        return x * 5 + 2

    placed_kernel(1)
    return placed_kernel


def names_of(dispatcher):
    """Return function name and library of the only overload."""
    (overload,) = dispatcher.overloads.values()
    return overload.fndesc.llvm_func_name, overload.library


@pytest.fixture
def no_list(monkeypatch):
    """Hide LLVM's list, as a stripped library does."""

    def hidden():
        raise UnsupportedError("libllvmlite.so has no symbol __jit_debug_descriptor")

    monkeypatch.setattr(objcode, "_jit_list", hidden)


def test_overload_is_where_its_library_says(kernel):
    """The symbol's address is the one Numba would call."""
    name, library = names_of(kernel)
    objects = objcode.load_objects()
    found = objects.with_symbol(name)
    symbol = found.symbol(name)
    assert objects.source == "gdb-jit list"
    assert objects.reason == ""
    assert symbol.address == library.get_pointer_to_function(name)
    assert objects.find(symbol.address) is found
    assert objects.find(symbol.address + symbol.size - 1) is found
    assert found.symbol_at(symbol.address + 1) == symbol


def test_code_is_what_is_in_memory(kernel):
    """Except for the fields that relocations fill in, byte for byte."""
    for found in objcode.load_objects():
        loaded = memory.read(found.start, found.size)
        mask = found.elf.relocation_mask(found.code_section)
        assert all(
            a == b or hidden
            for a, b, hidden in zip(found.text, loaded, mask, strict=True)
        )
        assert found.text_sha256 == hashlib.sha256(found.text).hexdigest()


def test_nothing_is_found_elsewhere():
    """Addresses outside all code have no object."""
    objects = objcode.load_objects()
    last = list(objects)[-1]
    assert objects.find(0) is None
    assert objects.find(last.end) is None
    assert objects.with_symbol("nobody") is None


def test_known_objects_are_kept(kernel):
    """A second look returns the same objects, with what was read of them."""
    first = {found.start: found for found in objcode.load_objects()}
    again = objcode.load_objects()
    assert len(again) == len(first)
    assert all(first[found.start] is found for found in again)


def test_code_compiled_later_is_seen_by_the_next_look(kernel):
    """The list is alive."""
    before = len(objcode.load_objects())
    kernel(1.5)
    assert len(objcode.load_objects()) > before


def test_strong_definition_is_preferred():
    """Code linked into a caller, too, is found where it is at home."""

    @njit(inline="never")
    def callee(x):
        return x + 1

    @njit
    def caller(x):
        return callee(x) * 2

    caller(1)
    name, library = names_of(callee)
    found = objcode.load_objects().with_symbol(name)
    assert found.symbol(name).binding == 1
    assert found.symbol(name).address == library.get_pointer_to_function(name)


def test_without_list_and_watch_there_is_nothing(no_list):
    """No guess: no objects, and the reason."""
    objects = objcode.load_objects()
    assert len(objects) == 0
    assert objects.source == "none"
    assert "has no symbol" in objects.reason


def test_without_list_the_watch_is_used(no_list):
    """What was compiled since the watch began is found, and the rest is said."""
    watch = ObjectWatch()
    watch.start()
    try:

        @njit
        def watched(x):
            return x * 11

        watched(1)
        objects = objcode.load_objects()
        name, library = names_of(watched)
        found = objects.with_symbol(name)
        assert objects.source == "object cache hook"
        assert "has no symbol" in objects.reason
        assert "before" in objects.reason
        assert found.symbol(name).address == library.get_pointer_to_function(name)
    finally:
        watch.stop()


def test_objects_the_watch_cannot_place_are_counted(no_list):
    """The reason says how many are missing."""
    watch = ObjectWatch()
    watch.start()
    try:
        watch._files.append(b"no object file")
        assert "1 objects without" in objcode.load_objects().reason
    finally:
        watch.stop()


def test_list_that_fails_later_is_a_reason(monkeypatch):
    """A descriptor that turns out damaged is not an error of the caller."""

    class Damaged:
        def objects(self):
            raise UnsupportedError("the list does not end")

    monkeypatch.setattr(objcode, "_jit_list", Damaged)
    assert objcode.load_objects().reason == "the list does not end"


def test_object_that_cannot_be_read_is_a_reason(monkeypatch):
    """The others are still there."""
    good = machine_code.emit_inlined()

    class Mixed:
        def objects(self):
            return (good, b"MZ" * 40)

    monkeypatch.setattr(objcode, "_jit_list", Mixed)
    objects = objcode.load_objects()
    assert len(objects) == 1
    assert "not a 64-bit little-endian ELF file" in objects.reason
    objcode._known.clear()


def test_system_without_proc_has_a_reason(monkeypatch, tmp_path):
    """Outside Linux: no objects and no exception."""
    objcode._jit_list.cache_clear()
    monkeypatch.setattr(memory, "_MAPS", tmp_path / "maps")
    try:
        objects = objcode.load_objects()
    finally:
        objcode._jit_list.cache_clear()
    assert objects.source == "none"
    assert "memory map" in objects.reason


def test_object_without_code_is_no_object():
    """An object of data alone says so."""
    data = bytearray(machine_code.emit_inlined())
    elf = Elf(bytes(data))
    (at,) = struct.unpack_from("<Q", data, 0x28)
    for section in elf.sections:
        if section.executable:
            struct.pack_into("<Q", data, at + 64 * section.number + 8, 2)
    with pytest.raises(UnsupportedError, match="0 sections of code"):
        JitObject.from_bytes(bytes(data))


def test_twin_has_its_own_addresses():
    """An object that was never loaded counts from the start that it is given."""
    found = JitObject.from_bytes(machine_code.emit_inlined(), start=0x5000)
    assert found.symbols()[0].address == 0x5000
    assert found.rule(0x5000) is not None
    assert found.rows().lookup(0x5002)
    assert Objects([found], "test").find(0x5001) is found


@pytest.mark.slow
def test_stripped_llvmlite_falls_back_to_the_watch(tmp_path):
    """End to end, with a real library that has no symbol table."""
    package = Path(llvmlite.__file__).parent
    copy = tmp_path / "llvmlite"
    shutil.copytree(
        package, copy, ignore=shutil.ignore_patterns("tests", "__pycache__")
    )
    strip_symbols(copy / "binding" / "libllvmlite.so")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = json.loads(out)
    assert found["library"].startswith(str(tmp_path))
    assert found["before"] == ["none", 0]
    assert found["after"] == "object cache hook"
    assert "has no symbol __jit_debug_descriptor" in found["reason"]
    assert found["same"]


PROGRAM = """
import json
from llvmlite.binding import ffi
from numba import njit
from numbaprof.native import objcode
from numbaprof.native.object_watch import ObjectWatch
before = objcode.load_objects()
watch = ObjectWatch()
watch.start()
f = njit(lambda x: x * 2)
f(1)
overload = next(iter(f.overloads.values()))
name = overload.fndesc.llvm_func_name
after = objcode.load_objects()
print(json.dumps({
    "library": ffi.lib._name,
    "before": [before.source, len(before)],
    "after": after.source,
    "reason": after.reason,
    "same": after.with_symbol(name).symbol(name).address
    == overload.library.get_pointer_to_function(name),
}))
"""


def strip_symbols(path) -> None:
    """Make symbol tables unreadable as strip does: sections of another type."""
    with path.open("r+b") as file:
        header = file.read(64)
        (at,) = struct.unpack_from("<Q", header, 0x28)
        step, count = struct.unpack_from("<HH", header, 0x3A)
        for number in range(count):
            file.seek(at + number * step + 4)
            if struct.unpack("<I", file.read(4))[0] == 2:
                file.seek(at + number * step + 4)
                file.write(struct.pack("<I", 0))
