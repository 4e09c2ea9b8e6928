"""Where a unit mixture starts, and whether data and means are within its reach."""

import numpy as np

from cavity.base import arrays
from cavity.mean_field import engine
from cavity.mean_field.options import LARGEST_TO_SQUARE, LEAST_TO_SQUARE, TRIAL_PASSES
from cavity.models.misfit_warnings import are_many, choose_far_sd, warn_of_far_points
from cavity.models.unit_mixture.sweep import DataExtent, UnitMixtureState, UnitMixtureSweeps
from cavity.runs.executors import Threads
from cavity.sources import sources

MAX_SQUARED_DISTANCE = 1e300  # squared distance in units of a variance
FAR_POINT_SHARE = 0.5  # of the points: fewer may be groups without a component of their own
EQUAL_MEAN_SPACING_SD = 0.1  # distance, in noise sd, at which equal initial means are set apart


def check_means(means, model):
    """Return initial means, equal ones set apart, or None."""
    if means is None:
        return None
    values = np.atleast_1d(arrays.check_finite_array(means, "initial_means", ndim=(0, 1)))
    if values.shape != (model.n_components,):
        requirement = f"{model.n_components} number(s), one for each component"
        raise ValueError(f"initial_means must be {requirement}, got shape {values.shape}")
    return separate_equal_means(values, model.noise_variance)


def check_extent(model, source, threads, means):
    """Read the data once, and refuse what is not finite or too far away; return where they lie."""
    extent = DataExtent(*source.summary(threads, digested=True))
    check_reach(model, extent.low, extent.high, means)
    if "noise_variance" in model.learn and 0 < extent.high - extent.low < LEAST_TO_SQUARE:
        extremes = f"values from {extent.low:g} to {extent.high:g}; rescale the data"
        raise ValueError(f"y must have a range above {LEAST_TO_SQUARE:g} to learn noise_variance from, got {extremes}")
    return extent


def check_minibatch(batch, name, model, means):
    """Return a minibatch of a stream as float64, checked."""
    array = arrays.check_data_array(batch, name, ndim=(1,)).astype(np.float64)
    check_reach(model, np.min(array), np.max(array), means)
    return array


def check_reach(model, low, high, initial_means):
    """Raise ValueError if a squared distance to a mean, in units of a variance, may leave float64."""
    means = np.append(model.prior_mean, [] if initial_means is None else initial_means)
    if max(-low, high, np.max(np.abs(means))) > LARGEST_TO_SQUARE:
        reach = f"y from {low:g} to {high:g} and means from {np.min(means):g} to {np.max(means):g}; rescale the data"
        raise ValueError(f"y, prior_mean and initial_means must be within {LARGEST_TO_SQUARE:g} of zero, got {reach}")
    distance = max(high, np.max(means)) - min(low, np.min(means))
    least = distance**2 / MAX_SQUARED_DISTANCE
    for name in ("noise_variance", "prior_variance"):
        variance = np.min(getattr(model, name))
        if least > variance:
            message = f"must be above {least:g} for data and means that span {distance:g}, got {variance:g}"
            raise arrays.error_of(name, message)


def warn_of_units(sample, posterior):
    """Warn if most points of a sample are far from every component: the noise variance is that of other units."""
    reach = choose_far_sd(1) * np.sqrt(posterior.noise_variance + posterior.variance)
    far = np.count_nonzero(np.all(np.abs(sample[:, None] - posterior.mean) > reach, axis=1))
    if are_many(far, len(sample), FAR_POINT_SHARE):
        description = f"every component (noise_variance {posterior.noise_variance:g})"
        remedy = "or learn='noise_variance', which finds that of the data"
        warn_of_far_points(far, f"{len(sample)} points", 1, description, remedy)


def generate_states(model, means, sample, n, options):
    """Yield the first state of every start, for n points, the first from the means if they are not None.

    Others are drawn from a sample of the points; the job has an event for each trial that chooses the first.
    """
    k = model.n_components
    yield build_state(model, _choose_deterministic_means(model, sample, options.job) if means is None else means, n)
    for _ in range(options.n_init - 1):
        rows_drawn = options.rng.choice(sample, size=k, replace=len(sample) < k)
        yield build_state(model, separate_equal_means(np.sort(rows_drawn), model.noise_variance), n)


def _choose_deterministic_means(model, sample, job):
    """Return quantiles of the sample, or points at equal distances, whichever leads to the larger ELBO there."""
    levels = (np.arange(model.n_components) + 0.5) / model.n_components
    low, high = np.min(sample), np.max(sample)
    starts = separate_equal_means(np.quantile(sample, levels), model.noise_variance), low + (high - low) * levels
    if model.n_components == 1 or low == high:
        return starts[0]
    source = sources.open_source(sample, "y")
    with Threads(1) as thread:
        sweeps = UnitMixtureSweeps(len(sample), model.learn, source, thread, DataExtent(low, high, np.mean(sample)))
        states = [build_state(model, means, len(sample)) for means in starts]
        trials = engine.run_trials(sweeps, states, TRIAL_PASSES, job)
    return starts[int(np.argmax([trial.elbo for trial in trials]))]


def build_state(model, means, n):
    """Return the first state: every component with its share of the data."""
    k = model.n_components
    weights = np.full(k, 1.0 / k) if model.weights is None else np.array(model.weights)
    prior_mean = np.broadcast_to(model.prior_mean, k).astype(float)
    prior_variance = np.broadcast_to(model.prior_variance, k).astype(float)
    counts = n * weights
    precision = 1.0 / prior_variance + counts / model.noise_variance
    return UnitMixtureState(means, precision, prior_mean, prior_variance, weights, model.noise_variance, counts)


def separate_equal_means(means, noise_variance):
    """Return means, equal ones set apart a little: components with equal means would stay equal for ever."""
    order = np.argsort(means, kind="stable")
    _, first, copies = np.unique(means[order], return_index=True, return_counts=True)
    ranks = np.arange(len(means)) - np.repeat(first, copies) - 0.5 * (np.repeat(copies, copies) - 1)
    result = np.array(means, dtype=np.float64)
    result[order] += EQUAL_MEAN_SPACING_SD * np.sqrt(noise_variance) * ranks
    return result
