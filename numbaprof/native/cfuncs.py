"""A forwarding function in front of a C callback made by ``@cfunc``.

A C callback is an address that somebody keeps, so there is nothing to patch: what can
be done is to hand out, while a session runs, the address of a function with the same C
signature that counts and calls on. An address handed out stays good for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llvmlite.ir as ir

from numbaprof.native import clock as clocks
from numbaprof.native import emit
from numbaprof.native.emit import PTR, VOID, WORD, const

if TYPE_CHECKING:
    from numbaprof.native.engine import Engine, UfuncSlot

__all__ = ["forward"]

_NAME = "forward"


def forward(engine: Engine, cfunc: Any, slot: UfuncSlot) -> int:
    """Build a counting function in front of ``cfunc``; return its address.

    Parameters
    ----------
    engine : Engine
        Owner of the shadow stacks.
    cfunc : numba CFunc
        Compiled; its C signature is copied from Numba's own type model.
    slot : UfuncSlot
        What counts; it must live for ever.

    Raises
    ------
    UnsupportedError
        LLVM cannot build it.

    Notes
    -----
    Takes 15 to 30 ms, once per C callback; adds about 15 ns per call.
    """
    context = cfunc._targetdescr.target_context
    signature = cfunc._sig
    result = context.get_value_type(signature.return_type)
    arguments = tuple(context.get_value_type(arg) for arg in signature.args)
    module = ir.Module("numbaprof.forward")
    _emit_forward(
        module,
        engine,
        slot.address,
        cfunc._wrapper_address,
        ir.FunctionType(result, arguments),
    )
    return emit.compile_module(module, (_NAME,))[_NAME]


def _emit_forward(
    module: ir.Module,
    engine: Engine,
    slot: int,
    original: int,
    signature: ir.FunctionType,
) -> None:
    """Emit ``R forward(A...)``: enter, read the clock, call on, leave.

    May run without the GIL and in threads Python never heard of.
    """
    read = clocks.emit_read(module, engine.clock)
    names = tuple(f"arg{i}" for i in range(len(signature.args)))
    function, builder = emit.new_function(module, _NAME, signature, names)
    counter = const(slot).inttoptr(PTR)
    thread = emit.call_absolute(
        builder,
        engine.addresses["native_enter"],
        ir.FunctionType(PTR, (PTR,)),
        [counter],
    )
    begin = read(builder)
    target = emit.callee(const(original).inttoptr(PTR), signature)
    answer = builder.call(target, function.args)
    emit.call_absolute(
        builder,
        engine.addresses["native_leave"],
        ir.FunctionType(VOID, (PTR, PTR, WORD, WORD)),
        [counter, thread, begin, const(1)],
    )
    if isinstance(signature.return_type, ir.VoidType):
        builder.ret_void()
    else:
        builder.ret(answer)
