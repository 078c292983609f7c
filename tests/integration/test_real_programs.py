"""Programs built on stumpy and pynndescent, plain and under ``numbaprof run``.

What is asserted are facts about these libraries that their maintainers could use, and
call counts that follow from the programs' parameters.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from numbaprof import store
from numbaprof.analysis import explain_overloads, find, payback_calls, summarize
from numbaprof.check import violations

if TYPE_CHECKING:
    from numbaprof.analysis import Summary
    from numbaprof.model import CompileEvent, OverloadStats, ProfileResult

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 3600
"""Only ends what hangs."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real programs")]


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip what cannot run here, and say how it could."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    reason = f"needs {', '.join(missing)}; install the extra `integration`"
    return pytest.mark.skipif(bool(missing), reason=reason)


@dataclass(frozen=True)
class Runs:
    """One program run both ways, first without numbaprof."""

    plain: str
    """What it printed."""
    profiled: str
    result: ProfileResult

    @property
    def summary(self) -> Summary:
        """The figures of the report's first lines."""
        return summarize(self.result)

    def overloads(self, qualname: str) -> list[OverloadStats]:
        """Return all overloads of a function."""
        return [o for o in self.result.overloads if o.function.qualname == qualname]

    def overload(self, qualname: str) -> OverloadStats:
        """Return the only overload of a function."""
        (found,) = self.overloads(qualname)
        return found

    def events(self, qualname: str) -> list[CompileEvent]:
        """Return what happened to a function, in order."""
        events = self.result.compile_events
        return [event for event in events if event.function.qualname == qualname]

    def root(self, event: CompileEvent) -> CompileEvent:
        """Return the outermost compilation that one is a part of."""
        while event.parent >= 0:
            event = self.result.compile_events[event.parent]
        return event


def run_both_ways(folder: Path, *program: str | Path) -> Runs:
    """Run a program plain, which fills the folder's cache, then under numbaprof."""
    environment = {
        **{key: value for key, value in os.environ.items() if "NUMBAPROF" not in key},
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "NUMBA_NUM_THREADS": "2",
    }
    profile = folder / "profile.json"

    def run(*arguments: str | Path) -> str:
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        ).stdout

    plain = run(*program)
    profiled = run("-m", "numbaprof", "run", "-q", "-o", profile, *program)
    return Runs(plain, profiled, store.load(profile))


