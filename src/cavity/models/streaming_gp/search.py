"""Settings of streaming sparse Gaussian processes: searches batch by batch, and noise and amplitude of all rows.

A batch is judged by the increment of the log bound that it brings, with what is known of the rows before carried over
to the settings tried. What the old rows say was summed up at old settings: their factor holds on to them, the more so
the more rows it sums up. How much the new rows would gain without it is the `tension`.

The noise variance and a common factor of the covariance are free of this where alpha is 0. With K times s and the noise
times t every row keeps its part in three sums, so the bound of all rows so far is known at any s and t,

    A -> (s/t) A,    r -> (sqrt(s)/t) r,
    constant -> constant - (n log t - squares (1 - 1/t) - gap (1 - s/t))/2.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cavity.base.errors import SettingsWarning, warn
from cavity.jobs.job import SILENT_JOB
from cavity.models.process.settings import FreeHyperparameters, Settings
from cavity.models.process.starts import choose_starts
from cavity.models.search import (
    STARTING_STAGE,
    Objective,
    SearchResult,
    check_end,
    check_end_at_bounds,
    climb,
    evaluate_starts,
    find_free_slope,
    is_constant_with_open_noise,
    newton_root,
    warn_without_start,
)
from cavity.models.streaming_gp.bound_increment import BoundIncrement
from cavity.models.streaming_gp.rows import is_exact

MAX_FIRST_ROWS = 1 << 12  # of a first batch, at equal distances, in the first search
ROW_GROWTH_FACTOR = 4  # times as many are in the next one, until all are
ROUGH_GAIN = 1e-7  # of the value, at which searches of some rows end
MAX_FULL_SEARCHES = 3  # searches of all rows, each with inducing points chosen at the settings of the one before
MIN_GAIN_PER_ROW = 1e-3  # nats a row that new inducing points must gain for another to follow
MAX_LOG_PARAMETER_STEP = np.log(
    10.0
)  # no batch but the first moves a log parameter by more: the old factor is not valid far away
MAX_TENSION_STEPS = 15  # of the search for what the new rows would gain alone
TENSION_PROBABILITY = 1e-4  # that so large a tension comes about by chance, under the law of likelihood ratios


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult(SearchResult):
    """What a search ended with; its optimum is a StreamingGP with these settings, its trace that of the last search."""

    Z: np.ndarray | None = None  # (M, D): inducing points that the search ended with
    tension: float = 0.0  # nats that the new rows would gain at settings of their own


def learn_batch(
    old, Z, rows, model, covariance, scales, threads, *, pooled=False, choose=None, options=None, job=SILENT_JOB
):
    """Learn the settings from a batch, given what is known of the rows before.

    Parameters
    ----------
    old : (Basis, Information) or None
        What is known; None, or a basis without inducing points, before the first rows.
    Z : ndarray, shape (M, D)
        Inducing points after the batch.
    rows : Rows
        The batch.
    model : StreamingGP
        The settings to start from.
    covariance : bool
        Whether to learn the covariance.
    scales : tuple of str
        Scales of the likelihood to learn.
    pooled : bool
        Whether all rows before have the noise variance of the model: where alpha is 0, it is then learnt from all rows,
        and what is known of those before is rescaled afterwards, see `rescale_information`.
    threads : Threads
        That work on blocks.
    choose : callable, optional
        For first rows, choose(model, rows) -> Z: inducing points for other settings, among some of the rows.
    options : Options, optional
        Of EP.
    job : Job
        Its receivers get every evaluation.

    Returns
    -------
    BatchResult
        The settings of the largest increment found, log priors included.

    Warns
    -----
    ConvergenceWarning
        If the search did not come to rest.
    SettingsWarning
        If the tension is larger than chance explains.
    """
    settings = Settings(model.covariance, model.likelihood)
    vector = FreeHyperparameters(settings, covariance, scales)
    if vector.size == 0:
        return BatchResult(model, Z=Z)
    pooled = pooled and is_exact(model.likelihood) and model.alpha == 0.0 and len(scales) > 0
    search = _Search(vector, model, threads, options, choose, pooled, job)
    if old is None or old[1].n == 0.0:
        return search.search_first_batch(settings, Z, rows)
    return search.search_later_batch(settings, old, Z, rows)


class _Search:
    """Searches for the settings of one batch."""

    def __init__(self, vector, model, threads, options, choose, pooled, job):
        self.vector, self.model, self.threads, self.options, self.job = vector, model, threads, options, job
        self.choose, self.pooled = choose, pooled

    def make_objective(self, old, Z, rows):
        """Minus the increment and log prior."""
        pooled = self.pooled and old is not None
        return Objective(BoundIncrement(old, Z, rows, self.model, self.threads, self.options, pooled), self.vector)

    def search_first_batch(self, settings, Z, rows):
        """From several starts; inducing points are chosen again at what was found, as long as that gains."""
        *samples, rows = grow_rows(rows)
        few = samples[0] if samples else rows
        part = _collect_rows(few, self.model, self.threads)
        is_constant = is_constant_with_open_noise(self.vector.free, part)
        bounds, places, n_long = choose_starts(settings, part, self.vector)
        # a stream goes on beyond its first rows: short lengthscales would need inducing points without end
        best = places[:n_long]
        objectives = [self.make_objective(None, self.choose_inducing(x, Z, few), few) for x in best]
        tried, job = [], self.job.stage(STARTING_STAGE)
        for objective, x in zip(objectives, best, strict=True):
            tried += evaluate_starts(objective, [x], job.continued_after(len(tried), -min(tried, default=np.inf)))
            if job.stopped:
                break
        objective, x = objectives[int(np.argmin(tried))], best[int(np.argmin(tried))]
        if not objective.values:
            return BatchResult(self.model, warn_without_start(len(best), self.job), Z=Z)
        root = None
        for sample, larger in pairwise([*samples, rows]):
            job = self.job.stage(f"search of {sample.n} rows")
            x = climb(objective, x, bounds, ROUGH_GAIN, rounds=1, job=job, root=root)[1]
            if not job.stopped:
                root = newton_root(objective, x, bounds, self.job.stage("curvature"))
            root = None if root is None else root * np.sqrt(sample.n / larger.n)
            objective = self.make_objective(None, self.choose_inducing(x, Z, larger), larger)
        run = self.climb_rounds(None, objective, x, bounds, rows, root)
        result = self.collect_result(*run, 0.0)
        if is_constant:  # elsewhere noise is at its bound where functions without noise are interpolated
            return replace(result, status=check_end_at_bounds(result.status, run[-1], run[1], bounds))
        return result

    def climb_rounds(self, old, objective, x, bounds, rows, root=None):
        """Climb, at inducing points chosen again while that gains: (value, place, slope, objective) of the best.

        A root of the inverse Hessian may be known, see `climb`.
        """
        for number in range(1, MAX_FULL_SEARCHES + 1):
            job = self.job.stage("search" if number == 1 else f"search again, {number}")
            run = (*climb(objective, x, bounds, job=job, root=root), objective)
            if job.stopped or self.choose is None:
                break
            x = run[1]
            Z = self.choose_inducing(x, objective.evidence.Z, rows)
            objective = self.make_objective(old, Z, rows)
            if np.array_equal(Z, run[-1].evidence.Z) or objective.value(x) > run[0] - MIN_GAIN_PER_ROW * rows.n:
                break
        return run

    def search_later_batch(self, settings, old, Z, rows):
        """From the settings as they are; and the tension between old rows and new ones at what was found."""
        bounds, objective = self.vector.bounds(), self.make_objective(old, Z, rows)
        start = np.clip(self.vector.pack(settings), *bounds.T)
        evaluate_starts(objective, [start], self.job.stage(STARTING_STAGE))
        if not objective.values:
            return BatchResult(self.model, warn_without_start(1, self.job), Z=Z)
        near = self.restrict_bounds(start, bounds)
        value, x, slope, objective = self.climb_rounds(old, objective, start, near, rows)
        if np.any((x == near[:, 0]) | (x == near[:, 1])):
            slope = find_free_slope((x, *objective(x)), bounds)
        tension = 0.0 if self.job.stopped else self.compute_tension(x, objective.evidence.Z, rows, bounds)
        if tension > compute_largest_tension(self.vector.size):
            warn(
                f"the rows before hold the settings: alone, the {rows.n} new ones would gain {tension:.3g} nats at "
                "settings of their own; forget(factor) makes those before count less",
                SettingsWarning,
            )
        return self.collect_result(value, x, slope, objective, tension)

    @staticmethod
    def restrict_bounds(x, bounds):
        """Bounds about a place."""
        return np.clip(np.column_stack([x - MAX_LOG_PARAMETER_STEP, x + MAX_LOG_PARAMETER_STEP]), *bounds.T[:, :, None])

    def compute_tension(self, x, Z, rows, bounds):
        """Nats that the rows would gain near a place if nothing were known of those before; 0 where EP fails."""
        alone = self.make_objective(None, Z, rows)
        value = alone.value(x)
        if not alone.values:
            return 0.0
        job = self.job.stage("tension of old rows and new ones")
        return value - climb(alone, x, self.restrict_bounds(x, bounds), most=MAX_TENSION_STEPS, rounds=1, job=job)[0]

    def choose_inducing(self, x, Z, rows):
        """Inducing points for the settings of a vector and some rows."""
        return Z if self.choose is None else self.choose(self.unpack_model(x), rows)

    def unpack_model(self, x):
        """The model with the settings of a vector."""
        settings = self.vector.unpack(x)
        return replace(self.model, covariance=settings.covariance, likelihood=settings.likelihood)

    def collect_result(self, value, x, slope, objective, tension):
        """What came out of a search."""
        status = check_end(objective, value, slope, self.job)
        return BatchResult(self.unpack_model(x), status, objective.trace, Z=objective.evidence.Z, tension=tension)


def compute_largest_tension(n):
    """Nats that n settings of their own may gain for new rows by chance: a quantile of chi-squared over two."""
    from scipy.special import gammainccinv

    return float(gammainccinv(0.5 * n, TENSION_PROBABILITY))


def grow_rows(rows):
    """Yield choices of rows at equal distances, from at most FIRST_ROWS of them to all.

    Each is a part of the next one, which has GROWTH times as many.
    """
    times = 1
    while rows.n > MAX_FIRST_ROWS * times:
        times *= ROW_GROWTH_FACTOR
    while times > 1:
        X, index = rows.sample_rows(-(-rows.n // times))
        yield replace(rows.observed(index), X=X)
        times //= ROW_GROWTH_FACTOR
    yield rows


def _collect_rows(rows, model, threads):
    """Rows in the form in which searches choose starts."""
    X, _ = rows.sample_rows(rows.n)
    return replace(rows, X=X, offset=rows.compute_prior_means(model, threads))
