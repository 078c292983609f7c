"""Runs pytest with the plugin of numbaprof in a process of its own."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from running import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from running import Run

# Loaded twice, once by name and once by its entry point, it would be refused.
PLUGIN = (
    ()
    if entry_points(group="pytest11", name="numbaprof")
    else ("-p", "numbaprof.pytest_plugin")
)


class Suite:
    """A test-suite in a folder of its own.

    Parameters
    ----------
    folder : Path
        An empty folder.
    **files : str
        Source of test modules by name, without ``.py``.
    """

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        self._runner = Runner(folder, fake=False)
        # This pytest's own settings, and that this process may be one of its workers.
        for name in [*self._runner.environment]:
            if name.startswith("PYTEST"):
                del self._runner.environment[name]
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        for name, source in files.items():
            self._runner.write(source, f"{name}.py")

    def run(self, *arguments: str, **environment: str) -> Run:
        """Run pytest on it."""
        return self._runner.python(
            *("-m", "pytest", "-rA", "-p", "no:cacheprovider", *PLUGIN),
            *arguments,
            environment=environment,
        )

    def python(self, *arguments: str) -> Run:
        """Run Python in its folder."""
        return self._runner.python(*arguments)

    def run_profiled(self, *arguments: str) -> Run:
        """Run pytest under ``numbaprof run``."""
        return self._runner.profile(
            *("-m", "pytest", "-p", "no:cacheprovider", *PLUGIN), *arguments
        )


def outcomes(run: Run) -> dict[str, str]:
    """Return the outcome by name of the test, from the lines of ``-rA``."""
    found = {}
    for line in run.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL"):
            found[rest.partition(" - ")[0].rpartition("::")[2]] = word
    return found
