"""Searches for settings by the log evidence: L-BFGS with exact gradients, over places where EP may fail."""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

import numpy as np

from cavity.base.errors import ConvergenceWarning, warn
from cavity.base.lazy import optimize
from cavity.base.loop import CONVERGED, STOPPED
from cavity.jobs.job import SILENT_JOB
from cavity.models.evaluations import Evaluations
from cavity.models.hyperparameters import Hyperparameters

SEARCH_TOL = 1e-6  # of the last fits on the way: the evidence is stationary in the sites
ROUGH_TOL = 1e-2  # of the first ones, where gradients are large
FEW_ROWS = 10_000  # up to which these hold: errors of the gradient grow with the root of the number of rows
TOL_A_NAT = 1e-4  # tolerance per nat of the largest slope met before
MOST_STEPS = 200  # of L-BFGS-B in a round
EVALUATIONS_A_STEP = 5  # on average, and at most; one is usual
WORSE_THAN_WORST = 10.0  # nats by which settings without a fixed point count as worse than the worst met before
DOUBLE_LOOP_STEPS = 30  # steps of the double loop on the way, until fits have failed MOST_FAILURES times
MOST_FAILURES = 3
SMALLEST_SLOPE = 1e-4  # nats per unit of a log parameter at which the search ends
LEAST_NEWTON_STEP = 1e-2  # nats per unit of certainty at which a search that began with Newton's step ends
SMALLEST_GAIN = 1e-11  # of the value, at which it ends
MOST_ROUNDS = 5  # of the search from one start, while each gains more than GAIN_OF_A_ROUND nats and ends on a slope
GAIN_OF_A_ROUND = 1e-3
ROUGH_STEPS = 8  # of L-BFGS-B from a start of another kind: by then it is within a few nats of where it ends
CURVATURE_STEP = 1e-2  # of a free number, in differences of the gradient
FARTHER = float(np.log(100.0))  # free numbers that are less certain than this are not known at all
NOT_LEARNT = "the search for hyperparameters did not come to rest"
NO_MAXIMUM = "the log evidence has no maximum: it still rises at the end of the range that is searched"
MAX_SWEEPS_ON_PLATEAU = 50  # of EP, at places that the search has not come near: where it fails it takes them all
PLATEAU_SLOPE = 1e-2  # of the largest entry of a gradient, or nats if that is below 1: a plateau has smaller slopes
FLAT_SLOPE = 1e-3  # nats per unit of a log parameter: a larger gradient inside the bounds means that the search gave up
STARTS = "starting points"  # the stage of a search before it climbs


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """What a search ended with."""

    optimum: object  # what has the largest evidence found: settings, or a problem or a model with them
    status: str = CONVERGED
    trace: dict = field(default_factory=dict)  # "learning" and "seconds" of every fixed point on the way
    hyperparameters: Hyperparameters | None = None
    start: tuple | None = None  # sites for the last fit to start from


def search_tol(slope, n_rows=FEW_ROWS):
    """The tolerance of a fit on the way, where the last gradient had this largest entry: their errors are small to it.

    Those of the gradient grow with the root of the number of rows.
    """
    finer = (FEW_ROWS / max(n_rows, FEW_ROWS)) ** 0.5
    return float(np.clip(finer * TOL_A_NAT * slope, finer * SEARCH_TOL, ROUGH_TOL))


