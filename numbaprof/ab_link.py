"""How the two processes of ``numbaprof ab`` and the one that drives them talk.

One JSON object per line over a Unix socket, over TCP on the loopback device where there
is none. A token in the first message keeps strangers out. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from numbaprof.errors import ComparisonError

__all__ = ["ADDRESS", "SIDE", "TOKEN", "Link", "LinkClosed", "LinkTimeout", "Listener"]

ADDRESS = "NUMBAPROF_AB_ADDRESS"
SIDE = "NUMBAPROF_AB_SIDE"
TOKEN = "NUMBAPROF_AB_TOKEN"
"""Names of the environment variables that a worker is told these by."""

MAX_UNIX_PATH = 100
"""Bytes; ``sun_path`` has 108 on Linux, 104 on macOS (unix(7))."""
CHUNK = 65536


class LinkClosed(ComparisonError):
    """The other end is gone."""


class LinkTimeout(ComparisonError):
    """The other end did not answer in time."""


class Link:
    """One end of a connection.

    Parameters
    ----------
    connection : socket
        Connected; owned from now on.
    name : str
        Whom it leads to, for messages.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._socket = connection
        self._buffer = b""
        self.name = name
        if connection.family != getattr(socket, "AF_UNIX", None):
            # A message is small and waits for an answer: Nagle's delay is all loss.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def connect(cls, address: str, *, token: str, side: str) -> Link:
        """Return the worker's end, introduced as ``side``."""
        kind, _, place = address.partition(":")
        if kind == "unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(place)
        else:
            host, _, port = place.rpartition(":")
            connection = socket.create_connection((host, int(port)))
        link = cls(connection, "the comparison")
        link.send(side=side, token=token)
        return link

    def send(self, **message: Any) -> None:
        """Send one message.

        Raises
        ------
        LinkClosed
            The other end is gone.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LinkClosed(f"{self.name} ended early ({error.strerror})") from None

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait for the next message.

        Raises
        ------
        LinkClosed
            The other end is gone.
        LinkTimeout
            Nothing came for ``timeout_s`` seconds.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select([self._socket], [], [], left)
            if not ready:
                raise LinkTimeout(
                    f"{self.name} did not answer within {timeout_s:.0f} s"
                )
            try:
                data = self._socket.recv(CHUNK)
            except OSError:
                data = b""
            if not data:
                raise LinkClosed(f"{self.name} ended early")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Listener:
    """Where the workers of one session connect to."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.token = secrets.token_hex(16)
        self.address = self._bind()
        self._socket.listen(2)

    def _bind(self) -> str:
        if hasattr(socket, "AF_UNIX"):
            self._folder = tempfile.TemporaryDirectory(prefix="npab-")
            path = Path(self._folder.name, "s")
            if len(str(path).encode()) <= MAX_UNIX_PATH:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.bind(str(path))
                return f"unix:{path}"
        self._socket = socket.socket(socket.AF_INET)
        self._socket.bind(("127.0.0.1", 0))
        return f"tcp:127.0.0.1:{self._socket.getsockname()[1]}"

    def accept(self, timeout_s: float) -> tuple[str, Link] | None:
        """Return (side, link) of a worker that introduced itself; None after a while.

        A connection without the token is closed.
        """
        ready, _, _ = select.select([self._socket], [], [], timeout_s)
        if not ready:
            return None
        connection, _ = self._socket.accept()
        link = Link(connection, "a worker")
        try:
            hello = link.receive(timeout_s=10.0)
        except (ComparisonError, ValueError):
            link.close()
            return None
        if not secrets.compare_digest(str(hello.get("token")), self.token):
            link.close()
            return None
        link.name = f"the {hello['side']} side"
        return hello["side"], link

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._socket.close()
        if self._folder is not None:
            self._folder.cleanup()