@pytest.fixture(scope="module")
def matrix_profile(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run the program that uses stumpy."""
    folder = tmp_path_factory.mktemp("stumpy")
    nile = ROOT / "examples" / "nile.csv"
    return run_both_ways(folder, PROGRAMS / "matrix_profile.py", nile)


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run the program that uses pynndescent."""
    folder = tmp_path_factory.mktemp("pynndescent")
    return run_both_ways(folder, PROGRAMS / "nearest_neighbours.py")


def assert_sound(runs: Runs) -> None:
    """Nothing was lost, nothing contradicts itself."""
    losses = runs.result.losses
    assert violations(runs.result) == ()
    assert (losses.hook_errors, losses.unattached, losses.unrestored) == ((), (), ())
    assert (losses.in_flight_calls, losses.truncated_contexts) == (0, 0)
    summary = runs.summary
    parts = (
        summary.compile_ns
        + summary.cache_load_ns
        + summary.cache_miss_ns
        + summary.dispatch_ns
        + summary.kernel_ns
        + summary.failed_dispatch_ns
        + summary.rest_ns
    )
    assert parts == summary.wall_ns
    assert summary.rest_ns > 0


# -- stumpy ----------------------------------------------------------------------------


@needs("stumpy")
def test_stumpy_computes_the_same_to_the_bit(matrix_profile):
    """Hashes of all arrays agree, and the planted pattern is found."""
    assert matrix_profile.profiled == matrix_profile.plain
    assert matrix_profile.plain.startswith("closest pair at [500, 2100]\n")


@needs("stumpy")
def test_profile_of_stumpy_is_sound(matrix_profile):
    """Figures agree with each other."""
    assert_sound(matrix_profile)


@needs("stumpy")
def test_calls_into_stumpy_are_those_that_follow_from_the_program(matrix_profile):
    """20 updates of a stream; one call per step over 600 - 60 + 1 subsequences."""
    assert matrix_profile.overload("_update_incremental_PI").calls == 20
    assert matrix_profile.overload("_compute_multi_D").calls == 540
    # Called by stumpy.stump twice, and once to begin the stream.
    assert matrix_profile.overload("_stump").calls == 3


@needs("stumpy")
def test_stumpy_compiles_in_its_functions_and_not_at_import(matrix_profile):
    """What ``_stump`` costs is asked for by one line of ``stumpy.stump``."""
    compiles = matrix_profile.summary.compiles
    assert compiles.import_ns == 0
    assert compiles.cache_loads == 0
    (event,) = matrix_profile.events("_stump")
    assert event.trigger is not None
    assert (event.trigger.module, event.trigger.function) == ("stumpy.stump", "stump")
    assert matrix_profile.summary.by_module[0].module == "stumpy.stump"


@needs("stumpy")
def test_stumpy_compiles_for_longer_than_it_runs(matrix_profile):
    """``_stump`` would have to be called more often than it was to pay back."""
    summary = matrix_profile.summary
    assert summary.compile_ns > summary.kernel_ns
    overload = matrix_profile.overload("_stump")
    payback = payback_calls(overload)
    assert payback is not None
    assert overload.calls is not None
    assert payback > overload.calls
    slugs = {
        finding.slug
        for finding in find(matrix_profile.result)
        if finding.function == overload.function
    }
    assert slugs == {"compile-exceeds-run"}


@needs("stumpy")
def test_what_a_parallel_loop_of_stumpy_calls_is_not_called_unused(matrix_profile):
    """``_compute_diagonal`` runs in the body of a ``prange`` of ``_stump``.

    There the thread's number is unsigned. The overload that Numba compiles while it
    infers the types of ``_stump`` takes a signed one and is linked by nobody.
    """
    assert matrix_profile.summary.never_called == ()
    signed, unsigned = matrix_profile.overloads("_compute_diagonal")
    assert (signed.calls, signed.not_countable_reason) == (0, "")
    assert not unsigned.countable
    assert unsigned.not_countable_reason == (
        "calls from compiled code (`_stump`) cannot be counted"
    )


@needs("stumpy")
def test_reason_why_stumpy_compiles_a_diagonal_twice_is_named(matrix_profile):
    """The thread's number is an int64 in one call of it and a uint64 in another."""
    reasons = explain_overloads(matrix_profile.result)
    found = {
        reason
        for overload, reason in zip(
            matrix_profile.result.overloads, reasons, strict=True
        )
        if overload.function.qualname == "_compute_diagonal"
    }
    assert found == {
        "compiled for `_stump`",
        "compiled again because of `thread_idx`: dtype int64 to uint64",
    }


# -- pynndescent -----------------------------------------------------------------------


@needs("pynndescent", "sklearn")
def test_pynndescent_computes_the_same_to_the_bit(neighbours):
    """Hashes of all arrays agree, and digits are recognized."""
    assert neighbours.profiled == neighbours.plain
    assert "of 297 digits recognized" in neighbours.plain


@needs("pynndescent", "sklearn")
def test_profile_of_pynndescent_is_sound(neighbours):
    """Figures agree with each other."""
    assert_sound(neighbours)


@needs("pynndescent", "sklearn")
def test_all_that_pynndescent_compiles_again_is_for_one_function(neighbours):
    """``nn_descent`` takes a function, whose type is new in every process."""
    compiled = [e for e in neighbours.result.compile_events if e.event == "compile"]
    roots = {neighbours.root(event).function.qualname for event in compiled}
    assert roots == {"nn_descent"}
    (event,) = neighbours.events("nn_descent")
    assert event.trigger is not None
    # Code objects know their class from Python 3.11 on.
    assert event.trigger.function.rpartition(".")[2] == "__init__"
    assert event.trigger.module == "pynndescent.pynndescent_"
    assert not event.at_import
    kinds = [arg.kind for arg in neighbours.overload("nn_descent").args]
    assert "function" in kinds


@needs("pynndescent", "sklearn")
def test_advice_on_pynndescent_names_what_prevents_caching(neighbours):
    """The dearest finding is about ``nn_descent`` and its argument ``dist``."""
    finding = find(neighbours.result)[0]
    assert finding.slug == "compile-exceeds-run"
    assert finding.function is not None
    assert finding.function.qualname == "nn_descent"
    assert "the type of `dist` is a new one in each" in finding.try_


@needs("pynndescent", "sklearn")
def test_what_pynndescent_loads_at_import_is_charged_to_its_modules(neighbours):
    """Signatures in decorators are loaded by the modules that hold them."""
    loads = [e for e in neighbours.result.compile_events if e.event == "cache_load"]
    modules = {event.import_module for event in loads if event.at_import}
    assert {"pynndescent.rp_trees", "pynndescent.utils"} <= modules
    compiles = neighbours.summary.compiles
    assert 0 < compiles.import_ns < compiles.cache_load_ns
    assert compiles.import_compile_ns == 0


@needs("pynndescent", "sklearn")
def test_what_pynndescent_loads_and_never_calls_is_counted(neighbours):
    """A search in float32 needs no bit trees and no quantized distances."""
    unused = {
        neighbours.result.overloads[index].function.qualname
        for index in neighbours.summary.never_called
    }
    assert {"make_bit_hub_tree_recursive", "select_side_bit"} & unused
    assert "nn_descent" not in unused


@needs("pynndescent", "sklearn")
def test_calls_that_pass_by_the_dispatcher_are_counted(neighbours):
    """A query goes to the overload's entry point, which spares it the dispatch."""
    overload = neighbours.overload("search_dense_sqeuclidean")
    assert overload.calls
    assert overload.dispatch_ns == 0
