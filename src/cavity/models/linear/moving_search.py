"""Newton steps for hyperparameters between single passes of EP, from the posterior of some of the rows on.

At given sites the gradient of the log evidence is that at a fixed point but for terms in proportion to how far the
sites are from it, which a pass makes far smaller. So free numbers and sites move together: after each pass comes a step
by the curvature, which changes of the gradient make that of all rows (Broyden, Fletcher, Goldfarb and Shanno's
formula). Mixed models have information in place of the curvature of some rows, and may begin anywhere. What comes out
are first values and sites for a search around fits, which ends after one where they are right.

A log evidence like -k l - S exp(-2 l)/2 in the log l of the standard deviation of k effects, S the sum of their
squares, has Newton's step d = (1 - k exp(2 l)/S)/2, from which its maximum is

    log(S/k)/2 - l = -log(1 - 2 d)/2                                                                               (1)

away: the step in the log of a standard deviation, from afar.
"""

from dataclasses import dataclass

import numpy as np

from cavity.jobs.job import SILENT_JOB
from cavity.models.linear.evidence import find_slopes
from cavity.models.search import LEAST_NEWTON_STEP

MAX_PASSES = 8  # from the maximum of some rows on; three or four are usual
MAX_PASSES_FROM_AFAR = 30  # six to twelve are usual
MAX_STEP = 10.0  # units of certainty; that of some rows is a third of that of all
MAX_LOG_STEP = 2.0  # of each free number, from afar
MAX_NEWTON_STEP = 0.4  # upwards, of the log of a standard deviation
INFORMED_STEP = 0.1  # of a free number, after which the information is found again
DIFFERENCE_STEP = 1e-4  # of a free number, in differences of the slopes of log priors
LEAST_CURVATURE = 1e-2  # in nats per square of a free number, of information
MAX_BELIEF_CHANGE = 0.03  # of the last pass, in sd
# of the next step, in units of certainty, and of the last pass, from which fits go on after some of the rows
MAX_NEXT_STEP, MAX_CHANGE_BEFORE_FITS = 1e-3, 1.0
MAX_CHANGE_RATIO = 0.3  # of a pass beside the step before it, both in sd: the next pass would change far less
MIN_CURVATURE_SHARE = 0.1  # of that expected along a step, from which the step is used for the curvature


@dataclass(frozen=True, slots=True)
class MovedSettings:
    """Where a search with passes ended, near the maximum."""

    x: np.ndarray
    slope: float  # the largest entry of the gradient
    root: np.ndarray  # of the inverse Hessian of minus the log evidence
    steepness: np.ndarray  # the largest slope of each free number, see `find_unexplored_points`


