"""The compiled kernels, and the choice between their instruction-set variants.

A kernel module NAME exists as `cavity._core.NAME` (any CPU) and, where the compiler and the CPU allow, as
`cavity._core.v3.NAME` and `cavity._core.v4.NAME` (x86-64-v3: AVX2; x86-64-v4: AVX-512). All variants return
the same bits. Nothing in here imports the rest of cavity.
"""

from importlib import import_module
from importlib.util import find_spec

from cavity._core import cpu

BASELINE = "baseline"


def variants(name):
    """Return the variants of kernel module `name` that were built and that this CPU can run, slowest first."""
    levels = [level for level in ("v3", "v4") if level in cpu.levels()]
    return [BASELINE] + [level for level in levels if find_spec(f"{__name__}.{level}.{name}")]


def load(name, variant):
    """Import kernel module `name` in the given variant."""
    return import_module(f"{__name__}.{name}" if variant == BASELINE else f"{__name__}.{variant}.{name}")


def best(name):
    """Import the fastest variant of kernel module `name`."""
    return load(name, variants(name)[-1])
