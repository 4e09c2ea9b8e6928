"""Standard errors of what a search found, from the curvature of the log evidence."""

import numpy as np

from cavity.base.loop import STOPPED
from cavity.jobs.job import SILENT_JOB
from cavity.models.search import CURVATURE_STEP, DOUBLE_LOOP_STEPS, FARTHER

CURVATURE_TOL = 1e-5  # of the fits for these: more changes the seventh digit
CLEAR = 1e-2  # nats per square of a free number: with less curvature a maximum may be none
NO_FIXED_POINT = "no standard errors: EP fails near the maximum"
NOT_FINITE = "the gradient of the log evidence is not finite"


def standard_errors(evaluations, x, bounds, names, jacobian, is_flat=lambda i: False, job=SILENT_JOB):
    """Return the standard errors of values at a maximum of the log evidence.

    Parameters
    ----------
    evaluations : Evaluations
        Of the log evidence.
    x : ndarray (n,)
        The maximum, in free numbers.
    bounds : ndarray (n, 2)
        Those of the search; numbers at a bound count as known.
    names : sequence of str
        Names of the values.
    jacobian : ndarray (n, n)
        Derivatives of the values in the free numbers.
    is_flat : callable, optional
        is_flat(i) says of free numbers at a bound, or where there is little curvature, whether the evidence does
        not fall far away; they count as known, too.
    job : Job, optional
        Hears of every number.

    Returns
    -------
    sd : list of float or None
        The standard errors.
    note : str
        Why there is none, or "".
    """
    doubtful = (x <= bounds[:, 0]) | (x >= bounds[:, 1])
    free = np.flatnonzero(~doubtful)
    matrix = curvature(evaluations, x, free, job)
    if job.stopped:
        return [None] * len(x), f"no standard errors: {STOPPED}"
    if matrix is not None:
        doubtful[free[np.diagonal(matrix) < CLEAR]] = True
    flat = [i for i in np.flatnonzero(doubtful) if is_flat(i)]
    if matrix is None:
        return [None] * len(x), NO_FIXED_POINT
    inside = ~np.isin(free, flat)
    matrix, free, n = matrix[np.ix_(inside, inside)], free[inside], len(x)
    if len(free) and not np.linalg.eigvalsh(matrix)[0] > 0:
        return [None] * n, "no standard errors: the log evidence is not curved downwards in every direction"
    covariance = np.zeros((n, n))
    covariance[np.ix_(free, free)] = np.linalg.inv(matrix)
    size = np.max(np.abs(jacobian), axis=1, initial=np.finfo(float).tiny)  # squares may leave float64
    rows = jacobian / size[:, None]
    sd = size * np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))
    known = np.isin(np.arange(n), free) & (np.diagonal(covariance) <= FARTHER**2)
    words = ", ".join(name for name, one in zip(names, known, strict=True) if not one)
    note = f"no standard error of {words}: the log evidence is flat there" if words else ""
    return [float(value) if one else None for value, one in zip(sd, known, strict=True)], note


def curvature(evaluations, x, free, job=SILENT_JOB):
    """Return minus the second derivatives of the log evidence and log prior in some free numbers; None where EP fails.

    By differences of the gradient; None, too, where the callback stops.
    """

    def gradient(i, step):
        x_moved = x + step * (np.arange(len(x)) == i)
        point = evaluations.at(x_moved, tol=CURVATURE_TOL, double_loop=DOUBLE_LOOP_STEPS)
        if not point.converged:
            raise ArithmeticError(NO_FIXED_POINT)
        slopes = evaluations.gradient(point)[free]
        if not np.isfinite(slopes).all():
            raise ArithmeticError(NOT_FINITE)
        return slopes

    rows, evidence = np.empty((len(free), len(free))), evaluations.evidence
    sites = evidence.start
    for number, (row, i) in enumerate(zip(rows, free, strict=True), 1):
        try:
            ahead = gradient(i, CURVATURE_STEP)
            evidence.start = _mirrored(sites, evidence.start)
            behind = gradient(i, -CURVATURE_STEP)
            evidence.start = sites
        except (ArithmeticError, np.linalg.LinAlgError):
            return None
        row[:] = (behind - ahead) / (2 * CURVATURE_STEP)
        if job.report(number, left=len(free) - number):
            return None
    return 0.5 * (rows + rows.T)


def _mirrored(sites, moved):
    """The sites to start from on the other side of a place: as far away, up to the square of the step."""
    if sites is None or moved is None or not all(isinstance(each, np.ndarray) for each in (*sites, *moved)):
        return moved
    return tuple(2.0 * here - there for here, there in zip(sites, moved, strict=True))
