import cProfile
import pstats
import sys
import threading

from numba import njit


@njit
def kernel(x):
    return x + 1


kernel(0)


def loop():
    for i in range(10):
        kernel(i)


seen = []


def trace(frame, event, argument):
    seen.append((event, frame.f_code.co_name))
    return trace


sys.settrace(trace)
loop()
sys.settrace(None)
print(len(seen), sorted(set(seen)))

seen.clear()
sys.setprofile(
    lambda frame, event, argument: seen.append((event, frame.f_code.co_name))
)
loop()
sys.setprofile(None)
print(len(seen), sorted(set(seen)))

profiler = cProfile.Profile()
profiler.runcall(loop)
print(sorted((key[2], row[0]) for key, row in pstats.Stats(profiler).stats.items()))

threading.setprofile(lambda *arguments: None)
thread = threading.Thread(target=loop)
thread.start()
thread.join()
threading.setprofile(None)

if sys.version_info >= (3, 12):
    monitoring, lines = sys.monitoring, []
    monitoring.use_tool_id(3, "coverage-like")
    monitoring.register_callback(
        3, monitoring.events.LINE, lambda code, line: lines.append(code.co_name)
    )
    monitoring.register_callback(
        3, monitoring.events.CALL, lambda code, *rest: lines.append(f"{code.co_name}()")
    )
    monitoring.set_events(3, monitoring.events.LINE | monitoring.events.CALL)
    loop()
    monitoring.set_events(3, 0)
    monitoring.free_tool_id(3)
    seen = lines
else:
    loop()
    seen = []
print(len(seen), sorted(set(map(str, seen))))
