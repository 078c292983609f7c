"""Keeps the object files of twins on disk, so that a twin is compiled only once.

One file each, named by a digest of the machine code and of the function it was compiled
from, so that equal code of two functions stays apart. Equal code does not mean equal
lines: a comment added above moves all of them. So a file also holds the digest of every
source file that its lines are in, and is used only if these are unchanged, and were
unchanged since before this process began, because what a process runs is what it
imported. A file has two lines of text, then the object file::

    numbaprof twin 1
    {"files": {path: sha256}, "numba": version, "sha256": digest of the object file}

Anything else in the folder (truncated, foreign, of another version) is no twin and is
left alone; a file of ours that cannot be used is replaced when the twin is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.errors import UnsupportedError
from numbaprof.native import call_lines, numba_api
from numbaprof.native.objcode import JitObject

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CACHE_VARIABLE", "TwinStore", "cache_folder"]

CACHE_VARIABLE = "NUMBAPROF_CACHE_DIR"
"""Environment variable: the folder to use; empty to keep nothing on disk."""
SUFFIX = ".twin"
MAGIC = b"numbaprof twin 1\n"
MAX_FILE_BYTES = 64 << 20
"""Larger than any object of a function; not read."""
MAX_FILES = 2_000
"""Kept; of more, those that were not used for longest are deleted."""
CLOCK_MARGIN_S = 2.0
"""How exactly the start of this process is known: ``btime`` has whole seconds."""


def cache_folder() -> Path | None:
    """Return the folder for numbaprof's files of this user, or None to keep none."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        return Path(given) if given else None
    home = Path("~").expanduser()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "numbaprof"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "numbaprof"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else home / ".cache") / "numbaprof"


class TwinStore:
    """Twins in one folder.

    Parameters
    ----------
    folder : Path or None
        Where; None keeps nothing.
    started : float or None, optional
        Time at which this process began, in seconds since 1970; by default found out.
        Source files changed after it are not what runs, and None trusts none of them.
    """

    def __init__(self, folder: Path | None, *, started: float | None = None) -> None:
        self._folder = None if folder is None else folder / "twins"
        self._started = process_started() if started is None else started
        self._digests: dict[str, str | None] = {}

    def load(self, original: JitObject, identity: Iterable[Any]) -> JitObject | None:
        """Return the twin of an object if it is there and its lines still hold.

        Parameters
        ----------
        original : JitObject
            The object without lines.
        identity : iterable
            What tells the function from others with equal code; written as JSON.
        """
        path = self._path(original, identity)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError:
            return None
        twin = self._read(data)
        if twin is not None:
            with contextlib.suppress(OSError):
                # Last used now; the folder may be read-only.
                os.utime(path)
        return twin

    def save(
        self, original: JitObject, identity: Iterable[Any], twin: JitObject
    ) -> str:
        """Keep a twin; return why it was not kept, "" if it was or none are kept.

        Raises nothing: a full or read-only disk is a reason like others.
        """
        path = self._path(original, identity)
        if path is None:
            return ""
        digests = {name: self._digest(name) for name in _user_files(twin)}
        unknown = [name for name, digest in digests.items() if digest is None]
        if unknown:
            return f"{unknown[0]} is no file, or was changed after the program began"
        data = bytes(twin.elf.data)
        header = {
            "files": digests,
            "calls": call_lines.exported(digests),
            "numba": numba_api.version(),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        try:
            _write(path, MAGIC + json.dumps(header).encode() + b"\n" + data)
            self._prune(path.parent)
        except OSError as error:
            return str(error)
        return ""

    def _path(self, original: JitObject, identity: Iterable[Any]) -> Path | None:
        if self._folder is None:
            return None
        key = json.dumps([original.text_sha256, *identity]).encode()
        return self._folder / (hashlib.sha256(key).hexdigest() + SUFFIX)

    def _read(self, data: bytes) -> JitObject | None:
        if len(data) > MAX_FILE_BYTES or not data.startswith(MAGIC):
            return None
        header, _, content = data[len(MAGIC) :].partition(b"\n")
        try:
            facts = json.loads(header)
            files, version, digest = facts["files"], facts["numba"], facts["sha256"]
            unchanged = all(self._digest(name) == files[name] for name in files)
            if unchanged:
                call_lines.adopt(facts["calls"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        is_whole = hashlib.sha256(content).hexdigest() == digest
        if not (is_whole and unchanged and version == numba_api.version()):
            return None
        try:
            return JitObject.from_bytes(content)
        except UnsupportedError:
            return None

    def _digest(self, name: str) -> str | None:
        """Return the digest of a source file; None if it may not be what runs."""
        if name not in self._digests:
            self._digests[name] = self._fresh_digest(name)
        return self._digests[name]

    def _fresh_digest(self, name: str) -> str | None:
        try:
            changed = os.stat(name).st_mtime
            if self._started is None or changed > self._started - CLOCK_MARGIN_S:
                return None
            return hashlib.sha256(Path(name).read_bytes()).hexdigest()
        except OSError:
            return None

    @staticmethod
    def _prune(folder: Path) -> None:
        paths = list(folder.glob("*" + SUFFIX))
        if len(paths) <= MAX_FILES:
            return
        paths.sort(key=lambda path: path.stat().st_mtime)
        for path in paths[: len(paths) - MAX_FILES]:
            path.unlink(missing_ok=True)


def _user_files(twin: JitObject) -> set[str]:
    """Return the source files of a table that Numba's version does not vouch for."""
    names = {file for file, _ in twin.rows().lines()}
    return {
        name
        for name in names
        if not numba_api.is_own_file(name) and not name.startswith("<wrapper")
    }


def _write(path: Path, data: bytes) -> None:
    """Write a file at once or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def process_started() -> float | None:
    """Return when this process began, in seconds since 1970; None where unknown.

    From ``/proc`` (proc(5): field 22 of ``stat`` counts ticks since ``btime``).
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(line for line in lines if line.startswith("btime "))
        return int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, ValueError, IndexError):
        return None
