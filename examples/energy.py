"""Line by line: where the time of a small kernel goes."""

import numba
import numpy as np

import numbaprof


@numba.njit
def distance(a, b):
    """Return the distance of two points."""
    return np.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)


@numba.njit
def energy(points, decay):
    """Sum what each pair of near points adds."""
    total = 0.0
    for i in range(points.shape[0]):
        for j in range(i):
            r = distance(points[i], points[j])
            if r < 0.5:
                total += np.exp(-decay * r) / r
    return total


points = np.random.default_rng(7).random((20_000, 2))
p = numbaprof.lines(energy, hits=True)
p(points, 3.0)
print(p)
