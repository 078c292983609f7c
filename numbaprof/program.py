"""Running the user's program the way Python itself would run it.

``sys.argv``, ``sys.path[0]`` and the module ``__main__`` are set as the interpreter
sets them for ``python script.py``, ``python -m module``, ``python -c code`` and
``python -``, so that pickling a class of ``__main__``, spawned children, relative
imports of ``-m`` and caches beside the script work. What ends the program leaves as it
came: exceptions, ``SystemExit`` and ``KeyboardInterrupt`` reach the interpreter, which
decides about the exit code; only a traceback is shortened by our own frames.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from numbaprof.errors import ProgramError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Program"]

PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
"""Frames of files below are ours."""

USAGE_EXIT_CODE = 2
"""Python's exit code for a script that cannot be opened (``Modules/main.c``)."""


@dataclass(frozen=True, slots=True)
class Program:
    """What the user would have written after ``python``."""

    kind: Literal["script", "module", "code", "stdin"]
    target: str
    """File, folder or archive; module name; source text; "" for stdin."""
    arguments: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise early if there is nothing to run.

        Raises
        ------
        ProgramError
            The script cannot be opened; with Python's message and exit code.
        """
        if self.kind != "script" or os.path.isdir(self.target):
            return
        try:
            with io.open_code(os.path.abspath(self.target)):
                pass
        except OSError as error:
            raise ProgramError(
                f"can't open file {os.path.abspath(self.target)!r}: "
                f"[Errno {error.errno}] {error.strerror}",
                exit_code=USAGE_EXIT_CODE,
            ) from None

    def run(self) -> None:
        """Run the program as ``__main__`` in this process.

        Everything the interpreter would have set up stays that way afterwards: threads
        and ``atexit`` handlers of the program still need it.

        Raises
        ------
        BaseException
            Whatever ended the program. ``sys.excepthook`` has been prepared to show
            the program's own frames only, once.
        ProgramError
            There is no such module, or nothing in it to run.
        """
        main = ModuleType("__main__")
        main.__dict__.update(
            {"__builtins__": builtins, "__annotations__": {}, "__loader__": None}
        )
        sys.modules["__main__"] = main
        try:
            exec(self._load(main), main.__dict__)
        except ProgramError:
            raise
        except BaseException:
            _hide_our_frames_once()
            raise

    def _load(self, main: ModuleType) -> CodeType:
        """Return the program's code and set what belongs to its kind."""
        if self.kind == "script":
            return self._load_script(main)
        if self.kind == "module":
            return self._load_module(main)
        main.__loader__ = importlib.machinery.BuiltinImporter
        _set_first_path("")
        if self.kind == "code":
            sys.argv = ["-c", *self.arguments]
            return _compile(self.target, "<string>")
        sys.argv = ["-", *self.arguments]
        main.__dict__.update({"__file__": "<stdin>", "__cached__": None})
        return _compile(sys.stdin.buffer.read(), "<stdin>")

    def _load_script(self, main: ModuleType) -> CodeType:
        sys.argv = [self.target, *self.arguments]
        # Absolute but not normalised, as CPython does it (3.9 and later).
        path = os.path.join(os.getcwd(), self.target)
        # A folder or an archive with a __main__.py is put on the path and imported.
        importer = pkgutil.get_importer(path)
        if importer is not None:
            _set_first_path(path)
            spec = importer.find_spec("__main__")
            if spec is None:
                raise ProgramError(
                    f"can't find '__main__' module in {path!r}", exit_code=1
                )
            return _load_spec(main, spec)
        _set_first_path(os.path.dirname(os.path.realpath(path)))
        compiled = path.endswith(".pyc")
        make_loader: Any = (
            importlib.machinery.SourcelessFileLoader
            if compiled
            else importlib.machinery.SourceFileLoader
        )
        loader = main.__loader__ = make_loader("__main__", path)
        main.__dict__.update({"__file__": path, "__cached__": None})
        if compiled:
            code: CodeType = loader.get_code("__main__")
            return code
        with io.open_code(path) as file:
            return _compile(file.read(), path)

    def _load_module(self, main: ModuleType) -> CodeType:
        _set_first_path(os.getcwd())
        # What a parent package sees while it is imported.
        sys.argv = ["-m", *self.arguments]
        spec = _find_module(self.target)
        sys.argv = [spec.origin or self.target, *self.arguments]
        return _load_spec(main, spec)


def _find_module(name: str) -> importlib.machinery.ModuleSpec:
    """Return the spec of a module, or of the ``__main__`` of a package."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            package, name = name, f"{name}.__main__"
            spec = importlib.util.find_spec(name)
            if spec is None:
                raise ProgramError(
                    f"No module named {name}; {package!r} is a package and cannot be "
                    "directly executed",
                    exit_code=1,
                )
    except (ModuleNotFoundError, ValueError) as error:
        missing = getattr(error, "name", None)
        if missing is not None and not f"{name}.".startswith(f"{missing}."):
            raise  # The package is there, something it imports is not.
        raise ProgramError(
            f"Error while finding module specification for {name!r} ({error})",
            exit_code=1,
        ) from None
    if spec is None:
        raise ProgramError(f"No module named {name}", exit_code=1)
    return spec


def _load_spec(main: ModuleType, spec: importlib.machinery.ModuleSpec) -> CodeType:
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(spec.name) if loader else None
    if code is None:
        raise ProgramError(f"No code object available for {spec.name}", exit_code=1)
    main.__spec__ = spec
    main.__package__ = spec.parent
    main.__loader__ = loader
    main.__dict__.update({"__file__": spec.origin, "__cached__": spec.cached})
    return code


def _compile(source: str | bytes, filename: str) -> CodeType:
    code: CodeType = compile(source, filename, "exec", dont_inherit=True)
    return code


def _set_first_path(folder: str) -> None:
    """Put ``folder`` where Python puts it, in the place of our own command's."""
    if not getattr(sys.flags, "safe_path", False):  # ``python -P``, since 3.11.
        sys.path[0] = folder


# -- tracebacks ------------------------------------------------------------------------


def _hide_our_frames_once() -> None:
    """Let the interpreter report the exception that is under way without our frames.

    The program's own ``sys.excepthook`` does the reporting, at the time and with the
    exit code that it would have without us.
    """
    program_hook = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        sys.excepthook = program_hook
        trace = _without_our_frames(trace)
        sys.last_traceback = trace
        program_hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = report


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback below :meth:`Program.run`."""
    while trace is not None:
        code = trace.tb_frame.f_code
        trace = trace.tb_next
        if code is Program.run.__code__:
            break
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(filename: str) -> bool:
    return os.path.abspath(filename).startswith(PACKAGE_FOLDER)
