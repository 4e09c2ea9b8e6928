"""Search for factors on prior variances and parameters of the likelihood of a GLM by the log evidence."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.loop import CONVERGED_STATUS, STOPPED_STATUS
from cavity.ep.fit_result import FitResult
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.parameters import choose_parameters, list_open_parameters
from cavity.likelihoods.starts import estimate_spread
from cavity.models import search
from cavity.models.hyperparameters import Hyperparameters
from cavity.models.linear.evidence import PRIOR_VARIANCE, FreeFactors, LinearEvidence
from cavity.models.linear.moving_search import move_with_passes
from cavity.models.search import (
    FAR_LOG_STEP,
    LEAST_NEWTON_STEP,
    SEARCH_TOL,
    SMALLEST_SLOPE,
    STARTING_STAGE,
    Objective,
    SearchResult,
    evaluate_starts,
)
from cavity.models.standard_errors import find_covariance, find_standard_errors
from cavity.sources.features import find_constant_columns
from cavity.sources.read_ahead import iterate_blocks


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The outcome of a fit, and the posterior of the weights, or of all effects of a mixed model."""

    problem: object  # GLMProblem or MixedProblem at the learnt hyperparameters
    fit: FitResult
    weights: object  # Weights or Effects
    hyperparameters: Hyperparameters | None = None
    searched: str = CONVERGED_STATUS  # status of the search for hyperparameters
    integration: object = None  # over hyperparameters
    joint: object = None  # of mixed models: the effects, or their mixture over the points


START_ROWS = 1 << 12  # most rows of the regression for first values
SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN = 1 << 12, 16  # of many rows on which the search begins, at least
MIN_SAMPLED_ROWS = 1 << 15
MAX_SAMPLED_COLUMNS = 1 << 9  # up to which that many rows are enough
MAX_SAMPLE_VARIANCE = 0.25  # of a free number given some rows
NEWTON_FINER = 0.1  # of tolerances, as the last of Newton's steps is not checked by another gradient
MOVED_TOL = 1e-4  # of the fit after passes that numbers moved with: errors of its gradient are that in standard errors
INFORMED_TOL = 1e-5  # of that of a mixed model, which has more effects
SAMPLE_GAIN = 1e-7  # of the value, at which the search on some rows ends: within 0.1 of their sd
LEAST_SAMPLE_STEP = 0.5  # in units of certainty: the last one of passes over some rows
PASSES_STAGE = "passes"  # the stage of a search that moves with passes of EP
BLOCK_ROWS = 1 << 13
OUTLIERS_SPREAD = 3.0  # residuals of a regression this many times as wide as those of a constant follow outliers
SMALL_CHANGE = 1e-4  # nats of the evidence at given sites, where these would hardly move
MIN_FALL_NATS = 1e-3  # by which the evidence must fall far away from a maximum
MAX_LAST_STEPS, MAX_LAST_LENGTH, LAST_LENGTH = 3, 0.1, 1e-5  # of Newton's steps after a search, in standard errors
MAX_STANDARD_ERRORS = 20  # free numbers up to which standard errors take no longer than the search
LIMIT_DESCRIPTIONS = {  # the limits of likelihoods in a parameter, by the sign of the way there
    ("NegativeBinomial", "dispersion", 1.0): "; the data are consistent with Poisson counts",
    ("ZeroInflatedNegativeBinomial", "dispersion", 1.0): "; the data are consistent with Poisson counts and zeros",
    ("BetaBinomial", "precision", 1.0): "; the data are consistent with binomial successes",
    ("StudentT", "degrees_of_freedom", 1.0): "; the data are consistent with Gaussian noise",
    ("Gaussian", "noise_variance", -1.0): "; the data are consistent with y that has no noise beside the terms",
}


def choose_names_to_learn(likelihood, learn):
    """Return the names of hyperparameters to learn: the requested ones, and open parameters of the likelihood."""
    allowed = (PRIOR_VARIANCE, *likelihood.parameters)
    if learn is None:
        learn = False
    requested = choose_parameters(learn, allowed, allowed)
    needed = list_open_parameters(likelihood)
    return tuple(name for name in allowed if name in requested or name in needed)


