"""ELF files: sections, symbols and relocations, against pyelftools and memory."""

from __future__ import annotations

import io
import mmap

import dwarf_oracle
import machine_code
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from numbaprof.errors import UnsupportedError
from numbaprof.native import elf, memory, objcode
from numbaprof.native.elf import Elf


@pytest.fixture(params=["x86_64", "aarch64"])
def data(request):
    """Return an object file of one machine."""
    return machine_code.emit_inlined(request.param)


def test_sections_are_those_pyelftools_sees(data):
    """Name, type, flags, size and bytes agree."""
    ours = Elf(data)
    theirs = list(ELFFile(io.BytesIO(data)).iter_sections())
    assert [section.name for section in ours.sections] == [s.name for s in theirs]
    for mine, other in zip(ours.sections, theirs, strict=True):
        assert (mine.flags, mine.size) == (other["sh_flags"], other["sh_size"])
        assert ours.content(mine) == other.data()


def test_symbols_are_those_pyelftools_sees(data):
    """Name, value, size and binding agree, in the table's order."""
    ours = Elf(data).symbols
    table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
    theirs = list(table.iter_symbols())
    bindings = {0: "STB_LOCAL", 1: "STB_GLOBAL", 2: "STB_WEAK"}
    assert [s.value for s in ours] == [s["st_value"] for s in theirs]
    assert [s.size for s in ours] == [s["st_size"] for s in theirs]
    assert [bindings[s.binding] for s in ours] == [s["st_info"]["bind"] for s in theirs]
    named = [s for s in ours if s.name]
    assert [s.name for s in named] == [
        s.name for s in theirs if s.name and s["st_info"]["type"] != "STT_SECTION"
    ]


def test_relocations_are_those_pyelftools_sees(data):
    """Place, type, symbol and addend agree for every section."""
    ours = Elf(data)
    for section in ELFFile(io.BytesIO(data)).iter_sections():
        if isinstance(section, RelocationSection):
            target = ours.sections[section["sh_info"]]
            assert [tuple(r) for r in ours.relocations(target)] == [
                (
                    r["r_offset"],
                    r["r_info_type"],
                    r["r_info_sym"],
                    r["r_addend"],
                )
                for r in section.iter_relocations()
            ]


def test_debug_sections_are_relocated_as_pyelftools_does(data):
    """With code at 0, relocated bytes of line and entry sections agree."""
    ours = Elf(data)
    dwarf = dwarf_oracle.Oracle(data).dwarf
    for name, other in (
        (".debug_line", dwarf.debug_line_sec),
        (".debug_info", dwarf.debug_info_sec),
    ):
        assert ours.relocated(ours.section(name), {}) == other.stream.getvalue()


@pytest.mark.linux
def test_relocated_call_frames_are_what_is_in_memory():
    """LLVM loads .eh_frame; relocated by us it is byte for byte what is there."""
    function, arguments = machine_code.kernels()[0]
    function(*arguments)
    objects = objcode.load_objects()
    assert objects.source == objcode.SOURCE_LIST
    compared = 0
    for found in objects:
        section = found.section(".eh_frame")
        if section is not None:
            address, content = section
            assert memory.read(address, len(content)) == content
            compared += 1
    assert compared


def test_mask_covers_what_relocations_write(data):
    """Each relocation's field is masked, and nothing where there is none."""
    ours = Elf(data)
    code = next(section for section in ours.sections if section.executable)
    mask = ours.relocation_mask(code)
    assert len(mask) == code.size
    places = {relocation.offset for relocation in ours.relocations(code)}
    assert places
    assert all(mask[place] for place in places)
    assert sum(mask) < code.size


def test_unknown_relocation_is_refused(data):
    """Bytes that might be wrong are not returned."""
    ours = Elf(data)
    section = ours.section(".debug_line")
    table = next(s for s in ours.sections if s.name == ".rela.debug_line")
    damaged = bytearray(data)
    damaged[table.offset + 8 : table.offset + 10] = b"\xee\0"
    with pytest.raises(UnsupportedError, match="relocation of type 238"):
        Elf(bytes(damaged)).relocated(section, {})


@pytest.mark.parametrize("size", [0, 3, 40, 64, 200])
def test_cut_off_file_is_refused(data, size):
    """A file that ends early raises, whatever is missing."""
    with pytest.raises(UnsupportedError):
        Elf(data[:size])


def test_other_formats_are_refused():
    """Mach-O, COFF and 32-bit files are told apart by their first bytes."""
    for magic in (b"\xcf\xfa\xed\xfe", b"MZ", b"\x7fELF\x01\x01", b"\x7fELF\x02\x02"):
        with pytest.raises(UnsupportedError, match="not a 64-bit little-endian"):
            Elf(magic + bytes(100))


def test_damaged_file_raises_nothing_else(data):
    """One wrong byte anywhere in the headers leads to a reason or to no harm."""
    for position in range(64):
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        try:
            found = Elf(bytes(damaged))
            for section in found.sections:
                found.content(section)
            assert found.symbols is not None
        except UnsupportedError:
            pass


def test_address_of_a_symbol_in_a_file(data, tmp_path):
    """A defined symbol is found, an undefined or missing one is not."""
    path = tmp_path / "object"
    path.write_bytes(data)
    by_name = {symbol.name: symbol for symbol in Elf(data).symbols}
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        assert elf.symbol_address(content, "bare") == by_name["bare"].value
        assert elf.symbol_address(content, "effect") is None
        assert elf.symbol_address(content, "nobody") is None
