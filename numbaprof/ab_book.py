"""What was measured so far: sessions go in, the run file comes out.

The times of an overload are lists with one entry per session; a session that did not
measure it leaves a NaN, filled in when the next value comes.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.model import Fingerprint, FunctionId
from numbaprof.pairing import function_names
from numbaprof.rule import session_ratio
from numbaprof.runfile import (
    Machine,
    OverloadSide,
    RunFile,
    RunOverload,
    TestTimes,
    log_rounded,
    significant,
)
from numbaprof.schema import from_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numbaprof.ab_session import Key, SessionData, TestData
    from numbaprof.ab_sides import Side

__all__ = ["Book"]

SIDES = ("base", "head")
CODE_LENGTH = len("sha256:") + 16
"""64 bits tell the overloads of one comparison apart."""
CUT_OFF_REASON = "the session was cut off before its end"
NS_PER_MS = 1e6


@dataclass(slots=True)
class _Times:
    """Times of one overload, or of a whole test, in one test."""

    base_ns: list[float] = field(default_factory=list)
    head_ns: list[float] = field(default_factory=list)
    log_ratio: list[float] = field(default_factory=list)
    rounds: list[list[tuple[float, float]]] = field(default_factory=list)
    calls: dict[str, float] = field(default_factory=dict)

    def add(self, session: int, pairs: Sequence[tuple[float, float]]) -> None:
        """Add a session's rounds; NaN stands for a side that did not call it."""
        for values in (self.base_ns, self.head_ns, self.log_ratio):
            values.extend([math.nan] * (session - len(values)))
        self.rounds.extend([[]] * (session - len(self.rounds)))
        self.base_ns.append(_median(base for base, _ in pairs))
        self.head_ns.append(_median(head for _, head in pairs))
        both = [pair for pair in pairs if pair[0] > 0 and pair[1] > 0]
        self.log_ratio.append(session_ratio(both) if both else math.nan)
        self.rounds.append([(round(base, 1), round(head, 1)) for base, head in both])

    def to_times(self, test: str, *, save_rounds: bool) -> TestTimes:
        return TestTimes(
            test=test,
            base_ns=significant(self.base_ns),
            head_ns=significant(self.head_ns),
            log_ratio=log_rounded(self.log_ratio),
            base_calls=float(f"{self.calls.get('base', 0.0):.4g}"),
            head_calls=float(f"{self.calls.get('head', 0.0):.4g}"),
            rounds=tuple(map(tuple, self.rounds)) if save_rounds else (),
        )


@dataclass(slots=True)
class _Overload:
    sides: dict[str, OverloadSide] = field(default_factory=dict)
    tests: dict[str, _Times] = field(default_factory=dict)
    born: dict[str, list[str]] = field(
        default_factory=lambda: {side: [] for side in SIDES}
    )


