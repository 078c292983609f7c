"""Starting Numba's compiler before anything is measured.

Numba loads its implementations of types and functions when the first function that
needs them is compiled: about two seconds of CPU, which else are charged to whatever
test or function comes first. Scalars alone load only half of it. An allocation, a
reduction and an expression of arrays load the rest: the first expression alone costs
another 0.1 s (``docs/pytest.md`` has figures). Typed containers are left to the first
user: 0.04 s would be spared and 1 s spent.
"""

from __future__ import annotations

import numba
import numpy as np

from numbaprof.native import numba_api

__all__ = ["prime"]

_primed = False


def prime() -> None:
    """Compile a small array function, once per process.

    Nothing stays behind but what Numba keeps for itself: the function is dropped, no
    file is written. Does nothing while jit is disabled.
    """
    global _primed
    if _primed or numba_api.jit_is_disabled():
        return
    _primed = True

    def total(values):  # type: ignore[no-untyped-def]  # a kernel is typed by Numba
        rest = np.zeros(values.shape[0])
        return (values * 2.0 + np.sqrt(rest)).sum() + values[0]

    numba.njit(total).compile((numba.float64[::1],))
