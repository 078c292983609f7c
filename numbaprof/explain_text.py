"""The evidence of :mod:`numbaprof.evidence` as sentences, tables and advice."""

from __future__ import annotations

import ast
import linecache
import textwrap
from typing import TYPE_CHECKING

from numbaprof.layout import fold
from numbaprof.loop_advice import advise
from numbaprof.overload_table import shorten_place
from numbaprof.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numbaprof.evidence import (
        FunctionEvidence,
        LoopEvidence,
        OverloadEvidence,
    )

__all__ = ["describe", "moved_lines", "sources"]

WIDTH = 88
MIXED_STRETCHES = 3
"""A line whose code stands in fewer places than that is not worth a sentence."""

GENERAL = (
    "A line profiler reads a clock between two lines, and Python tells it when a line "
    "begins; machine code tells nobody, so its table of a compiled function is empty.",
    "Nor is there a moment between two lines: LLVM inlines, merges, moves and drops "
    "what the lines say, and works on several iterations of a loop at a time.",
    "Clocks put between the lines would forbid just that, and so time another, slower "
    "program than yours.",
)


def describe(evidence: FunctionEvidence, *, general: bool = True) -> str:
    """Return the whole explanation as text.

    Parameters
    ----------
    evidence : FunctionEvidence
        What was found.
    general : bool, default True
        Whether to begin with what is true of every compiled function.
    """
    name = evidence.function.qualname
    out = [f"Why the lines of {name} have no time of their own", ""]
    if general:
        for sentence in GENERAL:
            out.extend(_item(sentence))
        out.append("")
    out.extend(_describe_dispatcher(evidence))
    for overload in evidence.overloads:
        out.extend(["", *_describe_overload(evidence, overload)])
    out.extend(["", "What to use instead", *_instead(evidence)])
    return "\n".join(line.rstrip() for line in out)


def _item(text: str, mark: str = "- ") -> list[str]:
    lines = fold(text, WIDTH - len(mark) - 2, indent=0)
    return [
        f"  {mark if not n else ' ' * len(mark)}{one}" for n, one in enumerate(lines)
    ]


def _describe_dispatcher(evidence: FunctionEvidence) -> list[str]:
    count = len(evidence.overloads)
    place = evidence.function
    text = (
        f"{place.qualname} ({shorten_place(place.file, place.line)}) is a dispatcher: "
        f"a name with {plural(count, 'compiled overload')} behind it"
    )
    if count > 1:
        text += (
            ", one per combination of argument types. Each is machine code of its own, "
            "optimized by itself: a line may be vectorized in one and gone in another"
        )
    return [*fold(text + ".", WIDTH, indent=0)]


def _describe_overload(
    evidence: FunctionEvidence, overload: OverloadEvidence
) -> Iterator[str]:
    yield f"{evidence.function.qualname}{overload.signature}"
    if overload.reason:
        yield from _item(f"No evidence: {overload.reason}.")
        return
    share = overload.without_line / max(1, overload.instructions)
    yield from _item(
        f"{plural(overload.instructions, 'instruction')} in "
        f"{plural(overload.loops, 'machine loop')}; {overload.without_line} of them "
        f"({share:.0%}) belong to no line: LLVM merged them from several lines, moved "
        "them or made them new, and kept no line for them."
    )
    yield ""
    yield from _tabulate(evidence, overload)
    for section in (
        _without_code(overload),
        _sharing(overload),
        _moved(evidence, overload),
        _inlined(overload),
        _loops(evidence, overload),
    ):
        yield from section


def _tabulate(evidence: FunctionEvidence, overload: OverloadEvidence) -> Iterator[str]:
    texts = sources(evidence)
    yield "   Line  Instr.  Inlined  In loops  Source"
    for line in overload.lines:
        numbers = [
            f"{number:{width}}" if number else " " * (width - 1) + "."
            for number, width in (
                (line.instructions, 6),
                (line.inlined, 7),
                (line.in_loops, 8),
            )
        ]
        row = f"  {line.line:5}  {'  '.join(numbers)}  {texts.get(line.line, '')}"
        yield row if len(row) <= WIDTH else row[: WIDTH - 1] + "…"


def _without_code(overload: OverloadEvidence) -> list[str]:
    empty = [line.line for line in overload.lines if not line.total]
    if not empty:
        return []
    return _item(
        f"{_lines(empty)} {_verb(empty, 'has', 'have')} no instruction: what "
        f"{_verb(empty, 'it says', 'they say')} was folded into other lines, moved "
        "without its line, or needed nothing done. A clock there would measure nothing."
    )


def _sharing(overload: OverloadEvidence) -> list[str]:
    mixed = [line.line for line in overload.lines if line.stretches >= MIXED_STRETCHES]
    if len(mixed) < 2:
        return []
    places = max(line.stretches for line in overload.lines)
    return _item(
        f"{_lines(mixed)} share the code: each stands in several separate places (up "
        f"to {places}), the others and lineless instructions in between."
    )


def _moved(evidence: FunctionEvidence, overload: OverloadEvidence) -> Iterator[str]:
    hoisted = {r.line: r.text for r in overload.remarks if _is_hoisted(evidence, r)}
    for line, text in sorted(hoisted.items()):
        yield from _item(
            f"Line {line}: LLVM moved work out of the loop, where it is not done once "
            f"per iteration ({text})."
        )
    moved = moved_lines(evidence, overload) - set(hoisted)
    if moved:
        yield from _item(
            f"{_lines(moved)} {_verb(moved, 'stands', 'stand')} in a loop of the "
            f"source, but {_verb(moved, 'has', 'have')} no instruction in a loop of "
            "the machine: done once, outside."
        )


