"""Child processes of a profiled program."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import (
    make_dispatcher,
    make_event,
    make_function,
    make_node,
    make_overload,
    make_result,
    make_site,
    make_thread,
)
from running import STARTUP_FILE, Runner

from numbaprof import children, store
from numbaprof.children import ChildOptions, Spool
from numbaprof.recorder import Measures

POOL = """\
import multiprocessing, sys
import numba
def task(i):
    numba.kernel()
    return i
if __name__ == "__main__":
    numba.kernel()
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        print(pool.map(task, range(4), chunksize=1))
"""

pytestmark = pytest.mark.linux


@pytest.fixture
def runner(tmp_path):
    """Run programs with the false Numba."""
    return Runner(tmp_path)


def labels(run):
    """Return the labels of all processes of a profile, the program's own first."""
    return [process.label for process in run.result.processes]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_calls_in_a_pool_are_added_to_those_of_the_program(runner, method):
    """Five calls are five calls, wherever they were made, and no call counts twice."""
    runner.write(POOL.format(method=method))
    run = runner.profile("script.py")
    assert (run.stdout, run.stderr, run.exit_code) == ("[0, 1, 2, 3]\n", "", 0)
    assert run.calls == 5
    assert labels(run)[0] == "main"
    assert run.result.losses.missing_processes == ()


def test_calls_in_an_executor_are_added(runner):
    """``concurrent.futures`` ends its workers in another way than a pool."""
    runner.write(
        "from concurrent.futures import ProcessPoolExecutor\nimport numba\n"
        "def task(i): numba.kernel()\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(2) as executor:\n"
        "        list(executor.map(task, range(4)))\n"
    )
    assert runner.profile("script.py").calls == 4


def test_child_made_by_os_fork_is_added(runner):
    """A child that ends like any program is a process of the profile."""
    runner.write(
        "import os, sys, numba\nnumba.kernel()\n"
        "if os.fork() == 0:\n    numba.kernel()\n    sys.exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    run = runner.profile("script.py")
    assert (run.stdout, run.calls, labels(run)) == ("5\n", 2, ["main", "fork"])


def test_grandchildren_are_added(runner):
    """A child's children are children of the program."""
    runner.write(
        "import multiprocessing, numba\n"
        "def leaf(): numba.kernel()\n"
        "def inner():\n    numba.kernel()\n    run(leaf)\n"
        "def run(target):\n"
        "    process = multiprocessing.get_context('fork').Process(target=target)\n"
        "    process.start(); process.join()\n"
        "run(inner)\nnumba.kernel()\n"
    )
    run = runner.profile("script.py")
    assert (run.calls, sorted(labels(run))) == (3, ["fork", "fork", "main"])


def test_python_started_as_a_command_is_added(runner):
    """Any Python that a program starts finds the way to the spool."""
    runner.write("import numba; numba.kernel()", "child.py")
    runner.write(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'child.py', 'a'])\n"
    )
    run = runner.profile("script.py")
    assert (run.calls, labels(run)) == (1, ["spawn"])
    assert "own process was not measured: the program did not import" in run.stderr


def test_exit_handlers_of_a_spawned_child_are_measured(runner):
    """The child's profile is made after its own handlers, as the program's is."""
    runner.write("import atexit, numba; atexit.register(numba.kernel)", "child.py")
    runner.write("import os, sys\nos.system(sys.executable + ' child.py')\n")
    assert runner.profile("script.py").calls == 1


def test_child_without_numba_leaves_no_trace(runner):
    """A child that never imports Numba is neither measured nor missed."""
    runner.write(
        "import numba, subprocess, sys\nnumba.kernel()\n"
        "subprocess.run([sys.executable, '-c', 'pass'], check=True)\n"
    )
    run = runner.profile("script.py")
    assert labels(run) == ["main"]
    assert run.result.losses.missing_processes == ()


def test_child_that_skips_its_end_is_counted_as_missing(runner):
    """``os._exit`` loses the child's profile, not the fact that there was one."""
    runner.write(
        "import os, numba\n"
        "if os.fork() == 0:\n    numba.kernel()\n    os._exit(0)\n"
        "os.wait()\nnumba.kernel()\n"
    )
    run = runner.profile("script.py")
    assert run.calls == 1
    (line,) = run.result.losses.missing_processes
    assert "(fork) left no profile" in line


def test_killed_worker_is_counted_as_missing(runner):
    """SIGKILL cannot be handled by anybody."""
    runner.write(
        "import multiprocessing, numba, time\n"
        "context = multiprocessing.get_context('fork')\n"
        "def work(ready): ready.set(); time.sleep(600)\n"
        "ready = context.Event()\n"
        "process = context.Process(target=work, args=(ready,))\n"
        "process.start(); ready.wait(); process.kill(); process.join()\n"
    )
    assert len(runner.profile("script.py").result.losses.missing_processes) == 1


