"""The compiled kernels, and the choice between their instruction-set variants.

A kernel module NAME exists as `cavity._core.NAME` (any CPU) and, where the compiler and the CPU allow, as
`cavity._core.v3.NAME` and `cavity._core.v4.NAME` (x86-64-v3: AVX2; x86-64-v4: AVX-512). All variants return
the same bits. The environment variable CAVITY_LEVEL, one of "baseline", "v3" and "v4", is the highest level that is
used, for tests of just that. Nothing in here imports the rest of cavity.
"""

import os
from importlib import import_module
from importlib.util import find_spec

from cavity._core import cpu

BASELINE_VARIANT = "baseline"
CPU_LEVELS = ("v3", "v4")  # their order is alphabetical, and the baseline comes before them


def variants(name):
    """Return the variants of kernel module `name` that were built and that this CPU can run, slowest first."""
    highest = os.environ.get("CAVITY_LEVEL") or CPU_LEVELS[-1]
    if highest not in (BASELINE_VARIANT, *CPU_LEVELS):
        raise ValueError(f"CAVITY_LEVEL must be one of {', '.join((BASELINE_VARIANT, *CPU_LEVELS))}, got {highest!r}")
    levels = [level for level in CPU_LEVELS if level <= highest and level in cpu.levels()]
    return [BASELINE_VARIANT] + [level for level in levels if find_spec(f"{__name__}.{level}.{name}")]


def load(name, variant):
    """Import kernel module `name` in the given variant."""
    return import_module(f"{__name__}.{name}" if variant == BASELINE_VARIANT else f"{__name__}.{variant}.{name}")


def best(name):
    """Import the fastest variant of kernel module `name`."""
    return load(name, variants(name)[-1])
