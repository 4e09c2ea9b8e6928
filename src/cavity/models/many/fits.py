"""Fits of all responses: batches on threads, and one by one what these leave."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from cavity.base.constants import LARGEST_REACH
from cavity.base.errors import collect_warnings
from cavity.base.labels import has_classes
from cavity.base.loop import CONVERGED_STATUS, STOPPED_STATUS
from cavity.base.special import quiet
from cavity.ep.sites import Sites
from cavity.likelihoods.parameters import FreeParameters, is_built_in
from cavity.models.defaults import is_real
from cavity.models.many.batch import BatchSolver, LogNormalPriors
from cavity.models.many.gaussian import GaussianSolver
from cavity.models.many.response_blocks import combine_blocks, fill_missing
from cavity.models.many.site_batch import SiteBatch

LEAST_TOTAL = 0.5  # of the counts of a response, whose log is taken
FIRST_EFFECT_SHARE = 0.5  # of the spread of f, as the sd of random effects that a search begins with
MIN_SPREAD_SHARE = 1e-6  # of f: a smaller spread may be of rounding
FLAT_NOISE_STATUS = "the log evidence has no maximum in the noise_variance: it does not fall as that goes to 0"
OUT_OF_RANGE_STATUS = "y is too large or too small: what follows from it leaves the range of float64; rescale it"
NO_SPREAD_STATUS = "y is constant, from which no {} can be found"
LEFT_STATUS = "left to a fit alone"
NO_VALUE_STATUS = "y has no value in any row"
ONLY_ZEROS_STATUS = "y has zeros only: mean and covariance are those of the prior"


@dataclass(slots=True, eq=False)
class ResponseFits:
    """The outcome of G responses, in the coordinates of the fit; of those without a fit nan."""

    mean: np.ndarray  # (G, M)
    covariance: np.ndarray  # (G, T): lower triangles, row by row
    prior_mean: np.ndarray  # (G, M)
    prior_sd: np.ndarray  # (G, M): of whitened columns
    log_evidence: np.ndarray  # (G,)
    n_iter: np.ndarray  # (G,)
    n_observed: np.ndarray  # (G,): rows with a value, of positive weight
    status: np.ndarray  # (G,) of str
    free: np.ndarray  # (G, k): free numbers
    curvature: np.ndarray  # (G, k): of the log evidence and the log prior in them
    level: np.ndarray  # (G,): see `find_levels`

    @classmethod
    def empty(cls, count, m, k):
        """Return the fits of responses of which none has been fitted."""
        shapes = {"mean": (m,), "covariance": (m * (m + 1) // 2,), "prior_mean": (m,), "prior_sd": (m,), "free": (k,)}
        arrays = {f.name: np.full((count, *shapes.get(f.name, ())), np.nan) for f in fields(cls)}
        arrays |= {name: np.zeros(count, dtype=np.intp) for name in ("n_iter", "n_observed")}
        arrays |= {"status": np.full(count, "", dtype=object)}
        return cls(**arrays | {"curvature": np.zeros((count, k)), "level": np.zeros(count)})

    def put(self, index, part):
        """Put the fits of some responses in their places."""
        for f in fields(self):
            getattr(self, f.name)[index] = getattr(part, f.name)


def check_responses(problem, raw, observed):
    """Return checked responses, and for each of them "" or the reason why it cannot be fitted."""
    likelihood, reasons = problem.likelihood, [""] * len(raw)
    try:
        if not is_built_in(likelihood) or has_classes(likelihood):
            raise ValueError  # what a response may hold depends on the whole of it
        checked = likelihood.check(raw.reshape(-1, *raw.shape[2:])).reshape(raw.shape)
    except (ValueError, TypeError):
        checked = np.array(raw, dtype=np.float64)
        for b, y in enumerate(raw):
            try:
                checked[b] = likelihood.check(y)
            except (ValueError, TypeError) as error:
                reasons[b] = str(error)
    for b in np.flatnonzero(~observed.any(axis=1)):
        reasons[b] = NO_VALUE_STATUS
    if problem.names:
        for b in np.flatnonzero(np.all(checked == checked[:, :1], axis=tuple(range(1, checked.ndim)))):
            if not likelihood.discrete:
                reasons[b] = reasons[b] or NO_SPREAD_STATUS.format(problem.names[0])
            elif not np.any(checked[b, 0]):
                reasons[b] = reasons[b] or ONLY_ZEROS_STATUS
    return checked, reasons


def find_priors(problem, y, offset, observed):
    """Return what `ManyProblem.priors_of` does, and which responses are in the range of float64 with it, (B,)."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            mean, scale = problem.priors_of(y, offset, observed)
            reach = scale[:, : mean.shape[1]] * np.max(np.abs(problem.rows.X), axis=0)
    except OverflowError:
        if len(y) > 1:
            rows = ([array[b : b + 1] for array in (y, offset, observed)] for b in range(len(y)))
            parts = [find_priors(problem, *part) for part in rows]
            return tuple(map(np.concatenate, zip(*parts, strict=True)))
        d = problem.rows.X.shape[1]
        return np.zeros((1, d)), np.zeros((1, d + problem.effects.shape[1])), np.array([False])
    if not problem.choice.follows_responses:
        return mean, scale, np.ones(len(y), dtype=bool)
    largest = np.max(np.abs(y) if is_real(problem.likelihood) else reach, axis=1)
    return mean, scale, (np.maximum(largest, np.max(reach, axis=1)) < LARGEST_REACH) & np.all(scale > 0, axis=1)


