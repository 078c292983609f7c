import signal

from numba import njit, objmode


def interrupt(n):
    signal.raise_signal(signal.SIGINT)
    # Python looks for signals in its own code, not while it is in the compiled block.
    for _ in range(n):
        pass


@njit
def wait(n):
    with objmode():
        interrupt(n)
    return n


try:
    wait(1_000_000)
except KeyboardInterrupt:
    print("caught one", flush=True)
wait(1_000_000)
