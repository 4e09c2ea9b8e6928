"""Noise and amplitude over the whole past: what was learnt of rows rescales exactly."""

import numpy as np

from cavity.base.triangles import fill_symmetric
from cavity.covariances import Product
from cavity.covariances.slots import get_parts, list_free_slots, list_leaves
from cavity.likelihoods.parameters import PARAMETER_RANGE
from cavity.models.search import climb
from cavity.models.streaming_gp.inducing_basis import Information
from cavity.models.streaming_gp.old_data_factor import compute_scaling_cost


class ScaleObjective:
    """The log bound of all rows so far, and log priors, at s times the covariance and t times the noise.

    As a function of (log s, log t), or of one of them; minus its value and the gradient, as optimisers take them.
    """

    def __init__(self, information, covariance, noise=True, amplitude=True):
        values, vectors = np.linalg.eigh(fill_symmetric(information.A))
        # A is a sum of squares: what is not positive is rounding
        self.values = np.maximum(values, 0.0)
        self.squared = (vectors.T @ information.r) ** 2
        self.information, self.covariance = information, covariance
        self.free = np.array([amplitude, noise])
        self.scaled = find_scaling_parameters(covariance) if amplitude else np.zeros(0, dtype=bool)

    def bounds(self):
        """(low, high) of the free ones of log s and log t."""
        low, high = -np.log(PARAMETER_RANGE), np.log(PARAMETER_RANGE)
        pairs = [(low, high), (low, high)]
        if self.free[0]:
            distances = (self.covariance.log_bounds - self.covariance.log_parameters[:, None])[self.scaled]
            pairs[0] = max(low, distances[:, 0].max()), min(high, distances[:, 1].min())
        return np.array(pairs)[self.free]

    def log_bound(self, log_s, log_t):
        """The log bound without priors, and its derivatives in log s and log t."""
        information, s, t = self.information, np.exp(log_s), np.exp(log_t)
        share = s / t * self.values / (1.0 + s / t * self.values)
        fit = 0.5 * s / t**2 * self.squared / (1.0 + s / t * self.values)
        lin = float(np.sum(fit - 0.5 * np.log1p(s / t * self.values)))
        value = information.constant - compute_scaling_cost(information, log_s, log_t) + lin
        kept_nats = float(np.sum(fit * (1.0 - share)))
        lost_nats = 0.5 * float(np.sum(share))
        by_s = kept_nats - lost_nats - 0.5 * information.gap * s / t
        by_t = (
            lost_nats
            - kept_nats
            - float(np.sum(fit))
            - 0.5 * information.n
            + 0.5 * (information.squares + information.gap * s) / t
        )
        return value, np.array([by_s, by_t])

    def __call__(self, x):
        point = np.zeros(2)
        point[self.free] = x
        value, slope = self.log_bound(*point)
        if self.free[0]:
            prior, by_prior = multiply_covariance(self.covariance, point[0]).log_prior()
            value, slope[0] = value + prior, slope[0] + float(np.sum(by_prior[self.scaled]))
        return -value, -slope[self.free]


def find_scaling_parameters(covariance):
    """Which free log parameters grow by log s where the covariance is multiplied by s, (n_free,) of bool.

    One variance of every term of a sum, the first free one of a product.
    """
    places = _find_scaled_leaves(covariance)
    if places is None:
        raise ValueError(
            f"the amplitude cannot be learnt: no variance of {covariance!r} is free; free one, or give amplitude=False"
        )
    return np.array([slot.role == "variance" and slot.place in places for slot in list_free_slots(covariance)])


def _find_scaled_leaves(covariance, first=0):
    """Return the places among all leaves, from `first` on, of the variances that do that; None where none is free."""
    if not get_parts(covariance):
        return {first} if any(slot.role == "variance" for slot in list_free_slots(covariance)) else None
    by_part = []
    for part in get_parts(covariance):
        by_part.append(_find_scaled_leaves(part, first))
        first += len(list_leaves(part))
    if isinstance(covariance, Product):
        return next((places for places in by_part if places is not None), None)
    return None if None in by_part else set().union(*by_part)


def multiply_covariance(covariance, log_s):
    """The covariance times s."""
    if log_s == 0.0:
        return covariance
    low, high = covariance.log_bounds.T
    vector = covariance.log_parameters + log_s * find_scaling_parameters(covariance)
    return covariance.with_log_parameters(np.clip(vector, low, high))


def learn_scales(information, covariance, noise=True, amplitude=True):
    """Find the noise variance and a factor of the covariance that suit all rows so far best.

    Parameters
    ----------
    information : Information
        Of rows with Gaussian noise of one variance, taken in with alpha = 0.
    covariance : Covariance
        As it is now; its priors and bounds hold.
    noise, amplitude : bool
        What to learn.

    Returns
    -------
    log_s, log_t, log_bound
        Logs of the factors of covariance and noise, and the log bound there.
    """
    objective = ScaleObjective(information, covariance, noise, amplitude)
    point = np.zeros(2)
    if objective.free.any():
        bounds = objective.bounds()
        point[objective.free] = climb(objective, np.zeros(len(bounds)), bounds)[1]
    return float(point[0]), float(point[1]), objective.log_bound(*point)[0]


def rescale_information(information, log_s, log_t):
    """The factor of all rows so far at exp(log_s) times the covariance and exp(log_t) times the noise, factorised."""
    s, t = float(np.exp(log_s)), float(np.exp(log_t))
    out = Information.of(
        np.asfortranarray(s / t * information.A),
        np.sqrt(s) / t * information.r,
        information.constant - compute_scaling_cost(information, log_s, log_t),
        information.n,
        information.squares / t,
        information.gap * s / t,
    )
    return out.factorise()
