"""Sampling a process: what comes out, and what must not happen to the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.errors import (
    ActiveSessionError,
    AttachError,
    OptionError,
    SessionStateError,
)
from numbaprof.native.signals import FIRST_SLICE, N_REGISTERS, RecordField
from numbaprof.native.unwind import AddressSpace
from numbaprof.sampler import RawSamples, Sampler, SamplerOptions

pytestmark = pytest.mark.linux

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 600
"""Only ends what hangs; a busy machine takes minutes for a hundred exits."""
PREPARE = """\
import ctypes, os, signal, sys, threading, time
from numbaprof.sampler import Sampler, SamplerOptions
from numbaprof.errors import NumbaprofError
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))
def start(**options):
    sampler = Sampler(SamplerOptions(**options))
    sampler.start()
    return sampler
"""
SOURCES = ["cpu-timer", "itimer", "perf"]
FIRST_SOURCE = [
    "cpu-timer",
    *(pytest.param(source, marks=pytest.mark.slow) for source in SOURCES[1:]),
]
"""The others are for the long run."""


def run(source, *, options=()):
    """Run a program that has :data:`PREPARE` before it."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "NUMBAPROF"))
    }
    return subprocess.run(
        [sys.executable, *options, "-c", PREPARE + source],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        check=False,
    )


def output(source, **keywords):
    """Return what the program prints; it must end well."""
    done = run(source, **keywords)
    assert done.returncode == 0, done.stderr
    return done.stdout


def burn(seconds):
    """Use CPU time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))


def sample(seconds=0.1, **options):
    """Sample this process while it uses CPU time."""
    sampler = Sampler(SamplerOptions(**options))
    sampler.start()
    burn(seconds)
    return sampler.stop()


# -- what comes out --------------------------------------------------------------------


@pytest.mark.parametrize("source", ["auto", *SOURCES])
def test_samples_come_from_where_time_went(source):
    """They carry the thread's name, and Python's time is Python's."""
    raw = sample(source=source)
    space = AddressSpace()
    stacks = raw.resolve(space, raw.stacks(space))
    (thread,) = raw.threads()
    assert (thread.name, thread.thread) == ("MainThread", threading.get_ident())
    assert thread.samples == raw.taken == sum(stack.count for stack in stacks)
    bins = {stack.bin for stack in stacks}
    assert bins <= {"python", "native"}
    assert "python" in bins


def test_interval_achieved_is_cpu_time_per_sample():
    """It is what one sample stands for."""
    raw = sample(interval_ns=4_000_000)
    assert raw.requested_ns == 4_000_000
    assert raw.achieved_ns == raw.cpu_ns // raw.taken
    assert raw.achieved_ns > 0
    assert raw.process == os.getpid()


def test_perf_is_finer_than_the_tick():
    """What it is for."""
    raw = sample(source="perf", interval_ns=200_000)
    if raw.source != "perf task-clock":
        pytest.skip(raw.reason)
    assert raw.achieved_ns < 1_000_000


def test_time_while_compiling_is_marked():
    """Where compilations are known, what Python does for them is theirs."""
    sampler = Sampler()
    sampler.start()
    burn(0.04)
    begin = time.perf_counter_ns()
    burn(0.04)
    end = time.perf_counter_ns()
    burn(0.04)
    raw = sampler.stop()
    space = AddressSpace()
    spans = {threading.get_ident(): [(begin, end)]}
    stacks = raw.resolve(space, raw.stacks(space, compiling=spans))
    compiling = sum(stack.count for stack in stacks if stack.bin == "compile")
    assert 0 < compiling < raw.taken


def test_long_run_is_thinned():
    """A buffer that fills up is no reason to see only the beginning."""
    raw = sample(0.4, buffer_bytes=1 << 16)
    space = AddressSpace()
    assert raw.taken == sum(stack.count for stack in raw.stacks(space)) > 0
    assert raw.achieved_ns >= 4 * raw.requested_ns
    assert raw.problems[0].startswith("only one sample of ")
    assert raw.problems[0].endswith("65536 bytes filled; all stand for their time")


