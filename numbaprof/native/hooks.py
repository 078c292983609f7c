"""Hooks on methods of other people's classes that leave no trace in a traceback.

A wrapper written in Python adds a frame to every traceback that passes through it, and
shifts ``warnings.warn(stacklevel=...)``. A hook here is a C-level callable instead,
made of one LLVM function for the whole process::

    class.__dict__[name]          instancemethod, binds like the function it replaces
      -> PyCFunction              ml_meth = call_hook
           -> m_self              Hook, a list of original, before, after

and it costs two C calls when both callbacks are None.

References: who holds what
--------------------------
The instancemethod holds the PyCFunction, that holds the list, the list holds the
original and the callbacks. Every call takes its own references to all three at entry,
so removing a hook during a call is safe in any thread. The ``PyMethodDef`` that CPython
reads through a bare pointer is kept for ever, one per method name; so is the code.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.ir as ir

from numbaprof.errors import AttachError
from numbaprof.native import cpython_api, emit
from numbaprof.native.emit import PTR, VOID, WORD, const

__all__ = ["MAX_HOOK_ERRORS", "CallHook", "HookErrors", "muted"]

MAX_HOOK_ERRORS = 20
"""Errors kept as text; a hook that fails once tends to fail on every call."""

Before = Callable[[tuple[Any, ...], "dict[str, Any] | None"], object]
After = Callable[[tuple[Any, ...], "dict[str, Any] | None", Any, bool], object]


_muted = threading.local()


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Keep hooks from calling back in this thread, but for those that never mute.

    What numbaprof compiles for itself is no part of what a session watches.
    """
    before = getattr(_muted, "now", False)
    _muted.now = True
    try:
        yield
    finally:
        _muted.now = before


class HookErrors:
    """What went wrong inside our own callbacks, as bounded text.

    Errors are kept as text because an exception would keep its frames alive, and with
    them whatever the program has there.

    Parameters
    ----------
    limit : int, optional
        Messages kept; further ones are only counted.
    """

    def __init__(self, limit: int = MAX_HOOK_ERRORS) -> None:
        self._limit = limit
        self._kept: list[str] = []
        self._dropped = 0

    def add(self, where: str, error: BaseException) -> None:
        """Remember that ``error`` happened in ``where``."""
        if len(self._kept) < self._limit:
            self._kept.append(f"{where}: {type(error).__name__}: {error}")
        else:
            self._dropped += 1

    def clear(self) -> None:
        """Forget all messages."""
        self._kept.clear()
        self._dropped = 0

    def messages(self) -> tuple[str, ...]:
        """Return the messages, oldest first; the last one counts what was dropped."""
        if not self._dropped:
            return tuple(self._kept)
        return (*self._kept, f"and {self._dropped} more errors in hooks")


class Hook(list[Any]):
    """``m_self`` of a hook; a class only so that ``repr`` of the method names it."""

    __slots__ = ()