def check_can_learn(model, names, method, schedule):
    """Raise ValueError if parameters of the likelihood among `names` cannot be learnt by this method."""
    parameters = [name for name in names if name != PRIOR_VARIANCE]
    choices = {"method": method, "schedule": schedule, "approximation": model.approximation}
    unable = [f"{name}={value!r}" for name, value in choices.items() if value in ("adf", "stochastic", "diagonal")]
    if parameters and unable:
        kind = type(model.likelihood).__name__
        raise ValueError(
            f"{unable[0]} cannot find {parameters[0]} of {kind}: give a number, or use EP with approximation='full'"
        )


def check_groups(value, prior_variance, problem, names, added):
    """Return the groups of weights whose prior variances share a factor; None for one factor of all.

    Parameters
    ----------
    value : array_like (D,) of int or None
        Groups of the columns; weights of negative groups keep their prior variances.
    prior_variance : float, ndarray or None
        The setting. A vector has as many factors as columns; otherwise there is one factor, by default not on constant
        columns.
    problem : GLMProblem
        The prior in numbers.
    names : tuple of str
        The hyperparameters to learn.
    added : bool
        Whether an intercept was put before the columns; its prior variance stays.

    Returns
    -------
    ndarray or None
        Groups of all weights.
    """
    variance, n = problem.prior.variance, len(problem.prior.mean) - added
    if value is None:
        if variance.ndim != 1 or PRIOR_VARIANCE not in names:
            return None
        groups = np.zeros(n, dtype=np.intp) if np.ndim(prior_variance) == 0 else np.arange(n)
        if prior_variance is None:
            groups[find_constant_columns(problem.rows.X, problem.rows.weights)[added:]] = -1
        return np.append(np.full(int(added), -1), groups)
    if PRIOR_VARIANCE not in names:
        raise ValueError("prior_groups needs learn='prior_variance': nothing else belongs to groups")
    if variance.ndim == 2:
        raise ValueError("prior_groups needs prior_variance as a number or a vector, got a matrix")
    groups = np.asarray(value)
    if groups.shape != (n,) or groups.dtype.kind not in "iu":
        raise ValueError(f"prior_groups must be {n} integers, one for each column, got {value!r}")
    if not np.any(groups >= 0):
        raise ValueError("prior_groups must have some column in a group, got negative numbers only")
    return np.append(np.full(int(added), -1), groups.astype(np.intp))


def learn_settings(problem, names, groups, threads, options, kind=LinearEvidence, prepare=None):
    """Maximise the log evidence over the named hyperparameters.

    Returns
    -------
    search : SearchResult
        The maximum.
    evidence : LinearEvidence
        Of that `kind`, and of the open settings; `prepare(vector)` is called before it is maximised.
    """
    few = sample_rows(problem, names)
    starts = choose_likelihoods(problem if few is None else few, names)
    if groups is not None and problem.prior.variance.ndim == 0:
        problem = problem.with_prior(problem.prior.mean, np.full(len(groups), problem.prior.variance))
    vector = FreeFactors(names, groups, starts[0], problem)
    if prepare is not None:
        prepare(vector)
    silent = replace(options, job=SILENT_JOB)
    sample = None if few is None else LinearEvidence(replace(few, prior=problem.prior), vector, threads, silent)
    evidence = kind(problem, vector, threads, options)
    return maximise_evidence(evidence, starts, options.job, sample), evidence


