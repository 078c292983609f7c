"""From sampled addresses to lines of overloads.

An address in compiled code has *frames*: the line it came from and, where that was
inlined, the lines it was inlined into. Each frame becomes a
:class:`~numbaprof.model.LineSite`: a line of an overload, if it is known which.

Whose line it is
----------------
1. The function that the machine code belongs to is known by its symbol.
2. What was inlined, or compiled apart (the body of a ``prange`` loop), belongs to the
   function whose source the line is in; if that has several overloads, to the one whose
   machine code it is in or which links it, and else to none in particular.
3. Anything else is itself: a function of Numba, or one that was never jitted.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from numbaprof.model import FunctionId, LineSite, SampledStack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numbaprof.model import SampleBin

__all__ = [
    "Frame",
    "LineResolver",
    "Owner",
    "Owners",
    "PhysicalFrame",
    "ResolvedStack",
    "SourceRange",
    "source_line",
]

_WRAPPERS = (
    ("_ZN7cpython", "_ZN"),
    ("cfunc.", ""),
    ("__ufunc__.", ""),
    ("__gufunc__.", ""),
)
"""How Numba names what converts arguments for a function or loops over arrays with it,
from the function's own name (``numba/core/funcdesc.py``, ``numba/np/ufunc``)."""

Owner = tuple[FunctionId, str]
"""Function and signature of an overload."""


class Frame(Protocol):
    """One function at one line, as a line table tells it."""

    @property
    def file(self) -> str:
        """Source file."""

    @property
    def line(self) -> int:
        """1-based; 0 when unknown."""

    @property
    def function(self) -> str:
        """Name in the debug information."""

    @property
    def inlined(self) -> bool:
        """Whether its code is part of the next frame's."""


@dataclass(frozen=True, slots=True)
class PhysicalFrame:
    """One frame of the machine stack."""

    symbol: str
    """"" when the object names nothing there."""
    frames: tuple[Frame, ...]
    """Innermost first; empty without a line."""
    linked_from: tuple[str, ...] = ()
    """Symbols of overloads in objects that refer to this one's."""


class ResolvedStack(Protocol):
    """A counted stack before its lines are known."""

    @property
    def count(self) -> int:
        """Samples."""

    @property
    def thread(self) -> str:
        """Name."""

    @property
    def bin(self) -> SampleBin:
        """``function`` where there is compiled code."""

    @property
    def callee(self) -> str:
        """What ran below compiled code."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The lines of a jitted function's source."""

    file: str
    first: int
    last: int
    function: FunctionId


