"""``python -m numbaprof``: the same as the command ``numbaprof``."""

import sys

from numbaprof.cli import main

# Multiprocessing imports the main module again in spawned children, under another name.
if __name__ == "__main__":
    sys.exit(main())
