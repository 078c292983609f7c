"""Programs run as Python itself runs them; plain Python is the oracle."""

from __future__ import annotations

import signal
import zipfile

import pytest
from running import Runner

SHOW = """\
import sys
names = sorted(set(globals()) - {"sys"})
print(names, sys.argv, sys.path[0], __name__, __spec__ and __spec__.name, __package__)
print(globals().get("__file__"), sys._getframe().f_code.co_filename)
print(type(__loader__) if not isinstance(__loader__, type) else __loader__)
print(__builtins__, sys.modules["__main__"].__dict__ is globals())
"""


@pytest.fixture
def runner(tmp_path):
    """Run programs in a folder of their own, without Numba."""
    return Runner(tmp_path)


def assert_same_as_python(runner, *arguments, **options):
    """Run a program both ways and compare all that it shows; return plain Python's."""
    plain = runner.python(*arguments, **options)
    profiled = runner.profile(*arguments, **options)
    assert profiled.stdout == plain.stdout
    assert profiled.exit_code == plain.exit_code
    # That nothing was measured is said: these programs do not use Numba.
    own = "numbaprof: nothing was measured: the program did not import numba\n"
    assert profiled.stderr.replace(own, "") == plain.stderr
    return plain


@pytest.mark.parametrize("path", ["script.py", "./script.py", "sub/../script.py"])
def test_script_finds_the_world_it_expects(runner, path):
    """Names, arguments, path and file are those of ``python script.py``."""
    runner.write("", "sub/other.py")
    runner.write(SHOW)
    assert_same_as_python(runner, path, "a", "--top", "3", "-m", "--")


def test_script_elsewhere_finds_its_neighbours(runner):
    """The folder of the script is the first on the path, not the current one."""
    runner.write("import neighbour; print(neighbour.__file__)", "sub/script.py")
    runner.write("", "sub/neighbour.py")
    assert assert_same_as_python(runner, "sub/script.py").exit_code == 0


def test_linked_script_finds_the_neighbours_of_the_file(runner):
    """The first folder of the path is where the link leads to."""
    runner.write(SHOW, "sub/script.py")
    (runner.folder / "link.py").symlink_to("sub/script.py")
    assert_same_as_python(runner, "link.py")


def test_module_finds_the_world_it_expects(runner):
    """``-m`` sets spec, package, file and arguments."""
    runner.write(SHOW, "module.py")
    assert_same_as_python(runner, "-m", "module", "a", "-c", "--", "-x")


def test_package_runs_its_main_with_relative_imports(runner):
    """``-m package`` runs ``package/__main__.py`` as part of the package."""
    runner.write("", "package/__init__.py")
    runner.write("name = 'inner'", "package/inner.py")
    runner.write(SHOW + "from .inner import name; print(name)", "package/__main__.py")
    assert assert_same_as_python(runner, "-m", "package", "a").exit_code == 0


def test_source_text_finds_the_world_it_expects(runner):
    """``-c`` runs text with the current folder on the path."""
    assert_same_as_python(runner, "-c", SHOW, "a", "-m", "b")


def test_source_from_stdin_finds_the_world_it_expects(runner):
    """``-`` reads the program from stdin."""
    assert_same_as_python(runner, "-", "a", input=SHOW)


def test_folder_with_a_main_is_run(runner):
    """``python folder`` runs ``folder/__main__.py``."""
    runner.write(SHOW, "folder/__main__.py")
    assert_same_as_python(runner, "folder", "a")


def test_archive_with_a_main_is_run(runner):
    """``python archive.zip`` runs the ``__main__.py`` inside."""
    with zipfile.ZipFile(runner.folder / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    assert_same_as_python(runner, "archive.zip", "a")


def test_classes_of_main_can_be_pickled(runner):
    """``__main__`` is the program, so that pickle finds its classes."""
    runner.write(
        "import pickle\nclass P: pass\nprint(type(pickle.loads(pickle.dumps(P()))))"
    )
    assert assert_same_as_python(runner, "script.py").exit_code == 0


def test_stdin_reaches_the_program(runner):
    """What is piped in is the program's to read."""
    runner.write("import sys\nprint(sum(map(int, sys.stdin)))")
    assert assert_same_as_python(runner, "script.py", input="1\n2\n").stdout == "3\n"


@pytest.mark.parametrize(
    ("ending", "exit_code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit('message')", 1),
        ("raise ValueError('message')", 1),
        ("def f(): 1 / 0\nf()", 1),
        ("try:\n    {}['x']\nexcept KeyError:\n    1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(4)", 4),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("(", 1),
        ("import numba_is_not_this", 1),
    ],
)
def test_end_of_the_program_looks_as_without_us(runner, ending, exit_code):
    """Exit code and traceback are the program's own, frame by frame."""
    runner.write(f"print('before')\n{ending}\n")
    assert assert_same_as_python(runner, "script.py").exit_code == exit_code


def test_exception_hook_of_the_program_is_called_once(runner):
    """A program that reports its errors itself goes on doing so."""
    runner.write(
        "import sys, traceback\n"
        "def hook(kind, error, trace):\n"
        "    print(kind, error, len(traceback.extract_tb(trace)))\n"
        "sys.excepthook = hook\n"
        "1 / 0\n"
    )
    plain = assert_same_as_python(runner, "script.py")
    assert plain.stdout == "<class 'ZeroDivisionError'> division by zero 1\n"


def test_atexit_handlers_and_threads_end_in_their_order(runner):
    """Threads are joined and handlers run after the traceback, as ever."""
    runner.write(
        "import atexit, threading, time, sys\n"
        "atexit.register(print, 'handler')\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    print('thread', file=sys.stderr)\n"
        "threading.Thread(target=work).start()\n"
        "1 / 0\n"
    )
    assert_same_as_python(runner, "script.py")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["none.py"], 2, "can't open file '{folder}/none.py': [Errno 2] No such file"),
        (["-m", "no_such"], 1, "No module named no_such"),
        (
            ["-m", "no.such"],
            1,
            "Error while finding module specification for 'no.such'",
        ),
        (["-m", "empty"], 1, "'empty' is a package and cannot be directly executed"),
        (["empty"], 1, "can't find '__main__' module in '{folder}/empty'"),
    ],
)
def test_missing_program_ends_as_python_would(runner, arguments, exit_code, message):
    """The exit code is Python's and the message says what is missing."""
    runner.write("", "empty/__init__.py")
    assert runner.python(*arguments).exit_code == exit_code
    profiled = runner.profile(*arguments)
    assert profiled.exit_code == exit_code
    assert message.format(folder=runner.folder) in profiled.stderr
    assert "Traceback" not in profiled.stderr


def test_module_that_cannot_import_something_shows_its_traceback(runner):
    """A package that is there but broken is not called missing."""
    runner.write("import no_such_dependency", "package/__init__.py")
    runner.write("", "package/__main__.py")
    profiled = runner.profile("-m", "package")
    assert profiled.exit_code == 1
    assert "No module named 'no_such_dependency'" in profiled.stderr
    assert "package/__init__.py" in profiled.stderr


def test_folder_of_the_script_does_not_shadow_our_modules(runner):
    """A file beside the script that is named like one of ours stays the program's."""
    for name in ("rich", "gzip", "json", "report"):
        runner.write("raise SystemExit('imported the wrong module')", f"sub/{name}.py")
    runner.write("import numba; numba.kernel()", "sub/script.py")
    profiled = runner.numbaprof("run", "sub/script.py")
    assert profiled.exit_code == 0
    assert "wrong module" not in profiled.stderr
    assert "kernel" in profiled.stderr
