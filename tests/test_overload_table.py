from __future__ import annotations

from dataclasses import fields

import pytest
from builders import (
    MILLISECOND,
    array,
    make_event,
    make_function,
    make_node,
    make_overload,
    make_result,
    make_thread,
    scalar,
)

from numbaprof.layout import to_text
from numbaprof.overload_table import (
    SORT_KEYS,
    Totals,
    locate,
    matches,
    order_overloads,
    render_overloads,
    shorten_signature,
    sum_overloads,
)


def rendered(result, *, sort="total", top=20, only=(), width=100):
    """Render the table as lines of text."""
    lines = render_overloads(result, sort=sort, top=top, only=only, width=width)
    return to_text(lines).splitlines()


def many(number):
    """Make overloads of one function that take 1, 2, 3, ... µs."""
    return [
        make_overload(args=(array(f"dtype{index}"),), mean_ns=1000 * (index + 1))
        for index in range(number)
    ]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("cost", "e"),
        ("total", "b"),
        ("self", "c"),
        ("calls", "a"),
        ("errors", "c"),
        ("compile", "a"),
        ("cache_load", "d"),
        ("dispatch", "d"),
        ("mean", "b"),
        ("max", "b"),
        ("name", "a"),
    ],
)
def test_order_follows_the_sort_key(sort, first):
    """The largest comes first; names go from A to Z."""
    result = make_result(
        make_overload("d", dispatch_ns=9, cache_load_ns=5, compile_ns=1, mean_ns=3),
        make_overload("a", calls=9, mean_ns=10, compile_ns=500),
        make_overload("b", calls=1, mean_ns=900, exclusive_ns=1, compile_ns=2),
        make_overload("c", calls=2, mean_ns=300, compile_ns=1, errors=1),
        make_overload("e", mean_ns=400, compile_ns=9, compile_self_ns=400),
    )
    best = order_overloads(result, sort)[0][0]
    assert result.overloads[best].function.qualname == first


def test_dearest_to_make_comes_first_among_those_without_time():
    """What only compiled code calls has no total; its compile time tells them apart."""
    result = make_result(
        make_overload("cheap", calls=None, compile_self_ns=1),
        make_overload("called", calls=1),
        make_overload("dear", calls=None, compile_self_ns=2),
    )
    families = order_overloads(result, "total")
    names = [result.overloads[first].function.qualname for (first,) in families]
    assert names == ["called", "dear", "cheap"]


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ((array(),) * 4, "(float64[::1], float64[::1], float64[::1], float64[::1])"),
        (
            (*(array(),) * 5, scalar(), scalar(), *(array(ndim=2),) * 3),
            "(5×float64[::1], int64, int64, 3×float64[:, ::1])",
        ),
    ],
)
def test_equal_neighbours_are_counted_in_a_long_signature(args, shown):
    """Short signatures stay as they are compiled."""
    assert shorten_signature(make_overload(args=args)) == shown


def test_numbered_signature_is_never_shortened():
    """The number tells it from another of the same text."""
    signature = make_overload(args=(array(),) * 9).signature + " #2"
    overload = make_overload(args=(array(),) * 9, signature=signature)
    assert shorten_signature(overload) == signature


def test_every_order_is_tested():
    """The keys are those that the report offers."""
    assert set(SORT_KEYS) == {
        "cost",
        "total",
        "self",
        "calls",
        "errors",
        "compile",
        "cache_load",
        "dispatch",
        "mean",
        "max",
        "name",
    }


def test_totals_add_figure_by_figure():
    """No figure is forgotten in the addition."""
    ones = Totals(**{field.name: 1 for field in fields(Totals)})
    assert ones + ones == Totals(**{field.name: 2 for field in fields(Totals)})