def fit_responses(problem, inputs, threads, job, scale_factors=None, make_priors=None, chosen=None):
    """Fit responses in batches.

    Parameters
    ----------
    problem : ManyProblem
        What they share.
    inputs : ManyInputs
        The responses.
    threads : Threads
        Which take batches, unless dask has the observations: then its workers do.
    job : Job
        Gets a report after every batch.
    scale_factors : ndarray (D,), optional
        On the prior standard deviations of the columns.
    make_priors : callable, optional
        make_priors(levels) returns the `LogNormalPriors` of the free numbers of responses; by default flat ones.
    chosen : sequence of (low, high), optional
        The batches to fit; by default all.

    Returns
    -------
    ResponseFits
    """
    count, m = len(inputs.names), problem.rows.X.shape[1] + problem.effects.shape[1]
    fits = ResponseFits.empty(count, m, problem.n_free)
    spans = list(list_spans(problem, count) if chosen is None else chosen)
    fit = BatchFit(problem, problem.features(), scale_factors, make_priors or partial(_make_flat_priors, problem))
    stages = [job.substage(f"responses from {low}") for low, _ in spans]
    saved = [stage.restore(ResponseFits) for stage in stages]
    missing_spans = [span for span, part in zip(spans, saved, strict=True) if part is None]
    parts = inputs.map_blocks(fit, missing_spans, threads)
    for done, (span, stage, part) in enumerate(zip(spans, stages, saved, strict=True), 1):
        if part is None:
            part = next(parts)
            stage.store(partial(replace, part, status=np.array(part.status, dtype=str)))
        fits.put(slice(*span), part)
        if job.report(done, rows=span[1] - span[0], left=len(spans) - done):
            break
    fits.status[fits.status == ""] = STOPPED_STATUS
    return fits


def _make_flat_priors(problem, levels):
    return LogNormalPriors.flat(len(levels), problem.n_free, problem.priors)


def find_levels(likelihood, y, offset, observed):
    """Return logs of the mean of counts (B, N) per unit of exposure, (B,), on which dispersions may depend; else 0."""
    if not (likelihood.takes_exposure and likelihood.discrete):
        return np.zeros(len(y))
    with np.errstate(over="ignore"):
        total, exposure = (np.sum(np.where(observed, a, 0.0), axis=1) for a in (y, np.exp(offset)))
        return np.log(np.maximum(total, LEAST_TOTAL)) - np.log(exposure)


def list_spans(problem, count):
    """Return first and last numbers of the batches of so many responses."""
    size = problem.batch_size
    return [(low, min(low + size, count)) for low in range(0, count, size)]