class CallHook:
    """Calls somebody before and after every call of one method of one class.

    Parameters
    ----------
    owner : type or module
        The class; subclasses that inherit the method are hooked with it. Of a module,
        a function is hooked, for those who look it up there.
    attribute : str
        Name of a plain method: not a static method, class method or property.
    before : callable, optional
        ``before(args, kwargs)``; ``kwargs`` is None when there are none.
    after : callable, optional
        ``after(args, kwargs, outcome, failed)`` with the very ``args`` that ``before``
        got. ``outcome`` is what the method returned, or the exception when ``failed``.
        It is called in every case, also when ``before`` was interrupted and the method
        never ran.
    errors : HookErrors, optional
        Where errors of the callbacks go; a new one by default.
    mutes : bool, optional
        Whether :func:`muted` holds for this hook.

    Notes
    -----
    The program must not notice: an ``Exception`` in a callback ends there. Others
    (KeyboardInterrupt, SystemExit) are the program's own, raised while our code was
    running, and are passed on; one in ``after`` takes the place of the method's error.

    Several hooks on one method nest if they are restored in reverse order. Not safe to
    install or restore from two threads at once; calls may be under way in any thread.
    """

    def __init__(
        self,
        owner: type | types.ModuleType,
        attribute: str,
        before: Before | None = None,
        after: After | None = None,
        *,
        errors: HookErrors | None = None,
        mutes: bool = True,
    ) -> None:
        self.owner = owner
        self.attribute = attribute
        self.errors = HookErrors() if errors is None else errors
        self._mutes = mutes
        self._before = before
        self._after = after
        self._parts = Hook()
        self._installed: Any = None
        self._replaced: Any = None

    @property
    def name(self) -> str:
        """Where the hook sits: ``Cache.load_overload``."""
        owner = getattr(self.owner, "__qualname__", self.owner.__name__)
        return f"{owner}.{self.attribute}"

    def install(self) -> None:
        """Put the hook in place.

        Raises
        ------
        AttachError
            The class has no such method, it is not a plain one, or the hook is
            installed already.
        UnsupportedError
            The hook's code cannot be built on this machine.
        """
        if self._installed is not None:
            raise AttachError(f"{self.name} is hooked already by this hook")
        original = self._original()
        parts = Hook((original, self._shim("before"), self._shim("after")))
        installed = _new_method(self.attribute, parts)
        self._replaced = self.owner.__dict__.get(self.attribute)
        self._parts, self._installed = parts, installed
        setattr(self.owner, self.attribute, installed)

    def restore(self) -> str | None:
        """Take the hook away.

        Returns
        -------
        str or None
            None when the class is exactly as it was found (also when the hook was not
            installed). Else why not: somebody replaced the method after us. The hook
            then stays where they left it and does nothing any more.
        """
        if self._installed is None:
            return None
        installed, replaced = self._installed, self._replaced
        self._installed = self._replaced = None
        found = self.owner.__dict__.get(self.attribute)
        if found is installed:
            if replaced is None:
                delattr(self.owner, self.attribute)
            else:
                setattr(self.owner, self.attribute, replaced)
            return None
        self._parts[1] = self._parts[2] = None
        now = "deleted" if found is None else f"replaced by {found!r}"
        return f"{self.name} was {now} after numbaprof had hooked it"

    def _original(self) -> Any:
        """Return the method as it is stored, not as it is bound."""
        for cls in getattr(self.owner, "__mro__", (self.owner,)):
            if self.attribute in cls.__dict__:
                found = cls.__dict__[self.attribute]
                if isinstance(found, (types.FunctionType, _instance_method_type())):
                    return found
                kind = type(found).__name__
                raise AttachError(f"{self.name} is a {kind}, not a plain method")
        raise AttachError(f"{self.name} does not exist")

    def _shim(self, which: str) -> Callable[..., None] | None:
        callback = self._before if which == "before" else self._after
        if callback is None:
            return None
        errors, where = self.errors, f"{which} {self.name}"
        mutes = self._mutes

        # An error that strikes before the try (the recursion limit, no memory) is
        # dropped by the native side.
        def shim(*arguments: Any) -> None:
            try:
                if not (mutes and getattr(_muted, "now", False)):
                    callback(*arguments)
            except Exception as error:
                errors.add(where, error)

        return shim


@functools.cache
def _instance_method_type() -> type:
    return type(_instance_method(len))


def _instance_method(function: Any) -> Any:
    new = ctypes.pythonapi.PyInstanceMethod_New
    new.argtypes = [ctypes.py_object]
    new.restype = ctypes.py_object
    return new(function)


def _new_method(name: str, parts: Hook) -> Any:
    """Return a callable that binds to instances and runs ``call_hook`` on ``parts``."""
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    new.restype = ctypes.py_object
    definition = ctypes.addressof(_method_definition(name))
    return _instance_method(new(definition, parts, None))


@functools.cache
def _method_definition(name: str) -> cpython_api.MethodDef:
    """Return the definition of a method ``name``; never freed, CPython points to it."""
    return cpython_api.MethodDef(
        name.encode(), _code_address(), cpython_api.METH_VARARGS_KEYWORDS, None
    )


@functools.cache
def _code_address() -> int:
    """Compile the hook's code, once per process."""
    # It runs once per compilation, and calls Python.
    found = emit.compile_module(_build_module(), ("call_hook",), optimized=False)
    return found["call_hook"]


# ------------------------------------------------------------------------ emission

_INT = ir.IntType(32)
_FALSE, _TRUE, _NONE = (const(id(value)).inttoptr(PTR) for value in (False, True, None))
_NULL = ir.Constant(PTR, None)

