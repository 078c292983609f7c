"""Find neighbours of handwritten digits with pynndescent.

An ordinary program: it knows nothing of numbaprof. It prints what it finds and a hash
of every array, so that two runs can be compared to the bit. The digits are those that
come with scikit-learn.
"""

from __future__ import annotations

import hashlib

import numpy as np
from pynndescent import NNDescent
from sklearn.datasets import load_digits

N_NEIGHBORS = 10
N_QUERIES = 297


def digest(array: np.ndarray) -> str:
    """Return a short hash of an array's values and type."""
    array = np.ascontiguousarray(array)
    content = f"{array.dtype}{array.shape}".encode() + array.tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    """Index most of the digits, classify the others by their neighbours."""
    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    known, asked = images[:-N_QUERIES], images[-N_QUERIES:]

    index = NNDescent(known, n_neighbors=N_NEIGHBORS, random_state=3)
    graph_indices, graph_distances = index.neighbor_graph
    print("graph", digest(graph_indices), digest(graph_distances))

    indices, distances = index.query(asked, k=N_NEIGHBORS)
    print("query", digest(indices), digest(distances))

    votes = labels[:-N_QUERIES][indices]
    guesses = np.array([np.bincount(row, minlength=10).argmax() for row in votes])
    right = int(np.sum(guesses == labels[-N_QUERIES:]))
    print(f"{right} of {N_QUERIES} digits recognized")

    exact = np.linalg.norm(known[None, :, :] - asked[:, None, :], axis=2)
    nearest = np.argsort(exact, axis=1, kind="stable")[:, :N_NEIGHBORS]
    found = sum(
        len(set(a) & set(b)) for a, b in zip(indices.tolist(), nearest, strict=True)
    )
    print(f"{found / nearest.size:.1%} of the true neighbours found")


if __name__ == "__main__":
    main()
