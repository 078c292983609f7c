"""Runs one program twice, plain and under ``numbaprof run``, and compares.

What must hold of every program is asserted here, in :meth:`CaseRunner.run`; what is
special about one is asserted in its test. Numba's own trace of compiler passes
(``NUMBA_CHROME_TRACE``), written by the program itself, says what was compiled: it
knows nothing of numbaprof and must be the same in both runs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # before a test looks: its imports add to sys.meta_path
from running import Run, Runner

from numbaprof.analysis import display_names
from numbaprof.check import check

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numbaprof.model import CompileEvent, OverloadStats, ProfileResult

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SIMILAR = HERE / "similar"


@dataclass(frozen=True)
class Case:
    """A program that ran plain and profiled."""

    plain: Run
    profiled: Run
    result: ProfileResult

    @property
    def overloads(self) -> list[OverloadStats]:
        """The user's overloads, in order."""
        return [overload for overload in self.result.overloads if not overload.internal]

    @property
    def calls(self) -> dict[str, dict[str, int | None]]:
        """Number of calls by function and signature, of the user's overloads.

        Functions have the names of a report: ``f``, ``f#2`` for another ``f``.
        """
        names = display_names(self.result)
        found: dict[str, dict[str, int | None]] = {}
        for overload in self.overloads:
            of_function = found.setdefault(names[overload.function], {})
            assert overload.signature not in of_function
            of_function[overload.signature] = overload.calls
        return found

    @property
    def totals(self) -> dict[str, int]:
        """Number of calls by function; functions without a counted call left out."""
        return {
            name: total
            for name, calls in self.calls.items()
            if (total := sum(count or 0 for count in calls.values()))
        }

    def overload(self, qualname: str, signature: str | None = None) -> OverloadStats:
        """Return the one overload of this name (and signature)."""
        names = display_names(self.result)
        (found,) = (
            overload
            for overload in self.overloads
            if names[overload.function] == qualname
            and signature in (None, overload.signature)
        )
        return found

    def events(self, qualname: str, event: str = "compile") -> list[CompileEvent]:
        """Return the events of one function (of all its instances)."""
        return [
            found
            for found in self.result.compile_events
            if found.function.qualname == qualname and found.event == event
        ]

    def reasons(self, qualname: str) -> list[str]:
        """Return why each overload of a function exists."""
        reasons = self.result.stats["reason"]
        return list(reasons[reasons.index.get_level_values("function") == qualname])

    def findings(self, slug: str) -> list[str]:
        """Return the messages of the findings of one kind."""
        findings = self.result.findings
        return list(findings["message"][findings["slug"] == slug])


class CaseRunner:
    """Runs programs in a folder of their own.

    Parameters
    ----------
    folder : Path
        An empty folder; the programs are copied into it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = Runner(folder, fake=False)
        # A pytest among the programs is not a worker of this one.
        for name in [*self.runner.environment]:
            if name.startswith("PYTEST"):
                del self.runner.environment[name]

    def copy(self, source: Path) -> str:
        """Copy a program into the folder; return its name."""
        shutil.copy(source, self.folder / source.name)
        return source.name

    def copy_case(self, number: int) -> str:
        """Copy the program of a reported case into the folder; return its name."""
        (program,) = PROGRAMS.glob(f"case{number:02}_*.py")
        return self.copy(program)

    def case(self, number: int, *arguments: str, **options: Any) -> Case:
        """Run the program of a reported case."""
        return self.run(self.copy_case(number), *arguments, **options)

    def similar(self, name: str, *arguments: str, **options: Any) -> Case:
        """Run one of the similar programs."""
        return self.run(self.copy(SIMILAR / f"{name}.py"), *arguments, **options)

    def run(
        self,
        *command: str,
        python: Sequence[str] = (),
        scrub: Callable[[str], str] = str,
        traced: bool = True,
        **options: Any,
    ) -> Case:
        """Run ``python *command`` plain and profiled, at the same time, and compare.

        Parameters
        ----------
        *command : str
            What follows ``python``, or ``numbaprof run``.
        python : sequence of str, optional
            Options of the interpreter.
        scrub : callable, optional
            Takes from the output what differs from run to run, such as timings.
        traced : bool, optional
            False for programs whose processes would write one trace over the other's.
        **options
            ``environment``, ``input``: as of :class:`running.Runner`; ``measures``:
            options of ``numbaprof run``.
        """
        given = options.pop("environment", {})
        measures = options.pop("measures", ())

        def settings(name: str) -> dict[str, Any]:
            environment = {"NUMBA_CACHE_DIR": str(self.folder / f"{name}-cache")}
            if traced:
                environment["NUMBA_CHROME_TRACE"] = str(self.folder / f"{name}.trace")
            return {**options, "environment": {**environment, **given}}

        save = ("-m", "numbaprof", "run", "-q", "-o", str(self.runner.output))
        save += tuple(measures)
        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(
                self.runner.python, *python, *command, **settings("plain")
            )
            profiled = self.runner.python(
                *python, *save, *command, **settings("profiled")
            )
            plain = running.result()
        assert scrub(profiled.stderr) == scrub(plain.stderr)
        assert scrub(profiled.stdout) == scrub(plain.stdout)
        assert profiled.exit_code == plain.exit_code
        case = Case(plain, profiled, profiled.result)
        assert_sound(case.result)
        if traced:
            assert self.passes("profiled") == self.passes("plain")
        return case

    def passes(self, name: str) -> Counter[str]:
        """Return how often each compiler pass ran for each function.

        Without addresses, which are in the names of stencils.
        """
        file = self.folder / f"{name}.trace"
        if not file.exists():
            return Counter()
        return Counter(
            re.sub("0x[0-9a-f]+", "0x", f"{event['args']['qualname']}: {event['name']}")
            for event in json.loads(file.read_text())
            if event["ph"] == "B"
        )


def assert_sound(result: ProfileResult) -> None:
    """Assert what holds of every profile, whatever the program does."""
    check(result)
    assert result.losses.hook_errors == ()
    assert result.losses.unrestored == ()
    for number in range(len(result.processes)):
        assert_time_fits(result, number)
    assert result.report().splitlines()
    for frame, parts in (
        (result.stats, result.overloads),
        (result.compiles, result.compile_events),
    ):
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) == len(parts)


def assert_time_fits(result: ProfileResult, number: int) -> None:
    """Assert that a process ran no longer than its wall time on each of its threads."""
    contexts = [node for node in result.contexts if node.process == number]
    threads = [node for node in contexts if node.kind == "thread"]
    available_ns = result.processes[number].wall_ns * max(1, len(threads))
    measured_ns = sum(node.exclusive_ns + node.dispatch_ns for node in contexts)
    assert measured_ns <= available_ns
    assert measured_ns == sum(node.inclusive_ns for node in threads)


def without_numbers(text: str) -> str:
    """Replace every number, for programs that print timings."""
    return re.sub(r"\d+(\.\d+)?", "N", text)
