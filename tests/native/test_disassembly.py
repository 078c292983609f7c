"""Instructions, against objdump; and which count as packed floating point."""

from __future__ import annotations

import builtins
import re
import shutil
import subprocess

import machine_code
import numpy as np
import pytest
from numba import njit

from numbaprof.errors import UnsupportedError
from numbaprof.native import disassembly, objcode
from numbaprof.native.disassembly import disassemble
from numbaprof.native.elf import Machine

x86 = pytest.mark.skipif(
    disassembly.host_machine() != Machine.X86_64, reason="about x86-64 code"
)


@pytest.fixture(scope="module")
def kernels():
    """Compile loops with and without vectors; return their objects and symbols."""

    @njit(fastmath=True)
    def packed(a, b):
        total = 0.0
        for i in range(a.size):
            total += a[i] * b[i]
        return total

    @njit
    def ordered(a, b):
        total = 0.0
        for i in range(a.size):
            total += a[i] * b[i]
        return total

    @njit
    def elementwise(a, b):
        return np.sqrt(a) * b + a

    a = np.linspace(0, 1, 64)
    found = {}
    for function in (packed, ordered, elementwise):
        function(a, a)
        (overload,) = function.overloads.values()
        found[function.__name__] = overload.fndesc.llvm_func_name
    objects = objcode.load_objects()
    return {name: (objects.with_symbol(s), s) for name, s in found.items()}


def code_of(kernels, name):
    """Return bytes and address of a kernel."""
    found, symbol_name = kernels[name]
    symbol = found.symbol(symbol_name)
    offset = symbol.address - found.start
    return found.text[offset : offset + symbol.size], symbol.address


@x86
def test_instructions_are_those_objdump_sees(kernels, tmp_path):
    """Address, length and mnemonic of every instruction, AVX included."""
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    compared = 0
    names = set()
    for name in kernels:
        code, address = code_of(kernels, name)
        path = tmp_path / f"{name}.bin"
        path.write_bytes(code)
        ours = [
            (one.address, one.size, one.mnemonic.split()[-1])
            for one in disassemble(code, address)
        ]
        assert [(at, size) for at, size, _ in ours] == [
            (at, size) for at, size, _ in objdump(path, address)
        ]
        for mine, other in zip(ours, objdump(path, address), strict=True):
            assert same_name(mine[2], other[2])
            names.add(mine[2])
        compared += len(ours)
    assert compared > 100
    assert any(name.startswith("v") for name in names)


OBJDUMP = ["objdump", "-D", "-w", "-b", "binary", "-m", "i386:x86-64", "-M", "intel"]


