"""Source lines as text."""

from __future__ import annotations

import re

from builders import (
    make_function,
    make_line_site,
    make_result,
    make_sampling,
    make_stack,
)

from numbaprof.layout import to_text
from numbaprof.line_report import render_line_account, render_lines
from numbaprof.model import LineFacts, SamplingInfo

SOURCE = ("@njit", "def kernel(a):", "    for x in a:", "        s += np.sin(x)")


def profiled(*, hits=(None, None, 11, 10), count=700, **changes):
    """Build the profile of a four-line function, sampled on its last line."""
    sites = tuple(make_line_site(line) for line in range(10, 14))
    facts = tuple(
        LineFacts(at, source=text, hits=n)
        for at, (text, n) in enumerate(zip(SOURCE, hits, strict=True))
    )
    stacks = (
        make_stack(3, count=count, callee="sin (libm)"),
        make_stack(2, count=count),
        make_stack(count=2 * count),
    )
    fields = {
        "line_sites": sites,
        "stacks": stacks,
        "sampling": (make_sampling(*stacks),),
        "line_facts": facts,
    }
    return make_result(**(fields | changes))


def text_of(result, **options):
    """Return the tables as text."""
    return to_text(render_lines(result, **({"top": 5, "width": 90} | options)))


def test_table_reads_like_that_of_line_profiler():
    """Columns in the same order, source indented as it was, own notes below."""
    assert text_of(profiled()).splitlines() == [
        "kernel(int64)",
        "  demo.py:10 · 5.60 s ± 207 ms of CPU time, 1,400 samples, 50 % of all",
        "Line #  Hits    Time       ±  Per Hit  % Time  Line Contents",
        "    10                                         @njit",
        "    11                                         def kernel(a):",
        "    12    11  2.80 s  180 ms   255 ms    50 %      for x in a:",
        "    13    10  2.80 s  180 ms   280 ms    50 %          s += np.sin(x)",
        "                                                       └ 100 % sin (libm)",
    ]


def test_stretches_without_figures_are_folded():
    """A docstring of fifty lines does not push the hot line off the screen."""
    sites = tuple(make_line_site(line) for line in range(10, 60))
    facts = tuple(LineFacts(at, source=f"    line {10 + at}") for at in range(50))
    stack = make_stack(40, count=500)
    text = text_of(
        make_result(
            line_sites=sites,
            line_facts=facts,
            stacks=(stack,),
            sampling=(make_sampling(stack),),
        )
    )
    shown = [int(n) for n in re.findall(r"^ +(\d+) ", text, re.MULTILINE)]
    assert shown == [10, 11, 48, 49, 50, 51, 52]
    assert text.count("⋮") == 2


def test_columns_of_hits_are_left_out_when_nobody_counted():
    """An empty column tells nothing."""
    text = text_of(profiled(hits=(None,) * 4))
    assert "Hits" not in text
    assert "Per Hit" not in text


def test_few_samples_say_how_long_to_run():
    """385 samples make any share certain to 5 %."""
    assert "run about 20 times as long" in text_of(profiled(count=10))
    assert "few samples" not in text_of(profiled())


def test_samples_of_several_threads_show_how_even_they_are():
    """Imbalance of a parallel loop is seen at once."""
    stacks = (make_stack(0, count=300), make_stack(0, count=100, thread="worker"))
    text = text_of(profiled(stacks=stacks, sampling=(make_sampling(*stacks),)))
    assert "over 2 threads: 75 %, 25 %" in text


def test_long_source_is_cut_at_the_width():
    """A table whose lines wrap is no table."""
    facts = (LineFacts(3, source="    " + "x" * 200),)
    text = text_of(profiled(line_facts=facts), width=70)
    assert max(map(len, text.splitlines())) <= 70
    assert "…" in text


def test_remarks_and_vector_width_stand_below_their_line():
    """What LLVM says belongs to the line it says it of."""
    facts = (
        LineFacts(3, source="s += x", remarks=("LLVM: not vectorised",)),
        LineFacts(2, source="for x in a:", vector_width=4),
    )
    lines = text_of(profiled(line_facts=facts)).splitlines()
    (loop,) = (at for at, line in enumerate(lines) if "for x in a" in line)
    assert "vectorised, 4 numbers at once" in lines[loop + 1]
    assert "LLVM: not vectorised" in lines[-1]


def test_why_there_are_no_hits_is_said():
    """A figure that cannot be had says why."""
    facts = (LineFacts(3, source="s += x", hits_reason="object mode"),)
    assert "no hits: object mode" in text_of(profiled(line_facts=facts))


def test_line_that_is_not_known_is_a_row_of_its_own():
    """A sample whose line is not known is not given to any other line."""
    site = make_line_site(0)
    stack = make_stack(0, count=500, bin="function")
    text = text_of(
        make_result(
            line_sites=(site,), stacks=(stack,), sampling=(make_sampling(stack),)
        )
    )
    assert "(somewhere in the function)" in text


def test_functions_beyond_top_are_counted():
    """What is not listed is not lost."""
    sites = tuple(
        make_line_site(1, function=make_function(f"f{n}", line=n)) for n in range(5)
    )
    stacks = tuple(make_stack(n, count=100 - n) for n in range(5))
    result = make_result(
        line_sites=sites, stacks=stacks, sampling=(make_sampling(*stacks),)
    )
    text = text_of(result, top=2)
    assert "… and 3 more functions with 59 % of the time" in text


def test_only_shows_what_was_asked_for():
    """Patterns are those of the whole report."""
    assert text_of(profiled(), only=("nothing",)) == ""


def test_account_says_how_and_where_every_sample_went():
    """Clock, interval, bins and losses; the bins add up to the whole."""
    result = profiled()
    info = make_sampling(
        *result.stacks, losses=(("dropped", 3),), requested_ns=1_000_000
    )
    text = to_text(render_line_account(profiled(sampling=(info,)), 200))
    assert "one sample per 4.00 ms of CPU time (ITIMER_PROF, 1.00 ms asked)" in text
    assert "2,800 samples: 50 % on lines of compiled code, 50 % in Python." in text
    assert "3 samples lost: dropped" in text


def test_account_says_why_there_are_no_samples():
    """Not sampled is not zero."""
    info = SamplingInfo("none", reason="SIGPROF is taken by gperftools")
    text = to_text(render_line_account(make_result(sampling=(info,)), 200))
    assert text == "Lines were not sampled: SIGPROF is taken by gperftools."


def test_processes_that_were_sampled_alike_are_said_once():
    """A pool of workers does not fill the page."""
    infos = tuple(
        make_sampling(process=n, achieved_ns=ns, problems=("no twin",))
        for n, ns in enumerate((4_000_000, 4_200_000))
    )
    text = to_text(render_line_account(make_result(sampling=infos), 200))
    assert "in 2 processes, one sample per 4.00 ms to 4.20 ms of CPU time" in text
    assert text.count("no twin") == 1
