"""Counters for line events, put into Numba's IR while byte code becomes IR.

:class:`CountingInterpreter` stands in for Numba's ``Interpreter``. It remembers which
byte-code instruction each IR statement came from and afterwards inserts, in front of
the statement where a line event is due, a call that adds 1 to a 64-bit cell::

    $numbaprof_count = global(count_line)
    $numbaprof_cell  = const(140245...)           the cell's address, a constant
    $numbaprof_done  = call $numbaprof_count($numbaprof_cell)

Where it depends on the way a block was entered whether the line is new, the counter is
at the end of the block that jumps there; a branch has one counter for both its ways
(``count_branch``). These are ordinary statements, inserted before any pass has run:
inlining, unrolling and pruning take them along, and whatever is executed is counted.

The adding is plain, not atomic: a counting build runs in one thread (see
:mod:`numbaprof.native.counting_build`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir as llvm_ir
from numba.core import ir, types
from numba.core.interpreter import Interpreter
from numba.core.unsafe import eh
from numba.core.withcontexts import objmode_context
from numba.extending import intrinsic

from numbaprof.errors import UnsupportedError
from numbaprof.native.line_events import Instruction, LineEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

__all__ = ["CountedCode", "CountingInterpreter"]

NUMBA_OFFSET = 2
"""Numba puts one NOP in front of the byte code (``bytecode._FIXED_OFFSET``)."""
CELL_BYTES = 8
LAST_OF_BLOCK = frozenset(
    {
        "JUMP_ABSOLUTE",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "JUMP_FORWARD",
        "RAISE_VARARGS",
        "RERAISE",
        "RETURN_CONST",
        "RETURN_VALUE",
    }
)
"""Instructions that nothing falls through."""


class CountedCode:
    """The counters of one translation of one code object.

    Parameters
    ----------
    function : function
        The Python function Numba was given, for its names.
    code : code
        What is translated.

    Attributes
    ----------
    cells : numpy.ndarray of int64
        Compiled code writes into it: keep it as long as that code can run.
    """

    def __init__(self, function: Any, code: CodeType) -> None:
        self.function = function
        self.code = code
        self.events = LineEvents(code)
        # Each instruction needs one for what runs before it, and one for each of the
        # two ways into it; cell 0 takes what is not to be counted.
        self.cells = np.zeros(3 * len(self.events.instructions) + 1, dtype=np.int64)
        self.cell_lines: list[int] = [0]

    def new_cell(self, instruction: Instruction) -> int:
        """Return the address of a fresh counter for the line of ``instruction``."""
        assert instruction.line is not None
        self.cell_lines.append(instruction.line)
        return self._address(len(self.cell_lines) - 1)

    @property
    def waste(self) -> int:
        """Address of the cell that nobody reads."""
        return self._address(0)

    def _address(self, cell: int) -> int:
        return int(self.cells.ctypes.data) + CELL_BYTES * cell

    def hits(self) -> dict[int, int]:
        """Return line to hits, also for lines that were never reached."""
        found = dict.fromkeys(sorted(self.events.lines), 0)
        for line, count in zip(self.cell_lines[1:], self.cells[1:], strict=False):
            found[line] = found.get(line, 0) + int(count)
        return found


class CountingInterpreter(Interpreter):
    """Numba's translator from byte code to IR, with counters if they are wanted.

    Set ``wanted``: it returns the :class:`CountedCode` for a ``FunctionIdentity``, or
    None if that function is to stay as it is.
    """

    wanted: Callable[[Any], CountedCode | None] = staticmethod(lambda func_id: None)

    def interpret(self, bytecode: Any) -> Any:
        """Translate; ``bytecode`` is Numba's ``ByteCode``."""
        self._counted = self.wanted(self.func_id)
        self._offsets: dict[int, int] = {}
        self._kept: list[Any] = []
        func_ir = super().interpret(bytecode)
        if self._counted is not None:
            _refuse_object_mode(func_ir)
            _Insertion(self._counted, func_ir, self._spans(), self._offsets).run()
        return func_ir

    def _dispatch(self, inst: Any, kws: Any) -> Any:
        block: Any = self.current_block
        body: list[Any] = block.body
        before = len(body)
        outcome = super()._dispatch(inst, kws)
        for statement in body[before:]:
            # Kept alive, because an id is only good for a living object.
            self._kept.append(statement)
            self._offsets[id(statement)] = inst.offset - NUMBA_OFFSET
        return outcome

    def _spans(self) -> dict[int, list[Instruction]]:
        """Return label of a block to the instructions it was translated from."""
        assert self._counted is not None
        instructions = self._counted.events.instructions
        starts = sorted(max(0, label - NUMBA_OFFSET) for label in self.cfa.blocks)
        spans: dict[int, list[Instruction]] = {}
        for label in self.cfa.blocks:
            start = max(0, label - NUMBA_OFFSET)
            end = next((other for other in starts if other > start), None)
            span = []
            for instruction in instructions:
                if instruction.offset < start:
                    continue
                if end is not None and instruction.offset >= end:
                    break
                span.append(instruction)
                if instruction.name in LAST_OF_BLOCK:
                    break
            spans[label] = span
        return spans


