"""Why does this overload exist? One sentence for each, from its argument types.

Every overload of a function but the first exists because some argument had another
type than in all the overloads before it. The sentence names the smallest such
difference: it compares with the *most similar* earlier overload of the same function.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numbaprof.model import ArgType, FunctionId, OverloadStats, ProfileResult

__all__ = [
    "Change",
    "compare_args",
    "compiled_inside",
    "eager_functions",
    "explain_overloads",
    "is_generated",
    "most_similar",
    "source_of",
]

# Costs rank how alike two overloads are; only their order matters. An argument that is
# now left out is the cheapest, so that it is named whenever it is the whole difference:
# it is the one that a caller can avoid without touching the data.
COST_OMITTED = 2
COST_PROPERTY = 3
COST_TYPE = 6
COST_COUNT = 12

_STAR = "*"


@dataclass(frozen=True, slots=True)
class Change:
    """One way in which an argument differs from that of an earlier overload."""

    argument: str
    """Name, in backticks; ``argument 2`` when unknown."""
    what: str
    """Phrase: ``layout C to F``."""
    aspect: str
    """omitted, given, readonly, layout, ndim, dtype, value, length, element, count,
    function, optional, reflected, key, fields, kind, type."""
    cost: int


def explain_overloads(result: ProfileResult) -> tuple[str, ...]:
    """Say for each overload why it exists.

    Returns
    -------
    tuple of str
        Sentences without a full stop, parallel to ``result.overloads``.

    Notes
    -----
    An overload of a function with explicit signatures receives *cast* arguments: what
    was passed may have been of another type.
    """
    circumstances = _Circumstances(
        siblings=_count_siblings(result),
        inside=compiled_inside(result),
        eager=eager_functions(result),
    )
    earlier: dict[FunctionId, list[OverloadStats]] = defaultdict(list)
    sentences = [""] * len(result.overloads)
    in_order = sorted(enumerate(result.overloads), key=lambda pair: pair[1].index)
    for position, overload in in_order:
        previous = earlier[overload.function]
        sentences[position] = _explain(overload, previous, circumstances)
        previous.append(overload)
    return tuple(sentences)


def compare_args(old: Sequence[ArgType], new: Sequence[ArgType]) -> tuple[Change, ...]:
    """List what changed from the arguments of one overload to those of another.

    Empty when both are the same to the compiler, as far as the profile recorded.
    """
    if len(old) != len(new):
        return (_compare_count(old, new),)
    changes: list[Change] = []
    for position, (before, after) in enumerate(zip(old, new, strict=True)):
        name = f"`{after.name}`" if after.name else f"argument {position + 1}"
        changes += _compare(name, before, after)
    return tuple(changes)


def most_similar(
    overload: OverloadStats, earlier: Sequence[OverloadStats]
) -> tuple[Change, ...]:
    """List what tells an overload from the earlier one that is most like it."""
    return min(
        (compare_args(other.args, overload.args) for other in earlier),
        key=lambda changes: sum(change.cost for change in changes),
    )


def compiled_inside(
    result: ProfileResult,
) -> dict[tuple[FunctionId, str], FunctionId]:
    """Map overloads that were compiled for another one to the function that needed it.

    Such an overload is called from compiled code, whatever its count from Python is.
    """
    inside = {}
    events = result.compile_events
    for event in events:
        key = (event.function, event.signature)
        outer = event
        while outer.parent >= 0 and (outer.function, outer.signature) == key:
            outer = events[outer.parent]
        if (outer.function, outer.signature) != key:
            inside[key] = outer.function
    return inside


def eager_functions(result: ProfileResult) -> frozenset[FunctionId]:
    """Find functions whose overloads come from signatures in the decorator.

    An overload's origin says so only if it was made before the profile began: while the
    decorator runs, the function is not yet closed to other types. One that was closed
    by ``disable_compile()`` has overloads of another origin.
    """
    lazily = {o.function for o in result.overloads if o.origin == "compiled"}
    return frozenset(
        info.function
        for info in result.dispatchers
        if info.eager and info.function not in lazily
    )


def source_of(function: FunctionId) -> tuple[str, str, str, int]:
    """Reduce an identity to its place in source: equal for closures of one factory."""
    return (function.module, function.qualname, function.file, function.line)


def is_generated(function: FunctionId) -> bool:
    """Tell whether the source place is made up (``exec``), so that it proves nothing.

    Notebook cells have file names of their own and count as real source.
    """
    return not function.file or (
        function.file.startswith("<") and not function.file.startswith("<ipython")
    )


# -- sentences -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """What a reason may depend on besides the arguments."""

    siblings: dict[FunctionId, tuple[int, int]]
    """Rank and number among the functions of the same source."""
    inside: dict[tuple[FunctionId, str], FunctionId]
    eager: frozenset[FunctionId]


def _count_siblings(result: ProfileResult) -> dict[FunctionId, tuple[int, int]]:
    """Map each function to (its rank, how many) among functions of the same source."""
    groups: dict[tuple[str, str, str, int], list[FunctionId]] = defaultdict(list)
    for function in dict.fromkeys(overload.function for overload in result.overloads):
        groups[source_of(function)].append(function)
    return {
        function: (rank, len(group))
        for group in groups.values()
        for rank, function in enumerate(sorted(group), start=1)
    }


def _explain(
    overload: OverloadStats,
    earlier: Sequence[OverloadStats],
    circumstances: _Circumstances,
) -> str:
    if overload.internal or overload.origin == "internal":
        return "Numba's own helper"
    if overload.kind == "objmode body":
        return "objmode block of its kernel, always compiled, never cached"
    if overload.kind == "lifted loop":
        return "loop lifted out of an object mode function"
    if overload.origin == "none":
        return overload.not_countable_reason or "has no code of its own"
    if overload.origin == "eager" or overload.function in circumstances.eager:
        return _explain_eager(overload)
    if not earlier:
        return _explain_first(overload, circumstances)
    return _explain_later(overload, earlier)


def _explain_eager(overload: OverloadStats) -> str:
    loaded = ", loaded from cache" if overload.origin == "cache" else ""
    return f"listed in the decorator{loaded}; arguments of other types are cast to it"


def _explain_first(overload: OverloadStats, circumstances: _Circumstances) -> str:
    rank, n_siblings = circumstances.siblings[overload.function]
    if rank > 1:
        thing = "function of the same name" if is_generated(overload.function) else ""
        if not thing and "<locals>" in overload.function.qualname:
            thing = "closure of the same source"
        cause = f"another {thing or 'function of the same source'} "
        cause += f"({rank} of {n_siblings})"
        return cause + (", loaded from cache" if overload.origin == "cache" else "")
    if overload.kind == "cfunc":
        return "made by @cfunc"
    if overload.origin == "cache":
        return "first call, loaded from cache"
    if not overload.created_in_session:
        return "first call, before profiling began"
    outer = circumstances.inside.get((overload.function, overload.signature))
    if outer is None:
        return "first call"
    if outer == overload.function:
        return "compiled for another overload of the same function"
    return f"compiled for `{outer.qualname}`"


def _explain_later(overload: OverloadStats, earlier: Sequence[OverloadStats]) -> str:
    verb = "loaded from cache too" if overload.origin == "cache" else "compiled again"
    changes = most_similar(overload, earlier)
    if not changes:
        if overload.kind == "stencil":
            return "compiled again although the types are the same: every call does"
        return f"{verb} for the same argument types"
    if all(change.aspect in ("omitted", "given") for change in changes):
        listed = " and ".join(
            f"{change.argument} was {change.what}" for change in changes
        )
        return f"{verb} only because {listed}"
    by_argument: dict[str, list[str]] = defaultdict(list)
    for change in changes:
        by_argument[change.argument].append(change.what)
    listed = "; ".join(
        f"{name}: {', '.join(what)}" for name, what in by_argument.items()
    )
    return f"{verb} because of {listed}"


# -- differences -----------------------------------------------------------------------


def _compare_count(old: Sequence[ArgType], new: Sequence[ArgType]) -> Change:
    star = next(
        (arg.name.partition("[")[0] for arg in (*new, *old) if _STAR in arg.name), ""
    )
    if star:
        before, after = (
            sum(arg.name.startswith(star) for arg in args) for args in (old, new)
        )
        what = f"{before} to {after} values"
        return Change(f"`{star}`", what, "count", COST_COUNT)
    what = f"{len(old)} to {len(new)}"
    return Change("number of arguments", what, "count", COST_COUNT)


def _compare(name: str, old: ArgType, new: ArgType) -> Iterable[Change]:
    """Yield the changes of one argument; none if both are the same."""
    if old == new:
        return ()
    if "omitted" in (old.kind, new.kind) and old.kind != new.kind:
        return (_compare_omitted(name, old, new),)
    if old.kind != new.kind:
        return (_compare_kind(name, old, new),)
    specific = _SAME_KIND.get(new.kind)
    changes = specific(name, old, new) if specific is not None else []
    if not changes and (old.text, old.value, old.dtype) != (
        new.text,
        new.value,
        new.dtype,
    ):
        changes = [Change(name, f"{old.text} to {new.text}", "type", COST_TYPE)]
    return changes


def _compare_omitted(name: str, old: ArgType, new: ArgType) -> Change:
    if new.kind == "omitted":
        default = f" (default {new.value})" if new.value else ""
        return Change(name, f"omitted{default}", "omitted", COST_OMITTED)
    default = f" (default {old.value})" if old.value else ""
    what = f"given instead of omitted{default}"
    return Change(name, what, "given", COST_PROPERTY)


def _compare_kind(name: str, old: ArgType, new: ArgType) -> Change:
    kinds = {old.kind, new.kind}
    if new.kind == "none":
        return Change(name, f"None instead of {old.text}", "optional", COST_TYPE)
    if old.kind == "none":
        return Change(name, f"{new.text} instead of None", "optional", COST_TYPE)
    if "optional" in kinds:
        what = f"{_describe(old)} to {_describe(new)}"
        return Change(name, what, "optional", COST_TYPE)
    if any(kind.startswith("reflected") for kind in kinds):
        what = f"{_describe(old)} to {_describe(new)}"
        return Change(name, what, "reflected", COST_TYPE)
    if new.kind == "literal":
        what = f"the literal {new.value} instead of {old.text}"
        return Change(name, what, "value", COST_TYPE)
    what = f"{old.text or old.kind} to {new.text or new.kind}"
    return Change(name, what, "kind", COST_TYPE)


def _describe(arg: ArgType) -> str:
    if arg.kind == "optional":
        return f"optional {arg.dtype or arg.text}"
    if arg.kind == "reflected list":
        return "reflected list (a Python list)"
    if arg.kind == "reflected set":
        return "reflected set (a Python set)"
    if arg.kind == "typed list":
        return "typed List"
    return arg.text or arg.kind


def _compare_scalar(name: str, old: ArgType, new: ArgType) -> list[Change]:
    before, after = old.dtype or old.text, new.dtype or new.text
    if before == after:
        return []
    return [Change(name, f"dtype {before} to {after}", "dtype", COST_TYPE)]


def _compare_array(name: str, old: ArgType, new: ArgType) -> list[Change]:
    changes = _compare_scalar(name, old, new)
    if changes and "record" in f"{old.dtype}{new.dtype}".lower():
        changes = [Change(name, "another record dtype", "fields", COST_TYPE)]
    if old.ndim != new.ndim:
        what = f"{old.ndim} to {new.ndim} dimensions"
        changes.append(Change(name, what, "ndim", COST_TYPE))
    if old.layout != new.layout:
        what = f"layout {old.layout} to {new.layout}"
        changes.append(Change(name, what, "layout", COST_PROPERTY))
    if old.readonly != new.readonly:
        what = "now read-only" if new.readonly else "no longer read-only"
        changes.append(Change(name, what, "readonly", COST_PROPERTY))
    return changes


def _compare_record(name: str, old: ArgType, new: ArgType) -> list[Change]:
    return [Change(name, "another record dtype", "fields", COST_TYPE)]


def _compare_literal(name: str, old: ArgType, new: ArgType) -> list[Change]:
    what = f"literal {old.value or old.text} to {new.value or new.text}"
    return [Change(name, what, "value", COST_TYPE)]


def _compare_omitted_values(name: str, old: ArgType, new: ArgType) -> list[Change]:
    what = f"another default, {old.value} to {new.value}"
    return [Change(name, what, "value", COST_TYPE)]


def _compare_function(name: str, old: ArgType, new: ArgType) -> list[Change]:
    what = "another function object"
    if old.value and new.value and old.value != new.value:
        what += f", {old.value} to {new.value}"
    return [Change(name, what, "function", COST_TYPE)]


def _compare_optional(name: str, old: ArgType, new: ArgType) -> list[Change]:
    what = f"optional {old.dtype or old.text} to optional {new.dtype or new.text}"
    return [Change(name, what, "optional", COST_TYPE)]


def _compare_tuple(name: str, old: ArgType, new: ArgType) -> list[Change]:
    if len(old.items) != len(new.items):
        what = f"tuple length {len(old.items)} to {len(new.items)}"
        return [Change(name, what, "length", COST_TYPE)]
    changes: list[Change] = []
    for position, (before, after) in enumerate(zip(old.items, new.items, strict=True)):
        for change in _compare("", before, after):
            what = f"element {position}, {change.what}"
            changes.append(Change(name, what, "element", change.cost))
    return changes


def _compare_list(name: str, old: ArgType, new: ArgType) -> list[Change]:
    if old.dtype == new.dtype:
        return []
    what = f"element type {old.dtype} to {new.dtype}"
    return [Change(name, what, "element", COST_TYPE)]


def _compare_dict(name: str, old: ArgType, new: ArgType) -> list[Change]:
    if len(old.items) != 2 or len(new.items) != 2:
        return []
    pairs = zip(("key", "value"), old.items, new.items, strict=True)
    return [
        Change(name, f"{part} type {before.text} to {after.text}", "key", COST_TYPE)
        for part, before, after in pairs
        if before != after
    ]


_SAME_KIND = {
    "array": _compare_array,
    "function": _compare_function,
    "literal": _compare_literal,
    "namedtuple": _compare_tuple,
    "omitted": _compare_omitted_values,
    "optional": _compare_optional,
    "record": _compare_record,
    "reflected list": _compare_list,
    "reflected set": _compare_list,
    "scalar": _compare_scalar,
    "tuple": _compare_tuple,
    "typed dict": _compare_dict,
    "typed list": _compare_list,
}