class Book:
    """The state of a comparison.

    Parameters
    ----------
    run : RunFile
        Empty, or one to go on with.
    sides : sequence of Side
        Base and head, as they are now.
    save_rounds : bool, optional
        Keep every round.
    """

    def __init__(
        self, run: RunFile, sides: Sequence[Side], *, save_rounds: bool = False
    ) -> None:
        self.run = run
        self._roots = {name: side.root for name, side in zip(SIDES, sides, strict=True)}
        self._sides = dict(zip(SIDES, sides, strict=True))
        self._save_rounds = save_rounds
        self._overloads: dict[tuple[str, str], _Overload] = {}
        self._walls: dict[str, _Times] = {}
        self._read(run)

    def _read(self, run: RunFile) -> None:
        for overload in run.overloads:
            made = _Overload()
            for side, found in (("base", overload.base), ("head", overload.head)):
                if found is not None:
                    made.sides[side] = found
            made.born = {
                "base": list(overload.base_tests), "head": list(overload.head_tests)
            }  # fmt: skip
            made.tests = {times.test: _from_times(times) for times in overload.tests}
            self._overloads[overload.function, overload.signature] = made
        self._walls = {times.test: _from_times(times) for times in run.walls}

    # -- one session -------------------------------------------------------------------

    def add(self, data: SessionData, *, confirming: bool = False) -> None:
        """Add what one session measured, whole or cut off."""
        index = self.run.sessions + self.run.confirmed
        names = {side: _names(data, side) for side in SIDES}
        for test in data.tests:
            self._add_test(test, index, names)
        for side in SIDES:
            self._add_final(side, data, names[side])
        self._note(data)
        if data.tests:
            self.run = replace(
                self.run,
                sessions=self.run.sessions + (not confirming),
                confirmed=self.run.confirmed + confirming,
            )

    def _add_test(
        self,
        test: TestData,
        index: int,
        names: dict[str, dict[Key, tuple[str, str]]],
    ) -> None:
        times = self._walls.setdefault(test.node, _Times())
        times.calls = dict.fromkeys(SIDES, 1.0)
        times.add(index, test.walls)
        found: dict[tuple[str, str], None] = {}
        for pair in test.rows:
            for side, rows in zip(SIDES, pair, strict=True):
                for key in rows:
                    self._see(names[side][key], side, key)
                    found[names[side][key]] = None
        for name in found:
            self._add_overload(name, test, index, names)
        iterations = dict(self.run.iterations) | {test.node: test.iterations}
        self.run = replace(self.run, iterations=tuple(iterations.items()))

    def _add_overload(
        self,
        name: tuple[str, str],
        test: TestData,
        index: int,
        names: dict[str, dict[Key, tuple[str, str]]],
    ) -> None:
        pairs: list[tuple[float, float]] = []
        calls = dict.fromkeys(SIDES, 0.0)
        for pair in test.rows:
            values = []
            for side, rows in zip(SIDES, pair, strict=True):
                mine = [row for key, row in rows.items() if names[side][key] == name]
                called = sum(row[0] for row in mine)
                calls[side] += called
                ns = sum(row[1] for row in mine)
                values.append(ns / called if called else math.nan)
            pairs.append((values[0], values[1]))
        times = self._overloads[name].tests.setdefault(test.node, _Times())
        times.add(index, pairs)
        for side in SIDES:
            share = calls[side] / (len(test.rows) * test.iterations)
            times.calls[side] = share or times.calls.get(side, 0.0)

    def _see(self, name: tuple[str, str], side: str, key: Key) -> None:
        """Know an overload by its place, until the end of a session tells more."""
        overload = self._overloads.setdefault(name, _Overload())
        if side not in overload.sides:
            overload.sides[side] = OverloadSide(
                self._place(side, key[2]), key[3], fingerprint_reason=CUT_OFF_REASON
            )

    def _place(self, side: str, file: str) -> str:
        """Return a file relative to the side's folder, if it is in there."""
        try:
            return Path(file).relative_to(self._roots[side]).as_posix()
        except ValueError:
            return file

    def _add_final(
        self, side: str, data: SessionData, names: dict[Key, tuple[str, str]]
    ) -> None:
        final = data.final.get(side)
        if final is None:
            return
        for found in final["overloads"]:
            key = _key(found["key"])
            name = names[key]
            self._see(name, side, key)
            sides = self._overloads[name].sides
            sides[side] = self._updated(sides[side], found, name)
        for *identity, test in final["born"]:
            overload = self._overloads.get(names.get(_key(identity), ("", "")))
            if overload is not None and test not in overload.born[side]:
                overload.born[side].append(test)
        machine: Machine = from_plain(Machine, final["machine"])
        run_side = replace(getattr(self.run, side), machine=machine)
        self.run = replace(self.run, **{side: run_side})
        if final["jit_disabled"]:
            self._block(f"NUMBA_DISABLE_JIT is set on the {side} side")
        for problem in final["problems"]:
            self._problem(f"numbaprof on the {side} side: {problem}")

    def _updated(
        self, side: OverloadSide, found: dict[str, Any], name: tuple[str, str]
    ) -> OverloadSide:
        fingerprint = side.fingerprint
        if found["fingerprint"] is not None:
            new: Fingerprint = from_plain(Fingerprint, found["fingerprint"])
            new = replace(new, code=new.code[:CODE_LENGTH])
            if fingerprint is not None and fingerprint.code != new.code:
                self._problem(
                    f"the machine code of {''.join(name)} differs between sessions"
                )
            fingerprint = fingerprint or new
        compiled = side.compile_cpu_ms
        if found["compile_ns"] and not found["cached"]:
            compiled = (*compiled, *significant([found["compile_ns"] / NS_PER_MS]))
        return replace(
            side,
            kind=found["kind"],
            parallel=found["parallel"],
            fingerprint=fingerprint,
            fingerprint_reason="" if fingerprint else found["fingerprint_reason"],
            compile_cpu_ms=compiled,
            cache_loads=side.cache_loads + bool(found["cached"]),
            not_countable_reason=found["not_countable_reason"],
        )

    # -- what went wrong ---------------------------------------------------------------

    def _note(self, data: SessionData) -> None:
        for side in SIDES:
            old = getattr(self.run, side)
            failed = (*old.failed_tests, *data.failed.get(side, ()))
            tests = tuple(data.collected.get(side, ())) or old.tests
            new = replace(old, tests=tests, failed_tests=tuple(dict.fromkeys(failed)))
            self.run = replace(self.run, **{side: new})
        dropped = [test.node for test in data.tests if test.dropped]
        self.run = replace(
            self.run,
            compiled_in_rounds=tuple(
                dict.fromkeys((*self.run.compiled_in_rounds, *dropped))
            ),
        )
        for node in dict.fromkeys(data.not_met):
            self._problem(f"{node} was not measured: it did not call its fixture")
        self._check_places(data)

    def _check_places(self, data: SessionData) -> None:
        """See that each side ran its own code."""
        if any(side.kind == "python" for side in self._sides.values()):
            return
        roots = self._roots
        if roots["base"] == roots["head"]:
            return
        files = {
            side: {
                Path(key[2])
                for test in data.tests
                for pair in test.rows
                for key in pair[number]
                if Path(key[2]).is_absolute()
            }
            for number, side in enumerate(SIDES)
        }
        for side, other in (("base", "head"), ("head", "base")):
            strangers = [
                file
                for file in files[side]
                if roots[other] in file.parents and roots[side] not in file.parents
            ]
            if strangers:
                self._block(
                    f"the {side} side imported the code of the {other} side "
                    f"({strangers[0]}); an installed package may hide the checkout"
                )
        own = [file for s in SIDES for file in files[s] if roots[s] in file.parents]
        if not own and files["base"] & files["head"]:
            shared = next(iter(files["base"] & files["head"]))
            self._block(
                f"both sides ran the same installed code ({shared}), not that of "
                f"{roots['base']} and {roots['head']}; put the package at the top of "
                "the folder or in src, or compare two Python executables"
            )

    def _problem(self, text: str) -> None:
        if text not in self.run.problems:
            self.run = replace(self.run, problems=(*self.run.problems, text))

    def _block(self, text: str) -> None:
        if text not in self.run.blockers:
            self.run = replace(self.run, blockers=(*self.run.blockers, text))

    # -- the file ----------------------------------------------------------------------

    def to_run(self) -> RunFile:
        """Return everything so far as a run file."""
        overloads = tuple(
            RunOverload(
                function=function,
                signature=signature,
                base=overload.sides.get("base"),
                head=overload.sides.get("head"),
                tests=self._times(overload.tests),
                base_tests=() if overload.tests else tuple(overload.born["base"]),
                head_tests=() if overload.tests else tuple(overload.born["head"]),
            )
            for (function, signature), overload in self._overloads.items()
        )
        return replace(self.run, overloads=overloads, walls=self._times(self._walls))

    def _times(self, tests: dict[str, _Times]) -> tuple[TestTimes, ...]:
        return tuple(
            times.to_times(test, save_rounds=self._save_rounds)
            for test, times in tests.items()
        )


def _from_times(times: TestTimes) -> _Times:
    return _Times(
        list(times.base_ns),
        list(times.head_ns),
        list(times.log_ratio),
        [list(rounds) for rounds in times.rounds],
        {"base": times.base_calls, "head": times.head_calls},
    )


def _names(data: SessionData, side: str) -> dict[Key, tuple[str, str]]:
    """Return (function, signature) of every overload that a side of a session has."""
    number = SIDES.index(side)
    keys = {key for test in data.tests for pair in test.rows for key in pair[number]}
    final = data.final.get(side)
    if final is not None:
        keys |= {_key(found["key"]) for found in final["overloads"]}
    identities = {key: FunctionId(*key[:5]) for key in keys}
    names = function_names(identities.values())
    return {key: (names[identities[key]], key[5]) for key in keys}


def _key(identity: Sequence[Any]) -> Key:
    module, qualname, file, line, instance, signature = identity
    return module, qualname, file, line, instance, signature


def _median(values: Iterable[float]) -> float:
    there = [value for value in values if math.isfinite(value)]
    return statistics.median(there) if there else math.nan