def test_signal_of_somebody_else_is_counted_as_bad():
    """``kill -PROF`` is survived and is no sample."""
    sampler = Sampler()
    sampler.start()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGPROF)
    raw = sampler.stop()
    assert ("bad", 3) in raw.losses


def test_threads_are_told_apart():
    """Each has its own samples, whoever started the sampler."""
    done = output(
        "sampler = start()\n"
        "threads = [threading.Thread(target=burn, args=(0.2,), name=f'w{i}')\n"
        "           for i in range(2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "raw = sampler.stop()\n"
        "print({t.name for t in raw.threads()} - {'MainThread'} == {'w0', 'w1'})\n"
        "print(sum(t.samples for t in raw.threads()) == raw.taken)\n"
    )
    assert done == "True\nTrue\n"


# -- bins ------------------------------------------------------------------------------


class WildSpace:
    """Code whose nature depends on an address in no sensible way."""

    def jit_object(self, pc):
        """Every seventh is compiled."""
        return "object" if pc % 7 == 0 else None

    def is_code(self, pc):
        """Most are code."""
        return pc % 5 != 0

    def kind(self, pc):
        """All kinds occur."""
        if self.jit_object(pc):
            return "jit"
        return ("python", "compiler", "system", "native", "")[pc % 11 % 5]

    def native_frame(self, pc, *, named=True):
        """No library has a name."""
        return None

    def rule(self, pc):
        """Callers are found for two thirds, in places that may not be there."""
        from numbaprof.native.cfi_rules import CfiRule

        if pc % 3 == 0:
            return None
        saved = {16: -8} if pc % 13 else {}
        register = None if pc % 17 == 0 else (7, 6, 3)[pc % 19 % 3]
        return CfiRule(register, 8 * (pc % 4), saved, 16, False, b"", frozenset())

    def is_return_address(self, pc):
        """Some are."""
        return pc % 2 == 0

    def function_start(self, pc):
        """Some have one."""
        return pc - 3 if pc % 4 else None

    def calls(self, pc, function):
        """Some do."""
        return (pc + function) % 2 == 0


samples = st.lists(
    st.tuples(
        st.binary(min_size=N_REGISTERS, max_size=N_REGISTERS + 12),
        st.booleans(),
        st.booleans(),
    ),
    max_size=8,
)


@given(samples)
def test_every_sample_ends_in_one_bin(samples):
    """Whatever registers and stacks hold, the counts add up."""
    buffer = []
    for number, (data, wide, in_stack) in enumerate(samples):
        numbers = [byte * 0x9E3779B97F4A7C15 % 2**64 if wide else byte for byte in data]
        registers, stack = numbers[:N_REGISTERS], numbers[N_REGISTERS:]
        if in_stack:  # sp, rbp and rbx near each other, as in life.
            registers[10], registers[11], registers[15] = 16, 24, 8
        head = [0] * RecordField.COUNT
        head[RecordField.SIZE] = FIRST_SLICE + len(stack)
        head[RecordField.THREAD] = head[RecordField.TID] = number % 2
        head[RecordField.RESERVED] = head[RecordField.STACK] = len(stack)
        head[RecordField.RBP] = head[RecordField.RBX] = 2**64 - 1
        buffer += head + registers + stack
    raw = RawSamples(
        process=1,
        source="test",
        reason="",
        requested_ns=1,
        achieved_ns=1,
        cpu_ns=1,
        taken=len(samples),
        losses=(),
        problems=(),
        names={(0, 0): "a", (1, 1): "b"},
        _words=np.array(buffer, np.uint64).view(np.int64),
    )
    space = WildSpace()
    stacks = raw.resolve(space, raw.stacks(space))
    assert sum(stack.count for stack in stacks) == len(samples)
    assert all((stack.bin == "function") == bool(stack.jit) for stack in stacks)
    assert {stack.bin for stack in stacks} <= {
        "function",
        "python",
        "compile",
        "native",
        "unresolved",
    }


