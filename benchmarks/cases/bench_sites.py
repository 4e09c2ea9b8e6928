"""Sites of likelihoods, many at a time: cavity beside NumPy and SciPy.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_sites.py`. Both sides are compared before they
are timed.
"""

import numpy as np
import pytest
from rivals import sites as reference

from cavity import _core, likelihoods
from cavity.likelihoods.base import encode_observations, kernel_settings

SIZE = 10**5
ONE = np.ones(1)


def cavities():
    """Return labels, means from 0 to 2 and variances of sd from 0.3 to 2."""
    rng = np.random.default_rng(1)
    y = np.where(rng.random(SIZE) < 0.5, -1.0, 1.0)
    return y, rng.uniform(0.0, 2.0, SIZE), rng.uniform(0.3, 2.0, SIZE) ** 2


def kernel_of(likelihood, y, mean, variance, natural):
    """Return a function without arguments that fills preallocated outputs, and the outputs."""
    out = tuple(np.ones(SIZE) for _ in range(3))
    evaluate, fixed = (
        _core.best("sites").evaluate,
        (*kernel_settings(likelihood), ONE, *encode_observations(likelihood, y)),
    )
    return (lambda: evaluate(*fixed, mean, variance, natural, *out)), out


@pytest.mark.parametrize("name", ["cavity", "expert"])
def test_probit_derivatives(measure, name):
    """log_z, d1 and d2 of probit."""
    y, mean, variance = cavities()
    call, out = kernel_of(likelihoods.Probit(), y, mean, variance, natural=False)
    call()
    for actual, desired in zip(out, reference.probit_derivatives(y, mean, variance), strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-11)
    other = call if name == "cavity" else lambda: reference.probit_derivatives(y, mean, variance)
    measure("probit log_z, d1, d2", name, other, SIZE, "site")


@pytest.mark.parametrize("kind", ["Probit", "Step"])
def test_natural_sites(measure, kind):
    """log_z, tau and rho of sites with labels."""
    y, mean, variance = cavities()
    call, _ = kernel_of(getattr(likelihoods, kind)(), y, mean, variance, natural=True)
    measure(f"{kind.lower()} log_z, tau, rho", "cavity", call, SIZE, "site")


@pytest.mark.parametrize("name", ["cavity", "expert"])
def test_logit(measure, name):
    """log_z, d1 and d2 of logit, beside a Gauss-Hermite rule of 64 nodes over all sites at once."""
    y, mean, variance = cavities()
    call, out = kernel_of(likelihoods.Logit(), y, mean, variance, natural=False)
    call()
    for actual, desired in zip(out, reference.logit_derivatives(y, mean, variance), strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-5)
    other = call if name == "cavity" else lambda: reference.logit_derivatives(y, mean, variance)
    measure("logit log_z, d1, d2", name, other, SIZE, "site")
