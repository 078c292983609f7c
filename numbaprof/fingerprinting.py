"""Fingerprints of the machine code of overloads, taken when a session ends.

Nothing is measured while the program runs: LLVM keeps every object it has loaded. Only
where its list cannot be found does :meth:`Fingerprinting.start` begin to note the
objects that are compiled from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numbaprof.errors import UnsupportedError
from numbaprof.native import fingerprints, objcode

if TYPE_CHECKING:
    from collections.abc import Collection

    from numbaprof.model import Fingerprint
    from numbaprof.native.object_watch import ObjectWatch

__all__ = ["NOT_USED", "NO_SYMBOL", "OF_NUMBA", "Fingerprinting"]

NOT_USED = "neither called nor compiled during the profile"
OF_NUMBA = "one of Numba's own helpers, which are part of the code that calls them"
NO_SYMBOL = "Numba keeps no name by which its code could be found"


class Fingerprinting:
    """The instrument; one per session."""

    def __init__(self) -> None:
        self._watch: ObjectWatch | None = None
        self._objects: objcode.Objects | None = None

    def start(self) -> None:
        """See to it that the code compiled from now on can be found later."""
        self._watch = objcode.watch_if_needed()

    def stop(self) -> None:
        """Look at all code that is there, and put back what start changed."""
        try:
            self._objects = objcode.load_objects()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Put back what start changed, without a look."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def of(self, symbols: Collection[str]) -> tuple[Fingerprint | None, str]:
        """Return the fingerprint of one overload, or None and the reason.

        Parameters
        ----------
        symbols : collection of str
            Names of its code; several if it was compiled several times.
        """
        names = list(dict.fromkeys(filter(None, symbols)))
        if not names:
            return None, NO_SYMBOL
        if self._objects is None:
            return None, "the machine code was not looked at"
        try:
            found = {
                fingerprint.code: fingerprint
                for name in names
                for fingerprint in (fingerprints.fingerprint(name, self._objects),)
            }
        except UnsupportedError as error:
            return None, str(error)
        if len(found) > 1:
            return None, f"it was compiled {len(names)} times, to different code"
        return found.popitem()[1], ""
