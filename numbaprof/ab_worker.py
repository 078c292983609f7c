"""One side of ``numbaprof ab``: a pytest plugin that runs rounds when it is told to.

Loaded by ``-p numbaprof.ab_worker`` into a pytest process of its own, with the other
side's process alive beside it. Both collect, agree on the common tests, and meet at
each: the test's function is called until a call compiles nothing, then in rounds, one
side at a time, with equal numbers of calls. Between rounds the counters of the session
say what each overload took; the profiled code is the same as everywhere.

Works with the ``benchmark`` fixture of pytest-benchmark (whose calibration and rounds
are replaced), with one of our own where pytest-benchmark is not installed, and with the
fixture ``numbaprof``.
"""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from numbaprof.ab_link import ADDRESS, SIDE, TOKEN, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numbaprof.model import FunctionId
    from numbaprof.session import Session

__all__: list[str] = []

FIXTURES = ("benchmark", "numbaprof")
MAX_WARMUP_CALLS = 5
CALIBRATION_NS = 500_000
"""Calls are timed for at least this long to find the length of one."""
PAD_BLOCKS = 60
PAD_BYTES = 70_000
"""Upper bounds of the random padding of the heap: where arrays lie becomes noise."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
SUPPRESSED = "ignored by numbaprof ab"
MARKERS = (
    "benchmark: measured by numbaprof ab",
    "numbaprof: measured by numbaprof ab",
)


# -- pytest ----------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Keep everything in this process, whatever the project's options are."""
    for name, value in (("numprocesses", None), ("dist", "no"), ("tx", [])):
        if hasattr(config.option, name):
            setattr(config.option, name, value)
    if hasattr(config.option, "benchmark_storage"):
        # pytest-benchmark makes its folder even if it never saves.
        place = Path(os.environ["NUMBA_CACHE_DIR"]).with_name("benchmarks")
        config.option.benchmark_storage = place.as_uri()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Accept, and ignore, the options of our own plugin, which is switched off here."""
    group = parser.getgroup("numbaprof-ab")
    for name in ("--numbaprof", "--numbaprof-fail-on-compile"):
        group.addoption(name, action="store_true", default=False, help=SUPPRESSED)
    for name in ("--numbaprof-save", "--numbaprof-top"):
        group.addoption(name, default=None, help=SUPPRESSED)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Provide what is missing, and the worker."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not config.pluginmanager.has_plugin("benchmark"):
        config.pluginmanager.register(_OwnBenchmark(), "numbaprof-ab-benchmark")
    config.pluginmanager.register(_OwnHandle(), "numbaprof-ab-handle")
    config.pluginmanager.register(_Worker(), "numbaprof-ab")


class _OwnBenchmark:
    """A plain ``benchmark`` fixture, for projects without pytest-benchmark."""

    @pytest.fixture
    def benchmark(self) -> None:
        """Be there to be asked for; see :meth:`_Worker.pytest_fixture_setup`."""


class _OwnHandle:
    """The fixture ``numbaprof``, as our own plugin is switched off here."""

    @pytest.fixture
    def numbaprof(self) -> None:
        """Be there to be asked for; see :meth:`_Worker.pytest_fixture_setup`."""


class _Benchmark:
    """What ``benchmark`` and ``numbaprof`` are in a test, as far as tests use them."""

    def __init__(self, meet: Callable[..., Any]) -> None:
        self._meet = meet
        self.extra_info: dict[str, Any] = {}
        self.group: str | None = None
        self.name = ""
        self.stats = None
        self.enabled = True

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Measure ``function(*args, **kwargs)`` and return its value."""
        return self._meet(lambda _: function(*args, **kwargs))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        **_: Any,
    ) -> Any:
        """Measure ``target`` with ``setup`` before and ``teardown`` after each call."""
        plan = _Pedantic(target, args, kwargs or {}, setup, teardown)
        return self._meet(plan.call, plan.prepare, plan.clean_up)

    def __enter__(self) -> _Benchmark:
        """Do nothing: a block cannot be repeated, so it is not measured."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class _Pedantic:
    """A call with a setup and a teardown around it, neither of them measured."""

    def __init__(
        self, target: Any, args: Any, kwargs: Any, setup: Any, teardown: Any
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs
        self._setup, self._teardown = setup, teardown

    def prepare(self) -> Any:
        made = self._setup() if self._setup else None
        return made or (self._args, self._kwargs)

    def call(self, prepared: Any) -> Any:
        args, kwargs = prepared
        return self._target(*args, **kwargs)

    def clean_up(self, prepared: Any) -> None:
        if self._teardown:
            args, kwargs = prepared
            self._teardown(*args, **kwargs)


# -- the worker ------------------------------------------------------------------------


class _Worker:
    """The hooks of one side."""

    def __init__(self) -> None:
        self._link = Link.connect(
            os.environ[ADDRESS], token=os.environ[TOKEN], side=os.environ[SIDE]
        )
        self._session: Session | None = None
        self._pad = _random_padding()
        self._errors: list[str] = []
        self._node = ""
        self._met = False
        self._outcomes: dict[str, tuple[str, str]] = {}
        self._names: dict[tuple[FunctionId, str], int] = {}
        self._born: list[tuple[int, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Begin to measure before the tests are imported, and the project with them."""
        from numbaprof.session import Session, SessionOptions

        options: dict[str, Any] = {
            "label": os.environ[SIDE],
            "compile_clock": "cpu",
            "prime": True,
        }
        if "fingerprints" in SessionOptions.__dataclass_fields__:
            options["fingerprints"] = True
        self._session = Session(SessionOptions(**options))
        self._session.start()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected."""
        if report.failed:
            self._errors.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave only tests that can be measured."""
        chosen = [item for item in items if _fixture_of(item)]
        config.hook.pytest_deselected(
            items=[item for item in items if not _fixture_of(item)]
        )
        items[:] = chosen

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say what there is; run what the other side has, too."""
        nodes = {item.nodeid: item for item in session.items}
        self._note_births("")
        self._link.send(collected=list(nodes), errors=self._errors)
        common = self._link.receive()["run"]
        session.items[:] = [nodes[name] for name in common]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember which test runs."""
        self._node, self._met = nodeid, False
        self._outcomes[nodeid] = ("passed", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember how it went."""
        if report.outcome != "passed":
            text = _last_line(report.longreprtext)
            self._outcomes[report.nodeid] = (report.outcome, text)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Say that the test has ended, measured or not."""
        self._note_births(nodeid)
        outcome, text = self._outcomes[nodeid]
        self._link.send(done=nodeid, outcome=outcome, text=text, met=self._met)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Take the fixtures over."""
        fixture = yield
        if fixturedef.argname not in FIXTURES:
            return fixture
        ours = _Benchmark(self._meet)
        if hasattr(fixture, "_raw") and hasattr(fixture, "_raw_pedantic"):
            # pytest-benchmark insists on its own class in its report hook.
            fixture._raw, fixture._raw_pedantic = ours.__call__, ours.pedantic
            return fixture
        if fixturedef.cached_result is not None:
            # Other fixtures may ask for it again.
            fixturedef.cached_result = (ours, *fixturedef.cached_result[1:])
        return ours

    def pytest_sessionfinish(self) -> None:
        """Stop measuring and send what is known at the end."""
        if self._session is None or not self._session.active:
            return
        result = self._session.stop()
        environment = result.processes[0].environment
        self._link.send(
            machine={
                name: getattr(environment, name)
                for name in (
                    "python", "numba", "llvmlite", "numpy", "numbaprof", "platform",
                    "cpu", "cpu_count", "numba_num_threads", "target",
                )
            } | {"id": _machine_id()},
            jit_disabled=environment.jit_disabled,
            overloads=_final_overloads(result),
            born=self._births(result),
            problems=list(result.losses.hook_errors),
        )  # fmt: skip
        self._link.close()

    # -- meeting the other side --------------------------------------------------------

    def _meet(
        self,
        call: Callable[[Any], Any],
        prepare: Callable[[], Any] | None = None,
        clean_up: Callable[[Any], None] | None = None,
    ) -> Any:
        """Run the rounds that we are told to; return the value of the last call."""
        rounds = _Rounds(self._required(), call, prepare, clean_up)
        if self._met:
            # A second use within one test: only the first one is measured.
            return rounds.run(1).value
        self._met = True
        warm_up = rounds.warm_up()
        self._link.send(ready=self._node, call_ns=rounds.estimate_ns(), warm_up=warm_up)
        value = rounds.value
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            while (message := self._link.receive()).get("go"):
                self._link.send(**self._reported(rounds.run(message["go"])))
                value = rounds.value
        finally:
            if collecting:
                gc.enable()
        return value

    def _required(self) -> Session:
        if self._session is None:
            raise RuntimeError("measuring has not begun; was collection skipped?")
        return self._session

    def _reported(self, rounds: _Rounds) -> dict[str, Any]:
        """Return a round as a message; overloads by number, new ones with a name."""
        rows = []
        names = []
        for key, (calls, ns) in rounds.rows.items():
            if key[0].module.startswith("numba.") or key[0].module == "numba":
                continue
            if key not in self._names:
                self._names[key] = len(self._names)
                names.append([self._names[key], *_identity(key)])
            rows.append([self._names[key], calls, round(ns, 1)])
        return {
            "wall_ns": rounds.wall_ns,
            "rows": rows,
            "names": names,
            "compiled": rounds.compiled,
        }

    # -- what was compiled when --------------------------------------------------------

    def _note_births(self, node: str) -> None:
        """Remember up to which event things were compiled in a test, "" for imports."""
        self._born.append((self._required().compile_count, node))

    def _births(self, result: Any) -> list[list[Any]]:
        """Return [function, signature, test] of what came into being, in order."""
        events = result.compile_events
        found = []
        first = 0
        for count, node in self._born:
            for event in events[first:count]:
                if event.event != "failed" and not event.internal:
                    found.append([*_identity((event.function, event.signature)), node])
            first = max(first, count)
        return found


class _Rounds:
    """Calls of one function, in rounds."""

    def __init__(
        self, session: Session, call: Any, prepare: Any, clean_up: Any
    ) -> None:
        self._session = session
        self._call, self._prepare, self._clean_up = call, prepare, clean_up
        self.value: Any = None
        self.wall_ns = 0
        self.elapsed_ns = 0
        """With setups, teardowns and the reading of counters between calls."""
        self.rows: dict[tuple[FunctionId, str], tuple[int, float]] = {}
        self.compiled = False

    def warm_up(self) -> int:
        """Call until a call compiles nothing; return the number of calls."""
        for number in range(1, MAX_WARMUP_CALLS + 1):
            before = self._session.compile_count
            self.run(1)
            if self._session.compile_count == before:
                return number
        return MAX_WARMUP_CALLS

    def estimate_ns(self) -> float:
        """Return about how long one call takes, from enough of them."""
        calls = 1
        while True:
            self.run(calls)
            if self.elapsed_ns >= CALIBRATION_NS or calls >= 1 << 20:
                return self.elapsed_ns / calls
            calls *= 4

    def run(self, calls: int) -> _Rounds:
        """Make one round of ``calls`` calls; return self."""
        compilations = self._session.compile_count
        start = time.perf_counter_ns()
        if self._prepare is None:
            self._run_plain(calls)
        else:
            self._run_prepared(calls)
        self.elapsed_ns = time.perf_counter_ns() - start
        self.compiled = self._session.compile_count != compilations
        return self

    def _run_plain(self, calls: int) -> None:
        call, value = self._call, None
        before = self._session.counters()
        start = time.perf_counter_ns()
        for _ in range(calls):
            value = call(None)
        self.wall_ns = time.perf_counter_ns() - start
        self.rows = _difference(before, self._session.counters())
        self.value = value

    def _run_prepared(self, calls: int) -> None:
        """Keep setup and teardown out of the times, call by call."""
        self.wall_ns = 0
        sums: dict[tuple[FunctionId, str], tuple[int, float]] = {}
        for _ in range(calls):
            prepared = self._prepare()
            before = self._session.counters()
            start = time.perf_counter_ns()
            self.value = self._call(prepared)
            self.wall_ns += time.perf_counter_ns() - start
            for key, row in _difference(before, self._session.counters()).items():
                old = sums.get(key, (0, 0.0))
                sums[key] = (old[0] + row[0], old[1] + row[1])
            self._clean_up(prepared)
        self.rows = sums


# -- facts -----------------------------------------------------------------------------


def _difference(
    before: dict[tuple[FunctionId, str], tuple[int, float]],
    after: dict[tuple[FunctionId, str], tuple[int, float]],
) -> dict[tuple[FunctionId, str], tuple[int, float]]:
    found = {}
    for key, (calls, ns) in after.items():
        old_calls, old_ns = before.get(key, (0, 0.0))
        if calls > old_calls:
            found[key] = (calls - old_calls, ns - old_ns)
    return found


def _identity(key: tuple[FunctionId, str]) -> list[Any]:
    """Return [module, qualname, file, line, instance, signature]."""
    function, signature = key
    return [
        function.module,
        function.qualname,
        os.path.abspath(function.file) if os.path.exists(function.file) else
        function.file,
        function.line,
        function.instance,
        signature,
    ]  # fmt: skip


def _final_overloads(result: Any) -> list[dict[str, Any]]:
    """Return what is known of each overload once the session has ended."""
    from numbaprof.schema import to_plain

    parallel = {
        info.function
        for info in result.dispatchers
        if ("parallel", "True") in info.options
    }
    return [
        {
            "key": _identity((o.function, o.signature)),
            "kind": o.kind,
            "parallel": o.function in parallel,
            "fingerprint": to_plain(o.fingerprint),
            "fingerprint_reason": o.fingerprint_reason,
            "compile_ns": o.compile_self_ns,
            "cached": o.cache_load_ns > 0,
            "not_countable_reason": o.not_countable_reason,
        }
        for o in result.overloads
        if not o.internal and o.origin not in ("internal", "none")
    ]


def _machine_id() -> str:
    """Return what tells this machine from others of its model, until it boots."""
    try:
        boot = BOOT_ID.read_text()
    except OSError:
        boot = ""
    text = f"{platform.node()} {boot}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _random_padding() -> list[bytes]:
    """Move the heap by a random amount, differently in every process."""
    draw = random.SystemRandom()
    return [
        bytes(draw.randrange(600, PAD_BYTES)) for _ in range(draw.randrange(PAD_BLOCKS))
    ]


def _fixture_of(item: pytest.Item) -> str:
    names = getattr(item, "fixturenames", ())
    return next((name for name in FIXTURES if name in names), "")


def _last_line(text: str) -> str:
    """Return the line of a traceback that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[2:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0][:300]