def move_with_passes(evidence, x, root, bounds, job=SILENT_JOB, least=LEAST_NEWTON_STEP, first_passes=1):
    """Return the `MovedSettings` near the maximum of a log evidence, or None.

    Parameters
    ----------
    evidence : LinearEvidence
        `start` is the posterior of some of the rows, or sites; at the end it is the sites of all.
    x : ndarray (n,)
        Where the log evidence of some of the rows is largest, or any first values.
    root : ndarray (n, n) or None
        Of the inverse Hessian of minus the log evidence, about; with None the evidence must give its information.
    bounds : ndarray (n, 2)
        Of the free numbers.
    job : Job, optional
        Gets an event after every pass.
    least : float, optional
        The step, in units of certainty, with which it ends.
    first_passes : int, default 1
        Passes before the first step, without a root.

    Returns
    -------
    MovedSettings or None
        None where a pass fails, information is not finite, the callback stops, or steps do not become small in the
        most passes.
    """
    inverse, last, steepness, sizes = None if root is None else root @ root.T, None, np.zeros(len(x)), []
    if root is None:
        starts = (evidence.vector.start(factor, evidence.vector.likelihood) for factor in (0.0, 1.0))
        are_logs = np.not_equal(*starts)  # of standard deviations
        if any(evidence.pass_at(evidence.vector.unpack(x)) is None for _ in range(first_passes)):
            return None
    for number in range(1, 1 + (MAX_PASSES_FROM_AFAR if root is None else MAX_PASSES)):
        informs = root is None and (last is None or bool(np.max(np.abs(x - last[0])) > INFORMED_STEP))
        point = evidence.pass_at(evidence.vector.unpack(x), informs)
        slopes = None if point is None else find_slopes(evidence, point)
        if slopes is None or not np.isfinite(slopes).all():
            return None
        change = 0.0 if point.fit is None else float(point.fit.trace["change"][0])
        if informs:
            information = point.information + find_prior_information(evidence.vector, x)
            if not np.isfinite(information).all():
                return None
            inverse, flat = _invert_information(information), np.diagonal(information) < LEAST_CURVATURE
        elif last is not None:
            inverse = _update_inverse(inverse, x - last[0], last[1] - slopes, change)
        step = inverse @ slopes
        size, largest = float(np.sqrt(slopes @ step)), float(np.max(np.abs(slopes)))
        sizes.append(size)
        if not np.isfinite(size):  # where noise goes to 0, slopes or the inverse leave the range of float64
            return None
        steepness = np.maximum(steepness, np.abs(slopes))
        if job.report(number, change=size):
            return None
        if root is None:
            step = np.where(are_logs, -0.5 * np.log(1.0 - 2.0 * np.minimum(step, MAX_NEWTON_STEP)), step)  # (1)
            step = np.where(flat, np.sign(slopes) * MAX_LOG_STEP, step)  # effects that vanish: as far as steps go
            step = np.clip(step, -MAX_LOG_STEP, MAX_LOG_STEP)
        else:
            step = step * min(1.0, MAX_STEP / max(size, MAX_STEP))
        last, x = (x, slopes), np.clip(x + step, *bounds.T)
        if _has_arrived(sizes, change) if root is not None else _is_near(sizes, change, least):
            return MovedSettings(x, largest, np.linalg.cholesky(inverse), steepness)
    return None


def _has_arrived(sizes, change):
    """Whether steps of these sizes are near the maximum, where `change` is that of the last pass: by the last step, or
    by the next one, as sizes fall by their ratio at least.
    """
    if sizes[-1] <= LEAST_NEWTON_STEP and change <= MAX_BELIEF_CHANGE:
        return True
    next_size = sizes[-1] * sizes[-1] / sizes[-2] if len(sizes) > 1 else np.inf
    return next_size <= MAX_NEXT_STEP and change <= MAX_CHANGE_BEFORE_FITS


def _is_near(sizes, change, least):
    """Whether the last step from afar, or the next one as in `_has_arrived`, is at most the least one."""
    next_size = sizes[-1] * min(1.0, sizes[-1] / sizes[-2]) if len(sizes) > 1 else sizes[-1]
    return next_size <= least and change <= MAX_BELIEF_CHANGE


def _invert_information(information):
    """Return the inverse of information, of which curvatures below LEAST_CURVATURE count as that."""
    values, vectors = np.linalg.eigh(information)
    return (vectors / np.maximum(values, LEAST_CURVATURE)) @ vectors.T


def find_prior_information(vector, x):
    """Return minus the second derivatives of the log density of the free numbers, by differences."""
    n = len(vector.log_prior(vector.unpack(x))[1])
    out = np.zeros((len(x), len(x)))
    for row, step in zip(out[:n], DIFFERENCE_STEP * np.eye(len(x)), strict=False):
        down, up = (vector.log_prior(vector.unpack(x + sign * step))[1] for sign in (-1.0, 1.0))
        row[:n] = (down - up) / (2.0 * DIFFERENCE_STEP)
    return 0.5 * (out + out.T)


def _update_inverse(inverse, step, fall, change):
    """Return the inverse Hessian after a step along which the gradient has fallen; the same where the step is not used.

    A step is not used where sites have not converged to it yet, or the fall is far below the expected one.
    """
    length = float(np.sqrt(step @ np.linalg.solve(inverse, step)))
    curved = float(step @ fall)
    if change > MAX_CHANGE_RATIO * length or not curved > MIN_CURVATURE_SHARE * length**2:
        return inverse
    left = np.eye(len(step)) - np.outer(step, fall) / curved
    return left @ inverse @ left.T + np.outer(step, step) / curved
