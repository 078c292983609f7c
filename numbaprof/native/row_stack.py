"""The engine's shadow stack as a tracer written in Python uses it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from numbaprof.native.cpython_api import thread_state
from numbaprof.native.layout import WORD_BYTES, Frame, PseudoSlot, State, Thread

if TYPE_CHECKING:
    from numbaprof.native.engine import Engine

__all__ = ["RowStack"]

_LAST_CLOSED = max(PseudoSlot.COMPILE, PseudoSlot.CACHE_LOAD, PseudoSlot.CACHE_MISS)
"""0 is a pending frame; the pseudo slots up to here are Numba at work."""


class RowStack:
    """Pushes and pops rows, and tells when Numba is at work on top of the stack.

    Parameters
    ----------
    engine : Engine
        Whose stacks these are.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.now = engine.now
        self.enter_row = engine.enter_row
        self.leave_row = engine.leave_row
        self._table = 0
        self._blocks: dict[int, int] = {}

    def is_closed(self) -> bool:
        """Tell whether Numba is dispatching, compiling or loading in this thread.

        Its time has a place of its own then, with all that is called below it.
        """
        block = self._block(thread_state())
        depth = _word(block, Thread.DEPTH) if block else 0
        if depth <= 0:
            return False
        frames = _word(block, Thread.FRAMES)
        top = frames + (depth - 1) * Frame.SIZE * WORD_BYTES
        return (
            _word(top, Frame.SLOT) <= _LAST_CLOSED
            and _word(top, Frame.EPOCH) == self._engine.epoch
        )

    def _block(self, tstate: int) -> int:
        """Find the thread's block, which stays where it is; 0 if there is none yet."""
        table = self._engine.state[State.TABLE]
        if table != self._table:
            # It has grown, or a fork has emptied it.
            self._table = table
            self._blocks.clear()
        block = self._blocks.get(tstate, 0)
        if not block:
            block = self._engine.thread_block(tstate)
            if block:
                self._blocks[tstate] = block
        return block


def _word(address: int, number: int) -> int:
    return ctypes.c_int64.from_address(address + number * WORD_BYTES).value