_SIGNATURES = {
    "PyErr_Clear": ir.FunctionType(VOID, ()),
    "PyErr_ExceptionMatches": ir.FunctionType(_INT, (PTR,)),
    "PyErr_Fetch": ir.FunctionType(VOID, (PTR, PTR, PTR)),
    "PyErr_GetRaisedException": ir.FunctionType(PTR, ()),
    "PyErr_NormalizeException": ir.FunctionType(VOID, (PTR, PTR, PTR)),
    "PyErr_Restore": ir.FunctionType(VOID, (PTR, PTR, PTR)),
    "PyErr_SetRaisedException": ir.FunctionType(VOID, (PTR,)),
    "PyList_GetItem": ir.FunctionType(PTR, (PTR, WORD)),
    "PyObject_Call": ir.FunctionType(PTR, (PTR, PTR, PTR)),
    "PyObject_CallObject": ir.FunctionType(PTR, (PTR, PTR)),
    "PyTuple_New": ir.FunctionType(PTR, (WORD,)),
    "PyTuple_SetItem": ir.FunctionType(_INT, (PTR, WORD, PTR)),
    "Py_DecRef": ir.FunctionType(VOID, (PTR,)),
    "Py_IncRef": ir.FunctionType(VOID, (PTR,)),
}
"""The C API in use. No variadic function, whose calling convention differs on some
platforms, and none that is a macro or inline in any supported version."""

_SAVED_WORDS = 3
"""A fetched error: type, value, traceback; since 3.12 the exception alone."""