class _Insertion:
    """Insert the counters of one translation."""

    def __init__(
        self,
        counted: CountedCode,
        func_ir: Any,
        spans: dict[int, list[Instruction]],
        offsets: dict[int, int],
    ) -> None:
        self.counted = counted
        self.func_ir = func_ir
        self.spans = spans
        self.offsets = offsets

    def run(self) -> None:
        for label, span in self.spans.items():
            if label in self.func_ir.blocks and span:
                self._count_inside(self._pieces(label), span)
        on_edges = self._count_entries()
        for label, edges in on_edges.items():
            self._count_at_end(self.func_ir.blocks[label], edges)

    def _pieces(self, label: int) -> list[Any]:
        """Return the blocks that one translated block was split into afterwards."""
        following = [other for other in self.spans if other > label]
        end = min(following, default=None)
        return [
            block
            for other, block in sorted(self.func_ir.blocks.items())
            if other >= label and (end is None or other < end)
        ]

    # -- inside a block: what ran before is known

    def _count_inside(self, pieces: list[Any], span: list[Instruction]) -> None:
        events = self.counted.events
        due = [
            current
            for previous, current in pairwise(span)
            if events.is_event(previous, current)
        ]
        for block in pieces:
            body: list[Any] = []
            for statement in block.body:
                offset = self.offsets.get(id(statement))
                if offset is None and statement is not pieces[-1].body[-1]:
                    body.append(statement)
                    continue
                while due and (offset is None or due[0].offset <= offset):
                    body.extend(self._add_one(block, due.pop(0)))
                body.append(statement)
            block.body = body

    # -- at the start of a block: it may depend on where one comes from

    def _count_entries(self) -> dict[int, dict[int, Instruction]]:
        """Count entries; return the edges that need counters: source, target, event."""
        events = self.counted.events
        on_edges: dict[int, dict[int, Instruction]] = {}
        sources = self._edges()
        for label, span in self.spans.items():
            block = self.func_ir.blocks.get(label)
            if block is None or not span:
                continue
            edges = sources.get(label, {})
            is_due = {
                source: events.is_event(previous, span[0])
                for source, previous in edges.items()
            }
            if label == min(self.spans):
                is_due[-1] = events.is_event(None, span[0])
            if all(is_due.values()):
                if is_due:
                    block.body[:0] = self._add_one(block, span[0])
                continue
            if any(is_due.values()) and label in self._handlers():
                # Code that raises goes there from within a statement.
                block.body[:0] = self._add_one(block, span[0])
                continue
            for source, due in is_due.items():
                if due:
                    on_edges.setdefault(source, {})[label] = span[0]
        return on_edges

    def _edges(self) -> dict[int, dict[int, Instruction]]:
        """Return target to source to the last instruction of the source."""
        edges: dict[int, dict[int, Instruction]] = {}
        for label, block in self.func_ir.blocks.items():
            origin = max((known for known in self.spans if known <= label), default=-1)
            span = self.spans.get(origin)
            if not span:
                continue
            for target in block.terminator.get_targets():
                edges.setdefault(target, {})[label] = span[-1]
        return edges

    def _handlers(self) -> set[int]:
        return {
            block.terminator.truebr
            for block in self.func_ir.blocks.values()
            if isinstance(block.terminator, ir.Branch)
            and _global_behind(self.func_ir, block.terminator.cond)
            is eh.exception_check
        }

    def _count_at_end(self, block: Any, edges: dict[int, Instruction]) -> None:
        terminator = block.body.pop()
        if isinstance(terminator, ir.Branch):
            addresses = [
                self.counted.new_cell(edges[target])
                if target in edges
                else self.counted.waste
                for target in (terminator.truebr, terminator.falsebr)
            ]
            block.body.extend(
                self._call(block, count_branch, (terminator.cond,), addresses)
            )
        else:
            for instruction in edges.values():
                block.body.extend(self._add_one(block, instruction))
        block.body.append(terminator)

    # -- statements

    def _add_one(self, block: Any, instruction: Instruction) -> list[Any]:
        address = self.counted.new_cell(instruction)
        return self._call(block, count_line, (), [address])

    def _call(
        self, block: Any, function: Any, variables: tuple[Any, ...], constants: Any
    ) -> list[Any]:
        loc = block.loc
        statements: list[Any] = []

        def assign(value: Any, name: str) -> Any:
            variable = block.scope.redefine(f"$numbaprof_{name}", loc=loc)
            self.func_ir._definitions[variable.name].append(value)
            statements.append(ir.Assign(value, variable, loc))
            return variable

        callee = assign(ir.Global(function._name, function, loc), "count")
        cells = [assign(ir.Const(constant, loc), "cell") for constant in constants]
        assign(ir.Expr.call(callee, (*variables, *cells), (), loc), "done")
        return statements


