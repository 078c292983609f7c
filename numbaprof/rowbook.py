"""Which line of the table a Python call belongs to, with cProfile's names.

A :class:`Row` is one line: a function with one signature of its arguments, or a
builtin. :class:`RowBook` hands rows out. It knows nothing of how calls are seen, so
that every tracer makes the same table.

How many rows
-------------
``cap`` signatures per function and level. When the finest level is full, calls with
further signatures go to rows of the next coarser level that tells them less, marked as
holding the others. So one function has at most three times ``cap`` rows and one, and
``limit`` rows are the most there are, but for one per further function and builtin.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, Literal

from numbaprof.signatures import (
    Argument,
    Level,
    Sizes,
    coarsen,
    describe,
    parameters_of,
    render,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ANY_ARGUMENT",
    "NO_ARGUMENT",
    "ROW_LIMIT",
    "SIGNATURE_CAP",
    "VISIT_LIMIT",
    "Row",
    "RowBook",
    "is_booked",
]

SIGNATURE_CAP = 32
"""Rows of one function and level."""
ROW_LIMIT = 10_000
"""Rows in all; functions met after that get one each."""
VISIT_LIMIT = 1024
"""Look-ups of one function, before it is told from less. Bounds the time for arguments
whose keys are all new though their labels are not: classes made anew for each call."""
NO_ARGUMENT = object()
"""Stands for the first argument of a call that has none."""
ANY_ARGUMENT = object()
"""Stands for one that is not known; methods are taken to fit it."""

_PACKAGE = os.path.dirname(__file__) + os.sep
_QUIET_REPR = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
"""Whose ``repr`` runs none of the program's code."""


@dataclass(slots=True, eq=False)
class Row:
    """One line of the table: a function with one signature, or a builtin."""

    address: int
    """What the engine knows it by."""
    kind: Literal["python", "builtin"]
    file: str
    """``~`` for builtins, as cProfile has it."""
    line: int
    """``co_firstlineno``; 0 for builtins."""
    name: str
    """``co_name``, or the text cProfile shows for a builtin."""
    qualname: str
    function: int
    """Number of the function; the same in all its rows."""
    signature: str = ""
    arguments: tuple[Argument, ...] = ()
    level: Level = Level.NONE
    """How much ``arguments`` tell. A native key made at this level means this row."""
    sizes: Sizes | None = None
    """Of a row for the others: how large their arrays were. Whoever books calls on such
    a row adds to it."""
    code: CodeType | None = None


class _Function:
    """The rows of one code object, which it keeps alive: ids are not used again."""

    __slots__ = ("code", "level", "number", "parameters", "rows", "rushed", "visits")

    def __init__(self, code: CodeType, number: int, level: Level) -> None:
        self.code = code
        self.number = number
        self.level = level
        self.parameters = parameters_of(code)
        self.rows: tuple[dict[tuple[Argument, ...], Row], ...] = ({}, {}, {}, {})
        self.visits = 0
        self.rushed = False


