"""Two measurements compared, overload by overload."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from builders import (
    array,
    make_dispatcher,
    make_environment,
    make_function,
    make_overload,
    make_process,
    make_result,
    scalar,
)
from run_builders import (
    TEST,
    fingerprint,
    make_machine,
    make_run,
    make_run_overload,
    make_side,
    make_times,
)

import numbaprof
from numbaprof import runfile, store
from numbaprof.comparing import compare
from numbaprof.errors import ComparisonError, FormatError, OptionError

TARGET = "test-cpu, numba 0.68.1, O3"
SLOWER = math.log(1.2)
OTHER = "tests/test_k.py::test_other"


def program(*overloads, target=TARGET, **environment):
    """Build the profile of a program on a known target."""
    return make_result(
        *overloads,
        processes=(
            make_process(environment=make_environment(target=target, **environment)),
        ),
    )


def kernel(mean_ns=1000, *, code="a", line=10, **changes):
    """Build an overload with a fingerprint."""
    fields = {"fingerprint": fingerprint(code), "min_ns": mean_ns}
    return make_overload(
        make_function(line=line), mean_ns=mean_ns, **(fields | changes)
    )


def only(comparison):
    """Return the one row."""
    (row,) = comparison.entries
    return row


def gates(row):
    """Return the gates that fail a row."""
    return {failure.gate for failure in row.failures}


# -- profiles --------------------------------------------------------------------------


def test_profile_equals_itself():
    """Nothing differs between a profile and itself; the public name is there."""
    result = program(kernel())
    comparison = numbaprof.compare(result, result)
    assert (comparison.verdict, comparison.exit_code) == ("ok", 0)
    assert only(comparison).code == "same"


def test_profile_object_stands_for_its_result():
    """What ``with numbaprof.profile() as p`` leaves can be compared as it is."""
    taken = SimpleNamespace(result=program(kernel()))
    assert compare(taken, taken).exit_code == 0


def test_function_that_moved_to_another_line_is_the_same():
    """Identity has no line: a comment above must not make a new function."""
    comparison = compare(program(kernel(line=10)), program(kernel(line=17)))
    row = only(comparison)
    assert (row.status, row.line) == ("common", 17)


def test_same_code_is_never_slower():
    """However long it took, the same instructions are no regression."""
    row = only(compare(program(kernel(1000)), program(kernel(5000))))
    assert (row.time, row.failed) == ("ok", False)
    assert "noise" in row.time_reason


def test_gross_slowdown_of_changed_code_fails():
    """Three times slower in minimum and mean is beyond what processes differ."""
    comparison = compare(program(kernel(1000)), program(kernel(3000, code="b")))
    assert gates(only(comparison)) == {"time"}
    assert comparison.exit_code == 1


def test_small_slowdown_between_two_processes_is_a_suspicion():
    """One process on each side cannot prove 20 %."""
    comparison = compare(program(kernel(1000)), program(kernel(1200, code="b")))
    assert (comparison.verdict, comparison.exit_code) == ("suspect", 0)
    assert "one process a side" in only(comparison).time_reason


def test_slowdown_on_another_machine_is_advisory():
    """Another processor has another speed; the reason names both."""
    comparison = compare(
        program(kernel(1000)), program(kernel(3000, code="b"), cpu="Other CPU")
    )
    row = only(comparison)
    assert (row.time, comparison.exit_code) == ("advisory", 0)
    assert "Test CPU" in comparison.advisory
    assert "Other CPU" in comparison.advisory


def test_code_of_another_target_is_not_compared():
    """Other instructions for another processor say nothing about the source."""
    bare = fingerprint("b", packed_fp=0, width_bits=0)
    comparison = compare(
        program(kernel()), program(kernel(fingerprint=bare), target="other")
    )
    row = only(comparison)
    assert (row.code, row.failures) == ("unknown", ())
    assert "other target" in row.code_reason


def test_strict_target_refuses():
    """With strict_target other targets are an error, not a note."""
    with pytest.raises(ComparisonError, match="other target"):
        compare(program(kernel()), program(kernel(), target="b"), strict_target=True)


def test_missing_fingerprint_is_no_equality():
    """Without a fingerprint the code is unknown, with the reason given."""
    without = kernel(fingerprint=None, fingerprint_reason="no object file")
    row = only(compare(program(kernel()), program(without)))
    assert (row.code, row.code_reason) == ("unknown", "no object file")


def test_new_overload_of_a_known_function_fails():
    """A float32 temporary makes a second overload: exact, on any machine."""
    extra = kernel(args=(array("float32"),), fingerprint=fingerprint("c"))
    comparison = compare(program(kernel()), program(kernel(), extra))
    row = comparison.failing[0]
    assert (gates(row), row.status) == ({"new"}, "new")
    assert row.signature == "(float32[::1])"


@pytest.mark.parametrize(
    "pattern", ["kernel", "demo.*", "kernel(float32[[]::1])", "kernel(float32[::1])"]
)
def test_new_overload_may_be_allowed(pattern):
    """Patterns name the function, with or without module and signature."""
    extra = kernel(args=(array("float32"),))
    result = compare(program(kernel()), program(kernel(), extra), allow_new=pattern)
    assert result.exit_code == 0


def test_new_function_is_no_regression():
    """A new function has new overloads; they are shown."""
    comparison = compare(program(kernel()), program(kernel(), make_overload("helper")))
    assert comparison.exit_code == 0
    assert {row.status for row in comparison.entries} == {"common", "new function"}


@pytest.mark.parametrize(
    ("packed", "width", "evidence"),
    [(0, 0, "vectorisation lost"), (10, 128, "narrowed")],
)
def test_lost_vector_instructions_fail(packed, width, evidence):
    """No packed instructions any more, or half as wide, fail with the figures."""
    scalar_code = fingerprint("b", packed_fp=packed, width_bits=width)
    head = kernel(fingerprint=scalar_code)
    row = only(compare(program(kernel()), program(head)))
    assert gates(row) == {"simd"}
    assert evidence in row.why


def test_object_mode_fails():
    """An overload that fell back to the interpreter fails."""
    row = only(compare(program(kernel()), program(kernel(kind="object mode"))))
    assert gates(row) == {"objmode"}


def test_missing_overload_fails_only_when_asked():
    """What is gone is shown; with its gate it fails."""
    base = program(kernel(), kernel(args=(array(),)))
    assert compare(base, program(kernel())).exit_code == 0
    failing = compare(base, program(kernel()), fail="missing")
    assert gates(failing.failing[0]) == {"missing"}


def test_gates_can_be_switched_off():
    """A gate that is not asked for does not fail a row; the verdict stays shown."""
    comparison = compare(
        program(kernel(1000)), program(kernel(3000, code="b")), fail=()
    )
    assert (comparison.exit_code, only(comparison).time) == (0, "regression")


def test_parallel_overload_is_advisory():
    """Its time depends on who else uses the processors."""
    info = make_dispatcher(make_function(), options=(("parallel", "True"),))
    head = replace(program(kernel(3000, code="b")), dispatchers=(info,))
    row = only(compare(program(kernel()), head))
    assert (row.time, row.failed) == ("advisory", False)


def test_compile_time_of_one_compilation_is_not_judged():
    """The wall time of a single compilation varies by half; it is only shown."""
    head = kernel(compile_ns=10**10, code="b")
    row = only(compare(program(kernel()), program(head)))
    assert (row.failed, row.compile_reason) == (False, "wall time of one compilation")
    assert row.head_compile_ns == 10**10


def test_helpers_of_numba_are_left_out():
    """Internal overloads are nobody's regression."""
    extra = make_overload("array_sum", internal=True)
    assert len(compare(program(kernel()), program(kernel(), extra)).entries) == 1


