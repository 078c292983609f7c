"""The rule for line events, against the events of the interpreter that runs it."""

from __future__ import annotations

import sys

import pytest
from line_event_cases import CASES, nested, one_liner

from numbaprof.native.line_events import HAS_MONITORING, LineEvents


def walked_and_announced(function, *args):
    """Return the offsets that ran and the lines announced, frame by frame."""
    if HAS_MONITORING:
        return _instructions_by_monitoring(function, args), _lines_by_monitoring(
            function, args
        )
    return _by_tracing(function, args)


def _run(function, args):
    try:
        result = function(*args)
        if hasattr(result, "__next__"):
            for _ in result:
                pass
    except ZeroDivisionError:
        pass


def _by_tracing(function, args):
    offsets, lines = [], []

    def trace(frame, event, _):
        if frame.f_code is not function.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "line":
            lines.append(frame.f_lineno)
        elif event == "opcode":
            offsets.append(frame.f_lasti)
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        _run(function, args)
    finally:
        sys.settrace(previous)
    return offsets, lines


def _monitored(function, args, event, note):
    monitoring = sys.monitoring
    tool = 3
    monitoring.use_tool_id(tool, "test_line_events")
    try:
        monitoring.register_callback(tool, event, note)
        monitoring.set_local_events(tool, function.__code__, event)
        _run(function, args)
    finally:
        monitoring.set_local_events(tool, function.__code__, 0)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


def _instructions_by_monitoring(function, args):
    found = []
    _monitored(
        function,
        args,
        sys.monitoring.events.INSTRUCTION,
        lambda code, offset: found.append(offset),
    )
    return found


def _lines_by_monitoring(function, args):
    found = []
    _monitored(
        function,
        args,
        sys.monitoring.events.LINE,
        lambda code, line: found.append(line),
    )
    return found


def predicted(function, offsets):
    """Return the lines the rule announces on the way over ``offsets``."""
    events = LineEvents(function.__code__)
    lines = []
    previous = None
    for offset in offsets:
        if offset not in events.index:
            # Some versions report an instruction at its operand, behind a prefix.
            offset = max(known for known in events.index if known <= offset)
        current = events.at(offset)
        if events.is_event(previous, current):
            lines.append(current.line)
        previous = current
    return lines


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_rule_announces_the_lines_that_the_interpreter_does(case):
    """Over the instructions that ran, the rule gives the events that came."""
    function, *args = case
    offsets, lines = walked_and_announced(function, *args)
    assert predicted(function, offsets) == lines


def test_body_beside_its_def_is_announced_even_where_the_interpreter_does_not():
    """3.13 takes it for the line of the def, which it has seen."""
    offsets, lines = walked_and_announced(one_liner, 2)
    line = one_liner.__code__.co_firstlineno
    assert predicted(one_liner, offsets) == [line]
    assert lines == ([] if sys.version_info >= (3, 13) else [line])


def test_lines_are_those_with_code():
    """Blank lines, comments and the def itself are none of them."""
    first = nested.__code__.co_firstlineno
    assert LineEvents(nested.__code__).lines == {first + n for n in range(1, 6)}
