"""Settings of the clutter model from data, and whether data speak against settings."""

import numpy as np

from cavity.base.errors import SettingsWarning, warn
from cavity.blocks.merge import starts
from cavity.blocks.sources import rows

MAD_TO_SD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
WEIGHT = 0.1  # of clutter: gross errors are few
WIDE = 100.0  # noise variances: how vague the prior is, and how wide the clutter at least
FAR = 5.0  # sd beyond the norm of most points of a spherical normal, sqrt(d): one in a million lies there
BLOCK = 8192  # rows judged together
FEW, SHARE = 5, 0.05  # strangers that are too many to be gross errors


def scaled(values, given):
    """Return the settings, by name, that points (N, d) suggest where `given` does not name them.

    The signal lies around the median with the spread of the median absolute deviation; the clutter reaches to the
    farthest point, for were it narrower, a gross outlier would pass for the signal.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        median = np.median(values, axis=0)
        spread = MAD_TO_SD * np.median(np.abs(values - median))
        spread = spread or float(np.std(values)) or 1.0  # more than half the points equal; all of them equal
        noise = given.get("noise_variance", float(np.square(spread)))
        reach = float(np.square(np.max(np.abs(values - median))))
    if not (noise > 0.0 and WIDE * max(noise, reach) < np.inf):
        raise OverflowError("x: squares of distances from the median leave the range of float64; rescale the data")
    found = {
        "clutter_weight": WEIGHT,
        "noise_variance": noise,
        "clutter_variance": max(WIDE * noise, reach),
        "clutter_mean": median,
        "prior_mean": median,
        "prior_variance": WIDE * noise,
    } | given
    return {name: float(np.ravel(value)[0]) if values.shape[1] == 1 else value for name, value in found.items()}


def strangers(points, model, mean, variance):
    """How many points (N, d) lie far from both the signal around `mean` and the clutter."""
    n, d = points.shape
    limit, count = (np.sqrt(d) + FAR) ** 2, 0
    clutter_mean = np.asarray(model.clutter_mean)
    for start, stop in starts(n, BLOCK):
        x = rows(points, slice(start, stop))
        with np.errstate(over="ignore"):
            from_signal = np.sum((x - mean) ** 2, axis=1) / (model.noise_variance + variance)
            from_clutter = np.sum((x - clutter_mean) ** 2, axis=1) / model.clutter_variance
        count += np.count_nonzero((from_signal > limit) & (from_clutter > limit))
    return count


def warn_strangers(points, model, posterior):
    """Warn if many points (N, d), or of some problem of (B, N, d), are neither signal nor clutter by the settings."""
    n, d = points.shape[-2:]
    if points.ndim == 2:
        found = np.array([strangers(points, model, posterior.mean, posterior.variance)])
    else:
        found = np.array(
            [strangers(points[b], model, posterior.mean[b], posterior.variance[b]) for b in range(len(points))]
        )
    against = (found >= FEW) & (found > SHARE * n)
    if np.any(against):
        where = f" in {np.sum(against)} of {len(points)} problems" if points.ndim == 3 else ""
        warn(
            f"{np.max(found)} of {n} points{where} lie more than {np.sqrt(d) + FAR:.3g} standard deviations from both "
            f"the signal (noise_variance {model.noise_variance:g}) and the clutter (clutter_variance "
            f"{model.clutter_variance:g} around clutter_mean): the settings are not those of such data; give others, "
            "or take those that Clutter.settle scales to the data",
            SettingsWarning,
        )
