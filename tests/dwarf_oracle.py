"""What pyelftools reads from an object, in the terms of our own readers."""

from __future__ import annotations

import io
import os
from typing import Any

from elftools.dwarf.callframe import FDE, CallFrameInfo
from elftools.dwarf.ranges import BaseAddressEntry, RangeEntry
from elftools.elf import relocation
from elftools.elf.elffile import ELFFile

# R_X86_64_PC64 and R_AARCH64_PREL64 are missing from its tables.
_RECIPE = relocation.RelocationHandler._RELOCATION_RECIPE_TYPE
_RELATIVE_64 = _RECIPE(
    bytesize=8,
    has_addend=True,
    calc_func=relocation._reloc_calc_sym_plus_addend_pcrel,
)
relocation.RelocationHandler._RELOCATION_RECIPES_X64.setdefault(24, _RELATIVE_64)
relocation.RelocationHandler._RELOCATION_RECIPES_AARCH64.setdefault(260, _RELATIVE_64)


class Oracle:
    """One object file; addresses count from the begin of its code."""

    def __init__(self, data: bytes) -> None:
        self.elf = ELFFile(io.BytesIO(data))
        self.dwarf = self.elf.get_dwarf_info(relocate_dwarf_sections=True)

    def rows(self) -> list[tuple[int, str, int]]:
        """Return (address, file, line) in the order of the programs; -1 for ends."""
        found = []
        for unit in self.dwarf.iter_CUs():
            program = self.dwarf.line_program_for_CU(unit)
            directory = _directory(unit)
            for entry in program.get_entries():
                state = entry.state
                if state is not None:
                    path = _file(program, state.file, directory)
                    line = -1 if state.end_sequence else state.line
                    found.append((state.address, path, line))
        return found

    def scopes(self) -> list[tuple[tuple[tuple[int, int], ...], int, str, str, int]]:
        """Return (ranges, depth, name, file and line of the call) of all scopes."""
        found: list[Any] = []
        for unit in self.dwarf.iter_CUs():
            program = self.dwarf.line_program_for_CU(unit)
            self._walk(unit.get_top_DIE(), program, 0, found)
        return found

    def _walk(self, parent: Any, program: Any, depth: int, found: list[Any]) -> None:
        for die in parent.iter_children():
            below = depth
            if die.tag in ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine"):
                ranges = self._ranges(die)
                if ranges:
                    found.append((ranges, depth, *self._call(die, program)))
                    below += 1
            self._walk(die, program, below, found)

    def _call(self, die: Any, program: Any) -> tuple[str, str, int]:
        if die.tag == "DW_TAG_subprogram":
            named = die
            if "DW_AT_abstract_origin" in die.attributes:
                named = die.get_DIE_from_attribute("DW_AT_abstract_origin")
            return _name(named), "", 0
        origin = die.get_DIE_from_attribute("DW_AT_abstract_origin")
        number = die.attributes["DW_AT_call_file"].value
        file = _file(program, number, _directory(die.cu))
        return _name(origin), file, die.attributes["DW_AT_call_line"].value

    def _ranges(self, die: Any) -> tuple[tuple[int, int], ...]:
        attributes = die.attributes
        low = die.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
        base = 0 if low is None else low.value
        if "DW_AT_ranges" in attributes:
            lists = self.dwarf.range_lists()
            entries = lists.get_range_list_at_offset(
                attributes["DW_AT_ranges"].value, cu=die.cu
            )
            ranges = []
            for entry in entries:
                if isinstance(entry, BaseAddressEntry):
                    base = entry.base_address
                elif isinstance(entry, RangeEntry):
                    shift = 0 if entry.is_absolute else base
                    ranges.append(
                        (entry.begin_offset + shift, entry.end_offset + shift)
                    )
            return tuple(ranges)
        if "DW_AT_low_pc" not in attributes:
            return ()
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        absolute = high.form == "DW_FORM_addr"
        return ((low, high.value if absolute else low + high.value),)


def frame_rows(
    data: bytes, address: int, *, eh: bool
) -> list[tuple[int, int, list[dict[Any, Any]]]]:
    """Return (low, high, decoded rows) of every FDE in a relocated section."""
    elf = ELFFile(io.BytesIO(_empty_elf()))
    structs = elf.get_dwarf_info().structs
    entries = CallFrameInfo(
        io.BytesIO(data), len(data), address, structs, for_eh_frame=eh
    ).get_entries()
    return [
        (
            entry["initial_location"],
            entry["initial_location"] + entry["address_range"],
            entry.get_decoded().table,
        )
        for entry in entries
        if isinstance(entry, FDE)
    ]


def assert_same_rule(rule: Any, row: dict[Any, Any]) -> None:
    """Compare one rule with one decoded row."""
    cfa = row["cfa"]
    if cfa.expr is None:
        assert (rule.cfa_register, rule.cfa_offset) == (cfa.reg, cfa.offset)
    else:
        assert rule.cfa_register is None
        assert list(rule.cfa_expression) == list(cfa.expr)
    registers = {key: value for key, value in row.items() if isinstance(key, int)}
    offsets = {k: v.arg for k, v in registers.items() if v.type == "OFFSET"}
    assert dict(rule.registers) == offsets


def _empty_elf() -> bytes:
    """Return a file that pyelftools opens, for the sake of its structures."""
    import machine_code

    return machine_code.emit_inlined()


def _name(die: Any) -> str:
    return str(die.attributes["DW_AT_name"].value.decode())


def _directory(unit: Any) -> str:
    attribute = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    return "" if attribute is None else str(attribute.value.decode())


def _file(program: Any, number: int, directory: str) -> str:
    version = program["version"]
    first = 0 if version >= 5 else 1
    if number < first:
        return ""
    entry = program["file_entry"][number - first]
    folders = [name.decode() for name in program["include_directory"]]
    if version < 5:
        folders.insert(0, "")
    folder = os.path.join(directory, folders[entry.dir_index])
    return os.path.join(folder, entry.name.decode())
