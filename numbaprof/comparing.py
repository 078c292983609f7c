"""Compare two measurements overload by overload.

Overloads are paired by the function's module and qualified name, never by its line, and
by the signature; in run files also by the test. What differs exactly (a new overload,
code that lost its vector instructions) is decided whatever the machines are. Run time
is decided where it can be: in lock-step, or on one target and machine; elsewhere it is
shown as advisory, with the reason. Overloads with the same machine code are never
slower: what was measured of them is the noise of the run.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from numbaprof import rule, runfile, store
from numbaprof.comparison import (
    GATES,
    Comparison,
    Failure,
    GateOptions,
    Noise,
    Row,
)
from numbaprof.errors import ComparisonError, FormatError, OptionError
from numbaprof.model import ProfileResult
from numbaprof.pairing import (
    Half,
    finite,
    profile_halves,
    run_half,
    stored_halves,
    timed,
)
from numbaprof.runfile import RunFile, RunOverload, TestTimes
from numbaprof.verdicts import Terms, enabled, make_row

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike


__all__ = ["compare", "compare_sides", "gate_options_of"]

MIN_SESSIONS = 3
"""With fewer, a slow-down cannot even be suspected."""

Measured = Union[str, "PathLike[str]", ProfileResult, RunFile]


def compare(base: Measured, head: Measured | None = None, **options: Any) -> Comparison:
    """Compare two profiles or runs, overload by overload.

    Parameters
    ----------
    base, head : path-like, ProfileResult, profile or RunFile
        Two profiles (``numbaprof run -o``, or those just taken) or two run files
        (``numbaprof ab -o``), of which the head sides are compared. A run file alone is
        judged as ``ab`` did: its head against its base.
    **options
        Fields of :class:`~numbaprof.comparison.GateOptions`: ``fail``, ``allow_new``,
        ``min_effect``, ``strict_target``.

    Returns
    -------
    Comparison
        ``rows`` is a DataFrame, ``verdict`` one word, ``exit_code`` for a CI job.

    Raises
    ------
    ComparisonError
        They have nothing in common, are of different kinds, or, with
        ``strict_target``, of different targets.
    FormatError, OSError
        A file cannot be read.
    OptionError
        An option does not exist or has a value it cannot have.
    """
    return compare_sides(_opened(base), None if head is None else _opened(head),
                         gate_options_of(dict(options)))  # fmt: skip


def gate_options_of(given: dict[str, Any]) -> GateOptions:
    """Return checked options; see :func:`compare` for their names."""
    known = [field.name for field in fields(GateOptions)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise OptionError(
            f"compare() has no option {', '.join(unknown)}; it has {', '.join(known)}"
        )
    for name in ("fail", "allow_new"):
        if name in given:
            value = given[name]
            given[name] = (value,) if isinstance(value, str) else tuple(value)
    options = GateOptions(**given)
    for gate in options.fail:
        if gate not in GATES:
            raise OptionError(f"there is no gate {gate!r}; gates: {', '.join(GATES)}")
    effect = options.min_effect
    if effect is not None and not 0 <= effect < math.inf:
        raise OptionError(f"min_effect={effect!r} must be 0 or more, 0.05 for 5 %")
    return options


def _opened(measured: Measured) -> tuple[str, ProfileResult | RunFile]:
    """Return a name to call it by, and what was measured."""
    if isinstance(measured, ProfileResult):
        return measured.processes[
            0
        ].label if measured.processes else "profile", measured
    if isinstance(measured, RunFile):
        return measured.head.name, measured
    result = getattr(measured, "result", None)
    if isinstance(result, ProfileResult):
        return _opened(result)
    name = os.fspath(measured)
    content = Path(measured).read_bytes()
    try:
        if content.startswith(store.GZIP_MAGIC):
            content = gzip.decompress(content)
        document = json.loads(content)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise FormatError(
            f"{name}: neither a profile nor a run file: not JSON ({error}); it may be "
            "truncated: give a file made by `numbaprof run -o` or `numbaprof ab -o`"
        ) from None
    if runfile.is_run(document):
        return name, runfile.read_run(name, document)
    if isinstance(document, dict) and document.get("format") == store.FORMAT_NAME:
        return name, store.load(measured)
    found = "a JSON list" if isinstance(document, list) else "JSON of something else"
    if isinstance(document, dict) and "benchmarks" in document:
        found = "a file of pytest-benchmark without rows of numbaprof"
    raise FormatError(
        f"{name}: neither a profile nor a run file, but {found}; give a file made by "
        "`numbaprof run -o` or `numbaprof ab -o`"
    )


def compare_sides(
    base: tuple[str, ProfileResult | RunFile],
    head: tuple[str, ProfileResult | RunFile] | None,
    options: GateOptions,
) -> Comparison:
    """Compare what was read already; see :func:`compare`."""
    base_name, old = base
    if head is None:
        if not isinstance(old, RunFile):
            raise ComparisonError(
                f"{base_name} is a profile of one program: give a second one to "
                "compare it with"
            )
        return _compare_ab(old, options)
    head_name, new = head
    if isinstance(old, RunFile) and isinstance(new, RunFile):
        return _compare_runs((base_name, old), (head_name, new), options)
    if isinstance(old, ProfileResult) and isinstance(new, ProfileResult):
        return _compare_profiles((base_name, old), (head_name, new), options)
    kinds = [
        "a run file of `numbaprof ab`" if isinstance(side, RunFile) else "a profile"
        for side in (old, new)
    ]
    raise ComparisonError(
        f"{base_name} is {kinds[0]}, {head_name} is {kinds[1]}: tests cannot be paired "
        "with a program; give two of one kind"
    )


# -- lock-step -------------------------------------------------------------------------


def _compare_ab(run: RunFile, options: GateOptions) -> Comparison:
    if not run.sessions:
        raise ComparisonError(
            f"no session was finished ({run.stopped or 'it was interrupted'}): there "
            "is nothing to compare; run `numbaprof ab` again, with --resume to go on"
        )
    effect = options.min_effect
    terms = Terms(
        kind="ab",
        options=options,
        min_effect=run.settings.min_effect if effect is None else effect,
        target_reason=_target_reason(run.base.machine.target, run.head.machine.target),
        advisory="",
        base_functions=frozenset(o.function for o in run.overloads if o.base),
        base_tests=frozenset(run.base.tests),
        head_tests=frozenset(run.head.tests),
        single_stage=run.settings.confirm == 0,
    )
    _check_target(terms, run.base.name, run.head.name)
    rows = [row for o in run.overloads for row in _ab_rows(o, run, terms)]
    rows += [_wall_row(times, run, terms) for times in run.walls]
    rows += _missing_tests(terms)
    problems = [
        f"{len(side.failed_tests)} of the common tests failed on the {which} side "
        f"({side.name}): {_some(side.failed_tests)}"
        for which, side in (("base", run.base), ("head", run.head))
        if side.failed_tests
    ]
    problems += run.blockers
    few = min(MIN_SESSIONS, run.settings.sessions)
    if run.sessions < few:
        problems.append(
            f"only {run.sessions} of {run.settings.sessions} sessions were made "
            f"({run.stopped or 'it was interrupted'}); go on with --resume"
        )
    notes = [*run.problems]
    if run.stopped:
        notes.append(f"fewer sessions than asked for: {run.stopped}")
    if run.compiled_in_rounds:
        notes.append(
            "compiled in measured rounds, which were dropped: "
            + _some(run.compiled_in_rounds)
        )
    return _finish(
        Comparison(
            base=run.base.name,
            head=run.head.name,
            kind="ab",
            entries=tuple(rows),
            gates=options.fail,
            min_effect=terms.min_effect,
            notes=tuple(notes),
            problems=tuple(problems),
        )
    )


def _ab_rows(overload: RunOverload, run: RunFile, terms: Terms) -> Iterable[Row]:
    halves = run_half(overload.base, ()), run_half(overload.head, ())
    first = True
    for times in overload.tests:
        base = halves[0] if times.base_calls else None
        head = halves[1] if times.head_calls else None
        if base is None and head is None:
            continue
        ratios = [value for value in times.log_ratio[: run.sessions] if value == value]
        again = [value for value in times.log_ratio[run.sessions :] if value == value]
        judged = None
        if base is not None and head is not None and ratios:
            judged = rule.judge(ratios, again, min_effect=terms.min_effect,
                                single_stage=terms.single_stage)  # fmt: skip
        yield make_row(
            (times.test, overload.function, overload.signature),
            (timed(base, times.base_ns, times.base_calls),
             timed(head, times.head_ns, times.head_calls)),
            judged,
            terms,
            compiled=halves if first else (None, None),
        )  # fmt: skip
        first = False
    if first and (halves[0] or halves[1]):
        # Never called from Python in a round: a callee, or compiled at import.
        test = next(iter((*overload.head_tests, *overload.base_tests)), "")
        key = (test, overload.function, overload.signature)
        yield make_row(key, halves, None, terms, compiled=halves)


def _wall_row(times: TestTimes, run: RunFile, terms: Terms) -> Row:
    ratios = finite(times.log_ratio[: run.sessions])
    again = finite(times.log_ratio[run.sessions :])
    judged = rule.judge(ratios, again, min_effect=terms.min_effect,
                        single_stage=terms.single_stage)  # fmt: skip
    half = Half(times.test.partition("::")[0], 0, "test", None, "Python code")
    pair = timed(half, times.base_ns, 1.0), timed(half, times.head_ns, 1.0)
    return make_row((times.test, "", ""), pair, judged, terms, compiled=(None, None))


def _missing_tests(terms: Terms) -> list[Row]:
    rows = []
    for test in sorted(terms.base_tests - terms.head_tests):
        failures = enabled(terms, [Failure("missing", "test is gone")])
        file = test.partition("::")[0]
        rows.append(Row(test, "", "", file, 0, "gone test", failures=failures))
    for test in sorted(terms.head_tests - terms.base_tests):
        rows.append(Row(test, "", "", test.partition("::")[0], 0, "new test"))
    return rows


# -- stored runs -----------------------------------------------------------------------


def _compare_runs(
    base: tuple[str, RunFile], head: tuple[str, RunFile], options: GateOptions
) -> Comparison:
    (base_name, old), (head_name, new) = base, head
    common = set(old.head.tests) & set(new.head.tests)
    if not common:
        raise ComparisonError(
            f"{base_name} and {head_name} have no test in common: tests are paired by "
            "their node ids, which begin with the path from the root folder"
        )
    ours, theirs = old.head.machine, new.head.machine
    terms = Terms(
        kind="runs",
        options=options,
        min_effect=_effect(options),
        target_reason=_target_reason(ours.target, theirs.target),
        advisory=_machine_reason(
            _machine(ours), _machine(theirs), (ours.id, theirs.id)
        ),
        base_functions=frozenset(o.function for o in old.overloads if o.head),
        base_tests=frozenset(old.head.tests),
        head_tests=frozenset(new.head.tests),
    )
    _check_target(terms, base_name, head_name)
    halves = stored_halves(old), stored_halves(new)
    rows = []
    for key in {**halves[0], **halves[1]}:
        pair = halves[0].get(key), halves[1].get(key)
        if key[0] and key[0] not in common:
            continue
        judged = None
        if pair[0] and pair[1] and pair[0].times_ns and pair[1].times_ns:
            judged = rule.judge_stored(pair[0].times_ns, pair[1].times_ns,
                                       min_effect=terms.min_effect)  # fmt: skip
        rows.append(make_row(key, pair, judged, terms, compiled=pair))
    rows += _missing_tests(terms)
    return _finish(_of(terms, (base_name, head_name), rows))


# -- profiles --------------------------------------------------------------------------


def _compare_profiles(
    base: tuple[str, ProfileResult], head: tuple[str, ProfileResult],
    options: GateOptions,
) -> Comparison:  # fmt: skip
    (base_name, old), (head_name, new) = base, head
    halves = profile_halves(old), profile_halves(new)
    for name, found in zip((base_name, head_name), halves, strict=True):
        if not found:
            raise ComparisonError(
                f"{name} has no overload: nothing was compiled or called while it was "
                "taken, so there is nothing to compare"
            )
    if not set(halves[0]) & set(halves[1]):
        raise ComparisonError(
            f"{base_name} and {head_name} have no overload in common: functions are "
            "paired by module, qualified name and signature; "
            f"{base_name} has {_some(map(''.join, halves[0]))}, {head_name} has "
            f"{_some(map(''.join, halves[1]))}"
        )
    machines = _environments(old), _environments(new)
    terms = Terms(
        kind="profiles",
        options=options,
        min_effect=_effect(options),
        target_reason=_target_reason(machines[0][0], machines[1][0]),
        advisory=_machine_reason(machines[0][1], machines[1][1], ("", "")),
        base_functions=frozenset(function for function, _ in halves[0]),
    )
    _check_target(terms, base_name, head_name)
    rows = []
    for key in {**halves[0], **halves[1]}:
        pair = halves[0].get(key), halves[1].get(key)
        judged = None
        if pair[0] and pair[1] and pair[0].times_ns and pair[1].times_ns:
            judged = rule.judge_single(
                (pair[0].times_ns[0], pair[0].times_ns[1]),
                (pair[1].times_ns[0], pair[1].times_ns[1]),
                min_effect=terms.min_effect,
            )
        rows.append(make_row(("", *key), pair, judged, terms, compiled=pair))
    return _finish(_of(terms, (base_name, head_name), rows))


def _environments(result: ProfileResult) -> tuple[str, tuple[str, ...]]:
    """Return (target, machine) of a profile; "" where its processes differ."""
    found = {
        (e.target, (e.cpu, str(e.cpu_count), e.platform))
        for e in (process.environment for process in result.processes)
    }
    if len(found) == 1:
        return found.pop()
    return "", ("several machines",)


# -- the whole -------------------------------------------------------------------------


def _of(terms: Terms, names: tuple[str, str], rows: list[Row]) -> Comparison:
    return Comparison(
        base=names[0],
        head=names[1],
        kind=terms.kind,
        entries=tuple(rows),
        gates=terms.options.fail,
        min_effect=terms.min_effect,
        advisory=terms.advisory,
        notes=(terms.target_reason,) if terms.target_reason else (),
    )


def _finish(comparison: Comparison) -> Comparison:
    """Sort the rows and add the noise of those with the same code."""
    changes = [
        row.change
        for row in comparison.entries
        if row.code == "same" and row.change is not None
    ]
    noise = Noise(len(changes), min(changes), max(changes)) if changes else None
    rows = sorted(comparison.entries, key=_rank)
    # Of common rows with a fingerprint: why it has no figures about vectors.
    uncounted = {
        row.code_reason
        for row in comparison.entries
        if row.code in ("same", "changed") and row.code_reason
    }
    notes = [
        f"lost vectorisation is not judged: {reason}" for reason in sorted(uncounted)
    ]
    return replace(
        comparison,
        entries=tuple(rows),
        noise=noise,
        notes=(*comparison.notes, *notes),
    )


def _rank(row: Row) -> tuple[object, ...]:
    order = ("regression", "suspect", "advisory", "faster", "ok", "")
    common = row.status != "common"
    change = -(row.change or 0.0)
    return (not row.failed, common, not row.function, order.index(row.time), change)


def _effect(options: GateOptions) -> float:
    return rule.MIN_EFFECT if options.min_effect is None else options.min_effect


def _target_reason(base: str, head: str) -> str:
    if not base or not head:
        return "the target of the compiler was not recorded, so code is not compared"
    if base != head:
        return f"other target ({base} against {head}), so code is not compared"
    return ""


def _check_target(terms: Terms, base: str, head: str) -> None:
    if terms.options.strict_target and terms.target_reason:
        raise ComparisonError(
            f"{base} and {head}: {terms.target_reason}; measure both on one machine "
            "with one Numba, or drop --strict-target to compare what can be"
        )


def _machine(machine: runfile.Machine) -> tuple[str, ...]:
    return machine.cpu, str(machine.cpu_count), machine.platform


def _machine_reason(
    base: tuple[str, ...], head: tuple[str, ...], ids: tuple[str, str]
) -> str:
    """Return why times of two stored measurements are no verdict; "" if they are."""
    if base != head:
        return f"other machine ({', '.join(base)} against {', '.join(head)})"
    if ids[0] != ids[1]:
        return "another machine of the same kind, or another boot of this one"
    return ""


def _some(names: Iterable[str], count: int = 3) -> str:
    listed = list(names)
    text = ", ".join(listed[:count])
    return text if len(listed) <= count else f"{text} and {len(listed) - count} more"
