"""The log evidence and the residual of sites, from their cavities and tilted distributions."""

import numpy as np

from cavity.ep.site_updates import find_cavities, is_within_float64, kernel

NO_FRACTIONS = np.zeros(0)  # for the kernel: sites whose fractions leave out one observation


def evaluate_sites(log_z, mean, variance, cavity_mean, cavity_variance):
    """log of the scaled sites Z_i q_i/cavity_i at the means of q.

    Prior times scaled sites integrates to its value at the posterior mean times a constant: so the evidence needs no
    log scales of sites, which diverge where a precision passes zero.
    """
    apart = mean - cavity_mean
    return log_z + 0.5 * (np.log(cavity_variance / variance) + apart * apart / cavity_variance)


def measure_influence(mean, variance, cavity_mean, cavity_variance):
    """Return KL(cavity || q), in nats: of all that q is about, as a site acts in the direction of its own value only.

    Of sites that act on d values of equal variance, as those of clutter, this is the share of one of the values.
    """
    with np.errstate(over="ignore"):
        ratio, apart = cavity_variance / variance, cavity_mean - mean
        return 0.5 * (ratio - 1.0 - np.log(ratio) + apart * apart / variance)


def measure_residual(mean, variance, cavity_mean, cavity_variance, tau, rho):
    """How far beliefs are from the moments that the sites (tau, rho) of cavities ask for: means in sd, variances."""
    if not is_within_float64(tau, rho).all():
        return np.inf
    tilted_rho = 1.0 / cavity_variance + rho
    shift = (tau - rho * cavity_mean) / tilted_rho - (mean - cavity_mean)
    narrowing = 1.0 / (tilted_rho * variance) - 1.0
    return max(float(np.max(np.abs(shift) / np.sqrt(variance))), float(np.max(np.abs(narrowing))))


def assess(sites, part, mean, variance, tau, rho):
    """Assess the sites of a block at the moments of their f.

    Returns
    -------
    value, residual, log_density, moved
        The sum of their log values and their `distance`; of each observation left out its log density, nan where
        leaving it out is no distribution, and its `influence`.
    """
    if sites.compiled:
        one = NO_FRACTIONS if sites.leaves_one else sites.part(sites.one, part)
        density, moved = np.empty(len(mean)), np.empty(len(mean))
        unresolved, value, residual = kernel.assess_all(
            *sites.arguments(part), one, mean, variance, tau, rho, density, moved
        )
        if unresolved < 0:
            return value, residual, density, moved
    fraction = sites.part(sites.fraction, part)
    m, v, _ = find_cavities(mean, variance, tau, rho, fraction)
    density, match_tau, match_rho = sites.match(part, m, v)  # which raises for a row whose moments no rule resolves
    value = float(np.sum(evaluate_sites(density, mean, variance, m, v) / fraction))
    residual = measure_residual(mean, variance, m, v, match_tau, match_rho)
    if not sites.leaves_one:
        m, v, proper = find_cavities(mean, variance, tau, rho, sites.part(sites.one, part))
        density = np.where(proper, sites.log_z(part, m, v), np.nan)
    return value, residual, density, measure_influence(mean, variance, m, v)
