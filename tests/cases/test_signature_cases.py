"""Cases about signatures: which overloads exist, why, and who called which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import without_numbers

if TYPE_CHECKING:
    from harness import CaseRunner


def test_case_01_omitted_defaults_are_told_apart_and_named(cases: CaseRunner) -> None:
    """Five calls make four overloads; the reasons name the argument left out."""
    case = cases.case(1)
    assert case.calls == {
        "scale": {
            "(int64, omitted(2), omitted(0.5))": 1,
            "(int64, int64, omitted(0.5))": 1,
            "(int64, int64, float64)": 2,
            "(int64, omitted(2), float64)": 1,
        }
    }
    first, *later = case.reasons("scale")
    assert first == "first call"
    assert all("compiled again only because" in reason for reason in later)
    assert ["`k`" in reason for reason in later] == [True, False, True]
    assert ["`off`" in reason for reason in later] == [False, True, False]


def test_case_03_layout_and_writability_are_told_apart(cases: CaseRunner) -> None:
    """Seven calls make six overloads; a (1, 4) array in order F is C-contiguous."""
    case = cases.case(3)
    assert case.calls == {
        "total": {
            "(float64[:, ::1])": 2,
            "(float64[::1, :])": 1,
            "(float64[:, :])": 1,
            "(float64[:, ::1] readonly)": 1,
            "(float64[::1, :] readonly)": 1,
            "(float64[:, :] readonly)": 1,
        }
    }
    reasons = case.reasons("total")
    assert "layout C to F" in reasons[1]
    assert "layout C to A" in reasons[2]
    assert all("now read-only" in reason for reason in reasons[3:])


def test_case_04_copying_a_list_is_shown_apart_from_a_typed_list(
    cases: CaseRunner,
) -> None:
    """The list's overload takes far longer, and a finding says that it is copied."""
    case = cases.case(4, scrub=without_numbers)
    assert case.calls == {"sumlist": {"(list[int64])": 2, "(List[int64])": 2}}
    copied = case.overload("sumlist", "(list[int64])")
    typed = case.overload("sumlist", "(List[int64])")
    assert copied.inclusive_ns > 20 * typed.inclusive_ns
    (message,) = case.findings("reflected-list")
    assert "sumlist" in message


def test_case_04_the_share_outside_the_kernel_is_measured_on_request(
    cases: CaseRunner,
) -> None:
    """With --detail nearly all of the list's time is unboxing and copying back."""
    program = cases.copy_case(4)
    run = cases.runner.profile("--detail", "sumlist", program)
    assert run.exit_code == 0
    (copied,) = (o for o in run.result.overloads if o.signature == "(list[int64])")
    split = copied.boxing
    assert split is not None
    assert split.calls == 2
    assert split.unbox_ns + split.box_ns > 0.9 * copied.inclusive_ns


def test_case_05_dict_helpers_are_one_collapsed_group(cases: CaseRunner) -> None:
    """Two overloads of the user's; Numba's own are one line with their compile time."""
    case = cases.case(5)
    assert case.calls == {
        "count": {
            "(Dict[int64, int64], int64[::1])": 1,
            "(Dict[int32, int64], int32[::1])": 1,
        }
    }
    internal = [overload for overload in case.result.overloads if overload.internal]
    assert len(internal) > 10
    assert sum(overload.compile_ns or 0 for overload in internal) > 0
    report = case.result.report()
    assert report.count("Numba's own helpers (") == 1
    assert not any(overload.function.qualname in report for overload in internal)


@pytest.mark.slow
def test_case_31_a_hundred_overloads_make_a_short_report_and_a_warning(
    cases: CaseRunner,
) -> None:
    """125 overloads are listed up to the twentieth and summed; a finding warns."""
    case = cases.case(31)
    assert case.totals == {"pick": 125}
    assert list(case.calls["pick"].values()) == [1] * 125
    (message,) = case.findings("overload-explosion")
    assert "125 overloads" in message
    report = case.result.report()
    assert len(report.splitlines()) < 120
    assert "105 more" in report


def test_case_38_calls_count_for_the_signature_that_ran(cases: CaseRunner) -> None:
    """int32 and float32 arguments are cast to the two signatures of the decorator."""
    case = cases.case(38)
    assert case.calls == {"f": {"(float64)": 2, "(int64)": 2}}
    assert {overload.origin for overload in case.overloads} == {"eager"}
    assert all("listed in the decorator" in reason for reason in case.reasons("f"))


