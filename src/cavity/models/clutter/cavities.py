"""Cavities that hold next to nothing of the posterior's precision, from exact sums instead of a difference.

A cavity is the posterior without one site. Where that site holds all but a 2^-20 of the precision, as a lone signal
under a very vague prior does, the difference has lost its digits, or all of them: prior 1e-17 and site 1 sum to 1. The
kernels leave such sites alone, and they are taken here, one at a time, with the cavity summed without rounding from the
prior and the other sites. There are few of them: the precisions of two could only both be that large if others were
negative.
"""

from itertools import chain
from math import fsum

import numpy as np

from cavity import _core

_kernel = _core.best("clutter")

LOST = 2.0 * _kernel.lost  # twice what the kernels leave alone: what they skip is found here in spite of rounding
PART = 1 << 16  # numbers of a sum that are Python floats at a time


def suspects(rho, noise):
    """Whether any cavity can have lost its digits, or be improper: no site is more precise than 1/noise."""
    return rho * noise * (1.0 - LOST) <= 1.0


def lost(state, noise):
    """Return the rows of one problem whose cavity is too small a difference."""
    if not suspects(state.rho, noise):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.abs(state.rho - state.site_rho) <= LOST * abs(state.rho))


def exact(units, state, i, power=1.0):
    """Return tau (d,) and rho of the prior and all sites without the power of site i, rounded once."""
    rest = 1.0 - power  # exact for power above 1/2; below it no cavity is lost

    def total(prior, sites):
        parts = (sites[start : start + PART].tolist() for start in range(0, len(sites), PART))
        return fsum(chain((float(prior), -sites[i], rest * sites[i]), *parts))

    tau = np.array([total(prior, sites) for prior, sites in zip(units.prior_tau, state.site_tau.T, strict=True)])
    return tau, total(units.prior_rho, state.site_rho)


def match(units, row, tau, rho):
    """Return tau (d,), rho and log Z of the site of one point, data (1, d), under the cavity (tau, rho)."""
    site_tau, site_rho = np.empty((1, len(tau))), np.empty(1)
    _, log_z = _kernel.assimilate(
        units.model, row, units.origin, units.scale, units.centre, site_tau, site_rho, np.empty(1), tau.copy(), rho, 0.0
    )
    return site_tau[0], site_rho[0], log_z


def evaluate(units, state, row, i):
    """Return log Z, log odds of clutter and log site value of row i, as the kernel does for the others."""
    tau, rho = exact(units, state, i)
    if not rho > 0:
        return np.nan, np.nan, np.nan  # not after EP; callers refuse to show it
    log_z, odds, nothing, d = np.empty(1), np.empty(1), np.empty(1), len(tau)
    no_site = np.zeros((1, d)), np.zeros(1)
    _kernel.evaluate(
        units.model,
        row,
        units.origin,
        units.scale,
        units.centre,
        *no_site,
        tau,
        rho,
        log_z,
        odds,
        nothing,
        np.empty(1),
    )
    shift = state.tau / state.rho - tau / rho
    value = log_z[0] + 0.5 * (d * np.log(state.rho / rho) + rho * (shift @ shift))
    return log_z[0], odds[0], value


def cavities(units, state):
    """Return tau (N, d) and rho (N,) of all cavities; both with a leading axis for a batch."""
    tau = np.expand_dims(state.tau, -2) - state.site_tau
    rho = np.asarray(state.rho)[..., None] - state.site_rho
    for b in np.ndindex(state.site_rho.shape[:-1]):
        one_units, one = (units.problem(b[0]), state.problem(b[0])) if b else (units, state)
        for i in lost(one, one_units.noise):
            tau[(*b, i)], rho[(*b, i)] = exact(one_units, one, i)
    return tau, rho
