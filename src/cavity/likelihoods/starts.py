"""Rough values of f and of scales, where searches begin."""

import numpy as np

from cavity.base.column_statistics import weighted_median
from cavity.base.constants import MAD_TO_SD
from cavity.base.lazy_scipy import special

SHARE_MARGIN = 0.01  # of shares from 0 and 1
MIN_SPREAD_SHARE = 1e-4  # of observations about their fit, over that of the observations


def estimate_spread(y, fitted, robust=False):
    """Return the robust spread of y - fitted, which is positive: where it is lost in rounding, by that of y.

    That is the largest distance from the median, or with `robust` the median one, if it is positive.
    """
    rest = np.abs(y - fitted)
    unit = float(np.max(rest, initial=0.0))
    size = MAD_TO_SD * weighted_median(rest) or (unit * float(np.sqrt(np.mean((rest / unit) ** 2))) if unit else 0.0)
    deviation = np.abs(y - weighted_median(y))
    spread = (robust and weighted_median(deviation)) or float(np.max(deviation)) or float(np.max(np.abs(y))) or 1.0
    return max(size, MIN_SPREAD_SHARE * spread)


def transform_by_link(y, link):
    """Return observations, their logs or their logits, all finite, as the link of a likelihood says.

    Instead of numbers that are not positive half of the smallest one that is has its log taken.
    """
    if link == "logit":
        return special.logit(np.clip(y, SHARE_MARGIN, 1.0 - SHARE_MARGIN))
    if link != "log":
        return y
    positive = y > 0
    smallest = 0.5 * float(np.min(y[positive])) if positive.any() else 1.0
    return np.log(np.where(positive, y, smallest))
