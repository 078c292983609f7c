"""The magic ``%numbaprof``, for IPython and Jupyter.

Loaded by ``%load_ext numbaprof``. IPython is not imported before that, and whoever
loads the extension has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.errors import OptionError
from numbaprof.html import mimebundle
from numbaprof.report import SORT_NAMES, ReportOptions, render
from numbaprof.session import profile

if TYPE_CHECKING:
    from numbaprof.model import ProfileResult

__all__ = ["HELP", "MagicOptions", "load", "parse_line"]

HELP = """\
Run a statement, or a cell, and profile what it compiles with Numba.

    %numbaprof [options] statement
    %%numbaprof [options] [statement]
    code of the cell

The options are those of %prun:

    -l LIMIT  list LIMIT overloads and sum the others; or only those whose function,
              module or file has LIMIT in it, if it is no number; may be repeated
    -s KEY    sort by KEY: KEYS
    -L        sample which source lines of compiled code take the time
    -r        return the profile instead of showing it
    -q        show nothing
    -D FILE   save the profile in FILE, for numbaprof.load
    -T FILE   write the report to FILE

The statement runs in the notebook's own namespace. What it raises goes on, after the
profile was shown; SystemExit and KeyboardInterrupt end there, as with %prun.
""".replace("KEYS", ", ".join(SORT_NAMES))

PRUN_KEYS = {
    "cumulative": "total",
    "cumtime": "total",
    "time": "self",
    "tottime": "self",
    "ncalls": "calls",
}
"""Names of orders that people bring from ``%prun``."""

_FLAGS = re.compile(r"\s*-([rqL]+)(?=\s|$)")
_VALUE = re.compile(r"""\s*-([slDT])\s*("[^"]*"|'[^']*'|[^\s"']\S*)(?=\s|$)""")
_OPTION = re.compile(r"\s*-{1,2}[A-Za-z]\S*(?=\s|$)")


@dataclass(frozen=True, slots=True)
class MagicOptions:
    """What the line of a magic asks for."""

    statement: str
    returns: bool = False
    quiet: bool = False
    lines: bool = False
    saved: str = ""
    written: str = ""
    report: ReportOptions = field(default_factory=ReportOptions)


def parse_line(line: str) -> MagicOptions:
    """Split the line of a magic into options and statement.

    Raises
    ------
    OptionError
        For an option or a value that cannot be, naming those that can.

    Notes
    -----
    Options end at the first word that is none, so that the statement may hold anything.
    """
    flags: set[str] = set()
    values: dict[str, list[str]] = {"s": [], "l": [], "D": [], "T": []}
    while True:
        if match := _FLAGS.match(line):
            flags.update(match[1])
        elif match := _VALUE.match(line):
            values[match[1]].append(match[2].strip("\"'"))
        else:
            break
        line = line[match.end() :]
    if match := _OPTION.match(line):
        raise OptionError(
            f"%numbaprof: cannot make sense of {match[0].strip()!r}; the options are "
            "-L, -r, -q, -s KEY, -l LIMIT, -D FILE and -T FILE"
        )
    numbers = [int(value) for value in values["l"] if value.isdecimal()]
    report: dict[str, Any] = {
        "only": tuple(value for value in values["l"] if not value.isdecimal())
    }
    if values["s"]:
        report["sort"] = PRUN_KEYS.get(values["s"][-1], values["s"][-1])
    if numbers:
        report["top"] = numbers[-1]
    return MagicOptions(
        statement=line.strip(),
        returns="r" in flags,
        quiet="q" in flags,
        lines="L" in flags,
        saved="".join(values["D"][-1:]),
        written="".join(values["T"][-1:]),
        report=ReportOptions(**report),
    )


def load(shell: Any) -> None:
    """Register the magic with an IPython shell."""
    from IPython.core.error import UsageError
    from IPython.core.magic import no_var_expand

    def numbaprof(line: str, cell: str | None = None) -> ProfileResult | None:
        try:
            options = parse_line(line)
        except OptionError as error:
            raise UsageError(str(error)) from None
        source = "\n".join(
            part for part in (options.statement, cell) if part is not None
        )
        if not source.strip():
            raise UsageError("%numbaprof: there is no statement to profile")
        return _run(shell, source, options)

    numbaprof.__doc__ = HELP
    # Braces in the statement are the statement's. The decorator has no types.
    take_literally: Any = no_var_expand
    take_literally(numbaprof)
    shell.register_magic_function(numbaprof, "line_cell", "numbaprof")


def _run(shell: Any, source: str, options: MagicOptions) -> ProfileResult | None:
    code = _compile(shell, source)
    p = profile(lines=options.lines)
    started = False
    try:
        with p:
            started = True
            exec(code, shell.user_ns)
    except (SystemExit, KeyboardInterrupt) as error:
        if not started:
            raise
        print(f"*** {type(error).__name__} in the code being profiled.")
    finally:
        if started:
            _show(shell, p.result, options)
    return p.result if options.returns else None


def _compile(shell: Any, source: str) -> Any:
    """Compile as the shell compiles cells, so that Numba finds the source."""
    transformed = shell.transform_cell(source)
    name = shell.compile.cache(transformed)
    return shell.compile(transformed, name, "exec")


def _show(shell: Any, result: ProfileResult, options: MagicOptions) -> None:
    if options.saved:
        result.save(options.saved)
        print(f"*** Profile saved in {options.saved!r}.")
    if options.written:
        Path(options.written).write_text(
            render(result, options=options.report) + "\n", encoding="utf-8"
        )
        print(f"*** Report written to {options.written!r}.")
    if not (options.quiet or options.returns):
        shell.display_pub.publish(data=mimebundle(result, options.report), metadata={})
