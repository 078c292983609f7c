"""The command ``numbaprof explain``.

A file is run as a program, as ``numbaprof run`` would, and what it compiled of its own
functions is explained when it has ended, however it ended. Nothing is called that the
program would not call. Of ``module:function`` the module is imported, no more.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, TextIO

from numbaprof.errors import NumbaprofError, ProgramError
from numbaprof.explanation import Explanation, explain_file, explain_name
from numbaprof.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["add_explain", "run_explain"]

FAILURE = 1
USAGE = 2

DESCRIPTION = """\
Say why no profiler can time the lines of a jitted function, from its own machine code:
which lines have no instruction, what was inlined into what, which loops became vector
code and what to change for those that did not."""

EPILOG = """\
TARGET is one of
  script.py            run the program, then explain every function it compiled of those
                       that are defined in script.py
  script.py:kernel     the same, for one function
  package.mod:kernel   import the module and explain the function if it is compiled by
                       then (signatures given to @njit, or calls made on import)

What the program prints stays on stdout, the explanation goes to stderr; of a module it
goes to stdout. Arguments after TARGET are the program's."""


def add_explain(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    """Add the command ``explain``."""
    parser = commands.add_parser(
        "explain",
        help="say why a jitted function's lines have no time, by its machine code",
        usage="numbaprof explain TARGET [args ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="TARGET", help="see below")
    parser.add_argument(
        "arguments", metavar="args", nargs=argparse.REMAINDER, help="for the program"
    )


def run_explain(given: argparse.Namespace) -> int:
    """Run the command; return the exit code, or raise what ended the program."""
    file, wanted = _split(given.target)
    if file:
        return _explain_program(file, wanted, tuple(given.arguments))
    if ":" not in given.target:
        return _fail(
            f"explain: there is no file {given.target!r}; give script.py, "
            "script.py:function or module:function",
            USAGE,
        )
    if "" not in sys.path:
        # As with `python -m`; a console script does not look where one is.
        sys.path.insert(0, "")
    try:
        _show([explain_name(given.target)], sys.stdout)
    except NumbaprofError as error:
        return _fail(str(error), FAILURE)
    return 0


def _split(target: str) -> tuple[str, str]:
    """Return (file, function) if the target names a file; ("", "") otherwise."""
    if os.path.isfile(target):
        return target, ""
    file, _, function = target.rpartition(":")
    return (file, function) if os.path.isfile(file) else ("", "")


def _explain_program(file: str, wanted: str, arguments: tuple[str, ...]) -> int:
    # Before the program may change the folder it is in.
    names = (file, os.path.abspath(file), os.path.realpath(file))
    program = Program("script", file, arguments)
    try:
        program.check()
        program.run()
    except ProgramError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        raise
    except BaseException:
        _show(explain_file(names, wanted), sys.stderr)
        raise
    _show(explain_file(names, wanted), sys.stderr)
    return 0


def _show(explanations: Iterable[Explanation | str], stream: TextIO) -> None:
    texts: list[str] = []
    is_first = True
    for one in explanations:
        if isinstance(one, Explanation):
            texts.append(one.text(general=is_first))
            is_first = False
        else:
            texts.append(one)
    print("\n\n".join(texts), file=stream, flush=True)


def _fail(message: str, exit_code: int) -> int:
    print(f"numbaprof: {message}", file=sys.stderr)
    return exit_code
