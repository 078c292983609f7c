"""Debug information that holds source lines and nothing else.

The node kinds are those of LLVM's language reference ("Specialized Metadata Nodes").
``emissionKind: LineTablesOnly`` makes LLVM write ``.debug_line``, the inlined scopes of
``.debug_info`` and complete call frame information; types and variables are left out.
None of it is an instruction, so optimization takes no notice and the machine code is
the same to the byte; ``tests/test_identity.py`` compares it.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core.debuginfo import AbstractDIBuilder

from numbaprof.native.call_lines import note_calls
from numbaprof.native.inline_sites import CallSite, site_of, source_file

__all__ = ["PRIVATE_NAMES", "WRAPPER_FILE", "LineBuilder", "Place", "mark_wrappers"]

PRIVATE_NAMES: tuple[str, ...] = ("numba.core.debuginfo:AbstractDIBuilder",)
"""What this module touches of Numba, as in :data:`numba_api.PRIVATE_NAMES`."""

Place = tuple[str, int]
"""File and line."""

GENERATED_PREFIX = "__numba_"
"""How the functions are named that Numba writes for parfors, array expressions and
stencils (``__numba_parfor_gufunc_...``, ``__numba_array_expr_...``)."""
ARRAY_EXPRESSION_PREFIX = "__numba_array_expr"
GENERATED_FILE = "<string>"
WRAPPER_FILE = "<wrapper>"
"""File of what converts arguments and loops over arrays around a user's function."""
UNKNOWN_LINE = 0
"""What DWARF says of instructions that come from no line (section 6.2.2)."""

DWARF_VERSION = 4
DEBUG_INFO_VERSION = 3
_WARNING = 2
"""Behaviour of a module flag when two modules disagree; the one Numba uses."""
_INT32 = ir.IntType(32)


