"""``numbaprof.Profile``: in the place of cProfile's and of Anaconda Accelerate's.

What is measured is a session with ``python=True``; here it is told in the terms of
:mod:`cProfile`, so that :mod:`pstats` and all that reads its files work on it. Compiled
functions are rows like the others, one per overload.
"""

from __future__ import annotations

import _lsprof
import cProfile
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from numbaprof.call_graph import Calls, Entry, Key, build_call_graph
from numbaprof.errors import OptionError, SessionStateError, UnsupportedError
from numbaprof.python_level import first_line
from numbaprof.session import Session, SessionOptions
from numbaprof.signatures import Level, Style, label

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from numbaprof.model import ArgType, OverloadStats, ProfileResult, PythonRow

__all__ = ["Code", "Profile"]

NS_PER_SECOND = 1e9
BUILTIN_FILE = "~"
DISABLE = "<method 'disable' of '_lsprof.Profiler' objects>"
"""How cProfile shows the call that ends profiling."""
STYLES = ("numba", "accelerate")


class _Label(NamedTuple):
    """What pstats knows a function by."""

    file: str
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Code:
    """Stands for a code object in the entries of :meth:`Profile.getstats`."""

    co_filename: str
    co_firstlineno: int
    co_name: str
    """With the signature, if there is one."""


class Profile(cProfile.Profile):
    """Profile Python, builtins and compiled functions, split by signature.

    Parameters
    ----------
    custom_timer : callable, optional
        As in cProfile; needs ``signatures=False``, and leaves compiled functions out.
    time_unit : float, optional
        Seconds per unit of an integer ``custom_timer``.
    subcalls : bool
        Keep who called whom.
    builtins : bool
        See functions written in C.
    signatures : {True, "shape", "ndim", "type", False}
        What tells rows of one function apart; False makes the table of cProfile.
    style : {"numba", "accelerate"}
        How signatures are written: ``dot(a: float32[16])``, or as Anaconda Accelerate's
        profiler did, ``dot(a:ndarray(dtype=float32, shape=(16,)))``.

    Attributes
    ----------
    backend : str
        How calls were seen; "" before the first run.
    reason : str
        Why it was not the best way, else "".

    Raises
    ------
    OptionError
        A value that cannot be had, with the reason.

    Notes
    -----
    Unlike cProfile it follows every thread that starts while it is enabled, each with a
    stack of its own. Numba's compiling is one row, ``{numba compile}``.
    """

    def __init__(
        self,
        custom_timer: Callable[[], float] | None = None,
        time_unit: float | None = None,
        subcalls: bool = True,
        builtins: bool = True,
        signatures: bool | str = True,
        *,
        style: Style = "numba",
    ) -> None:
        self._level = Level.of(signatures)
        _check_timer(custom_timer, time_unit, self._level)
        if style not in STYLES:
            raise OptionError(f"style={style!r} must be one of {', '.join(STYLES)}")
        if custom_timer is None:
            super().__init__(subcalls=subcalls, builtins=builtins)
        else:
            super().__init__(custom_timer, time_unit or 0.0, subcalls, builtins)
        self._plain = custom_timer is not None
        self._subcalls, self._builtins = subcalls, builtins
        self._style: Style = style
        self._session: Session | None = None
        self._result: ProfileResult | None = None
        self._ends: Counter[_Label | None] = Counter()
        self.backend = ""
        self.reason = ""
        if self._plain:
            self.backend, self.reason = "cProfile", "it was given a custom_timer"

    # -- running ----------------------------------------------------------------------

    def enable(
        self, subcalls: bool | None = None, builtins: bool | None = None
    ) -> None:
        """Begin, or go on; nothing happens when it is enabled already.

        Raises
        ------
        ActiveSessionError
            Another session or profiler is in the way.
        UnsupportedError
            Signatures were asked for, and there is no engine to measure with.
        """
        if subcalls is not None:
            self._subcalls = bool(subcalls)
        if builtins is not None:
            self._builtins = bool(builtins)
        if not self._plain and self._session is None:
            self._choose()
        if self._plain:
            super().enable(self._subcalls, self._builtins)
        elif self._session is None:
            session = Session(
                SessionOptions(
                    python=True,
                    signatures=False
                    if self._level is Level.NONE
                    else _name(self._level),
                    builtins=self._builtins,
                )
            )
            session.start()
            self._session = session

    def _choose(self) -> None:
        """Fall back to cProfile itself where there is no engine."""
        from numbaprof.python_level import missing_engine

        reason = missing_engine()
        if not reason:
            return
        if self._level is not Level.NONE:
            raise UnsupportedError(
                f"signatures cannot be measured here: {reason}; "
                "signatures=False uses cProfile"
            )
        self._plain, self.backend, self.reason = True, "cProfile", reason

    def disable(self) -> None:
        """Stop; nothing happens when it is not enabled."""
        if self._plain:
            super().disable()
            return
        session, self._session = self._session, None
        if session is None:
            return
        result = session.stop()
        caller = sys._getframe(1).f_code
        self._ends[
            _Label(caller.co_filename, caller.co_firstlineno, caller.co_name)
        ] += 1
        self._result = result if self._result is None else self._result + result
        info = result.processes[0].environment.backends[-1]
        self.backend, self.reason = info.backend, info.reason

    def clear(self) -> None:
        """Forget what was measured so far; go on if it is enabled."""
        if self._plain:
            super().clear()
            return
        enabled = self._session is not None
        self.disable()
        self._result = None
        self._ends.clear()
        if enabled:
            self.enable()

    @property
    def result(self) -> ProfileResult:
        """The profile in numbaprof's own terms.

        Raises
        ------
        SessionStateError
            Nothing was measured, or cProfile itself measured.
        """
        if self._result is None:
            reason = self.reason or "it was not enabled, or is enabled still"
            raise SessionStateError(f"this profile has no result: {reason}")
        return self._result

    @property
    def functions(self) -> pd.DataFrame:
        """All functions as a table; see :attr:`numbaprof.ProfileResult.functions`."""
        return self.result.functions

    # -- results in cProfile's terms --------------------------------------------------

    def getstats(self) -> list[Any]:
        """Return what was measured until the last :meth:`disable`.

        Returns
        -------
        list of profiler_entry
            As :meth:`cProfile.Profile.getstats` does: ``code``, ``callcount``,
            ``reccallcount``, ``totaltime``, ``inlinetime`` and ``calls``, the last with
            entries of what was called. ``code`` is a text for builtins, else a
            :class:`Code`.
        """
        if self._plain:
            return super().getstats()
        if self._result is None:
            return []
        result = self._result
        names = [self._label_row(row) for row in result.python_rows]
        overloads = [self._label_overload(overload) for overload in result.overloads]

        def label_of(key: Key) -> _Label:
            if key.kind == "row":
                return names[key.number]
            if key.kind == "overload":
                return overloads[key.number]
            return _Label(BUILTIN_FILE, 0, f"<numba {key.kind.replace('_', ' ')}>")

        entries = build_call_graph(result, group=label_of)
        if self._level is Level.NONE and self._builtins:
            _add_ends(entries, self._ends)
        return _to_entries(entries, with_calls=self._subcalls)

    def _label_row(self, row: PythonRow) -> _Label:
        if row.kind == "builtin" or self._level is Level.NONE:
            return _Label(row.file, row.line, row.name)
        if self._style == "numba":
            return _Label(row.file, row.line, row.name + row.signature)
        level = Level[row.level.upper()]
        others = level is not self._level
        text = label(row.name, row.arguments, level, style=self._style, others=others)
        return _Label(row.file, row.line, text)

    def _label_overload(self, overload: OverloadStats) -> _Label:
        function = overload.function
        name = function.qualname.rpartition(".")[2]
        if self._level is not Level.NONE:
            if self._style == "accelerate":
                name += f"({', '.join(map(_accelerate_text, overload.args))})"
            else:
                name += overload.signature
            name += " [numba]"
        # As cProfile has it, and the row of the same function when Python runs it.
        return _Label(function.file, first_line(function.file, function.line), name)


