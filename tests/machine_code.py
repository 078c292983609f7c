"""Kernels compiled with line tables, and objects for other machines."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import njit, prange

from numbaprof.native.linetable import LineTables
from numbaprof.native.objcode import JitObject, load_objects


def square(x):
    """Be small enough to be inlined."""
    return x * x


def kernels() -> list[tuple[Any, tuple[Any, ...]]]:
    """Return new dispatchers of several kinds, each with arguments."""
    inner = njit(square)

    @njit
    def loop(a):
        total = 0.0
        for i in range(a.size):
            total += inner(a[i])
            if total < 0:
                raise ValueError("negative")
        return total

    @njit(fastmath=True)
    def vectorized(a, b):
        for i in range(a.size):
            b[i] = 2.5 * a[i] + b[i]

    @njit(parallel=True)
    def threaded(a):
        total = 0.0
        for i in prange(a.size):
            total += np.sqrt(a[i])
        return total

    @njit
    def recursive(n):
        return n if n < 2 else recursive(n - 1) + recursive(n - 2)

    @njit
    def containers(n):
        found = [float(i) for i in range(n)]
        found.append(1.5)
        return found[n]

    a = np.linspace(0, 1, 64)
    return [
        (loop, (a,)),
        (vectorized, (a, a.copy())),
        (threaded, (a,)),
        (recursive, (6,)),
        (containers, (5,)),
    ]


@functools.cache
def objects_with_lines() -> tuple[JitObject, ...]:
    """Compile all kernels with line tables, once, and return their objects."""
    with LineTables():
        for function, arguments in kernels():
            function(*arguments)
    return tuple(found for found in load_objects() if found.has_lines)


INLINED_IR = """
define i64 @outer(i64* %p, i64 %n) !dbg !5 {{
entry:
  %v = load volatile i64, i64* %p, !dbg !10
  %w = mul i64 %v, %n, !dbg !11
  store volatile i64 %w, i64* %p, !dbg !12
  %x = load volatile i64, i64* %p, !dbg !13
  call void @effect(), !dbg !14
  ret i64 %x, !dbg !15
}}
define void @bare(i64* %p) {{
  store volatile i64 1, i64* %p
  ret void
}}
declare void @effect()
!llvm.dbg.cu = !{{!0}}
!llvm.module.flags = !{{!1, !2}}
!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !3, producer: "t",
  isOptimized: true, runtimeVersion: 0, emissionKind: {kind})
!1 = !{{i32 2, !"Debug Info Version", i32 3}}
!2 = !{{i32 2, !"Dwarf Version", i32 {version}}}
!3 = !DIFile(filename: "outer.py", directory: "/src")
!4 = !DISubroutineType(types: !{{null}})
!5 = distinct !DISubprogram(name: "outer", scope: !3, file: !3, line: 10, type: !4,
  spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!6 = !DIFile(filename: "/lib/inner.py", directory: "")
!7 = distinct !DISubprogram(name: "inner", scope: !6, file: !6, line: 3, type: !4,
  spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!8 = distinct !DILocation(line: 12, column: 1, scope: !5)
!9 = distinct !DISubprogram(name: "innermost", scope: !6, file: !6, line: 7, type: !4,
  spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!10 = !DILocation(line: 11, column: 1, scope: !5)
!11 = !DILocation(line: 4, column: 1, scope: !7, inlinedAt: !8)
!12 = !DILocation(line: 8, column: 1, scope: !9, inlinedAt: !16)
!13 = !DILocation(line: 0, scope: !5)
!14 = !DILocation(line: 300, column: 1, scope: !5)
!15 = !DILocation(line: 14, column: 1, scope: !5)
!16 = distinct !DILocation(line: 5, column: 1, scope: !7, inlinedAt: !8)
"""
"""Lines 11, 12 (inner:4; innermost:8 called from inner:5), 0, 300, 14 of outer."""

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}


def emit_inlined(
    machine: str = "x86_64",
    *,
    version: int = 4,
    kind: str = "LineTablesOnly",
) -> bytes:
    """Return the object file of :data:`INLINED_IR` for any machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    ir = INLINED_IR.format(version=version, kind=kind)
    module = llvm.parse_assembly(ir)
    module.triple = TRIPLES[machine]
    target = llvm.Target.from_triple(TRIPLES[machine])
    # As Numba does: MCJIT wants the large code model.
    return bytes(target.create_target_machine(codemodel="large").emit_object(module))
