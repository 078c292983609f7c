"""Small helpers for emitting LLVM IR, and the one place that compiles it.

All structures of the engine are arrays of 64-bit words, so the helpers speak of a base
pointer and a word index. Modules are compiled by an MCJIT engine of our own that is
never freed: a thread may be inside the code when the last Python reference dies.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
import llvmlite.ir as ir

from numbaprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BIT",
    "PTR",
    "VOID",
    "WORD",
    "add_to_word",
    "address_of",
    "call_absolute",
    "callee",
    "compile_module",
    "compiled_addresses",
    "const",
    "count",
    "is_null",
    "likely",
    "load_pointer",
    "load_word",
    "new_function",
    "store_word",
    "unlikely",
    "variable",
    "word_pointer",
]

WORD = ir.IntType(64)
BIT = ir.IntType(1)
VOID = ir.VoidType()
PTR = ir.PointerType()

WORD_BYTES = 8

_COMPILED: list[tuple[Any, ...]] = []
"""Engines and modules, kept for the life of the process."""


def const(value: int) -> ir.Constant:
    """Return the 64-bit constant ``value``, taken modulo 2**64."""
    return ir.Constant(WORD, value & (2**64 - 1))


def address_of(name: str) -> int:
    """Return the address of the CPython API function ``name``.

    Raises
    ------
    UnsupportedError
        This interpreter does not export it.
    """
    try:
        function = getattr(ctypes.pythonapi, name)
    except AttributeError as error:
        raise UnsupportedError(
            f"this interpreter does not export {name}; numbaprof needs CPython"
        ) from error
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def word_pointer(builder: ir.IRBuilder, base: ir.Value, index: int | ir.Value) -> Any:
    """Return the address of word ``index`` of the structure at ``base``."""
    offset = const(index) if isinstance(index, int) else index
    return builder.gep(base, [offset], source_etype=WORD)


def load_word(
    builder: ir.IRBuilder, base: ir.Value, index: int | ir.Value, name: str = ""
) -> Any:
    """Load word ``index`` of the structure at ``base``."""
    return builder.load(word_pointer(builder, base, index), typ=WORD, name=name)


def load_pointer(
    builder: ir.IRBuilder, base: ir.Value, index: int | ir.Value, name: str = ""
) -> Any:
    """Load word ``index`` of the structure at ``base`` as a pointer."""
    return builder.load(word_pointer(builder, base, index), typ=PTR, name=name)


def store_word(
    builder: ir.IRBuilder, base: ir.Value, index: int | ir.Value, value: ir.Value
) -> None:
    """Store ``value`` (a word or a pointer) in word ``index`` of ``base``."""
    builder.store(value, word_pointer(builder, base, index))


def add_to_word(
    builder: ir.IRBuilder,
    base: ir.Value,
    index: int | ir.Value,
    value: ir.Value,
    *,
    ordering: str | None = None,
) -> None:
    """Add ``value`` to word ``index`` of ``base``.

    Parameters
    ----------
    ordering : str, optional
        None for a plain load and store, right wherever the GIL is held; else an LLVM
        memory ordering. Counters need no more than ``"monotonic"``: nothing is
        published through them, they are read after the session has stopped.
    """
    pointer = word_pointer(builder, base, index)
    if ordering is None:
        builder.store(builder.add(builder.load(pointer, typ=WORD), value), pointer)
    else:
        builder.atomic_rmw("add", pointer, value, ordering)


def call_absolute(
    builder: ir.IRBuilder,
    address: int,
    signature: ir.FunctionType,
    arguments: list[ir.Value],
    name: str = "",
) -> Any:
    """Call the C function at a constant ``address``."""
    return builder.call(
        callee(const(address).inttoptr(PTR), signature), arguments, name=name
    )


class _Callee:
    """A pointer with a function type, which llvmlite's ``call`` wants to see."""

    def __init__(self, pointer: ir.Value, signature: ir.FunctionType) -> None:
        self._pointer = pointer
        self.function_type = signature
        self.type = pointer.type

    def get_reference(self) -> str:
        return str(self._pointer.get_reference())


def callee(pointer: ir.Value, signature: ir.FunctionType) -> Any:
    """Return ``pointer`` dressed so that ``builder.call`` accepts it."""
    return _Callee(pointer, signature)


def variable(builder: ir.IRBuilder, type_: ir.Type, name: str) -> Any:
    """Emit room for a local variable in the entry block, where LLVM promotes it."""
    with builder.goto_entry_block():
        return builder.alloca(type_, name=name)