def _name(level: Level) -> str:
    return level.name.lower()


def _check_timer(timer: object, unit: float | None, level: Level) -> None:
    if timer is None:
        if unit:
            raise OptionError(
                f"time_unit={unit!r} is the unit of a custom_timer: give one"
            )
        return
    if not callable(timer):
        raise OptionError(f"custom_timer={timer!r} must be callable")
    if level is not Level.NONE:
        raise OptionError(
            "a custom_timer cannot be had together with signatures: calls are timed in "
            "machine code, without calling Python; add signatures=False"
        )


def _accelerate_text(arg: ArgType) -> str:
    if arg.kind == "array":
        return f"{arg.name}:ndarray(dtype={arg.dtype}, ndim={arg.ndim})"
    return f"{arg.name}:{arg.text}"


def _add_ends(
    entries: dict[_Label, Entry[_Label]], ends: Counter[_Label | None]
) -> None:
    """Add the calls that ended profiling, which cProfile shows as well."""
    entry: Entry[_Label] = Entry()
    for caller, number in ends.items():
        entry.calls += number
        entry.primitive_calls += number
        if caller in entries:
            entry.callers[caller] = Calls(number, number)
    if entry.calls:
        entries[_Label(BUILTIN_FILE, 0, DISABLE)] = entry


def _to_entries(entries: dict[_Label, Entry[_Label]], *, with_calls: bool) -> list[Any]:
    codes: dict[_Label, Any] = {
        name: name.name if name.file == BUILTIN_FILE else Code(*name)
        for name in entries
    }
    called: dict[_Label, list[Any]] = defaultdict(list)
    for name, entry in entries.items():
        for caller, calls in entry.callers.items():
            figures = (codes[name], *_figures(calls))
            called[caller].append(_lsprof.profiler_subentry(figures))
    return [
        _lsprof.profiler_entry(
            (
                codes[name],
                *_figures(entry),
                (called.get(name) or None) if with_calls else None,
            )
        )
        for name, entry in entries.items()
    ]


def _figures(calls: Calls) -> tuple[int, int, float, float]:
    return (
        calls.calls,
        calls.calls - calls.primitive_calls,
        calls.inclusive_ns / NS_PER_SECOND,
        calls.exclusive_ns / NS_PER_SECOND,
    )