class Objective:
    """Minus the log evidence and log prior, and its gradient, as an optimiser wants them.

    Line searches come back to places, most of all where steps are lost in rounding: what is known there to the
    tolerance of now is not found again. It is kept in as many numbers a place as are free, and two more.

    Parameters
    ----------
    evidence, vector, job
        As for `Evaluations`.
    n_rows : int, optional
        Rows that decide on tolerances.
    """

    def __init__(self, evidence, vector, n_rows=FEW_ROWS, job=SILENT_JOB):
        self.evidence, self.vector, self.n_rows = evidence, vector, n_rows
        self.evaluations = Evaluations(evidence, vector, job)
        self.values = []  # log evidence plus log prior of every evaluation
        self.seconds, self._since = [], perf_counter()  # at which each of them was done
        self.slope = np.inf  # the largest entry of the last gradient
        self._last = None, None, np.inf  # the place of the last evaluation, its point and value
        self._known = {}  # by the bytes of a place: the tolerance, the value and the gradient
        self.failures = 0
        self.places, self.steepness = [], 0.0  # of all evaluations; see `unexplored_places`

    def _tol(self):
        return max(search_tol(self.slope, self.n_rows), self.evidence.options.tol)

    def _point(self, x, options=None):
        """The point of a vector and minus its value; no point, and a value worse than all others, where EP fails."""
        last, point, value = self._last
        if point is not None and np.array_equal(last, x):  # a start, whose gradient is asked for now
            return point, value
        steps = DOUBLE_LOOP_STEPS if self.failures < MOST_FAILURES else 0
        try:
            point = self.evaluations.at(x, **{"tol": self._tol(), "double_loop": steps} | (options or {}))
        except (ArithmeticError, np.linalg.LinAlgError):
            point = None
        if point is None or not point.converged:
            self.failures += 1
            return None, WORSE_THAN_WORST - min(self.values, default=-np.inf)
        self.values.append(point.log_evidence + self.vector.log_prior(point.settings)[0])
        self.places.append(x.copy())
        self.seconds.append(perf_counter() - self._since)
        self._last = x.copy(), point, -self.values[-1]
        return point, -self.values[-1]

    def _fail_at_last(self):
        """Count the last evaluation as a failure, as its gradient is not finite; return the value that it has then."""
        del self.values[-1], self.seconds[-1]
        self.failures, self._last = self.failures + 1, (None, None, np.inf)
        return WORSE_THAN_WORST - min(self.values, default=-np.inf)

    @property
    def trace(self):
        """What a posterior keeps of the evaluations: their values, and the seconds since the search began."""
        return {"learning": np.array(self.values), "seconds": np.array(self.seconds)}

    def value(self, x, **options):
        """Return minus the log evidence and log prior of a vector, without the gradient; `options` are those of EP."""
        return self._point(x, options)[1]

    def __call__(self, x):
        place, tol = x.tobytes(), self._tol()
        if not self._known.get(place, (np.inf,))[0] <= tol:
            point, value = self._point(x)
            if point is None:
                return value, np.zeros(len(x))
            gradient = self.evaluations.gradient(point)
            if not np.isfinite(gradient).all():
                return self._fail_at_last(), np.zeros(len(x))
            self._known[place], self._last = (tol, value, -gradient), (None, None, np.inf)
        _, value, slopes = self._known[place]
        self.slope = float(np.max(np.abs(slopes)))
        self.steepness = np.maximum(self.steepness, np.abs(slopes) / max(1.0, self.slope))
        return value, slopes


class _Stopped(Exception):
    """The callback has asked to stop."""


def evaluate_starts(objective, places, job, afresh=False):
    """Return the values at places, of all up to where the callback stops; `afresh` means that no fit is given sites."""
    values = []
    for number, x in enumerate(places, 1):
        if afresh:
            objective.evidence.start = None
        values.append(objective.value(x))
        if job.report(number, objective=-min(values)):
            break
    return values


def warn_without_start(n, job):
    """Return the status of a search that EP failed in wherever it could have begun, and warn."""
    warn(f"the search for hyperparameters found no fixed point at its {n} start(s)", ConvergenceWarning)
    return STOPPED if job.stopped else NOT_LEARNT


def maximise(objective, starts, bounds, job, n_tried, other_starts=(), check_bounds=True):
    """Climb from starts and leave plateaus; warn if that does not come to rest.

    Parameters
    ----------
    objective : Objective
        Whose values at the starts are known.
    starts : list of ndarray (n,)
        Where to begin.
    bounds : ndarray (n, 2)
        Of the free numbers.
    job : Job
        Hears of every evaluation.
    n_tried : int
        Starts that were tried.
    other_starts : list of ndarray (n,), optional
        Places, of which the first is followed for ROUGH_STEPS steps, and to the end if its value is then the best.
    check_bounds : bool, default True
        Whether to warn where bounds stop the search on a slope.

    Returns
    -------
    value, x, status
        Where the search ended, and how; infinity and None if EP failed at all starts.
    """
    if not objective.values:
        return np.inf, None, warn_without_start(n_tried, job)
    stages = job.iterate_stages("search", starts, len(starts), "search")
    runs = [climb(objective, x, bounds, job=stage) for x, stage in stages]
    stage = job.stage("search from another start")
    runs += [
        _challenge(objective, x, bounds, min(run[0] for run in runs), stage) for x in other_starts[: 1 - job.stopped]
    ]
    highest = min(runs, key=lambda run: run[0])
    value, x, slope = leave_plateaus(objective, highest, bounds, job.stage("plateaus"))
    status = check_end(objective, value, slope, job)
    return value, x, check_end_at_bounds(status, objective, x, bounds) if check_bounds else status


