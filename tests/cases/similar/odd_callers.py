import asyncio
import faulthandler
import gc
import signal

from numba import njit

faulthandler.enable()


@njit
def kernel(x):
    return x + 1


async def step(x):
    await asyncio.sleep(0)
    return kernel(x)


async def main():
    print(await asyncio.gather(*(step(i) for i in range(3))))
    print(await asyncio.gather(*(asyncio.to_thread(kernel, i) for i in range(3))))


asyncio.run(main())

gc.disable()
print(kernel(1))
gc.freeze()
print(kernel(2))
gc.enable()


def on_alarm(number, frame):
    print("alarm", kernel(number))


signal.signal(signal.SIGALRM, on_alarm)
signal.raise_signal(signal.SIGALRM)


class Finalized:
    def __del__(self):
        print("finalized", kernel(10))


del [Finalized()][0]

print(eval("kernel(3)"))
print(kernel.__call__(4))
