from __future__ import annotations

import pytest
from builders import (
    array,
    make_arg,
    make_dispatcher,
    make_event,
    make_function,
    make_overload,
    make_result,
    scalar,
)

from numbaprof.why import compare_args, explain_overloads, is_generated


def omitted(name="k", value="2"):
    """Make the type of an argument that was left out."""
    return make_arg(f"omitted({value})", name=name, kind="omitted", value=value)


def literal(value):
    """Make the type of an argument whose value is part of its type."""
    return make_arg(f"Literal[int]({value})", kind="literal", value=value)


def tuple_of(*items):
    """Make the type of a tuple."""
    text = f"({', '.join(item.text for item in items)})"
    return make_arg(text, kind="tuple", items=items)


def typed_dict(key, value="float64"):
    """Make the type of a typed dict."""
    items = (scalar(key, name=""), scalar(value, name=""))
    return make_arg(f"Dict[{key}, {value}]", kind="typed dict", items=items)


INT, FLOAT = scalar("int64"), scalar("float64")
PYTHON_LIST = make_arg("reflected list(int64)", kind="reflected list", dtype="int64")
TYPED_LIST = make_arg("List[int64]", kind="typed list", dtype="int64")
NONE = make_arg("none", kind="none")
OPTIONAL = make_arg("optional(int64)", kind="optional", dtype="int64")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (INT, FLOAT, "because of `x`: dtype int64 to float64"),
        (
            array("float32"),
            array("float64"),
            "because of `x`: dtype float32 to float64",
        ),
        (array(ndim=2), array(ndim=2, layout="F"), "because of `x`: layout C to F"),
        (array(layout="C"), array(layout="A"), "because of `x`: layout C to A"),
        (array(), array(readonly=True), "because of `x`: now read-only"),
        (array(readonly=True), array(), "because of `x`: no longer read-only"),
        (
            array(),
            array(layout="A", readonly=True),
            "because of `x`: layout C to A, now read-only",
        ),
        (array(), array(ndim=2), "because of `x`: 1 to 2 dimensions"),
        (
            scalar(name="k"),
            omitted(),
            "only because `k` was omitted (default 2)",
        ),
        (
            omitted(),
            scalar(name="k"),
            "only because `k` was given instead of omitted (default 2)",
        ),
        (omitted(value="2"), omitted(value="3"), "`k`: another default, 2 to 3"),
        (literal("1"), literal("2"), "because of `x`: literal 1 to 2"),
        (INT, literal("2"), "because of `x`: the literal 2 instead of int64"),
        (
            tuple_of(INT, INT),
            tuple_of(INT, INT, INT),
            "because of `x`: tuple length 2 to 3",
        ),
        (
            tuple_of(INT, INT),
            tuple_of(INT, FLOAT),
            "because of `x`: element 1, dtype int64 to float64",
        ),
        (
            make_arg("type(f)", kind="function", value="f"),
            make_arg("type(g)", kind="function", value="g"),
            "because of `x`: another function object, f to g",
        ),
        (INT, OPTIONAL, "because of `x`: int64 to optional int64"),
        (
            OPTIONAL,
            make_arg("optional(float64)", kind="optional", dtype="float64"),
            "because of `x`: optional int64 to optional float64",
        ),
        (INT, NONE, "because of `x`: None instead of int64"),
        (NONE, INT, "because of `x`: int64 instead of None"),
        (
            PYTHON_LIST,
            TYPED_LIST,
            "because of `x`: reflected list (a Python list) to typed List",
        ),
        (
            TYPED_LIST,
            make_arg("List[float64]", kind="typed list", dtype="float64"),
            "because of `x`: element type int64 to float64",
        ),
        (
            typed_dict("int64"),
            typed_dict("unicode_type"),
            "because of `x`: key type int64 to unicode_type",
        ),
        (
            make_arg("Record(a)", kind="record"),
            make_arg("Record(b)", kind="record"),
            "because of `x`: another record dtype",
        ),
        (
            array("Record(a)"),
            array("Record(b)"),
            "because of `x`: another record dtype",
        ),
        (
            make_arg("A#1", kind="jitclass"),
            make_arg("A#2", kind="jitclass"),
            "because of `x`: A#1 to A#2",
        ),
        (INT, array(), "because of `x`: int64 to float64[::1]"),
    ],
)
def test_reason_names_what_changed(old, new, reason):
    """The sentence says which argument changed, and how."""
    result = make_result(make_overload(args=(old,)), make_overload(args=(new,)))
    assert explain_overloads(result)[1].endswith(reason)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("*a[0]", "*a[1]"), "compiled again because of `*a`: 1 to 2 values"),
        (
            ("", ""),
            "compiled again because of number of arguments: 1 to 2",
        ),
    ],
)
def test_number_of_arguments_is_named(names, reason):
    """Star arguments are counted under their own name."""
    args = tuple(scalar(name=name) for name in names)
    result = make_result(make_overload(args=args[:1]), make_overload(args=args))
    assert explain_overloads(result)[1] == reason


def test_unnamed_argument_is_numbered():
    """An argument without a name is called by its position."""
    result = make_result(
        make_overload(args=(INT, scalar(name=""))),
        make_overload(args=(INT, scalar("float64", name=""))),
    )
    assert "argument 2: dtype int64 to float64" in explain_overloads(result)[1]


