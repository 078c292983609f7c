"""The sections of a report, apart from the table of overloads.

Each function takes the result (and what was computed from it) and returns lines; none
of them knows the terminal.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from numbaprof.analysis import (
    INFO_SLUGS,
    display_names,
    explain_overloads,
    find,
    is_internal,
)
from numbaprof.layout import Column, Line, Row, fold, paragraph, tabulate
from numbaprof.overload_table import (
    label_overload,
    locate,
    matches,
    order_overloads,
    shorten_place,
    shorten_signature,
)
from numbaprof.why import eager_functions, source_of
from numbaprof.wording import (
    format_count,
    format_duration,
    format_share,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from numbaprof.analysis import Finding, SiteTotals, Summary
    from numbaprof.model import (
        Environment,
        FunctionId,
        OverloadStats,
        ProfileResult,
    )

__all__ = [
    "LOSSES",
    "describe_remainders",
    "render_breakdown",
    "render_compiling",
    "render_details",
    "render_findings",
    "render_header",
    "render_losses",
    "render_reasons",
    "state_verdict",
]

BAR_WIDTH = 24
"""Characters of a bar for the whole wall time."""

REASONS_PER_FUNCTION = 8
"""Overloads of one function that are explained before the others are summed up: as many
as :data:`numbaprof.findings.compiling.OVERLOAD_LIMIT` calls normal."""

FINDINGS_PER_SLUG = 4
"""Findings of one kind that are listed: the dearest say what the others would. Of what
only explains, one is enough."""

SITES_SHOWN = 6
"""Call sites and never-called overloads listed; the others are summed."""

SITE_SHARE = 0.01
"""Of the time spent on compiling and loading; a site that took less is summed too."""

NAMES_SHOWN = 6
"""Functions named whose overloads are all listed in their decorators."""

LOSSES: dict[str, str] = {
    "in-flight-calls": "still running when the profile ended, in no figure",
    "truncated-contexts": "without their caller; their own totals are complete",
    "unattached": "not measured",
    "hook-errors": "inside numbaprof while measuring; the program went on",
    "unfinished-compilations": "under way when profiling began or ended, in no figure",
    "unrestored": "changed by somebody else meanwhile and left as they were",
    "missing-processes": "started under the profile and left none of their own",
}
"""Slugs of what can be lost, with what became of it; see ``docs/messages.md``."""


# -- the top ---------------------------------------------------------------------------


def state_verdict(result: ProfileResult, summary: Summary) -> str:
    """Say in one sentence where the time went."""
    wall = f"{format_duration(summary.wall_ns)} wall time"
    if not result.overloads and not result.compile_events:
        return f"No compiled function was called or compiled in {wall}."
    parts = {
        "compiling": summary.compile_ns,
        "loading cached code": summary.cache_load_ns,
        "looking in the cache in vain": summary.cache_miss_ns,
        "finding the overload to call": summary.dispatch_ns,
        "running compiled code": summary.kernel_ns,
    }
    ranked = sorted(parts, key=lambda name: -parts[name])
    # Compiling is what people come for: it is named even when it is small.
    second = ranked[1] if ranked[0] == "compiling" else "compiling"

    def share(name: str) -> str:
        return f"{format_share(parts[name], summary.wall_ns)} was {name}"

    if summary.rest_ns > summary.wall_ns / 2:
        first = format_share(summary.rest_ns, summary.wall_ns)
        return (
            f"{first} of {wall} was Python and the rest, {share(ranked[0])}, "
            f"{share(second)}."
        )
    first = format_share(parts[ranked[0]], summary.wall_ns)
    return f"{first} of {wall} was {ranked[0]}, {share(second)}."


def render_header(result: ProfileResult, width: int) -> list[Line]:
    """Say what was run, where, with what, and how it was measured."""
    environment = result.processes[0].environment
    lines: list[str] = [
        f"numbaprof {environment.numbaprof} · {_name_python(environment.python)} · "
        f"numba {environment.numba} · llvmlite {environment.llvmlite} · "
        f"numpy {environment.numpy}",
        f"{_describe_command(environment.command_line)} · "
        f"{environment.started.replace('T', ' ').replace('+00:00', ' UTC')}",
        f"{environment.cpu}, {plural(environment.cpu_count, 'CPU')} · "
        f"{plural(environment.numba_num_threads, 'Numba thread')}, threading layer "
        f"{environment.threading_layer or 'unknown'}",
        _describe_clock(environment),
    ]
    if environment.numba_settings:
        lines.append(
            "settings: "
            + " ".join(f"{name}={value}" for name, value in environment.numba_settings)
        )
    lines += [
        f"{info.instrument}: {info.backend}, because {info.reason}"
        for info in environment.backends
        if info.reason
    ]
    lines += _describe_processes(result)
    return [line for text in lines for line in paragraph(text, width, style="dim")]


def _name_python(version: str) -> str:
    """Name the interpreter, unless its version does already (``CPython 3.12.1``)."""
    return version if version[:1].isalpha() else f"Python {version}"


def _describe_clock(environment: Environment) -> str:
    clock = environment.clock
    # Two digits, and no exponent: a run of half a millisecond has 420 ppm.
    error_ppm = float(f"{clock.error_ppm:.2g}")
    text = f"clock {clock.name} ±{error_ppm:g} ppm"
    if clock.reason:
        text += f" ({clock.reason})"
    if math.isnan(environment.overhead_ns):
        reason = environment.overhead_reason or "it could not be measured"
        return f"{text} · what measuring adds to a call is unknown: {reason}"
    overhead = format_duration(round(environment.overhead_ns))
    return f"{text} · measuring adds about {overhead} to a call"


NORMAL_ENDS = ("SystemExit(0)", "SystemExit(None)")
"""How programs say that all went well."""


def _describe_processes(result: ProfileResult) -> list[str]:
    runs = result.processes
    lines = []
    if len(runs) > 1:
        labels: dict[str, int] = defaultdict(int)
        for run in runs:
            labels[run.label] += 1
        listed = ", ".join(
            f"{count} × {label}" if count > 1 else label
            for label, count in labels.items()
        )
        one = len({run.pid for run in runs}) == 1
        what = f"{len(runs)} runs in one process" if one else f"{len(runs)} processes"
        lines.append(f"{what}, times added: {listed}")
    lines += [
        f"process {run.pid} ({run.label}) ended with {run.exit}"
        for run in runs
        if run.exit and run.exit not in NORMAL_ENDS
    ]
    return lines


def _describe_command(command_line: tuple[str, ...]) -> str:
    """Return the command as it was given, the interpreter by its name alone."""
    if not command_line:
        return "no command line"
    interpreter = command_line[0].replace("\\", "/").rpartition("/")[2]
    return " ".join((interpreter, *command_line[1:]))


def render_breakdown(summary: Summary, width: int) -> list[Line]:
    """Show how the wall time of the main threads is made up."""
    parts = [
        ("compiling", summary.compile_ns, "compile"),
        ("loading cached code", summary.cache_load_ns, "cache"),
        ("cache misses", summary.cache_miss_ns, "cache"),
        ("dispatch", summary.dispatch_ns, "dispatch"),
        ("compiled code", summary.kernel_ns, "kernel"),
        ("dispatch that failed", summary.failed_dispatch_ns, "failed"),
        ("Python and the rest", summary.rest_ns, "rest"),
    ]
    rows = []
    for name, duration_ns, style in parts:
        if not duration_ns and style in ("cache", "failed"):
            continue
        share = duration_ns / summary.wall_ns if summary.wall_ns else 0.0
        share = min(1.0, max(0.0, share))
        bar = "█" * round(BAR_WIDTH * share) or ("▏" if duration_ns > 0 else "")
        rows.append(
            Row(
                (
                    (name, ""),
                    (format_duration(max(0, duration_ns)), ""),
                    (format_share(duration_ns, summary.wall_ns), ""),
                    (bar, style),
                )
            )
        )
    wall = format_duration(summary.wall_ns)
    rows.append(Row((("wall time", "total"), (wall, "total"), ("", ""), ("", ""))))
    columns = [Column("", "<"), Column(""), Column(""), Column("", "<")]
    lines = tabulate(columns, rows, width, header=False)
    for text in describe_remainders(summary):
        lines += paragraph(text, width, style="dim")
    return lines


def describe_remainders(summary: Summary) -> list[str]:
    """Say what the breakdown of the wall time leaves open, one sentence each."""
    lines = []
    if summary.python_ns or summary.builtin_ns:
        lines.append(
            f"Of Python and the rest, {format_duration(summary.python_ns)} in Python "
            f"functions, {format_duration(summary.builtin_ns)} in functions written in "
            f"C, at least {format_duration(summary.tracing_ns)} in tracing them."
        )
    if summary.objmode_ns:
        lines.append(
            f"Of Python and the rest, {format_duration(summary.objmode_ns)} in objmode "
            "blocks."
        )
    if summary.cache_miss_ns or summary.cache_load_ns:
        lines.append(
            "The first look into the cache also loads Numba's own tables, some 0.4 s "
            "once per process; without a cache that is part of the first compilation."
        )
    if summary.unplaced_ns:
        lines.append(
            f"{format_duration(summary.unplaced_ns)} of compiled code ran outside the "
            "call tree (ufunc loops); on the main thread it is part of the rest."
        )
    others = summary.others
    if summary.other_threads:
        parts = [
            ("compiled code", others.kernel_ns),
            ("compiling", others.compile_ns),
            ("loading cached code", others.cache_load_ns),
            ("cache misses", others.cache_miss_ns),
            ("dispatch", others.dispatch_ns + others.failed_dispatch_ns),
            ("objmode blocks", others.objmode_ns),
        ]
        listed = ", ".join(
            f"{format_duration(duration_ns)} {name}"
            for name, duration_ns in parts
            if duration_ns
        )
        count = plural(summary.other_threads, "other thread")
        lines.append(f"Beside it, in {count}: {listed or 'nothing measured'}.")
    return lines


# -- compiling -------------------------------------------------------------------------


def render_compiling(result: ProfileResult, summary: Summary, width: int) -> list[Line]:
    """Show how long compiling took, when, and who caused it."""
    compiles = summary.compiles
    lines: list[Line] = []
    for text in _describe_compiles(summary):
        lines += paragraph(text, width)
    if compiles.total_ns and summary.by_site:
        lines.append(())
        lines += _render_sites(summary, width)
    if summary.never_called:
        lines.append(())
        lines += _render_never_called(result, summary, width)
    return lines


def _describe_compiles(summary: Summary) -> list[str]:
    compiles = summary.compiles
    parts = []
    if compiles.compilations or compiles.failures:
        count = plural(compiles.compilations, "compilation")
        parts.append(f"{format_duration(compiles.compile_ns)} in {count}")
        if compiles.failures:
            parts[-1] += (
                f" and {plural(compiles.failures, 'failed attempt')} "
                f"({format_duration(compiles.failed_ns)})"
            )
    if compiles.cache_loads:
        count = plural(compiles.cache_loads, "cache load")
        parts.append(f"{format_duration(compiles.cache_load_ns)} in {count}")
    if not parts:
        return ["Nothing was compiled or loaded from a cache."]
    when = "none of it while importing"
    if compiles.import_ns == compiles.total_ns:
        when = "all of it while importing"
    elif compiles.import_ns:
        when = f"{format_duration(compiles.import_ns)} of it while importing"
    lines = [", ".join(parts) + f"; {when}."]
    if compiles.internal_compilations:
        lines.append(
            f"{format_duration(compiles.internal_ns)} of it for "
            f"{plural(compiles.internal_compilations, 'helper')} of Numba's own."
        )
    return lines


def _render_sites(summary: Summary, width: int) -> list[Line]:
    """List modules, each with the lines in it that caused compiling."""
    by_module: dict[tuple[str, bool], list[SiteTotals]] = defaultdict(list)
    for total in summary.by_site:
        by_module[total.module, total.at_import].append(total)
    rows = []
    least_ns = SITE_SHARE * summary.compiles.total_ns
    modules, other_modules = _take_sites(summary.by_module, least_ns)
    for module in modules:
        label = module.module or "an unknown place"
        if module.at_import:
            label = f"import of {label}"
        time = format_duration(module.total_ns)
        count = format_count(module.events)
        sites = by_module[module.module, module.at_import]
        only_place = _place(sites[0]) if len(sites) == 1 else ""
        rows.append(Row(((time, ""), (count, ""), (label, "name")), only_place))
        if only_place:
            continue
        shown, others = _take_sites(sites, least_ns)
        for site in shown:
            time = format_duration(site.total_ns)
            count = format_count(site.events)
            cells = ((time, "dim"), (count, "dim"), (_place(site), "dim"))
            rows.append(Row(cells, indent=2))
        rows += _more_sites(others, "line", indent=2)
    rows += _more_sites(other_modules, "module", indent=0)
    columns = [Column("time"), Column("overloads"), Column("caused by", "<")]
    return tabulate(columns, rows, width)


def _take_sites(
    totals: Sequence[SiteTotals], least_ns: float
) -> tuple[list[SiteTotals], list[SiteTotals]]:
    """Split sites, the dearest first, into those listed and those summed."""
    dear = [total for total in totals if total.total_ns >= least_ns]
    count = max(1, min(len(dear), SITES_SHOWN))
    return list(totals[:count]), list(totals[count:])


def _place(total: SiteTotals) -> str:
    if total.site is None:
        return "no line of the program"
    place = shorten_place(total.site.file, total.site.line)
    return f"{place} in {total.site.function}"


def _more_sites(totals: Sequence[SiteTotals], noun: str, *, indent: int) -> list[Row]:
    if not totals:
        return []
    time = format_duration(sum(total.total_ns for total in totals))
    count = format_count(sum(total.events for total in totals))
    text = f"… and {plural(len(totals), f'more {noun}')}"
    return [Row(((time, "dim"), (count, "dim"), (text, "dim")), indent=indent)]


def _render_never_called(
    result: ProfileResult, summary: Summary, width: int
) -> list[Line]:
    names = display_names(result)
    costs = {
        index: (result.overloads[index].compile_ns or 0)
        + result.overloads[index].cache_load_ns
        for index in summary.never_called
    }
    ranked = sorted(costs, key=lambda index: -costs[index])
    least_ns = SITE_SHARE * summary.compiles.total_ns
    n_dear = sum(cost_ns >= least_ns for cost_ns in costs.values())
    if not n_dear:
        count = plural(len(costs), "overload")
        time = format_duration(sum(costs.values()))
        return [
            *paragraph(f"{count} made and never called from Python: {time}.", width)
        ]
    n_shown = min(n_dear, SITES_SHOWN)
    rows = []
    for index in ranked[:n_shown]:
        overload = result.overloads[index]
        label = label_overload(overload, names[overload.function])
        time = format_duration(costs[index])
        rows.append(Row(((time, ""), (label, "name")), locate(overload.function)))
    more = ranked[n_shown:]
    if more:
        time = format_duration(sum(costs[index] for index in more))
        rows.append(Row(((time, "dim"), (f"… and {len(more)} more", "dim"))))
    columns = [Column("time"), Column("made and never called from Python", "<")]
    return tabulate(columns, rows, width)


# -- reasons ---------------------------------------------------------------------------


def render_reasons(
    result: ProfileResult, *, sort: str, top: int, only: Sequence[str], width: int
) -> list[Line]:
    """Say why there is more than one overload, where there is; dearest source first."""
    sentences = explain_overloads(result)
    names = display_names(result)
    by_source: dict[tuple[str, str, str, int], list[int]] = {}
    for members in order_overloads(result, sort, only=only):
        function = result.overloads[members[0]].function
        by_source.setdefault(source_of(function), []).append(members[0])
    lines: list[Line] = []
    n_lines = 0
    groups = [sorted(group) for group in by_source.values() if len(group) > 1]
    eager = eager_functions(result)
    listed = [
        group
        for group in groups
        if all(_is_listed(result.overloads[index], eager) for index in group)
    ]
    groups = [group for group in groups if group not in listed]
    for position, group in enumerate(groups):
        if n_lines >= top:
            left = len(groups) - position
            lines += paragraph(f"… and {plural(left, 'more function')}", width)
            break
        functions = {result.overloads[index].function for index in group}
        title = min(functions).qualname
        count = plural(len(group), "overload")
        if len(functions) > 1:
            count += f" of {len(functions)} functions"
        lines.append(((title, "name"), (f"  {count}, {locate(min(functions))}", "dim")))
        pairs = []
        for index in group[:REASONS_PER_FUNCTION]:
            overload = result.overloads[index]
            name = names[overload.function] if len(functions) > 1 else ""
            label = (name + shorten_signature(overload)) or overload.kind
            pairs.append((label, sentences[index]))
        lines += _render_pairs(pairs, width)
        n_lines += min(len(group), REASONS_PER_FUNCTION)
        if len(group) > REASONS_PER_FUNCTION:
            left = len(group) - REASONS_PER_FUNCTION
            text = f"… and {format_count(left)} more; p.stats lists them all"
            lines += paragraph(text, width, style="dim", indent=2)
    if listed:
        firsts = [result.overloads[group[0]].function for group in listed]
        lines += paragraph(_describe_listed(firsts), width, style="dim")
    return lines


def _is_listed(overload: OverloadStats, eager: Container[FunctionId]) -> bool:
    """Tell whether an overload exists because the decorator lists its signature."""
    return overload.origin == "eager" or overload.function in eager


def _describe_listed(functions: Sequence[FunctionId]) -> str:
    count = plural(len(functions), "function")
    has = "has its" if len(functions) == 1 else "have their"
    names = ", ".join(function.qualname for function in functions[:NAMES_SHOWN])
    if len(functions) > NAMES_SHOWN:
        names += f" and {format_count(len(functions) - NAMES_SHOWN)} more"
    return f"{count} {has} signatures listed in the decorator: {names}."


def _render_pairs(pairs: list[tuple[str, str]], width: int) -> list[Line]:
    """Put reasons beside signatures if all of these are short, else below each."""
    room = max(len(label) for label, _ in pairs)
    lines: list[Line] = []
    for label, sentence in pairs:
        if room > width * 0.45:
            lines += [((f"  {part}", ""),) for part in fold(label, width - 2)]
            lines += paragraph(sentence, width, style="dim", indent=6)
            continue
        first, *others = fold(sentence, width - room - 4, indent=0)
        lines.append(((f"  {label:<{room}}  ", ""), (first, "dim")))
        lines += [((" " * (room + 4) + other, "dim"),) for other in others]
    return lines


# -- details ---------------------------------------------------------------------------


def render_details(
    result: ProfileResult, *, sort: str, only: Sequence[str], width: int
) -> list[Line]:
    """Show the split into unboxing, kernel and boxing, and calls by thread count."""
    names = display_names(result)
    boxing_rows, thread_rows = [], []
    for members in order_overloads(result, sort, only=only):
        for index in members:
            overload = result.overloads[index]
            label = label_overload(overload, names[overload.function])
            if overload.boxing is not None:
                split = overload.boxing
                parts = (split.unbox_ns, split.kernel_ns, split.box_ns)
                figures = [(format_duration(part), "") for part in parts]
                calls = (format_count(split.calls), "")
                boxing_rows.append(Row((calls, *figures, (label, "name"))))
            for threads in overload.threads:
                cells = (
                    format_count(threads.n_threads),
                    format_count(threads.calls),
                    format_duration(threads.inclusive_ns / max(1, threads.calls)),
                    f"{threads.cpu_ns / max(1, threads.inclusive_ns):.2f}",
                )
                numbers = [(cell, "") for cell in cells]
                thread_rows.append(Row((*numbers, (label, "name"))))
    lines: list[Line] = []
    for titles, rows in (
        (("calls", "unbox", "kernel", "box"), boxing_rows),
        (("threads", "calls", "per call", "CPU/wall"), thread_rows),
    ):
        if rows:
            columns = [*(Column(title) for title in titles), Column("overload", "<")]
            lines += [*([()] if lines else []), *tabulate(columns, rows, width)]
    return lines


# -- the end ---------------------------------------------------------------------------


def render_findings(
    result: ProfileResult, *, top: int, only: Sequence[str], width: int
) -> list[Line]:
    """List findings with what to try."""
    findings = [
        finding
        for finding in find(result)
        if finding.function is None or matches(finding.function, only)
    ]
    lines: list[Line] = []
    shown, left = _take_findings(findings, top)
    for finding in shown:
        first, *others = fold(f"{finding.message}.", width - 2, indent=0)
        lines.append((("● ", "slug"), (first, "")))
        lines += [((f"  {other}", ""),) for other in others]
        advice = f"try: {finding.try_}" if finding.try_ else "nothing to repair"
        text = f"→ {advice}  [{finding.slug}]"
        lines += paragraph(
            text, width, style="try" if finding.try_ else "dim", indent=2
        )
    if left:
        slugs = ", ".join(dict.fromkeys(finding.slug for finding in left))
        lines += paragraph(f"… and {len(left)} more ({slugs})", width, style="dim")
    return lines


def _take_findings(
    findings: list[Finding], top: int
) -> tuple[list[Finding], list[Finding]]:
    """Split into those shown and the others, so that no kind crowds out the rest."""
    shown: list[Finding] = []
    left: list[Finding] = []
    seen: dict[str, int] = defaultdict(int)
    for finding in findings:
        seen[finding.slug] += 1
        limit = 1 if finding.slug in INFO_SLUGS else FINDINGS_PER_SLUG
        has_room = seen[finding.slug] <= limit and len(shown) < top
        (shown if has_room else left).append(finding)
    return shown, left


def render_losses(result: ProfileResult, width: int) -> list[Line]:
    """Say what was not measured, or that nothing is missing."""
    losses = result.losses
    counted = [
        ("in-flight-calls", losses.in_flight_calls, "call", "calls"),
        ("truncated-contexts", losses.truncated_contexts, "call", "calls"),
        (
            "unfinished-compilations",
            losses.unfinished_compilations,
            "compilation",
            "compilations",
        ),
    ]
    texts = [
        f"{plural(count, noun, nouns)} {LOSSES[slug]} [{slug}]"
        for slug, count, noun, nouns in counted
        if count
    ]
    texts += [
        f"{plural(count, 'overload')} {LOSSES['unattached']}: {reason} [unattached]"
        for reason, count in losses.unattached
    ]
    named = [
        ("hook-errors", losses.hook_errors, "error", "errors"),
        ("unrestored", losses.unrestored, "place", "places"),
        ("missing-processes", losses.missing_processes, "process", "processes"),
    ]
    texts += [
        f"{plural(len(things), noun, nouns)} {LOSSES[slug]}: "
        f"{', '.join(things)} [{slug}]"
        for slug, things, noun, nouns in named
        if things
    ]
    n_hidden = sum(
        not overload.countable and not is_internal(overload)
        for overload in result.overloads
    )
    if n_hidden:
        texts.append(
            f"{plural(n_hidden, 'overload')} cannot be counted, which is no loss but a "
            "limit; the table says why"
        )
    if not any(
        [losses.unattached, *(count for _, count, _, _ in counted)]
        + [things for _, things, _, _ in named]
    ):
        texts.insert(0, "none lost: all that numbaprof could see is in these figures")
    style = "dim"
    return [line for text in texts for line in paragraph(text, width, style=style)]
