"""What to change so that LLVM vectorizes a loop, by its remark on the loop.

The remarks are those of LLVM's ``LoopVectorizationLegality.cpp``,
``LoopVectorize.cpp``, ``LoopAccessAnalysis.cpp`` and ``LICM.cpp``. One that is not
known gets no advice: a guess would cost the reader an afternoon.
"""

from __future__ import annotations

__all__ = ["advise"]

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        "cannot prove it is safe to reorder floating-point",
        "each iteration adds to the result of the one before, and vector code "
        "would add in another order. If rounding may differ in the last digits, "
        "allow it: @njit(fastmath={'reassoc', 'nsz'})",
    ),
    (
        "cannot identify array bounds",
        "an index is computed in a way whose range LLVM cannot see (another "
        "array's element, or one that may be negative). Index by the loop "
        "variable where that is possible, or loop over the array in its own "
        "order",
    ),
    (
        "early exit",
        "the loop can end before its last iteration (break, return, or an error "
        "that is raised). Take the exit out of the loop; a division that may "
        "raise does not if @njit(error_model='numpy')",
    ),
    (
        "could not determine number of loop iterations",
        "the number of iterations is not known when the loop begins: a while "
        "loop, or an exit from within. Write it as `for i in range(n)` without "
        "break",
    ),
    (
        "failed to move load with loop-invariant address",
        "what is read here is the same in each iteration, yet it is read anew "
        "each time, because something the loop writes or calls might change "
        "it. Read it into a local variable before the loop",
    ),
    (
        "control flow cannot be substituted for a select",
        "a branch in the loop guards something that must not be done "
        "speculatively, such as a store or a division. Compute both sides and "
        "choose by `x if c else y`",
    ),
    (
        "control flow is not understood",
        "the loop has several ways out or in, often from checks that may raise "
        "an error. Integer division raises on 0: @njit(error_model='numpy') "
        "takes that check away",
    ),
    (
        "call instruction cannot be vectorized",
        "it calls a function that exists for one number at a time. For sin, exp "
        "and the like install icc_rt, with which Numba uses SVML's vector "
        "versions; take other calls out of the loop",
    ),
    (
        "library call cannot be vectorized",
        "it calls a library function for one number at a time. For sin, exp and "
        "the like install icc_rt, with which Numba uses SVML's vector versions",
    ),
    (
        "instruction cannot be vectorized",
        "it has an operation without a vector form, such as an atomic one, "
        "reference counting or an object. Keep to numbers and arrays within the "
        "loop",
    ),
    (
        "value that could not be identified as reduction",
        "an iteration needs a value of the one before it that is no plain sum, "
        "product, minimum or maximum. Keep such recurrences in a loop of their "
        "own, so that the rest can be vectorized",
    ),
    (
        "unsafe dependent memory operations",
        "an iteration may read what one before it has written, in the same "
        "array or one that may overlap. Write to another array than those that "
        "are read",
    ),
    (
        "cannot check memory dependencies at runtime",
        "LLVM would have to prove while running that arrays do not overlap, and "
        "cannot for these indices. Use fewer arrays or plain indices in the "
        "loop",
    ),
    (
        "memory checks",
        "so many arrays are used that proving they do not overlap would cost "
        "more than it gains. Split the loop",
    ),
    (
        "cost-model indicates",
        "it can be done and would not pay: too few iterations, or elements far "
        "apart. Arrays that are contiguous along the inner loop help (C order, "
        "last index)",
    ),
    (
        "vectorization is not beneficial",
        "it can be done and would not pay: too few iterations, or elements far apart",
    ),
    (
        "loop contains a switch",
        "it chooses between many cases. Take the choice out of the loop",
    ),
    (
        "integer loop induction variable could not be identified",
        "the loop does not count by a constant step. Write it as `for i in range(n)`",
    ),
)


def advise(remark: str) -> str:
    """Return what to change, in the words of Python; "" for an unknown remark."""
    for wording, advice in _ADVICE:
        if wording.lower() in remark.lower():
            return advice
    return ""