def test_functions_of_one_name_are_told_apart_by_order():
    """Two lambdas of a module are #1 and #2 on both sides, wherever they stand."""

    def two(first, second):
        return program(
            kernel(line=first, args=(scalar(),)), kernel(line=second, code="b")
        )

    comparison = compare(two(10, 20), two(15, 25))
    assert {row.function for row in comparison.entries} == {
        "demo.kernel",
        "demo.kernel#2",
    }
    assert {row.code for row in comparison.entries} == {"same"}


def test_nothing_in_common_is_refused():
    """The message shows what either side has."""
    with pytest.raises(ComparisonError, match=r"no overload in common.*demo\.helper"):
        compare(program(kernel()), program(make_overload("helper")))


def test_empty_profile_is_refused():
    """A profile without overloads has nothing to compare."""
    with pytest.raises(ComparisonError, match="has no overload"):
        compare(program(), program(kernel()))


def test_profile_alone_is_refused():
    """Only a run file has both sides in it."""
    with pytest.raises(ComparisonError, match="give a second one"):
        compare(program(kernel()))


def test_profile_and_run_file_are_not_paired():
    """Tests cannot be paired with a program."""
    with pytest.raises(ComparisonError, match="of one kind"):
        compare(program(kernel()), make_run(make_run_overload()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fail": "speed"}, "no gate 'speed'"),
        ({"min_effect": -1.0}, "0 or more"),
        ({"strict": True}, "no option strict"),
    ],
)
def test_wrong_option_is_refused(options, message):
    """The message names what there is."""
    with pytest.raises(OptionError, match=message):
        compare(program(kernel()), program(kernel()), **options)