def maximise_evidence(evidence, starts, job, sample=None):
    """Maximise a log evidence over the free settings of its vector; `starts` are the likelihoods to begin with.

    `sample` is the evidence of some of many rows, whose maximum is found first.
    """
    vector, problem = evidence.vector, evidence.problem
    if vector.size == 0:
        return SearchResult(problem)
    objective = Objective(evidence, vector, problem.used.n, evidence.job)
    bounds = vector.bounds(*map(vector.free.pack, starts))
    start, root, moved = None, None, None
    if sample is not None:
        start, root = _search_sample(sample, objective, starts, bounds)
        moved = None if start is None else _move_from_sample(sample, evidence, start, root, bounds)
    elif evidence.gives_information(problem.used.n):
        moved = _move_from_afar(evidence, objective, starts, bounds, job)
    if moved is not None:
        start, objective.slope, root = moved.x, moved.slope, moved.root
    if start is not None:
        tol = max(MOVED_TOL if sample is not None else INFORMED_TOL, evidence.options.tol)
        options = {} if moved is None else {"tol": tol}
        evaluate_starts(objective, [start], job.stage(STARTING_STAGE), moved is None, **options)
    if not objective.values:
        start, root = _choose_start(objective, starts, bounds, job.stage(STARTING_STAGE)), None
    evidence.stops_early = root is not None
    least = LEAST_NEWTON_STEP if evidence.stops_early and vector.size <= MAX_STANDARD_ERRORS else SMALLEST_SLOPE
    value, x, status = search.maximise(objective, [start], bounds, job, len(starts), root=root, least=least)
    if status == CONVERGED_STATUS:
        stage = job.stage("standard errors")
        slopes = None if root is None else objective.recall(x)[1]
        covariance, has_error, note = _find_covariance(objective, x, bounds, value, stage, slopes)
        if root is not None:  # what Newton's steps with the curvature of some rows have left
            x = np.clip(x - covariance @ slopes, *bounds.T)
        elif not job.stopped:
            x = _settle(objective, x, covariance, bounds)
    else:
        covariance, has_error, note = *_know_nothing(vector.size), f"no standard errors: {status}"
    x = start if x is None else x
    settings = vector.unpack(x)
    sites = evidence.find_start(settings)
    names, values, jacobian = vector.describe(settings)
    sd = find_standard_errors(covariance, has_error, jacobian)
    objective.evaluations.keep()
    hyperparameters = Hyperparameters(tuple(names), tuple(values), tuple(sd), note, vector.log_prior(settings)[0])
    status = STOPPED_STATUS if job.stopped else status
    return SearchResult(evidence.best(settings), status, objective.trace, hyperparameters, sites, x)


# ------------------------------------------------------------------------------------------ some of many rows


def sample_rows(problem, names):
    """Return the problem of some thousand rows, evenly spaced, where there are many more; else None.

    None, too, for parameters of several numbers: some rows may lack the categories that these are of.
    """
    rows, likelihood = problem.used, problem.model.likelihood
    several = any(likelihood.parameters.get(name) == "increasing" for name in names)
    if several or rows.n < MIN_SAMPLED_ROWS or rows.X.shape[1] > MAX_SAMPLED_COLUMNS:
        return None
    size = max(SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN * rows.X.shape[1])
    sample = rows.part(np.linspace(0, rows.n - 1, size).astype(np.intp))
    return replace(problem, rows=sample, used=sample)


def _search_sample(sample, objective, starts, bounds):
    """Return the maximum of the evidence of some rows, and the root of the inverse Hessian that it gives for all rows.

    None twice where EP fails on the way, or where these rows hardly determine a number: then the search begins as that
    of few rows does.
    """
    vector, n = sample.vector, sample.problem.used.n
    sample_objective = Objective(sample, vector, n)
    start = _choose_start(sample_objective, starts, bounds, SILENT_JOB)
    if not sample_objective.values:
        return None, None
    x = search.climb(sample_objective, start, bounds, SAMPLE_GAIN, rounds=1)[1]
    root = search.newton_root(sample_objective, x, bounds)
    if root is None or np.max(np.sum(root**2, axis=1)) > MAX_SAMPLE_VARIANCE:
        return None, None
    objective.steepness, objective.finer = sample_objective.steepness, NEWTON_FINER
    # the curvature of the log evidence in numbers of the likelihood grows with the number of rows, that in others not
    narrower = np.where(np.arange(vector.size) < vector.n_prior, 1.0, (n / objective.n_rows) ** 0.5)
    return x, root * narrower[:, None]


def _move_from_sample(sample, evidence, x, root, bounds):
    """Return what `move_with_passes` does from the posterior of some rows, None if that is not proper."""
    evidence.start = sample.posterior_of_sites(sample.vector.unpack(x))
    moved = None if evidence.start is None else move_with_passes(evidence, x, root, bounds)
    if moved is None:
        evidence.start = None
    else:
        evidence.stops_early, evidence.share_left = True, sample.share_left
    return moved


