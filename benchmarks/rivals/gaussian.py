"""Products and quotients of scaled Gaussians in NumPy and in Python floats.

"Naive" functions are the textbook formulas in the textbook's order, with a temporary for every operation. "Expert" ones
do as few passes as possible, allocate nothing (out= everywhere) and precompute what the data alone determine. None of
the functions checks its input or knows about uniform factors, point masses or overflow. The same words hold for the
other rivals.
"""

import math

import numpy as np

LOG_2PI = math.log(2 * math.pi)


def multiply_naive(tau1, rho1, gamma1, tau2, rho2, gamma2):
    """Return (tau, rho, gamma) of the product of scaled Gaussians."""
    tau, rho = tau1 + tau2, rho1 + rho2
    log_factor = 0.5 * np.log(np.abs(rho1 * rho2 / (2 * np.pi * rho)))
    gamma = gamma1 + gamma2 + log_factor - (tau1 * rho2 - tau2 * rho1) ** 2 / (2 * rho1 * rho2 * rho)
    return tau, rho, gamma


def divide_naive(tau1, rho1, gamma1, tau2, rho2, gamma2):
    """Return (tau, rho, gamma) of the quotient of scaled Gaussians."""
    tau, rho = tau1 - tau2, rho1 - rho2
    log_factor = 0.5 * np.log(np.abs(rho * rho2 / (2 * np.pi * rho1)))
    gamma = gamma1 - gamma2 - log_factor + (tau1 * rho2 - tau2 * rho1) ** 2 / (2 * rho * rho1 * rho2)
    return tau, rho, gamma


def multiply_expert(tau1, rho1, gamma1, tau2, rho2, gamma2, out, work):
    """Product into the three arrays `out` by way of the two arrays `work`: 17 passes."""
    tau, rho, gamma = out
    np.add(tau1, tau2, out=tau)
    np.add(rho1, rho2, out=rho)
    np.multiply(rho1, rho2, out=gamma)
    _overlap(tau1, rho1, tau2, rho2, gamma, rho, gamma, work)
    np.add(gamma, gamma1, out=gamma)
    np.add(gamma, gamma2, out=gamma)


def divide_expert(tau1, rho1, gamma1, tau2, rho2, gamma2, out, work):
    """Quotient into the three arrays `out` by way of the two arrays `work`: 17 passes."""
    tau, rho, gamma = out
    np.subtract(tau1, tau2, out=tau)
    np.subtract(rho1, rho2, out=rho)
    np.multiply(rho, rho2, out=gamma)
    _overlap(tau1, rho1, tau2, rho2, gamma, rho1, gamma, work)
    np.subtract(gamma1, gamma, out=gamma)
    np.subtract(gamma, gamma2, out=gamma)


def _overlap(tau1, rho1, tau2, rho2, p, r, out, work):
    """out = log|p/(2 pi r)|/2 - u^2/(2 p r) with u = tau1 rho2 - tau2 rho1; out may be p."""
    first, second = work
    np.multiply(tau1, rho2, out=first)
    np.multiply(tau2, rho1, out=second)
    np.subtract(first, second, out=first)
    np.divide(first, r, out=first)
    np.multiply(first, first, out=first)
    np.divide(p, r, out=out)
    np.divide(first, out, out=first)  # (u/r)^2/(p/r)
    np.abs(out, out=out)
    np.log(out, out=out)
    np.subtract(out, first, out=out)
    np.subtract(out, LOG_2PI, out=out)
    np.multiply(out, 0.5, out=out)


def in_blocks(function, operands, out, work):
    """Run an expert function over blocks as long as the work arrays: all its passes stay in the caches."""
    size = len(work[0])
    for start in range(0, len(out[0]), size):
        part = slice(start, start + size)
        rows = len(out[0][part])
        function(*(a[part] for a in operands), tuple(a[part] for a in out), tuple(w[:rows] for w in work))


class FloatGaussian:
    """One scaled Gaussian in Python floats, for products one by one."""

    __slots__ = ("gamma", "rho", "tau")

    def __init__(self, tau, rho, gamma):
        self.tau, self.rho, self.gamma = tau, rho, gamma

    def __mul__(self, other):
        rho1, rho2 = self.rho, other.rho
        p, rho = rho1 * rho2, rho1 + rho2
        u = self.tau * rho2 - other.tau * rho1
        overlap = 0.5 * (math.log(abs(p / rho)) - LOG_2PI - u * u / (p * rho))
        return FloatGaussian(self.tau + other.tau, rho, self.gamma + other.gamma + overlap)
