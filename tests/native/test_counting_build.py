"""What a counting build changes for its time, and that it changes it back."""

from __future__ import annotations

import threading

import pytest
from numba import njit, types
from numba.core import interpreter
from numba.core.compiler import CompilerBase
from numba.core.errors import TypingError

from numbaprof.native.counting_build import (
    CountingBuild,
    is_compiled_generator,
    kept_random_state,
)


def patched():
    """Return what is replaced while compiling."""
    return (
        vars(types.Dispatcher)["dispatcher"],
        types.Dispatcher.get_call_type,
        types.Dispatcher.get_overload,
        CompilerBase.compile_extra,
        interpreter.Interpreter,
    )


@njit
def add(x):
    """Be counted."""
    return x + 1


@njit
def fails(x):
    """Not compile."""
    return add(x).nowhere


@njit
def steps(n):
    """Be a generator."""
    for i in range(n):
        yield i * i


def test_compiler_is_restored_after_success():
    """And the build runs as often as one likes."""
    before = patched()
    run = CountingBuild(add).compile((1,), {})
    assert patched() == before
    assert (run(), run()) == (2, 2)


def test_compiler_is_restored_after_failure():
    """The error is Numba's own."""
    before = patched()
    with pytest.raises(TypingError):
        CountingBuild(fails).compile((1,), {})
    assert patched() == before


def test_other_threads_compile_uncounted():
    """They wait for the compiler's lock and then find the compiler as it was."""
    build = CountingBuild(add)
    outcome = []

    @njit
    def other(x):
        return add(x) * 3

    with build._redirected():
        thread = threading.Thread(target=lambda: outcome.append(other(1)))
        thread.start()
        thread.join(0.05)
        assert not outcome
    thread.join()
    assert outcome == [6]
    assert build.counted == []


def test_parallel_is_left_out_and_other_options_kept():
    """Counting needs no atomic additions then."""
    original = njit(add.py_func, parallel=True, fastmath=True)
    twin = CountingBuild(original)._twin(original)
    assert "parallel" not in twin.targetoptions
    assert twin.targetoptions["fastmath"] is True
    assert original.targetoptions["parallel"] is True


def test_generator_objects_are_known():
    """Those of jitted functions, not Python's."""
    assert is_compiled_generator(steps(2))
    assert not is_compiled_generator(steps.py_func(2))


def test_random_state_is_put_back_after_an_error():
    """In both of Numba's generators."""
    from numba import _helperlib

    pointer = _helperlib.rnd_get_np_state_ptr()
    before = _helperlib.rnd_get_state(pointer)
    with pytest.raises(TypeError), kept_random_state():
        _helperlib.rnd_seed(pointer, 5, "one too many", _helperlib.rnd_seed(pointer, 5))
    assert _helperlib.rnd_get_state(pointer) == before
