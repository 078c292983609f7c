"""The plugin for pytest: compile report, budgets, companion of pytest-benchmark.

pytest loads this module in every run of every project that has numbaprof installed, so
it imports nothing but pytest itself. What does the work is imported when
``--numbaprof`` is given, or when a collected test has the marker or the fixture
``numbaprof``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from numbaprof.pytest_fixture import BudgetPlugin, Measured
    from numbaprof.pytest_recording import Recording

__all__: list[str] = []

MARKER = """\
numbaprof(max_overloads=, no_compile=, max_compile_s=, no_cache_miss=, \
no_object_mode=, vectorized=, min_vector_bits=, warmup=): budgets for what the test \
may compile with Numba and must have; it fails when it is over one"""

_RECORDING: pytest.StashKey[Recording] = pytest.StashKey()
_BUDGETS: pytest.StashKey[BudgetPlugin] = pytest.StashKey()

DEFAULT_TOP = 10
"""Tests that the report lists, unless told otherwise."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add = parser.getgroup("numbaprof", "compilations of Numba, test by test").addoption
    add(
        "--numbaprof",
        action="store_true",
        default=False,
        help="report which test compiled what with Numba, why and for how long, and "
        "give the overloads of each benchmark a table",
    )
    add(
        "--numbaprof-fail-on-compile",
        action="store_true",
        default=False,
        help="fail tests during whose call something compiles, once all tests marked "
        "numbaprof(warmup=True) have run; fixtures may compile; implies --numbaprof",
    )
    add(
        "--numbaprof-save",
        metavar="FILE",
        default=None,
        help="save the profile of the run (of all workers) in FILE, for `numbaprof "
        "report FILE`; implies --numbaprof",
    )
    add(
        "--numbaprof-top",
        type=int,
        metavar="N",
        default=DEFAULT_TOP,
        help="tests to list in the report (default: %(default)s)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to measure before a conftest file imports Numba."""
    if _is_asked_for(early_config):
        _begin(early_config)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; begin, if that has not happened yet."""
    config.addinivalue_line("markers", MARKER)
    if _is_asked_for(config):
        from numbaprof import pytest_run

        pytest_run.register(config, _begin(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Get ready to judge, if any test has budgets or wants to be measured."""
    if any(
        "numbaprof" in getattr(item, "fixturenames", ())
        or item.get_closest_marker("numbaprof")
        for item in items
    ):
        _budgets_of(config)


@pytest.fixture
def numbaprof(request: pytest.FixtureRequest) -> Measured:
    """Measure what is called through it: ``numbaprof(func, *args)`` returns the value.

    ``with numbaprof:`` measures a block. ``numbaprof.result``, ``.stats``,
    ``.compiles``, ``.findings`` and ``.report()`` are those of a profile. Budgets of
    the marker ``numbaprof`` hold for what was measured.
    """
    return _budgets_of(request.config).handle(request.node)


def _is_asked_for(config: pytest.Config) -> bool:
    options = config.known_args_namespace
    if hasattr(config, "option") and hasattr(config.option, "numbaprof"):
        options = config.option
    return bool(
        options.numbaprof
        or options.numbaprof_fail_on_compile
        or options.numbaprof_save is not None
    )


def _begin(config: pytest.Config) -> Recording:
    """Return the recording of this run, begun at the first call."""
    recording = config.stash.get(_RECORDING, None)
    if recording is None:
        from numbaprof import pytest_run

        recording = config.stash[_RECORDING] = pytest_run.begin()
        # However the run ends, even before it has begun.
        config.add_cleanup(recording.close)
    return recording


def _budgets_of(config: pytest.Config) -> BudgetPlugin:
    """Return the plugin that judges, registered at the first call."""
    plugin = config.stash.get(_BUDGETS, None)
    if plugin is None:
        from numbaprof.pytest_fixture import BudgetPlugin
        from numbaprof.pytest_recording import Recording

        recording = config.stash.get(_RECORDING, None)
        if recording is None:
            recording = config.stash[_RECORDING] = Recording(background=False)
        plugin = config.stash[_BUDGETS] = BudgetPlugin(recording)
        config.pluginmanager.register(plugin, "numbaprof-budgets")
    return plugin
