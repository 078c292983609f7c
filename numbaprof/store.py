"""Profiles in files: JSON, written whole or not at all, read with suspicion.

A file is one JSON object::

    {"format": "numbaprof profile", "format_version": 1, "profile": {...}}

``profile`` is a :class:`~numbaprof.model.ProfileResult`, field by field; its schema is
``docs/profile-1.schema.json``. ``format_version`` grows when a field changes its
meaning or goes away, not when one is added, so that a newer numbaprof reads every older
file. A name ending in ``.gz`` is compressed; reading looks at the content instead.

Only JSON is ever read back. A pickle in the place of a profile would run code.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import stat
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.check import misplaced
from numbaprof.errors import FormatError, SaveError
from numbaprof.model import ProfileResult
from numbaprof.schema import Mismatch, from_plain, json_schema, to_plain

if TYPE_CHECKING:
    from os import PathLike

__all__ = [
    "FORMAT_VERSION",
    "SavedProfile",
    "file_schema",
    "from_bytes",
    "load",
    "save",
    "save_or_rescue",
    "to_bytes",
    "write_whole",
]

FORMAT_NAME = "numbaprof profile"
FORMAT_VERSION = 1
GZIP_MAGIC = b"\x1f\x8b"
"""RFC 1952, section 2.3.1."""


@dataclass(frozen=True, slots=True)
class SavedProfile:
    """Where a profile went."""

    path: Path
    problem: str = ""
    """Why ``path`` is not the one that was asked for; "" when it is."""


# -- writing -------------------------------------------------------------------------


def save(result: ProfileResult, path: str | PathLike[str]) -> None:
    """Write a profile.

    The file appears complete or not at all: it is written beside its destination and
    then renamed. Something that is not a regular file (``/dev/stdout``, a named pipe)
    is written to directly.

    Parameters
    ----------
    result : ProfileResult
        The profile.
    path : path-like
        Compressed when it ends in ``.gz``.

    Raises
    ------
    SaveError
        The file could not be written; an older file of that name is untouched.
    """
    compressed = Path(os.path.realpath(path)).suffix == ".gz"
    write_whole(path, _content(result, compressed=compressed), what="profile")


def write_whole(path: str | PathLike[str], content: bytes, *, what: str) -> None:
    """Write a file that appears complete or not at all, as :func:`save` has it.

    Parameters
    ----------
    path : path-like
        What is no regular file is written to directly.
    content : bytes
        All of it.
    what : str
        What it is, for the message: ``the profile could not be written``.

    Raises
    ------
    SaveError
        The file could not be written; an older file of that name is untouched.
    """
    # Through symbolic links, so that the link survives and not the file behind it.
    destination = Path(os.path.realpath(path))
    try:
        if destination.exists() and not stat.S_ISREG(destination.stat().st_mode):
            destination.write_bytes(content)
        else:
            _replace(destination, content)
    except OSError as error:
        raise SaveError(
            error.errno,
            f"the {what} could not be written ({error.strerror}); choose a file in a "
            "folder that exists and that you may write to",
            os.fspath(path),
        ) from error


def to_bytes(result: ProfileResult) -> bytes:
    """Return the compressed content of a file, for :func:`from_bytes`."""
    return _content(result, compressed=True)


def _content(result: ProfileResult, *, compressed: bool) -> bytes:
    document = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "profile": to_plain(result),
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"
    # No time of compression inside: equal profiles make equal files.
    return gzip.compress(text.encode(), mtime=0) if compressed else text.encode()


def _replace(destination: Path, content: bytes) -> None:
    """Write ``content`` to a new file beside ``destination`` and rename it."""
    temporary = destination.with_name(
        f".{destination.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    )
    try:
        # Mode "x": an ordinary file with the permissions the umask gives, unlike
        # tempfile's, which nobody else may read.
        with temporary.open("xb") as file:
            file.write(content)
        os.replace(temporary, destination)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def save_or_rescue(result: ProfileResult, path: str | PathLike[str]) -> SavedProfile:
    """Write a profile to ``path``, else to a new file in the temporary folder.

    A run that took an hour is not lost because its output folder is gone.

    Parameters
    ----------
    result : ProfileResult
        The profile.
    path : path-like
        Where it should go.

    Returns
    -------
    SavedProfile
        Where it went, and what stood in the way.

    Raises
    ------
    SaveError
        The temporary folder could not be written to either.
    """
    try:
        save(result, path)
    except SaveError as error:
        suffix = ".json.gz" if Path(path).suffix == ".gz" else ".json"
        name = f"numbaprof-{os.getpid()}-{secrets.token_hex(4)}{suffix}"
        rescue = Path(tempfile.gettempdir(), name)
        save(result, rescue)
        return SavedProfile(path=rescue, problem=str(error))
    return SavedProfile(path=Path(path))


# -- reading -------------------------------------------------------------------------


def load(path: str | PathLike[str]) -> ProfileResult:
    """Read a profile.

    Parameters
    ----------
    path : path-like
        A file that :func:`save` wrote, compressed or not.

    Returns
    -------
    ProfileResult
        Equal to the one that was saved.

    Raises
    ------
    OSError
        There is no such file, or it may not be read.
    FormatError
        It is not a profile, is damaged, or a newer numbaprof wrote it.
    """
    return from_bytes(Path(path).read_bytes(), os.fspath(path))


def from_bytes(content: bytes, name: str) -> ProfileResult:
    """Read a profile from the content of a file.

    Parameters
    ----------
    content : bytes
        Compressed or not.
    name : str
        What to call it in an error.

    Raises
    ------
    FormatError
        As of :func:`load`.
    """
    document = _read_json(name, content)
    if not isinstance(document, dict) or document.get("format") != FORMAT_NAME:
        raise FormatError(
            f"{name}: not a profile of numbaprof: it is JSON, but not an object with "
            f'"format": "{FORMAT_NAME}"; give a file made by `numbaprof run -o` or '
            "ProfileResult.save"
        )
    _check_version(name, document.get("format_version"))
    try:
        profile: ProfileResult = from_plain(ProfileResult, document.get("profile"))
    except Mismatch as mismatch:
        raise FormatError(
            f"{name}: not a profile that this numbaprof can read: "
            f"{mismatch.within('profile')}; the file is damaged, was edited, or was "
            "written by a newer numbaprof: take the profile again or upgrade numbaprof"
        ) from None
    wrong = misplaced(profile)
    if wrong:
        raise FormatError(
            f"{name}: not a sound profile: {wrong[0]}; the file is damaged or was "
            "edited: take the profile again"
        )
    return profile


def _read_json(name: str, content: bytes) -> Any:
    try:
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
        return json.loads(content)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise FormatError(
            f"{name}: not a profile of numbaprof: not JSON ({error}); give a file made "
            "by `numbaprof run -o` or ProfileResult.save"
        ) from None


def _check_version(name: str, version: Any) -> None:
    if type(version) is not int or version < 1:
        raise FormatError(
            f"{name}: damaged profile: format_version is {version!r}, expected an "
            f"integer from 1 to {FORMAT_VERSION}; take the profile again"
        )
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{name}: written by a newer numbaprof: format_version {version}, this one "
            f"reads up to {FORMAT_VERSION}; upgrade numbaprof to read it"
        )


# -- the published schema ------------------------------------------------------------


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of a file, as published in ``docs/``.

    ``python -m numbaprof.store > docs/profile-1.schema.json`` renews the published one.
    """
    profile = json_schema(ProfileResult)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{FORMAT_NAME}, format_version {FORMAT_VERSION}",
        "description": "Times are integer nanoseconds; null means 'cannot be had'.",
        "type": "object",
        "properties": {
            "format": {"const": FORMAT_NAME},
            "format_version": {"const": FORMAT_VERSION},
            "profile": {"$ref": profile["$ref"]},
        },
        "required": ["format", "format_version", "profile"],
        "additionalProperties": False,
        "$defs": profile["$defs"],
    }


if __name__ == "__main__":
    print(json.dumps(file_schema(), indent=2))