def _challenge(objective, start, bounds, best, job):
    """Follow a start for some steps, and to the end if the value is then better than the best: what `climb` returns."""
    objective.slope = np.inf  # the first fits are rough, as they are from any start
    run = climb(objective, start, bounds, most=ROUGH_STEPS, rounds=1, job=job)
    if not run[0] < best or job.stopped:
        return run
    return climb(objective, run[1], bounds, job=job.continued_after(len(objective.values), -run[0]))


def check_end(objective, value, slope, job):
    """Return the status of a search that ended with this value and slope; warn if it did not come to rest."""
    # a place where EP failed counts with a flat slope
    if -value in objective.values and is_flat(slope, value):
        return CONVERGED
    warn(
        f"the search for hyperparameters {'was stopped by callback' if job.stopped else 'stopped'} with a gradient of "
        f"{slope:.2g} nats after {len(objective.values) + objective.failures} evaluations",
        ConvergenceWarning,
    )
    return STOPPED if job.stopped else NOT_LEARNT


def check_end_at_bounds(status, objective, x, bounds):
    """Return the status of a search that ended there: another one, with a warning, if bounds stop it on a slope.

    The evidence grows without bound where noise goes to 0, because y is constant or else fitted exactly.
    """
    stopped = (x <= bounds[:, 0]) | (x >= bounds[:, 1])
    value, slopes = objective(x) if status == CONVERGED and stopped.any() else (0.0, np.zeros(len(x)))
    if is_flat(np.max(np.abs(slopes), where=stopped, initial=0.0), value):
        return status
    words = "as it does where noise goes to 0 because y is constant, or fitted exactly; give the scale of the noise"
    warn(f"{NO_MAXIMUM}, {words}", ConvergenceWarning)
    return NO_MAXIMUM


def is_flat(slope, value):
    """Whether a search that ended on this slope came to rest: rounding of large values leaves larger slopes."""
    return slope <= FLAT_SLOPE * max(1.0, abs(value) ** 0.5)


def climb(objective, start, bounds, gain=SMALLEST_GAIN, most=MOST_STEPS, rounds=MOST_ROUNDS, job=SILENT_JOB, root=None):
    """L-BFGS-B from a start: the value and the place found, and the largest slope there that no bound stops.

    The objective gives the value to be made small, and its gradient; it ends when a step gains less than `gain` of it.
    The first step is one unit of a log parameter long: the method takes the gradient itself for it, which would lead to
    the far corners of the bounds. Where it stops on a slope, it begins anew in smaller units, `rounds` times at most.
    With a `root` of the inverse Hessian, known roughly, the first step is Newton's, and the slope is the smaller one of
    that in log parameters and that in units of their certainty.
    The `job` hears of every evaluation, with the best value so far. There are at most EVALUATIONS_A_STEP for each of
    the `most` steps of a round, and those of its last line search, of which SciPy makes 20.
    """
    place, number = np.clip(start, *bounds.T), count(1)
    best = place, *objective(place)

    def enough(best):
        return job.report(next(number), objective=-best[1], change=lambda: free_slope(best, bounds))

    enough(best)
    for first in (True, *[False] * (rounds - 1)):
        before = best[1]
        if not job.stopped:
            best = _descend(objective, best, bounds, gain, most, enough, root if first else None)
        slope = free_slope(best, bounds, root)
        if job.stopped or is_flat(slope, best[1]) or not best[1] < before - GAIN_OF_A_ROUND:
            break
    return best[1], best[0], slope


def free_slope(best, bounds, root=None):
    """The largest entry of a gradient that no bound stops; see `climb` for the root."""
    (x, _, slope), (low, high) = best, bounds.T
    stopped = (slope > 0) & (x <= low) | (slope < 0) & (x >= high)
    slope = np.where(stopped, 0.0, slope)
    largest = float(np.max(np.abs(slope)))
    return largest if root is None else min(largest, float(np.max(np.abs(root.T @ slope))))


