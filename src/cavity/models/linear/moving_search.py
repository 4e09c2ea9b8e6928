"""Newton steps for hyperparameters between single passes of EP, from the posterior of some of the rows on.

At given sites the gradient of the log evidence is that at a fixed point but for terms in proportion to how far the
sites are from it, which a pass makes far smaller. So free numbers and sites move together: after each pass comes a step
by the curvature, which changes of the gradient make that of all rows (Broyden, Fletcher, Goldfarb and Shanno's
formula). What comes out are first values and sites for a search around fits, which ends after one where they are right.
"""

import numpy as np

from cavity.models.search import LEAST_NEWTON_STEP

MAX_PASSES = 8  # three or four are usual
MAX_STEP = 10.0  # units of certainty; that of some rows is a third of that of all
MAX_BELIEF_CHANGE = 0.03  # of the last pass, in sd
MAX_CHANGE_RATIO = 0.3  # of a pass beside the step before it, both in sd: the next pass would change far less
MIN_CURVATURE_SHARE = 0.1  # of that expected along a step, from which the step is used for the curvature


def move_with_passes(evidence, x, root, bounds):
    """Return free numbers near the maximum, the largest slope there and the root of the inverse Hessian, or None.

    Parameters
    ----------
    evidence : LinearEvidence
        `start` is the posterior of some of the rows; at the end it is the sites of all.
    x : ndarray (n,)
        Where the log evidence of some of the rows is largest.
    root : ndarray (n, n)
        Of the inverse Hessian of minus the log evidence, about.
    bounds : ndarray (n, 2)
        Of the free numbers.

    Returns
    -------
    tuple or None
        None where a pass fails, or the slope does not come to LEAST_NEWTON_STEP in MAX_PASSES passes.
    """
    inverse, last = root @ root.T, None
    for _ in range(MAX_PASSES):
        settings = evidence.vector.unpack(x)
        point = evidence.pass_at(settings)
        slopes = None if point is None else _find_slopes(evidence, point)
        if slopes is None or not np.isfinite(slopes).all():
            return None
        change = float(point.fit.trace["change"][0])
        if last is not None:
            inverse = _update_inverse(inverse, x - last[0], last[1] - slopes, change)
        step = inverse @ slopes
        size = float(np.sqrt(slopes @ step))
        last, x = (x, slopes), np.clip(x + step * min(1.0, MAX_STEP / max(size, MAX_STEP)), *bounds.T)
        if size <= LEAST_NEWTON_STEP and change <= MAX_BELIEF_CHANGE:
            return x, float(np.max(np.abs(slopes))), np.linalg.cholesky(inverse)
    return None


def _find_slopes(evidence, point):
    """Return the gradient of the log evidence and the log prior at the sites of a point."""
    slopes = evidence.vector.gradient(evidence, point)
    of_prior = evidence.vector.log_prior(point.settings)[1]
    slopes[: len(of_prior)] += of_prior
    return slopes


def _update_inverse(inverse, step, fall, change):
    """Return the inverse Hessian after a step along which the gradient has fallen; the same where the step is not used.

    A step is not used where sites have not converged to it yet, or the fall is far below the expected one.
    """
    length = float(np.sqrt(step @ np.linalg.solve(inverse, step)))
    curved = float(step @ fall)
    if change > MAX_CHANGE_RATIO * length or curved < MIN_CURVATURE_SHARE * length**2:
        return inverse
    left = np.eye(len(step)) - np.outer(step, fall) / curved
    return left @ inverse @ left.T + np.outer(step, step) / curved
