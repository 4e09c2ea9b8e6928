"""Searches for hyperparameters by the log evidence: L-BFGS-B with exact gradients, robust to failures of EP."""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

import numpy as np

from cavity.base.errors import ConvergenceWarning, warn
from cavity.base.lazy_scipy import optimize
from cavity.base.loop import CONVERGED_STATUS, STOPPED_STATUS
from cavity.jobs.job import SILENT_JOB
from cavity.models.evaluations import Evaluations
from cavity.models.hyperparameters import Hyperparameters

SEARCH_TOL = 1e-6  # of the last fits of a search: the evidence is stationary in the sites
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
FAR_LOG_STEP = float(np.log(100.0))  # a standard error of a log above this counts as none
SEARCH_NOT_CONVERGED = "the search for hyperparameters did not come to rest"
NO_MAXIMUM = "the log evidence has no maximum: it still rises at the end of the range that is searched"
MAX_SWEEPS_ON_PLATEAU = 50  # of EP, at points far from the search: a fit that fails takes them all
PLATEAU_SLOPE = 1e-2  # of the largest entry of a gradient, or nats if that is below 1: a plateau has smaller slopes
FLAT_SLOPE = 1e-3  # nats per unit of a log parameter: a larger gradient inside the bounds has not converged
STARTING_STAGE = "starting points"  # the stage of a search before it climbs


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The optimum of a search, and how it ended."""

    optimum: object  # what has the largest evidence found: settings, or a problem or a model with them
    status: str = CONVERGED_STATUS
    trace: dict = field(default_factory=dict)  # "learning" and "seconds" of every fixed point on the way
    hyperparameters: Hyperparameters | None = None
    start: tuple | None = None  # sites for the last fit to start from
    x: np.ndarray | None = None  # the free numbers of the optimum
    integral: tuple | None = None  # of a Gaussian process, see `models.gp.search.integrate`


def choose_search_tol(slope, n_rows=FEW_ROWS):
    """Return the tolerance of the next fit of a search from the largest entry of the last gradient.

    Errors of the gradient grow with the root of the number of rows.
    """
    finer = (FEW_ROWS / max(n_rows, FEW_ROWS)) ** 0.5
    return float(np.clip(finer * TOL_A_NAT * slope, finer * SEARCH_TOL, ROUGH_TOL))


class Objective:
    """Minus the log evidence and log prior, and its gradient, for an optimiser.

    Line searches return to points, most of all where steps are lost in rounding: values and gradients are cached by
    point with their tolerance.

    Parameters
    ----------
    evidence, vector, job
        As for `Evaluations`.
    n_rows : int, optional
        Rows that decide on tolerances.
    """

    finer = 1.0  # factor on the tolerances

    def __init__(self, evidence, vector, n_rows=FEW_ROWS, job=SILENT_JOB):
        self.evidence, self.vector, self.n_rows = evidence, vector, n_rows
        self.evaluations = Evaluations(evidence, vector, job)
        self.values = []  # log evidence plus log prior of every evaluation
        self.seconds, self._since = [], perf_counter()  # when each of them was done
        self.slope = np.inf  # the largest entry of the last gradient
        self._last = None, None, np.inf  # the vector of the last evaluation, its point and value
        self._cache = {}  # by the bytes of a vector: the tolerance, the value and the gradient
        self.failures = 0
        self.points, self.steepness = [], 0.0  # of all evaluations; see `find_unexplored_points`

    def _tol(self):
        return max(choose_search_tol(self.finer * self.slope, self.n_rows), self.evidence.options.tol)

    def _point(self, x, options=None):
        """The point of a vector and minus its value; None and a value worse than all others where EP fails."""
        last, point, value = self._last
        if point is not None and np.array_equal(last, x):  # a start, whose gradient follows
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
        self.points.append(x.copy())
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
        """The trace of a posterior: values of the evaluations, and the seconds since the search began."""
        return {"learning": np.array(self.values), "seconds": np.array(self.seconds)}

    def value(self, x, **options):
        """Return minus the log evidence and log prior of a vector, without the gradient; `options` are those of EP."""
        return self._point(x, options)[1]

    def __call__(self, x):
        key, tol = x.tobytes(), self._tol()
        if not self._cache.get(key, (np.inf,))[0] <= tol:
            point, value = self._point(x)
            if point is None:
                return value, np.zeros(len(x))
            gradient = self.evaluations.gradient(point)
            if not np.isfinite(gradient).all():
                return self._fail_at_last(), np.zeros(len(x))
            self._cache[key], self._last = (tol, value, -gradient), (None, None, np.inf)
        _, value, slopes = self._cache[key]
        self.slope = float(np.max(np.abs(slopes)))
        self.steepness = np.maximum(self.steepness, np.abs(slopes) / max(1.0, self.slope))
        return value, slopes

    def recall(self, x):
        """Return what an earlier evaluation has returned, whatever its tolerance, or a new one."""
        return self._cache[x.tobytes()][1:] if x.tobytes() in self._cache else self(x)


class StoppedByCallback(Exception):
    """Raised where the callback stops the search."""


def evaluate_starts(objective, points, job, afresh=False, **options):
    """Return the values at points, until the callback stops; with `afresh` each fit starts without sites.

    The `options` replace those of EP.
    """
    values = []
    for number, x in enumerate(points, 1):
        if afresh:
            objective.evidence.start = None
        values.append(objective.value(x, **options))
        if job.report(number, objective=-min(values)):
            break
    return values


def warn_without_start(n, job):
    """Return the status of a search whose starts all failed, and warn."""
    warn(f"the search for hyperparameters found no fixed point at its {n} start(s)", ConvergenceWarning)
    return STOPPED_STATUS if job.stopped else SEARCH_NOT_CONVERGED


def maximise(objective, starts, bounds, job, n_tried, other_starts=(), check_bounds=True, **newton):
    """Climb from starts and leave plateaus; warn if the search does not converge.

    Parameters
    ----------
    objective : Objective
        Evaluated at the starts.
    starts : list of ndarray (n,)
        Where to begin.
    bounds : ndarray (n, 2)
        Of the free numbers.
    job : Job
        Gets an event after every evaluation.
    n_tried : int
        Starts that were tried.
    other_starts : list of ndarray (n,), optional
        The first is followed for ROUGH_STEPS steps, and to the end if its value is then the best.
    check_bounds : bool, default True
        Whether to warn where bounds stop the search on a slope.
    **newton
        The `root` and `least` of `climb`.

    Returns
    -------
    value, x, status
        Where the search ended, and how; infinity and None if EP failed at all starts.
    """
    if not objective.values:
        return np.inf, None, warn_without_start(n_tried, job)
    stages = job.iterate_stages("search", starts, len(starts), "search")
    runs = [climb(objective, x, bounds, job=stage, **newton) for x, stage in stages]
    stage = job.stage("search from another start")
    runs += [
        challenge(objective, x, bounds, min(run[0] for run in runs), stage) for x in other_starts[: 1 - job.stopped]
    ]
    highest = min(runs, key=lambda run: run[0])
    value, x, slope = leave_plateaus(objective, highest, bounds, job.stage("plateaus"))
    status = check_end(objective, value, slope, job)
    return value, x, check_end_at_bounds(status, objective, x, bounds) if check_bounds else status


def challenge(objective, start, bounds, best, job):
    """Follow a start for some steps, and to the end if its value is then better than `best`; return as `climb`."""
    objective.slope = np.inf  # the first fits are rough, as they are from any start
    run = climb(objective, start, bounds, most=ROUGH_STEPS, rounds=1, job=job)
    if not run[0] < best or job.stopped:
        return run
    return climb(objective, run[1], bounds, job=job.continued_after(len(objective.values), -run[0]))


def check_end(objective, value, slope, job):
    """Return the status of a search that ended with this value and slope; warn if it has not converged."""
    # a point where EP failed has the slope 0
    if -value in objective.values and is_flat(slope, value):
        return CONVERGED_STATUS
    warn(
        f"the search for hyperparameters {'was stopped by callback' if job.stopped else 'stopped'} with a gradient of "
        f"{slope:.2g} nats after {len(objective.values) + objective.failures} evaluations",
        ConvergenceWarning,
    )
    return STOPPED_STATUS if job.stopped else SEARCH_NOT_CONVERGED


def is_constant_with_open_noise(free, rows):
    """Whether a scale of the noise is among the `FreeParameters` and y less offsets is the same in all rows."""
    return bool(free.mark_scales().any()) and np.ptp(rows.y - rows.offset) == 0


def check_end_at_bounds(status, objective, x, bounds):
    """Return the status of a search that ended there: another one, with a warning, if bounds stop it on a slope.

    The evidence grows without bound where noise goes to 0, because y is constant or else fitted exactly. Priors in
    other units than the data have their mass beyond the bounds.
    """
    stopped = (x <= bounds[:, 0]) | (x >= bounds[:, 1])
    stopped[list(getattr(objective.vector, "chosen_ends", ()))] = False  # standard errors say so
    if status != CONVERGED_STATUS or not stopped.any():
        return status
    for evaluate in (objective.recall, objective):  # the slopes of a rough fit may suffice
        value, slopes = evaluate(x)
        if is_flat(np.max(np.abs(slopes), where=stopped, initial=0.0), value):
            return status
    vector, is_steep = objective.vector, stopped & ~is_flat(np.abs(slopes), value)
    names = vector.describe(vector.unpack(x))[0]
    priors = [names[i] for i in np.flatnonzero(is_steep) if names[i] in getattr(vector, "priors", {})]
    if priors:
        reason = f"where the prior of {', '.join(priors)} has its mass beyond; give priors in the units of the data"
    else:
        reason = "as it does where noise goes to 0 because y is constant, or fitted exactly"
        reason += f"; give {' and '.join(names[i] for i in np.flatnonzero(is_steep))}"
    warn(f"{NO_MAXIMUM}, {reason}", ConvergenceWarning)
    return NO_MAXIMUM


def is_flat(slope, value):
    """Whether a search that ended on this slope has converged: rounding of large values leaves larger slopes."""
    return slope <= FLAT_SLOPE * max(1.0, abs(value) ** 0.5)


def climb(
    objective,
    start,
    bounds,
    gain=SMALLEST_GAIN,
    most=MOST_STEPS,
    rounds=MOST_ROUNDS,
    job=SILENT_JOB,
    root=None,
    least=LEAST_NEWTON_STEP,
):
    """Minimise by L-BFGS-B: return the value, the point, and the largest slope there that no bound stops.

    The objective returns the value and its gradient; the search ends when a step gains less than `gain` of the value.
    The first step is one unit of a log parameter long: L-BFGS-B's own, the gradient, would lead to the far corners of
    the bounds. Where a round ends on a slope, the next begins in smaller units, `rounds` times at most.
    With an approximate `root` of the inverse Hessian, the first step is Newton's, and the slope is the smaller one of
    that in log parameters and that in units of their standard errors; this round ends at the slope `least` in these.
    The `job` gets an event after every evaluation, with the best value so far. There are at most EVALUATIONS_A_STEP for
    each of the `most` steps of a round, and those of its last line search, of which SciPy makes 20.
    """
    point, number = np.clip(start, *bounds.T), count(1)
    best = point, *objective(point)

    def has_stopped(best):
        return job.report(next(number), objective=-best[1], change=lambda: find_free_slope(best, bounds))

    has_stopped(best)
    for first in (True, *[False] * (rounds - 1)):
        before = best[1]
        if not job.stopped:
            at_slope = (root, least) if first and root is not None else (None, SMALLEST_SLOPE)
            best = _descend(objective, best, bounds, gain, most, has_stopped, *at_slope)
        slope = find_free_slope(best, bounds, root)
        if job.stopped or is_flat(slope, best[1]) or not best[1] < before - GAIN_OF_A_ROUND:
            break
    return best[1], best[0], slope


def find_free_slope(best, bounds, root=None):
    """The largest entry of a gradient that no bound stops; see `climb` for the root."""
    (x, _, slope), (low, high) = best, bounds.T
    stopped = (slope > 0) & (x <= low) | (slope < 0) & (x >= high)
    slope = np.where(stopped, 0.0, slope)
    largest = float(np.max(np.abs(slope)))
    return largest if root is None else min(largest, float(np.max(np.abs(root.T @ slope))))


def _descend(objective, best, bounds, gain, most, has_stopped, root, least):
    """Run L-BFGS-B from (point, value, gradient); return the best such triple of all its evaluations."""
    start, first, box = best[0], best[0], bounds
    length = 1.0 / max(1.0, float(np.linalg.norm(best[2])))
    if root is not None:  # in coordinates z about the start in which the gradient is about the length of Newton's step:
        first, box = np.zeros(root.shape[1]), None  # in units of that length L-BFGS-B's first step, of one unit, is it
        unit = float(np.linalg.norm(root.T @ best[2])) or 1.0
        root, length = root * unit, unit**-2
        least *= unit
    evaluated = {first.tobytes(): best[1:]}

    def scaled(z):
        nonlocal best
        x = z if root is None else np.clip(start + root @ z, *bounds.T)
        before = evaluated.pop(z.tobytes(), None)
        value, slope = before or objective(x)
        if value < best[1]:
            best = x.copy(), value, slope
        if before is None and has_stopped(best):
            raise StoppedByCallback
        return length * value, length * (slope if root is None else root.T @ slope)

    options = {"maxiter": most, "maxfun": EVALUATIONS_A_STEP * most, "ftol": gain, "gtol": least * length}
    with suppress(StoppedByCallback):
        optimize.minimize(scaled, first, jac=True, method="L-BFGS-B", bounds=box, options=options)
    return best


def leave_plateaus(objective, best, bounds, job=SILENT_JOB):
    """Continue from a point that may be on a plateau, where a small gradient does not make a maximum.

    The search goes on from the first of the `find_unexplored_points` that is better by GAIN_OF_A_ROUND, until there is
    none. A search with a slope in every free number has no such points and takes no further evaluation.

    Parameters
    ----------
    objective : Objective
        Of one or more searches.
    best : tuple
        The value, the point and the slope that the best of these ended with, as `climb` returns them.
    bounds : ndarray (n, 2)
        Those of the searches.
    job : Job, optional
        Gets an event after every evaluation.

    Returns
    -------
    tuple
        The same at the end of the search.
    """
    least = getattr(objective.vector, "least_value", -np.inf) + GAIN_OF_A_ROUND  # better ones gain less than that
    for _ in range(MOST_ROUNDS):
        has_converged = is_flat(best[2], best[0]) and best[0] >= least
        point = _find_better_point(objective, best, bounds, job) if has_converged and not job.stopped else None
        if point is None:
            break
        job = job.continued_after(len(objective.values), -best[0])
        best = min(best, climb(objective, point, bounds, job=job), key=lambda run: run[0])
    return best


def _find_better_point(objective, best, bounds, job):
    """Return the first of the `find_unexplored_points` that is better than the best one, or None."""
    number = count(1)
    for points in find_unexplored_points(objective, best[1], bounds):
        for point in points:
            failures = objective.failures
            value = objective.value(point, max_iter=MAX_SWEEPS_ON_PLATEAU, double_loop=0)
            if job.report(next(number), objective=-min(value, best[0])) or objective.failures > failures:
                break  # EP fails farther out, too
            if value < best[0] - GAIN_OF_A_ROUND:
                return point
        if job.stopped:
            break
    return None


def find_unexplored_points(objective, x, bounds):
    """Return lists of points along each free number without effect so far, on either side.

    In these numbers every gradient of the search had an entry below PLATEAU_SLOPE. Their values are FAR_LOG_STEP apart,
    as far as the bounds; values within half of that of an earlier evaluation are left out.
    """
    explored, lists = np.array(objective.points), []
    for i in np.flatnonzero((objective.steepness < PLATEAU_SLOPE) & np.all(np.isfinite(bounds), axis=1)):
        for step, bound in zip((-FAR_LOG_STEP, FAR_LOG_STEP), bounds[i], strict=True):
            values = np.append(np.arange(x[i], bound, step)[1:], bound)
            far = np.min(np.abs(values[:, None] - explored[:, i]), axis=1) > 0.5 * FAR_LOG_STEP
            lists.append([np.where(np.arange(len(x)) == i, value, x) for value in values[far]])
    return lists


def newton_root(objective, x, bounds, job=SILENT_JOB):
    """Return a root of the inverse Hessian, from a difference of gradients per parameter; None where EP fails.

    Curvatures below one nat count as one: they are rounding, or of a parameter that the data do not determine. None,
    too, where the callback stops.
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