class RowBook:
    """Which row a call belongs to.

    Parameters
    ----------
    new_row : callable
        Returns the address of a new row.
    level : Level
        The finest level of signatures.
    cap, limit : int
        See the module.

    Notes
    -----
    Called with the GIL, from inside profiling callbacks; runs none of the program's
    code and keeps none of its objects but code objects.
    """

    def __init__(
        self,
        new_row: Callable[[], int],
        level: Level = Level.SHAPE,
        *,
        cap: int = SIGNATURE_CAP,
        limit: int = ROW_LIMIT,
    ) -> None:
        self.level = level
        self.rows: list[Row] = []
        self._new_row = new_row
        self._cap = cap
        self._limit = limit
        self._functions: dict[int, _Function] = {}
        self._builtins: dict[str, Row] = {}
        self._hidden: dict[int, tuple[CodeType, bool]] = {}

    # -- Python functions -------------------------------------------------------------

    def python_row(self, code: CodeType, values: Sequence[object]) -> Row | None:
        """Return the row of a call of a Python function.

        Parameters
        ----------
        code : CodeType
            Known by identity: equal code objects are different functions.
        values : sequence
            What the parameters hold, in the order of ``parameters_of``, cells looked
            into; UNBOUND for one that holds nothing. Not read when :meth:`level_of`
            says NONE.

        Returns
        -------
        Row or None
            None for a frame of this package: its calls are booked under its caller.
        """
        if self.is_hidden(code):
            return None
        function = self._function(code)
        if function.level is Level.NONE and self.level is Level.NONE:
            arguments: tuple[Argument, ...] = ()
        else:
            arguments = tuple(map(describe, function.parameters, values))
        self._count_visit(function, arguments)
        level = function.level if function.rushed else self.level
        while True:
            shown = coarsen(arguments, level)
            row = function.rows[level].get(shown)
            if row is not None:
                return row
            if level is function.level:
                if level is Level.NONE or self._has_room(function, level):
                    return self._add_row(function, shown, level)
                function.level = self._next_level(arguments, level)
            level = Level(level + 1)

    def level_of(self, code: CodeType) -> Level:
        """Return the level at which new signatures of a function are told apart.

        Rows of finer levels, down to the level of the book, stay in use.
        """
        return self._function(code).level

    def is_hidden(self, code: CodeType) -> bool:
        """Tell whether a code object is this package's own."""
        known = self._hidden.get(id(code))
        if known is None:
            known = (code, code.co_filename.startswith(_PACKAGE))
            self._hidden[id(code)] = known
        return known[1]

    def _function(self, code: CodeType) -> _Function:
        function = self._functions.get(id(code))
        if function is None:
            function = _Function(code, len(self._functions), self.level)
            self._functions[id(code)] = function
        return function

    def _count_visit(
        self, function: _Function, arguments: tuple[Argument, ...]
    ) -> None:
        function.visits += 1
        if function.visits > VISIT_LIMIT and function.level is not Level.NONE:
            function.level = self._next_level(arguments, function.level)
            function.visits = 0
            function.rushed = True

    def _has_room(self, function: _Function, level: Level) -> bool:
        return len(function.rows[level]) < self._cap and len(self.rows) < self._limit

    def _next_level(self, arguments: tuple[Argument, ...], level: Level) -> Level:
        """Return the finest level that tells less of these arguments than ``level``."""
        if len(self.rows) >= self._limit:
            return Level.NONE
        now = coarsen(arguments, level)
        for coarser in (Level.NDIM, Level.TYPE):
            if coarser > level and coarsen(arguments, coarser) != now:
                return coarser
        return Level.NONE

    def _add_row(
        self, function: _Function, arguments: tuple[Argument, ...], level: Level
    ) -> Row:
        code = function.code
        others = level is not self.level
        text = render(arguments, level, others=others)
        alike = sum(
            row.signature.partition(" #")[0] == text
            for rows in function.rows
            for row in rows.values()
        )
        row = Row(
            self._new_row(),
            "python",
            code.co_filename,
            code.co_firstlineno,
            code.co_name,
            getattr(code, "co_qualname", code.co_name),
            function.number,
            # Two signatures that were cut may read alike; a label is one row's.
            signature=f"{text} #{alike + 1}" if alike else text,
            arguments=arguments,
            level=level,
            sizes=Sizes() if others else None,
            code=code,
        )
        function.rows[level][arguments] = row
        self.rows.append(row)
        return row

    # -- builtins ---------------------------------------------------------------------

    def builtin_row(
        self, function: object, argument: object = NO_ARGUMENT
    ) -> Row | None:
        """Return the row of a call of a C function or method.

        Parameters
        ----------
        function : object
            What is called.
        argument : object, optional
            The first argument, which is ``self`` for a method that is not bound.

        Returns
        -------
        Row or None
            None for what cProfile does not book: classes and other callables.
        """
        if not is_booked(function, argument):
            return None
        is_method = type(function) is MethodDescriptorType
        text = repr(function) if is_method else _builtin_text(function)
        row = self._builtins.get(text)
        if row is None:
            number = -1 - len(self._builtins)
            row = Row(self._new_row(), "builtin", "~", 0, text, text, number)
            self._builtins[text] = row
            self.rows.append(row)
        return row


def is_booked(function: Any, argument: object = NO_ARGUMENT) -> bool:
    """Tell whether cProfile books calls of a C callable.

    It does for functions and bound methods, and for methods that are called with an
    object they can be bound to (``get_cfunc_from_callable`` in Modules/_lsprof.c).
    """
    cls = type(function)
    if issubclass(cls, BuiltinFunctionType):
        return True
    return (
        cls is MethodDescriptorType
        and argument is not NO_ARGUMENT
        and (
            argument is ANY_ARGUMENT
            or issubclass(type(argument), function.__objclass__)
        )
    )


def _builtin_text(function: Any) -> str:
    """Name a C function as cProfile does (``normalizeUserObj`` in Modules/_lsprof.c).

    It shows the method that the class of ``self`` has under the name, whatever that is;
    here one written in Python is passed over, for the C function that really runs.
    """
    name: str = function.__name__
    owner = function.__self__
    for cls in type(owner).__mro__:
        found = vars(cls).get(name)
        if type(found) in _QUIET_REPR:
            return repr(found)
    module = function.__module__
    if type(module) is not str:
        module = ""
    return (
        f"<built-in method {module}.{name}>" if module else f"<built-in method {name}>"
    )