# -- lock-step runs --------------------------------------------------------------------


def test_slowdown_in_both_stages_fails():
    """Ten sessions of 20 % are a regression, with bounds in the evidence."""
    run = make_run(make_run_overload(times=(make_times(*[SLOWER] * 10),)))
    comparison = compare(run)
    row = only(comparison)
    assert gates(row) == {"time"}
    assert "slower in 10 of 10 sessions" in row.why
    assert row.change == pytest.approx(0.2)


def test_unconfirmed_slowdown_is_suspect():
    """Five sessions screen a row; they do not fail it."""
    run = make_run(make_run_overload(times=(make_times(*[SLOWER] * 5),)))
    comparison = compare(run)
    assert (comparison.verdict, comparison.exit_code) == ("suspect", 0)


def test_same_code_in_lockstep_is_noise():
    """What the same code measured is the noise of the run."""
    times = (make_times(*[SLOWER] * 10),)
    run = make_run(make_run_overload(head=make_side("a"), times=times))
    comparison = compare(run)
    assert comparison.exit_code == 0
    assert comparison.noise is not None
    assert comparison.noise.high == pytest.approx(0.2)


def test_minimum_effect_may_be_changed_afterwards():
    """A run file is judged again with another minimum."""
    run = make_run(make_run_overload(times=(make_times(*[SLOWER] * 10),)))
    assert compare(run, min_effect=0.3).exit_code == 0


@pytest.mark.parametrize(
    ("head_ms", "sessions", "cached", "fails"),
    [
        (400, 5, 0, True),
        (280, 5, 0, False),
        (400, 3, 0, False),
        (400, 5, 1, False),
    ],
)
def test_compile_gate_needs_sessions_and_misses(head_ms, sessions, cached, fails):
    """More than half longer, over five sessions, and no cache hit among them."""
    head = make_side("b", compile_cpu_ms=(head_ms,) * sessions, cache_loads=cached)
    row = only(compare(make_run(make_run_overload(head=head))))
    assert gates(row) == ({"compile"} if fails else set())
    assert bool(row.compile_reason) is (sessions < 5 or cached > 0)


def test_compile_time_is_judged_once_per_overload():
    """Two tests that use one overload do not count its compilation twice."""
    head = make_side("b", compile_cpu_ms=(400,) * 5)
    times = make_times(), make_times(test=OTHER)
    comparison = compare(make_run(make_run_overload(head=head, times=times)))
    assert [gates(row) for row in comparison.entries] == [{"compile"}, set()]


def test_overload_that_a_test_newly_calls_is_new():
    """The other test called it before; this one did not."""
    times = make_times(), make_times(test=OTHER, base_calls=0.0, base_ns=0.0)
    run = make_run(make_run_overload(times=times))
    tests = (TEST, OTHER)
    run = replace(
        run, base=replace(run.base, tests=tests), head=replace(run.head, tests=tests)
    )
    (row,) = compare(run).failing
    assert (row.test, gates(row)) == (OTHER, {"new"})


def test_overload_of_a_new_test_is_not_new():
    """A test that base does not have may compile what it needs."""
    run = make_run(
        make_run_overload(times=(make_times(), make_times(test=OTHER, base_calls=0.0)))
    )
    run = replace(run, head=replace(run.head, tests=(TEST, OTHER)))
    comparison = compare(run)
    assert comparison.exit_code == 0
    assert "new test" in {row.status for row in comparison.entries}


def test_missing_test_is_shown_and_fails_when_asked():
    """A test that is gone is no silent success."""
    run = make_run(make_run_overload())
    run = replace(run, base=replace(run.base, tests=(TEST, OTHER)))
    assert "gone test" in {row.status for row in compare(run).entries}
    assert compare(run, fail=("missing",)).exit_code == 1


def test_failed_test_makes_the_comparison_incomplete():
    """A test that failed on one side could not be compared: exit code 2."""
    run = make_run(make_run_overload())
    run = replace(run, head=replace(run.head, failed_tests=(OTHER,)))
    comparison = compare(run)
    assert (comparison.verdict, comparison.exit_code) == ("incomplete", 2)
    assert OTHER in comparison.problems[0]


def test_run_without_sessions_is_refused():
    """Interrupted before the first session ended, there is nothing to judge."""
    with pytest.raises(ComparisonError, match="no session was finished"):
        compare(make_run(sessions=0))


def test_session_without_the_overload_is_left_out():
    """NaN stands for a session whose rounds did not call it."""
    ratios = [SLOWER] * 4 + [math.nan] + [SLOWER] * 5
    run = make_run(make_run_overload(times=(make_times(*ratios),)))
    assert only(compare(run)).sessions == 9


