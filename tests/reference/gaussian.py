"""Scaled Gaussians from their definition, in arbitrary precision.

The value at x is exp(kappa + tau x - rho x^2/2), and gamma relates to kappa as the head of
cython_core/gaussian/gaussian.pxd says.
Products and quotients add and subtract kappas: with enough digits that is exact, whatever the operands.
"""

import mpmath as mp

DIGITS = 1500  # kappas of operands at the ends of the exponent range cancel over a thousand digits


def kappa(tau, rho, gamma):
    """Log value at 0 of a factor with finite precision."""
    if rho == 0:
        return mp.mpf(gamma)
    return mp.mpf(gamma) + mp.log(abs(mp.mpf(rho)) / (2 * mp.pi)) / 2 - mp.mpf(tau) ** 2 / (2 * mp.mpf(rho))


def combine(sign, tau1, rho1, gamma1, tau2, rho2, gamma2):
    """Return (tau, rho, gamma, size) of f g or f/g; size is the largest magnitude that gamma is summed from."""
    with mp.workdps(DIGITS):
        tau = mp.mpf(tau1) + sign * mp.mpf(tau2)
        rho = mp.mpf(rho1) + sign * mp.mpf(rho2)
        total = kappa(tau1, rho1, gamma1) + sign * kappa(tau2, rho2, gamma2)
        gamma = total if rho == 0 else total - mp.log(abs(rho) / (2 * mp.pi)) / 2 + tau**2 / (2 * rho)
        return tau, rho, gamma


def conditioning(sign, tau1, rho1, gamma1, tau2, rho2, gamma2):
    """Return how large an error of gamma one rounding of each operand and of their sum may cause, in units of eps."""
    with mp.workdps(60):
        t1, r1, t2, r2 = (mp.mpf(v) for v in (tau1, rho1, tau2, rho2))
        rho = r1 + sign * r2
        size = abs(mp.mpf(gamma1)) + abs(mp.mpf(gamma2)) + 1
        for r in (r1, r2, rho):
            size += abs(mp.log(abs(r))) if r else 0
        p, r = (rho * r2, r1) if sign < 0 else (r1 * r2, rho)
        if p and r:
            u, spread = t1 * r2 - t2 * r1, abs(t1 * r2) + abs(t2 * r1)
            size += abs((abs(u) + spread) * abs(u) / (p * r)) + abs(mp.mpf(2) ** -52 * spread**2 / (p * r))
        else:
            for r in (r1, r2, rho):
                size += (abs(t1) + abs(t2)) ** 2 / abs(r) if r else 0
        return size


def log_value(x, tau, rho, gamma):
    """Log of the scaled Gaussian at x."""
    with mp.workdps(60):
        x = mp.mpf(x)
        return kappa(tau, rho, gamma) + mp.mpf(tau) * x - mp.mpf(rho) * x * x / 2
