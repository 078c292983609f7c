"""``numbaprof.lines``: which line of a jitted function takes the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numbaprof import line_hits
from numbaprof.errors import OptionError
from numbaprof.session import Session, profile

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["lines"]


class lines(profile):  # used like a function, as `profile` is
    """Profile a function, or a block, line by line.

    Times are sampled while the unchanged, optimised code runs, and say how far they may
    be off. Hits are exact: with ``hits=True`` each call is made twice, first in a build
    that counts, on copies of the arguments, then as ever.

    Parameters
    ----------
    func : callable, optional
        What to call. Without it the object is a context manager or a decorator.
    hits : bool, optional
        Count how often each line is run; ``func`` must be a jitted function.
    **options
        Fields of :class:`numbaprof.session.SessionOptions`; ``interval`` is the CPU
        time between two samples in seconds.

    Raises
    ------
    TargetError
        ``func`` cannot be called, or not counted.
    UnsupportedError
        Hits were asked for, and NUMBA_DISABLE_JIT is set.
    OptionError
        An option does not exist or has a value it cannot have.

    Examples
    --------
    >>> p = numbaprof.lines(kernel, hits=True)
    >>> value = p(a, b)
    >>> print(p)
    >>> p.lines
    """

    def __init__(
        self,
        func: Callable[..., Any] | None = None,
        *,
        hits: bool = False,
        **options: Any,
    ) -> None:
        if options.get("lines") is False:
            raise OptionError("lines() samples lines; use profile() to leave them out")
        if not isinstance(hits, bool):
            raise OptionError(f"hits={hits!r} must be True or False")
        super().__init__(func, **(options | {"lines": True}))
        if hits and func is not None:
            line_hits.refuse_uncountable(func)
        self._hits = hits
        self._first: Session | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function and return its value; see :class:`profile`."""
        if self._func is None or not self._hits or self._running is not None:
            return super().__call__(*args, **kwargs)
        # Before the timed run, which may write to its arguments.
        counted = line_hits.count_run(
            self._func, args, kwargs, self._new_session().registry
        )
        try:
            return super().__call__(*args, **kwargs)
        finally:
            if self._result is not None:
                self._result = line_hits.add_hits(self._result, counted)

    def _new_session(self) -> Session:
        # One registry for all: hits and samples of all calls name functions alike.
        session = Session(self._options, after=self._first)
        if self._first is None:
            self._first = session
        return session

    def _around(self, func: Callable[..., Any]) -> profile:
        return lines(func, hits=self._hits, **self._given_options())

    def report(self, **options: Any) -> str:
        """Return the lines as plain text.

        Parameters
        ----------
        **options
            As of :meth:`ProfileResult.report`; ``lines_only=False`` for all of it.
        """
        return super().report(**({"lines_only": True} | options))
