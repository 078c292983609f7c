import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

from numba import njit


@njit
def kernel(x):
    return x + 1


if __name__ == "__main__":
    print(kernel(0), flush=True)
    if sys.argv[1:] == ["child"]:
        print(kernel(1), flush=True)
        sys.exit()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        print(sorted(pool.map(kernel, range(4))), flush=True)
    pid = os.fork()
    if pid == 0:
        kernel(7)
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    subprocess.run([sys.executable, __file__, "child"], check=True)
