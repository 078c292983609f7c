"""Gives every Python process of a test the false session and the start-up file."""

import importlib.abc
import importlib.machinery
import os
import site
import sys


class FakeSessionFinder(importlib.abc.MetaPathFinder):
    """Finds ``fake_session`` where ``numbaprof.session`` is looked for."""

    def find_spec(self, name, path, target=None):
        """Return the spec of the false session for the name of the real one."""
        if name != "numbaprof.session":
            return None
        file = os.path.join(os.path.dirname(__file__), "fake_session.py")
        loader = importlib.machinery.SourceFileLoader(name, file)
        return importlib.machinery.ModuleSpec(name, loader, origin=file)


sys.meta_path.insert(0, FakeSessionFinder())
if "FAKE_SITE" in os.environ:
    site.addsitedir(os.environ["FAKE_SITE"])