@dataclass(slots=True)
class Owners:
    """Which overload machine code and source lines belong to."""

    by_symbol: Mapping[str, Owner] = field(default_factory=dict)
    ranges: Iterable[SourceRange] = ()
    overloads: Iterable[Owner] = ()
    """All there are, with and without a known symbol."""
    _by_file: dict[str, list[SourceRange]] = field(init=False, default_factory=dict)
    _signatures: dict[FunctionId, set[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for source in self.ranges:
            self._by_file.setdefault(source.file, []).append(source)
        for function, signature in (*self.by_symbol.values(), *self.overloads):
            self._signatures.setdefault(function, set()).add(signature)

    def of_symbol(self, symbol: str) -> Owner | None:
        """Return the overload that a symbol is of: its code, or a wrapper of that."""
        for name in (symbol, *(symbol.replace(a, b, 1) for a, b in _WRAPPERS)):
            if name in self.by_symbol:
                return self.by_symbol[name]
        return None

    def has_file(self, file: str) -> bool:
        """Tell whether a jitted function of the user's is in a file."""
        return file in self._by_file

    def of_line(self, file: str, line: int) -> FunctionId | None:
        """Return the innermost jitted function whose source has a line."""
        fits = [s for s in self._by_file.get(file, ()) if s.first <= line <= s.last]
        if not fits:
            return None
        return min(fits, key=lambda s: s.last - s.first).function

    def signature_of(self, function: FunctionId, near: Sequence[Owner]) -> str:
        """Choose the overload of a function; "" if that cannot be known."""
        for owner, signature in near:
            if owner == function:
                return signature
        signatures = self._signatures.get(function, set())
        return next(iter(signatures)) if len(signatures) == 1 else ""


def source_line(site: LineSite) -> str:
    """Return the text of a line; "" where the source is not to be had."""
    text = linecache.getline(site.file or site.function.file, site.line)
    return text.rstrip("\r\n").expandtabs()


class LineResolver:
    """Turns stacks of addresses into stacks of lines, and collects the lines.

    Parameters
    ----------
    owners : Owners
        Whose is what.
    is_internal : callable
        Takes a file name; tells whether it is Numba's own.
    """

    def __init__(self, owners: Owners, is_internal: Callable[[str], bool]) -> None:
        self._owners = owners
        self._is_internal = is_internal
        self._sites: dict[LineSite, int] = {}
        self._cache: dict[PhysicalFrame, tuple[LineSite, ...]] = {}

    @property
    def sites(self) -> tuple[LineSite, ...]:
        """Every line seen so far; stacks refer to them by position."""
        return tuple(self._sites)

    def place(self, site: LineSite) -> int:
        """Return the position of a line, a new one if need be."""
        return self._sites.setdefault(site, len(self._sites))

    def stack(
        self, resolved: ResolvedStack, frames: Sequence[PhysicalFrame]
    ) -> SampledStack:
        """Return one counted stack.

        Parameters
        ----------
        resolved : ResolvedStack
            Count, thread, callee; its bin is kept when there are no frames.
        frames : sequence of PhysicalFrame
            Of compiled code, innermost first.
        """
        sites: list[LineSite] = []
        for frame in reversed(frames):
            sites += self._sites_of(frame)
        sites = _without_lost(sites)
        bin_: SampleBin = resolved.bin
        if sites:
            shown = [site for site in sites if not site.internal] or sites
            bin_ = "line" if shown[-1].line else "function"
        return SampledStack(
            count=resolved.count,
            bin=bin_,
            thread=resolved.thread,
            frames=tuple(self.place(site) for site in sites),
            callee=resolved.callee if sites or bin_ != "unresolved" else "",
        )

    def _sites_of(self, frame: PhysicalFrame) -> tuple[LineSite, ...]:
        """Return the lines of one machine frame, outermost first."""
        if frame not in self._cache:
            self._cache[frame] = tuple(self._resolve(frame))
        return self._cache[frame]

    def _resolve(self, frame: PhysicalFrame) -> Iterable[LineSite]:
        owner = self._owners.of_symbol(frame.symbol)
        near = [owner] if owner else []
        for symbol in frame.linked_from:
            if linked := self._owners.of_symbol(symbol):
                near.append(linked)
        if not frame.frames:
            yield self._whole_function(frame.symbol, owner)
            return
        for source in reversed(frame.frames):
            yield self._line(source, owner, near)

    def _whole_function(self, symbol: str, owner: Owner | None) -> LineSite:
        if owner:
            return LineSite(owner[0], owner[1], 0)
        function = FunctionId("", symbol or "unknown code", "", 0)
        return LineSite(function, "", 0, internal=True)

    def _line(
        self, source: Frame, owner: Owner | None, near: Sequence[Owner]
    ) -> LineSite:
        file, line = source.file, source.line
        internal = self._is_numba(file)
        is_owned = owner is not None and not source.inlined and file.startswith("<")
        if owner and is_owned and (internal or file != owner[0].file):
            # A wrapper: it converts the arguments of its owner.
            return LineSite(owner[0], owner[1], 0)
        function = None if internal else self._owners.of_line(file, line)
        if owner and not source.inlined and not internal:
            # A lifted loop has lines of its function, and is one of its own.
            function = owner[0]
        if function is None:
            function = FunctionId("", source.function, file, 0)
            return LineSite(
                function, "", line, internal=internal, inlined=source.inlined
            )
        return LineSite(
            function,
            self._owners.signature_of(function, near),
            line,
            file="" if file == function.file else file,
            inlined=source.inlined,
        )

    def _is_numba(self, file: str) -> bool:
        if self._owners.has_file(file):
            return False
        return self._is_internal(file) or file.startswith("<") or not file


def _without_lost(sites: list[LineSite]) -> list[LineSite]:
    """Leave out frames without a line whose time another frame stands for.

    Helpers of the run time (reference counts) have no lines: what they do is done for
    the line above them. A wrapper has none either, and only calls what has.
    """
    with_lines = {(s.function, s.signature) for s in sites if s.line}
    kept: list[LineSite] = []
    for site in sites:
        owner = (site.function, site.signature)
        is_lost = bool(kept) if site.internal else owner in with_lines
        if site.line or not is_lost:
            kept.append(site)
    return kept
