"""Exact calls and time of every overload: attach, watch for new ones, restore, freeze.

The instrument finds every compiled overload alive, puts the engine's trampoline in
front of each entry point, and hooks the few places where Numba makes new ones. What it
keeps while the program runs is a slot of counters and plain data per overload; no
dispatcher is kept alive.

Where calls cannot be seen the overload says so, see :func:`_blind_spot`: calls from
compiled code and by address, steps of a generator, functions without code of their own.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from numbaprof.errors import AttachError, UnsupportedError
from numbaprof.model import (
    HISTOGRAM_BUCKETS,
    ArgType,
    BackendInfo,
    BoxingSplit,
    DispatcherInfo,
    FunctionId,
    Origin,
    OverloadKind,
    OverloadStats,
    ThreadSplit,
)
from numbaprof.native import boxing, cfuncs, numba_api, patches
from numbaprof.native.boxing import BoxingField, BoxingSlot
from numbaprof.native.engine import Engine, ParallelSlot, Slot, UfuncSlot
from numbaprof.native.hooks import After, CallHook, HookErrors
from numbaprof.native.layout import START_MINIMUM, SlotField, UfuncField

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

__all__ = ["DispatchHook", "Record"]

GENERATOR_REASON = "generator: iteration time not included, calls only create it"
COMPILED_CALLS_REASON = "calls from compiled code ({callers}) cannot be counted"
FIRST_CLASS_REASON = (
    "used as a first-class function: calls by address cannot be counted"
)
INLINED_REASON = "inlined into its callers, has no code of its own there"
BEFORE_SESSION_REASON = "compiled before the session started"
NO_DISPATCH_REASON = "called by compiled code or by address, without a dispatcher"
PAST_DISPATCHER_REASON = (
    "{calls} calls came past the dispatcher's own call, for instance through "
    "`__call__`; their dispatch is not seen"
)
STENCIL_DISPATCH_REASON = "a stencil has no dispatcher"
UFUNC_DISPATCH_REASON = "NumPy chooses the loop; its cost is not measured"
CFUNC_REASON = "calls through addresses taken before the session cannot be counted"
MAX_CALLERS_NAMED = 3


@dataclass(slots=True)
class Record:
    """One overload while the session runs."""

    function: FunctionId
    signature: str
    args: tuple[ArgType, ...]
    return_type: str
    kind: OverloadKind
    origin: Origin
    internal: bool
    created_in_session: bool
    slot: Slot | UfuncSlot | None = None
    reason: str = ""
    """Why it could not be attached to, or which of its calls are not seen."""
    library: Callable[[], Any] | None = None
    """Weak reference to the code library, to find compiled callers at the end."""
    symbol: str = ""
    """Name of the kernel's code; "" where Numba keeps none."""
    callers: set[str] = field(default_factory=set)
    recurses: frozenset[FunctionId] = frozenset()
    """Functions it calls from compiled code that call it."""
    address_taken: bool = False
    boxing: BoxingSlot | None = None
    boxing_reason: str = "not asked for; see the option `detail`"
    split: ParallelSlot | None = None


