"""Cavities that hold next to nothing of the posterior's precision, from exact sums instead of a difference.

A cavity is the posterior without one site. Where that site holds all but a 2^-20 of the precision, as a lone signal
under a very vague prior does, the difference has lost its digits, or all of them: prior 1e-17 and site 1 sum to 1. The
kernels leave such sites alone. Here their cavities are summed without rounding from the prior and the other sites, one
at a time; rounded once, they are proper if they are positive. There are few of them: the precisions of two could only
both be that large if others were negative.
"""

from itertools import chain
from math import fsum

import numpy as np

from cavity import _core

kernel = _core.best("clutter")

LOST_SHARE = 2.0 * kernel.lost  # of the precision: twice what kernels ask for, to find what they skip despite rounding


def possible(rho, units):
    """Whether any cavity of posteriors of these precisions can be lost, or improper: no site is above 1/noise."""
    return rho * units.noise * (1.0 - LOST_SHARE) <= 1.0


def found(sites, units):
    """Return the rows of one problem whose cavity is too small a difference."""
    if not possible(sites.rho, units):
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.abs(sites.rho - sites.site_rho) <= LOST_SHARE * abs(sites.rho))


def cavity(sites, units, i, power=1.0):
    """Return tau (d,) and rho of the prior and all sites without the power of site i, rounded once."""
    rest = 1.0 - power  # exact for power above 1/2; below it no cavity is lost

    def total(prior, of_sites):
        return fsum(chain((float(prior), -of_sites[i], rest * of_sites[i]), of_sites))

    tau = np.array([total(*each) for each in zip(units.prior_tau, sites.site_tau.T, strict=True)])
    return tau, total(units.prior_rho, sites.site_rho)


def visit(points, sites, damping):
    """Visit the sites with lost cavities, each under the sites as they are then; return how many have moved."""
    moved, d = 0, points.shape[1]
    for i in found(sites, points.units):
        tau, rho = cavity(sites, points.units, i)
        if rho > 0:
            site_tau, site_rho = np.empty((1, d)), np.empty(1)
            kernel.assimilate(*points.arguments(slice(i, i + 1)), site_tau, site_rho, np.empty(1), tau, rho, 0.0)
            sites.site_tau[i] += damping * (site_tau[0] - sites.site_tau[i])
            sites.site_rho[i] += damping * (site_rho[0] - sites.site_rho[i])
            moved += 1
    return moved


def evaluate(points, sites):
    """Yield row, log Z, log odds of clutter and log site value of the sites with lost cavities."""
    for i in found(sites, points.units):
        tau, rho = cavity(sites, points.units, i)
        if not rho > 0:
            yield i, np.nan, np.nan, np.nan  # not after EP; callers refuse to show it
            continue
        d, out = len(tau), np.empty((4, 1))
        no_site = np.zeros((1, d)), np.zeros(1)
        kernel.evaluate(*points.arguments(slice(i, i + 1)), *no_site, tau, rho, *out)
        shift = sites.tau / sites.rho - tau / rho
        value = out[0, 0] + 0.5 * (d * np.log(sites.rho / rho) + rho * (shift @ shift))
        yield i, out[0, 0], out[1, 0], value


def cavities(sites, units):
    """Return tau (N, d) and rho (N,) of all cavities, of one problem or each of a batch."""
    tau = np.expand_dims(sites.tau, -2) - sites.site_tau
    rho = np.asarray(sites.rho)[..., None] - sites.site_rho
    for b in np.ndindex(sites.site_rho.shape[:-1]):
        one_units, one = (units.problem(b[0]), sites.problem(b[0])) if b else (units, sites)
        for i in found(one, one_units):
            tau[(*b, i)], rho[(*b, i)] = cavity(one, one_units, i)
    return tau, rho
