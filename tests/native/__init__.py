"""Tests of ``numbaprof/native``; a package, since two modules are called ``layout``."""
