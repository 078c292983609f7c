"""Runs programs under ``numbaprof run`` in processes of their own.

With the false Numba of ``tests/fakes`` a run takes a fraction of a second; what is
counted are calls of ``numba.kernel()``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numbaprof.model import ProfileResult

TESTS = Path(__file__).parent
ROOT = TESTS.parent
STARTUP_FILE = ROOT / "numbaprof" / "numbaprof_children.pth"
TIMEOUT_S = 120
"""Only ends what hangs."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    exit_code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def result(self) -> ProfileResult:
        """The profile that the run saved."""
        return store.load(self.output)

    @property
    def calls(self) -> int:
        """Calls of all overloads in the profile."""
        return sum(overload.calls or 0 for overload in self.result.overloads)


class Runner:
    """Runs programs that live in one folder.

    Parameters
    ----------
    folder : Path
        Working directory; ``p.json`` in it is the profile of the last run.
    fake : bool
        Use the false Numba.
    """

    def __init__(self, folder: Path, *, fake: bool = True) -> None:
        self.folder = folder
        self.output = folder / "p.json"
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "NUMBAPROF"))
        }
        site = folder / "site"
        site.mkdir()
        (site / STARTUP_FILE.name).write_text(STARTUP_FILE.read_text())
        # Directly below the system's: sockets of multiprocessing lie in it, and a
        # path may have no more than 107 bytes.
        self._temporary = tempfile.mkdtemp(prefix="np-")
        weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        fakes = TESTS / "fakes" if fake else folder / "startup"
        self.environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, (fakes, TESTS, ROOT))),
            "FAKE_SITE": str(site),
            "TMPDIR": self._temporary,
            "NO_COLOR": "1",
        }
        if not fake:
            fakes.mkdir()
            lines = "import os, site\nsite.addsitedir(os.environ['FAKE_SITE'])\n"
            (fakes / "sitecustomize.py").write_text(lines)

    def write(self, source: str, name: str = "script.py") -> Path:
        """Write a program."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path

    def python(self, *arguments: str | Path, **options: Any) -> Run:
        """Run plain Python."""
        return self._run([sys.executable, *arguments], options)

    def numbaprof(self, *arguments: str | Path, **options: Any) -> Run:
        """Run ``python -m numbaprof``."""
        return self._run([sys.executable, "-m", "numbaprof", *arguments], options)

    def profile(self, *arguments: str | Path, **options: Any) -> Run:
        """Run ``numbaprof run -q -o p.json``; relative arguments are the program."""
        return self.numbaprof("run", "-q", "-o", self.output, *arguments, **options)

    def _run(self, command: Sequence[str | Path], options: dict[str, Any]) -> Run:
        environment = self.environment | options.pop("environment", {})
        done = subprocess.run(
            list(map(str, command)),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            **({"stdin": subprocess.DEVNULL} if "input" not in options else {}),
            **options,
        )
        return Run(done.returncode, done.stdout, done.stderr, self.output)

    def left_in_temporary_folder(self) -> list[str]:
        """Return the names of what was not cleaned up."""
        return sorted(path.name for path in Path(self._temporary).iterdir())
