"""Profile one program with cProfile and with ``numbaprof.Profile``, in one process.

    python two_tables.py OUT.json PROGRAM.py [ARGUMENT]...

``main()`` of the program runs twice unprofiled, so that everything is compiled and all
caches of Python code are full, and then once under each profiler. The file gets both
tables without their times, as a list each of [file, line, name, primitive calls, calls,
callers], with callers as a list of [file, line, name, calls, primitive calls].
"""

from __future__ import annotations

import cProfile
import gc
import io
import json
import pstats
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

from numbaprof import Profile
from numbaprof.native.numba_api import first_line

OWN_ROW = "_lsprof.Profiler"
"""The call that ends profiling."""


def table(profile: cProfile.Profile) -> list[list[object]]:
    """Return the table of a profile without times."""
    stats = pstats.Stats(profile).stats
    return [
        [*key, primitive, calls, [[*who, *edge[:2]] for who, edge in callers.items()]]
        for key, (primitive, calls, _, _, callers) in stats.items()
        if OWN_ROW not in key[2]
    ]


def main(out: str, program: str, *arguments: str) -> None:
    """Write both tables."""
    sys.argv = [program, *arguments]
    run = runpy.run_path(program)["main"]
    ours = Profile(signatures=False)
    tables = {}
    gc.disable()
    with redirect_stdout(io.StringIO()):
        run()
        run()
        for name, profile in (("cProfile", cProfile.Profile()), ("numbaprof", ours)):
            profile.enable()
            run()
            profile.disable()
            tables[name] = table(profile)
    tables["backend"] = [ours.backend, ours.reason]
    tables["compiled"] = [
        [file, first_line(file, line), name.rpartition(".")[2]]
        for file, line, name in {
            (o.function.file, o.function.line, o.function.qualname)
            for o in ours.result.overloads
        }
    ]
    Path(out).write_text(json.dumps(tables))


if __name__ == "__main__":
    main(*sys.argv[1:])
