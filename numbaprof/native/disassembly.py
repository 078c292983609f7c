"""Machine code as instructions, and which of them compute on several numbers at once.

LLVM inside llvmlite has no disassembler that can be called, so this is Capstone's (the
package ``capstone``), imported when first needed. What counts as a packed
floating-point instruction follows the mnemonics of the Intel SDM (volume 2) and the Arm
Architecture Reference Manual (C7): arithmetic, comparison and conversion. Moves,
shuffles and bitwise logic do not count: compilers use those on single numbers, too.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.native.elf import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Instruction", "disassemble", "host_machine"]


class Instruction(NamedTuple):
    """One machine instruction."""

    address: int
    size: int
    mnemonic: str
    operands: str
    packed_fp_bits: int
    """Width of the vector it computes floating-point numbers on; 0 if it does not."""

    @property
    def is_padding(self) -> bool:
        """Whether it only fills space, to align what comes next."""
        return self.mnemonic.rpartition(" ")[2] in ("nop", "int3")


def host_machine() -> int:
    """Return the ``e_machine`` of code that runs here.

    Raises
    ------
    UnsupportedError
        Another machine than x86-64 and aarch64.
    """
    import platform

    names = {"x86_64": Machine.X86_64, "AMD64": Machine.X86_64}
    names.update({"aarch64": Machine.AARCH64, "arm64": Machine.AARCH64})
    name = platform.machine()
    if name not in names:
        raise UnsupportedError(f"machine code of {name} cannot be disassembled here")
    return names[name]


def disassemble(
    code: bytes, address: int, machine: int | None = None
) -> list[Instruction]:
    """Decode machine code from its first to its last byte.

    Parameters
    ----------
    code : bytes
        Whole instructions, such as one function.
    address : int
        Where it is loaded; targets of jumps are counted from it.
    machine : int, optional
        ``e_machine`` of the object file; by default that of this computer.

    Raises
    ------
    UnsupportedError
        Capstone is missing, the machine is unknown, or some bytes are no instruction
        that this Capstone knows: a count that stopped there would be wrong.

    Notes
    -----
    About 1 us per instruction.
    """
    machine = host_machine() if machine is None else machine
    width = _WIDTHS.get(machine)
    if width is None:
        raise UnsupportedError(
            f"machine code for e_machine {machine} cannot be disassembled"
        )
    found = [
        Instruction(at, size, mnemonic, operands, width(mnemonic, operands))
        for at, size, mnemonic, operands in _decoder(machine).disasm_lite(code, address)
    ]
    decoded = sum(instruction.size for instruction in found)
    if decoded != len(code):
        rest = code[decoded : decoded + 8].hex()
        raise UnsupportedError(
            f"bytes {rest} at {address + decoded:#x} are no instruction that Capstone "
            "knows; a newer capstone may"
        )
    return found


@functools.cache
def _decoder(machine: int) -> Any:
    try:
        import capstone
    except ImportError as error:
        raise UnsupportedError(
            f"instructions cannot be decoded without Capstone: {error}; "
            "pip install capstone"
        ) from error
    if machine == Machine.X86_64:
        return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)


_X86_ARITHMETIC = re.compile(
    r"""v?(
        (add|sub|mul|div|sqrt|rsqrt|rcp|min|max|addsub|hadd|hsub|dp|round|rndscale
        |reduce|range|scalef|getexp|getmant|fixupimm|rcp14|rsqrt14|rcp28|rsqrt28|exp2
        |cmp\w*?)(ps|pd|ph)
        |fn?m(add|sub|addsub|subadd)\w*(ps|pd|ph)
        |f(maddsub|msubadd)\w*(ps|pd|ph)
        |cvtt?(p[sdh]2\w+|\w+2p[sdh]x?)
        |dpbf16ps
    )""",
    re.VERBOSE,
)
_X86_REGISTERS = (("zmm", 512), ("ymm", 256), ("xmm", 128))


def _width_on_x86(mnemonic: str, operands: str) -> int:
    name = mnemonic.rpartition(" ")[2]
    if not _X86_ARITHMETIC.fullmatch(name):
        return 0
    for register, bits in _X86_REGISTERS:
        if register in operands:
            return bits
    # MMX registers, as in cvtpi2ps: two numbers in 64 bits.
    return 64


_ARM_ARITHMETIC = re.compile(
    r"""f(
        abd|abs|add|addp|div|max\w*|min\w*|mla|mls|mlal2?|mlsl2?|mul|mulx|neg
        |recp[esx]|rint\w+|rsqrt[es]|sqrt|sub|cvt\w+|cm(eq|ge|gt|le|lt)|ac(ge|gt|le|lt)
        |cmla|cadd|nmla|nmls|mad|msb
    )|[su]cvtf""",
    re.VERBOSE,
)
_ARM_VECTOR = re.compile(r"v\d+\.(2d|4s|8h|2s|4h)|z\d+\.([dsh])")


def _width_on_arm(mnemonic: str, operands: str) -> int:
    if not _ARM_ARITHMETIC.fullmatch(mnemonic):
        return 0
    found = _ARM_VECTOR.search(operands)
    if found is None:
        return 0
    # Scalable vectors are at least as long as the fixed ones.
    return 64 if found.group(1) in ("2s", "4h") else 128


_WIDTHS: dict[int, Callable[[str, str], int]] = {
    Machine.X86_64: _width_on_x86,
    Machine.AARCH64: _width_on_arm,
}