# -- refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval_ns": 1000}, "interval_ns=1000 is too short"),
        ({"source": "sundial"}, "source='sundial' is not one of auto, cpu-timer"),
        ({"buffer_bytes": 100}, "buffer_bytes=100 holds no samples"),
    ],
)
def test_impossible_option_is_refused(options, message):
    """With the value and what is possible."""
    with pytest.raises(OptionError, match=message):
        SamplerOptions(**options)


def test_second_sampler_is_refused():
    """There is one signal."""
    first = Sampler()
    first.start()
    try:
        with pytest.raises(ActiveSessionError, match="being sampled already"):
            Sampler().start()
        with pytest.raises(SessionStateError, match="started already"):
            first.start()
    finally:
        first.stop()
    with pytest.raises(SessionStateError, match="was not started"):
        first.stop()


def test_other_profiler_is_left_alone():
    """It is named, and goes on as before."""
    seen = []
    signal.signal(signal.SIGPROF, lambda number, frame: seen.append(number))
    signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
    try:
        with pytest.raises(AttachError, match="SIGPROF is taken: its handler is the"):
            Sampler().start()
        burn(0.05)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    assert seen


def test_unsupported_platform_is_refused_with_the_reason():
    """Before anything is touched."""
    done = output(
        "import platform; platform.machine = lambda: 'sparc64'\n"
        "try: start()\n"
        "except NumbaprofError as error: print(type(error).__name__, error)\n"
    )
    assert done.startswith("UnsupportedError sampling needs x86-64 Linux with glibc: ")
    assert "the registers of sparc64 are not known" in done


def test_kernel_that_does_not_direct_timers_falls_back_with_the_reason():
    """ITIMER_PROF does on every kernel."""
    done = output(
        "import platform; platform.release = lambda: '5.10.0'\n"
        "sampler = start(); burn(0.05); raw = sampler.stop()\n"
        "print(raw.source, raw.taken > 0, raw.reason)\n"
    )
    assert done == (
        "ITIMER_PROF True not a CPU timer: Linux 5.10 sends the signals of CPU timers "
        "to the main thread\n"
    )


# seccomp(2): SECCOMP_SET_MODE_FILTER by prctl, a filter that refuses one system call.
FILTER = """\
import struct
libc = ctypes.CDLL(None, use_errno=True)
def forbid(*numbers):
    steps = [(0x20, 0, 0, 0)]  # the number of the call
    for number in numbers:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 1)]  # EPERM
    steps.append((0x06, 0, 0, 0x7FFF0000))
    code = b''.join(struct.pack('HBBI', *step) for step in steps)
    keep = ctypes.create_string_buffer(code)
    program = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(keep))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0
"""


def test_container_without_perf_falls_back_with_the_reason():
    """A seccomp filter answers EPERM, as those of containers do."""
    done = output(
        FILTER + "forbid(298)\n"
        "sampler = start(source='perf'); burn(0.05); raw = sampler.stop()\n"
        "print(raw.source in ('CPU timer', 'ITIMER_PROF'), raw.taken > 0)\n"
        "print(raw.reason)"
    )
    assert done.startswith("True True\nnot perf: perf_event_open failed: Operation not")
    assert "seccomp" in done


def test_container_without_memory_reading_samples_all_the_same():
    """Other threads' stacks are then read to the end of their page."""
    done = output(
        FILTER + "forbid(310)\n"
        "sampler = start()\n"
        "thread = threading.Thread(target=burn, args=(0.1,)); thread.start()\n"
        "thread.join(); raw = sampler.stop(); print(raw.taken > 0, raw.losses)\n"
    )
    assert done == "True ()\n"


def test_without_the_list_of_objects_compiled_code_is_unresolved(monkeypatch):
    """A stripped libllvmlite: the reason is kept, the samples are."""
    from numbaprof.native import objcode

    nothing = objcode.Objects((), objcode.SOURCE_NONE, "no symbol table")
    space = AddressSpace(nothing)
    assert list(space.problems) == ["compiled code: no symbol table"]
    raw = sample(0.03)
    stacks = raw.resolve(space, raw.stacks(space))
    assert sum(stack.count for stack in stacks) == raw.taken


