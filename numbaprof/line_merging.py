"""Adding what is known of source lines: part of :mod:`numbaprof.merging`.

Lines that are the same in several profiles become one; samples stay with the process
they were taken in, so that each keeps the interval it stands for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.model import (
        LineFacts,
        LineSite,
        ProfileResult,
        SampledStack,
        SamplingInfo,
    )

__all__ = ["merged_lines"]


def merged_lines(parts: tuple[ProfileResult, ...]) -> dict[str, Any]:
    """Return the fields of the sum that are about lines, by name.

    Parameters
    ----------
    parts : tuple of ProfileResult
        In the order of the processes in the sum.

    Returns
    -------
    dict
        ``line_sites``, ``stacks``, ``sampling`` and ``line_facts``.
    """
    sites: dict[LineSite, int] = {}
    for part in parts:
        for site in part.line_sites:
            sites.setdefault(site, len(sites))
    places = [[sites[site] for site in part.line_sites] for part in parts]
    return {
        "line_sites": tuple(sites),
        "stacks": tuple(_shifted_stacks(parts, places)),
        "sampling": tuple(_shifted_sampling(parts)),
        "line_facts": _added_facts(parts, places),
    }


def _shifted_stacks(
    parts: tuple[ProfileResult, ...], places: list[list[int]]
) -> Iterator[SampledStack]:
    n_processes = 0
    for part, place in zip(parts, places, strict=True):
        for stack in part.stacks:
            yield replace(
                stack,
                process=stack.process + n_processes,
                frames=tuple(place[frame] for frame in stack.frames),
            )
        n_processes += len(part.processes)


def _shifted_sampling(parts: tuple[ProfileResult, ...]) -> Iterator[SamplingInfo]:
    n_processes = 0
    for part in parts:
        for info in part.sampling:
            yield replace(info, process=info.process + n_processes)
        n_processes += len(part.processes)


def _added_facts(
    parts: tuple[ProfileResult, ...], places: list[list[int]]
) -> tuple[LineFacts, ...]:
    facts: dict[int, LineFacts] = {}
    for part, place in zip(parts, places, strict=True):
        for fact in part.line_facts:
            fact = replace(fact, site=place[fact.site])
            known = facts.get(fact.site)
            facts[fact.site] = fact if known is None else _add_facts(known, fact)
    return tuple(facts.values())


def _add_facts(a: LineFacts, b: LineFacts) -> LineFacts:
    hits = a.hits if b.hits is None else b.hits
    if a.hits is not None and b.hits is not None:
        hits = a.hits + b.hits
    return replace(
        a,
        hits=hits,
        hits_reason="" if hits is not None else a.hits_reason or b.hits_reason,
        instructions=a.instructions if b.instructions is None else b.instructions,
        vector_width=a.vector_width if b.vector_width is None else b.vector_width,
        remarks=tuple(dict.fromkeys((*a.remarks, *b.remarks))),
        source=a.source or b.source,
    )
