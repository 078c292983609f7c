"""The report as a whole; golden files hold what a reader sees, letter by letter.

After a wanted change, ``python tests/test_report.py`` writes the golden files anew;
read the difference before committing it.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from builders import (
    MILLISECOND,
    SECOND,
    array,
    make_arg,
    make_dispatcher,
    make_environment,
    make_event,
    make_function,
    make_losses,
    make_node,
    make_overload,
    make_process,
    make_result,
    make_site,
    make_thread,
    scalar,
)

from numbaprof.errors import OptionError
from numbaprof.report import (
    JIT_DISABLED,
    SORT_NAMES,
    ReportOptions,
    render,
    render_html_table,
    write,
)

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 160)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Tell rich and us that colours are welcome."""
        return True


def sample():
    """Make a profile that has something in every section."""
    grid = array(ndim=2, name="grid")
    out = array(ndim=2, name="out")
    step = scalar("float64", name="dt")
    omitted = make_arg("omitted(2)", name="k", kind="omitted", value="2")
    smooth = make_function(
        "Solver.smooth",
        module="solver.kernels",
        file="/lib/solver/kernels.py",
        line=120,
    )
    scale = make_function("scale", file="script.py", line=9, module="__main__")
    block = make_function("Solver.smooth.objmode", file=smooth.file, line=131)
    overloads = (
        make_overload(
            smooth,
            args=(grid, out, step),
            calls=12_000,
            mean_ns=41_000,
            exclusive_ns=402 * MILLISECOND,
            dispatch_ns=4_800_000,
            compile_ns=640 * MILLISECOND,
        ),
        make_overload(
            smooth,
            args=(replace(grid, layout="F", text="float64[::1, :]"), out, step),
            calls=3,
            mean_ns=52_000,
            dispatch_ns=1_500,
            compile_ns=440 * MILLISECOND,
            errors=1,
        ),
        make_overload(
            block,
            kind="objmode body",
            args=(),
            calls=2,
            mean_ns=45 * MILLISECOND,
            compile_ns=30 * MILLISECOND,
            dispatch_ns=None,
            dispatch_reason="objmode blocks are not dispatched",
        ),
        make_overload(scale, args=(scalar(), omitted), dispatch_ns=900),
        make_overload(
            scale, args=(scalar(), scalar(name="k")), calls=2, dispatch_ns=900
        ),
        make_overload("helper", calls=None, compile_ns=22 * MILLISECOND),
        make_overload("unused", calls=0, compile_ns=80 * MILLISECOND, origin="eager"),
        make_overload(
            "cached",
            calls=7,
            mean_ns=300_000,
            origin="cache",
            compile_ns=None,
            compile_reason="loaded from cache",
            cache_load_ns=4 * MILLISECOND,
        ),
        make_overload("dict_append", calls=30, internal=True, compile_ns=MILLISECOND),
    )
    events = tuple(
        make_event(
            overload.function,
            signature=overload.signature,
            inclusive_ns=overload.compile_ns or overload.cache_load_ns,
            event="compile" if overload.compile_ns else "cache_load",
            internal=overload.internal,
            at_import=overload.origin == "eager",
            import_module="solver" if overload.origin == "eager" else "",
            trigger=make_site(20 + 10 * (overload.function == scale)),
        )
        for overload in overloads
    )
    result = make_result(
        *overloads,
        events=events,
        wall_ns=3 * SECOND,
        dispatchers=(make_dispatcher("inlined", inline=True),),
        losses=make_losses(in_flight_calls=2),
    )
    kernel = next(i for i, node in enumerate(result.contexts) if node.overload == 0)
    contexts = tuple(
        replace(node, parent=kernel) if node.overload == 2 else node
        for node in result.contexts
    )
    return replace(result, contexts=contexts)


def rendered(result, **options):
    """Render with options that do not depend on the terminal."""
    return render(result, options=ReportOptions(**({"width": 100} | options)))


