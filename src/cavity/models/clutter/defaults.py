"""Default settings of the clutter model, scaled to data, and a warning where data do not fit the settings."""

import numpy as np

from cavity.base.constants import MAD_TO_SD
from cavity.models.misfit_warnings import BEYOND_SD, are_many, choose_far_sd, warn_of_far_points
from cavity.runs.executors import Threads
from cavity.runs.merge import split_rows
from cavity.runs.passes import reduce_runs

DEFAULT_CLUTTER_WEIGHT = 0.1  # the share of gross errors
VAGUE_VARIANCE_RATIO = 100.0  # of the variance of the prior, and the least one of the clutter, to that of the noise
ROWS_PER_COUNT = 8192  # of batches
MIN_FAR_SHARE = 0.05  # of all points: gross errors are fewer


def scale_settings(values, fixed_settings):
    """Return the settings, by name, that points (N, d) suggest where `fixed_settings` does not name them.

    The signal lies around the median with the spread of the median absolute deviation; the clutter reaches to the
    farthest point: if it were narrower, a gross outlier would count as signal.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        median = np.median(values, axis=0)
        spread = MAD_TO_SD * np.median(np.abs(values - median))
        spread = spread or float(np.std(values)) or 1.0  # more than half the points equal; all of them equal
        noise = fixed_settings.get("noise_variance", float(np.square(spread)))
        reach = float(np.square(np.max(np.abs(values - median))))
    if not (noise > 0.0 and VAGUE_VARIANCE_RATIO * max(noise, reach) < np.inf):
        raise OverflowError("x: squares of distances from the median leave the range of float64; rescale the data")
    settings = {
        "clutter_weight": DEFAULT_CLUTTER_WEIGHT,
        "noise_variance": noise,
        "clutter_variance": max(VAGUE_VARIANCE_RATIO * noise, reach),
        "clutter_mean": median,
        "prior_mean": median,
        "prior_variance": VAGUE_VARIANCE_RATIO * noise,
    } | fixed_settings
    return {name: float(np.ravel(value)[0]) if values.shape[1] == 1 else value for name, value in settings.items()}


def count_far_points(points, model, mean, variance):
    """Return how many points of one problem, or of each of a batch, lie far from both signal and clutter.

    The signal lies around `mean`, (d,) or (B, d), with the noise and `variance`, a number or (B,).
    """
    n, d = points.shape
    limit = choose_far_sd(d) ** 2
    if not points.is_batch:
        with Threads(1) as thread:
            return reduce_runs(_count_far_in_run, (model, mean, variance, limit), [points.data.source], thread, grain=1)
    mean, variance = np.asarray(mean)[:, None], np.asarray(variance)[:, None]
    parts = (slice(*part) for part in split_rows(len(mean), max(1, ROWS_PER_COUNT // n)))
    return np.concatenate([_count_far(points.data.rows(b), model, mean[b], variance[b], limit) for b in parts])


def _count_far_in_run(run, broadcast):
    """Return how many of the points of a run are far from both."""
    return _count_far(*run.arrays, *broadcast)


def _count_far(x, model, mean, variance, limit):
    """Return how many of the points x (..., n, d) are further from both than the limit: squared, over variances."""
    with np.errstate(over="ignore"):
        difference = x - mean
        far = np.einsum("...i,...i->...", difference, difference) > limit * (model.noise_variance + variance)
        difference = x[far] - np.asarray(model.clutter_mean)
        far[far] = np.einsum("ni,ni->n", difference, difference) > limit * model.clutter_variance
    return np.count_nonzero(far, axis=-1)


def warn_of_far_data(points, model, posterior):
    """Warn if many points, or those of some problem of a batch, are neither signal nor clutter by the settings."""
    n, d = points.shape
    centre, limit = float(np.ravel(model.clutter_mean)[0]), (1.0 + BEYOND_SD) * model.clutter_variance**0.5
    farthest = max(np.max(points.ends[0]) - centre, centre - np.min(points.ends[1]))
    if d == 1 and farthest <= limit:  # not even the extremes are far from the clutter
        return
    counts = np.atleast_1d(count_far_points(points, model, posterior.mean, posterior.variance))
    against = are_many(counts, n, MIN_FAR_SHARE)
    if np.any(against):
        problems = f" in {np.sum(against)} of {len(counts)} problems" if points.is_batch else ""
        message = (
            f"both the signal (noise_variance {model.noise_variance:g}) and the clutter (clutter_variance "
            f"{model.clutter_variance:g} around clutter_mean)"
        )
        remedy = "or take those that Clutter.with_defaults scales to the data"
        warn_of_far_points(np.max(counts), f"{n} points{problems}", d, message, remedy)