def _move_from_afar(evidence, objective, starts, bounds, job):
    """Return what `move_with_passes` does from the best of some starts, by the information of the evidence."""
    stage, x = job.stage(PASSES_STAGE), np.clip(evidence.vector.start(0.0, starts[0]), *bounds.T)
    if len(starts) > 1:
        x = _choose_start(objective, starts, bounds, job.stage(STARTING_STAGE))
    first = _move_with_sample(evidence, x, bounds, stage)
    if first is not None:
        x, stage = first.x, job.stage(PASSES_STAGE)
    n_first = 1 if first is None else 2
    moved = None if job.stopped else move_with_passes(evidence, x, None, bounds, stage, first_passes=n_first)
    if moved is None:
        evidence.start = None
    else:
        objective.steepness, objective.finer = moved.steepness, NEWTON_FINER
        if first is not None:
            objective.steepness = np.maximum(first.steepness, moved.steepness)
    return moved


def _move_with_sample(evidence, x, bounds, job):
    """Return where passes over some of many rows lead, whose sites the evidence then starts from; None if nowhere."""
    few = evidence.sample_rows()
    first = None if few is None else move_with_passes(few, x, None, bounds, job, LEAST_SAMPLE_STEP)
    if first is not None:
        evidence.start_from(few)
    return first


# ------------------------------------------------------------------------------------------ starts


def choose_likelihoods(problem, names):
    """Return likelihoods to start from: first values from the data for open parameters, and for all learnt ones."""
    likelihood, rows = problem.model.likelihood, problem.used
    parameters = [name for name in names if name != PRIOR_VARIANCE]
    if not parameters:
        return [likelihood]
    for name in parameters:
        if likelihood.parameters[name] in ("scale", "positive") and getattr(likelihood, name) == 0:
            raise ValueError(f"{name} of {type(likelihood).__name__} is 0, from where no search leads on; give None")
    starts = []
    copies = rows.list_copies()
    for fitted in _fit_roughly(problem, copies):
        suggested = likelihood.starting_values(rows.y[copies], fitted[copies])
        filled = replace(likelihood, **{name: suggested[name] for name in list_open_parameters(likelihood)})
        fits = [name for name in parameters if np.size(suggested[name]) == np.size(getattr(filled, name))]
        other = {name: suggested[name] for name in fits}
        same = all(getattr(filled, name) == value for name, value in other.items())
        starts += [filled] if same else [filled, replace(filled, **other)]
    return starts


def _fit_roughly(problem, copies):
    """Return a list of rough values of f: of least squares, or of a constant if there are few rows; both if the
    regression has followed outliers, which it has if residuals are OUTLIERS_SPREAD times those of the median.

    `copies` is the index of rows by their weights, see `Rows.list_copies`.
    """
    rows, likelihood = problem.used, problem.model.likelihood
    offset = np.zeros(rows.n) if rows.offset is None else rows.offset
    guess = likelihood.start(rows.y)
    if guess is None:
        return [offset]
    rest, d = guess - offset, rows.X.shape[1]
    index = np.arange(rows.n)[copies]
    few = index[np.linspace(0, len(index) - 1, min(len(index), START_ROWS)).astype(np.intp)]
    centre = float(np.median(rest[copies]))
    if len(few) < 2 * d:
        return [offset + centre]
    X = np.asarray(rows.X[few], dtype=np.float64)
    size = np.max(np.abs(X), axis=0)
    size[size == 0] = 1.0
    X, target = X / size, rest[few]
    unit = float(np.max(np.abs(target))) or 1.0
    weights = np.linalg.lstsq(X.T @ X, X.T @ (target / unit))[0] / size * unit
    linear = np.concatenate([x @ weights for _, x in iterate_blocks(rows.X, BLOCK_ROWS)])
    spreads = [estimate_spread(rest[copies], fitted, True) for fitted in (linear[copies], centre)]
    follows_outliers = spreads[0] > OUTLIERS_SPREAD * spreads[1]
    return [offset + linear, *([offset + centre] if follows_outliers else [])]


