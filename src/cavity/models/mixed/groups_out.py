"""Groups left out: the evidence of the rows of one level under the posterior without their sites."""

import numpy as np

from cavity.base.loop import CONVERGED
from cavity.blocks.executors import Threads, single_blas
from cavity.ep.engine import Engine
from cavity.ep.latent import Latent
from cavity.ep.options import Options
from cavity.ep.sites import Sites


def group_log_densities(likelihood, effects, tau, rho, rows, matrix, codes, n_levels):
    """Return log p(rows of a level | all other rows) of each level; nan where a level has no rows in use.

    Parameters
    ----------
    likelihood : Likelihood
        Of the observations.
    effects : Effects
        The posterior of all effects.
    tau, rho : ndarray (N,)
        The sites of all rows.
    rows : Rows
        All rows.
    matrix : CSR array (N, n)
        Their effects.
    codes : ndarray (N,)
        Their levels, of n_levels.
    """
    found, order = np.full(n_levels, np.nan), np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(n_levels + 1))
    with Threads(1) as threads, single_blas():
        for level in range(n_levels):
            here = order[ends[level] : ends[level + 1]]
            here = here[rows.in_use[here]]
            if len(here):
                found[level] = _one(likelihood, effects, tau[here], rho[here], rows.part(here), matrix[here], threads)
    return found


def _one(likelihood, effects, tau, rho, rows, matrix, threads):
    """The log evidence of some rows under q without their sites, N(m, (K^-1 - R)^-1) of their f: nan if improper."""
    covariance = effects.cross(matrix)
    # (K^-1 - R)^-1 = (I - K R)^-1 K, and its mean (I - K R)^-1 (m - K tau)
    keep = np.eye(len(tau)) - covariance * rho
    if np.linalg.slogdet(keep)[0] <= 0:
        return np.nan
    cavity = np.linalg.solve(keep, covariance)
    offset = np.zeros(len(tau)) if rows.offset is None else rows.offset
    mean = np.linalg.solve(keep, matrix @ effects.mean + offset - covariance @ tau)
    geometry = Latent(np.ascontiguousarray(0.5 * (cavity + cavity.T)), mean, threads)
    fit = Engine(geometry, Sites(likelihood, rows.y, rows.weights), Options.checked()).run()
    return fit.log_evidence if fit.status == CONVERGED else np.nan