def test_rows_that_do_not_fit_are_summed():
    """Ten overloads in three rows: the others are one line, and all add up."""
    lines = rendered(make_result(*many(10)), top=3)
    assert [line.split()[0:3] for line in lines[1:4]] == [
        ["1", "10.0", "µs"],
        ["1", "9.00", "µs"],
        ["1", "8.00", "µs"],
    ]
    assert "… and 7 more" in lines[4]
    assert lines[4].split()[:3] == ["7", "28.0", "µs"]
    assert lines[6].split()[:3] == ["10", "55.0", "µs"]


def test_hundreds_of_overloads_stay_short():
    """The table of 125 overloads is as long as that of 25."""
    tables = [rendered(make_result(*many(number)), top=5) for number in (25, 125)]
    assert len(tables[0]) == len(tables[1]) < 15


@pytest.mark.parametrize("top", [1, 2, 50])
@pytest.mark.parametrize("only", [(), ("kernel",), ("nothing",)])
def test_last_line_is_the_sum_whatever_is_shown(top, only):
    """Hiding rows never changes the totals."""
    overloads = [*many(6), make_overload("helper", internal=True, calls=4)]
    lines = rendered(make_result(*overloads), top=top, only=only)
    total = sum_overloads(overloads)
    last = next(line for line in lines if line.endswith("all overloads"))
    assert (total.calls, total.self_ns) == (10, 25_000)
    assert last.split()[:3] == ["10", "25.0", "µs"]


def test_uncountable_calls_are_a_dash_with_a_note():
    """Never 0; the note below says why."""
    lines = rendered(make_result(make_overload(calls=None), make_overload("g")))
    row = next(line for line in lines if "kernel(" in line)
    assert row.split()[0] == "-¹"
    assert lines[-1] == "¹ called from compiled code only"


def test_partly_countable_calls_keep_their_number():
    """What was counted is shown, with the note about what was not."""
    overload = make_overload(calls=7, not_countable_reason="callbacks are not seen")
    lines = rendered(make_result(overload))
    assert lines[1].split()[0] == "7¹"
    assert lines[-1] == "¹ callbacks are not seen"


def test_equal_reasons_share_a_note():
    """Hundreds of rows with one reason need one line."""
    result = make_result(*(make_overload(f"f{i}", calls=None) for i in range(5)))
    assert sum(line.startswith("¹") for line in rendered(result)) == 1


def test_missing_figures_say_why():
    """Dispatch and compile time have notes as well."""
    overload = make_overload(
        dispatch_ns=None,
        dispatch_reason="no dispatcher",
        compile_ns=None,
        compile_reason="compiled before",
    )
    notes = {line[2:] for line in rendered(make_result(overload)) if line[0] in "¹²"}
    assert notes == {"no dispatcher", "compiled before"}


def test_internal_overloads_are_one_line_with_their_compile_time():
    """Fifty helpers of Numba's are not fifty rows."""
    result = make_result(
        make_overload("mine"),
        *(make_overload(f"helper{i}", internal=True, calls=2) for i in range(3)),
        events=tuple(
            make_event(f"hidden{i}", internal=True, inclusive_ns=100 * MILLISECOND)
            for i in range(50)
        ),
    )
    lines = rendered(result)
    group = next(line for line in lines if "Numba's own" in line)
    assert not any("helper0" in line for line in lines)
    assert group.endswith("Numba's own helpers (50)")
    assert "5.00 s" in group


def test_helpers_are_charged_to_the_overload_they_were_compiled_for():
    """A short function that needs much of Numba is as dear as that."""
    result = make_result(
        make_overload("large", calls=0, compile_self_ns=6 * MILLISECOND),
        make_overload("small", calls=0, compile_self_ns=2 * MILLISECOND),
        events=(
            make_event("large", inclusive_ns=17 * MILLISECOND),
            make_event("small", inclusive_ns=11 * MILLISECOND, parent=0),
            make_event("diff", inclusive_ns=5 * MILLISECOND, parent=1, internal=True),
            make_event("sort", inclusive_ns=4 * MILLISECOND, parent=2, internal=True),
        ),
    )
    lines = rendered(result, sort="cost")
    first, second = lines[1:3]
    assert ("11.0 ms" in first, "small" in first) == (True, True)
    assert ("6.00 ms" in second, "large" in second) == (True, True)
    assert not any("Numba's own helpers (" in line for line in lines)
    assert "17.0 ms" in next(line for line in lines if "all overloads" in line)