def test_without_frame_information_leaves_are_still_known(monkeypatch):
    """A library without ``.eh_frame``: the stack is one frame, and says so."""
    raw = sample(0.03)
    space = AddressSpace()
    monkeypatch.setattr(space, "rule", lambda pc: None)
    stacks = raw.resolve(space, raw.stacks(space))
    assert sum(stack.count for stack in stacks) == raw.taken
    assert all(stack.is_cut for stack in stacks)
    assert {stack.bin for stack in stacks} <= {"python", "native"}


# -- the program goes on as without ----------------------------------------------------


def exits(times, source):
    """Return exit codes of processes that end with the sampler at work."""
    program = (
        "codes = []\n"
        "start().stop()\n"  # Compiles the handler once and for all.
        f"for _ in range({times}):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        f"        start(source={source!r}, interval_ns=100_000)\n"
        "        threading.Thread(target=burn, args=(9,), daemon=True).start()\n"
        "        burn(0.01); sys.exit(7)\n"
        "    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "print(set(codes))\n"
    )
    return output(program)


@pytest.mark.parametrize("source", FIRST_SOURCE)
def test_process_may_end_with_the_sampler_at_work(source):
    """The interpreter is taken down under fire."""
    assert exits(10, source) == "{7}\n"


@pytest.mark.long
@pytest.mark.slow
def test_process_may_end_with_the_sampler_at_work_a_hundred_times():
    """It once ended by SIGSEGV every time."""
    assert exits(100, "auto") == "{7}\n"


@pytest.mark.parametrize("source", FIRST_SOURCE)
def test_forked_child_is_not_sampled(source):
    """It has no timers, and says whose samples it does not return."""
    done = output(
        f"sampler = start(source={source!r}); burn(0.05)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    burn(0.05); raw = sampler.stop()\n"
        "    os._exit(raw.taken or raw.problems != ('a forked child that was not '\n"
        "                                           'sampled',))\n"
        "print(os.waitpid(pid, 0)[1]); burn(0.05)\n"
        "print(sampler.stop().taken > 0)\n"
    )
    assert done == "0\nTrue\n"


@pytest.mark.parametrize("source", SOURCES)
def test_forked_child_may_begin_anew(source):
    """Then its samples are its own; the parent has its own, too."""
    done = output(
        f"sampler = start(source={source!r}); burn(0.05)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    sampler.reset_after_fork(); burn(0.05); raw = sampler.stop()\n"
        "    own = raw.process == os.getpid() and raw.cpu_ns < 0.3e9\n"
        "    tids = {t.tid for t in raw.threads()} == {os.getpid()}\n"
        "    os._exit(0 if raw.taken and own and tids and not raw.problems else 1)\n"
        "print(os.waitpid(pid, 0)[1]); burn(0.05); raw = sampler.stop()\n"
        "print(raw.taken > 0, {t.tid for t in raw.threads()} == {os.getpid()})\n"
    )
    assert done == "0\nTrue True\n"


@pytest.mark.parametrize("source", SOURCES)
def test_program_may_replace_itself(source):
    """An interval timer would go on and kill the new program."""
    done = run(
        f"start(source={source!r}); burn(0.02)\n"
        "os.execv(sys.executable, [sys.executable, '-c',\n"
        "    'import time\\nwhile time.process_time() < 0.3: pass\\nprint(5)'])\n"
    )
    assert (done.returncode, done.stdout) == (0, "5\n")


def test_program_may_replace_itself_from_c():
    """Nobody is asked; the kernel deletes the timer."""
    done = run(
        "sampler = start(); burn(0.02)\n"
        "if sampler._source.name != 'CPU timer': print(5); sys.exit()\n"
        "code = b'import time\\nwhile time.process_time() < 0.3: pass\\nprint(5)'\n"
        "arguments = (ctypes.c_char_p * 4)(sys.executable.encode(), b'-c', code)\n"
        "ctypes.CDLL(None).execv(sys.executable.encode(), arguments)\n"
    )
    assert (done.returncode, done.stdout) == (0, "5\n")