def test_terminated_worker_delivers_first(runner):
    """SIGTERM ends a child with its usual status and leaves a profile."""
    runner.write(
        "import multiprocessing, numba, time\n"
        "context = multiprocessing.get_context('fork')\n"
        "def work(ready):\n    numba.kernel(); ready.set(); time.sleep(600)\n"
        "ready = context.Event()\n"
        "process = context.Process(target=work, args=(ready,))\n"
        "process.start(); ready.wait(); process.terminate(); process.join()\n"
        "print(process.exitcode)\n"
    )
    run = runner.profile("script.py")
    assert (run.stdout, run.calls) == ("-15\n", 1)
    assert run.result.processes[1].exit == "SIGTERM"


def test_command_with_a_preexec_function_is_not_missed(runner):
    """A fork that only prepares a command is no child to wait for."""
    runner.write(
        "import numba, os, subprocess\nnumba.kernel()\n"
        "subprocess.run(['true'], preexec_fn=os.setsid, check=True)\n"
    )
    run = runner.profile("script.py")
    assert (run.stderr, run.result.losses.missing_processes) == ("", ())


def test_children_can_be_left_out(runner):
    """--no-children profiles the program's own process alone."""
    runner.write(POOL.format(method="fork"))
    run = runner.profile("--no-children", "script.py")
    assert (run.calls, labels(run)) == (1, ["main"])


def test_children_wait_for_start_as_the_program_does(runner):
    """--start-disabled holds for children too."""
    runner.write("import numba; numba.kernel()", "child.py")
    runner.write("import os, sys\nos.system(sys.executable + ' child.py')\n")
    run = runner.profile("--start-disabled", "script.py")
    assert "nothing was measured" in run.stderr


def test_run_within_a_run_keeps_its_profile(runner):
    """A program that runs numbaprof itself is not robbed of its profile."""
    runner.write("import numba; numba.kernel()", "child.py")
    runner.write(
        "import numba, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'numbaprof', 'run', '-q',\n"
        "    '-o', 'inner.json', 'child.py'], check=True)\n"
    )
    run = runner.profile("script.py")
    assert (run.calls, labels(run)) == (0, ["main"])
    assert store.load(runner.folder / "inner.json").overloads[0].calls == 1


def test_spawned_children_are_missed_when_the_startup_file_is(runner):
    """Children that could not be profiled are said, with the next step."""
    (runner.folder / "site" / STARTUP_FILE.name).unlink()
    runner.write(POOL.format(method="spawn"))
    run = runner.profile("script.py")
    if children.find_startup_file() is None:
        (line,) = run.result.losses.missing_processes
        assert "pip install" in line
    else:  # numbaprof is installed in the environment of the tests.
        assert run.calls == 5


def test_options_reach_the_children(tmp_path, monkeypatch):
    """A child reads from the spool what the command line said."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    options = ChildOptions(
        enabled=False, measures=Measures(detail=("a", "b*"), signatures="type")
    )
    spool = Spool.create(options)
    assert Spool(spool.folder).read_options() == options
    spool.remove()
    assert not spool.folder.exists()


def test_spool_is_private():
    """Nobody else can put a profile there."""
    spool = Spool.create(ChildOptions())
    try:
        assert spool.folder.stat().st_mode & 0o077 == 0
    finally:
        spool.remove()


def test_child_that_outlives_the_run_is_silent(tmp_path):
    """A spool that is gone is no error of the child's."""
    ticket = Spool(tmp_path / "gone").new_ticket("fork")
    ticket.opened()
    ticket.deliver(make_result(), "")
    ticket.deliver(None, "")
    assert list(tmp_path.iterdir()) == []


def test_child_without_a_profile_takes_its_mark_back(tmp_path):
    """A session that could not be ended delivers nothing and is not missed."""
    ticket = Spool(tmp_path).new_ticket("fork")
    ticket.opened()
    assert len(Spool(tmp_path).missing()) == 1
    ticket.deliver(None, "a reason")
    assert Spool(tmp_path).missing() == ()


def test_main_module_has_one_name_in_parent_and_child(tmp_path):
    """Multiprocessing renames it; a function stays the same function."""
    spawned = {"module": "__mp_main__", "file": "/home/me/script.py"}
    kernel = make_function(**spawned)
    site = make_site(**spawned)
    library = make_function("library")
    result = make_result(
        make_overload(kernel),
        make_overload(library),
        dispatchers=(make_dispatcher(kernel),),
        events=(make_event(kernel, trigger=site, import_module="__mp_main__"),),
        contexts=(make_thread(inclusive_ns=0), make_node(via=site)),
    )
    store.save(result, tmp_path / "p")
    loaded = children.load_child(tmp_path / "p", "/home/me/./script.py")
    expected = make_function(module="__main__", file="/home/me/./script.py")
    assert [overload.function for overload in loaded.overloads] == [expected, library]
    assert loaded.dispatchers[0].function == expected
    (event,) = loaded.compile_events
    assert (event.function, event.import_module) == (expected, "__main__")
    assert event.trigger is not None
    assert event.trigger.file == "/home/me/./script.py"
    assert loaded.contexts[1].via == event.trigger


def test_startup_file_is_found_where_it_is(tmp_path, monkeypatch):
    """The site folder is one of the folders of the path."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert children.find_startup_file() is None
    (tmp_path / STARTUP_FILE.name).touch()
    assert children.find_startup_file() == Path(tmp_path, STARTUP_FILE.name)
