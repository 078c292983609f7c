"""Line tables for code that was compiled without one, or loaded from a cache.

The function is compiled once more with a line table (:mod:`twin_compiler`), and the
table is used for the running code only if both are the same code: ``.text`` before
relocation identical, or of the same length with the same functions and at most
:data:`MAX_DIFFERENT_BYTES` bytes different. The latter is for what a compilation writes
into its code that is not code, such as the length of a pickled object; how many bytes
differ is said in :attr:`TwinResult.different_bytes`. Everything else is refused with a
reason.

A twin costs as much as compiling did. So they are made for wanted objects only, the
hottest first, until a budget of time is used up, and kept on disk (:mod:`twin_store`).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numbaprof.errors import UnsupportedError
from numbaprof.native import numba_api, objcode
from numbaprof.native.elf import Binding
from numbaprof.native.twin_compiler import (
    GUFUNC_PREFIX,
    Overload,
    TwinCompiler,
    overloads_by_symbol,
)
from numbaprof.native.twin_store import TwinStore, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numbaprof.native.objcode import JitObject, Objects

__all__ = ["DEFAULT_BUDGET_S", "MAX_DIFFERENT_BYTES", "TwinResult", "build"]

MAX_DIFFERENT_BYTES = 8
"""Two immediates of four bytes: one byte is the most seen (a pickle's size)."""
DEFAULT_BUDGET_S = 10.0
"""No twin is begun after that."""

_VARYING = re.compile(r"B\d+v\d+|0x[0-9a-f]+|^\.kernel\.\d+")
"""What differs between the symbols of two compilations: Numba's counter (``B3v12``)
and the addresses in the names of functions that it generates."""
_GENERATED = re.compile(r"__numba_(?:parfor_gufunc|array_expr)_0x[0-9a-f]+")
"""The name of a function generated for one overload, in each symbol made for it: its
own (``_ZN...``), that of its wrapper (``__gufunc__...``) and of the wrapper's
(``.kernel...``), which are objects of their own."""


@dataclass(slots=True)
class TwinResult:
    """What came of making twins."""

    by_address: dict[int, JitObject] = field(default_factory=dict)
    """Twin by the address at which the original's code starts (``JitObject.start``).
    The twin has addresses of its own: count both from ``start``."""
    refused: dict[int, str] = field(default_factory=dict)
    """Why an object has no table, by the same address."""
    different_bytes: dict[int, int] = field(default_factory=dict)
    """How many bytes differ where not the same to the byte."""
    compiled: int = 0
    """Overloads compiled."""
    loaded: int = 0
    """Twins found on disk."""
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    """Why twins could not be kept on disk."""
    digests: dict[int, str] = field(default_factory=dict)
    """``text_sha256`` of the originals that have a twin."""

    @property
    def tables(self) -> dict[str, JitObject]:
        """Twin by ``text_sha256`` of the original.

        Without those that two functions with equal code have; for these ask
        :attr:`by_address`.
        """
        found: dict[str, list[JitObject]] = defaultdict(list)
        for address, twin in self.by_address.items():
            found[self.digests[address]].append(twin)
        return {digest: twins[0] for digest, twins in found.items() if len(twins) == 1}


def build(
    things: Iterable[Any] | None = None,
    *,
    wanted: Iterable[int] | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    store: TwinStore | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TwinResult:
    """Make twins.

    Parameters
    ----------
    things : iterable, optional
        Dispatchers, ufuncs and C callbacks whose code it may be; by default all that
        are alive.
    wanted : iterable of int, optional
        Addresses in the code to make twins for, the hottest first; by default all
        objects without lines that belong to ``things``.
    budget_s : float, optional
        Seconds after which no further twin is begun.
    store : TwinStore, optional
        Where twins are kept; by default the user's cache folder.
    clock : callable, optional
        For tests.

    Notes
    -----
    Nothing of the user's changes: overloads, libraries, results, what a running session
    sees, what is compiled later. Only memory is used: Numba never unloads code.
    """
    if things is None:
        things = [*numba_api.live_dispatchers(), *numba_api.live_ufuncs()]
    if store is None:
        store = TwinStore(cache_folder())
    work = _Work(list(things), store)
    began = clock()
    for original in work.originals(wanted):
        if original.start in work.result.by_address:
            continue
        if clock() - began > budget_s:
            work.refuse(original, f"the {budget_s:g} s for such twins were used up")
        else:
            work.make(original)
    work.keep()
    work.result.seconds = clock() - began
    return work.result


class _Work:
    """The state of one :func:`build`."""

    def __init__(self, things: list[Any], store: TwinStore) -> None:
        self.result = TwinResult()
        self._things = things
        self._store = store
        self._owners = overloads_by_symbol(things)
        self._objects = objcode.load_objects()
        self._index = _Index(self._objects)
        self._tried: dict[int, str] = {}
        self._made: list[tuple[JitObject, JitObject]] = []

    def originals(self, wanted: Iterable[int] | None) -> list[JitObject]:
        """Return the objects without lines that are wanted, each once, in order."""
        if wanted is None:
            owners = ((found, self._owner(found)) for found in self._objects)
            found = [o for o, owner in owners if owner is not None and owner.is_users]
        else:
            found = [o for o in map(self._objects.find, wanted) if o is not None]
        unique = {o.start: o for o in found if not o.has_lines}
        return list(unique.values())

    def refuse(self, original: JitObject, reason: str) -> None:
        """Say why an object has no table."""
        self.result.refused[original.start] = reason

    def make(self, original: JitObject) -> None:
        """Find or compile the twin of one object, or refuse it."""
        owner = self._owner(original)
        if owner is None:
            self.refuse(original, _no_owner(self._objects))
            return
        if not owner.is_users:
            self.refuse(original, "Numba's own code; its time belongs to the caller")
            return
        kept = self._store.load(original, self._identity(original, owner))
        if kept is not None and self._adopt(original, kept):
            self.result.loaded += 1
            return
        if id(owner) not in self._tried:
            self._tried[id(owner)] = self._compile(owner)
        if original.start not in self.result.by_address:
            self.refuse(original, self._tried[id(owner)] or _DIFFERENT)

    def keep(self) -> None:
        """Save what was compiled."""
        problems = []
        for original, twin in self._made:
            owner = self._owner(original)
            if owner is not None:
                identity = self._identity(original, owner)
                problems.append(self._store.save(original, identity, twin))
        self.result.problems = tuple(dict.fromkeys(filter(None, problems)))

    def _owner(self, original: JitObject) -> Overload | None:
        """Return whose code an object is; that of parfors belongs to their caller."""
        for symbol in original.symbols():
            is_own = symbol.binding == Binding.GLOBAL
            if (is_own or symbol.name.startswith(GUFUNC_PREFIX)) and (
                symbol.name in self._owners
            ):
                return self._owners[symbol.name]
        parent, _ = self._index.parent(original)
        return None if parent is None else self._owner(parent)

    def _identity(self, original: JitObject, owner: Overload) -> list[Any]:
        """Return what tells an object from others with equal code."""
        code = owner.function.__code__
        _, place = self._index.parent(original)
        names = [_steady(symbol.name) for symbol in original.symbols()]
        qualname = owner.function.__qualname__
        return [code.co_filename, code.co_firstlineno, qualname, place, *names]

    def _compile(self, owner: Overload) -> str:
        """Compile the twin of an overload and adopt it; return why that failed."""
        before = {known.start for known in self._objects}
        try:
            with TwinCompiler() as compiler:
                compiler.compile(owner)
        except UnsupportedError as error:
            return str(error)
        except Exception as error:  # Compiling runs code of the user's extensions.
            return f"compiling it again failed: {type(error).__name__}: {error}"
        self.result.compiled += 1
        made = _Index(o for o in objcode.load_objects() if o.start not in before)
        for symbol, twin_symbol in compiler.symbols.items():
            self._match(symbol, twin_symbol, made)
        return ""

    def _match(self, symbol: str, twin_symbol: str, made: _Index) -> None:
        """Adopt the twin of the object that defines a symbol, and of its parfors'."""
        for original in self._index.defining(symbol):
            for twin in made.defining(twin_symbol):
                if self._adopt(original, twin):
                    self._made.append((original, twin))
                    self._match_generated(original, twin, made)

    def _match_generated(
        self, original: JitObject, twin: JitObject, made: _Index
    ) -> None:
        for theirs, ours in zip(original.symbols(), twin.symbols(), strict=True):
            for part in self._index.generated(theirs.name):
                for twin_part in made.generated(ours.name):
                    is_new = part.start not in self.result.by_address
                    if is_new and self._adopt(part, twin_part):
                        self._made.append((part, twin_part))

    def _adopt(self, original: JitObject, twin: JitObject) -> bool:
        """Take a twin's table if the code is the same."""
        if original.has_lines or original.start in self.result.by_address:
            return original.start in self.result.by_address
        different = different_bytes(original, twin)
        if different is None:
            return False
        self.result.by_address[original.start] = twin
        self.result.digests[original.start] = original.text_sha256
        self.result.refused.pop(original.start, None)
        if different:
            self.result.different_bytes[original.start] = different
        return True


_DIFFERENT = (
    "compiled again it is other code (a global, the options of a cached function or "
    "Numba's settings changed)"
)


def _no_owner(objects: Objects) -> str:
    if objects.reason:
        return f"no function alive owns it; {objects.reason}"
    return "no function alive owns it (a stencil's, a parallel ufunc's, or collected)"


def different_bytes(original: JitObject, twin: JitObject) -> int | None:
    """Return in how many bytes two objects differ; None if they are not the same code.

    At most :data:`MAX_DIFFERENT_BYTES`, with the same functions at the same places.
    """
    if original.size != twin.size or _layout(original) != _layout(twin):
        return None
    if original.text == twin.text:
        return 0
    pairs = zip(original.text, twin.text, strict=True)
    different = sum(one != other for one, other in pairs)
    return different if different <= MAX_DIFFERENT_BYTES else None


def _layout(found: JitObject) -> list[tuple[str, int, int]]:
    return [
        (_steady(symbol.name), symbol.address - found.start, symbol.size)
        for symbol in found.symbols()
    ]


def _steady(name: str) -> str:
    """Return a symbol without what differs between two compilations."""
    return _VARYING.sub("", name)


class _Index:
    """Objects by the symbols they define.

    Code that is linked into callers is defined there as well, as a weak symbol; an
    object is the home of its strong symbols, or of all if it has no strong one (loops
    of generalized ufuncs).
    """

    def __init__(self, objects: Iterable[JitObject]) -> None:
        # Several where one process compiled and loaded the same code.
        self._home: dict[str, list[JitObject]] = defaultdict(list)
        self._generated: dict[str, list[JitObject]] = defaultdict(list)
        self._users: dict[str, tuple[JitObject, int]] = {}
        for found in objects:
            names = [symbol.name for symbol in found.symbols()]
            own = _home_symbols(found)
            for name in own:
                self._home[name].append(found)
            tokens = _tokens(own)
            for token in tokens:
                self._generated[token].append(found)
            for place, name in enumerate(names):
                for token in _tokens([name]) - tokens:
                    self._users.setdefault(token, (found, place))

    def defining(self, name: str) -> list[JitObject]:
        """Return the objects that a symbol is at home in."""
        return self._home[name]

    def generated(self, name: str) -> list[JitObject]:
        """Return the homes of what was generated together with a symbol."""
        return [o for token in _tokens([name]) for o in self._generated[token]]

    def parent(self, found: JitObject) -> tuple[JitObject | None, int]:
        """Return the object that a generated one was made for, and where it is there.

        The place is the number of the first symbol, -1 if there is no parent.
        """
        for token in _tokens(_home_symbols(found)):
            if token in self._users:
                return self._users[token]
        return None, -1


def _home_symbols(found: JitObject) -> list[str]:
    symbols = [s for s in found.symbols() if s.binding != Binding.LOCAL]
    strong = [symbol.name for symbol in symbols if symbol.binding == Binding.GLOBAL]
    return strong or [symbol.name for symbol in symbols]


def _tokens(names: Iterable[str]) -> set[str]:
    return {match[0] for name in names for match in _GENERATED.finditer(name)}
