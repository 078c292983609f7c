"""Objects seen through Numba's object cache, and their addresses."""

from __future__ import annotations

import pytest
from numba import njit

from numbaprof.errors import SessionStateError, UnsupportedError
from numbaprof.native import elf, memory, numba_api, objcode, object_watch
from numbaprof.native.object_watch import ObjectWatch

pytestmark = pytest.mark.linux


@pytest.fixture
def watch():
    """Return a running watch."""
    watch = ObjectWatch()
    watch.start()
    yield watch
    watch.stop()


def new_kernel():
    """Return a dispatcher that was never compiled."""

    @njit
    def watched_kernel(x):
        return x * 3 + 1

    return watched_kernel


def hooks():
    """Return both callbacks as they are now."""
    engine = numba_api.jit_engine()._ee
    return engine._object_cache_notify, engine._object_cache_getbuffer


def test_addresses_agree_with_llvms_list(watch):
    """What the watch places is where the list says it is."""
    new_kernel()(1)
    starts = {found.text: found.start for found in objcode.load_objects()}
    seen = list(watch.objects())
    assert seen
    for data, start in seen:
        found = objcode.JitObject.from_bytes(data, start)
        assert starts[found.text] == start
    assert watch.unplaced == 0


def test_objects_from_the_cache_are_seen(watch, tmp_path):
    """Code that Numba loads goes through the other callback."""
    source = tmp_path / "cached_kernel.py"
    source.write_text(
        "from numba import njit\n"
        "def make():\n"
        "    @njit(cache=True)\n"
        "    def cached_kernel(x):\n"
        "        return x - 7\n"
        "    return cached_kernel\n"
    )
    namespace: dict = {}
    code = compile(source.read_text(), str(source), "exec")
    exec(code, namespace)
    namespace["make"]()(1)
    before = len(list(watch.objects()))
    loaded = namespace["make"]()
    loaded(1)
    assert loaded.stats.cache_hits
    assert len(list(watch.objects())) + watch.unplaced > before


def test_stop_restores_exactly():
    """Both callbacks are the very objects that were there."""
    before = hooks()
    watch = ObjectWatch()
    watch.start()
    assert object_watch.active() is watch
    assert all(a is not b for a, b in zip(before, hooks(), strict=True))
    watch.stop()
    assert hooks() == before
    assert object_watch.active() is None
    watch.stop()
    assert hooks() == before


def test_replacement_by_others_is_left_alone():
    """Somebody who hooked in after us keeps his hook."""
    engine = numba_api.jit_engine()._ee
    before = hooks()
    watch = ObjectWatch()
    watch.start()

    def theirs(module, data):
        """Belong to somebody else."""

    engine._object_cache_notify = theirs
    watch.stop()
    assert engine._object_cache_notify is theirs
    engine._object_cache_notify = before[0]
    assert hooks() == before


def test_second_watch_is_refused(watch):
    """There is one at a time."""
    with pytest.raises(SessionStateError, match="already"):
        ObjectWatch().start()


def test_object_without_a_global_function_is_unplaced(watch):
    """A weak function may have come from another object, so it places nothing."""
    new_kernel()(1)
    data = bytearray(watch._files[0])
    table = next(s for s in elf.Elf(bytes(data)).sections if s.type == 2)
    for at in range(table.offset, table.offset + table.size, 24):
        if data[at + 4] >> 4 == elf.Binding.GLOBAL:
            data[at + 4] = elf.Binding.WEAK << 4 | data[at + 4] & 15
    watch._files[:] = [bytes(data)]
    assert list(watch.objects()) == []
    assert watch.unplaced == 1


def test_object_that_is_not_what_is_loaded_is_unplaced(watch):
    """Memory is compared before an address is believed."""
    new_kernel()(1)
    data = bytearray(watch._files[0])
    code = next(s for s in elf.Elf(bytes(data)).sections if s.executable)
    data[code.offset] ^= 0xFF
    watch._files[:] = [bytes(data)]
    assert list(watch.objects()) == []
    assert watch.unplaced == 1


def test_function_the_engine_does_not_know_is_not_asked_for(watch):
    """LLVM would end the process."""
    new_kernel()(1)
    data = watch._files[0].replace(b"watched_kernel", b"unknown_kernel")
    assert data != watch._files[0]
    watch._files[:] = [data]
    assert list(watch.objects()) == []


def test_unreadable_memory_is_unplaced(watch, monkeypatch):
    """Without /proc/self/mem nothing can be verified, so nothing is claimed."""
    new_kernel()(1)

    def refuse(address, size):
        raise UnsupportedError("no memory")

    monkeypatch.setattr(memory, "read", refuse)
    assert list(watch.objects()) == []
