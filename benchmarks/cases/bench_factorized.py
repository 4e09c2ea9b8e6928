"""FactorizedGaussian: a sweep over 2000 coupled coordinates beside one matrix-vector product of the same matrix.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_factorized.py`. Every implementation is compared
with another one before it is timed.
"""

from functools import lru_cache

import numpy as np
import pytest

from cavity import _core
from cavity.runs.executors import single_blas

SIZE = 2000


@lru_cache(maxsize=1)
def problem():
    """A dense precision with eigenvalues from 1 to 5, and deviations from the mean."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(SIZE, SIZE)) / SIZE**0.5
    product = root @ root.T
    return np.eye(SIZE) + 0.5 * (product + product.T), rng.normal(size=SIZE)


def expert_sweep(precision, e):
    """Coordinate ascent with a dot product per row; the energy, which a sweep of ours returns too, is left out."""
    for row, rho, i in zip(precision, precision.diagonal().tolist(), range(len(e)), strict=True):
        e[i] -= (row @ e) / rho


@pytest.mark.parametrize("name", ["cavity", "expert", "matvec"])
def test_sweep(measure, name):
    """The matrix is far larger than the cache of a core: reading it is most of the time of all three."""
    precision, start = problem()
    ours, theirs = start.copy(), start.copy()
    sweep = _core.best("factorized").sweep
    energy = sweep(precision, ours)
    expert_sweep(precision, theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert energy == pytest.approx(0.5 * start @ precision @ start, rel=1e-12)

    def cavity():
        np.copyto(ours, start)  # a state that has converged to nothing would be subnormal
        sweep(precision, ours)

    def expert():
        np.copyto(theirs, start)
        expert_sweep(precision, theirs)

    call = {"cavity": cavity, "expert": expert, "matvec": lambda: precision @ start}[name]
    with single_blas():
        measure(f"factorised Gaussian, a sweep, D={SIZE}", name, call, SIZE**2, "entry of the precision")
