"""Why no profiler can time the lines of a jitted function, by its own machine code.

Example
-------
::

    print(numbaprof.explain(kernel))
    numbaprof.explain(kernel).lines      # a DataFrame, a row per overload and line
"""

from __future__ import annotations

import html
import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numbaprof.errors import TargetError
from numbaprof.explain_text import describe, moved_lines, sources

if TYPE_CHECKING:
    import pandas as pd

    from numbaprof.evidence import FunctionEvidence

__all__ = ["Explanation", "explain", "explain_file", "explain_name"]


@dataclass(frozen=True)
class Explanation:
    """What the machine code of one function shows; prints as text."""

    evidence: FunctionEvidence

    def __str__(self) -> str:
        return self.text()

    def text(self, *, general: bool = True) -> str:
        """Return it as text.

        Parameters
        ----------
        general : bool, default True
            False leaves out the sentences that are true of every compiled function.
        """
        return describe(self.evidence, general=general)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self), quote=False)}</pre>"

    @cached_property
    def lines(self) -> pd.DataFrame:
        """One row per overload and source line.

        Columns: ``function``, ``signature``, ``file``, ``line``, ``instructions`` (of
        the line itself), ``inlined_instructions``, ``inlined_from`` (functions),
        ``stretches``, ``in_loops``, ``vector_width`` and ``interleave`` (of a loop that
        was vectorized, on its line), ``remark`` (LLVM's words), ``moved_out_of_loop``,
        ``source``, ``reason`` (why there is nothing).
        """
        import pandas as pd

        rows = list(_rows(self.evidence))
        table: pd.DataFrame = pd.DataFrame(rows, columns=list(_COLUMNS))
        typed: pd.DataFrame = table.astype(_COLUMNS)
        return typed


_COLUMNS = {
    "function": "object",
    "signature": "object",
    "file": "object",
    "line": "Int64",
    "instructions": "Int64",
    "inlined_instructions": "Int64",
    "inlined_from": "object",
    "stretches": "Int64",
    "in_loops": "Int64",
    "vector_width": "Int64",
    "interleave": "Int64",
    "remark": "object",
    "moved_out_of_loop": "boolean",
    "source": "object",
    "reason": "object",
}


def _rows(evidence: FunctionEvidence) -> Any:
    texts = sources(evidence)
    place = evidence.function
    for overload in evidence.overloads:
        head = (place.qualname, overload.signature, place.file)
        if overload.reason:
            nothing: tuple[Any, ...] = (None,) * 9
            yield (*head, *nothing, None, "", overload.reason)
        moved = moved_lines(evidence, overload)
        for line in overload.lines:
            said = [
                remark
                for remark in overload.remarks
                if (remark.file, remark.line) == (place.file, line.line)
            ]
            vectorized = [r for r in said if r.vector_width is not None]
            best = max(vectorized, key=lambda r: r.vector_width or 0, default=None)
            yield (
                *head,
                line.line,
                line.instructions,
                line.inlined,
                ", ".join(
                    dict.fromkeys(
                        one.function
                        for one in overload.inlined
                        if one.line == line.line
                    )
                ),
                line.stretches,
                line.in_loops,
                best and best.vector_width,
                best and best.interleave,
                "; ".join(remark.text for remark in said),
                line.line in moved,
                texts.get(line.line, ""),
                "",
            )


def explain(function: Any) -> Explanation:
    """Say why the lines of a jitted function cannot be timed, from its machine code.

    Parameters
    ----------
    function : CPUDispatcher
        What ``@jit`` or ``@njit`` made, compiled for at least one signature. It is not
        called.

    Returns
    -------
    Explanation
        Text when printed; ``lines`` is a DataFrame.

    Raises
    ------
    TargetError
        Not a jitted function, or not compiled yet; the message says what to do.

    Notes
    -----
    Compiles every overload once more, to read LLVM's remarks and a line table, and
    compares the machine code with that which runs. Where they differ there is a reason
    instead of evidence. Not thread-safe towards changes of standard error: the file
    descriptor is turned aside while LLVM optimizes, and nothing written to it is lost.
    """
    # Only here do outputs reach the compiler: what is told is read on the spot.
    from numbaprof.native import code_evidence

    return Explanation(code_evidence.collect(function))


def explain_name(name: str) -> Explanation:
    """Explain ``module:function``; the module is imported.

    Raises
    ------
    TargetError
        There is no such module or function, or it cannot be explained.
    """
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise TargetError(f"cannot import {module_name!r}: {error}") from error
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            known = ", ".join(
                sorted(key for key in vars(found) if not key.startswith("_"))[:12]
            )
            raise TargetError(
                f"{module_name!r} has no {path!r}; it has {known or 'no public names'}"
            ) from None
    return explain(found)


def explain_file(files: tuple[str, ...], wanted: str = "") -> list[Explanation | str]:
    """Explain what a program compiled of the functions defined in one file.

    Parameters
    ----------
    files : tuple of str
        The names that the file may have in code objects, that to be shown first.
    wanted : str, optional
        Qualified name; all functions otherwise.

    Returns
    -------
    list of Explanation or str
        A sentence where there is nothing to explain.
    """
    from numbaprof.native import code_evidence

    found = code_evidence.dispatchers_in(files)
    if wanted:
        found = [thing for thing in found if thing.py_func.__qualname__ == wanted]
    if not found:
        what = f"the jitted function {wanted!r}" if wanted else "any jitted function"
        return [
            f"{files[0]} did not define {what}, or it is gone: functions that are "
            "defined within others end with them"
        ]
    return [_explain_or_say_why(thing) for thing in found]


def _explain_or_say_why(thing: Any) -> Explanation | str:
    try:
        return explain(thing)
    except TargetError as error:
        return str(error)