def _choose_start(objective, likelihoods, bounds, job):
    """Return the start of largest evidence: first the likelihood, then the common factor.

    A scan is needed as the evidence is flat far from the maximum.
    """
    vector = objective.vector

    def best_of(points, job):
        return int(np.argmin(evaluate_starts(objective, points, job, afresh=True)))

    starts = [np.clip(vector.start(0.0, likelihood), *bounds.T) for likelihood in likelihoods]
    has_to_choose = len(starts) > 1 or not vector.n_prior
    best = best_of(starts, job) if has_to_choose else 0
    if job.stopped or not vector.n_prior:
        return starts[best]
    scan = [np.clip(vector.start(factor, likelihoods[best]), *bounds.T) for factor in vector.scan]
    return scan[best_of(scan, job.continued_after(has_to_choose * len(starts)))]


# ------------------------------------------------------------------------------------------ the end of a search


def _settle(objective, x, covariance, bounds):
    """Return free numbers after Newton's steps with their covariance, from slopes of fits at the tolerance of EP.

    The search has left slopes of SMALLEST_SLOPE. A step of s standard errors leaves some 1e-4 s, as the covariance is
    right to four digits.
    """
    for _ in range(MAX_LAST_STEPS):
        try:
            point = objective.evaluations.at(x, tol=objective.evidence.options.tol, double_loop=0)
            slopes = objective.evaluations.gradient(point) if point.converged else np.full(len(x), np.nan)
        except (ArithmeticError, np.linalg.LinAlgError):
            break
        step = covariance @ slopes
        length = float(step @ slopes)
        if not 0.0 < length < MAX_LAST_LENGTH**2:  # nan where EP or arithmetic fails
            break
        x = np.clip(x + step, *bounds.T)
        if length <= LAST_LENGTH**2:
            break
    return x


def _know_nothing(n):
    """Return no covariance of n free numbers, and that none has a standard error."""
    return np.zeros((n, n)), np.zeros(n, dtype=bool)


def _find_covariance(objective, x, bounds, value, job, slopes=None):
    """Return the covariance of free numbers, which have standard errors, and why others have none."""
    vector, evaluations = objective.vector, objective.evaluations
    if len(x) > MAX_STANDARD_ERRORS:
        return *_know_nothing(len(x)), f"no standard errors of more than {MAX_STANDARD_ERRORS} numbers"
    is_flat, names = partial(_is_flat, evaluations, x, bounds, value, set()), vector.describe(vector.unpack(x))[0]
    return find_covariance(evaluations, x, bounds, names, is_flat, job, slopes)


def _is_flat(evaluations, x, bounds, value, flat, i):
    """Whether the evidence does not fall far out in a free number; warn, unless `vector.warns_of_flat` is false.

    Numbers of which that is so are added to the set `flat`.
    """
    vector = evaluations.vector
    signs = (-1.0, 1.0) if x[i] - bounds[i, 0] <= bounds[i, 1] - x[i] else (1.0, -1.0)  # to the nearer bound first
    for sign in signs if np.isfinite(bounds[i, 0]) else ():
        further = x.copy()
        further[i] = np.clip(x[i] + sign * FAR_LOG_STEP, *bounds[i])
        at, settings = vector.unpack(x), vector.unpack(further)
        change = evaluations.evidence.estimate_change(at, settings)
        if abs(change) <= SMALL_CHANGE:  # no other sites, then
            change += vector.log_prior(settings)[0] - vector.log_prior(at)[0]
        else:
            try:
                point = evaluations.at(further, tol=SEARCH_TOL, double_loop=0)
            except (ArithmeticError, np.linalg.LinAlgError):
                continue
            change = point.log_evidence + vector.log_prior(settings)[0] + value if point.converged else -np.inf
        if change >= -MIN_FALL_NATS:
            if i >= vector.n_prior or vector.warns_of_flat:
                _warn_flat(vector, x, i, sign, flat)
            flat.add(i)
            return True
    return False


def _warn_flat(vector, x, i, sign, earlier):
    if i < vector.n_prior:
        description = vector.flat(x, i, sign, earlier)
        if description is None:
            return
        name, end, limit = description
    else:
        likelihood, i = vector.unpack(x).likelihood, i - vector.n_prior
        name, end = vector.free.labels()[i], f"{vector.free.values(likelihood)[i]:.2g}"
        limit = LIMIT_DESCRIPTIONS.get((type(likelihood).__name__, name, sign), "")
    message = f"the log evidence has no maximum in the {name}: it does not fall beyond {end}; the search ended there"
    warn(message + limit, NumericalWarning)
