"""The command line: ``numbaprof run``, ``report``, ``lines``, ``compare`` and more.

What the profiled program prints stays on stdout; whatever ``run`` has to say goes to
stderr. ``report`` is asked for its text, so there it goes to stdout.

Exit codes: the program's own for ``run``; 2 for a wrong command line; 1 for a file that
cannot be read, added or written. ``compare`` has its own, see :mod:`numbaprof.ci_cli`.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from numbaprof import store
from numbaprof.ci_cli import add_ab, add_compare, run_ab_command, run_compare
from numbaprof.errors import NumbaprofError, OptionError, ProgramError
from numbaprof.explain_cli import add_explain, run_explain
from numbaprof.merging import merge
from numbaprof.progress import show_progress
from numbaprof.recorder import Measures
from numbaprof.report import SORT_NAMES, ReportOptions, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numbaprof.model import ProfileResult
    from numbaprof.program import Program

__all__ = ["main"]

SIGNATURE_LEVELS = ("shape", "ndim", "type", "none")
FAILURE = 1
USAGE = 2
"""As argparse exits."""
UNCOMPARABLE = 2

DESCRIPTION = """\
Exact profiler for Numba: calls, run time, dispatch and compile time of every compiled
signature, and why each of them exists."""

EPILOG = """\
examples:
  numbaprof run script.py --its --own --options
  numbaprof run -o profile.json -m package.module
  numbaprof report profile.json --sort compile --only mykernel
  numbaprof run --lines -o profile.json script.py
  numbaprof lines profile.json --only mykernel
  numbaprof merge worker-*.json -o all.json
  numbaprof html profile.json -o profile.html
  numbaprof compare base.json head.json
  numbaprof ab origin/main

`numbaprof COMMAND --help` explains a command."""

RUN_DESCRIPTION = """\
Run a program as python would and profile what it compiles with Numba. The program's
output, arguments and exit code are its own. The report goes to stderr when the program
has ended, in whatever way; with -o the profile goes to a file instead."""

RUN_EPILOG = """\
Everything after the program belongs to the program. Options of numbaprof stand before:
  numbaprof run --top 5 script.py --top of the script
  numbaprof run -- -odd-name.py

With --start-disabled the program says what to measure: numbaprof.start() begins or goes
on, numbaprof.stop() pauses. Both do nothing outside `numbaprof run`.

Forked and spawned children are profiled as well and added. A process that ends by
os._exit or SIGKILL leaves no profile; a child that does is named in the report."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the command's name; ``sys.argv[1:]`` when left out.

    Returns
    -------
    int
        The exit code. ``run`` only returns when its program ended by itself; else what
        ended the program is raised.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="numbaprof",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show the version and exit"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    takes_value = _add_run(commands)
    _add_report(commands)
    _add_lines(commands)
    _add_merge(commands)
    _add_html(commands)
    add_compare(commands)
    add_ab(commands)
    add_explain(commands)

    program: list[str] = []
    if arguments[:1] == ["run"]:
        options, program = split_at_program(arguments[1:], takes_value)
        arguments = ["run", *options]
    elif arguments[:1] == ["ab"] and "--" in arguments:
        # Not left to argparse, which takes the first -- away wherever it stands.
        position = arguments.index("--")
        arguments, program = arguments[:position], list(arguments[position + 1 :])
    elif arguments and os.path.isfile(arguments[0]):
        parser.error(
            f"{arguments[0]!r} is a file, not a command; "
            f"did you mean: numbaprof run {arguments[0]}"
        )
    given = parser.parse_args(arguments)
    if given.command == "run":
        # Not within the `try`: what the program raises is not ours to catch.
        return _run(given, program, commands.choices["run"])
    if given.command == "explain":
        return run_explain(given)
    try:
        if given.command == "ab":
            return run_ab_command(given, program)
        actions = {
            "report": _report,
            "lines": _lines,
            "merge": _merge,
            "html": _html,
            "compare": run_compare,
        }
        return actions[given.command](given)
    except OptionError as error:
        return _fail(str(error), USAGE)
    except NumbaprofError as error:
        return _fail(str(error), _failure_code(given.command))
    except OSError as error:
        return _fail(
            f"cannot read {error.filename}: {error.strerror}",
            _failure_code(given.command),
        )


def _failure_code(command: str) -> int:
    """Return the exit code of an error: 1 is taken where it means a regression."""
    return UNCOMPARABLE if command in ("ab", "compare") else FAILURE


