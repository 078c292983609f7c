"""What LLVM says of each loop it optimizes: vectorized, how wide, or why not.

LLVM has options that make it write *remarks* to standard error. They are on only while
it optimizes one module (``CPUCodeLibrary._optimize_final_module``, which the compiler
lock guards), and during that time file descriptor 2 is a temporary file. What else was
written to it meanwhile, by other threads, is written to the real one afterwards.

Remarks have places only where code has a line table, so line tables are on as well.
Neither changes a byte of the code (``tests/test_identity.py``).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Literal

import llvmlite.binding as llvm
from numba.core.codegen import CPUCodeLibrary

from numbaprof.errors import OptionError
from numbaprof.native import numba_api
from numbaprof.native.hooks import CallHook, HookErrors
from numbaprof.native.linetable import LineTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["PASSES", "PRIVATE_NAMES", "Remark", "RemarkKind", "collect", "parse"]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba.core.codegen:CPUCodeLibrary._optimize_final_module",
)
"""What this module touches of Numba, as in :data:`numba_api.PRIVATE_NAMES`."""

PASSES = ("loop-vectorize", "loop-unroll")
"""The passes that are worth asking by default. Others have been looked at: inlining and
gvn say hundreds of things of Numba's wrappers, licm repeats itself."""

RemarkKind = Literal["passed", "missed", "analysis", "unknown"]

_OPTIONS = ("pass-remarks", "pass-remarks-missed", "pass-remarks-analysis")
_OFF = "^$"
"""Matches the name of no pass. An empty expression leaves the last one in force."""

STDERR = 2

_REMARK = re.compile(
    rb"remark: (?P<file>[^\n]*?):(?P<line>\d+):(?P<column>\d+): "
    rb"(?P<text>[^\n]*"
    rb"(?:\n(?:Backward|Forward|Unknown|Unsafe)[^\n]* dependence[. ][^\n]*)?)\n"
)
"""``DiagnosticInfoOptimizationBase::print`` after ``remark: ``. ``LoopAccessAnalysis``
puts the kind of an unsafe dependence, and the other access, on a second line."""

_WORDINGS: tuple[tuple[str, str, RemarkKind], ...] = (
    (r"(outerloop )?vectorized (outer )?loop \(", "loop-vectorize", "passed"),
    (r"interleaved loop \(", "loop-vectorize", "passed"),
    (r"loop not vectorized$", "loop-vectorize", "missed"),
    (r"loop not vectorized", "loop-vectorize", "analysis"),
    (r"the cost-model indicates", "loop-vectorize", "missed"),
    (r"(completely |peeled |run-time )?unrolled loop", "loop-unroll", "passed"),
    (r"peeled loop", "loop-unroll", "passed"),
    (r"(failed to|unable to|unroll|advising against unroll)", "loop-unroll", "missed"),
    (r"(stores |vectorized )?slp vectorized", "slp-vectorizer", "passed"),
    (r"vectorized (horizontal|tree)", "slp-vectorizer", "passed"),
    (r"(list |stores? )?vectorization was (im)?possible", "slp-vectorizer", "missed"),
    (r"(cannot|stores) (slp|vectorize)", "slp-vectorizer", "missed"),
)
"""(beginning of the text, pass, kind): LLVM prints neither of the latter."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark on one place."""

    file: str
    line: int
    column: int
    pass_: str
    """Pass that said so, by its wording; "" if that is not known."""
    kind: RemarkKind
    text: str
    module: int = field(default=0, compare=False)
    """Which code library it was said of: ``id()`` of it. A function that is inlined is
    optimized twice, in its own library and in its caller's."""