def test_whole_test_fails_only_when_asked():
    """Python around the kernels is shown; the gate "wall" judges it."""
    times = make_times(*[SLOWER] * 10)
    run = make_run(make_run_overload(), walls=(times,))
    assert compare(run).exit_code == 0
    comparison = compare(run, fail=("wall",))
    assert [row.function for row in comparison.failing] == [""]


# -- stored runs -----------------------------------------------------------------------


def stored(head_ns, *, code="b", **machine):
    """Build a run whose head side has these medians."""
    times = make_times(*[0.0] * len(head_ns), head_ns=tuple(head_ns))
    run = make_run(make_run_overload(head=make_side(code), times=(times,)))
    return replace(run, head=replace(run.head, machine=make_machine(**machine)))


FAST = (1000.0, 1010.0, 1020.0, 1030.0, 1040.0)
SLOW = (1200.0, 1210.0, 1220.0, 1230.0, 1240.0)


def test_stored_runs_of_one_machine_are_judged():
    """Five processes on each side, all slower, changed code: a regression."""
    comparison = compare(stored(FAST, code="a"), stored(SLOW))
    assert gates(only(comparison)) == {"time"}


def test_stored_runs_of_two_machines_are_advisory():
    """Another machine of the same model differs by 2.7 %, which is too much."""
    comparison = compare(stored(FAST, code="a"), stored(SLOW, id="boot-2"))
    assert (only(comparison).time, comparison.exit_code) == ("advisory", 0)
    assert "another machine" in comparison.advisory


def test_stored_runs_without_a_common_test_are_refused():
    """Node ids pair the tests."""
    other = make_run(make_run_overload())
    other = replace(other, head=replace(other.head, tests=(OTHER,)))
    with pytest.raises(ComparisonError, match="no test in common"):
        compare(make_run(make_run_overload()), other)


# -- files -----------------------------------------------------------------------------


def test_files_are_compared_as_their_contents(tmp_path):
    """Paths are read: profiles, compressed or not, and run files."""
    store.save(program(kernel(1000)), tmp_path / "base.json.gz")
    store.save(program(kernel(3000, code="b")), tmp_path / "head.json")
    assert compare(tmp_path / "base.json.gz", tmp_path / "head.json").exit_code == 1
    runfile.save_run(make_run(make_run_overload()), tmp_path / "run.json")
    assert compare(tmp_path / "run.json").exit_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ('{"format": "numbaprof pro', "truncated"),
        ("[1]", "a JSON list"),
        ('{"a": 1}', "JSON of something else"),
        ('{"benchmarks": []}', "pytest-benchmark"),
        ('{"numbaprof": {"schema": "numbaprof-run", "version": 99}}', "newer"),
        ('{"numbaprof": {"schema": "numbaprof-run", "version": "x"}}', "damaged"),
        ('{"numbaprof": {"schema": "numbaprof-run", "version": 1}}', "run: expected"),
    ],
)
def test_foreign_file_is_refused(tmp_path, content, message):
    """The message says what was found and what to give instead."""
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(FormatError, match=message):
        compare(path, path)


def test_truncated_file_is_refused(tmp_path):
    """Half a profile is no profile."""
    path = tmp_path / "x.json"
    store.save(program(kernel()), path)
    path.write_text(path.read_text()[:-200])
    with pytest.raises(FormatError, match="truncated"):
        compare(path, path)


def test_rows_are_a_table():
    """``rows`` is a DataFrame in seconds, failing rows first."""
    extra = kernel(args=(array("float32"),))
    frame = compare(program(kernel()), program(kernel(), extra)).rows
    assert list(frame["failed"]) == [True, False]
    assert frame["head_s"].iloc[1] == pytest.approx(1e-6)
    assert frame["gates"].iloc[0] == "new"


def test_comparison_can_be_read_as_json(tmp_path):
    """What is written says verdict and exit code without being computed again."""
    document = json.loads(compare(program(kernel()), program(kernel())).to_json())
    assert (document["verdict"], document["exit_code"]) == ("ok", 0)


def test_uncounted_vector_instructions_are_told():
    """Without a disassembler the gate cannot judge, and says so."""
    blind = fingerprint("a", packed_fp=None, width_bits=None, reason="no disassembler")
    result = program(kernel(fingerprint=blind))
    comparison = compare(result, result)
    assert "lost vectorisation is not judged: no disassembler" in comparison.notes
    assert only(comparison).code == "same"


def test_same_code_can_be_judged_to_count_false_alarms():
    """For measuring the noise, not for judging a change."""
    comparison = compare(program(kernel(1000)), program(kernel(5000)), ignore_code=True)
    assert only(comparison).time == "regression"
