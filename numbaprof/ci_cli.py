"""The commands of continuous integration: ``numbaprof compare`` and ``numbaprof ab``.

Exit codes: 0 no regression; 1 a regression; 2 it could not be compared. ``--exit-zero``
turns 1 into 0, never 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof import compare_files, compare_text
from numbaprof.comparing import compare
from numbaprof.comparison import (
    EXIT_OK,
    EXIT_REGRESSION,
    EXIT_UNCOMPARABLE,
    GATES,
    GateOptions,
)
from numbaprof.errors import OptionError, SaveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numbaprof.comparison import Comparison, Gate

__all__ = ["add_ab", "add_compare", "run_ab_command", "run_compare"]

FORMATS = ("term", "md", "json", "junit", "csv")
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Name of the file that GitHub shows as the summary of a job's step."""

NS_PER_S = 1e9
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}
"""In this order: "ms" ends in "s", "m" in nothing else."""
MAX_DURATION_S = 1e6

COMPARE_DESCRIPTION = """\
Compare two profiles (`numbaprof run -o`) or two run files (`numbaprof ab -o`), overload
by overload. New overloads, lost vector instructions and object mode are exact and
decided with any baseline; run time is decided on one target and machine only, elsewhere
it is shown as advisory. One run file alone: its head against its base, as ab did."""

COMPARE_EPILOG = """\
exit codes: 0 no regression, 1 regression, 2 could not compare

examples:
  numbaprof run -o base.json script.py      # on the main branch
  numbaprof run -o head.json script.py      # on yours
  numbaprof compare base.json head.json
  numbaprof compare ab.json --format md --fail new,simd"""


