"""Programs that start, stop, fork and die at the worst moment, each in a process.

Each program prints what it saw; a crash is a signal's exit code with faulthandler's
stack in what the test shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 60
"""Only ends what hangs."""

PRELUDE = """
import ctypes, faulthandler, gc, os, random, sys, threading, time
faulthandler.enable()
import numpy as np
from numba import njit, objmode, vectorize
from numbaprof import profile
from numbaprof.errors import ActiveSessionError, SessionStateError
from numbaprof.session import active_session


def calls(result, name):
    rows = [o for o in result.overloads if o.function.qualname == name]
    return sum(o.calls or 0 for o in rows)


def in_flight(result, name):
    rows = [o for o in result.overloads if o.function.qualname == name]
    return sum(o.in_flight for o in rows)


def check(result):
    result.check()
    assert result.losses.hook_errors == (), result.losses.hook_errors
    assert result.losses.unrestored == (), result.losses.unrestored
    return result


def wait_for(condition):
    while not condition():
        time.sleep(0.001)
"""

FUNCTIONS = {
    "leaf": """
@njit
def leaf(value):
    return value + 1


leaf(1)
""",
    "spin": """
sleep = ctypes.CDLL(None).usleep
sleep.argtypes = [ctypes.c_uint]
sleep.restype = ctypes.c_int


@njit(nogil=True)
def spin(flag):
    # Until somebody sets flag[1]; says that it has begun in flag[0]. The call of a C
    # function keeps the compiler from reading the flag only once.
    flag[0] = 1
    count = 0
    while flag[1] == 0:
        sleep(500)
        count += 1
    return count


spin(np.array([0, 1]))
""",
    "twice": """
@vectorize(["float64(float64)"])
def twice(value):
    return 2 * value



""",
    "through_python": """
@njit
def through_python(value):
    with objmode(result="int64"):
        result = act(value)
    return result


def act(value):
    return leaf(value)


through_python(1)
""",
    "recurse": """
@njit
def recurse(number):
    result = 0
    if number > 0:
        with objmode(result="int64"):
            result = recurse(number - 1)
    return result + 1


recurse(2)
""",
}
"""What programs call, each with what compiles it; made only where it is named."""


def with_prelude(program):
    """Return a program after the functions it names."""
    program = textwrap.dedent(program)
    # Compiled code goes to Python and back to the leaf.
    named = program + ("leaf" if "through_python" in program else "")
    sources = [source for name, source in FUNCTIONS.items() if name in named]
    return PRELUDE + "".join(sources) + program


def run(program, *arguments, environment=None):
    """Run a program after the prelude; return what it printed, by line."""
    source = with_prelude(program)
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
        | (environment or {}),
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines()


FUZZ = """
failures = []
done = False


def call(seed):
    choice = random.Random(seed)
    array = np.ones((300, 7))[:, :5]
    while not done:
        kind = choice.randrange(7)
        try:
            if kind == 0:
                assert leaf(3) == 4
            elif kind == 1:
                assert through_python(3) == 4
            elif kind == 2:
                assert recurse(5) == 6
            elif kind == 3:
                assert (twice(array) == 2).all()
            elif kind == 4:
                assert spin(np.array([0, 1])) == 0
            elif kind == 5:
                assert leaf(choice.choice([1, 1.0, True])) in (2, 2.0)
            else:
                gc.collect()
        except BaseException as error:
            failures.append(repr(error))


def measure(seed):
    choice = random.Random(seed)
    while not done:
        p = profile()
        try:
            p.start()
            time.sleep(choice.random() * 0.02)
            p.stop().check()
        except ActiveSessionError:
            time.sleep(0.001)
        except BaseException as error:
            failures.append(repr(error))
            raise


threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
threads += [threading.Thread(target=measure, args=(n,)) for n in range(2)]
for thread in threads:
    thread.start()
time.sleep(float(sys.argv[1]))
done = True
for thread in threads:
    thread.join()
with profile() as p:
    leaf(1)