class DispatchHook:
    """The instrument; one per session.

    Parameters
    ----------
    engine : Engine or None
        The shared core; None when it could not be built.
    registry : FunctionRegistry
        Shared with the other instruments, so that all name functions alike.
    reason : str, optional
        Why there is no engine.
    detail : tuple of str, optional
        Patterns of qualified names, with or without the module, of functions whose
        calls are split into unboxing, kernel and boxing.
    """

    def __init__(
        self,
        engine: Engine | None,
        registry: numba_api.FunctionRegistry,
        *,
        reason: str = "",
        detail: tuple[str, ...] = (),
    ) -> None:
        self._engine = engine
        self._detail = detail
        self._registry = registry
        self._reason = reason
        self._type_call: patches.TypeCallPatch | None = None
        self._dispatch_reason = ""
        self.records: list[Record] = []
        self._entry_points: list[tuple[patches.EntryPointPatch, Record]] = []
        self._ufuncs: dict[int, tuple[patches.UfuncPatch, dict[int, Record]]] = {}
        self._functions: dict[
            FunctionId, tuple[Callable[[], Any], DispatcherInfo | None]
        ] = {}
        self._cfuncs: list[tuple[Any, int, int, Record]] = []
        self._hooks: list[CallHook] = []
        self.errors = HookErrors()
        self.unrestored: list[str] = []
        self._running = False
        self._infos: tuple[DispatcherInfo, ...] | None = None
        self._slot_keys: dict[int, tuple[tuple[FunctionId, str], Slot | UfuncSlot]] = {}
        self._counted_records = 0

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Attach to everything alive and watch for what comes.

        On an error everything is put back before it is raised.
        """
        self._running = True
        try:
            if self._engine is not None:
                self._patch_type_call(self._engine)
            with numba_api.compiler_lock:
                self._install_hooks()
                self._attach_everything()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Put everything back exactly; what cannot be is in ``unrestored``."""
        self._running = False
        with numba_api.compiler_lock:
            for hook in reversed(self._hooks):
                self._note(hook.restore())
            self._hooks.clear()
            if self._type_call is not None:
                self._note(self._type_call.restore())
                self._type_call = None
            for patch, _ in reversed(self._entry_points):
                self._note(patch.restore())
            for ufunc_patch, _ in self._ufuncs.values():
                self._note(ufunc_patch.restore())
            for cfunc, original, ours, _ in reversed(self._cfuncs):
                self._restore_cfunc(cfunc, original, ours)
        slots: list[Slot | UfuncSlot] = [patch.slot for patch, _ in self._entry_points]
        _keep_occupied(self._engine, slots)
        # The records have the slots; a weak reference left on an entry point would be
        # a trace of us.
        self._entry_points.clear()
        self._ufuncs.clear()

    def _note(self, problem: str | None) -> None:
        if problem:
            self.unrestored.append(problem)

    def _restore_cfunc(self, cfunc: Any, original: int, ours: int) -> None:
        if cfunc._wrapper_address == ours:
            cfunc._wrapper_address = original
        else:
            self._note(f"somebody else changed the address of {cfunc!r} after us")

    @property
    def backend(self) -> BackendInfo:
        """How calls are counted, and why that way."""
        if self._engine is None:
            return BackendInfo("dispatch", "none", self._reason)
        if self._engine.layouts.method_self is None:
            return BackendInfo("dispatch", "none", self._engine.layouts.method_reason)
        reasons = [
            f"{what}: {why}"
            for what, why in (
                ("no dispatch time", self._dispatch_reason),
                ("no callers", self._engine.layouts.caller_reason),
            )
            if why
        ]
        return BackendInfo("dispatch", "in-place trampoline", "; ".join(reasons))

    def _patch_type_call(self, engine: Engine) -> None:
        try:
            self._type_call = patches.TypeCallPatch(engine)
        except UnsupportedError as error:
            self._dispatch_reason = str(error)

    def _install_hooks(self) -> None:
        places = numba_api.BIRTHPLACES
        watch = (
            *((place, self._after_add_overload) for place in places.overloads),
            *((place, self._after_ufunc_change) for place in places.ufunc_loops),
            *((place, self._after_build_ufunc) for place in places.ufuncs),
            *((place, self._after_stencil) for place in places.stencils),
            *((place, self._after_cfunc) for place in places.cfuncs),
            *((place, self._after_address_taken) for place in places.first_class),
        )
        for (owner, attribute), after in watch:
            hook = CallHook(
                owner, attribute, after=self._uncharged(after), errors=self.errors
            )
            try:
                hook.install()
            except (AttachError, UnsupportedError) as error:
                self.errors.add(f"hook {hook.name}", error)
                continue
            self._hooks.append(hook)

    def _uncharged(self, after: After) -> After:
        """Keep the time that attaching takes out of what Numba was doing."""
        engine = self._engine
        if engine is None:
            return after

        def attach(
            args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
        ) -> None:
            since = engine.now()
            try:
                after(args, kwargs, outcome, failed)
            finally:
                engine.charge_overhead(since)

        return attach

    def _attach_everything(self) -> None:
        for dispatcher in numba_api.live_dispatchers():
            for cres in list(dispatcher.overloads.values()):
                self._attach_overload(dispatcher, cres, late=False)
            self._remember_function(dispatcher, late=False)
        for type_, name, entry_point in numba_api.live_property_getters():
            self._attach_getter(type_, name, entry_point)
        for thing in numba_api.live_ufuncs():
            plain = type(thing) is np.ufunc
            if not plain or patches.is_jitted_loop(thing):
                self._attach_ufunc(thing, thing, late=False)

    # -- Numba's own moments ----------------------------------------------------------

    def _after_add_overload(
        self, args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
    ) -> None:
        if failed or not self._running:
            return
        dispatcher = args[0]
        cres = args[1] if len(args) > 1 else kwargs["cres"]
        self._attach_overload(dispatcher, cres, late=True)

    def _after_ufunc_change(
        self, args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
    ) -> None:
        if not failed and self._running:
            self._attach_ufunc(args[0], args[0], late=True)

    def _after_build_ufunc(
        self, args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
    ) -> None:
        if not failed and self._running:
            self._attach_ufunc(args[0], outcome, late=True)

    def _after_stencil(
        self, args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
    ) -> None:
        if failed or not self._running or outcome is None:
            return
        self._attach(args[0], outcome, dispatcher=0, kind="stencil", late=True)

    def _after_cfunc(
        self, args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
    ) -> None:
        if not failed and self._running:
            self._attach_cfunc(args[0])

    def _after_address_taken(
        self, args: tuple[Any, ...], kwargs: Any, outcome: Any, failed: bool
    ) -> None:
        library = getattr(outcome, "library", None)
        if failed or not self._running or library is None:
            return
        for record in self.records:
            if record.library is not None and record.library() is library:
                record.address_taken = True

    # -- attaching --------------------------------------------------------------------

    def _attach_overload(self, dispatcher: Any, cres: Any, *, late: bool) -> None:
        if getattr(cres, "entry_point", None) is None:
            return
        if patches.is_patched(cres.entry_point):
            return
        kind = numba_api.overload_kind(dispatcher, cres)
        self._attach(dispatcher, cres, dispatcher=id(dispatcher), kind=kind, late=late)

    def _attach(
        self, thing: Any, cres: Any, *, dispatcher: int, kind: OverloadKind, late: bool
    ) -> None:
        args = numba_api.user_arguments(thing, tuple(cres.signature.args))
        function = self._registry.identify(thing, args)
        internal = numba_api.is_internal(function.module)
        names = numba_api.parameter_names(thing, args)
        record = Record(
            function=function,
            signature=numba_api.signature_text(args),
            args=numba_api.describe_arguments(args, names),
            return_type=numba_api.type_text(cres.signature.return_type),
            kind=kind,
            origin=_origin(thing, cres, internal=internal, late=late),
            internal=internal,
            created_in_session=late,
            library=_weak(getattr(cres, "library", None)),
            symbol=numba_api.kernel_symbol(cres),
        )
        if kind == "generator":
            record.reason = GENERATOR_REASON
        record.recurses = frozenset(
            self._registry.identify(callee)
            for callee in numba_api.recursive_callees(thing, cres)
        )
        self.records.append(record)
        self._remember_function(thing, function, late=late)
        definitions = getattr(cres.target_context, "_defns", None)
        self._attach_entry_point(
            record,
            cres.entry_point,
            dispatcher,
            definitions,
            lambda slot: self._prepare(slot, thing, cres, record),
        )

    def _prepare(self, slot: Slot, thing: Any, cres: Any, record: Record) -> None:
        """Put what was asked for between the trampoline and the wrapper."""
        if self._engine is None:
            return
        options = getattr(thing, "targetoptions", None) or {}
        if self._wants_detail(record):
            try:
                wrapper = boxing.TimedWrapper(
                    cres, self._engine.clock, nogil=bool(options.get("nogil"))
                )
            except AttachError as error:
                record.boxing_reason = str(error)
            else:
                record.boxing, record.boxing_reason = wrapper.slot, ""
                slot.words[SlotField.ORIG_FN] = wrapper.address
        if options.get("parallel"):
            threads = numba_api.num_threads_function()
            record.split = self._engine.split_by_threads(slot, threads)

    def _wants_detail(self, record: Record) -> bool:
        """Tell whether a pattern names the function, with or without its module."""
        full = f"{record.function.module}.{record.function.qualname}"
        return any(
            fnmatchcase(name, pattern)
            for pattern in self._detail
            for name in (full, record.function.qualname)
        )

    def _attach_entry_point(
        self,
        record: Record,
        entry_point: Any,
        dispatcher: int,
        definitions: dict[Any, Any] | None,
        prepare: Callable[[Slot], None] | None = None,
    ) -> None:
        if self._engine is None:
            record.reason = self._reason
            return
        try:
            patch = patches.EntryPointPatch(
                self._engine, entry_point, dispatcher, definitions, prepare
            )
        except AttachError as error:
            record.reason = str(error)
            return
        record.slot = patch.slot
        self._entry_points.append((patch, record))

    def _attach_getter(self, type_: Any, name: str, entry_point: Any) -> None:
        if patches.is_patched(entry_point):
            return
        member = numba_api.jitclass_member(type_, name, "accessor")
        function = self._registry.identify(member)
        record = Record(
            function=function,
            signature=numba_api.signature_text((type_,)),
            args=numba_api.describe_arguments((type_,), ("self",)),
            return_type="",
            kind="property",
            origin="compiled",
            internal=False,
            created_in_session=False,
        )
        self.records.append(record)
        self._attach_entry_point(record, entry_point, 0, None)

    def _attach_ufunc(self, thing: Any, holder: Any, *, late: bool) -> None:
        """Attach to the loops of a ufunc that are not attached to yet.

        ``thing`` says who it is (a ufunc object or its builder), ``holder`` has it.
        """
        ufunc = numba_api.underlying_ufunc(holder)
        if ufunc is None or self._engine is None:
            return
        known = self._ufuncs.get(id(ufunc))
        if known is None:
            try:
                known = (patches.UfuncPatch(self._engine, ufunc), {})
            except AttachError as error:
                self.errors.add(f"ufunc {thing!r}", error)
                return
            self._ufuncs[id(ufunc)] = known
        patch, records = known
        function = self._registry.identify(thing)
        self._registry.adopt(ufunc, function)
        self._remember_function(thing, function)
        for index in patch.attach_new():
            record = _ufunc_record(function, ufunc, index, late=late)
            record.slot = patch.loops[index]
            records[index] = record
            self.records.append(record)

    def _attach_cfunc(self, cfunc: Any) -> None:
        signature = cfunc._sig
        function = self._registry.identify(cfunc)
        names = numba_api.parameter_names(cfunc)
        record = Record(
            function=function,
            signature=numba_api.signature_text(signature.args),
            args=numba_api.describe_arguments(signature.args, names),
            return_type=numba_api.type_text(signature.return_type),
            kind="cfunc",
            origin="cache" if cfunc.cache_hits else "eager",
            internal=numba_api.is_internal(function.module),
            created_in_session=True,
            symbol=str(cfunc.native_name),
        )
        self.records.append(record)
        self._remember_function(cfunc, function)
        if self._engine is None:
            record.reason = self._reason
            return
        slot = self._engine.new_ufunc_slot(0, 0)
        original = cfunc._wrapper_address
        try:
            ours = cfuncs.forward(self._engine, cfunc, slot)
        except UnsupportedError as error:
            record.reason = str(error)
            return
        cfunc._wrapper_address = ours
        record.slot = slot
        # The address may have been handed out: the slot lives as long as the process.
        _IMMORTAL.append(slot)
        self._cfuncs.append((cfunc, original, ours, record))

    def _remember_function(
        self, thing: Any, function: FunctionId | None = None, *, late: bool = True
    ) -> None:
        """Keep a way to ask about a function at the end, when it may be gone.

        What is known now is kept too for functions that come into being meanwhile;
        doing it for all that are there would make starting slow.
        """
        function = self._registry.identify(thing) if function is None else function
        if function not in self._functions:
            info = None
            if late:
                info = numba_api.dispatcher_info(thing, function)
            self._functions[function] = (_weak(thing), info)

    def bind_to_epoch(self) -> None:
        """Let loops attached before the engine started count from now on."""
        if self._engine is not None:
            for patch, _ in self._ufuncs.values():
                for slot in patch.loops.values():
                    self._engine.clear_ufunc_slot(slot)

    # -- fork -------------------------------------------------------------------------

    def reset_after_fork(self) -> None:
        """Empty every counter inherited from the parent.

        Calls that other threads of the parent had open will never return here.
        """
        if self._engine is None:
            return
        for record in self.records:
            record.created_in_session = False
            if record.split is not None:
                record.split.clear()
            if record.boxing is not None:
                record.boxing.clear()
            if isinstance(record.slot, Slot):
                self._engine.clear_slot(record.slot)
            elif record.slot is not None:
                self._engine.clear_ufunc_slot(record.slot)

    # -- the end ----------------------------------------------------------------------

    def find_compiled_callers(self) -> None:
        """Note for each overload which other overloads link its code.

        Directly, or through code that is no overload: the body of a ``prange`` loop is
        compiled apart, and so is what an ``@overload`` stands for.
        """
        by_library: dict[int, list[Record]] = {}
        libraries = []
        for record in self.records:
            library = record.library() if record.library is not None else None
            if library is not None:
                by_library.setdefault(id(library), []).append(record)
                libraries.append((library, record))
        for library, record in libraries:
            for linked in _reach(library, by_library):
                for callee in by_library.get(id(linked), ()):
                    if _key(callee) != _key(record):
                        callee.callers.add(record.function.qualname)
        # Code that calls back what is calling it cannot link it.
        for record in self.records:
            for other in self.records if record.recurses else ():
                if other.function in record.recurses:
                    other.callers.add(record.function.qualname)

    def functions_alive(self) -> Iterator[tuple[FunctionId, Any]]:
        """Yield every function seen that has not been freed."""
        for function, (reference, _) in self._functions.items():
            thing = reference()
            if thing is not None:
                yield function, thing

    def dispatchers(self) -> tuple[DispatcherInfo, ...]:
        """Return the facts about every function seen, as they are now."""
        if self._infos is not None:
            return self._infos
        for dispatcher in numba_api.inlined_dispatchers():
            # One that is only ever inlined never gets an overload to be seen by.
            self._remember_function(dispatcher)
        found = []
        for function, (reference, info) in self._functions.items():
            thing = reference()
            if thing is not None:
                info = numba_api.dispatcher_info(thing, function)
            if info is not None:
                found.append(info)
        self._infos = tuple(found)
        return self._infos

    def overloads(self, ns_per_tick: float) -> list[tuple[OverloadStats, list[Record]]]:
        """Freeze the records into overloads without times of the tree.

        Records of one function with equal argument types are one overload: a method
        and the wrapper jitclass made for it, a stencil compiled again, a recompilation.

        Parameters
        ----------
        ns_per_tick : float
            Rate of the clock.

        Returns
        -------
        list of (OverloadStats, list of Record)
            ``calls`` and the times that come from the context tree are left for the
            session to fill in.
        """
        self.find_compiled_callers()
        indices: dict[FunctionId, int] = {}
        found = []
        for (function, signature), records in self._by_overload().items():
            index = indices[function] = indices.get(function, -1) + 1
            stats = self._freeze(records, signature, index, ns_per_tick)
            found.append((stats, records))
        found += self._without_code(indices)
        return found

    def _by_overload(self) -> dict[tuple[FunctionId, str], list[Record]]:
        """Return the records of each overload, under a signature that is unique."""
        groups: dict[tuple[FunctionId, str, tuple[ArgType, ...]], list[Record]] = {}
        for record in self.records:
            key = (record.function, record.signature, _unnamed(record.args))
            groups.setdefault(key, []).append(record)
        texts: dict[tuple[FunctionId, str], int] = {}
        found = {}
        for (function, signature, _), records in groups.items():
            number = texts[function, signature] = (
                texts.get((function, signature), 0) + 1
            )
            unique = signature if number == 1 else f"{signature} #{number}"
            found[function, unique] = records
        return found

    def counters(
        self, *, inclusive: bool = False
    ) -> dict[tuple[FunctionId, str], tuple[int, int]]:
        """Return calls and exclusive (or inclusive) ticks so far, of what was called.

        Made to be read between rounds of calls, while the session runs: the time it
        takes follows the size of the tree, not the number of overloads alive.
        """
        if self._engine is None:
            return {}
        if len(self.records) != self._counted_records:
            self._slot_keys = {
                record.slot.address: (key, record.slot)
                for key, records in self._by_overload().items()
                for record in records
                if record.slot is not None
            }
            self._counted_records = len(self.records)
        found: dict[tuple[FunctionId, str], tuple[int, int]] = {}
        totals = self._engine.totals(inclusive=inclusive)
        for address, (key, slot) in self._slot_keys.items():
            calls, ticks = totals.get(address, (0, 0))
            if isinstance(slot, UfuncSlot):
                edges = self._engine.edges(slot)
                calls += sum(edge[1] for edge in edges)
                ticks += sum(edge[2] - edge[3] * (not inclusive) for edge in edges)
            if calls:
                before = found.get(key, (0, 0))
                found[key] = (before[0] + calls, before[1] + ticks)
        return found

    def _freeze(
        self, records: list[Record], signature: str, index: int, ns_per_tick: float
    ) -> OverloadStats:
        lead = max(records, key=lambda record: record.kind in _WRAPPED_KINDS)
        slots = [record.slot for record in records if record.slot is not None]
        reason, countable = _blind_spot(lead, records)
        low, high, histogram = _distribution(self._engine, slots, ns_per_tick)
        elements = [s.words[UfuncField.ELEMENTS] for s in slots if _is_ufunc(s)]
        created = any(record.created_in_session for record in records)
        dispatch_reason = self._why_no_dispatch(lead, slots)
        return OverloadStats(
            function=lead.function,
            signature=signature,
            kind=lead.kind,
            origin=lead.origin,
            index=index,
            args=lead.args,
            return_type=lead.return_type,
            internal=lead.internal,
            countable=countable,
            not_countable_reason=reason,
            calls=0 if slots else None,
            inclusive_ns=0 if slots else None,
            exclusive_ns=0 if slots else None,
            min_ns=low,
            max_ns=high,
            histogram=histogram,
            dispatch_ns=None if dispatch_reason else 0,
            dispatch_reason=dispatch_reason,
            elements=sum(elements) if elements and lead.kind != "cfunc" else None,
            compile_reason="" if created else BEFORE_SESSION_REASON,
            created_in_session=created,
            boxing_reason=lead.boxing_reason,
            threads=_thread_splits(records, ns_per_tick),
        )

    def _why_no_dispatch(self, record: Record, slots: list[Slot | UfuncSlot]) -> str:
        if not slots:
            return record.reason
        if record.kind in ("ufunc loop", "gufunc loop"):
            return UFUNC_DISPATCH_REASON
        if record.kind == "stencil":
            return STENCIL_DISPATCH_REASON
        if record.kind in ("objmode body", "cfunc"):
            return NO_DISPATCH_REASON
        if self._dispatch_reason:
            return self._dispatch_reason
        past = sum(
            slot.words[SlotField.UNDISPATCHED]
            for slot in slots
            if isinstance(slot, Slot)
        )
        return PAST_DISPATCHER_REASON.format(calls=past) if past else ""

    def _without_code(
        self, indices: dict[FunctionId, int]
    ) -> list[tuple[OverloadStats, list[Record]]]:
        """Return rows for functions that are only ever inlined."""
        return [
            (
                OverloadStats(
                    function=info.function,
                    signature="",
                    kind="function",
                    origin="none",
                    countable=False,
                    not_countable_reason=INLINED_REASON,
                    calls=None,
                    inclusive_ns=None,
                    exclusive_ns=None,
                    dispatch_reason=INLINED_REASON,
                    compile_reason=INLINED_REASON,
                    boxing_reason=INLINED_REASON,
                ),
                [],
            )
            for info in self.dispatchers()
            if info.inline
            and info.function not in indices
            and not numba_api.is_internal(info.function.module)
        ]


