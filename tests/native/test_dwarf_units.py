"""Functions and inlined functions of the debug information, against pyelftools."""

from __future__ import annotations

import dwarf_oracle
import machine_code
import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import dwarf_units
from numbaprof.native.objcode import JitObject


def sections_of(found: JitObject) -> dict[str, bytes]:
    """Return the debug sections, relocated to where the object is loaded."""
    return {
        section.name: found.section(section.name)[1]
        for section in found.elf.sections
        if section.name.startswith(".debug_")
    }


def scopes_of(found: JitObject) -> list[tuple]:
    """Return the scopes in the oracle's terms."""
    return [
        (
            tuple((a - found.start, b - found.start) for a, b in scope.ranges),
            scope.depth,
            scope.name,
            scope.call_file,
            scope.call_line,
        )
        for unit in dwarf_units.read_units(sections_of(found))
        for scope in unit.scopes
    ]


@pytest.mark.parametrize("kind", ["LineTablesOnly", "FullDebug"])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("machine", list(machine_code.TRIPLES))
def test_scopes_of_emitted_objects_are_those_pyelftools_sees(machine, version, kind):
    """Ranges, depth, name and call site agree."""
    data = machine_code.emit_inlined(machine, version=version, kind=kind)
    ours = scopes_of(JitObject.from_bytes(data))
    assert ours == dwarf_oracle.Oracle(data).scopes()
    assert [(scope[1], scope[2]) for scope in ours[:3]] == [
        (0, "outer"),
        (1, "inner"),
        (2, "innermost"),
    ]


def test_scopes_of_numba_objects_are_those_pyelftools_sees():
    """Ranges (relative to the unit's), depth, name and call site agree."""
    inlined = 0
    for found in machine_code.objects_with_lines():
        ours = scopes_of(found)
        assert ours == dwarf_oracle.Oracle(found.elf.data).scopes()
        inlined += sum(scope[1] > 0 for scope in ours)
    assert inlined


def test_damage_is_told_and_nothing_else_happens():
    """Whatever byte of the entries or abbreviations is wrong, the error is ours."""
    sections = sections_of(JitObject.from_bytes(machine_code.emit_inlined()))
    refused = 0
    for name in (".debug_info", ".debug_abbrev"):
        for position in range(len(sections[name])):
            damaged = bytearray(sections[name])
            damaged[position] ^= 0x55
            try:
                dwarf_units.read_units({**sections, name: bytes(damaged)})
            except UnsupportedError:
                refused += 1
    assert refused


def test_missing_section_is_told():
    """Entries without their abbreviations cannot be read."""
    sections = sections_of(JitObject.from_bytes(machine_code.emit_inlined()))
    del sections[".debug_abbrev"]
    with pytest.raises(UnsupportedError, match="debug_abbrev"):
        dwarf_units.read_units(sections)
