"""Everything that has an address: engine, struct layouts, clocks, machine code.

Nothing in here is public, and nothing in here runs at ``import numbaprof``.
"""