def _fail(message: str, exit_code: int) -> int:
    print(f"numbaprof: {message}", file=sys.stderr)
    return exit_code


class _ShowVersion(argparse.Action):
    """Print the version; imported only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from numbaprof import __version__

        print(f"numbaprof {__version__}")
        parser.exit()


# -- run -------------------------------------------------------------------------------


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> set[str]:
    """Add the command; return the names of its options that take a value."""
    parser = commands.add_parser(
        "run",
        help="run a program and profile it",
        usage="numbaprof run [options] (SCRIPT | -m MODULE | -c CODE | -) [args ...]",
        description=RUN_DESCRIPTION,
        epilog=RUN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    options = [
        add("-o", dest="output", metavar="FILE", help="save the profile in FILE "
            "(compressed if it ends in .gz) instead of printing the report"),
        add("-q", dest="quiet", action="store_true", help="print only problems"),
        add("--start-disabled", action="store_true",
            help="measure only after the program has called numbaprof.start()"),
        add("--detail", action="append", default=[], metavar="PATTERN",
            help="split the time of functions whose qualified name fits PATTERN "
            "(wildcards * ? [..]) into unboxing, kernel and boxing; may be repeated"),
        add("--python", action="store_true",
            help="see every call of Python functions and builtins, too, from the "
            "import of Numba on"),
        add("--signatures", choices=SIGNATURE_LEVELS, metavar="LEVEL",
            help="with --python: what tells rows of one function apart: shape (dtype "
            "and shape of arrays, types of the rest; the default), ndim, type or none"),
        add("--lines", action="store_true",
            help="sample which source lines of compiled code take the time"),
        add("--interval", type=_milliseconds, metavar="MS",
            help="with --lines: milliseconds of CPU time between two samples "
            "(default: 4)"),
        add("--perf-map", action="store_true",
            help="at the end, append the names of compiled functions to "
            "/tmp/perf-PID.map, where perf report looks for them"),
        add("--no-children", action="store_true", help="leave out child processes"),
        *_add_report_options(parser),
    ]  # fmt: skip
    program = parser.add_argument_group("program")
    # Never parsed: split_at_program takes them off before. Here for the help text.
    program.add_argument("-m", metavar="MODULE", help="run a module, as python -m does")
    program.add_argument("-c", metavar="CODE", help="run source text")
    return {
        name
        for option in options
        if option.nargs != 0
        for name in option.option_strings
    }


def _add_report_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    defaults = ReportOptions()
    group = parser.add_argument_group("report")
    return [
        group.add_argument(
            "--sort",
            choices=SORT_NAMES,
            default=defaults.sort,
            metavar="KEY",
            help=f"order of the overloads: {', '.join(SORT_NAMES)} "
            "(default: %(default)s)",
        ),
        *_add_limits(group, "overloads"),
    ]


def _add_limits(
    group: argparse._ActionsContainer, listed: str
) -> list[argparse.Action]:
    return [
        group.add_argument(
            "--top",
            type=int,
            default=ReportOptions().top,
            metavar="N",
            help=f"list N {listed} and sum the rest (default: %(default)s)",
        ),
        group.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="PATTERN",
            help="list only functions whose name, module or file has PATTERN in it, "
            "or fits it if it has wildcards (* ? [..]); may be repeated",
        ),
    ]


def split_at_program(
    arguments: Sequence[str], takes_value: set[str]
) -> tuple[list[str], list[str]]:
    """Split the arguments of ``run`` where the program begins.

    argparse cannot do it: it would look for our options among the program's.

    Parameters
    ----------
    arguments : sequence of str
        What follows ``run``.
    takes_value : set of str
        Options that are followed by a value, unless it is part of the same word.

    Returns
    -------
    options, program : list of str
        ``program`` begins with a script, ``-``, ``-m`` or ``-c``; it is empty if there
        is none. ``-mNAME`` has become ``-m NAME``; a ``--`` in front is gone.
    """
    position = 0
    while position < len(arguments):
        word = arguments[position]
        if word == "--":
            return list(arguments[:position]), list(arguments[position + 1 :])
        if word == "-" or not word.startswith("-"):
            return list(arguments[:position]), list(arguments[position:])
        if word.startswith(("-m", "-c")):
            joined = [word[2:]] if len(word) > 2 else []
            rest = [word[:2], *joined, *arguments[position + 1 :]]
            return list(arguments[:position]), rest
        position += 2 if word in takes_value else 1
    return list(arguments), []


def _to_program(words: list[str], parser: argparse.ArgumentParser) -> Program:
    from numbaprof.program import Program

    if not words:
        parser.error("there is no program to run: give a script, -m MODULE or -c CODE")
    first, rest = words[0], words[1:]
    if first == "-":
        return Program("stdin", "", tuple(rest))
    if first not in ("-m", "-c"):
        return Program("script", first, tuple(rest))
    if not rest:
        parser.error(f"argument {first}: expected what to run")
    return Program("module" if first == "-m" else "code", rest[0], tuple(rest[1:]))


def _run(
    given: argparse.Namespace, words: list[str], parser: argparse.ArgumentParser
) -> int:
    from numbaprof.runner import RunOptions, run

    program = _to_program(words, parser)
    if given.signatures and not given.python:
        parser.error("argument --signatures: needs --python")
    if given.interval and not given.lines:
        parser.error("argument --interval: needs --lines")
    try:
        options = RunOptions(
            output=given.output and os.path.abspath(given.output),
            quiet=given.quiet,
            start_disabled=given.start_disabled,
            children=not given.no_children,
            measures=_measures(given),
            report=_report_options(given),
        )
    except OptionError as error:
        return _fail(str(error), USAGE)
    try:
        run(program, options)
    except ProgramError as error:
        return _fail(str(error), error.exit_code)
    return 0


def _milliseconds(text: str) -> float:
    """Read an interval in milliseconds; return seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 10_000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of milliseconds from 0.05 to 10000"
        )
    return value / 1000


