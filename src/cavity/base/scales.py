"""Scales of hyperparameters: the free numbers that searches and integrals move, and what they stand for."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LOG_SCALE, LOGIT_SCALE, FISHER_Z_SCALE, REAL_SCALE = "log", "logit", "fisher z", ""


class Scale(NamedTuple):
    """The maps between the values x of a parameter and free numbers u, and the range of values."""

    value: Callable[[Any], Any]  # x of u
    slope: Callable[[Any], Any]  # dx/du of u
    free: Callable[[Any], Any]  # u of x
    volume: Callable[[Any], tuple[Any, Any, Any]]  # log(dx/du), its derivative in u, and du/dx, of x
    low: float
    high: float


def _slope_of_half_tanh(u):
    """Return the derivative of tanh(u/2)."""
    return 0.5 / np.cosh(0.5 * u) ** 2


def _find_log_volume(x):
    return np.log(x), 1.0, 1.0 / x


def _find_logit_volume(x):
    return np.log(x) + np.log1p(-x), 1.0 - 2.0 * x, 1.0 / (x * (1.0 - x))


def _find_fisher_z_volume(x):
    product = (1.0 - x) * (1.0 + x)
    return np.log(0.5 * product), -x, 2.0 / product


def _find_real_volume(x):
    return 0.0 * x, 0.0, 1.0


SCALES_BY_NAME = {
    LOG_SCALE: Scale(np.exp, np.exp, np.log, _find_log_volume, 0.0, np.inf),
    LOGIT_SCALE: Scale(
        lambda u: 1.0 / (1.0 + np.exp(-u)),
        lambda u: 0.5 * _slope_of_half_tanh(u),
        lambda x: np.log(x) - np.log1p(-x),
        _find_logit_volume,
        0.0,
        1.0,
    ),
    FISHER_Z_SCALE: Scale(
        lambda u: np.tanh(0.5 * u),
        _slope_of_half_tanh,
        lambda x: np.log1p(x) - np.log1p(-x),
        _find_fisher_z_volume,
        -1.0,
        1.0,
    ),
    REAL_SCALE: Scale(np.positive, np.ones_like, np.positive, _find_real_volume, -np.inf, np.inf),
}
