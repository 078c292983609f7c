"""Names of libraries and their functions."""

from __future__ import annotations

import pytest

from numbaprof.native.native_symbols import (
    NativeSymbols,
    kind_of_library,
    short_name,
)


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/lib/x86_64-linux-gnu/libm.so.6", "libm", "system"),
        ("/lib64/ld-linux-x86-64.so.2", "ld-linux-x86-64", "system"),
        ("/usr/lib/libstdc++.so.6.0.30", "libstdc++", "system"),
        ("[vdso]", "vdso", "system"),
        ("/x/libscipy_openblas-6cdc3b4a.so", "libscipy_openblas", "native"),
        ("/x/libgomp.so.1.0.0", "libgomp", "native"),
        ("/x/_umath.cpython-313-x86_64-linux-gnu.so", "_umath", "native"),
        ("/x/_rust.abi3.so", "_rust", "native"),
        ("/usr/bin/python3.13", "python3.13", "python"),
        ("/opt/bin/python", "python", "python"),
        ("/usr/lib/libpython3.13.so.1.0", "libpython3.13", "python"),
        ("/x/llvmlite/binding/libllvmlite.so", "libllvmlite", "compiler"),
    ],
)
def test_library_has_a_short_name_and_a_kind(path, name, kind):
    """Versions, hashes of wheels and tags of extension modules are left out."""
    assert (short_name(path), kind_of_library(path)) == (name, kind)


def test_file_that_is_gone_has_no_names(tmp_path):
    """It was replaced or removed after it was loaded."""
    symbols = NativeSymbols(lambda pc: pc)
    assert symbols.name(100, str(tmp_path / "libgone.so"), 0) == ""


def test_file_that_is_no_library_has_no_names(tmp_path):
    """Whatever it holds."""
    path = tmp_path / "libtext.so"
    path.write_text("text")
    assert NativeSymbols(lambda pc: pc).name(100, str(path), 0) == ""
