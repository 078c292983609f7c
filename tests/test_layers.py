"""Data flows one way: every import stays within the rooms it may reach.

The rooms are those of ``docs/howitworks.md``; all of ``native/`` is one. A module that
is in none of them fails here until somebody has decided where it belongs.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "numbaprof"

ROOMS = {
    "vocabulary": {
        "environment",
        "errors",
        "evidence",
        "model",
        "rowbook",
        "signatures",
        "version",
    },
    "native": {
        "native",
    },
    "instruments": {
        "compile_events",
        "counting",
        "cprofile_bridge",
        "dispatch_hook",
        "fingerprinting",
        "sampler",
    },
    "session": {
        "line_hits",
        "line_level",
        "line_resolution",
        "python_level",
        "session",
        "sigterm",
        "tree",
    },
    "outputs": {
        "analysis",
        "call_graph",
        "check",
        "compare_files",
        "compare_text",
        "comparing",
        "comparison",
        "compile_tree",
        "explain_text",
        "explanation",
        "findings",
        "frames",
        "gates",
        "html",
        "icicle",
        "intervals",
        "layout",
        "line_merging",
        "loop_advice",
        "line_page",
        "line_report",
        "line_table",
        "markup",
        "merging",
        "overload_table",
        "page",
        "page_data",
        "pairing",
        "pruning",
        "python_table",
        "report",
        "rule",
        "runfile",
        "schema",
        "sections",
        "store",
        "stretches",
        "summary",
        "svg",
        "verdicts",
        "why",
        "wording",
    },
    "edges": {
        "__init__",
        "__main__",
        "ab",
        "ab_link",
        "ab_session",
        "ab_sides",
        "ab_worker",
        "bootstrap",
        "children",
        "ci_cli",
        "cli",
        "explain_cli",
        "ipython_ext",
        "line_profile",
        "profiler",
        "program",
        "progress",
        "pytest_benchmark_rows",
        "pytest_budgets",
        "pytest_companion",
        "pytest_compile_report",
        "pytest_fixture",
        "pytest_plugin",
        "pytest_recording",
        "pytest_run",
        "recorder",
        "runner",
        "ab_book",
    },
}
MAY_IMPORT = {
    "vocabulary": {"vocabulary"},
    "native": {"vocabulary", "native"},
    "instruments": {"vocabulary", "native"},
    "session": {"vocabulary", "native", "instruments", "session"},
    "outputs": {"vocabulary", "outputs"},
    "edges": {"vocabulary", "session", "outputs", "edges"},
}
THIRD_PARTY = {
    "vocabulary": {"numpy"},
    "native": {"capstone", "numpy", "numba", "llvmlite"},
    "instruments": {"numpy"},
    "session": {"numpy"},
    "outputs": {"numpy", "pandas", "rich"},
    "edges": {"numpy", "rich", "IPython", "pytest"},
}
# ProfileResult's properties hand on to the outputs: the only imports that go upward.
# What explain() tells is read from the machine code when one asks.
DELEGATES = {("model", "outputs"), ("explanation", "native")}
# Imported by the functions that need them, because `import numbaprof` must stay cheap.
LAZY = {"capstone", "pandas", "rich", "IPython"}


@dataclass(frozen=True)
class Import:
    """One imported module, in full, and what is taken from it."""

    module: str
    names: tuple[str, ...]
    in_function: bool
    for_types: bool


def imports_of(source: str, package: str = "numbaprof") -> list[Import]:
    """Return every import in ``source``, also those inside functions."""
    found: list[Import] = []

    def visit(node: ast.AST, in_function: bool, for_types: bool) -> None:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    found.append(Import(alias.name, (), in_function, for_types))
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = module or ""
                if level:
                    parents = package.split(".")[: 1 - level or None]
                    base = ".".join([*parents, *filter(None, [module])])
                names = tuple(alias.name for alias in aliases)
                found.append(Import(base, names, in_function, for_types))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                in_function = True
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for_types = True
        for child in ast.iter_child_nodes(node):
            visit(child, in_function, for_types)

    visit(ast.parse(source), in_function=False, for_types=False)
    return found


def module_name(path: Path) -> str:
    """Return ``native.clock`` for ``numbaprof/native/clock.py``."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Return the room ``module`` is in."""
    for room, members in ROOMS.items():
        if module in members or module.partition(".")[0] in members:
            return room
    raise AssertionError(
        f"numbaprof.{module} is in no room: add it to ROOMS in tests/test_layers.py "
        "and to docs/howitworks.md"
    )


