"""The hits that line_profiler counts while the interpreter runs a jitted function."""

from __future__ import annotations

import types
from typing import Any

import pytest
from numba.core.registry import CPUDispatcher


def interpreted_hits(
    dispatcher: Any, args: tuple[Any, ...]
) -> dict[tuple[str, int], int]:
    """Run ``py_func``, and its callees' ``py_func``, under line_profiler.

    Returns
    -------
    dict
        (file, line) to hits.
    """
    line_profiler = pytest.importorskip(
        "line_profiler", reason="line_profiler is not there to compare with"
    )
    functions: dict[int, Any] = {}
    function = _interpreted(dispatcher, functions)
    args = tuple(
        _interpreted(arg, functions) if isinstance(arg, CPUDispatcher) else arg
        for arg in args
    )
    profiler = line_profiler.LineProfiler()
    for known in functions.values():
        profiler.add_function(known)
    profiler.enable_by_count()
    try:
        result = function(*args)
        if isinstance(result, types.GeneratorType):
            for _ in result:
                pass
    except (ValueError, AssertionError):
        pass
    finally:
        profiler.disable_by_count()
    return {
        (file, line): hits
        for (file, _, _), rows in profiler.get_stats().timings.items()
        for line, hits, _ in rows
    }


def _interpreted(dispatcher: Any, functions: dict[int, Any]) -> Any:
    """Return a copy of ``py_func`` that calls copies of its callees' ``py_func``."""
    if id(dispatcher) in functions:
        return functions[id(dispatcher)]
    original = dispatcher.py_func
    names = dict(original.__globals__)
    function = types.FunctionType(
        original.__code__,
        names,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    function.__kwdefaults__ = original.__kwdefaults__
    functions[id(dispatcher)] = function
    for name in original.__code__.co_names:
        if isinstance(names.get(name), CPUDispatcher):
            names[name] = _interpreted(names[name], functions)
    return function
