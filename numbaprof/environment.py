"""Facts about the machine, the interpreter and the packages, for a profile's header."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

__all__ = [
    "command_line",
    "cpu_count",
    "cpu_name",
    "now_text",
    "numba_settings",
    "package_version",
    "platform_text",
    "python_text",
]


def package_version(name: str) -> str:
    """Return the version of an installed package, "not installed" without it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def python_text() -> str:
    """Return implementation and version: ``CPython 3.13.0``."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def platform_text() -> str:
    """Return operating system and machine: ``Linux-6.1 x86_64``."""
    release = platform.release().split("-", 1)[0]
    return f"{platform.system()}-{release} {platform.machine()}"


def cpu_name() -> str:
    """Return the processor's own name where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def cpu_count() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def numba_settings() -> tuple[tuple[str, str], ...]:
    """Return every NUMBA_* environment variable, sorted."""
    return tuple(
        sorted(
            (name, value) for name, value in os.environ.items() if "NUMBA_" in name[:6]
        )
    )


def command_line() -> tuple[str, ...]:
    """Return how the process was started, as far as Python knows."""
    return tuple(sys.orig_argv)


def now_text() -> str:
    """Return the time of day in UTC, ISO 8601 to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