@contextlib.contextmanager
def collect(
    *, passes: Iterable[str] = PASSES, own: bool = False
) -> Iterator[list[Remark]]:
    """Collect remarks on what is compiled within the block.

    Parameters
    ----------
    passes : iterable of str, optional
        LLVM's names of the passes to ask; "slp-vectorizer" is another useful one.
    own : bool, optional
        Also remarks on Numba's own files and on generated code.

    Yields
    ------
    list of Remark
        Grows with each compilation, in any thread; each remark once a library.

    Raises
    ------
    OptionError
        No pass is named, or one with letters that no pass has.
    AttachError, UnsupportedError
        Numba is not as expected; nothing stays changed.

    Notes
    -----
    Of code that a program made from text (``<string>``) no line can be shown; it counts
    as generated. Code that is loaded from a cache was optimized long ago: no remarks.
    Remarks on a cached function's first compilation have no place and are left out, as
    it gets no line table. A process that another thread starts in the very moment of
    optimizing keeps the temporary file as its standard error.
    """
    names = tuple(passes)
    if not names or not all(re.fullmatch(r"[a-z-]+", name) for name in names):
        raise OptionError(
            f"passes={names!r}: give LLVM's names of passes, such as {PASSES[0]!r}"
        )
    found: set[tuple[int, Remark]] = set()
    remarks: list[Remark] = []

    def take(remark: Remark) -> None:
        key = (remark.module, remark)
        if key not in found and (own or _is_users(remark)):
            found.add(key)
            remarks.append(remark)

    with tempfile.TemporaryFile(buffering=0) as file, LineTables():
        capture = _Capture("|".join(names), take, file)
        capture.hook.install()
        try:
            yield remarks
        finally:
            with numba_api.compiler_lock:
                capture.hook.restore()
                capture.finish()


def parse(written: bytes) -> tuple[list[Remark], bytes]:
    """Return the remarks in what was written to standard error, and all the rest."""
    remarks = []
    for match in _REMARK.finditer(written):
        text = os.fsdecode(match["text"]).replace("\n", " ")
        pass_, kind = _classify(text)
        remarks.append(
            Remark(
                os.fsdecode(match["file"]),
                int(match["line"]),
                int(match["column"]),
                pass_,
                kind,
                text,
            )
        )
    return remarks, _REMARK.sub(b"", written)


def _classify(text: str) -> tuple[str, RemarkKind]:
    for wording, pass_, kind in _WORDINGS:
        if re.match(wording, text, re.IGNORECASE):
            return pass_, kind
    return "", "unknown"


def _is_users(remark: Remark) -> bool:
    # An IPython cell is called <ipython-input-3-...>.
    generated = remark.file in ("", "<string>", "<unknown>", "<wrapper>")
    return remark.line > 0 and not (generated or numba_api.is_own_file(remark.file))


class _Capture:
    """Turns remarks on and standard error aside while LLVM optimizes a module."""

    def __init__(
        self, pattern: str, take: Callable[[Remark], None], file: IO[bytes]
    ) -> None:
        self._pattern = pattern
        self._take = take
        self._file = file
        self._real: int | None = None
        self._is_on = False
        self._module = 0
        self.hook = CallHook(
            CPUCodeLibrary,
            "_optimize_final_module",
            self._before,
            self._after,
            errors=HookErrors(),
            mutes=False,
        )

    def _before(self, args: tuple[object, ...], kwargs: object) -> None:
        self._is_on = True
        self._module = id(args[0])
        try:
            self._real = os.dup(STDERR)
        except OSError:
            # Closed, as in a process without a console.
            self._real = None
        os.dup2(self._file.fileno(), STDERR)
        _switch(self._pattern)

    def _after(self, args: object, kwargs: object, out: object, failed: bool) -> None:
        self.finish()

    def finish(self) -> None:
        """Put all back and read what was written; also after an interrupted start."""
        if not self._is_on:
            return
        self._is_on = False
        _switch(_OFF)
        written = self._read(0)
        remarks, rest = parse(written)
        if self._real is None:
            os.close(STDERR)
        else:
            # Before what is written next, and then what came in between.
            _write(self._real, rest)
            os.dup2(self._real, STDERR)
            _write(self._real, self._read(len(written)))
            os.close(self._real)
        self._file.seek(0)
        self._file.truncate()
        for remark in remarks:
            self._take(replace(remark, module=self._module))

    def _read(self, start: int) -> bytes:
        """Return the file from ``start`` on; its position is where others write."""
        descriptor = self._file.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size - start, start)


def _switch(pattern: str) -> None:
    for option in _OPTIONS:
        llvm.set_option("", f"--{option}={pattern}")


def _write(descriptor: int, data: bytes) -> None:
    """Write past Python's buffers, as it was written first."""
    while data:
        data = data[os.write(descriptor, data) :]