@pytest.mark.parametrize("width", WIDTHS)
def test_report_is_the_golden_one(width):
    """The whole report, at a narrow and a wide terminal."""
    golden = (GOLDEN / f"report_{width}.txt").read_text(encoding="utf-8")
    assert rendered(sample(), width=width) + "\n" == golden


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_report_keeps_its_width(width):
    """No line is longer than the terminal, none ends in spaces."""
    lines = rendered(sample(), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert lines == [line.rstrip() for line in lines]


def test_verdict_is_the_first_line():
    """A person who reads one line reads the right one."""
    assert (
        rendered(sample())
        .splitlines()[0]
        .endswith("of 3.00 s wall time was compiling, 13 % was running compiled code.")
    )


def test_disabled_jit_is_the_first_line():
    """Before any figure: these are for interpreted Python."""
    environment = make_environment(jit_disabled=True)
    result = make_result(processes=(make_process(environment=environment),))
    assert rendered(result).splitlines()[0] == JIT_DISABLED


def test_empty_profile_has_an_honest_report():
    """No tables, no advice, but the header and what was lost."""
    text = rendered(make_result())
    assert text.startswith("No compiled function was called or compiled")
    assert "numba 0.68.1" in text
    assert "none lost" in text
    assert "Overloads" not in text


def test_many_overloads_make_no_long_report():
    """125 overloads and 5 closures fit on two screens."""
    overloads = [make_overload(args=(array(f"t{i}"),)) for i in range(125)]
    overloads += [make_overload(make_function("m.k", instance=i)) for i in range(5)]
    text = rendered(make_result(*overloads, wall_ns=20 * SECOND), top=10)
    assert len(text.splitlines()) < 80
    assert "overload-explosion" in text


def test_text_that_looks_like_markup_is_kept():
    """Signatures have brackets; no renderer may take them for its own."""
    stream = Terminal()
    function = make_function("f", file="[bold].py")
    result = make_result(make_overload(function, args=(array(ndim=2),)))
    write(result, stream, ReportOptions(width=100))
    assert "f(float64[:, ::1])" in stream.getvalue()
    assert "[bold].py" in stream.getvalue()


@pytest.fixture
def plain_environment(monkeypatch):
    """Take away the variables that decide about colours and width."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("stream", "variables", "coloured"),
    [
        (io.StringIO, {}, False),
        (Terminal, {}, True),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_follow_terminal_and_variables(
    plain_environment, stream, variables, coloured
):
    """Only terminals are coloured, NO_COLOR wins, FORCE_COLOR is honoured."""
    for name, value in variables.items():
        plain_environment.setenv(name, value)
    target = stream()
    write(sample(), target)
    assert ("\x1b[" in target.getvalue()) is coloured


def test_written_and_rendered_reports_are_the_same(plain_environment):
    """Colours add nothing and hide nothing."""
    stream = io.StringIO()
    write(sample(), stream, ReportOptions(width=100))
    assert stream.getvalue() == rendered(sample()) + "\n"


def test_stream_without_unicode_gets_ascii(plain_environment):
    """A report is written to whatever stderr there is."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    write(sample(), stream, ReportOptions(width=100))
    stream.flush()
    text = buffer.getvalue().decode("ascii")
    assert "us" in text
    assert "?" not in text


def test_width_comes_from_the_environment(plain_environment):
    """COLUMNS is honoured, as by every tool."""
    plain_environment.setenv("COLUMNS", "72")
    stream = io.StringIO()
    write(sample(), stream)
    assert max(map(len, stream.getvalue().splitlines())) == 72


def test_only_filters_and_says_what_it_left_out():
    """Filtered overloads are summed, so the last line stays the same."""
    text = rendered(sample(), only="scale")
    assert "7 overloads not matching scale" not in text
    assert "6 overloads not matching scale" in text
    assert "Solver.smooth(" not in text.partition("Overloads, by")[2]


def test_top_limits_rows():
    """Two rows and a sum."""
    assert "more" in rendered(sample(), top=2).partition("Overloads, by")[2]


@pytest.mark.parametrize("sort", SORT_NAMES)
def test_report_can_be_sorted(sort):
    """The heading says by what."""
    assert f"Overloads, by {sort.replace('_', ' ')} ─" in rendered(sample(), sort=sort)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "speed"}, "cannot sort by 'speed', only by cost, total"),
        ({"top": 0}, "top is 0, it must be at least 1"),
        ({"width": 20}, "width is 20, it must be at least 60"),
    ],
)
def test_impossible_options_are_refused(options, message):
    """The message names the value found and what can be."""
    with pytest.raises(OptionError, match=message):
        ReportOptions(**options)


@pytest.mark.parametrize(
    ("only", "patterns"), [("", ()), ("a", ("a",)), (("a", "b"), ("a", "b"))]
)
def test_one_pattern_may_be_given_as_text(only, patterns):
    """A single pattern need not be wrapped in a tuple."""
    assert ReportOptions(only=only).patterns == patterns


def test_html_is_escaped():
    """A name made by a factory has angle brackets."""
    html = render_html_table(make_result(make_overload("make.<locals>.kern")))
    assert "make.&lt;locals&gt;.kern(int64)" in html
    assert "<locals>" not in html


def test_html_is_short_and_says_what_is_missing():
    """Twenty rows, one line for the others; uncountable is a dash."""
    overloads = [make_overload(args=(array(f"t{i}"),), calls=3) for i in range(25)]
    html = render_html_table(make_result(make_overload("g", calls=None), *overloads))
    assert html.count("<tr>") == 22
    assert "… and 6 more" in html
    assert (
        render_html_table(make_result(make_overload(calls=None))).count("<td>-</td>")
        == 4
    )


def test_html_of_nothing_has_no_table():
    """The verdict alone."""
    html = render_html_table(make_result())
    assert "<table>" not in html
    assert "No compiled function" in html


def test_other_threads_are_beside_the_wall_time():
    """Work in workers is told, without making shares above 100 %."""
    result = make_result(
        make_overload(),
        contexts=(
            make_thread(),
            make_thread("worker"),
            make_node(parent=1, inclusive_ns=5 * SECOND),
        ),
    )
    assert "Beside it, in 1 other thread: 5.00 s compiled code." in rendered(result)


if __name__ == "__main__":
    for width in WIDTHS:
        text = rendered(sample(), width=width) + "\n"
        (GOLDEN / f"report_{width}.txt").write_text(text, encoding="utf-8")