def new_function(
    module: ir.Module,
    name: str,
    signature: ir.FunctionType,
    arguments: tuple[str, ...],
    *,
    linkage: str = "",
) -> tuple[ir.Function, ir.IRBuilder]:
    """Start a function; return it and a builder at its entry block."""
    function = ir.Function(module, signature, name)
    function.linkage = linkage
    for argument, label in zip(function.args, arguments, strict=True):
        argument.name = label
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    return function, builder


@contextmanager
def unlikely(builder: ir.IRBuilder, condition: ir.Value) -> Iterator[ir.Block]:
    """Emit a block for a condition that rarely holds."""
    with builder.if_then(condition, likely=False) as end:
        yield end


@contextmanager
def likely(builder: ir.IRBuilder, condition: ir.Value) -> Iterator[ir.Block]:
    """Emit a block for a condition that nearly always holds."""
    with builder.if_then(condition, likely=True) as end:
        yield end


def is_null(builder: ir.IRBuilder, pointer: ir.Value) -> Any:
    """Emit the test whether ``pointer`` is NULL."""
    return builder.icmp_unsigned("==", pointer, ir.Constant(PTR, None))


@contextmanager
def count(builder: ir.IRBuilder, limit: ir.Value) -> Iterator[ir.Value]:
    """Emit a loop over ``0 .. limit - 1``."""
    before = builder.block
    head = builder.append_basic_block("count")
    body = builder.append_basic_block("count.body")
    end = builder.append_basic_block("count.end")
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(WORD, "number")
    number.add_incoming(const(0), before)
    builder.cbranch(builder.icmp_signed("<", number, limit), body, end)
    builder.position_at_end(body)
    yield number
    number.add_incoming(builder.add(number, const(1)), builder.block)
    builder.branch(head)
    builder.position_at_end(end)


def compile_module(
    module: ir.Module, names: tuple[str, ...], *, optimized: bool = True
) -> dict[str, int]:
    """Compile ``module`` for this machine and return the addresses of ``names``.

    Parameters
    ----------
    module : llvmlite.ir.Module
        What to compile.
    names : tuple of str
        Its functions whose addresses are wanted.
    optimized : bool, optional
        False for what runs seldom: compiling takes a sixth of the time.

    Raises
    ------
    UnsupportedError
        LLVM rejects the module or has no code generator for this machine.

    Notes
    -----
    Frame pointers and unwind tables are forced so that ``py-spy``, ``perf`` and gdb can
    walk through the trampolines into the code below them.
    """
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
        target = llvm.Target.from_triple(triple)
        machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            opt=2 if optimized else 0,
            jit=True,
            codemodel="jitdefault",
        )
        parsed = llvm.parse_assembly(_with_unwind_attributes(str(module)))
        parsed.verify()
        if optimized:
            _optimize(parsed, machine)
        engine = llvm.create_mcjit_compiler(parsed, machine)
        engine.finalize_object()
        addresses = {name: engine.get_function_address(name) for name in names}
        # Never free the code pages, not even at interpreter shutdown.
        engine.detach()
    except RuntimeError as error:
        raise UnsupportedError(
            f"LLVM cannot build numbaprof's engine on this machine: {error}"
        ) from error
    missing = [name for name, address in addresses.items() if not address]
    if missing:
        raise UnsupportedError(f"LLVM produced no code for {', '.join(missing)}")
    _COMPILED.append((engine, parsed, machine, addresses))
    return addresses


def compiled_addresses() -> list[int]:
    """Return where functions of all modules compiled here are: numbaprof's own code."""
    return [address for *_, named in _COMPILED for address in named.values()]


def _with_unwind_attributes(text: str) -> str:
    # llvmlite's attribute set knows neither of the two, so they go into the text.
    lines = text.split("\n")
    return "\n".join(
        f'{line} nounwind uwtable "frame-pointer"="all"'
        if line.startswith("define ")
        else line
        for line in lines
    )


def _optimize(parsed: Any, machine: Any) -> None:
    """Run the few passes our straight-line code gains from.

    The full -O2 pipeline takes 75 ms more for the same instructions, half of the time
    a first start may take.
    """
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_new_gvn_pass()
    passes.add_jump_threading_pass()
    passes.add_simplify_cfg_pass()
    for function in parsed.functions:
        if not (function.is_declaration or _is_rare(function)):
            passes.run(function, builder)


def _is_rare(function: Any) -> bool:
    return any(b"optnone" in attribute.split() for attribute in function.attributes)
