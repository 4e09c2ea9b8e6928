"""First sites of a mixed model, from a dense fit of the fixed effects alone.

Sites that are all renewed from one belief overshoot where it is far wider than the likelihood of a row, as the prior of
the fixed effects may be. So the fixed effects are fitted first, by dense EP, in which random effects are independent
noise of f in each row: f = x'w + N(0, r), r = sum over terms of z'V z. The first sites match moments under that fit.
"""

from dataclasses import replace

import numpy as np

from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.site_updates import find_cavities, is_within_float64
from cavity.ep.sites import Sites
from cavity.jobs.job import SILENT_JOB

FIRST_FIT_OPTIONS = {"max_iter": 10, "tol": 0.1, "double_loop": 0}  # of the dense fit: its sites change anyway


def match_first_sites(problem, threads, sites, options):
    """Return tau and rho of the sites to begin with, (N,), or None where rows have no fixed effects."""
    rows, mask = problem.used, problem.rows.in_use
    if not np.all(np.any(rows.X != 0.0, axis=1)):
        return None
    spread = np.zeros(rows.n)
    for term, covariance in zip(problem.terms, problem.covariances, strict=True):
        Z = term.Z[mask]
        spread += np.einsum("ij,jk,ik->i", Z, covariance, Z)
    noisy = Sites(sites.likelihood, rows.y, rows.weights, options.power, residual=spread)
    geometry = Dense(rows.X, rows.offset, *problem.prior.moments, threads)
    fit = Engine(geometry, noisy, replace(options, job=SILENT_JOB, **FIRST_FIT_OPTIONS)).run()
    return geometry.in_groups(_match_group, noisy, (fit.tau, fit.rho), fit.belief, sites, filled=True)[1]


def _match_group(group, belief, sites):
    """Fill in the sites of f with random effects that match the rows of a group, from the sites of x'w."""
    for part, x in group.blocks:
        fraction, spread = sites.part(sites.fraction, part), group.sites.residual[part]
        m, v, _ = find_cavities(*group.geometry.values(belief, part, x), group.tau[part], group.rho[part], fraction)
        _, tau, rho = sites.match(part, m, v + spread)
        good = is_within_float64(tau, rho)
        group.new[0][part] = np.where(good, tau / fraction, 0.0)
        group.new[1][part] = np.where(good, rho / fraction, 0.0)