def _global_behind(func_ir: Any, variable: Any) -> Any:
    """Return the global that ``variable`` is or is a call of; None if neither."""
    pending, seen = [variable], set()
    while pending:
        value = pending.pop()
        if isinstance(value, ir.Global):
            return value.value
        if isinstance(value, ir.Expr) and value.op == "call":
            value = value.func
        if isinstance(value, ir.Var) and value.name not in seen:
            seen.add(value.name)
            pending.extend(func_ir._definitions.get(value.name, ()))
    return None


def _refuse_object_mode(func_ir: Any) -> None:
    for statement in _statements(func_ir):
        if not isinstance(statement, ir.EnterWith):
            continue
        if _global_behind(func_ir, statement.contextmanager) is objmode_context:
            raise UnsupportedError(
                f"the lines of {func_ir.func_id.func_qualname} cannot be counted: line "
                f"{statement.loc.line} of {statement.loc.filename} enters object mode, "
                "which Python runs; count the functions that it calls instead"
            )


def _statements(func_ir: Any) -> Iterator[Any]:
    for block in func_ir.blocks.values():
        yield from block.body


# -- what the calls become -------------------------------------------------------------


def _emit_add_one(builder: Any, address: Any) -> None:
    """Emit ``*(int64_t *) address += 1``."""
    word = llvm_ir.IntType(64)
    cell = builder.inttoptr(address, word.as_pointer())
    builder.store(builder.add(builder.load(cell), word(1)), cell)


@intrinsic(prefer_literal=True)
def count_line(typingctx: Any, address: Any) -> Any:
    """Add 1 to the 64-bit cell at a literal address."""
    if not isinstance(address, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_add_one(builder, llvm_ir.IntType(64)(address.literal_value))
        return context.get_dummy_value()

    return types.none(address), generate


@intrinsic(prefer_literal=True)
def count_branch(typingctx: Any, condition: Any, if_true: Any, if_false: Any) -> Any:
    """Add 1 to one of two cells, as a branch on ``condition`` goes."""
    if not isinstance(if_true, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = llvm_ir.IntType(64)
        is_true = context.cast(builder, args[0], condition, types.boolean)
        address = builder.select(
            is_true, word(if_true.literal_value), word(if_false.literal_value)
        )
        _emit_add_one(builder, address)
        return context.get_dummy_value()

    return types.none(condition, if_true, if_false), generate
