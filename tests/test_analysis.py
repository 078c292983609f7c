from __future__ import annotations

from builders import make_overload, make_result

from numbaprof import analysis


def test_analysis_offers_every_name_it_lists():
    """The facade has what it promises, and keeps it sorted for readers."""
    assert all(hasattr(analysis, name) for name in analysis.__all__)
    assert sorted(analysis.__all__) == sorted(set(analysis.__all__))


def test_analysis_answers_for_an_empty_profile():
    """Nothing measured gives empty answers, not errors."""
    result = make_result(wall_ns=5)
    assert analysis.explain_overloads(result) == ()
    assert analysis.find(result) == ()
    assert analysis.display_names(result) == {}
    assert analysis.summarize(result).rest_ns == 5


def test_analysis_leaves_the_result_unchanged():
    """Outputs are functions of the result: asking twice gives the same."""
    result = make_result(make_overload())
    assert analysis.summarize(result) == analysis.summarize(result)
    assert analysis.find(result) == analysis.find(result)