def test_objmode_block_is_a_child_of_its_kernel():
    """The block stands below its kernel, indented, and is called Python."""
    result = make_result(
        make_overload("kernel", mean_ns=50),
        make_overload("other", mean_ns=40),
        make_overload(make_function("block", line=12), kind="objmode body", mean_ns=30),
        contexts=(
            make_thread(),
            make_node(overload=0, inclusive_ns=50, exclusive_ns=20),
            make_node(overload=2, parent=1, inclusive_ns=30),
            make_node(overload=1, inclusive_ns=40),
        ),
    )
    names = [line.split("  ")[-1].strip() for line in rendered(result, width=140)[1:4]]
    assert order_overloads(result, "total") == [[0, 2], [1]]
    assert any("└ objmode block, line 12 (Python)" in name for name in names)


def test_block_that_never_ran_is_found_by_its_compilation():
    """Without a call, the enclosing compile event tells where a block belongs."""
    result = make_result(
        make_overload("kernel"),
        make_overload("block", kind="objmode body", calls=0),
        events=(make_event("kernel"), make_event("block", parent=0)),
    )
    assert order_overloads(result, "total") == [[0, 1]]


def test_self_is_shown_only_where_it_differs():
    """Two equal columns would say nothing."""
    flat = rendered(make_result(make_overload()))
    nested = rendered(make_result(make_overload(exclusive_ns=1)))
    assert "self" not in flat[0]
    assert "self" in nested[0]


def test_errors_and_cache_loads_are_shown_where_there_are_any():
    """Columns of zeros are left out."""
    plain = rendered(make_result(make_overload()), width=160)
    other = make_overload(errors=1, cache_load_ns=5)
    special = rendered(make_result(other), width=160)
    assert not {"errors", "load"} & set(plain[0].split())
    assert {"errors", "load"} <= set(special[0].split())


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_table_keeps_its_width(width):
    """Long signatures are folded, lesser columns are dropped."""
    args = tuple(array(ndim=3, name=f"a{i}") for i in range(6))
    overload = make_overload("package_function_with_a_name", args=args, calls=123_456)
    lines = rendered(make_result(overload), width=width)
    assert max(map(len, lines)) <= width


def test_signature_is_never_cut():
    """Every argument type is there, however narrow the table."""
    args = (array(ndim=2), scalar("complex128"), array("int8", layout="F", ndim=2))
    text = "".join(rendered(make_result(make_overload(args=args)), width=60))
    assert text.count("float64[:, ::1]") == 1
    assert "complex128" in text
    assert "int8[::1, :]" in text


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((), True),
        (("ker",), True),
        (("kernel*",), True),
        (("ker*l",), True),
        (("ernel*",), False),
        (("demo.py",), True),
        (("*.py",), True),
        (("nothing", "demo"), True),
        (("nothing",), False),
    ],
)
def test_patterns_fit_name_module_or_file(patterns, expected):
    """Plain text is looked for anywhere, a pattern fits as a whole."""
    assert matches(make_function("kernel"), patterns) is expected


@pytest.mark.parametrize(
    ("file", "line", "place"),
    [
        ("/usr/lib/site-packages/pkg/mod.py", 3, "pkg/mod.py:3"),
        ("C:\\code\\mod.py", 3, "code/mod.py:3"),
        ("mod.py", 0, "mod.py"),
        ("<string>", 1, "<string>:1"),
        ("", 0, ""),
    ],
)
def test_place_is_short_and_has_a_line(file, line, place):
    """The last two parts of a path are enough to recognise it."""
    assert locate(make_function(file=file, line=line)) == place
