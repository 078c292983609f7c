"""What is mapped in this process, and reading it without ever faulting.

Reads go through ``/proc/self/mem``: for an address that is not mapped the kernel
returns an error where a load instruction would end the program (Linux, proc(5)). So a
pointer found in a foreign structure can be followed before anybody has vouched for it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from numbaprof.errors import UnsupportedError

__all__ = ["Mapping", "Mappings", "read"]

_MAPS = Path("/proc/self/maps")
_MEMORY = "/proc/self/mem"
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of ``/proc/self/maps`` (proc(5))."""

    start: int
    end: int
    permissions: str
    """``rwxp`` with dashes for what is not allowed."""
    offset: int
    device: int
    """As ``os.stat_result.st_dev``; 0 for memory without a file."""
    inode: int
    path: str
    """Of the file; ``[vdso]`` and the like; "" for none."""

    @property
    def executable(self) -> bool:
        """Whether code may run here."""
        return "x" in self.permissions


class Mappings:
    """All mappings of this process at one moment, in order of address."""

    def __init__(self, entries: tuple[Mapping, ...]) -> None:
        self.entries = entries
        self._starts = [entry.start for entry in entries]

    @classmethod
    def now(cls) -> Mappings:
        """Read the mappings; takes about 1 ms.

        Raises
        ------
        UnsupportedError
            There is no ``/proc/self/maps``, as outside Linux.
        """
        try:
            text = _MAPS.read_text(errors="surrogateescape")
        except OSError as error:
            raise UnsupportedError(
                f"the memory map of the process cannot be read: {error}"
            ) from error
        return cls(tuple(_parse(line) for line in text.splitlines()))

    def find(self, address: int) -> Mapping | None:
        """Return the mapping that ``address`` lies in."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self.entries[index].end:
            return None
        return self.entries[index]


def _parse(line: str) -> Mapping:
    fields = line.split(None, 5)
    start, _, end = fields[0].partition("-")
    major, _, minor = fields[3].partition(":")
    return Mapping(
        start=int(start, 16),
        end=int(end, 16),
        permissions=fields[1],
        offset=int(fields[2], 16),
        device=os.makedev(int(major, 16), int(minor, 16)),
        inode=int(fields[4]),
        path=fields[5].removesuffix(_DELETED) if len(fields) > 5 else "",
    )


def read(address: int, size: int) -> bytes:
    """Return ``size`` bytes of this process's memory.

    Parameters
    ----------
    address : int
        Any number; need not be mapped.
    size : int
        In bytes.

    Raises
    ------
    UnsupportedError
        Part of it is not readable, or the system has no ``/proc/self/mem``.

    Notes
    -----
    Costs an open, a read and a close, about 5 us; thread-safe, allocates.
    """
    try:
        descriptor = os.open(_MEMORY, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, size, address)
        finally:
            os.close(descriptor)
    except (OSError, OverflowError) as error:
        raise UnsupportedError(
            f"{size} bytes of memory at {address:#x} cannot be read: {error}"
        ) from error
    if len(data) != size:
        raise UnsupportedError(
            f"of {size} bytes of memory at {address:#x} only {len(data)} are mapped"
        )
    return data