def test_most_similar_earlier_overload_is_compared():
    """A read-only F array differs from the F one in one thing, not from C in two."""
    result = make_result(
        make_overload(args=(array(ndim=2, layout="C"),)),
        make_overload(args=(array(ndim=2, layout="F"),)),
        make_overload(args=(array(ndim=2, layout="F", readonly=True),)),
    )
    assert explain_overloads(result) == (
        "first call",
        "compiled again because of `x`: layout C to F",
        "compiled again because of `x`: now read-only",
    )


def test_omission_is_preferred_when_two_earlier_ones_are_alike():
    """Of two single differences the omitted argument is the one to act on."""
    off = scalar("float64", name="off")
    result = make_result(
        make_overload(args=(omitted("k", "2"), omitted("off", "0.5"))),
        make_overload(args=(scalar(name="k"), off)),
        make_overload(args=(omitted("k", "2"), off)),
    )
    assert explain_overloads(result)[2] == (
        "compiled again only because `k` was omitted (default 2)"
    )


def test_creation_order_decides_not_position():
    """Overloads are compared in the order of their index."""
    from dataclasses import replace

    first = make_overload(args=(array(layout="F"),))
    second = make_overload(args=(array(layout="C"),))
    result = make_result(first, second)
    swapped = replace(result, overloads=result.overloads[::-1])
    assert explain_overloads(swapped)[1] == "first call"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "first call"),
        ({"origin": "cache"}, "first call, loaded from cache"),
        ({"created_in_session": False}, "first call, before profiling began"),
        (
            {"origin": "eager"},
            "listed in the decorator; arguments of other types are cast to it",
        ),
        ({"internal": True}, "Numba's own helper"),
        ({"origin": "internal"}, "Numba's own helper"),
        ({"origin": "none", "not_countable_reason": "inlined"}, "inlined"),
        ({"kind": "cfunc"}, "made by @cfunc"),
        ({"kind": "lifted loop"}, "loop lifted out of an object mode function"),
        (
            {"kind": "objmode body"},
            "objmode block of its kernel, always compiled, never cached",
        ),
    ],
)
def test_first_overload_says_where_it_came_from(changes, reason):
    """The first overload has nothing to be compared with."""
    assert explain_overloads(make_result(make_overload(**changes))) == (reason,)


def test_closed_dispatcher_listed_its_signatures():
    """One that was loaded does not say so itself; its function does."""
    result = make_result(
        make_overload(args=(INT,), origin="eager"),
        make_overload(args=(FLOAT,), origin="cache"),
        dispatchers=(make_dispatcher(eager=True),),
    )
    assert explain_overloads(result) == (
        "listed in the decorator; arguments of other types are cast to it",
        "listed in the decorator, loaded from cache; arguments of other types are cast "
        "to it",
    )


def test_dispatcher_closed_after_use_listed_nothing():
    """``disable_compile()`` makes no list of what was compiled before."""
    result = make_result(
        make_overload(args=(INT,)), dispatchers=(make_dispatcher(eager=True),)
    )
    assert explain_overloads(result) == ("first call",)


def test_later_overload_from_cache_is_not_called_compiled():
    """What was loaded from the cache was not compiled again."""
    result = make_result(
        make_overload(args=(INT,)), make_overload(args=(FLOAT,), origin="cache")
    )
    assert explain_overloads(result)[1] == (
        "loaded from cache too because of `x`: dtype int64 to float64"
    )


def test_closures_of_one_source_are_numbered():
    """Factories make functions of the same source; each says which it is."""
    result = make_result(
        *(
            make_overload(make_function("make.<locals>.kern", instance=instance))
            for instance in range(3)
        )
    )
    assert explain_overloads(result) == (
        "first call",
        "another closure of the same source (2 of 3)",
        "another closure of the same source (3 of 3)",
    )


def test_functions_made_by_exec_are_not_called_the_same_source():
    """All of ``<string>``, line 1, looks alike and need not be."""
    result = make_result(
        *(
            make_overload(make_function("f", file="<string>", line=1, instance=i))
            for i in range(2)
        )
    )
    assert explain_overloads(result)[1] == "another function of the same name (2 of 2)"


def test_repeated_types_say_so():
    """Equal arguments mean that the same code was made twice."""
    result = make_result(make_overload(), make_overload())
    assert explain_overloads(result)[1] == "compiled again for the same argument types"


def test_stencil_says_that_every_call_compiles():
    """A stencil called from Python compiles each time."""
    result = make_result(make_overload(kind="stencil"), make_overload(kind="stencil"))
    assert explain_overloads(result)[1] == (
        "compiled again although the types are the same: every call does"
    )


def test_function_compiled_for_another_one_names_it():
    """A callee's first call came from compiled code."""
    result = make_result(
        make_overload("outer"),
        make_overload("inner", calls=0),
        events=(make_event("outer"), make_event("inner", parent=0)),
    )
    assert explain_overloads(result)[1] == "compiled for `outer`"


def test_function_compiled_for_its_own_wrapper_says_so():
    """A jitclass method is compiled for the wrapper that Python calls."""
    result = make_result(
        make_overload(calls=0),
        events=(make_event(signature="((int64,))"), make_event(parent=0)),
    )
    assert explain_overloads(result) == (
        "compiled for another overload of the same function",
    )


def test_equal_arguments_have_no_changes():
    """Nothing changes from a type to itself."""
    assert compare_args((array(),), (array(),)) == ()


@pytest.mark.parametrize(
    ("file", "expected"),
    [("<string>", True), ("", True), ("mod.py", False), ("<ipython-input-3-a>", False)],
)
def test_generated_source_is_told_from_cells(file, expected):
    """A notebook cell is real source, ``<string>`` is not."""
    assert is_generated(make_function(file=file)) is expected
