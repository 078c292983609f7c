"""What ``numbaprof ab`` compares: directories, git refs, Python executables.

A git ref is checked out into a temporary worktree, which is removed again whatever
happens. A worktree shares the repository's objects and leaves the user's checkout,
index and branches alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from numbaprof.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Side", "opened"]

PYTHON_PREFIXES = ("python", "pypy")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two things to compare, ready to run."""

    name: str
    """As given."""
    kind: str
    """directory, git ref, python."""
    root: Path
    """Where pytest runs; the code under test is found there first."""
    python: str
    commit: str = ""

    @property
    def import_paths(self) -> list[str]:
        """Folders that the code under test may be imported from."""
        if self.kind == "python":
            return []
        source = self.root / "src"
        found = [str(self.root)]
        return [str(source), *found] if source.is_dir() else found


@contextmanager
def opened(names: Sequence[str]) -> Iterator[list[Side]]:
    """Make the sides ready, and remove what was made for them.

    Parameters
    ----------
    names : sequence of str
        A directory, a Python executable (with a path, or ``python...``), or anything
        that git knows as a commit.

    Raises
    ------
    OptionError
        A name is none of these.
    """
    with tempfile.TemporaryDirectory(prefix="numbaprof-ab-") as folder:
        added: list[Path] = []
        try:
            yield [
                _side(name, Path(folder, f"side{number}"), added)
                for number, name in enumerate(names)
            ]
        finally:
            for worktree in added:
                _git("worktree", "remove", "--force", str(worktree))
            if added:
                _git("worktree", "prune")


def _side(name: str, place: Path, added: list[Path]) -> Side:
    if os.path.isdir(name):
        root = Path(name).resolve()
        return Side(name, "directory", root, sys.executable, _state_of(root))
    python = _executable(name)
    if python:
        here = Path.cwd()
        return Side(name, "python", here, python, _state_of(here))
    commit = _output("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if not commit:
        where = "" if _output("rev-parse", "--git-dir") else (
            f"; {Path.cwd()} is in no git repository"
        )  # fmt: skip
        raise OptionError(
            f"{name!r} is no directory, no Python executable and no commit that git "
            f"knows here{where}; in a shallow clone fetch it first"
        )
    # Before it is made: an interrupt in between must not leave it behind.
    added.append(place)
    done = _git("worktree", "add", "--detach", "--force", str(place), commit)
    if done.returncode:
        raise OptionError(f"git cannot check out {name!r}: {done.stderr.strip()}")
    # Run where the user is, if that is below the top of the repository.
    root = place / (_output("rev-parse", "--show-prefix") or "")
    if not root.is_dir():
        raise OptionError(f"{name!r} has no folder {root.relative_to(place)}")
    return Side(name, "git ref", root.resolve(), sys.executable, commit)


def _executable(name: str) -> str:
    """Return the path of a Python executable, "" if that is not what was given."""
    if os.sep in name or name.startswith(PYTHON_PREFIXES):
        path = shutil.which(name)
        if path and os.path.isfile(path):
            # Not resolved: a virtual environment is found by its link's own place.
            return os.path.abspath(path)
    return ""


def _state_of(root: Path) -> str:
    """Return the commit of a folder and a hash of what differs from it, if anything."""
    commit = _output("rev-parse", "HEAD", cwd=root)
    if not commit:
        return ""
    changes = _output("diff", "HEAD", cwd=root)
    if changes:
        digest = hashlib.sha256(changes.encode(errors="replace")).hexdigest()[:12]
        return f"{commit}+{digest}"
    return commit


def _output(*arguments: str, cwd: Path | None = None) -> str:
    """Return what git prints, "" if it fails or is not there."""
    done = _git(*arguments, cwd=cwd)
    return done.stdout.strip() if done.returncode == 0 else ""


def _git(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    try:
        return subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, errors="replace",
            check=False, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
