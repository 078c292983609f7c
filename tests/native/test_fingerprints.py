"""What changes a fingerprint and what does not."""

from __future__ import annotations

import fingerprint_kernels
import llvmlite.binding as llvm
import machine_code
import numpy as np
import pytest
from numba import njit

from numbaprof.errors import UnsupportedError
from numbaprof.native import fingerprints, numba_api, objcode
from numbaprof.native.fingerprints import fingerprint
from numbaprof.native.objcode import JitObject, Objects

pytestmark = pytest.mark.linux


def taken(dispatcher, *arguments):
    """Call a dispatcher and return the fingerprint of its only overload."""
    dispatcher(*arguments)
    (overload,) = dispatcher.overloads.values()
    symbol = numba_api.kernel_symbol(overload)
    return fingerprint(symbol, objcode.load_objects())


def scaled(factor):
    """Return a new dispatcher with a constant of its own."""

    @njit
    def scale(x):
        return x * factor + 0.5

    return scale


def failing(text, *, below):
    """Return a function that raises, at one of two places."""
    if below:

        @njit
        def fail(n):
            if n > 3:
                raise ValueError(text, n)
            return n

        return fail

    @njit
    def fail(n):
        if n > 3:
            raise ValueError(text, n)
        return n

    return fail


def test_equal_code_has_equal_fingerprints():
    """Two dispatchers with one body: other names, other places, same hash."""
    assert taken(scaled(2.5), 1.0).code == taken(scaled(2.5), 1.0).code


def test_other_constant_has_another_fingerprint():
    """The constant lies outside the instructions, and still counts."""
    assert taken(scaled(2.5), 1.0).code != taken(scaled(2.75), 1.0).code


def test_other_argument_type_has_another_fingerprint():
    """Different machine code, for once."""
    assert taken(scaled(2.5), 1.0).code != taken(scaled(2.5), 1).code


def test_place_and_text_of_an_exception_do_not_count():
    """The pickled exception differs in lines and text, its length in the code, too."""
    first = taken(failing("a", below=False), 1)
    second = taken(failing("a much longer text than that", below=True), 1)
    assert first.code == second.code


def test_fingerprint_is_a_sha256():
    """Named and in full."""
    code = taken(scaled(1.5), 1.0).code
    assert code.startswith("sha256:")
    assert len(bytes.fromhex(code.removeprefix("sha256:"))) == 32


def test_vector_code_is_counted():
    """With fastmath a reduction is packed, without it is not."""

    def dot(a, b):
        total = 0.0
        for i in range(a.size):
            total += a[i] * b[i]
        return total

    a = np.ones(16)
    fast, exact = taken(njit(fastmath=True)(dot), a, a), taken(njit(dot), a, a)
    assert fast.packed_fp > 0
    assert fast.width_bits >= 128
    assert (exact.packed_fp, exact.width_bits) == (0, 0)
    assert exact.instructions > 10
    assert fast.reason == exact.reason == ""


def test_called_functions_count():
    """A callee that was not inlined is part of its caller's code."""

    def make(step):
        @njit
        def descend(n):
            return 0 if n <= 0 else 1 + descend(n - step) + descend(n - 2)

        @njit
        def caller(n):
            return descend(n) * 2

        return caller

    assert taken(make(1), 5).code == taken(make(1), 5).code
    assert taken(make(1), 5).code != taken(make(3), 5).code


def test_missing_capstone_leaves_the_hash(monkeypatch):
    """The counts are missing with a reason."""

    def refuse(*_):
        raise UnsupportedError("no Capstone")

    monkeypatch.setattr(fingerprints, "disassemble", refuse)
    fingerprints._count_function.cache_clear()
    found = taken(scaled(2.5), 1.0)
    assert found.code
    assert found.instructions is found.packed_fp is found.width_bits is None
    assert found.reason == "no Capstone"


def test_unknown_function_is_refused():
    """The reason says what is known."""
    with pytest.raises(UnsupportedError, match=r"was not found: .* objects are known"):
        fingerprint("nobody", objcode.load_objects())
    with pytest.raises(UnsupportedError, match="was not found: stripped"):
        fingerprint("nobody", Objects((), "none", "stripped"))


def test_unknown_callee_is_refused():
    """Half a hash would be equal where the other half is not."""
    module = """
    declare double @_ZN4user6hiddenE(double)
    define double @kernel(double %x) {
      %y = call double @_ZN4user6hiddenE(double %x)
      ret double %y
    }
    """
    objects = Objects([objects_of(module)], "test")
    with pytest.raises(UnsupportedError, match="hiddenE, whose machine code is not"):
        fingerprint("kernel", objects)


