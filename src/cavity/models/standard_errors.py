"""Standard errors of hyperparameters, from the curvature of the log evidence."""

import numpy as np

from cavity.base.loop import STOPPED_STATUS
from cavity.jobs.job import SILENT_JOB
from cavity.models.search import CURVATURE_STEP, DOUBLE_LOOP_STEPS, FAR_LOG_STEP

SHORT_CURVATURE_STEP = 3e-4  # of a free number, where the gradient at the maximum is known
CURVATURE_TOL = 1e-5  # of fits: a larger one changes the seventh digit
SHORT_CURVATURE_TOL = 3e-5  # of those after short steps, which are some hundredths of a standard error
MIN_STANDARD_CURVATURE = 1e-2  # nats per square of a free number: less curvature may be no maximum
NO_FIXED_POINT = "no standard errors: EP fails near the maximum"
NOT_FINITE = "the gradient of the log evidence is not finite"


def find_covariance(evaluations, x, bounds, names, is_flat=lambda i: False, job=SILENT_JOB, slopes=None):
    """Return the covariance of free numbers at a maximum of the log evidence, from its curvature.

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
    is_flat : callable, optional
        is_flat(i) returns whether the evidence does not fall far away from free number i, for those at a bound or with
        little curvature; flat ones have no standard error.
    job : Job, optional
        Gets an event after every free number.
    slopes : ndarray (n,), optional
        The gradient of minus the log evidence and log prior at x, of many rows: see `curvature`.

    Returns
    -------
    covariance : ndarray (n, n)
        Zero for numbers that have none.
    has_error : ndarray (n,) of bool
        Which numbers have a standard error.
    note : str
        Why others have none, or "".
    """
    n, doubtful = len(x), (x <= bounds[:, 0]) | (x >= bounds[:, 1])
    covariance, free = np.zeros((n, n)), np.flatnonzero(~doubtful)
    none = covariance, np.zeros(n, dtype=bool)
    matrix = curvature(evaluations, x, free, job, slopes)
    if job.stopped:
        return *none, f"no standard errors: {STOPPED_STATUS}"
    if matrix is not None:
        doubtful[free[np.diagonal(matrix) < MIN_STANDARD_CURVATURE]] = True
    flat = [i for i in np.flatnonzero(doubtful) if is_flat(i)]
    if matrix is None:
        return *none, NO_FIXED_POINT
    inside = ~np.isin(free, flat)
    matrix, free = matrix[np.ix_(inside, inside)], free[inside]
    if len(free) and not np.linalg.eigvalsh(matrix)[0] > 0:
        return *none, "no standard errors: the log evidence is not curved downwards in every direction"
    covariance[np.ix_(free, free)] = np.linalg.inv(matrix)
    has_error = np.isin(np.arange(n), free) & (np.diagonal(covariance) <= FAR_LOG_STEP**2)
    labels = ", ".join(name for name, has in zip(names, has_error, strict=True) if not has)
    return covariance, has_error, f"no standard error of {labels}: the log evidence is flat there" if labels else ""


def find_standard_errors(covariance, has_error, jacobian):
    """Return the standard errors of values, a list of float or None, from the derivatives (n, n) in free numbers."""
    size = np.max(np.abs(jacobian), axis=1, initial=np.finfo(float).tiny)  # squares may leave float64
    rows = jacobian / size[:, None]
    sd = size * np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))
    return [float(value) if has else None for value, has in zip(sd, has_error, strict=True)]


def curvature(evaluations, x, free, job=SILENT_JOB, slopes=None):
    """Return minus the second derivatives of the log evidence and log prior in some free numbers; None where EP fails.

    They are those of `find_curvature` of the evidence where it returns some and `slopes` are given, else differences of
    the gradient; None, too, where the callback stops. With minus the gradient at x, `slopes`, the differences are
    one-sided and SHORT_CURVATURE_STEP long, for half the time: among many rows that is less than a standard error, over
    which the curvature hardly changes.
    """

    def gradient(i, step):
        x_moved = x + step * (np.arange(len(x)) == i)
        converged_slopes = None if slopes is None else evidence.find_converged_gradient(x_moved, tol)
        if converged_slopes is not None:
            return check_finite(converged_slopes[free])
        point = evaluations.at(x_moved, tol=tol, double_loop=DOUBLE_LOOP_STEPS)
        if not point.converged:
            raise ArithmeticError(NO_FIXED_POINT)
        return check_finite(evaluations.gradient(point)[free])

    def check_finite(gradient):
        if not np.isfinite(gradient).all():
            raise ArithmeticError(NOT_FINITE)
        return gradient

    rows, evidence = np.empty((len(free), len(free))), evaluations.evidence
    matrix = None if slopes is None or not len(free) else evidence.find_curvature(x, free)
    if matrix is not None:
        return None if job.report(len(free), left=0) else matrix
    steps = (CURVATURE_STEP, CURVATURE_TOL), (SHORT_CURVATURE_STEP, SHORT_CURVATURE_TOL)
    step, tol = steps[slopes is not None]
    evaluations.sites_at_maximum = evidence.start  # which the checkpoint has
    for number, (row, i) in enumerate(zip(rows, free, strict=True), 1):
        try:
            slope_ahead, slope_behind = gradient(i, step), None if slopes is None else -slopes[free]
            if slope_behind is None:
                evidence.start = _mirror_sites(evaluations.sites_at_maximum, evidence.start)
                slope_behind = gradient(i, -step)
            evidence.start = evaluations.sites_at_maximum
        except (ArithmeticError, np.linalg.LinAlgError):
            return None
        row[:] = (slope_behind - slope_ahead) / (step if slopes is not None else 2.0 * step)
        if job.report(number, left=len(free) - number):
            return None
    return 0.5 * (rows + rows.T)


def _mirror_sites(sites, moved):
    """Return sites to start from on the other side of x, mirrored: correct up to the square of the step."""
    if sites is None or moved is None or not all(isinstance(values, np.ndarray) for values in (*sites, *moved)):
        return moved
    return tuple(2.0 * site - moved_site for site, moved_site in zip(sites, moved, strict=True))