def own_targets(imported: Import) -> list[str]:
    """Return the modules of numbaprof that one import reaches."""
    top, _, rest = imported.module.partition(".")
    if top != "numbaprof":
        return []
    known = set().union(*ROOMS.values(), modules())
    inner = [f"{rest}.{name}" if rest else name for name in imported.names]
    targets = [name for name in inner if name in known]
    if targets and len(targets) == len(inner):
        return targets
    return [*targets, rest or "__init__"]


def breaches(module: str, source: str) -> list[str]:
    """Return one line per import of ``source`` that ``module`` may not make."""
    room = room_of(module)
    is_package = (PACKAGE / Path(*module.split("."))).is_dir()
    inside = module if is_package else module.rpartition(".")[0]
    found = []
    for imported in imports_of(source, ".".join(filter(None, ["numbaprof", inside]))):
        top = imported.module.partition(".")[0]
        if top == "numbaprof":
            for target in own_targets(imported):
                reached = room_of(target)
                delegated = imported.in_function and (module, reached) in DELEGATES
                if reached in MAY_IMPORT[room] or delegated or target == module:
                    continue
                found.append(f"{room} may not import {reached}: {target}")
            found.extend(
                f"private name of another module: {imported.module}.{name}"
                for name in imported.names
                if name.startswith("_") and not name.endswith("__")
            )
        elif top == "ctypes" and room != "native":
            found.append("only native/ may hold addresses: ctypes")
        elif top not in sys.stdlib_module_names and not imported.for_types:
            if top not in THIRD_PARTY[room]:
                found.append(f"{room} may not import {imported.module}")
            elif top in LAZY and not imported.in_function:
                found.append(f"{top} is imported when the module is, not when used")
    return found


def modules() -> list[str]:
    """Return the names of all modules of the package."""
    return sorted(module_name(path) for path in PACKAGE.rglob("*.py"))


def source_of(module: str) -> str:
    """Return the source of a module of the package."""
    path = PACKAGE / Path(*module.split("."))
    if path.is_dir():
        return (path / "__init__.py").read_text()
    return path.with_suffix(".py").read_text()


@pytest.mark.parametrize("module", modules())
def test_module_imports_only_what_its_room_may(module):
    """A module reaches only the rooms below it and the packages its room may use."""
    assert breaches(module, source_of(module)) == []


def test_rooms_are_documented():
    """Every module is named in the table of rooms in docs/howitworks.md."""
    text = (PACKAGE.parent / "docs" / "howitworks.md").read_text()
    tops = {module.partition(".")[0] for module in modules()}
    assert {
        module for module in tops - {"native"} if f"`{module}`" not in text
    } == set()


def test_instruments_do_not_know_each_other():
    """No instrument imports another one, not even inside a function."""
    known = {
        (module, target)
        for module in ROOMS["instruments"] & set(modules())
        for imported in imports_of(source_of(module))
        for target in own_targets(imported)
        if target in ROOMS["instruments"] and target != module
    }
    assert known == set()


def test_modules_do_not_import_each_other_in_a_circle():
    """The imports made when modules load have an order."""
    graph = {
        module: {
            target
            for imported in imports_of(source_of(module))
            if not (imported.in_function or imported.for_types)
            for target in own_targets(imported)
        }
        - {module}
        for module in modules()
    }
    while free := {module for module, needs in graph.items() if not needs & set(graph)}:
        for module in free:
            del graph[module]
    assert graph == {}


@pytest.mark.parametrize(
    ("module", "source", "breach"),
    [
        ("report", "from numbaprof import session", "may not import session: session"),
        ("report", "from numbaprof.session import profile", "may not import session"),
        ("report", "def f():\n    from . import dispatch_hook", "import instruments"),
        ("native.emit", "from ..session import profile", "may not import session"),
        ("dispatch_hook", "import numba.core.event", "may not import numba.core"),
        ("session", "import ctypes", "only native/ may hold addresses"),
        ("frames", "import pandas as pd", "pandas is imported when the module is"),
        ("model", "from numbaprof import frames", "vocabulary may not import outputs"),
        ("store", "from numbaprof.frames import _label", "private name"),
        ("cli", "import requests", "edges may not import requests"),
    ],
)
def test_breach_is_found(module, source, breach):
    """Each rule rejects an import that breaks it."""
    found = breaches(module, source)
    assert len(found) == 1
    assert breach in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("report", "from numbaprof import frames\nfrom numbaprof.model import Losses"),
        ("frames", "def f():\n    import pandas as pd"),
        ("frames", "if TYPE_CHECKING:\n    import pandas as pd"),
        ("model", "def f():\n    from numbaprof import frames"),
        (
            "native.engine",
            "from . import clock\nimport llvmlite.ir as ir\nimport ctypes",
        ),
        ("cli", "from numbaprof import profile"),
    ],
)
def test_rightful_import_is_no_breach(module, source):
    """The imports the rooms exist for are allowed."""
    assert breaches(module, source) == []