def _api(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> Any:
    return emit.call_absolute(
        builder, emit.address_of(name), _SIGNATURES[name], list(arguments)
    )


def _is_null(builder: ir.IRBuilder, pointer: ir.Value) -> Any:
    return builder.icmp_unsigned("==", pointer, _NULL)


def _build_module() -> ir.Module:
    """Emit every function, callees first."""
    module = ir.Module("numbaprof.hooks")
    notify = _emit_notify(module)
    fetch, restore, forget = _emit_error_state(module)
    finish = _emit_finish(
        module, _emit_pack(module, 4), notify, (fetch, restore, forget)
    )
    _emit_call_hook(module, _emit_pack(module, 2), notify, finish)
    return module


def _emit_pack(module: ir.Module, count: int) -> ir.Function:
    """Emit a constructor of tuples.

    ``static PyObject *packN(PyObject *item0, ...)``: a new tuple with new references to
    the items, or NULL with MemoryError set.
    """
    function, builder = emit.new_function(
        module,
        f"pack{count}",
        ir.FunctionType(PTR, (PTR,) * count),
        tuple(f"item{index}" for index in range(count)),
        linkage="internal",
    )
    packed = _api(builder, "PyTuple_New", const(count))
    with emit.unlikely(builder, _is_null(builder, packed)):
        builder.ret(_NULL)
    for index, item in enumerate(function.args):
        _api(builder, "Py_IncRef", item)
        _api(builder, "PyTuple_SetItem", packed, const(index), item)
    builder.ret(packed)
    return function


def _emit_notify(module: ir.Module) -> ir.Function:
    """Emit the call of a callback.

    ``static int notify(PyObject *callback, PyObject *arguments)``: steals
    ``arguments``, which may be NULL with an error set. Returns 0 with no error set, or
    -1 with an error that is not an ``Exception`` and must reach the program.
    """
    function, builder = emit.new_function(
        module,
        "notify",
        ir.FunctionType(_INT, (PTR, PTR)),
        ("callback", "arguments"),
        linkage="internal",
    )
    callback, arguments = function.args
    answer = builder.alloca(PTR, name="answer")
    builder.store(_NULL, answer)
    with emit.likely(builder, builder.not_(_is_null(builder, arguments))):
        returned = _api(builder, "PyObject_CallObject", callback, arguments)
        builder.store(returned, answer)
        _api(builder, "Py_DecRef", arguments)
    value = builder.load(answer, typ=PTR)
    with emit.unlikely(builder, _is_null(builder, value)):
        harmless = _api(
            builder, "PyErr_ExceptionMatches", const(id(Exception)).inttoptr(PTR)
        )
        is_ours = builder.icmp_signed("==", harmless, _INT(0))
        with emit.unlikely(builder, is_ours):
            builder.ret(_INT(-1))
        _api(builder, "PyErr_Clear")
        builder.ret(_INT(0))
    _api(builder, "Py_DecRef", value)
    builder.ret(_INT(0))
    return function


def _emit_error_state(module: ir.Module) -> tuple[ir.Function, ...]:
    """Emit the three functions that put an error aside and back.

    ``static PyObject *fetch(PyObject **saved)``: clears the error indicator into
    ``saved`` and returns the exception, borrowed. ``static void restore(PyObject
    **saved)`` sets it again, ``static void forget(PyObject **saved)`` releases it.

    Notes
    -----
    Before 3.12 an error may be a type and a bare message until somebody looks at it.
    It is made an exception here, as the next ``except`` or ``finally`` would do.
    """
    has_one_word = hasattr(ctypes.pythonapi, "PyErr_GetRaisedException")
    signature = ir.FunctionType(VOID, (PTR,))
    fetch, builder = emit.new_function(
        module, "fetch", ir.FunctionType(PTR, (PTR,)), ("saved",), linkage="internal"
    )
    places = [emit.word_pointer(builder, fetch.args[0], i) for i in range(_SAVED_WORDS)]
    for place in places:
        builder.store(_NULL, place)
    if has_one_word:
        builder.store(_api(builder, "PyErr_GetRaisedException"), places[0])
        builder.ret(builder.load(places[0], typ=PTR))
    else:
        _api(builder, "PyErr_Fetch", *places)
        _api(builder, "PyErr_NormalizeException", *places)
        builder.ret(builder.load(places[1], typ=PTR))

    restore, builder = emit.new_function(
        module, "restore", signature, ("saved",), linkage="internal"
    )
    words = [emit.load_pointer(builder, restore.args[0], i) for i in range(3)]
    if has_one_word:
        _api(builder, "PyErr_SetRaisedException", words[0])
    else:
        _api(builder, "PyErr_Restore", *words)
    builder.ret_void()

    forget, builder = emit.new_function(
        module, "forget", signature, ("saved",), linkage="internal"
    )
    for index in range(_SAVED_WORDS):
        _api(builder, "Py_DecRef", emit.load_pointer(builder, forget.args[0], index))
    builder.ret_void()
    return fetch, restore, forget


def _emit_finish(
    module: ir.Module,
    pack: ir.Function,
    notify: ir.Function,
    error_state: tuple[ir.Function, ...],
) -> ir.Function:
    """Emit the call of ``after``.

    ``static PyObject *finish(PyObject *after, PyObject *args, PyObject *keywords,
    PyObject *result)``: steals ``result``, which is NULL when the method raised, and
    returns what the hooked call is to return, with the error set that it is to raise.
    """
    fetch, restore, forget = error_state
    function, builder = emit.new_function(
        module,
        "finish",
        ir.FunctionType(PTR, (PTR,) * 4),
        ("after", "args", "keywords", "result"),
        linkage="internal",
    )
    after, args, keywords, result = function.args
    with emit.likely(builder, builder.not_(_is_null(builder, result))):
        packed = builder.call(pack, (args, keywords, result, _FALSE))
        status = builder.call(notify, (after, packed))
        with emit.likely(builder, builder.icmp_signed("==", status, _INT(0))):
            builder.ret(result)
        _api(builder, "Py_DecRef", result)
        builder.ret(_NULL)
    saved = builder.alloca(ir.ArrayType(WORD, _SAVED_WORDS), name="saved")
    error = builder.call(fetch, (saved,))
    packed = builder.call(pack, (args, keywords, error, _TRUE))
    status = builder.call(notify, (after, packed))
    with builder.if_else(builder.icmp_signed("==", status, _INT(0))) as (quiet, loud):
        with quiet:
            builder.call(restore, (saved,))
        with loud:
            builder.call(forget, (saved,))
    builder.ret(_NULL)
    return function


def _emit_call_hook(
    module: ir.Module, pack: ir.Function, notify: ir.Function, finish: ir.Function
) -> ir.Function:
    """Emit the hooked call.

    ``PyObject *call_hook(PyObject *self, PyObject *args, PyObject *kwargs)``: a
    PyCFunctionWithKeywords whose ``self`` is the list ``[original, before, after]``.
    """
    function, builder = emit.new_function(
        module,
        "call_hook",
        ir.FunctionType(PTR, (PTR,) * 3),
        ("self", "args", "kwargs"),
    )
    parts, args, kwargs = function.args
    taken = [_api(builder, "PyList_GetItem", parts, const(i)) for i in range(3)]
    for part in taken:
        _api(builder, "Py_IncRef", part)
    original, before, after = taken
    keywords = builder.select(_is_null(builder, kwargs), _NONE, kwargs)

    status = builder.alloca(_INT, name="status")
    builder.store(_INT(0), status)
    with builder.if_then(builder.icmp_unsigned("!=", before, _NONE)):
        packed = builder.call(pack, (args, keywords))
        builder.store(builder.call(notify, (before, packed)), status)

    result = builder.alloca(PTR, name="result")
    builder.store(_NULL, result)
    may_run = builder.icmp_signed("==", builder.load(status, typ=_INT), _INT(0))
    with emit.likely(builder, may_run):
        builder.store(_api(builder, "PyObject_Call", original, args, kwargs), result)

    with builder.if_then(builder.icmp_unsigned("!=", after, _NONE)):
        outcome = builder.load(result, typ=PTR)
        builder.store(builder.call(finish, (after, args, keywords, outcome)), result)

    for part in taken:
        _api(builder, "Py_DecRef", part)
    builder.ret(builder.load(result, typ=PTR))
    return function