def _is_hoisted(evidence: FunctionEvidence, remark: LoopEvidence) -> bool:
    """Tell whether a remark says so of a statement, not of how the loop counts."""
    if not remark.moved or remark.file != evidence.function.file:
        return False
    return remark.line in _repeated_lines(evidence)


def _inlined(overload: OverloadEvidence) -> Iterator[str]:
    own = [one for one in overload.inlined if not one.internal]
    for one in own:
        yield from _item(
            f"Line {one.line} contains {one.function} "
            f"({shorten_place(one.file, one.callee_line)}): "
            f"{plural(one.instructions, 'instruction')}, inlined, so that there is no "
            "call to time."
        )
    internal: dict[int, int] = {}
    for line in overload.lines:
        if line.inlined:
            theirs = sum(one.instructions for one in own if one.line == line.line)
            if line.inlined > theirs:
                internal[line.line] = line.inlined - theirs
    if internal:
        total = sum(internal.values())
        yield from _item(
            f"{_lines(internal)} {_verb(internal, 'contains', 'contain')} code of "
            f"Numba's own, inlined: {plural(total, 'instruction')}."
        )


def _loops(evidence: FunctionEvidence, overload: OverloadEvidence) -> Iterator[str]:
    explained = any(not r.passed and ":" in r.text for r in overload.remarks)
    places: dict[tuple[str, str], list[int]] = {}
    told: dict[tuple[str, str], str] = {}
    for remark in overload.remarks:
        if remark.moved or (remark.text == "loop not vectorized" and explained):
            continue  # told before; or LLVM says so again, without the reason
        key = (_elsewhere(evidence, overload, remark), remark.text)
        places.setdefault(key, []).append(remark.line)
        told[key] = _tell(remark)
    for key, lines in places.items():
        yield from _item(f"{_lines(lines)}{key[0]}: {told[key]}")


def _elsewhere(
    evidence: FunctionEvidence, overload: OverloadEvidence, remark: LoopEvidence
) -> str:
    """Name what was inlined if a remark is on a line of that."""
    place = evidence.function
    if remark.file == place.file and place.line <= remark.line <= evidence.last_line:
        return ""
    for one in overload.inlined:
        if one.file == remark.file and not one.internal:
            return f" (in {one.function}, inlined)"
    return f" of {shorten_place(remark.file, 0)}"


def _tell(remark: LoopEvidence) -> str:
    if remark.vector_width is not None:
        text = f"vector code, {remark.vector_width} iterations per instruction"
        if remark.interleave and remark.interleave > 1:
            text += f", {remark.interleave} such vectors at a time"
        return f"{text} (LLVM: {remark.text})."
    if remark.passed:
        return f"LLVM: {remark.text}."
    advice = advise(remark.text)
    if not advice:
        return f"LLVM: {remark.text}."
    if "not vectorized" not in remark.text:
        return f"{advice}. (LLVM: {remark.text})"
    return f"not vectorized: {advice}. (LLVM: {remark.text})"


def _instead(evidence: FunctionEvidence) -> Iterator[str]:
    name = evidence.function.qualname.rpartition(".")[2]
    for code, comment in (
        (f"numbaprof.profile({name})(...)", "exact time and calls of each overload"),
        (f"numbaprof.lines({name})(...)", "sampled time per line of this code"),
        (f"numbaprof.lines({name}, hits=True)(...)", "and how often each line ran"),
        ("numbaprof run --lines script.py", "the same for a whole program"),
    ):
        yield f"  {code:42}  # {comment}"


# -- lines -----------------------------------------------------------------------------


def _lines(numbers: Iterable[int]) -> str:
    """Return ``Line 3`` or ``Lines 3, 5-7``."""
    ordered = sorted(numbers)
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs]
    return f"{'Line' if len(ordered) == 1 else 'Lines'} {', '.join(texts)}"


def _verb(numbers: Iterable[int], one: str, many: str) -> str:
    return one if len(list(numbers)) == 1 else many


def sources(evidence: FunctionEvidence) -> dict[int, str]:
    """Return line to source text, indented as in the file less what all share."""
    place = evidence.function
    numbers = range(place.line, evidence.last_line + 1)
    texts = [linecache.getline(place.file, number).rstrip() for number in numbers]
    if not any(texts):
        return {}
    shared = textwrap.dedent("\n".join(texts)).split("\n")
    return dict(zip(numbers, shared, strict=True))


def moved_lines(evidence: FunctionEvidence, overload: OverloadEvidence) -> set[int]:
    """Return lines in a loop of the source whose code is in no loop of the machine.

    Every instruction of a loop lies between a jump backwards and its target; what is
    outside all such ranges runs at most once per call. Lines that run only once anyway,
    behind a condition, are not counted, and nothing is said without source.
    """
    repeated = _repeated_lines(evidence)
    hoisted = {r.line for r in overload.remarks if _is_hoisted(evidence, r)}
    if not any(line.in_loops for line in overload.lines):
        return set()
    return {
        line.line
        for line in overload.lines
        if line.line in repeated
        and not line.in_loops
        and (line.total or line.line in hoisted)
    }


def _repeated_lines(evidence: FunctionEvidence) -> set[int]:
    """Return the lines of simple statements directly in the body of a loop."""
    texts = sources(evidence)
    if not texts:
        return set()
    first = min(texts)
    try:
        tree = ast.parse("\n".join(texts[number] for number in sorted(texts)))
    except SyntaxError:
        return set()
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            for statement in node.body:
                if isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
                    end = statement.end_lineno or statement.lineno
                    found.update(
                        first + n - 1 for n in range(statement.lineno, end + 1)
                    )
    return found
