"""Groups left out: the evidence of the rows of one level under the posterior without their sites."""

import numpy as np

from cavity.base.loop import CONVERGED_STATUS
from cavity.ep.engine import Engine
from cavity.ep.latent import Latent
from cavity.ep.options import Options
from cavity.ep.sites import Sites
from cavity.runs.executors import Threads, single_blas


def group_log_densities(likelihood, effects, tau, rho, rows, matrix, codes, levels):
    """Return log p(rows of a level | all other rows) of each level, 0 where none of its rows is in use.

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
        The numbers of their levels.
    levels : Levels
        Of the group.

    Raises
    ------
    ValueError
        If the posterior without the sites of a level is improper, or EP over its rows fails, naming the level.
    """
    densities, order = np.zeros(len(levels)), np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(levels) + 1))
    with Threads(1) as threads, single_blas():
        for level, name in enumerate(levels.names):
            here = order[ends[level] : ends[level + 1]]
            here = here[rows.in_use[here]]
            if not len(here):
                continue
            sites = tau[here], rho[here]
            try:
                densities[level] = _log_evidence(likelihood, effects, *sites, rows.part(here), matrix[here], threads)
            except ArithmeticError as error:
                words = f"level {name!r} of {levels.group!r} has no log density given all other rows: {error}; the rows"
                raise ValueError(f"{words} of the other levels have to be fitted alone for that") from error
    return densities


def _log_evidence(likelihood, effects, tau, rho, rows, matrix, threads):
    """The log evidence of some rows under q without their sites, N(m, (K^-1 - R)^-1) of their f; ArithmeticError if
    that is improper, or EP fails.
    """
    values, vectors = np.linalg.eigh(effects.cross(matrix))
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # K = C C'
    inner = np.eye(len(tau)) - root.T @ (rho[:, None] * root)  # (K^-1 - R)^-1 = C (I - C'R C)^-1 C'
    if not np.linalg.eigvalsh(inner)[0] > 0:
        raise ArithmeticError("without its rows the approximation is improper")
    covariance = root @ np.linalg.solve(inner, root.T)
    mean = matrix @ effects.mean + (0.0 if rows.offset is None else rows.offset)
    mean += covariance @ (rho * mean - tau)
    geometry = Latent(np.ascontiguousarray(0.5 * (covariance + covariance.T)), mean, threads)
    fit = Engine(geometry, Sites(likelihood, rows.y, rows.weights), Options.checked()).run()
    if fit.status != CONVERGED_STATUS:
        raise ArithmeticError(f"EP over its rows ended with: {fit.status}")
    return fit.log_evidence