print(failures, calls(check(p.result), "leaf"))
"""


def test_starts_and_stops_from_threads_during_calls():
    """Sessions begin and end in two threads while four others call everything."""
    assert run(FUZZ, 3) == ["[] 1"]


@pytest.mark.long
@pytest.mark.slow
def test_starts_and_stops_from_threads_during_calls_for_longer():
    """The same for half a minute."""
    assert run(FUZZ, 30) == ["[] 1"]


# -- sessions and calls that overlap ---------------------------------------------------


def test_stop_inside_an_objmode_block():
    """Calls that are open when the session stops are in flight; the books balance."""
    output = run(
        """
        p = profile()
        def act(value):
            leaf(1)
            check(p.stop())
            return leaf(value)
        p.start()
        assert through_python(5) == 6
        print(calls(p.result, "leaf"), calls(p.result, "through_python"),
              in_flight(p.result, "through_python"), p.result.losses.in_flight_calls)
        """
    )
    assert output == ["1 0 1 2"]


def test_start_inside_an_objmode_block():
    """A session that starts inside a call counts what is called from then on."""
    output = run(
        """
        p = profile()
        def act(value):
            p.start()
            return leaf(value)
        assert through_python(5) == 6
        leaf(1)
        check(p.stop())
        print(calls(p.result, "leaf"), calls(p.result, "through_python"))
        """
    )
    assert output == ["2 0"]


def test_second_session_while_a_call_of_the_first_is_inside():
    """A call over two sessions is in flight in the first, absent in the second."""
    output = run(
        """
        results = []
        def act(value):
            if value > 0:
                results.append(check(p.stop()))
                p2.start()
                leaf(1)
                through_python(-1)
                results.append(check(p2.stop()))
            return value
        p, p2 = profile(), profile()
        p.start()
        through_python(5)
        for result in results:
            print(calls(result, "leaf"), calls(result, "through_python"),
                  in_flight(result, "through_python"))
        """
    )
    assert output == ["0 0 1", "1 1 0"]


def test_thread_blocked_in_a_kernel_across_two_sessions():
    """A kernel that outlasts two sessions is in flight in the first only."""
    output = run(
        """
        flag = np.zeros(2, dtype=np.int64)
        thread = threading.Thread(target=spin, args=(flag,))
        results = []
        for number in range(2):
            with profile() as p:
                if number == 0:
                    thread.start()
                    wait_for(lambda: flag[0])
                leaf(1)
            results.append(check(p.result))
        with profile() as p:
            flag[1] = 1
            thread.join()
            leaf(1)
        results.append(check(p.result))
        gc.collect()
        for result in results:
            print(calls(result, "leaf"), calls(result, "spin"),
                  in_flight(result, "spin"))
        """
    )
    assert output == ["1 0 1", "1 0 0", "1 0 0"]


def test_time_of_a_kernel_in_flight_is_in_its_row():
    """A call that did not finish gives the time until the session stopped."""
    output = run(
        """
        flag = np.zeros(2, dtype=np.int64)
        thread = threading.Thread(target=spin, args=(flag,))
        with profile() as p:
            thread.start()
            wait_for(lambda: flag[0])
            time.sleep(0.05)
        flag[1] = 1
        thread.join()
        (row,) = [o for o in check(p.result).overloads if o.function.qualname == "spin"]
        print(row.in_flight, row.inclusive_ns >= 50_000_000)
        """
    )
    assert output == ["1 True"]


def test_dispatchers_freed_while_threads_call():
    """Functions are made, called and dropped in threads while sessions pass."""
    output = run(
        """
        def work():
            for number in range(8):
                function = njit(lambda value: value + 1)
                assert function(number) == number + 1
                del function
                gc.collect()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with profile() as p:
                time.sleep(0.02)
            check(p.result)
        print("done")
        """
    )
    assert output == ["done"]


def test_collecting_all_the_time():
    """With the collector running at every allocation nothing is freed too early."""
    output = run(
        """
        gc.set_threshold(1)
        for _ in range(3):
            with profile() as p:
                for number in range(20):
                    through_python(number)
                    twice(np.ones(3))
                gc.collect()
            print(calls(check(p.result), "leaf"))
        """
    )
    assert output == ["20", "20", "20"]


# -- forking ---------------------------------------------------------------------------

FORK = """
def child_counts():
    # What a forked process does whose session is to be its own.
    session = active_session()
    session.reset_after_fork("fork")
    leaf(1)
    leaf(2)
    result = check(session.stop())
    return calls(result, "leaf"), in_flight(result, "through_python")


def report(code):
    _, status = os.waitpid(code, 0)
    return os.waitstatus_to_exitcode(status)
