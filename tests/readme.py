"""Read what README.md shows: its commands and the output of the example.

``python tests/readme.py`` runs the example again and renews the output in README.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
EXAMPLE = "examples/nile.py"
BEGIN, END = "<!-- example output: begin -->\n", "<!-- example output: end -->\n"


@dataclass(frozen=True)
class ExampleRun:
    """One run of ``numbaprof run`` on the example."""

    stdout: str
    report: str
    profile: Path


def command(name: str) -> str:
    """Return the command that README.md shows under ``<!-- command: name -->``."""
    block = re.search(
        rf"^<!-- command: {name} -->\n```sh\n(.*?)^```$",
        README.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert block is not None, f"README.md has no command {name!r}"
    return block[1]


def example_output() -> str:
    """Return the example's report as README.md shows it."""
    _, _, rest = README.read_text().partition(BEGIN)
    shown, _, _ = rest.partition(END)
    return shown.removeprefix("```console\n").removesuffix("```\n")


def run_example(folder: Path) -> ExampleRun:
    """Profile the example in a process of its own.

    Twice, since a run that writes a file prints no report.

    Parameters
    ----------
    folder : Path
        Where to put the profile.
    """
    profile = folder / "nile.numbaprof.json"
    environment = os.environ | {
        "COLUMNS": "88",
        "NO_COLOR": "1",
    }
    # The example caches nothing, and the report lists every setting of Numba.
    environment.pop("NUMBA_CACHE_DIR", None)
    shown, _ = (
        subprocess.run(
            [sys.executable, "-m", "numbaprof", "run", *options, EXAMPLE],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        for options in ([], ["-o", str(profile)])
    )
    return ExampleRun(shown.stdout, shown.stderr, profile)


def main() -> None:
    """Put the output of a new run into README.md."""
    with tempfile.TemporaryDirectory() as folder:
        run = run_example(Path(folder))
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [line.rstrip() for line in run.report.strip("\n").splitlines()]
    printed = run.stdout.splitlines()
    block = "\n".join(
        ["```console", f"$ numbaprof run {EXAMPLE}", *printed, *lines, "```", ""]
    )
    README.write_text(before + BEGIN + block + END + after)


if __name__ == "__main__":
    main()