def test_pool_of_processes_works():
    """Forked workers come and go, all results are there."""
    done = output(
        "import multiprocessing\n"
        "def work(number): burn(0.01); return number\n"
        "sampler = start()\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    print(sum(pool.map(work, range(20))))\n"
        "print(sampler.stop().losses)\n"
    )
    assert done == "190\n()\n"


def test_children_are_not_lost():
    """Waiting for them is not disturbed, by subprocess or by hand."""
    done = output(
        "import subprocess\n"
        "sampler = start()\n"
        "thread = threading.Thread(target=burn, args=(0.5,)); thread.start()\n"
        "codes = [subprocess.run(['sh', '-c', f'exit {n}']).returncode\n"
        "         for n in range(10)]\n"
        "pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 3'], os.environ)\n"
        "codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "thread.join(); sampler.stop(); print(codes)\n"
    )
    assert done == f"{[*range(10), 3]}\n"


def test_blocking_system_calls_are_not_interrupted():
    """Not even those that cannot be restarted, while another thread works."""
    done = output(
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "sampler = start()\n"
        "thread = threading.Thread(target=burn, args=(0.6,)); thread.start()\n"
        "spec = (ctypes.c_long * 2)(0, 200_000_000)\n"
        "begin = time.perf_counter()\n"
        "slept = libc.nanosleep(spec, None)\n"
        "polled = libc.poll(None, 0, 200)\n"
        "waited = time.perf_counter() - begin >= 0.4\n"
        "thread.join(); raw = sampler.stop()\n"
        "print(slept, polled, waited, raw.taken > 0)\n"
    )
    assert done == "0 0 True True\n"


def test_faulthandler_works():
    """It has an alternate stack, and the last word."""
    done = run(
        "import faulthandler\n"
        "sampler = start(); faulthandler.enable()\n"
        "faulthandler.dump_traceback_later(0.05); burn(0.3)\n"
        "faulthandler.cancel_dump_traceback_later(); print(sampler.stop().taken > 0)\n"
        "sampler = start(); burn(0.02); ctypes.string_at(0)\n"
    )
    assert done.returncode == -signal.SIGSEGV
    assert "Timeout (0:00:00.05" in done.stderr
    assert "Fatal Python error: Segmentation fault" in done.stderr


@pytest.mark.parametrize("source", FIRST_SOURCE)
def test_threads_with_small_stacks_work(source):
    """64 KiB are enough for a handler."""
    done = output(
        "threading.stack_size(65536)\n"
        f"sampler = start(source={source!r}, interval_ns=100_000)\n"
        "for _ in range(3):\n"
        "    threads = [threading.Thread(target=burn, args=[.02]) for _ in 'abcdefg']\n"
        "    [t.start() for t in threads]\n"
        "    [t.join() for t in threads]\n"
        "print(sampler.stop().losses)\n"
    )
    assert done == "()\n"


def test_deep_recursion_is_sampled():
    """Stacks are cut off, and say so."""
    done = output(
        "sys.setrecursionlimit(20_000)\n"
        "def deep(n): return deep(n - 1) if n else burn(0.1)\n"
        "sampler = start(); deep(4000); raw = sampler.stop()\n"
        "from numbaprof.native.unwind import AddressSpace\n"
        "space = AddressSpace()\n"
        "stacks = raw.resolve(space, raw.stacks(space))\n"
        "print(sum(stack.count for stack in stacks) == raw.taken)\n"
    )
    assert done == "True\n"


