"""Doing something before SIGTERM ends the process."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

from numbaprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from numbaprof.native.deadline import Deadline

__all__ = ["SigtermHandler"]


class SigtermHandler:
    """Calls back when SIGTERM arrives; the process then ends as it would have.

    Parameters
    ----------
    callback : callable
        Runs in the main thread, as soon as that is back in Python. It returns True
        when the process may end now, False when :meth:`end` will be called.

    Notes
    -----
    A process whose main thread stays in compiled code for two seconds ends without the
    callback, see :mod:`numbaprof.native.deadline`. Where there is no such deadline the
    signal is left alone.
    """

    def __init__(self, callback: Callable[[], bool]) -> None:
        self._callback = callback
        self._deadline: Deadline | None = None

    def install(self) -> None:
        """Handle the signal, unless the program does; only the main thread can."""
        if (
            self._deadline is not None
            or threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            return
        # llvmlite is imported here, with Numba, and not before the program does it.
        from numbaprof.native.deadline import Deadline

        try:
            deadline = Deadline(signal.SIGTERM)
        except UnsupportedError:
            return
        signal.signal(signal.SIGTERM, self._handle)
        deadline.install()
        self._deadline = deadline

    def renew_after_fork(self) -> None:
        """Go on in a forked child."""
        if self._deadline is not None:
            self._deadline.renew_after_fork()

    def restore(self) -> None:
        """Put the default back, unless somebody has set another handler since."""
        if (
            self._deadline is None
            or threading.current_thread() is not threading.main_thread()
        ):
            return
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._deadline.remove()
        self._deadline = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._deadline is not None:
            self._deadline.lift()
        if self._callback():
            self.end()

    def end(self) -> None:
        """End the process with the status of one that did not handle the signal."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
