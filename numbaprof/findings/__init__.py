"""Findings: what a profile suggests to change, each with its evidence.

A finding is right or it is not made. Every detector asks for a minimum of evidence
(named constants), leaves out what the profile cannot know (calls from compiled code,
time while a generator is iterated), and never speaks of Numba's own helpers. Each slug
is explained in ``docs/messages.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numbaprof.findings import calling, compiling
from numbaprof.findings.facts import Facts, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numbaprof.model import ProfileResult

__all__ = ["INFO_SLUGS", "SLUGS", "Finding", "find"]

_DETECTORS: dict[str, Callable[[Facts], Iterator[Finding]]] = {
    "boxing-bound": calling.find_boxing_bound,
    "cache-never-hits": compiling.find_cache_never_hits,
    "compile-exceeds-run": compiling.find_compile_exceeds_run,
    "compile-failed": compiling.find_compile_failed,
    "dispatch-bound": calling.find_dispatch_bound,
    "duplicate-compile": compiling.find_duplicate_compile,
    "inlined": calling.find_inlined,
    "jit-disabled": calling.find_jit_disabled,
    "never-called": compiling.find_never_called,
    "object-mode": calling.find_object_mode,
    "overload-explosion": compiling.find_overload_explosion,
    "recompiles-every-call": compiling.find_recompiles_every_call,
    "reflected-list": calling.find_reflected_list,
    "same-source-compiled": compiling.find_same_source_compiled,
    "short-kernel": calling.find_short_kernel,
    "tuple-length-explosion": compiling.find_tuple_length_explosion,
}

SLUGS = tuple(_DETECTORS)
"""Every slug a finding can have."""

INFO_SLUGS = frozenset({"inlined", "short-kernel"})
"""Findings that explain a figure; there is nothing to repair."""


def find(result: ProfileResult) -> tuple[Finding, ...]:
    """Make every finding that a profile supports.

    Returns
    -------
    tuple of Finding
        Dearest first, except that what concerns the whole profile comes first and
        explanations (:data:`INFO_SLUGS`) come last.
    """
    facts = Facts(result)
    found = [finding for detector in _DETECTORS.values() for finding in detector(facts)]
    return tuple(
        sorted(
            found,
            key=lambda finding: (
                finding.function is not None,
                finding.slug in INFO_SLUGS,
                -finding.cost_s,
            ),
        )
    )
