"""Where a fit of a mixed model begins: at sites that know the fixed effects, whose prior may be far too wide a cavity.

Sites that are all renewed from one belief overshoot where that is far wider than what one row says, as a prior is of
the coefficients of all rows. So the fixed effects come first, by dense EP, for which random effects are independent
noise of f in each row: f = x'w + N(0, r), r = sum over terms of z'V z. What then matches each row is its site.
"""

from dataclasses import replace

import numpy as np

from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.sites import Sites
from cavity.ep.visits import cavities, within_float64
from cavity.jobs.job import QUIET

ROUGH = {"max_iter": 10, "tol": 0.1, "double_loop": 0}  # the first fit: as good as sites that change anyway need


def first_sites(problem, threads, sites, options):
    """Return tau and rho of the sites to begin with, (N,), or None where rows have no fixed effects."""
    rows, mask = problem.used, problem.rows.in_use
    if not np.all(np.any(rows.X != 0.0, axis=1)):
        return None
    spread = np.zeros(rows.n)
    for term, covariance in zip(problem.terms, problem.covariances, strict=True):
        Z = term.Z[mask]
        spread += np.einsum("ij,jk,ik->i", Z, np.atleast_2d(covariance), Z)
    noisy = Sites(sites.likelihood, rows.y, rows.weights, options.power, residual=spread)
    geometry = Dense(rows.X, rows.offset, *problem.prior.moments, threads)
    fit = Engine(geometry, noisy, replace(options, job=QUIET, **ROUGH)).run()
    tau, rho = np.empty(rows.n), np.empty(rows.n)

    def group(blocks):
        for part, x in blocks:
            fraction = sites.part(sites.fraction, part)
            moments = geometry.values(fit.belief, part, x)
            m, v, _ = cavities(*moments, fit.tau[part], fit.rho[part], fraction)
            _, new_tau, new_rho = sites.match(part, m, v + spread[part])
            good = within_float64(new_tau, new_rho)
            tau[part], rho[part] = np.where(good, new_tau / fraction, 0.0), np.where(good, new_rho / fraction, 0.0)

    for _ in geometry.each_group(group):
        pass
    return tau, rho
