"""Of more boxes than can be looked at, the largest.

A box is never larger than its parent, so the largest ones are a tree again. What is
left out is summed in a box of its own, never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numbaprof.icicle import Box
from numbaprof.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was left out of a picture, counted."""

    contexts: int
    calls: int
    time_ns: int
    """Of the outermost ones, so that nothing is counted twice."""
    limit_ns: int
    """The longest of them."""


def prune(boxes: Sequence[Box], limit: int) -> tuple[list[Box], Pruned | None]:
    """Keep the ``limit`` largest boxes and sum the others beside them.

    Parameters
    ----------
    boxes : sequence of Box
        Parents before children, none wider than its parent.
    limit : int
        At least 1.

    Returns
    -------
    kept : list of Box
        With one more box for every parent that lost some of its children.
    pruned : Pruned or None
        None if nothing was left out.
    """
    if len(boxes) <= limit:
        return list(boxes), None
    # Two clocks may differ on a box and its parent; the parent goes first all the same.
    widths: list[int] = []
    for box in boxes:
        above = widths[box.parent] if box.parent >= 0 else box.width_ns
        widths.append(min(above, box.width_ns))
    ranked = sorted(range(len(boxes)), key=lambda index: (-widths[index], index))
    left_out = set(ranked[limit:])
    new_index: dict[int, int] = {-1: -1}
    kept: list[Box] = []
    small: dict[int, tuple[Box, int]] = {}
    home: dict[int, int] = {}
    for index, box in enumerate(boxes):
        if index not in left_out:
            new_index[index] = len(kept)
            kept.append(replace(box, parent=new_index[box.parent]))
            continue
        outermost = box.parent not in left_out
        home[index] = new_index[box.parent] if outermost else home[box.parent]
        total, count = small.setdefault(
            home[index], (Box("small", home[index], calls=0), 0)
        )
        small[home[index]] = (total, count + 1)
        total.calls = (total.calls or 0) + (box.calls or 0)
        total.errors += box.errors
        if outermost:
            total.inclusive_ns += box.width_ns
            total.self_ns = total.inclusive_ns
    for total, count in small.values():
        total.name = plural(count, "small context")
        kept.append(total)
    totals = [total for total, _ in small.values()]
    return kept, Pruned(
        contexts=len(left_out),
        calls=sum(total.calls or 0 for total in totals),
        time_ns=sum(total.inclusive_ns for total in totals),
        limit_ns=boxes[ranked[limit]].width_ns,
    )