def add_compare(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    """Add the command ``compare``."""
    parser = commands.add_parser(
        "compare",
        help="compare two saved profiles or runs",
        description=COMPARE_DESCRIPTION,
        epilog=COMPARE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("base", metavar="BASE.json", help="profile or run file")
    parser.add_argument(
        "head", metavar="HEAD.json", nargs="?", help="the same kind of file"
    )
    parser.add_argument(
        "--min-effect", type=share, metavar="PERCENT",
        help="smallest change of run time that counts (default: 5%%)",
    )  # fmt: skip
    add_output_options(parser)


AB_DESCRIPTION = """\
Compare two versions of a project by its own benchmark tests, overload by overload.
BASE and HEAD are directories, git refs (checked out into a temporary worktree) or
Python executables; HEAD is the current directory when left out. Both run at once, in
lock-step, in fresh processes per session, so that what the machine does meanwhile hits
both."""

AB_EPILOG = """\
exit codes: 0 no regression, 1 regression, 2 could not compare (or interrupted)

Tests are those with the fixture `benchmark` (with or without pytest-benchmark) or
`numbaprof`. What follows -- goes to pytest.

examples:
  numbaprof ab origin/main
  numbaprof ab v1.0 . --sessions 3 -- tests/benchmarks -k fast
  numbaprof ab ../clone-of-main . --github --write junit=numbaprof.xml
  numbaprof ab venv-old/bin/python venv-new/bin/python"""


def add_ab(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``ab``."""
    from numbaprof.ab import AbOptions

    default = AbOptions()
    parser = commands.add_parser(
        "ab",
        help="measure two versions of a project against each other",
        usage="numbaprof ab BASE [HEAD] [options] [-- pytest args ...]",
        description=AB_DESCRIPTION,
        epilog=AB_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("base", metavar="BASE", help="directory, git ref or Python executable")
    add("head", metavar="HEAD", nargs="?", default=".", help="the same (default: .)")
    add(
        "--sessions",
        type=int,
        metavar="N",
        default=default.sessions,
        help="pairs of fresh processes (default: %(default)s)",
    )
    add(
        "--confirm",
        type=int,
        metavar="N",
        default=default.confirm,
        help="further ones for tests that look slower; 0 judges by the first alone "
        "(default: %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        metavar="N",
        default=default.rounds,
        help="alternating rounds per test and session (default: %(default)s)",
    )
    add(
        "--round-time",
        type=duration_ns,
        metavar="TIME",
        default=default.round_ns,
        help="least length of a round (default: 2ms)",
    )
    add(
        "--min-effect",
        type=share,
        metavar="PERCENT",
        default=default.min_effect,
        help="smallest change of run time that counts (default: 5%%)",
    )
    add(
        "--budget",
        type=duration_ns,
        metavar="TIME",
        default=round(default.budget_s * NS_PER_S),
        help="no session is begun that would end later (default: 10m)",
    )
    add(
        "-o",
        dest="output",
        metavar="FILE",
        default=os.fspath(default.output),
        help="run file, renewed after each session (default: %(default)s)",
    )
    add("--resume", action="store_true", help="go on with the run file")
    add(
        "--reuse-cache",
        action="store_true",
        help="keep Numba's cache from session to session: faster where functions have "
        "cache=True, but compile times are then not judged",
    )
    add("--save-rounds", action="store_true", help="keep every round in the run file")
    add_output_options(parser)


def duration_ns(text: str) -> int:
    """Read ``2ms``, ``90s``, ``10m`` or ``1h`` as nanoseconds."""
    for unit, factor in UNITS.items():
        number = text.removesuffix(unit)
        if number != text:
            try:
                value = float(number)
            except ValueError:
                break
            if 0 < value < MAX_DURATION_S * NS_PER_S / factor:
                return round(value * factor)
            break
    raise argparse.ArgumentTypeError(
        f"{text!r} is no duration; write a number above 0 and one of "
        f"{', '.join(UNITS)}: 2ms, 90s, 10m"
    )


def run_ab_command(given: argparse.Namespace, pytest_args: Sequence[str]) -> int:
    """Run ``numbaprof ab``; return the exit code."""
    from numbaprof.ab import AbOptions, Interrupted, run_ab
    from numbaprof.comparing import gate_options_of

    options = AbOptions(
        sessions=given.sessions,
        confirm=given.confirm,
        rounds=given.rounds,
        round_ns=given.round_time,
        min_effect=given.min_effect,
        budget_s=given.budget / NS_PER_S,
        output=Path(given.output),
        resume=given.resume,
        reuse_cache=given.reuse_cache,
        save_rounds=given.save_rounds,
        pytest_args=tuple(pytest_args),
    )
    requested = gate_options(given)
    try:
        run = run_ab(given.base, given.head, options,
                     gates=gate_options_of(requested), stream=sys.stderr)  # fmt: skip
    except Interrupted as error:
        print(f"numbaprof: {error}", file=sys.stderr)
        return EXIT_UNCOMPARABLE
    comparison = compare(run, **requested)
    code = show(comparison, given)
    print(f"numbaprof: the run is in {given.output}; look again with: numbaprof "
          f"compare {given.output}", file=sys.stderr)  # fmt: skip
    return code


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about gates and outputs, which both commands have."""
    defaults = ", ".join(GateOptions().fail)
    group = parser.add_argument_group("gates")
    group.add_argument(
        "--fail", type=_gates, metavar="GATES", default=None,
        help=f"what fails, separated by commas: {', '.join(GATES)}; or none "
        f"(default: {defaults.replace(' ', '')})",
    )  # fmt: skip
    group.add_argument(
        "--allow-new", action="append", default=[], metavar="PATTERN",
        help="functions whose new overloads do not fail: 'kernel', 'pkg.*', "
        "'kernel(float32)'; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--strict-target", action="store_true",
        help="exit with 2 when the sides were compiled for different targets",
    )  # fmt: skip
    group.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 in spite of a regression"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--format", choices=FORMATS, default="term", metavar="FORMAT",
        help=f"what goes to stdout: {', '.join(FORMATS)} (default: term)",
    )  # fmt: skip
    output.add_argument(
        "--write", action="append", default=[], metavar="FORMAT=FILE",
        help="write a file as well: md=comment.md, junit=numbaprof.xml; may be "
        "repeated",
    )  # fmt: skip
    output.add_argument(
        "--github", action="store_true",
        help="append Markdown to the step summary and annotate failing functions",
    )  # fmt: skip


def share(text: str) -> float:
    """Read ``5%`` or ``0.05`` as 0.05."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no share; write 5% or 0.05, below 100%"
        )
    return value


def _gates(text: str) -> tuple[Gate, ...]:
    if text == "none":
        return ()
    known: dict[str, Gate] = {gate: gate for gate in GATES}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"there is no gate {name!r}; gates: {', '.join(GATES)}, or none"
            )
    return tuple(known[name] for name in names)


def gate_options(given: argparse.Namespace) -> dict[str, Any]:
    """Return what was asked for as options of :func:`numbaprof.compare`."""
    options: dict[str, Any] = {
        "allow_new": tuple(given.allow_new),
        "strict_target": given.strict_target,
    }
    if given.fail is not None:
        options["fail"] = given.fail
    if getattr(given, "min_effect", None) is not None:
        options["min_effect"] = given.min_effect
    return options


def run_compare(given: argparse.Namespace) -> int:
    """Run ``numbaprof compare``; return the exit code."""
    comparison = compare(given.base, given.head, **gate_options(given))
    return show(comparison, given)


def show(comparison: Comparison, given: argparse.Namespace) -> int:
    """Print and write a comparison as asked for; return the exit code."""
    for request in given.write:
        kind, _, path = request.partition("=")
        if kind not in FORMATS or not path:
            raise OptionError(
                f"--write {request!r}: write FORMAT=FILE with one of "
                f"{', '.join(FORMATS)}"
            )
        _write(Path(path), _formatted(comparison, kind), mode="w")
    terminal = given.format == "term" and sys.stdout.isatty()
    if terminal:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
        color = "NO_COLOR" not in os.environ
        print(compare_text.render(comparison, width=width, color=color), end="")
    else:
        print(_formatted(comparison, given.format), end="")
    if given.github:
        _tell_github(comparison, given.format)
    code = comparison.exit_code
    return EXIT_OK if given.exit_zero and code == EXIT_REGRESSION else code


def _formatted(comparison: Comparison, kind: str) -> str:
    match kind:
        case "md":
            return comparison.to_markdown()
        case "json":
            return comparison.to_json()
        case "junit":
            return comparison.to_junit()
        case "csv":
            return comparison.to_csv()
    return compare_text.render(comparison)


def _tell_github(comparison: Comparison, stdout_format: str) -> None:
    """Append to the step summary and annotate.

    Workflow commands are read from either stream; stderr leaves a machine-readable
    stdout whole.
    """
    path = os.environ.get(STEP_SUMMARY)
    if path:
        _write(Path(path), comparison.to_markdown() + "\n", mode="a")
    stream = sys.stdout if stdout_format == "term" else sys.stderr
    for line in compare_files.github_annotations(comparison):
        print(line, file=stream)


def _write(path: Path, text: str, *, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SaveError(
            error.errno,
            f"the comparison could not be written ({error.strerror}); choose a file in "
            "a folder that exists and that you may write to",
            os.fspath(path),
        ) from error
