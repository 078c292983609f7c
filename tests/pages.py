"""Profiles whose page is looked at, as text and in a browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from builders import (
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

if TYPE_CHECKING:
    from numbaprof.model import ProfileResult

__all__ = ["EVIL", "evil_profile", "small_profile"]

EVIL = '</script><img src=x onerror="window.__pwned=1">\'&\u2028'
"""Does something wherever a page takes text for markup."""


def small_profile(**changes: Any) -> ProfileResult:
    """Build two overloads, their compilations and calls."""
    function = make_function("scale")
    result = make_result(
        make_overload(function, calls=3, mean_ns=1000),
        make_overload(function, calls=2, args=(scalar("float64"),)),
        make_overload("helper", calls=0, internal=True, origin="internal"),
        events=(
            make_event(function),
            make_event(function, signature="(float64)", start_ns=500_000_000),
        ),
        **changes,
    )
    contexts = tuple(
        replace(node, calls=1) if node.kind == "compile" else node
        for node in result.contexts
    )
    return replace(result, contexts=contexts)


def evil_profile() -> ProfileResult:
    """Build a profile in which every text from outside is hostile."""
    function = make_function(EVIL, module=EVIL, file=EVIL)
    site = make_site(file=EVIL, function=EVIL, module=EVIL)
    arg = scalar(EVIL, name=EVIL)
    return make_result(
        make_overload(function, args=(arg,)),
        make_overload(function, calls=None, not_countable_reason=EVIL),
        make_overload(function, args=(scalar(),)),
        events=(
            make_event(function, trigger=site, at_import=True, import_module=EVIL),
            make_event(function, event="failed", error=EVIL, start_ns=500_000_000),
        ),
        contexts=(
            make_thread(EVIL, inclusive_ns=3000, exclusive_ns=0),
            make_node(via=site, inclusive_ns=2000),
            make_node(via=site, inclusive_ns=900, overload=2),
            make_node("compile", via=site, inclusive_ns=100),
        ),
        processes=(
            make_process(
                label=EVIL,
                exit=EVIL,
                environment=make_environment(
                    command_line=("python", EVIL), numba_settings=((EVIL, EVIL),)
                ),
            ),
        ),
        dispatchers=(make_dispatcher(function),),
        losses=make_losses(hook_errors=(EVIL,), unattached=((EVIL, 1),)),
    )
