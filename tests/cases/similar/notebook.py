import linecache

cells = {
    "<ipython-input-1-abc>": (
        "from numba import njit\n"
        "\n"
        "@njit\n"
        "def cell_function(x):\n"
        "    return x + 1\n"
        "print(cell_function(1), cell_function(2), cell_function(3))\n"
    ),
    "<ipython-input-2-abc>": (
        "@njit\ndef cell_function(x):\n    return x + 2\nprint(cell_function(1))\n"
    ),
}
namespace = {"__name__": "__main__"}
for name, source in cells.items():
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), namespace)
