"""Run Numba's own test suites plain and under ``numbaprof run``, and compare.

    python tests/integration/compare_numba_suites.py                  # the default ones
    python tests/integration/compare_numba_suites.py test_dispatcher  # some of them
    python tests/integration/compare_numba_suites.py test_parfors@3:10  # a tenth
    python tests/integration/compare_numba_suites.py --with lines     # line tables

Each suite is run as ``python -m numba.runtests -v SUITE`` and as ``python -m numbaprof
run -o PROFILE -m numba.runtests -v SUITE``, and every single test must end alike:
passed, failed, in error, skipped for the same reason. The profile must be sound: its
figures agree with each other and nothing failed inside numbaprof. With ``--with lines``
the second run is the plain one but for line tables being on, in child processes too;
then no hook of theirs may fail, and all must be put back.

Where a test ends otherwise, both are repeated. A test is called unsteady if it ends
differently among plain runs alone; all other differences are numbaprof's, and so is a
profile that is not sound. Exit code 1 if there is any.

Takes as long as the suites do, twice; of the longest, a slice is the default.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numbaprof import check, store
from numbaprof.errors import NumbaprofError

__all__ = [
    "Comparison",
    "SuiteRun",
    "compare_suite",
    "profile_problems",
    "read_outcomes",
    "run_suite",
]

SUITES = (
    "test_dispatcher",
    "test_jitclasses",
    "test_generators",
    "test_exceptions",
    "test_recursion",
    "test_withlifting",
    "test_caching",
    "test_cfunc",
    "test_function_type",
    "test_object_mode",
    "test_struct_ref",
    "test_event",
    "test_errorhandling",
    "test_looplifting",
    "test_nrt",
    "test_threadsafety",
    "test_compiler_lock",
    "test_gil",
    "test_closure",
    "test_extending",
    "test_profiler",
    "test_sys_monitoring",
    "test_tracing",
    "test_warnings",
    "npyufunc.test_caching",
    "npyufunc.test_dufunc@0:6",
    "npyufunc.test_errors",
    "npyufunc.test_gufunc@0:3",
    "npyufunc.test_parallel_env_variable",
    "npyufunc.test_parallel_low_work",
    "npyufunc.test_parallel_ufunc_issues",
    "npyufunc.test_ufunc",
    "npyufunc.test_ufuncbuilding",
    "npyufunc.test_update_inplace",
    "npyufunc.test_vectorize_decor",
    "test_parfors@0:12",
    "test_stencils@0:8",
    "test_typedlist@0:6",
    "test_dictobject@0:8",
)
"""Below ``numba.tests``: whatever numbaprof hooks, patches or listens to."""
LINE_SUITES = (
    "test_debuginfo",
    "test_array_exprs",
    "test_closure",
    "test_inlining",
    "test_ir_inlining",
    "test_stencils@0:16",
    "test_parfors@0:20",
    "test_parfors_passes",
    "test_ufuncs@0:30",
    "test_looplifting",
    "test_object_mode",
    "test_generators",
    "npyufunc.test_gufunc@0:3",
    "npyufunc.test_ufuncbuilding",
    "npyufunc.test_vectorize_decor",
)
"""Whatever looks at debug information, inlines, or generates source."""

WITHOUT_LINES = (
    "test_environment_override (numba.tests.test_debuginfo.TestDebugInfo",
    "test_no_debuginfo_in_asm (numba.tests.test_debuginfo.TestDebugInfo",
    "test_nrt_stack_trace (numba.tests.test_debuginfo.TestDebugInfoEmission",
)
"""Tests that there are no lines in code compiled without ``debug=True``, or nothing at
the end of an instruction's text. They must fail with line tables."""

Mode = Literal["plain", "profile", "lines"]

LINES_AT_START = """
import atexit, json, os
from numbaprof.native.linetable import LineTables

tables = LineTables()
tables.start()


def write():
    problems = [*tables.problems, *tables.stop()]
    with open(os.path.join({folder!r}, f"{{os.getpid()}}.json"), "w") as file:
        json.dump(problems, file)


atexit.register(write)
"""
"""``sitecustomize.py`` of processes with line tables; each writes what went wrong."""

TIMEOUT_S = 7200
"""Only ends what hangs."""
REPEATS = 2
"""Plain runs more, when there is a difference, to find out what is unsteady."""

UNKNOWN = "no outcome"
"""Outcome of a test that was begun and not ended, as in a crash."""
SUBTESTS = "failed in subtests"

_HEADER = re.compile(r"^(?P<indent> *)(?P<test>\w+ \(numba\.[\w.]+\))(?P<rest>.*)$")
_STATUS = re.compile(
    r"(?:^|[ .\]])(?P<status>ok|FAIL|ERROR|expected failure|unexpected success"
    r"|skipped (?P<quote>['\"]).*(?P=quote))$"
)
_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_SEPARATOR = "=" * 70


