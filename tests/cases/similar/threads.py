import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit


@njit(nogil=True)
def work(a):
    total = 0.0
    for i in range(a.size):
        total += a[i]
    return total


@njit
def race(x):
    return x + 1


def run(a):
    for _ in range(500):
        work(a)


workers = [
    threading.Thread(target=run, args=(np.ones(100),), name=f"worker-{i}")
    for i in range(4)
]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()

barrier = threading.Barrier(4)


def start_together(x):
    barrier.wait()
    return race(x)


with ThreadPoolExecutor(4) as pool:
    print(sorted(pool.map(start_together, range(4))))
    print(sorted(pool.map(race, range(4))))
    print(sum(pool.map(work, [np.ones(3)] * 7)))

timer = threading.Timer(0.01, lambda: print(work(np.ones(2))))
timer.start()
timer.join()
