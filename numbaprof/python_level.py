"""The Python level of a session: a tracer, the rows it books on, what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numbaprof.cprofile_bridge import make_tracer
from numbaprof.model import BackendInfo, PythonRow, SignatureLevel
from numbaprof.native.numba_api import first_line
from numbaprof.rowbook import RowBook
from numbaprof.signatures import Level, Sizes

if TYPE_CHECKING:
    from numbaprof.cprofile_bridge import Tracer
    from numbaprof.model import RowKind
    from numbaprof.native.engine import Engine
    from numbaprof.rowbook import Row
    from numbaprof.tree import Folded

__all__ = ["PythonLevel", "first_line", "missing_engine"]

_LEVEL_NAMES: dict[Level, SignatureLevel] = {
    Level.SHAPE: "shape",
    Level.NDIM: "ndim",
    Level.TYPE: "type",
    Level.NONE: "none",
}


def missing_engine() -> str:
    """Return why there is no engine to measure Python calls with, "" if there is one.

    Builds it if this process has not done so yet.
    """
    from numbaprof.native.shared import shared_engine

    shared = shared_engine()
    return shared.reason if shared.engine is None else ""


class PythonLevel:
    """Traces Python and builtin calls of one session.

    Parameters
    ----------
    engine : Engine
        On whose stack the calls go.
    level : Level
        The finest level of signatures.
    builtins : bool
        Book calls of C functions too.

    Raises
    ------
    UnsupportedError
        NUMBAPROF_BACKEND forces a backend that does not work here.
    """

    def __init__(self, engine: Engine, level: Level, *, builtins: bool = True) -> None:
        self.book = RowBook(engine.new_row, level)
        self._tracer: Tracer = make_tracer(engine, self.book, builtins=builtins)
        self._running = False

    @property
    def backend(self) -> BackendInfo:
        """How calls are seen, and why that way."""
        return self._tracer.backend

    @property
    def problems(self) -> list[str]:
        """What went wrong inside the tracer."""
        return self._tracer.problems

    def start(self) -> None:
        """Begin to see calls.

        Raises
        ------
        ActiveSessionError
            Another profiler has the place that is needed.
        UnsupportedError
            Nothing can be seen here.
        """
        self._running = True
        self._tracer.start()

    def stop(self) -> None:
        """See no more calls; nothing happens when none are seen."""
        if self._running:
            self._tracer.stop()
            self._running = False

    def reset_after_fork(self) -> None:
        """Forget the parent's sizes; its calls are in the parent's tree."""
        for row in self.book.rows:
            if row.sizes is not None:
                row.sizes = Sizes()

    # -- results ----------------------------------------------------------------------

    def addresses(self) -> dict[int, tuple[int, RowKind]]:
        """Map the address of each row to its index and kind."""
        return {
            row.address: (index, row.kind) for index, row in enumerate(self.book.rows)
        }

    def rows(self, folded: Folded) -> tuple[PythonRow, ...]:
        """Return every row with its sums, in the order of their first calls."""
        return tuple(
            _freeze(row, folded, index) for index, row in enumerate(self.book.rows)
        )


def _freeze(row: Row, folded: Folded, index: int) -> PythonRow:
    totals = folded.rows[index]
    return PythonRow(
        file=row.file,
        line=row.line,
        name=row.name,
        qualname=row.qualname,
        kind=row.kind,
        signature=row.signature,
        level=_LEVEL_NAMES[row.level],
        arguments=row.arguments,
        calls=totals.calls,
        primitive_calls=totals.primitive_calls,
        inclusive_ns=totals.inclusive_ns,
        exclusive_ns=totals.exclusive_ns,
        overflow="" if row.sizes is None else str(row.sizes),
    )
