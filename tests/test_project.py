"""What holds for the project as a whole: importing it is harmless, its papers agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import readme

import numbaprof
from numbaprof.model import ProfileResult
from numbaprof.pytest_budgets import Budgets

ROOT = Path(__file__).parent.parent

# Run in an interpreter of its own: replaces whatever could install something by a
# function that only notes the call, imports numbaprof, says what happened.
OBSERVED_IMPORT = """
import atexit, json, os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
import llvmlite.binding
import process_state

before = process_state.read()
modules = set(sys.modules)
noted = []

def note(owner, name):
    setattr(owner, name, lambda *args, **kwargs: noted.append(name))

note(atexit, "register")
note(os, "register_at_fork")
note(signal, "signal")
note(signal, "setitimer")
note(threading.Thread, "start")
note(llvmlite.binding, "parse_assembly")
note(llvmlite.binding, "create_mcjit_compiler")

import numbaprof

json.dump(
    {
        "noted": noted,
        "modules": sorted(set(sys.modules) - modules),
        "left": process_state.differences(before, process_state.read()),
    },
    sys.stdout,
)
"""


@pytest.fixture(scope="module")
def observed_import() -> dict[str, list[str]]:
    """Return what ``import numbaprof`` did in a new process that had Numba loaded."""
    done = subprocess.run(
        [sys.executable, "-c", OBSERVED_IMPORT, str(ROOT / "tests")],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return json.loads(done.stdout)


def test_import_leaves_the_process_as_it_was(observed_import):
    """Importing patches no class, adds no listener, handler, thread or tool."""
    assert observed_import["left"] == []


def test_import_installs_and_compiles_nothing(observed_import):
    """Importing calls nothing that registers a callback or makes machine code."""
    assert observed_import["noted"] == []


def test_import_adds_only_modules_of_its_own(observed_import):
    """Beside Numba, importing loads only numbaprof and the standard library."""
    tops = {module.partition(".")[0] for module in observed_import["modules"]}
    assert tops - sys.stdlib_module_names == {"numbaprof"}


def test_import_loads_nothing_that_is_not_needed_yet():
    """Numba is left to the program to import, pandas and rich to what is put out."""
    code = (
        "import sys, numbaprof; "
        "late = {'llvmlite', 'multiprocessing', 'numba', 'pandas', 'rich'}; "
        "print(*sorted(late & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout == "\n"


@pytest.mark.parametrize("name", ["try", "test"])
def test_readme_command_needs_only_python_and_the_clone(name):
    """A command is one line that sets up its environment and then uses only that."""
    command = readme.command(name)
    assert command.count("\n") == 1
    setup, *rest = command.split(" && ")
    assert setup == "python3 -m venv .venv"
    assert all(step.startswith(".venv/bin/") for step in rest)


def test_readme_commands_are_those_of_ci():
    """CI takes its commands from the README and runs them as they stand."""
    listed = subprocess.run(
        ["bash", ROOT / ".ci" / "run", "--list"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert listed == readme.command("try") + readme.command("test")


@pytest.fixture(scope="module")
def example_run(tmp_path_factory) -> readme.ExampleRun:
    """Return a new run of the README's example."""
    return readme.run_example(tmp_path_factory.mktemp("example"))


@pytest.mark.slow
def test_readme_output_shows_the_overloads_of_the_example(example_run):
    """Each function that was called has a row in the README, with as many calls."""
    shown = readme.example_output()
    stats = numbaprof.load(example_run.profile).stats.reset_index()
    rows = stats[stats["ncalls"] > 0]
    missing = [
        (function, calls)
        for function, calls in zip(rows["function"], rows["ncalls"], strict=True)
        if not re.search(rf"^ *{calls:,} .* {re.escape(function)}\b", shown, re.M)
    ]
    assert len(rows) >= 3
    assert missing == []


@pytest.mark.slow
def test_readme_output_has_the_sections_of_a_new_report(example_run):
    """README and report have the same headings in the same order."""
    headings = re.compile(r"^── (.+?) ─+$", re.MULTILINE)
    shown = headings.findall(readme.example_output())
    assert len(shown) > 1
    assert shown == headings.findall(example_run.report)


def test_names_in_the_readme_exist():
    """Every attribute that the README's Python example uses is there."""
    block = re.findall(r"```python\n(.*?)```", readme.README.read_text(), re.DOTALL)[0]
    of_module = set(re.findall(r"numbaprof\.([a-z]\w*)", block)) - {"json"}
    of_profile = set(re.findall(r"\bp\.([a-z]\w*)", block))
    assert {name for name in of_module if not hasattr(numbaprof, name)} == set()
    assert {name for name in of_profile if not hasattr(ProfileResult, name)} == set()


@pytest.mark.parametrize("document", ["README.md", "docs/pytest.md"])
def test_budgets_in_the_documents_exist(document):
    """What is shown of the marker can be written, and all of it is described."""
    text = (ROOT / document).read_text()
    shown = re.findall(r"mark\.numbaprof\((.*?)\)", text)
    names = set(re.findall(r"(\w+)=", " ".join(shown)))
    known = {field.name for field in fields(Budgets)}
    assert names
    assert names <= known
    if document != "README.md":
        assert {name for name in known if f"`{name}=" not in text} == set()


@pytest.mark.parametrize(
    "document",
    sorted(
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.md", "docs/*.md", "examples/*.md", "benchmarks/*.md")
        for path in ROOT.glob(pattern)
    ),
)
def test_links_lead_to_files(document):
    """A relative link in a document leads to a file of the project."""
    path = ROOT / document
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
    assert [link for link in targets if not (path.parent / link).exists()] == []


def test_newest_entry_of_the_changelog_is_this_version():
    """The version has an entry, and it is the first one."""
    entries = re.findall(
        r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert entries[0] == numbaprof.__version__


def test_package_needs_only_what_it_says():
    """The run-time dependencies are those that were decided on, and no more."""
    text = (ROOT / "pyproject.toml").read_text()
    (block,) = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.M)
    names = re.findall(r'^    "([a-z]+)', block, re.MULTILINE)
    assert names == ["capstone", "numba", "llvmlite", "numpy", "pandas", "rich"]


def test_package_is_marked_as_typed():
    """Type checkers are told that the annotations may be relied on."""
    assert (Path(numbaprof.__file__).parent / "py.typed").is_file()
