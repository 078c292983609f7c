"""Objects seen as they are compiled: what is left where LLVM's list cannot be found.

Numba hands LLVM an object cache; its two callbacks are plain attributes of llvmlite's
``ExecutionEngine`` (llvmlite, ``executionengine.py``, ``set_object_cache``). Both are
passed on unchanged, and the object files that go through are kept. An object's load
address is that of one of its global functions minus the function's place in the file;
a weak one will not do, since it may have come from another object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numbaprof.errors import SessionStateError, UnsupportedError
from numbaprof.native import memory, numba_api
from numbaprof.native.elf import SHN_UNDEF, STT_FUNC, Binding, Elf

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ObjectWatch", "active"]

_NOTIFY = "_object_cache_notify"
_GETBUFFER = "_object_cache_getbuffer"

_active: ObjectWatch | None = None


def active() -> ObjectWatch | None:
    """Return the watch that is running in this process, if any."""
    return _active


class ObjectWatch:
    """Keeps the object files that Numba compiles or loads while it runs.

    Notes
    -----
    Only one can run at a time. Costs one copy of the reference per object.
    """

    def __init__(self) -> None:
        self._engine: Any = None
        self._found: tuple[Any, Any] = (None, None)
        self._installed: tuple[Any, Any] = (None, None)
        self._files: list[bytes] = []
        self.unplaced = 0
        """Objects whose load address is not known, as of the last look."""

    def start(self) -> None:
        """Put both callbacks in front of Numba's.

        Raises
        ------
        SessionStateError
            Another watch is running.
        """
        global _active
        if _active is not None:
            raise SessionStateError(
                "object files are being watched already; stop the other watch first"
            )
        engine = numba_api.jit_engine()._ee
        notify, getbuffer = getattr(engine, _NOTIFY), getattr(engine, _GETBUFFER)

        def on_compiled(module: Any, data: bytes) -> None:
            self._files.append(data)
            if notify is not None:
                notify(module, data)

        def on_wanted(module: Any) -> bytes | None:
            data: bytes | None = None if getbuffer is None else getbuffer(module)
            if data is not None:
                self._files.append(data)
            return data

        self._engine = engine
        self._found = (notify, getbuffer)
        self._installed = (on_compiled, on_wanted)
        engine._object_cache_notify, engine._object_cache_getbuffer = self._installed
        _active = self

    def stop(self) -> None:
        """Put back what was found, unless somebody has replaced it since."""
        global _active
        if _active is not self:
            return
        _active = None
        for name, found, ours in zip(
            (_NOTIFY, _GETBUFFER), self._found, self._installed, strict=True
        ):
            if getattr(self._engine, name) is ours:
                setattr(self._engine, name, found)

    def objects(self) -> Iterator[tuple[bytes, int]]:
        """Yield (object file, address of its code) of what was seen."""
        self.unplaced = 0
        for data in self._files:
            start = self._start(data)
            if start is None:
                self.unplaced += 1
            else:
                yield data, start

    def _start(self, data: bytes) -> int | None:
        engine = numba_api.jit_engine()
        try:
            elf = Elf(data)
            for symbol in elf.symbols:
                if (
                    symbol.type == STT_FUNC
                    and symbol.binding == Binding.GLOBAL
                    and symbol.section != SHN_UNDEF
                    and engine.is_symbol_defined(symbol.name)
                ):
                    start = int(engine.get_function_address(symbol.name)) - symbol.value
                    return start if _is_loaded_at(elf, start) else None
        except UnsupportedError:
            pass
        return None


def _is_loaded_at(elf: Elf, start: int) -> bool:
    """Compare memory with the file, except where relocations are filled in."""
    for section in elf.sections:
        if section.executable:
            mask = elf.relocation_mask(section)
            expected = elf.content(section)
            found = memory.read(start, section.size)
            return all(
                a == b or hidden
                for a, b, hidden in zip(expected, found, mask, strict=True)
            )
    return False
