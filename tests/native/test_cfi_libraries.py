"""Unwinding rules of system libraries, read from their memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import io
from pathlib import Path

import dwarf_oracle
import pytest
from elftools.elf.elffile import ELFFile

from numbaprof.errors import UnsupportedError
from numbaprof.native import cfi_libraries, memory
from numbaprof.native.cfi_libraries import FrameHeader, LibraryFrames

pytestmark = pytest.mark.linux


def address_of(function) -> int:
    """Return where a function of the C library begins."""
    return ctypes.cast(function, ctypes.c_void_p).value


@pytest.fixture(scope="module")
def libraries():
    """Return the rules of everything that is loaded."""
    return LibraryFrames()


def test_entry_of_a_function_is_as_at_every_call(libraries):
    """The return address is on top of the stack."""
    rule = libraries.rule(address_of(ctypes.CDLL(None).qsort))
    assert rule is not None
    assert rule.registers[rule.return_register] == -8
    assert rule.cfa_offset == 8


def test_file_is_known(libraries):
    """The library that an address lies in is named."""
    assert "libc" in libraries.path(address_of(ctypes.CDLL(None).qsort))
    assert libraries.path(0) == ""


def test_rows_of_a_library_are_those_pyelftools_sees(libraries):
    """Every fiftieth function of the math library, at both ends of every row."""
    math = ctypes.CDLL(ctypes.util.find_library("m"))
    mapping = memory.Mappings.now().find(address_of(math.sin))
    base = next(
        entry.start
        for entry in memory.Mappings.now().entries
        if entry.path == mapping.path and entry.offset == 0
    )
    elf = ELFFile(io.BytesIO(Path(mapping.path).read_bytes()))
    compared = 0
    for number, entry in enumerate(elf.get_dwarf_info().EH_CFI_entries()):
        if (
            number % 50
            or not hasattr(entry, "cie")
            or "initial_location" not in (entry.header)
        ):
            continue
        end = entry["initial_location"] + entry["address_range"]
        rows = entry.get_decoded().table
        ends = [row["pc"] for row in rows[1:]] + [end]
        for row, stop in zip(rows, ends, strict=True):
            for pc in {row["pc"], stop - 1}:
                dwarf_oracle.assert_same_rule(libraries.rule(base + pc), row)
            compared += 1
    assert compared > 20


def test_no_rule_outside_libraries(libraries):
    """Data, page zero and the begin of a file have none."""
    assert libraries.rule(0) is None
    assert libraries.rule(id(object())) is None


def test_header_at_a_wrong_address_is_refused():
    """Neither unmapped memory nor other data is taken for a table."""
    with pytest.raises(UnsupportedError):
        FrameHeader(8)
    buffer = ctypes.create_string_buffer(64)
    with pytest.raises(UnsupportedError, match="version 0"):
        FrameHeader(ctypes.addressof(buffer))


def test_library_unloaded_meanwhile_has_no_rule(libraries, monkeypatch):
    """Memory that is gone leads to no rule, not to an error."""

    def gone(address, size):
        raise UnsupportedError("gone")

    monkeypatch.setattr(cfi_libraries.memory, "read", gone)
    fresh = LibraryFrames(libraries.mappings)
    assert fresh.rule(address_of(ctypes.CDLL(None).qsort)) is None
