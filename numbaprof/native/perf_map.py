"""Names of compiled code for ``perf``, in the file where perf looks for them.

The format is that of ``tools/perf/Documentation/jit-interface.txt`` in the Linux
source: one line ``START SIZE symbolname`` per function, both numbers in hexadecimal
without 0x, in ``/tmp/perf-PID.map``. CPython's own ``-X perf`` appends to the same
file, and so does this.
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from numbaprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numbaprof.native.objcode import Objects

__all__ = ["append", "file_of", "lines_of", "readable_name"]

FOLDER = Path("/tmp")
"""Fixed: perf looks nowhere else."""
MARK = "[numba]"
"""After names of what Numba compiled, to be told from Python's own functions."""
MARK_OF_OTHERS = "[jit]"
"""After names of what others compiled with llvmlite, numbaprof's own code for one."""
_PYTHON_WRAPPER = "_ZN7cpython"
_PREFIXES = (("cfunc.", "C wrapper"), ("__gufunc__.", "loop"), ("__ufunc__.", "loop"))
"""What Numba puts before the name of a kernel, and what that is."""


def file_of(process: int) -> Path:
    """Return the file in which perf looks for the names of one process."""
    return FOLDER / f"perf-{process}.map"


def append(objects: Objects, names: Mapping[str, str]) -> Path:
    """Append all functions of this process that MCJIT has loaded.

    Parameters
    ----------
    objects : Objects
        From :func:`numbaprof.native.objcode.load_objects`.
    names : mapping of str to str
        Readable name by symbol, of those that are known.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    UnsupportedError
        The code is not known, or the file cannot be written or is not ours: perf would
        not read it, and anybody may have put it into a folder that all can write to.

    Notes
    -----
    A file left over by a dead process with the same number is emptied first.
    """
    if not len(objects) and objects.reason:
        raise UnsupportedError(f"compiled code was not found: {objects.reason}")
    path = file_of(os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise UnsupportedError(f"{path} belongs to somebody else")
            if status.st_mtime < _start_of_process():
                os.ftruncate(descriptor, 0)
            file.writelines(lines_of(objects, names))
    except OSError as error:
        raise UnsupportedError(f"{path} cannot be written: {error}") from error
    return path


def lines_of(objects: Objects, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the file, one per function, in order of address."""
    for found in objects:
        for symbol in found.symbols():
            if symbol.size:
                name = " ".join(readable_name(symbol.name, names).split())
                is_numba = "_ZN" in symbol.name or symbol.name.startswith("NRT_")
                mark = MARK if is_numba else MARK_OF_OTHERS
                yield f"{symbol.address:x} {symbol.size:x} {name} {mark}\n"


def readable_name(symbol: str, names: Mapping[str, str]) -> str:
    """Return the name to show for a symbol.

    Parameters
    ----------
    symbol : str
        As LLVM knows it.
    names : mapping of str to str
        Names of kernels. Wrappers are named after their kernel; other functions that
        Numba compiled get module and name out of the mangled symbol.
    """
    for prefix, role in _PREFIXES:
        if symbol.startswith(prefix):
            return f"{readable_name(symbol.removeprefix(prefix), names)} ({role})"
    if symbol in names:
        return names[symbol]
    if symbol.startswith(_PYTHON_WRAPPER):
        kernel = "_ZN" + symbol.removeprefix(_PYTHON_WRAPPER)
        return f"{readable_name(kernel, names)} (Python wrapper)"
    return _demangled(symbol)


def _demangled(symbol: str) -> str:
    """Return ``module.name`` of a symbol that Numba mangled, else the symbol.

    Numba follows the Itanium ABI (numba/core/itanium_mangler.py): ``_ZN``, then each
    part after its length. Letters that no identifier has are written as ``_`` and two
    hexadecimal digits; other text of that look is left as it is.
    """
    if not symbol.startswith("_ZN"):
        return symbol
    parts = []
    at = len("_ZN")
    while match := re.compile(r"\d+").match(symbol, at):
        end = match.end() + int(match.group())
        parts.append(symbol[match.end() : end])
        at = end
    return re.sub(r"_([0-9a-f]{2})", _unescaped, ".".join(parts)) or symbol


def _unescaped(match: re.Match[str]) -> str:
    letter = chr(int(match.group(1), 16))
    is_sign = letter.isascii() and letter.isprintable() and not letter.isalnum()
    return letter if is_sign else match.group()


def _start_of_process() -> float:
    """Return when this process began, in seconds since 1970, rounded down.

    Field 22 of ``/proc/self/stat`` counts clock ticks since boot (proc(5)).
    """
    try:
        text = Path("/proc/self/stat").read_text()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return 0.0
    ticks = int(text.rpartition(")")[2].split()[19])
    started = time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
    return started - 1.0