@dataclass(frozen=True)
class SuiteRun:
    """One run of one suite."""

    outcomes: dict[str, str]
    """Outcome of every test, and of every subtest that did not pass."""
    ran: int
    """Tests that unittest says it ran; -1 when it did not come to that."""
    exit_code: int
    seconds: float
    problems: tuple[str, ...] = ()
    """What is wrong with the profile; empty for a plain run."""
    calls: int = 0
    """Calls of overloads in the profile."""
    processes: int = 0
    """Processes in the profile."""

    @property
    def summary(self) -> str:
        """Outcomes counted: ``47 ok, 2 skipped``."""
        counts = Counter(text.partition(" '")[0] for text in self.outcomes.values())
        counts = Counter({key.partition(' "')[0]: n for key, n in counts.items()})
        return ", ".join(f"{n} {key}" for key, n in sorted(counts.items()))


@dataclass(frozen=True)
class Comparison:
    """What is different between plain and profiled runs of a suite."""

    suite: str
    plain: SuiteRun
    profiled: SuiteRun
    differences: tuple[str, ...]
    """One line per test that ends otherwise, exit codes and the profile's problems."""
    unsteady: tuple[str, ...]
    """One line per test that ends differently without numbaprof as well, or that is
    there to fail when code has lines."""

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        if self.differences:
            return "DIFFERENT"
        return f"same, but for {len(self.unsteady)}" if self.unsteady else "same"


def read_outcomes(text: str) -> dict[str, str]:
    """Read what ``unittest -v`` wrote to standard error.

    Parameters
    ----------
    text : str
        All of it; tests and their subprocesses may have written in between.

    Returns
    -------
    dict
        Outcome by test. A test that was run twice has both, separated by a comma.
    """
    found: dict[str, list[str]] = defaultdict(list)
    begun: str | None = None
    for line in text.splitlines():
        if line == _SEPARATOR:
            break
        header = _HEADER.match(line)
        if header is not None:
            is_subtest = bool(header["indent"])
            if not is_subtest and begun is not None:
                found[begun].append(UNKNOWN)
            if is_subtest:
                # The test itself has no line of its own then.
                if begun is not None:
                    found[begun].append(SUBTESTS)
                    begun = None
                name, _, status = line.strip().rpartition(" ... ")
                found[name].append(status)
                continue
            begun = header["test"]
        status_match = _STATUS.search(line)
        if begun is not None and status_match is not None:
            found[begun].append(status_match["status"])
            begun = None
    if begun is not None:
        found[begun].append(UNKNOWN)
    return {test: ", ".join(outcomes) for test, outcomes in found.items()}


