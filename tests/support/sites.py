"""Sites as the kernels return them, and how near they have to be to many digits."""

import numpy as np

from cavity import _core
from cavity.likelihoods.base import encode_observations, kernel_settings

BEST = _core.variants("sites")[-1]
CLOSED = {"Probit", "Step", "Interval", "Laplace", "Gaussian", "Clutter", "AsymmetricLaplace", "LogNormal"}


def kernel(likelihood, y, power, mean, variance, variant=BEST):
    """(log_z, d1, d2, tau, rho) of sites of p(y|f)^power, straight from the kernel, of checked arrays."""
    module, results = _core.load("sites", variant), []
    for natural in (False, True):
        out = [np.empty(mean.size) for _ in range(3)]
        read, power = encode_observations(likelihood, y), np.atleast_1d(np.asarray(power, dtype=float))
        module.evaluate(*kernel_settings(likelihood), power, *read, mean, variance, natural, *out)
        results.append(out)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    return (*results[0], *results[1][1:])


def assert_golden(entry, at, smallest=1e-20):
    """Compare (log_z, d1, d2, tau, rho) with the many digits of an entry of the table.

    tau = d1/shrink + m rho is a sum of terms of either sign; its error is relative to them. A site whose d1 is below
    `smallest` of what moves the cavity by a standard deviation says nothing, and its d1, d2, tau and rho count as zero.
    """
    name, m, v = entry["likelihood"], entry["mean"], entry["variance"]
    log_z, d1, d2, tau, rho, shrink = map(float, entry["values"])
    closed = name in CLOSED and (name != "Probit" or entry["power"] == 1)
    exact = closed and name in ("Probit", "Step")
    tol = 1e-13 if exact else 1e-12 if closed else 1e-10
    if exact and log_z > -0.1:  # the upper tail has z^2 times the rounding error of z, half an ulp
        tol = max(tol, 2.3e-16 * m**2 / (v + (name == "Probit")))
    nothing = 1e-300 if exact else smallest / np.sqrt(v)
    assert abs(at[0] - log_z) <= tol * (abs(log_z) if exact else max(1, abs(log_z))), entry
    assert abs(at[1] - d1) <= tol * (abs(d1) + nothing), entry
    assert abs(at[2] - d2) <= tol * (abs(d2) + nothing / np.sqrt(v)), entry
    size = abs(tau) if exact else abs(d1 / shrink) + abs(m * rho)
    assert abs(at[3] - tau) <= tol * (size + nothing * (1 + abs(m) / np.sqrt(v))), entry
    assert abs(at[4] - rho) <= tol * (abs(rho) + nothing / np.sqrt(v)), entry
    assert abs(1 / (1 + v * at[4]) - shrink) <= tol * shrink * max(1, v * abs(rho) if rho < 0 else 1), entry
