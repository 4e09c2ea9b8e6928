"""The log evidence and the residual of sites, from their cavities and tilted distributions."""

import numpy as np


def site_values(log_z, mean, variance, cavity_mean, cavity_variance):
    """log of the scaled sites Z_i q_i/cavity_i at the means of q.

    Prior times scaled sites integrates to its value at the posterior mean times a constant: so the evidence needs no
    log scales of sites, which diverge where a precision passes zero.
    """
    apart = mean - cavity_mean
    return log_z + 0.5 * (np.log(cavity_variance / variance) + apart * apart / cavity_variance)


def influence(mean, variance, cavity_mean, cavity_variance):
    """Return KL(cavity || q), in nats: of all that q is about, as a site acts in the direction of its own value only.

    Of sites that act on d values of equal variance, as those of clutter, this is the share of one of the values.
    """
    with np.errstate(over="ignore"):
        ratio, apart = cavity_variance / variance, cavity_mean - mean
        return 0.5 * (ratio - 1.0 - np.log(ratio) + apart * apart / variance)


def within_float64(tau, rho):
    """Which sites have both numbers within the range of float64: contradictory data make them grow without bound."""
    return np.isfinite(tau) & np.isfinite(rho)


def distance(mean, variance, cavity_mean, cavity_variance, tau, rho):
    """How far beliefs are from the moments that the sites (tau, rho) of cavities ask for: means in sd, variances."""
    if not within_float64(tau, rho).all():
        return np.inf
    tilted_rho = 1.0 / cavity_variance + rho
    shift = (tau - rho * cavity_mean) / tilted_rho - (mean - cavity_mean)
    narrowing = 1.0 / (tilted_rho * variance) - 1.0
    return max(float(np.max(np.abs(shift) / np.sqrt(variance))), float(np.max(np.abs(narrowing))))