def run_suite(suite: str, folder: Path, *, mode: Mode, number: int = 0) -> SuiteRun:
    """Run one suite in a process of its own.

    Parameters
    ----------
    suite : str
        Below ``numba.tests``; may name a class or a test, ``test_cfunc.TestCFunc``.
        ``test_parfors@3:10`` is slice 3 of 10, chosen by Numba's option ``-j``.
    folder : Path
        Receives what the run wrote, and the profile.
    mode : str
        "plain"; "profile", under numbaprof; "lines", with line tables.
    number : int, optional
        Part of the files' names, for repetitions.
    """
    stem = f"{suite}-{mode}-{number}".replace(":", "of")
    profile = folder / f"{stem}.json"
    name, _, part = suite.partition("@")
    program = ["-m", "numba.runtests", "-v", *(["-j", part] if part else [])]
    program.append(f"numba.tests.{name}")
    environment = dict(os.environ)
    if mode == "profile":
        program = ["-m", "numbaprof", "run", "-q", "-o", str(profile), *program]
    if mode == "lines":
        environment["PYTHONPATH"] = _line_tables_at_start(folder / f"{stem}-start")
    log = folder / f"{stem}.log"
    started = time.monotonic()
    with log.open("w") as stderr, log.with_suffix(".out").open("w") as stdout:
        done = subprocess.run(
            [sys.executable, *program],
            stdout=stdout,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    seconds = time.monotonic() - started
    text = log.read_text(errors="replace")
    ran = _RAN.findall(text)
    outcomes = read_outcomes(text)
    count = int(ran[-1]) if ran else -1
    calls = processes = 0
    problems: tuple[str, ...] = ()
    if mode == "profile":
        problems, calls, processes = profile_problems(profile)
    if mode == "lines":
        problems, processes = line_problems(folder / f"{stem}-start")
    return SuiteRun(
        outcomes, count, done.returncode, seconds, problems, calls, processes
    )


def _line_tables_at_start(folder: Path) -> str:
    """Return a PYTHONPATH with which every process has line tables from its start."""
    folder.mkdir()
    start = folder / "sitecustomize.py"
    start.write_text(LINES_AT_START.format(folder=str(folder)))
    return os.pathsep.join(map(str, (folder, Path(__file__).parents[2])))


def line_problems(folder: Path) -> tuple[tuple[str, ...], int]:
    """Return (what went wrong with line tables, processes that had them)."""
    reports = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    found = tuple(f"line tables: {line}" for report in reports for line in report)
    if not reports:
        found = (*found, "no process had line tables")
    return found, len(reports)


def profile_problems(profile: Path) -> tuple[tuple[str, ...], int, int]:
    """Return (what is wrong with a profile, calls in it, processes in it).

    Parameters
    ----------
    profile : Path
        File that ``numbaprof run -o`` should have written.
    """
    try:
        result = store.load(profile)
    except (NumbaprofError, OSError) as error:
        return (f"no profile: {error}",), 0, 0
    problems = [f"the figures disagree: {line}" for line in check.violations(result)]
    problems += [f"error in numbaprof: {line}" for line in result.losses.hook_errors]
    problems += [f"not put back: {line}" for line in result.losses.unrestored]
    calls = sum(overload.calls or 0 for overload in result.overloads)
    return tuple(problems), calls, len(result.processes)


def compare_suite(
    suite: str, folder: Path, repeats: int = REPEATS, mode: Mode = "profile"
) -> Comparison:
    """Run a suite both ways and compare, with repetitions where they differ.

    Parameters
    ----------
    suite : str
        Below ``numba.tests``.
    folder : Path
        Receives logs and profiles.
    repeats : int, optional
        Plain runs more when a test ends otherwise.
    mode : str, optional
        How the other run is made.
    """
    plain = [run_suite(suite, folder, mode="plain")]
    profiled = run_suite(suite, folder, mode=mode)
    wrong = _different_tests(plain[0], profiled)
    meant = [t for t in wrong if mode == "lines" and t.startswith(WITHOUT_LINES)]
    wrong = [test for test in wrong if test not in meant]
    if wrong:
        plain += [
            run_suite(suite, folder, mode="plain", number=number)
            for number in range(1, repeats + 1)
        ]
    differences, unsteady = list(profiled.problems), []
    unsteady += [f"{test}: fails because there are lines" for test in meant]
    for test in wrong:
        outcomes = [run.outcomes.get(test, "not run") for run in plain]
        line = f"{test}: {profiled.outcomes.get(test, 'not run')}, plain {outcomes}"
        (unsteady if len(set(outcomes)) > 1 else differences).append(line)
    if not unsteady and not meant and plain[0].exit_code != profiled.exit_code:
        differences.append(
            f"exit code {profiled.exit_code}, plain {plain[0].exit_code}"
        )
    for run in (plain[0], profiled):
        if run.ran < 0:
            differences.append("the suite did not run to its end")
        elif not run.outcomes:
            differences.append("no outcome of any test was found in the output")
    return Comparison(suite, plain[0], profiled, tuple(differences), tuple(unsteady))


def _different_tests(plain: SuiteRun, profiled: SuiteRun) -> list[str]:
    tests = {*plain.outcomes, *profiled.outcomes}
    return sorted(
        test
        for test in tests
        if plain.outcomes.get(test) != profiled.outcomes.get(test)
    )


def _print_row(comparison: Comparison) -> None:
    plain, profiled = comparison.plain, comparison.profiled
    print(
        f"| {comparison.suite} | {plain.ran} | {plain.summary} | {profiled.summary} "
        f"| {profiled.calls:,} | {profiled.processes} | {plain.seconds:.0f} "
        f"| {profiled.seconds:.0f} | {comparison.verdict} |",
        flush=True,
    )
    for line in comparison.differences:
        print(f"  different: {line}", file=sys.stderr, flush=True)
    for line in comparison.unsteady:
        print(f"  unsteady: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Compare the suites named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    parser.add_argument(
        "--with", dest="mode", choices=("profile", "lines"), default="profile"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="keep logs and profiles here")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="numbaprof-suites-") as temporary:
        folder = Path(options.keep or temporary).absolute()
        os.makedirs(folder, exist_ok=True)
        print(
            "| suite | tests | plain | profiled | calls seen | processes "
            "| plain, s | profiled, s | verdict |\n| " + " | ".join(["---"] * 9) + " |"
        )
        failed = False
        default = LINE_SUITES if options.mode == "lines" else SUITES
        for suite in options.suites or default:
            comparison = compare_suite(suite, folder, options.repeats, options.mode)
            _print_row(comparison)
            failed = failed or bool(comparison.differences)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
