"""Find a planted pattern in a random walk, and odd years of the Nile, with stumpy.

An ordinary program: it knows nothing of numbaprof. It prints what it finds and a hash
of every array, so that two runs can be compared to the bit.

    python matrix_profile.py NILE.csv
"""

from __future__ import annotations

import csv
import hashlib
import sys

import numpy as np
import stumpy

LENGTH = 3000
WINDOW = 60
FIRST, SECOND = 500, 2100


def digest(array: np.ndarray) -> str:
    """Return a short hash of an array's values and type."""
    array = np.ascontiguousarray(array)
    if array.dtype == object:
        array = array.astype(np.float64)
    content = f"{array.dtype}{array.shape}".encode() + array.tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    """Run the calls that stumpy's tutorial begins with."""
    rng = np.random.default_rng(7)
    walk = np.cumsum(rng.standard_normal(LENGTH))
    pattern = 8 * np.sin(np.linspace(0, 6 * np.pi, WINDOW))
    walk[FIRST : FIRST + WINDOW] = walk[FIRST] + pattern
    walk[SECOND : SECOND + WINDOW] = walk[SECOND] + pattern

    profile = stumpy.stump(walk, WINDOW)
    distances = profile[:, 0].astype(np.float64)
    first = int(np.argmin(distances))
    print("closest pair at", sorted((first, int(profile[first, 1]))))
    print("stump", digest(profile))

    distances, indices = stumpy.motifs(walk, distances, max_motifs=2)
    print("motifs", digest(distances), digest(indices))

    stream = stumpy.stumpi(walk[:500], WINDOW, egress=False)
    for value in walk[500:520]:
        stream.update(value)
    print("stumpi", digest(stream.P_), digest(stream.I_))

    many, _ = stumpy.mstump(np.vstack([walk[:600], walk[600:1200]]), WINDOW)
    print("mstump", digest(many))

    with open(sys.argv[1], newline="") as file:
        rows = [(int(row["year"]), float(row["flow"])) for row in csv.DictReader(file)]
    years, flows = zip(*rows, strict=True)
    nile = stumpy.stump(np.array(flows), 10)
    odd = int(np.argmax(nile[:, 0].astype(np.float64)))
    print(f"Nile: the oddest ten years begin in {years[odd]}")
    print("stump of the Nile", digest(nile))


if __name__ == "__main__":
    main()
