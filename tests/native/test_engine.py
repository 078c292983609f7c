"""The engine's books, to the tick, against a reference in plain Python."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_engine import (
    N_CODES,
    N_DISPATCHERS,
    N_LOOPS,
    N_OVERLOADS,
    NativePlayer,
    Op,
    ReferencePlayer,
    new_engine,
)

MAX_TICKS = 1 << 40


@pytest.fixture(scope="module")
def player():
    """Return what plays scripts to one native engine."""
    player = NativePlayer(*new_engine())
    yield player
    player.close()


def plain(observed):
    """Return what was observed as plain data, without contexts that hold nothing."""
    found = []
    for books in observed.books:
        book = asdict(books)
        book["contexts"] = {
            path: counts
            for path, counts in book["contexts"].items()
            if any(counts.values())
        }
        found.append(book)
    return {"books": found, "closings": observed.closings}


def both(player, *script):
    """Play a script to both engines; return what each made of it."""
    return plain(player.play(script)), plain(ReferencePlayer().play(script))


# -- one thing at a time ---------------------------------------------------------------


def tick(number):
    """Let time pass."""
    return Op("tick", number)


CASES = {
    "nothing": [],
    "a call": [Op("call", body=(tick(5),), before=(tick(2),))],
    "two codes": [
        Op("raw", code=1, overload=2, body=(Op("call", body=(tick(5),)),)),
        Op("call", body=(tick(7),)),
    ],
    "a raw entry point": [Op("raw", overload=2, body=(tick(3),))],
    "a raw call of a dispatcher's overload": [Op("raw", body=(tick(3),))],
    "compiled calls compiled": [Op("chain", body=(tick(3),))],
    "a body that raises": [Op("call", fails="body", body=(tick(3),))],
    "a dispatcher that raises": [Op("call", fails="dispatch", before=(tick(3),))],
    "an overload without a trampoline": [Op("call", attached=False, body=(tick(3),))],
    "an overload of another dispatcher": [Op("call", 1, overload=0, body=(tick(1),))],
    "compiling while dispatching": [
        Op("call", before=(Op("frame", body=(tick(9),)), tick(1)), body=(tick(4),))
    ],
    "compiling fails": [
        Op("call", before=(Op("frame", body=(tick(9),)),), fails="dispatch")
    ],
    "the end of compiling is lost": [
        Op("call", before=(Op("frame", closed=False, body=(tick(9),)),), fails="body")
    ],
    "a lost end inside a frame": [
        Op("frame", body=(Op("frame", kind="cache_load", closed=False), tick(2)))
    ],
    "a look that finds nothing": [
        Op("call", before=(Op("frame", body=(tick(9),), renamed=True),))
    ],
    "a look with something inside": [
        Op("frame", renamed=True, body=(Op("call", body=(tick(2),)), tick(1)))
    ],
    "a look with something open inside": [
        Op("frame", renamed=True, body=(Op("frame", closed=False, body=(tick(1),)),))
    ],
    "recursion": [Op("call", body=(tick(1), Op("call", body=(tick(2), Op("call")))))],
    "stop inside a call": [Op("call", body=(tick(5), Op("stop"), tick(7)))],
    "stop while dispatching": [
        Op("call", before=(tick(5), Op("stop"), tick(7)), body=(tick(2),))
    ],
    "stop while compiling": [
        Op("call", before=(Op("frame", body=(tick(5), Op("stop"), tick(1))), tick(7)))
    ],
    "a call over two sessions": [
        Op("call", body=(tick(5), Op("stop"), Op("start"), Op("call", 1, overload=1)))
    ],
    "dispatching over two sessions": [
        Op("call", before=(tick(5), Op("stop"), tick(1), Op("start")), body=(tick(2),))
    ],
    "stop in a thread": [
        Op("call", body=(Op("on", 1, body=(Op("call", body=(Op("stop"),)),)),))
    ],
    "two threads": [
        Op("call", body=(tick(1), Op("on", 2, body=(Op("call", body=(tick(3),)),))))
    ],
    "a loop": [Op("loop", body=(tick(3),))],
    "a loop that calls": [Op("loop", body=(tick(3), Op("call", body=(tick(4),))))],
    "a loop in a thread not seen yet": [Op("on", 1, body=(Op("loop"),))],
    "stop in a loop": [
        Op("call", body=(Op("loop", body=(tick(3), Op("stop"), tick(2))),))
    ],
    "a loop over two sessions": [Op("loop", body=(Op("stop"), Op("start"), tick(2)))],
    "fork inside a call": [
        Op("call", body=(tick(1), Op("fork"), Op("call", body=(tick(2),))))
    ],
    "fork in a thread, in a loop": [
        Op("call", body=(Op("on", 1, body=(Op("loop", body=(Op("fork"),)),)),))
    ],
}


@pytest.mark.parametrize("script", CASES.values(), ids=CASES.keys())
def test_books_equal_the_reference(player, script):
    """Every count and every tick of one situation is where the accounting puts it."""
    native, reference = both(player, *script)
    assert native == reference


# -- all things together ---------------------------------------------------------------


def operations(inner):
    """Return a strategy for one operation with operations of ``inner`` inside."""
    some = st.lists(inner, max_size=4).map(tuple)
    codes = st.integers(0, N_CODES - 1)
    return st.one_of(
        st.builds(
            Op,
            st.just("call"),
            st.integers(0, N_DISPATCHERS - 1),
            some,
            st.lists(inner, max_size=2).map(tuple),
            overload=st.integers(0, N_OVERLOADS - 1),
            code=codes,
            fails=st.sampled_from(["", "", "", "body", "dispatch"]),
            attached=st.sampled_from([True, True, True, False]),
        ),
        st.builds(
            Op,
            st.just("raw"),
            body=some,
            overload=st.integers(0, N_OVERLOADS - 1),
            code=codes,
            fails=st.sampled_from(["", "body"]),
        ),
        st.builds(Op, st.just("chain"), body=some, code=codes),
        st.builds(
            Op,
            st.just("frame"),
            body=some,
            kind=st.sampled_from(["compile", "cache_load"]),
            closed=st.sampled_from([True, True, True, False]),
            renamed=st.booleans(),
            fails=st.sampled_from(["", "", "body"]),
        ),
        st.builds(Op, st.just("loop"), st.integers(0, N_LOOPS - 1), some, code=codes),
    )


def scripts(*, controls):
    """Return a strategy for scripts; ``controls`` are operations without a body."""
    ticks = st.builds(Op, st.just("tick"), st.integers(0, MAX_TICKS))
    leaves = st.one_of(ticks, ticks, ticks, *controls)
    tree = st.recursive(leaves, operations, max_leaves=25)
    workers = st.builds(
        Op, st.just("on"), st.integers(1, 2), st.lists(tree, max_size=4).map(tuple)
    )
    # A thread waits for another, so it is never one that is waiting already.
    return st.lists(st.one_of(tree, workers), max_size=8).map(tuple)


def _control(name):
    return st.just(Op(name))


@settings(deadline=None, max_examples=80)
@given(script=scripts(controls=()))
def test_books_equal_the_reference_in_one_session(player, script):
    """Whatever calls what, and however it ends, the books agree to the tick."""
    native, reference = both(player, *script)
    assert native == reference


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(script=scripts(controls=[_control("stop"), _control("start"), _control("fork")]))
def test_books_equal_the_reference_over_sessions(player, script):
    """Sessions that begin, end and fork anywhere keep their books apart, exactly."""
    native, reference = both(player, *script)
    assert native == reference


@pytest.mark.long
@pytest.mark.slow
@settings(
    deadline=None, max_examples=3000, suppress_health_check=[HealthCheck.too_slow]
)
@given(script=scripts(controls=[_control("stop"), _control("start"), _control("fork")]))
def test_books_equal_the_reference_over_many_sessions(player, script):
    """The same over thousands of scripts."""
    native, reference = both(player, *script)
    assert native == reference
