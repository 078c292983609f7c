"""Helpers that emit LLVM IR, and the one place that compiles it."""

from __future__ import annotations

import ctypes

import llvmlite.ir as ir
import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import emit
from numbaprof.native.emit import PTR, VOID, WORD, const


def build(name, signature, fill):
    """Compile a function that ``fill(builder, *arguments)`` emits."""
    module = ir.Module("test")
    names = tuple(f"a{i}" for i in range(len(signature.args)))
    function, builder = emit.new_function(module, name, signature, names)
    fill(builder, *function.args)
    return emit.compile_module(module, (name,))[name]


def call(address, *arguments):
    """Call a function of words."""
    types = [ctypes.c_int64] * len(arguments)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(address)(*arguments)


def test_words_are_loaded_and_stored_by_index():
    """Structures are arrays of words."""

    def fill(builder, base):
        value = emit.load_word(builder, base, 1)
        emit.store_word(builder, base, 2, builder.add(value, const(5)))
        builder.ret(emit.load_word(builder, base, const(2)))

    words = (ctypes.c_int64 * 3)(1, 20, 300)
    address = build("shift", ir.FunctionType(WORD, (PTR,)), fill)
    assert call(address, ctypes.addressof(words)) == 25
    assert list(words) == [1, 20, 25]


@pytest.mark.parametrize("ordering", [None, "monotonic"])
def test_adding_to_a_word(ordering):
    """Plain and atomic additions both add, negative numbers too."""

    def fill(builder, base):
        emit.add_to_word(builder, base, 0, const(-3), ordering=ordering)
        builder.ret_void()

    words = (ctypes.c_int64 * 1)(10)
    address = build("add", ir.FunctionType(VOID, (PTR,)), fill)
    call(address, ctypes.addressof(words))
    assert list(words) == [7]


@pytest.mark.parametrize("value", [0, 1, -1, 2**63, 2**64 - 1, -(2**63)])
def test_constants_are_modulo_two_to_the_64(value):
    """A constant may be given signed or unsigned."""
    assert const(value).constant == value % 2**64


def test_c_functions_are_called_by_address():
    """An address is called with the signature it is given."""
    signature = ir.FunctionType(PTR, (WORD,))

    def fill(builder, number):
        address = emit.address_of("PyLong_FromLong")
        builder.ret(emit.call_absolute(builder, address, signature, [number]))

    address = build("make", signature, fill)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)(address)
    assert make(12345678901) == 12345678901


def test_function_that_python_does_not_export_is_refused():
    """A missing C function is named."""
    with pytest.raises(UnsupportedError, match="does not export PyNothing_AtAll"):
        emit.address_of("PyNothing_AtAll")


def test_branches_are_taken_whatever_is_expected():
    """Likely and unlikely change nothing but the layout of code."""

    def fill(builder, number):
        result = emit.variable(builder, WORD, "result")
        builder.store(const(0), result)
        positive = builder.icmp_signed(">", number, const(0))
        with emit.likely(builder, positive):
            builder.store(const(1), result)
        with emit.unlikely(builder, builder.not_(positive)):
            builder.store(const(2), result)
        builder.ret(builder.load(result, typ=WORD))

    address = build("sign", ir.FunctionType(WORD, (WORD,)), fill)
    assert [call(address, number) for number in (5, -5)] == [1, 2]


def test_invalid_module_is_refused():
    """A module LLVM rejects is an error that says so."""
    module = ir.Module("broken")
    function = ir.Function(module, ir.FunctionType(WORD, ()), "f")
    ir.IRBuilder(function.append_basic_block("entry")).ret(const(1))
    text = str(module).replace("ret i64", "ret i32")
    module.__class__ = type("Broken", (), {"__str__": lambda self: text})
    with pytest.raises(UnsupportedError, match="LLVM cannot build"):
        emit.compile_module(module, ("f",))


def test_missing_function_is_named():
    """Asking for code that is not there is an error."""
    module = ir.Module("empty")
    with pytest.raises(UnsupportedError, match="no code for absent"):
        emit.compile_module(module, ("absent",))


def test_code_can_be_walked_through():
    """Functions keep frame pointers and unwind tables, for debuggers and samplers."""
    text = emit._with_unwind_attributes("define i64 @f() {\n}\ndeclare void @g()")
    assert text.splitlines()[0].endswith(
        'nounwind uwtable "frame-pointer"="all" {'
    ) or ('uwtable "frame-pointer"="all"' in text.splitlines()[0])
    assert "uwtable" not in text.splitlines()[2]