class LineBuilder(AbstractDIBuilder):
    """What Numba's lowering asks for debug information, in place of its own builder.

    Parameters
    ----------
    module : llvmlite.ir.Module
        Module being made.
    file : str
        Source file of the function.
    name : str
        Plain name of the function, by which generated ones are known.
    place : (str, int) or None
        For generated functions: where the user wrote what they compute.
    lowerer : callable
        Returns the lowerer at work or None; its ``loc`` is the statement being lowered.
    """

    def __init__(
        self,
        module: ir.Module,
        file: str,
        *,
        name: str = "",
        place: Place | None = None,
        lowerer: Any = lambda: None,
    ) -> None:
        self._module = module
        self._lowerer = lowerer
        self._is_generated = name.startswith(GENERATED_PREFIX)
        # Array expressions claim line 1 of the user's file.
        self._is_expression = name.startswith(ARRAY_EXPRESSION_PREFIX)
        self._place = place
        self._own = source_file(place[0] if place and self._is_generated else file)
        self._nodes: dict[Any, Any] = {}
        self._places: dict[int, Place] = {}
        self._subprograms: list[Any] = []
        self.initialize()

    # -- what Numba calls -----------------------------------------------------------

    def initialize(self) -> None:
        """Make the compile unit and announce it in the module.

        At once, and not in :meth:`finalize`: the lowering of object mode never calls
        that, and LLVM drops debug information without a version, with a message.
        """
        self._unit = self._module.add_debug_info(
            "DICompileUnit",
            {
                "language": ir.DIToken("DW_LANG_C_plus_plus"),
                "file": self._file(self._own),
                "producer": "numbaprof",
                "runtimeVersion": 0,
                "isOptimized": True,
                "emissionKind": ir.DIToken("LineTablesOnly"),
            },
            is_distinct=True,
        )
        self._module.add_named_metadata("llvm.dbg.cu", self._unit)
        for flag, version in (
            ("Dwarf Version", DWARF_VERSION),
            ("Debug Info Version", DEBUG_INFO_VERSION),
        ):
            self._add_flag(flag, version)

    def _add_flag(self, name: str, version: int) -> None:
        """Add a module flag; a second one of a name makes LLVM end the process."""
        flags = self._module.namedmetadata.get("llvm.module.flags")
        flag = self._module.add_metadata([_INT32(_WARNING), name, _INT32(version)])
        if flags is None or flag not in flags.operands:
            self._module.add_named_metadata("llvm.module.flags", flag)

    def finalize(self) -> None:
        """Note which lines call what; all else is in place from the start."""
        note_calls(self._module, self._places)

    def mark_variable(self, *arguments: Any, **options: Any) -> None:
        """Do nothing; variables are no lines."""

    def mark_subprogram(
        self, function: Any, qualname: str, argnames: Any, argtypes: Any, line: int
    ) -> None:
        """Say where a function comes from."""
        if self._is_generated and self._place is not None:
            line = self._place[1]
        node = self._subprogram(qualname, self._own, line, function.name)
        self._subprograms.append(node)
        function.set_metadata("dbg", node)

    def mark_location(self, builder: Any, line: int) -> None:
        """Say where the instructions come from that follow."""
        location = getattr(self._lowerer(), "loc", None)
        if getattr(location, "line", None) == line:
            builder.debug_metadata = self._location(*self.place_of(location))
        else:
            # The def line, of which Numba tells no more than the number.
            builder.debug_metadata = self._location((self._own, line), None)

    def place_of(self, location: Any) -> tuple[Place, CallSite | None]:
        """Return where a statement comes from, and where that was inlined."""
        site = site_of(location)
        if not location.line:
            # Numba's "unknown location"
            return (self._own, UNKNOWN_LINE), site
        file = source_file(location.filename)
        # What the user wrote in a parfor keeps its own file and line.
        is_lost = self._is_expression or file == GENERATED_FILE
        if self._is_generated and site is None and is_lost:
            return self._place or (self._own, UNKNOWN_LINE), None
        return (file, location.line), site

    # -- nodes, each made once ------------------------------------------------------

    def location(self, line: int) -> Any:
        """Return the node of a line of the function's own file."""
        return self._location((self._own, line), None)

    def _location(
        self, place: Place, site: CallSite | None, *, is_call: bool = False
    ) -> Any:
        """Return the node of a place in the function at work, or inlined into it."""
        key = "location", place, id(site), id(self._subprograms[-1]), is_call
        if key not in self._nodes:
            file, line = place
            scope, file_of_scope = self._subprograms[-1], self._own
            operands: dict[str, Any] = {"line": line, "column": 1}
            if site is not None:
                scope, operands["inlinedAt"] = self._inlining(site)
                file_of_scope = site.function_file
            operands["scope"] = self._scope(scope, file, file_of_scope)
            self._nodes[key] = self._module.add_debug_info(
                "DILocation", operands, is_distinct=is_call
            )
            self._places[id(self._nodes[key])] = place
        return self._nodes[key]

    def _inlining(self, site: CallSite) -> tuple[Any, Any]:
        """Return the function inlined at ``site`` and the node of the call."""
        key = "inlining", id(site), id(self._subprograms[-1])
        if key not in self._nodes:
            call = self._location((site.file, site.line), site.outer, is_call=True)
            function = self._subprogram(
                site.function, site.function_file, site.function_line
            )
            # The site is kept so that no other can get its id.
            self._nodes[key] = function, call, site
        function, call, _ = self._nodes[key]
        return function, call

    def _scope(self, scope: Any, file: str, file_of_scope: str) -> Any:
        """Return ``scope``, or a block of another file within it."""
        if file == file_of_scope:
            return scope
        key = "scope", id(scope), file
        if key not in self._nodes:
            self._nodes[key] = self._module.add_debug_info(
                "DILexicalBlockFile",
                {"scope": scope, "file": self._file(file), "discriminator": 0},
            )
        return self._nodes[key]

    def _file(self, file: str) -> Any:
        # The whole path as file name: of the two, LLVM's remarks print only that.
        return self._module.add_debug_info(
            "DIFile", {"directory": "", "filename": file}
        )

    def _subprogram(
        self, name: str, file: str, line: int, linkage_name: str | None = None
    ) -> Any:
        untyped = self._module.add_debug_info(
            "DISubroutineType", {"types": self._module.add_metadata([])}
        )
        operands = {
            "name": name,
            "scope": self._file(file),
            "file": self._file(file),
            "line": line,
            "type": untyped,
            "isLocal": False,
            "isDefinition": True,
            "scopeLine": line,
            "isOptimized": True,
            "unit": self._unit,
        }
        if linkage_name is not None:
            operands["linkageName"] = linkage_name
        return self._module.add_debug_info("DISubprogram", operands, is_distinct=True)


def mark_wrappers(module: ir.Module, functions: list[ir.Function], name: str) -> None:
    """Give lines to functions that Numba built around one with a line table.

    LLVM inlines the user's function into them (for ufuncs always) and drops the lines
    of what it inlines into a function without debug information. All of a wrapper's own
    instructions are on line 1 of :data:`WRAPPER_FILE`.
    """
    builder = LineBuilder(module, WRAPPER_FILE)
    for function in functions:
        builder.mark_subprogram(function, name, (), (), 1)
        location = builder.location(1)
        for block in function.blocks:
            for instruction in block.instructions:
                if instruction.opname not in ("alloca", "phi"):
                    instruction.set_metadata("dbg", location)