def test_case_48_unused_eager_signatures_are_found(cases: CaseRunner) -> None:
    """One of three signatures was called; all were compiled in the decorator."""
    case = cases.case(48, scrub=without_numbers)
    assert case.calls == {"used_once": {"(float64)": 1, "(float32)": 0, "(int64)": 0}}
    assert {overload.origin for overload in case.overloads} == {"eager"}
    events = case.events("used_once")
    assert len(events) == 3
    assert {event.trigger.function for event in events} == {"<module>"}
    (message,) = case.findings("never-called")
    assert "2 of 3 specializations of used_once" in message


def test_case_48_the_import_that_compiled_them_is_named(cases: CaseRunner) -> None:
    """The same definitions in a module: the finding says at whose import."""
    cases.copy_case(48)
    program = cases.runner.write(
        "import case48_eager_signatures_compiled_at_import_mostly_u as kernels\n"
        "kernels.used_once(3.0)\n"
    )
    case = cases.run(program.name, scrub=without_numbers)
    assert case.totals == {"used_once": 2}
    module = "case48_eager_signatures_compiled_at_import_mostly_u"
    assert [event.import_module for event in case.events("used_once")] == [module] * 3
    (message,) = case.findings("never-called")
    assert "2 of 3" in message
    assert f"import of {module}" in message.replace("module ", "").replace("`", "")


@pytest.mark.slow
def test_every_kind_of_argument_has_its_overload(cases: CaseRunner) -> None:
    """Stars, tuples, records, strings, functions, None: exact counts for each."""
    case = cases.similar("argument_kinds")
    double = "function double"
    assert case.calls == {
        "double": {
            "(int64)": None,
            "(float64)": 1,
        },
        "keywords": {
            "(int64, int64)": 3,
            "(int64, float64)": 1,
            "(int64, omitted(7))": 1,
        },
        "stars": {
            "()": 1,
            "(int64)": 2,
            "(int64, int64)": 1,
            "(int64, float64)": 1,
        },
        "mixed_stars": {"(float64, int64, int64)": 1, "(float64)": 1},
        "record_sum": {
            "(record{x: float64, n: int32}[::1] unaligned)": 2,
            "(record{x: float64, n: int32})": 1,
        },
        "length": {"(str)": 2, "(bytes)": 1},
        "anything": {
            "(None)": 1,
            "(bool)": 2,
            "(complex128)": 1,
            "(float32)": 1,
            "(datetime64[D])": 1,
            "((int64, int64))": 2,
            "((int64, float64))": 1,
            "((int64,))": 1,
            "((int64, int64, int64))": 1,
            "(Point(x=int64, y=int64))": 1,
            "(Point(x=int64, y=float64))": 1,
        },
        "apply": {f"({double}, int64)": 2, "(function negate, int64)": 1},
        "negate": {"(int64)": None},
        "maybe": {"(Optional[int64])": 3},
        "power": {"(float64, Literal[2])": 1, "(float64, Literal[3])": 2},
        "zero_d": {"(float64[])": 1, "(float64[:, :, ::1])": 1},
    }


def test_eager_lazy_and_failing_overloads_are_counted(cases: CaseRunner) -> None:
    """Signatures given, added by hand, refused and recompiled, each with its calls."""
    case = cases.similar("eager_and_lazy")
    assert case.calls == {
        "eager": {"(int64)": 2, "(float64)": 1},
        "by_hand": {"(int32)": 0, "(int64)": 1},
        "closed": {"(int64)": 2},
        "again": {"(int64)": 3},
        "objects": {"(int64)": 1, "(str)": 1, "(None)": 1},
        "failing": {"(int64)": 1},
    }
    assert case.overload("eager", "(int64)").origin == "eager"
    assert case.overload("by_hand", "(int64)").origin == "compiled"
    assert case.overload("objects", "(str)").kind == "object mode"
    (failed,) = case.events("failing", "failed")
    assert failed.signature == "(str)"
    assert failed.error.startswith("TypingError: ")


def test_lifted_loops_are_rows_of_their_own(cases: CaseRunner) -> None:
    """A loop lifted out of object mode is called once per call of its function."""
    case = cases.similar("lifted_loop")
    kinds = {overload.kind: overload.calls for overload in case.overloads}
    assert kinds == {"object mode": 2, "lifted loop": 2}
