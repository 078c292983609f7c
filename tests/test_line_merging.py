"""Adding what is known of source lines."""

from __future__ import annotations

from collections import Counter

from builders import (
    make_line_site,
    make_process,
    make_result,
    make_sampling,
    make_stack,
)
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.merging import merge
from numbaprof.model import LineFacts

SITES = [make_line_site(line, signature=s) for line in (1, 2) for s in ("(a)", "(b)")]


@st.composite
def results(draw):
    """Draw a sampled profile of a process of its own."""
    sites = tuple(draw(st.lists(st.sampled_from(SITES), min_size=1, unique=True)))
    frame = st.integers(0, len(sites) - 1)
    stacks = tuple(
        make_stack(*frames, count=count)
        for frames, count in draw(
            st.lists(st.tuples(st.lists(frame, max_size=3), st.integers(1, 9)))
        )
    )
    facts = tuple(
        LineFacts(site, hits=draw(st.none() | st.integers(0, 9)), remarks=("slow",))
        for site in draw(st.lists(frame, unique=True))
    )
    return make_result(
        processes=(make_process(pid=draw(st.uuids()).int),),
        line_sites=sites,
        stacks=stacks,
        sampling=(make_sampling(*stacks),),
        line_facts=facts,
    )


def facts_of(result):
    """Return samples by process and lines, and hits by line, without any index."""
    samples = Counter()
    for stack in result.stacks:
        lines = tuple(result.line_sites[frame] for frame in stack.frames)
        samples[result.processes[stack.process].pid, lines] += stack.count
    hits = Counter()
    for fact in result.line_facts:
        hits[result.line_sites[fact.site]] += fact.hits or 0
    return samples, hits


@given(results(), results(), results())
def test_merging_is_associative(a, b, c):
    """How profiles are grouped does not change the sum."""
    together = merge([a, b, c])
    assert merge([merge([a, b]), c]) == together
    assert merge([a, merge([b, c])]) == together


@given(st.lists(results(), min_size=1, max_size=4))
def test_every_sample_and_every_hit_is_kept_on_its_line(parts):
    """Indices are renumbered so that each stack tells the same as before."""
    merged = merge(parts)
    merged.check()
    samples, hits = Counter(), Counter()
    for part in parts:
        more_samples, more_hits = facts_of(part)
        samples += more_samples
        hits += more_hits
    assert facts_of(merged)[0] == samples
    assert +facts_of(merged)[1] == hits


@given(results(), results())
def test_equal_lines_become_one(a, b):
    """A line of two profiles is one line of their sum."""
    sites = merge([a, b]).line_sites
    assert len(set(sites)) == len(sites)
    assert set(sites) == {*a.line_sites, *b.line_sites}


def test_hits_of_one_profile_are_enough():
    """Reasons for missing hits go once there are hits."""
    site = make_line_site()
    a, b = (
        make_result(processes=(make_process(pid=pid),), line_sites=(site,), **fields)
        for pid, fields in enumerate(
            (
                {"line_facts": (LineFacts(0, hits_reason="object mode"),)},
                {"line_facts": (LineFacts(0, hits=3),)},
            )
        )
    )
    (fact,) = merge([a, b]).line_facts
    assert (fact.hits, fact.hits_reason) == (3, "")
