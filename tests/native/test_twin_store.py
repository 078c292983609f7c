"""Twins on disk: found again, and never believed when something does not fit."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from numba import njit

from numbaprof.native import objcode, twin_store, twins
from numbaprof.native.linetable import LineTables
from numbaprof.native.twin_store import MAGIC, TwinStore, cache_folder

LATER = time.time() + 1e6
"""A process that begins then trusts every file there is."""


def function_of(path, constant=3):
    """Return a function that a file of its own defines."""
    path.write_text(f"def f(x):\n    return x * {constant} + 1\n")
    space = {"__name__": "stored"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return space["f"]


@pytest.fixture
def made(tmp_path):
    """Return (source file, code without lines, code with lines)."""
    source = tmp_path / "source.py"
    found = []
    for tables in (None, LineTables()):
        compiled = njit(function_of(source))
        if tables is not None:
            tables.start()
        compiled(1)
        if tables is not None:
            tables.stop()
        (cres,) = compiled.overloads.values()
        symbol = cres.fndesc.llvm_func_name
        found.append(objcode.load_objects().with_symbol(symbol))
    return source, *found


def store(tmp_path, started=LATER):
    """Return a store as another process would open it."""
    return TwinStore(tmp_path / "cache", started=started)


def only_file(tmp_path):
    """Return the one file in the store."""
    (path,) = (tmp_path / "cache" / "twins").iterdir()
    return path


def test_twin_is_found_again(tmp_path, made):
    """Another process gets the object file, its lines included."""
    _, original, twin = made
    assert store(tmp_path).save(original, ["f"], twin) == ""
    loaded = store(tmp_path).load(original, ["f"])
    assert loaded.text == twin.text
    assert loaded.rows().lines().keys() == twin.rows().lines().keys()
    assert oct(only_file(tmp_path).parent.stat().st_mode & 0o777) == "0o700"


def test_equal_code_of_another_function_is_not_found(tmp_path, made):
    """The identity is a part of the key."""
    _, original, twin = made
    store(tmp_path).save(original, ["f"], twin)
    assert store(tmp_path).load(original, ["g"]) is None


def test_changed_source_is_noticed(tmp_path, made):
    """A line above moves all lines and leaves the code as it is."""
    source, original, twin = made
    store(tmp_path).save(original, ["f"], twin)
    source.write_text("# new\n" + source.read_text())
    assert store(tmp_path).load(original, ["f"]) is None


def test_source_that_is_gone_is_noticed(tmp_path, made):
    """Nobody can tell what it was."""
    source, original, twin = made
    store(tmp_path).save(original, ["f"], twin)
    source.unlink()
    assert store(tmp_path).load(original, ["f"]) is None


def test_source_changed_after_the_process_began_is_not_trusted(tmp_path, made):
    """What runs was read before; whether it was the same, nobody knows."""
    _, original, twin = made
    assert "changed" in store(tmp_path, started=1.0).save(original, ["f"], twin)
    assert not (tmp_path / "cache").exists()


def test_unknown_start_of_the_process_trusts_nothing(tmp_path, made, monkeypatch):
    """Where there is no /proc, twins are not kept."""
    _, original, twin = made
    monkeypatch.setattr(twin_store, "process_started", lambda: None)
    assert TwinStore(tmp_path).save(original, ["f"], twin) != ""


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: b"x" + data,
        lambda data: MAGIC,
        lambda data: MAGIC + b"[]\n",
        lambda data: MAGIC + b"{}\n" + data,
        lambda data: MAGIC + b"not json\n" + data,
        lambda data: MAGIC + b'{"files": 3, "numba": 1, "sha256": 2}\n',
        lambda data: data[:-100] + bytes(100),
        lambda data: data.replace(b'"numba": "', b'"numba": "0'),
    ],
)
def test_damaged_or_foreign_file_is_no_twin(tmp_path, made, damage):
    """Nothing is read of it, nothing raises, and it is replaced by the next save."""
    _, original, twin = made
    store(tmp_path).save(original, ["f"], twin)
    path = only_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert store(tmp_path).load(original, ["f"]) is None
    store(tmp_path).save(original, ["f"], twin)
    assert store(tmp_path).load(original, ["f"]) is not None


def test_file_that_is_no_object_is_no_twin(tmp_path, made):
    """Also where the digest is right."""
    _, original, twin = made
    store(tmp_path).save(original, ["f"], twin)
    path = only_file(tmp_path)
    content = b"no object"
    header = json.loads(path.read_bytes()[len(MAGIC) :].partition(b"\n")[0])
    header["sha256"] = twin_store.hashlib.sha256(content).hexdigest()
    path.write_bytes(MAGIC + json.dumps(header).encode() + b"\n" + content)
    assert store(tmp_path).load(original, ["f"]) is None


def test_folder_that_cannot_be_written_is_a_reason(tmp_path, made):
    """Nothing is kept, nothing raises."""
    _, original, twin = made
    (tmp_path / "cache").write_text("a file")
    assert store(tmp_path).save(original, ["f"], twin) != ""
    assert store(tmp_path).load(original, ["f"]) is None


def test_no_folder_keeps_nothing(made):
    """That is what an empty variable asks for."""
    _, original, twin = made
    nowhere = TwinStore(None, started=LATER)
    assert nowhere.save(original, ["f"], twin) == ""
    assert nowhere.load(original, ["f"]) is None


def test_oldest_are_deleted(tmp_path, made, monkeypatch):
    """The folder does not grow for ever."""
    _, original, twin = made
    monkeypatch.setattr(twin_store, "MAX_FILES", 2)
    for number in range(3):
        store(tmp_path).save(original, [number], twin)
        for path in (tmp_path / "cache" / "twins").iterdir():
            os.utime(path, (path.stat().st_mtime - 10,) * 2)
    assert store(tmp_path).load(original, [0]) is None
    assert store(tmp_path).load(original, [2]) is not None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NUMBAPROF_CACHE_DIR": "/a/b"}, Path("/a/b")),
        ({"NUMBAPROF_CACHE_DIR": ""}, None),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/numbaprof")),
        ({"XDG_CACHE_HOME": "relative"}, Path("/home/me/.cache/numbaprof")),
        ({}, Path("/home/me/.cache/numbaprof")),
    ],
)
@pytest.mark.linux
def test_folder_follows_the_environment(monkeypatch, environment, expected):
    """First our own variable, then the platform's rule."""
    for name in ("NUMBAPROF_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == expected


@pytest.mark.linux
def test_start_of_this_process_is_known():
    """Between the boot and now."""
    assert 0 < twin_store.process_started() < time.time() + 2


def test_second_process_compiles_nothing(tmp_path):
    """Twins of an earlier run are used without compiling."""
    source = tmp_path / "source.py"
    results = []
    for _ in range(2):
        compiled = njit(function_of(source, 31))
        compiled(1)
        results.append(twins.build([compiled], store=store(tmp_path)))
    assert [(result.compiled, result.loaded) for result in results] == [(1, 0), (0, 1)]
    assert all(len(result.by_address) == 1 for result in results)