"""


@pytest.mark.linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_fork_inside_an_objmode_block():
    """The child counts from nothing; the parent's calls stay the parent's."""
    output = run(
        FORK
        + textwrap.dedent(
            """
            def act(value):
                leaf(1)
                pid = os.fork()
                if pid == 0:
                    ok = child_counts() == (2, 0)
                    os._exit(0 if ok else 5)
                return report(pid)
            with profile() as p:
                code = through_python(5)
            print(code, calls(check(p.result), "leaf"),
                  calls(p.result, "through_python"))
            """
        )
    )
    assert output == ["0 1 1"]


@pytest.mark.linux
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_fork_inside_an_objmode_block_and_return_through_it():
    """The child may leave the compiled call that it was forked in."""
    output = run(
        FORK
        + textwrap.dedent(
            """
            def act(value):
                pid = os.fork()
                if pid == 0:
                    active_session().reset_after_fork("fork")
                return pid
            p = profile()
            p.start()
            pid = through_python(5)
            if pid == 0:
                leaf(1)
                result = check(p.stop())
                ok = (calls(result, "leaf"), calls(result, "through_python"))
                os._exit(0 if ok == (1, 0) else 5)
            print(report(pid), calls(check(p.stop()), "through_python"))
            """
        )
    )
    assert output == ["0 1"]


@pytest.mark.linux
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_fork_while_another_thread_is_in_a_kernel():
    """The other thread is not in the child, and not in its books."""
    output = run(
        FORK
        + textwrap.dedent(
            """
            import warnings
            warnings.simplefilter("ignore", DeprecationWarning)
            flag = np.zeros(2, dtype=np.int64)
            thread = threading.Thread(target=spin, args=(flag,))
            with profile() as p:
                thread.start()
                wait_for(lambda: flag[0])
                pid = os.fork()
                if pid == 0:
                    ok = child_counts() == (2, 0)
                    os._exit(0 if ok else 5)
                code = report(pid)
                flag[1] = 1
                thread.join()
            print(code, calls(check(p.result), "spin"), calls(p.result, "leaf"))
            """
        )
    )
    assert output == ["0 1 0"]


@pytest.mark.linux
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_fork_without_reset_changes_nothing_in_the_parent():
    """A child that knows nothing of profiling runs on; the parent counts its own."""
    output = run(
        FORK
        + textwrap.dedent(
            """
            with profile() as p:
                leaf(1)
                pid = os.fork()
                if pid == 0:
                    ok = leaf(4) == 5 and through_python(1) == 2
                    os._exit(0 if ok else 5)
                code = report(pid)
            print(code, calls(check(p.result), "leaf"))
            """
        )
    )
    assert output == ["0 1"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.linux
def test_pool_works_while_profiling(tmp_path, method):
    """A multiprocessing pool gives its results, and the parent counts its own calls."""
    program = tmp_path / "program.py"
    program.write_text(
        with_prelude(
            """
            import multiprocessing, warnings
            warnings.simplefilter("ignore", DeprecationWarning)
            def main(method):
                context = multiprocessing.get_context(method)
                with profile() as p:
                    with context.Pool(2) as pool:
                        print(pool.map(through_python, range(4)))
                    leaf(1)
                print(calls(check(p.result), "leaf"))
            if __name__ == "__main__":
                main(sys.argv[1])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(program), method],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["[1, 2, 3, 4]", "1"]


# -- the end of the process ------------------------------------------------------------


def test_exit_with_an_active_session_and_daemon_threads():
    """The interpreter shuts down while threads are in kernels and a session runs."""
    output = run(
        """
        flag = np.zeros(2, dtype=np.int64)
        def forever():
            while True:
                leaf(1)
                through_python(2)
        def forever_in_loops():
            array = np.ones((2000, 7))[:, :5]
            while True:
                twice(array)
        threading.Thread(target=spin, args=(flag,), daemon=True).start()
        for function in (forever, forever, forever_in_loops):
            threading.Thread(target=function, daemon=True).start()
        wait_for(lambda: flag[0])
        p = profile()
        p.start()
        time.sleep(0.05)
        print("leaving")
        """
    )
    assert output == ["leaving"]


def test_exit_right_after_stopping_with_daemon_threads():
    """The interpreter shuts down while a thread is still in a restored overload."""
    output = run(
        """
        flag = np.zeros(2, dtype=np.int64)
        with profile() as p:
            threading.Thread(target=spin, args=(flag,), daemon=True).start()
            wait_for(lambda: flag[0])
        print(in_flight(check(p.result), "spin"))
        """
    )
    assert output == ["1"]


def test_many_threads_at_once():
    """More threads than the table has room for at first, all alive together."""
    output = run(
        """
        barrier = threading.Barrier(320)
        threading.stack_size(512 * 1024)
        def work():
            barrier.wait()
            for _ in range(3):
                leaf(1)
            through_python(1)
            barrier.wait()
        with profile() as p:
            threads = [threading.Thread(target=work) for _ in range(320)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        check(p.result)
        roots = [n for n in p.result.contexts if n.kind == "thread"]
        print(calls(p.result, "leaf"), calls(p.result, "through_python"), len(roots))
        """
    )
    assert output == ["1280 320 320"]


def test_threads_one_after_another_keep_their_names():
    """A thread that gets the memory of an earlier one is not taken for it."""
    output = run(
        """
        def work():
            leaf(1)
            done.set()
            leave.wait()
        for name in ("first", "second"):
            done, leave = threading.Event(), threading.Event()
            with profile() as p:
                thread = threading.Thread(target=work, name=name)
                thread.start()
                done.wait()
            leave.set()
            thread.join()
            print([n.label for n in p.result.contexts if n.kind == "thread"])
        """
    )
    assert output == ["['first']", "['second']"]


def test_disabled_jit_is_told():
    """With NUMBA_DISABLE_JIT there is nothing to measure, and the profile says so."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from numba import njit\n"
            "import numbaprof\n"
            "f = njit(lambda x: x + 1)\n"
            "p = numbaprof.profile(f)\n"
            "print(p(1), p.result.processes[0].environment.jit_disabled)\n"
            "p.result.check()\n"
            "print('NUMBA_DISABLE_JIT' in p.report())\n",
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["2 True", "True"]
