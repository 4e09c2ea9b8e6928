"""Modules of SciPy that are imported on first use: they take half of the time of a first fit.

The calls in `AFTER_LOADING` are made whenever one has been loaded.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

AFTER_LOADING: list[Callable[[], object]] = []


def _load(name):
    """Return a module by its name, imported if need be."""
    __import__(name)
    return sys.modules[name]


class LazyModule:
    """What stands for a module until it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(_load(self._name), name)
        for call in AFTER_LOADING:
            call()
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    from scipy import interpolate as interpolate
    from scipy import linalg as linalg
    from scipy import optimize as optimize
    from scipy import sparse as sparse
    from scipy import special as special
    from scipy import stats as stats
    from scipy.linalg import blas as blas
    from scipy.linalg import lapack as lapack
else:
    special, linalg, optimize = LazyModule("scipy.special"), LazyModule("scipy.linalg"), LazyModule("scipy.optimize")
    sparse, stats, interpolate = map(LazyModule, ("scipy.sparse", "scipy.stats", "scipy.interpolate"))
    blas, lapack = LazyModule("scipy.linalg.blas"), LazyModule("scipy.linalg.lapack")