def objdump(path, address):
    """Return (address, length, mnemonic) as objdump prints them."""
    out = subprocess.run(
        [*OBJDUMP, f"--adjust-vma={address:#x}", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = []
    for line in out.splitlines():
        match = re.match(r"\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*(.*)", line)
        if match:
            prefixes = {"cs", "data16", "bnd", "rep", "repz", "notrack"}
            words = [w for w in match[3].split() if w not in prefixes]
            found.append((int(match[1], 16), len(match[2].split()), words[0]))
    return found


def same_name(ours: str, theirs: str) -> bool:
    """Compare mnemonics, which differ between the two in spelling."""
    spellings = {"movabs": "movabs", "cdqe": "cdqe", "xchg": "nop"}
    if ours == theirs or spellings.get(theirs) == ours:
        return True
    # Conditions have several names: jae, jnb, jnc are one instruction.
    return ours[0] == theirs[0] and ours.startswith(("j", "cmov", "set", "vcmp", "cmp"))


@x86
def test_vector_code_is_seen(kernels):
    """A reduction with fastmath works on several numbers, one without does not."""
    packed = [one.packed_fp_bits for one in disassemble(*code_of(kernels, "packed"))]
    ordered = [one.packed_fp_bits for one in disassemble(*code_of(kernels, "ordered"))]
    assert max(packed) >= 128
    assert sum(bits > 0 for bits in packed) > 2
    assert max(ordered) == 0


@pytest.mark.parametrize(
    ("code", "mnemonic", "bits"),
    [
        ("c5fd58c2", "vaddpd", 256),
        ("c5f958c2", "vaddpd", 128),
        ("660f58c1", "addpd", 128),
        ("0f59c1", "mulps", 128),
        ("f20f58c1", "addsd", 0),
        ("f30f59c1", "mulss", 0),
        ("c4e2f5b8c2", "vfmadd231pd", 256),
        ("c4e2f1b9c2", "vfmadd231sd", 0),
        ("62f1fd4858c2", "vaddpd", 512),
        ("c5fd51c1", "vsqrtpd", 256),
        ("660fc2c101", "cmpltpd", 128),
        ("0f5bc1", "cvtdq2ps", 128),
        ("c5fd5ac1", "vcvtpd2ps", 256),
        ("f30fe6c1", "cvtdq2pd", 128),
        ("660f57c1", "xorpd", 0),
        ("0f28c1", "movaps", 0),
        ("0f14c1", "unpcklps", 0),
        ("c5fdfec2", "vpaddd", 0),
        ("4801d8", "add", 0),
        ("0f1f00", "nop", 0),
        ("f20f5ac1", "cvtsd2ss", 0),
    ],
)
def test_packed_floating_point_on_x86(code, mnemonic, bits):
    """Arithmetic on vectors counts; scalars, moves, logic and integers do not."""
    (one,) = disassemble(bytes.fromhex(code), 0, Machine.X86_64)
    assert (one.mnemonic, one.packed_fp_bits) == (mnemonic, bits)


@pytest.mark.parametrize(
    ("word", "mnemonic", "bits"),
    [
        (0x4E61D400, "fadd", 128),  # v0.2d
        (0x0E21D400, "fadd", 64),  # v0.2s
        (0x4E61CC00, "fmla", 128),
        (0x1E612800, "fadd", 0),  # d0, d0, d1
        (0x4E61D800, "scvtf", 128),
        (0x4EE18400, "add", 0),  # integers
        (0x6F00F400, "fmov", 0),
        (0xD503201F, "nop", 0),
    ],
)
def test_packed_floating_point_on_aarch64(word, mnemonic, bits):
    """The same on vectors of the other machine."""
    (one,) = disassemble(word.to_bytes(4, "little"), 0, Machine.AARCH64)
    assert (one.mnemonic, one.packed_fp_bits) == (mnemonic, bits)


def test_objects_of_the_other_machine_are_decoded():
    """Emitted for aarch64: four bytes each, and the return is there."""
    found = objcode.JitObject.from_bytes(machine_code.emit_inlined("aarch64"))
    instructions = disassemble(found.text, 0, found.elf.machine)
    assert {one.size for one in instructions} == {4}
    assert "ret" in {one.mnemonic for one in instructions}


def test_padding_is_told_apart():
    """Long no-operations with prefixes are padding; a return is not."""
    code = bytes.fromhex("66662e0f1f840000000000" + "90" + "cc" + "c3")
    marks = [one.is_padding for one in disassemble(code, 0, Machine.X86_64)]
    assert marks == [True, True, True, False]


def test_bytes_that_are_no_instruction_are_refused():
    """A count that stops in the middle would be wrong."""
    with pytest.raises(UnsupportedError, match="06 at 0x1001 are no instruction"):
        disassemble(b"\x90\x06", 0x1000, Machine.X86_64)


def test_other_machines_are_refused(monkeypatch):
    """The message says which."""
    with pytest.raises(UnsupportedError, match="e_machine 243"):
        disassemble(b"", 0, 243)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnsupportedError, match="riscv64"):
        disassemble(b"", 0)


def test_missing_capstone_is_a_reason(monkeypatch):
    """It says what to install."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "capstone":
            raise ImportError("No module named 'capstone'")
        return real(name, *args, **kwargs)

    disassembly._decoder.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedError, match="pip install capstone"):
        disassemble(b"\x90", 0, Machine.X86_64)
