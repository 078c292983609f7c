"""The line and the thread that work is charged to."""

from __future__ import annotations

import _thread
import contextlib
import functools
import importlib
import inspect
import sys
import threading

import pytest

from numbaprof.native.triggers import find_trigger, thread_name


def find():
    """Look for the trigger from a function of the program's."""
    return find_trigger()


def test_trigger_is_the_calling_line():
    """File, line, function and module are those of the innermost frame."""
    line = inspect.currentframe().f_lineno + 1
    site, _ = (lambda: find_trigger())()
    assert (site.file, site.line, site.module) == (__file__, line, __name__)


def make_tool(module):
    """Return a function that calls another one and looks as if it were ``module``'s."""
    space = {"__name__": module}
    exec("def call(function):\n    return function()", space)
    return space["call"]


@pytest.mark.parametrize(
    "module",
    ["numba", "numba.core.dispatcher", "llvmlite.binding", "numbaprof.session"],
)
def test_frames_of_tools_are_passed_over(module):
    """The program's line is found behind any number of frames of Numba and ours."""
    tool = make_tool(module)
    line = inspect.currentframe().f_lineno + 1
    site, _ = tool(functools.partial(tool, find_trigger))
    assert (site.line, site.module) == (line, __name__)


@pytest.mark.parametrize("module", ["numbagg.funcs", "numba_stats", "llvmlites"])
def test_packages_with_a_similar_name_are_programs(module):
    """Only the packages themselves are tools."""
    site, _ = make_tool(module)(find_trigger)
    assert (site.module, site.function) == (module, "call")


def test_context_managers_are_passed_over():
    """Work that begins in an exit callback is charged to the `with` statement."""
    found = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: found.append(make_tool("numba")(find_trigger)))
    site, _ = found[0]
    assert site.module == __name__


def test_no_trigger_in_a_thread_without_program_frames():
    """A thread that runs nothing but tools has no line of the program's."""
    found = []
    done = threading.Event()

    def report():
        found.append(find_trigger())
        done.set()

    report = type(report)(
        report.__code__,
        {**globals(), "__name__": "numba"},
        "report",
        None,
        report.__closure__,
    )
    _thread.start_new_thread(report, ())
    assert done.wait(10)
    assert found == [(None, "")]


@pytest.fixture
def module_dir(tmp_path, monkeypatch):
    """Return a directory that modules can be imported from, for one test."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_import_is_named(module_dir):
    """Below the top level of a module being imported, that module is reported."""
    (module_dir / "trigger_plain.py").write_text(
        "from numbaprof.native.triggers import find_trigger\n"
        "def work():\n"
        "    return find_trigger()\n"
        "site, importing = work()\n"
    )
    module = importlib.import_module("trigger_plain")
    assert (module.site.line, module.site.module) == (3, "trigger_plain")
    assert module.importing == "trigger_plain"


def test_innermost_import_is_named(module_dir):
    """Of nested imports the inner one is responsible."""
    (module_dir / "trigger_outer.py").write_text("import trigger_inner\n")
    (module_dir / "trigger_inner.py").write_text(
        "from numbaprof.native.triggers import find_trigger\n"
        "site, importing = find_trigger()\n"
    )
    importlib.import_module("trigger_outer")
    assert sys.modules["trigger_inner"].importing == "trigger_inner"


def test_call_after_the_import_is_not_an_import(module_dir):
    """Code of an imported module that is called later runs under no import."""
    (module_dir / "trigger_late.py").write_text(
        "from numbaprof.native.triggers import find_trigger\n"
        "def work():\n"
        "    return find_trigger()\n"
    )
    site, importing = importlib.import_module("trigger_late").work()
    assert (site.module, importing) == ("trigger_late", "")


def test_script_run_by_an_imported_module_is_not_what_is_imported(module_dir):
    """`runpy` gives a script a top level; the module that runs it is imported."""
    (module_dir / "script.py").write_text(
        "from numbaprof.native.triggers import find_trigger\n"
        "site, importing = find_trigger()\n"
    )
    (module_dir / "trigger_runs.py").write_text(
        "import pathlib, runpy\n"
        "script = pathlib.Path(__file__).with_name('script.py')\n"
        "found = runpy.run_path(str(script), run_name='a_script')\n"
    )
    module = importlib.import_module("trigger_runs")
    assert module.found["site"].module == "a_script"
    assert module.found["importing"] == "trigger_runs"


def test_thread_has_its_name():
    """Threads go by the name the program gave them."""
    names = []
    thread = threading.Thread(target=lambda: names.append(thread_name()), name="worker")
    thread.start()
    thread.join()
    assert [*names, thread_name()] == ["worker", threading.current_thread().name]


def test_asking_a_foreign_thread_registers_nothing():
    """A thread Python did not start gets a name, and no dummy object."""
    found = []
    done = threading.Event()

    def work():
        before = threading.active_count()
        found.append((thread_name(), threading.active_count() - before))
        done.set()

    _thread.start_new_thread(work, ())
    assert done.wait(10)
    [(name, registered)] = found
    assert name.startswith("foreign thread ")
    assert registered == 0