@dataclass(frozen=True, slots=True, eq=False)
class BatchFit:
    """What fits a batch of responses, on a thread or a worker of dask; see `fit_responses`."""

    problem: Any
    features: np.ndarray
    scale_factors: np.ndarray | None
    make_priors: Callable

    @quiet  # responses whose numbers are not finite get a status
    def __call__(self, names, blocks):
        """Return the `ResponseFits` of responses from blocks of their matrices."""
        problem = self.problem
        raw, offset = combine_blocks(names, blocks, problem.rows.offset)
        filled, observed = fill_missing(raw)
        n_observed = np.sum(observed & problem.rows.in_use, axis=1)
        raw, observed = (filled, observed) if problem.drops_missing else (raw, np.ones(observed.shape, dtype=bool))
        d, m = problem.rows.X.shape[1], self.features.shape[1]
        fits = ResponseFits.empty(len(raw), m, problem.n_free)
        fits.n_observed[:] = n_observed
        checked, fits.status[:] = check_responses(problem, raw, observed)
        has_prior = np.isin(fits.status, ["", ONLY_ZEROS_STATUS])
        if not has_prior.any():
            return fits
        mean, scale, is_good = find_priors(problem, checked[has_prior], offset[has_prior], observed[has_prior])
        mean, scale = mean[is_good], scale[is_good]
        fits.status[np.flatnonzero(has_prior)[~is_good]] = OUT_OF_RANGE_STATUS
        has_prior[has_prior] = is_good
        fits.level[has_prior] = find_levels(problem.likelihood, *(a[has_prior] for a in (checked, offset, observed)))
        if self.scale_factors is not None:
            scale[:, :d] *= self.scale_factors
        fits.prior_mean[has_prior] = np.pad(mean, ((0, 0), (0, m - d)))
        fits.prior_sd[has_prior] = scale
        fits.status[fits.status == ""] = LEFT_STATUS
        zeros = fits.status == ONLY_ZEROS_STATUS
        if zeros.any():
            root = _effect_roots(problem, scale[zeros[has_prior]])
            fits.mean[zeros] = fits.prior_mean[zeros]
            fits.covariance[zeros] = _pack(np.matmul(root, np.swapaxes(root, 1, 2)))
        index = np.flatnonzero(fits.status == LEFT_STATUS)
        if index.size and problem.is_batchable:
            part, priors = ~zeros[has_prior], self.make_priors(fits.level[index])
            data = checked[index], offset[index], observed[index]
            _fit_batch(problem, self.features, data, mean[part], scale[part], priors, fits, index)
        for number in np.flatnonzero(fits.status == LEFT_STATUS):
            self._fit_single(fits, number, checked[number], offset[number], observed[number])
        return fits

    def _fit_single(self, fits, number, y, offset, observed):
        """Fit a response that its batch has left, as `fit` does."""
        rows, priors = replace(self.problem.rows, y=y, offset=offset), self.make_priors(fits.level[number, None])
        with collect_warnings() as messages:  # the status has their texts
            try:
                single = self.problem.fit_single(rows, observed, self.scale_factors, priors)
            except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
                fits.status[number] = str(error)
                return
        fits.mean[number], fits.covariance[number] = single.mean, _pack(single.covariance[None])[0]
        for name in ("log_evidence", "n_iter", "status", "free", "prior_sd"):
            getattr(fits, name)[number] = getattr(single, name)
        if any(message.startswith(FLAT_NOISE_STATUS.partition(":")[0]) for message in messages):
            fits.status[number] = FLAT_NOISE_STATUS


def _fit_batch(problem, features, data, mean, scale, priors, fits, index):
    """Fit checked responses, their offsets and observed entries, in a batch and put what it solves into the fits."""
    y, offset, observed = data
    base = offset + np.matmul(problem.rows.X, mean[:, :, None])[:, :, 0]
    if problem.is_gaussian:
        noise, weights = problem.likelihood.noise_variance, problem.rows.weight() * np.ones(problem.rows.n)
        if not observed.all():
            weights = np.where(observed, weights, 0.0)
        settings = weights, noise, problem.groups, priors, problem.run.max_iter
        solution = GaussianSolver(features, y, base, scale, *settings).solve()
        _put_solution(problem, fits, index, scale, solution)
        return
    free, likelihood = _choose_starts(problem, y, offset, observed)
    for numbers, merged in problem.split_rows(y, offset, observed):
        part = y[numbers], observed[numbers], base[numbers]
        sites, own_features, own_base = _make_sites(problem, likelihood, features, part, merged)
        own_priors, own_scale = replace(priors, mean=priors.mean[numbers]), scale[numbers]
        solver = BatchSolver(own_features, sites, own_base, own_scale, problem.groups, own_priors, problem.run)
        _put_solution(problem, fits, index[numbers], own_scale, solver.solve(free[numbers]))