def _measures(given: argparse.Namespace) -> Measures:
    return Measures(
        detail=tuple(given.detail),
        signatures=given.signatures or "shape" if given.python else "",
        # For a profile that is kept, and so may be compared later.
        fingerprints=given.output is not None,
        lines=given.lines,
        interval=given.interval,
        perf_map=given.perf_map,
    )


# -- saved profiles --------------------------------------------------------------------


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="show a saved profile",
        description="Print the report of a saved profile on stdout.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="made by `numbaprof run -o`")
    _add_report_options(parser)


def _add_lines(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "lines",
        help="show the source lines of a saved profile",
        description="Print the source lines of compiled code, with sampled times and, "
        "if they were counted, exact hits, of a profile saved by "
        "`numbaprof run --lines -o`.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="made by `numbaprof run -o`")
    _add_limits(parser, "functions")


def _add_merge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "merge",
        help="add saved profiles",
        description="Add the profiles of several processes, workers or runs. Overloads "
        "of the same function with the same signature become one; processes are kept "
        "apart.",
        allow_abbrev=False,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="profiles to add")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="OUT",
        required=True,
        help="file for the sum; compressed if it ends in .gz",
    )


def _add_html(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "html",
        help="make a page of a saved profile",
        description="Write one HTML file that shows a saved profile in a browser: the "
        "calling contexts, the overloads, the compilations over time. It needs no "
        "network and nothing beside it.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="made by `numbaprof run -o`")
    parser.add_argument(
        "-o", dest="output", metavar="OUT", required=True, help="file for the page"
    )


def _report_options(given: argparse.Namespace) -> ReportOptions:
    return ReportOptions(sort=given.sort, top=given.top, only=tuple(given.only))


def _report(given: argparse.Namespace) -> int:
    return _print(store.load(given.file), _report_options(given))


def _lines(given: argparse.Namespace) -> int:
    result = store.load(given.file)
    if not (result.sampling or result.line_facts):
        return _fail(
            f"{given.file} was saved without source lines; profile again with "
            "`numbaprof run --lines -o FILE ...`",
            FAILURE,
        )
    return _print(
        result, ReportOptions(top=given.top, only=tuple(given.only), lines_only=True)
    )


def _print(result: ProfileResult, options: ReportOptions) -> int:
    try:
        write(result, sys.stdout, options)
        sys.stdout.flush()
    except BrokenPipeError:
        # `numbaprof report ... | head`. Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    return 0


def _merge(given: argparse.Namespace) -> int:
    total = merge(
        [store.load(path) for path in show_progress(given.files, "reading", sys.stderr)]
    )
    saved = store.save_or_rescue(total, given.output)
    if saved.problem:
        return _fail(f"{saved.problem}; it was saved in {saved.path} instead", FAILURE)
    return 0


def _html(given: argparse.Namespace) -> int:
    from numbaprof.html import to_html

    if os.path.exists(given.output) and os.path.samefile(given.file, given.output):
        return _fail(
            f"html: {given.output} is the profile itself; give -o another name", USAGE
        )
    to_html(store.load(given.file), given.output)
    return 0