def _descend(objective, best, bounds, gain, most, enough, root=None):
    """One run of L-BFGS-B from (place, value, gradient): the best such triple it saw, which need not be its end."""
    start, first, box = best[0], best[0], bounds
    length, least = 1.0 / max(1.0, float(np.linalg.norm(best[2]))), SMALLEST_SLOPE
    if root is not None:  # in coordinates z about the start in which the Hessian is about the identity
        first, box, length, least = np.zeros(root.shape[1]), None, 1.0, LEAST_NEWTON_STEP
    known = {first.tobytes(): best[1:]}

    def scaled(z):
        nonlocal best
        x = z if root is None else np.clip(start + root @ z, *bounds.T)
        before = known.pop(z.tobytes(), None)
        value, slope = before or objective(x)
        if value < best[1]:
            best = x.copy(), value, slope
        if before is None and enough(best):
            raise _Stopped
        return length * value, length * slope if root is None else root.T @ slope

    options = {"maxiter": most, "maxfun": EVALUATIONS_A_STEP * most, "ftol": gain, "gtol": least * length}
    with suppress(_Stopped):
        optimize.minimize(scaled, first, jac=True, method="L-BFGS-B", bounds=box, options=options)
    return best


def leave_plateaus(objective, best, bounds, job=SILENT_JOB):
    """Climb on from a place that may be on a plateau, where a small gradient does not make a maximum.

    The search goes on from the first of the `unexplored_places` that is better by GAIN_OF_A_ROUND, until there is none.
    A search that has met a slope in every free number has no such places, and costs no evaluation more.

    Parameters
    ----------
    objective : Objective
        Of one or more searches.
    best : tuple
        The value, the place and the slope that the best of these ended with, as `climb` returns them.
    bounds : ndarray (n, 2)
        Those of the searches.
    job : Job, optional
        Hears of every evaluation.

    Returns
    -------
    tuple
        The same of the place where the search ends.
    """
    for _ in range(MOST_ROUNDS):
        place = None if job.stopped or not is_flat(best[2], best[0]) else _better_place(objective, best, bounds, job)
        if place is None:
            break
        job = job.continued_after(len(objective.values), -best[0])
        best = min(best, climb(objective, place, bounds, job=job), key=lambda run: run[0])
    return best


def _better_place(objective, best, bounds, job):
    """Return the first of the `unexplored_places` that is better than the best one, or None."""
    number = count(1)
    for places in unexplored_places(objective, best[1], bounds):
        for place in places:
            failures = objective.failures
            value = objective.value(place, max_iter=MAX_SWEEPS_ON_PLATEAU)
            if job.report(next(number), objective=-min(value, best[0])) or objective.failures > failures:
                break  # farther out EP fails all the more
            if value < best[0] - GAIN_OF_A_ROUND:
                return place
        if job.stopped:
            break
    return None


def unexplored_places(objective, x, bounds):
    """Return places in the free numbers that have made no difference so far: lists of them, on either side of each.

    In these numbers every gradient of the search had an entry below PLATEAU_SLOPE. Their values are FARTHER apart, as
    far as the bounds; those that are half as near to a value at an earlier evaluation are left out.
    """
    explored, lists = np.array(objective.places), []
    for i in np.flatnonzero((objective.steepness < PLATEAU_SLOPE) & np.all(np.isfinite(bounds), axis=1)):
        for way, bound in zip((-FARTHER, FARTHER), bounds[i], strict=True):
            values = np.append(np.arange(x[i], bound, way)[1:], bound)
            far = np.min(np.abs(values[:, None] - explored[:, i]), axis=1) > 0.5 * FARTHER
            lists.append([np.where(np.arange(len(x)) == i, value, x) for value in values[far]])
    return lists


def newton_root(objective, x, bounds, job=SILENT_JOB):
    """A root of the inverse Hessian at a place, from a difference of gradients a parameter; None where EP fails.

    Curvatures of less than one nat count as one: they are rounding, or of a parameter of which the data say nothing.
    None, too, where the callback stops.
    """
    failures, (value, slope) = objective.failures, objective(x)
    rows = np.empty((len(x), len(x)))
    for i, high in enumerate(bounds[:, 1]):
        step = CURVATURE_STEP if x[i] + CURVATURE_STEP <= high else -CURVATURE_STEP
        rows[i] = (objective(x + step * (np.arange(len(x)) == i))[1] - slope) / step
        if job.report(i + 1, left=len(x) - i - 1, objective=-value) or objective.failures > failures:
            return None
    values, vectors = np.linalg.eigh(0.5 * (rows + rows.T))
    return vectors / np.sqrt(np.maximum(values, 1.0))