@pytest.mark.slow
def test_sampler_may_be_started_often():
    """Nothing piles up: no memory, no descriptor, no timer."""
    done = output(
        "def state():\n"
        "    resident = int(open('/proc/self/statm').read().split()[1])\n"
        "    return resident, len(os.listdir('/proc/self/fd')), "
        "open('/proc/self/timers').read()\n"
        "def once(): start(buffer_bytes=1 << 20).stop()\n"
        "once(); before = state()\n"
        "for _ in range(300): once()\n"
        "after = state()\n"
        "print(after[0] - before[0] < 500, after[1:] == before[1:])\n"
    )
    assert done == "True True\n"


# -- compiled code ---------------------------------------------------------------------

KERNELS = """\
import math
import numpy as np
from numba import njit, prange
from numbaprof.native.unwind import AddressSpace
@njit
def sines(a, n):
    s = 0.0
    for k in range(n):
        for i in range(a.size):
            s += math.sin(a[i])
    return s
@njit(nogil=True)
def sums(a, n):
    s = 0.0
    for k in range(n):
        for i in range(a.size):
            s += a[i] * a[i] - s * 1e-9
    return s
@njit
def deep(n, x):
    return x if n == 0 else deep(n - 1, x * 0.5) + deep(n - 1, x + 1.0)
a = np.random.default_rng(0).random(20000)
def sampled(work, seconds=0.3):
    work(); sampler = start()
    until = time.process_time() + seconds
    while time.process_time() < until: work()
    raw = sampler.stop(); space = AddressSpace()
    stacks = raw.resolve(space, raw.stacks(space))
    assert sum(stack.count for stack in stacks) == raw.taken
    return raw, stacks
def share(stacks, wanted):
    total = sum(stack.count for stack in stacks)
    return sum(stack.count for stack in stacks if wanted(stack)) / total
"""


@pytest.mark.slow
def test_compiled_code_is_found():
    """Kernels, what they call, and themselves; in threads; through recursion."""
    done = output(
        KERNELS + "raw, stacks = sampled(lambda: sines(a, 50))\n"
        "print(share(stacks, lambda s: s.callee == 'sin (libm)' and s.jit) > 0.5)\n"
        "raw, stacks = sampled(lambda: sums(a, 50))\n"
        "print(share(stacks, lambda s: s.callee == '' and s.jit) > 0.9)\n"
        "raw, stacks = sampled(lambda: deep(14, 0.5))\n"
        "print(share(stacks, lambda s: len(s.jit) > 1) > 0.5)\n"
        "def threads():\n"
        "    ts = [threading.Thread(target=sums, args=(a, 400)) for _ in range(2)]\n"
        "    [t.start() for t in ts]; [t.join() for t in ts]\n"
        "raw, stacks = sampled(threads)\n"
        "print(share(stacks, lambda s: s.jit and s.thread != 'MainThread') > 0.8)\n"
    )
    assert done == "True\n" * 4


@pytest.mark.slow
def test_time_in_the_compiler_is_the_compilers():
    """Compiling is seen as such without being told."""
    done = output(
        KERNELS + "raw, stacks = sampled(lambda: njit(lambda x: x + 1)(1), 0.6)\n"
        "print(share(stacks, lambda s: s.bin == 'compile') > 0.1)\n"
        "print(share(stacks, lambda s: s.bin == 'python') > 0.1)\n"
        "print(share(stacks, lambda s: s.bin == 'unresolved') < 0.05)\n"
    )
    assert done == "True\n" * 3


@pytest.mark.slow
def test_without_symbols_of_llvm_the_samples_are_kept():
    """A stripped libllvmlite: compiled code is unresolved, and the reason is there."""
    done = output(
        "from numbaprof.native import objcode\n"
        "from numbaprof.errors import UnsupportedError\n"
        "def stripped(): raise UnsupportedError('no symbol table')\n"
        "objcode._jit_list = stripped\n" + KERNELS + "work = lambda: sums(a, 50)\n"
        "raw, stacks = sampled(work)\n"
        "print(share(stacks, lambda s: s.bin == 'unresolved') > 0.9)\n"
        "print('no symbol table' in str(AddressSpace().problems))\n"
    )
    assert done == "True\nTrue\n"
