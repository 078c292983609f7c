import os

os.environ["NUMBA_NUM_THREADS"] = "2"

import numba
import numpy as np


@numba.njit
def read(a, i):
    return a[i]


print(read(np.arange(3), 1))
try:
    read(np.arange(3), 7)
except IndexError as error:
    print(type(error).__name__)
print(numba.config.NUMBA_NUM_THREADS, numba.get_num_threads())