def _make_sites(problem, likelihood, features, data, merged):
    """Return the `SiteBatch` of responses, whose equal rows are merged or not, and features and bases of its sites."""
    (y, observed, base), power = data, problem.run.power
    if merged is None:
        common = Sites(likelihood, y[0], problem.rows.weights, power)
        return SiteBatch(common, problem.names, y, observed), features, base
    common, firsts, signs = merged.shared.make_sites(likelihood, power), merged.firsts, merged.signs
    names, joined = problem.names if common.likelihood is likelihood else (), merged.joined
    sites = SiteBatch(common, names, joined.y, np.ones((len(y), len(firsts)), dtype=bool), joined)
    return sites, *map(np.ascontiguousarray, (signs[:, None] * features[firsts], signs * base[:, firsts]))


def _put_solution(problem, fits, index, scale, solution):
    """Put what a batch has solved into the fits."""
    solved, at = solution.solved, index[solution.solved]
    for j, group in enumerate(problem.groups, len(problem.names)):
        scale[:, group] *= np.exp(0.5 * solution.free[:, j, None])
    root = _effect_roots(problem, scale[solved])
    fits.mean[at] = fits.prior_mean[at] + np.matmul(root, solution.u[solved][:, :, None])[:, :, 0]
    fits.covariance[at] = _pack(np.matmul(np.matmul(root, solution.covariance[solved]), np.swapaxes(root, 1, 2)))
    fits.prior_sd[at] = scale[solved]
    fits.status[at] = np.where(solution.flat_noise[solved], FLAT_NOISE_STATUS, CONVERGED_STATUS)
    for name in ("log_evidence", "n_iter", "free", "curvature"):
        getattr(fits, name)[at] = getattr(solution, name)[solved]


def _effect_roots(problem, scale):
    """Return roots of prior covariances of weights and effects, (B, M, M), lower triangular."""
    root = scale[:, :, None] * np.eye(scale.shape[1])
    d = problem.rows.X.shape[1]
    if problem.prior.variance.ndim == 2:
        root[:, :d, :d] = problem.prior.root * scale[:, None, :d]
    return root


def _pack(matrices):
    """Return the lower triangles of symmetric matrices, (B, T)."""
    rows, columns = np.tril_indices(matrices.shape[1])
    return matrices[:, rows, columns]


def _choose_starts(problem, y, offset, observed):
    """Return free numbers (B, k) to begin with, and the likelihood with numbers for its open parameters."""
    likelihood = filled = problem.likelihood
    free, fitted = np.zeros((len(y), problem.n_free)), offset
    guess = likelihood.start(y.reshape(-1, *y.shape[2:]))
    guess = None if guess is None else guess.reshape(offset.shape)
    if guess is not None and problem.n_free:
        X = problem.rows.X
        scaled = X / np.maximum(np.max(np.abs(X), axis=0), np.finfo(float).tiny)
        weights = np.matmul(np.linalg.pinv(scaled), (guess - offset)[:, :, None])
        fitted = offset + np.matmul(scaled, weights)[:, :, 0]
        for b in np.flatnonzero(~observed.all(axis=1)):
            rows = observed[b]
            fitted[b] = offset[b] + scaled @ (np.linalg.pinv(scaled[rows]) @ (guess[b] - offset[b])[rows])
    if problem.names:
        for b in range(len(y)):
            values = likelihood.starting_values(y[b, observed[b]], fitted[b, observed[b]])
            filled = replace(likelihood, **{name: values[name] for name in problem.names})
            free[b, : len(problem.names)] = FreeParameters(filled, problem.names).pack(filled)
    for j, _ in enumerate(problem.groups, len(problem.names)):
        spread = np.ones(len(y))
        if guess is not None:
            spread[:] = [np.std(left[rows]) for left, rows in zip(guess - fitted, observed, strict=True)]
            # of a constant response: the log evidence has no slope at an sd of 0
            spread[~(spread > MIN_SPREAD_SHARE * np.max(np.abs(guess), axis=1))] = 1.0
        free[:, j] = 2.0 * np.log(FIRST_EFFECT_SHARE * spread)
    return free, filled
