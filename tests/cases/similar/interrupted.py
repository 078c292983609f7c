import os
import signal
import time

from numba import njit, objmode


@njit
def wait(seconds):
    with objmode():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(seconds)
    return seconds


try:
    wait(5)
except KeyboardInterrupt:
    print("caught one", flush=True)
wait(5)