def objects_of(ir, machine="x86_64", **options):
    """Return the object that LLVM makes of a module."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine_code.TRIPLES[machine])
    tm = target.create_target_machine(**options)
    return JitObject.from_bytes(bytes(tm.emit_object(llvm.parse_assembly(ir))))


SWITCH_IR = """
@{prefix}unused = internal constant [4 x double] [double 9.0, double 8.0, double 7.0,
  double 6.0]
{before}
define double @{prefix}kernel(i64 %k) {{
entry:
  switch i64 %k, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c
    i64 3, label %d i64 4, label %e i64 5, label %f ]
a:
  %x = call double @{prefix}callee(double 1.25)
  ret double %x
b:
  %y = call double @sin(double 2.25)
  ret double %y
c:
  %z = call double @{prefix}callee(double {constant})
  ret double %z
d:
  call void @effect(i64 4)
  br label %a
e:
  call void @effect(i64 {number})
  br label %b
f:
  call void @effect(i64 6)
  br label %c
other:
  ret double -1.0
}}
define internal double @{prefix}callee(double %x) noinline {{
  %y = fmul double %x, {factor}
  ret double %y
}}
declare double @sin(double)
declare void @effect(i64)
"""
BEFORE = """
define double @{prefix}first(double %x) {{
  %y = fadd double %x, 77.5
  ret double %y
}}
"""


def emitted(machine, model, reloc, **changes):
    """Return the fingerprint of the kernel of :data:`SWITCH_IR`."""
    values = {"prefix": "p_", "before": "", "constant": "3.25"}
    values |= {"number": "5", "factor": "1.5"} | changes
    values["before"] = values["before"].format(**values)
    ir = SWITCH_IR.format(**values)
    found = objects_of(ir, machine, codemodel=model, reloc=reloc, opt=2)
    return fingerprint(values["prefix"] + "kernel", Objects([found], "test"))


MODELS = [
    (machine, model, reloc)
    for machine in machine_code.TRIPLES
    for model in ("small", "large")
    for reloc in ("static", "pic")
    if (machine, model, reloc) != ("aarch64", "large", "pic")
]


@pytest.mark.parametrize(("machine", "model", "reloc"), MODELS)
def test_names_and_places_do_not_count(machine, model, reloc):
    """Longer names and a function in front: jump table and constants move."""
    plain = emitted(machine, model, reloc)
    moved = emitted(machine, model, reloc, prefix="longer_prefix_", before=BEFORE)
    assert plain.code == moved.code
    assert plain.instructions == moved.instructions > 20


@pytest.mark.parametrize(("machine", "model", "reloc"), MODELS)
@pytest.mark.parametrize(
    "change", [{"constant": "3.5"}, {"number": "7"}, {"factor": "2.5"}]
)
def test_every_constant_counts(machine, model, reloc, change):
    """In the kernel, in an argument, in a callee."""
    plain = emitted(machine, model, reloc)
    assert plain.code != emitted(machine, model, reloc, **change).code


# -- the same source in other processes, see fingerprint_kernels -----------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Return the fingerprints of the source as it stands."""
    return fingerprint_kernels.fingerprints_of(tmp_path_factory.mktemp("base"))


@pytest.mark.long
@pytest.mark.slow
def test_where_and_when_do_not_count(base, tmp_path):
    """Moved lines, another module name and folder, another order of compiling."""
    found = fingerprint_kernels.fingerprints_of(
        tmp_path / ("long_name_" * 12),
        module="renamed_module_of_kernels",
        order=fingerprint_kernels.ALL[::-1],
        blank="# moved\n" * 300,
    )
    assert found == base


@pytest.mark.long
@pytest.mark.slow
def test_line_tables_do_not_count(base, tmp_path):
    """Compiled with line tables, the code is the same."""
    assert fingerprint_kernels.fingerprints_of(tmp_path, mode="lines") == base


@pytest.mark.long
@pytest.mark.slow
def test_code_from_the_cache_is_the_same(base, tmp_path):
    """Saved by one process, loaded by another."""
    first = fingerprint_kernels.fingerprints_of(tmp_path, mode="cache")
    second = fingerprint_kernels.fingerprints_of(tmp_path, mode="cache")
    assert (first.pop("hits"), second.pop("hits")) == (0, 1)
    assert first == second == base


@pytest.mark.long
@pytest.mark.slow
def test_constants_of_callees_and_loop_bodies_count(base, tmp_path):
    """Inlined, called, in a prange, behind recursion, and in a jump table."""
    found = fingerprint_kernels.fingerprints_of(
        tmp_path, inlined="3.75", called="9.5", threaded="2.5", step="2", table="5.5"
    )
    same = {name for name in base if found[name] == base[name]}
    assert same == {"packed", "allocating"}
