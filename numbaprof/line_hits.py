"""Exact hits beside sampled times: a counting run joined to a profile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numbaprof.errors import TargetError, UnsupportedError
from numbaprof.line_resolution import source_line
from numbaprof.model import LineFacts, LineSite

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.counting import HitCounts
    from numbaprof.model import FunctionId, ProfileResult
    from numbaprof.native.numba_api import FunctionRegistry

__all__ = ["CountedRun", "add_hits", "count_run", "refuse_uncountable"]


@dataclass(frozen=True, slots=True)
class CountedRun:
    """What came of a counting run."""

    function: FunctionId | None
    counts: HitCounts | None
    reason: str = ""
    """Why there are no counts."""


def refuse_uncountable(func: Callable[..., Any]) -> None:
    """Raise for what has no lines that could be counted.

    Raises
    ------
    TargetError
        It is not a function that Numba compiles to machine code.
    UnsupportedError
        The JIT is off, so nothing is.
    """
    from numbaprof.native.counting_build import why_not_countable
    from numbaprof.native.numba_api import jit_is_disabled

    if jit_is_disabled():
        raise UnsupportedError(
            "lines(hits=True): NUMBA_DISABLE_JIT is set, so there is no compiled "
            "function whose lines could be counted; line_profiler counts the lines of "
            "Python functions"
        )

    reason = why_not_countable(func)
    if reason:
        raise TargetError(f"lines(hits=True): {reason}")


def count_run(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    registry: FunctionRegistry,
) -> CountedRun:
    """Run a jitted function once in its counting build, on copies of its arguments.

    What cannot be counted has a reason; what the program raises is not raised here: the
    timed run will.
    """
    from numbaprof.counting import count_hits

    function = registry.identify(func)
    try:
        counts = count_hits(func, args, kwargs, registry=registry)
    except Exception as error:  # the timed run shall not fail for want of hits
        known = isinstance(error, (TargetError, UnsupportedError))
        text = str(error).partition("\n")[0]
        reason = text if known else f"{type(error).__name__}: {text}"
        return CountedRun(function, None, reason)
    return CountedRun(function, counts)


def add_hits(result: ProfileResult, run: CountedRun) -> ProfileResult:
    """Return the profile with the hits of a counting run on its lines."""
    sites = {site: at for at, site in enumerate(result.line_sites)}
    facts = {fact.site: fact for fact in result.line_facts}
    if run.counts is not None:
        for overload in run.counts.overloads:
            for line, hits in overload.lines.items():
                site = LineSite(overload.function, overload.signature, line)
                at = sites.setdefault(site, len(sites))
                fact = facts.get(at) or LineFacts(at, source=source_line(site))
                facts[at] = replace(fact, hits=(fact.hits or 0) + hits)
    elif run.function is not None:
        site = LineSite(run.function, _signature_of(result, run.function), 0)
        at = sites.setdefault(site, len(sites))
        facts[at] = replace(facts.get(at) or LineFacts(at), hits_reason=run.reason)
    return replace(result, line_sites=tuple(sites), line_facts=tuple(facts.values()))


def _signature_of(result: ProfileResult, function: FunctionId) -> str:
    """Return the signature that a reason is shown with: that of the first samples."""
    for site in result.line_sites:
        if site.function == function:
            return site.signature
    return ""
