"""A session that counts the calls of the false Numba's only kernel."""

import os
import time
from dataclasses import dataclass

import numba
from builders import make_environment, make_overload, make_process, make_result


@dataclass(frozen=True)
class SessionOptions:
    """The options that ``numbaprof run`` gives."""

    label: str = "main"
    detail: tuple[str, ...] = ()
    fingerprints: bool = False
    perf_map: bool = False
    lines: bool = False
    interval: float | None = None


class Session:
    """Reads the counter when it starts and when it stops."""

    def __init__(self, options):
        self.label = options.label
        self.detail = options.detail
        self.before = 0

    def start(self):
        """Begin to measure."""
        if "FAKE_START_FAILS" in os.environ:
            raise RuntimeError("no such processor")
        self.before = numba.calls

    def reset_after_fork(self, label):
        """Forget what the parent had counted."""
        self.label = label
        self.before = numba.calls

    def stop(self, exit=""):
        """Return the profile; what cannot be seen otherwise is in the settings."""
        settings = tuple(("detail", pattern) for pattern in self.detail)
        process = make_process(
            # Two stretches of one process are not the same.
            wall_ns=time.perf_counter_ns(),
            pid=os.getpid(),
            label=self.label,
            exit=exit,
            environment=make_environment(numba_settings=settings),
        )
        overload = make_overload(calls=numba.calls - self.before)
        return make_result(overload, processes=(process,))