_WRAPPED_KINDS = ("constructor", "method", "property")

_IMMORTAL: list[UfuncSlot] = []
"""Slots whose address was handed out with a C callback's."""
_OCCUPIED: list[tuple[Engine, Slot | UfuncSlot]] = []
"""Slots of ended sessions that a call was still inside of."""


def _keep_occupied(engine: Engine | None, slots: list[Slot | UfuncSlot]) -> None:
    """Keep slots alive that a running call will still write to; drop finished ones."""
    if engine is not None:
        _OCCUPIED.extend((engine, slot) for slot in slots)
    in_use = {id(engine): engine.slots_in_use() for engine, _ in _OCCUPIED}
    _OCCUPIED[:] = [
        (engine, slot)
        for engine, slot in _OCCUPIED
        if slot.address in in_use[id(engine)] or _unmeasured_calls(slot)
    ]


def _unmeasured_calls(slot: Slot | UfuncSlot) -> int:
    word = UfuncField.ACTIVE if _is_ufunc(slot) else SlotField.UNMEASURED
    return int(slot.words[word])


def _is_ufunc(slot: Slot | UfuncSlot) -> bool:
    return isinstance(slot, UfuncSlot)


def _weak(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: None


def _reach(library: Any, ends: Container[int]) -> Iterator[Any]:
    """Yield the libraries that one links, beyond those in ``ends`` (by id) none."""
    seen = {id(library)}
    waiting = [library]
    while waiting:
        for linked in numba_api.linked_libraries(waiting.pop()):
            if id(linked) in seen:
                continue
            seen.add(id(linked))
            yield linked
            if id(linked) not in ends:
                waiting.append(linked)


def _key(record: Record) -> tuple[FunctionId, str]:
    return record.function, record.signature


def _unnamed(args: tuple[ArgType, ...]) -> tuple[ArgType, ...]:
    return tuple(replace(arg, name="") for arg in args)


def _origin(thing: Any, cres: Any, *, internal: bool, late: bool) -> Origin:
    if internal:
        return "internal"
    if getattr(cres, "metadata", None) is None:
        return "cache"
    # While the decorator runs it is not yet closed to other types; once it is,
    # somebody may have closed it by hand.
    closed = getattr(thing, "_can_compile", True) is False
    is_eager = numba_api.is_in_decorator(thing) if late else closed
    return "eager" if is_eager else "compiled"


def _ufunc_record(
    function: FunctionId, ufunc: np.ufunc, index: int, *, late: bool
) -> Record:
    """Return the record of one loop; its signature is NumPy's, ``(float64)``."""
    codes, _, result = ufunc.types[index].partition("->")
    names = [np.dtype(code).name if code != "O" else "object" for code in codes]
    kind: OverloadKind = "gufunc loop" if ufunc.signature else "ufunc loop"
    return Record(
        function=function,
        signature=f"({', '.join(names)})",
        args=tuple(ArgType("", name, "scalar", dtype=name) for name in names),
        return_type=", ".join(np.dtype(code).name for code in result if code != "O"),
        kind=kind,
        origin="compiled",
        internal=numba_api.is_internal(function.module),
        created_in_session=late,
    )


def _thread_splits(
    records: list[Record], ns_per_tick: float
) -> tuple[ThreadSplit, ...]:
    """Return calls and time per number of threads, over all records."""
    sums: dict[int, list[int]] = {}
    for record in records:
        for threads, *figures in record.split.rows if record.split else ():
            row = sums.setdefault(threads, [0, 0, 0])
            sums[threads] = [a + b for a, b in zip(row, figures, strict=True)]
    return tuple(
        ThreadSplit(threads, calls, round(ticks * ns_per_tick), cpu_ns)
        for threads, (calls, ticks, cpu_ns) in sorted(sums.items())
    )


def boxing_split(
    stats: OverloadStats, records: list[Record], ns_per_tick: float
) -> OverloadStats:
    """Return the overload with its calls split, where that was asked for.

    Boxing is what the other two leave of the inclusive time, so it can be had only when
    every call got as far as the kernel.
    """
    slots = [record.boxing for record in records if record.boxing is not None]
    if not slots or not stats.calls or stats.inclusive_ns is None:
        return stats
    calls, unbox, kernel = (
        sum(slot.words[field] for slot in slots) for field in BoxingField
    )
    if calls != stats.calls:
        return replace(
            stats,
            boxing_reason=f"{stats.calls - calls} of {stats.calls} calls failed while "
            "unboxing; the rest cannot be told apart",
        )
    unbox_ns, kernel_ns = round(unbox * ns_per_tick), round(kernel * ns_per_tick)
    box_ns = max(0, stats.inclusive_ns - unbox_ns - kernel_ns)
    split = BoxingSplit(calls, unbox_ns, kernel_ns, box_ns)
    return replace(stats, boxing=split, boxing_reason="")


def _blind_spot(lead: Record, records: list[Record]) -> tuple[str, bool]:
    """Return (reason, whether every call is counted) for an overload."""
    callers = set().union(*(record.callers for record in records))
    if callers:
        return _compiled_callers(callers), False
    if any(record.address_taken for record in records):
        return FIRST_CLASS_REASON, False
    return lead.reason, any(record.slot is not None for record in records)


def _compiled_callers(callers: set[str]) -> str:
    names = sorted(callers)
    shown = ", ".join(f"`{name}`" for name in names[:MAX_CALLERS_NAMED])
    if len(names) > MAX_CALLERS_NAMED:
        shown += f" and {len(names) - MAX_CALLERS_NAMED} more"
    return COMPILED_CALLS_REASON.format(callers=shown)


def _distribution(
    engine: Engine | None, slots: list[Any], ns_per_tick: float
) -> tuple[int | None, int | None, tuple[int, ...]]:
    """Return (minimum, maximum, histogram) over slots, nanoseconds."""
    low, high = START_MINIMUM, -1
    histogram = [0] * HISTOGRAM_BUCKETS
    for slot in slots:
        fields = UfuncField if _is_ufunc(slot) else SlotField
        words = slot.words
        counts = [] if engine is None else engine.histogram(slot)
        if not any(counts):
            continue
        low, high = min(low, words[fields.MIN]), max(high, words[fields.MAX])
        histogram = [a + b for a, b in zip(histogram, counts, strict=True)]
    if high < 0:
        return None, None, ()
    return round(low * ns_per_tick), round(high * ns_per_tick), tuple(histogram)
