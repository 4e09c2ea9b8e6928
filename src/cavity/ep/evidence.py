"""The log evidence of a fit by EP, and how far its sites are from their fixed point.

With cavities c_i = N(m_c, v_c), their log normalisers log Z_i and the fractions e_i of the sites,

    log Z = sum_i [log Z_i + log q_i(mean) - log c_i(mean)]/e_i - [log q(mean) - log p(mean)],                      (1)
    log q_i(mean) - log c_i(mean) = [log(v_c/v) + (mean - m_c)^2/v_c]/2,                                            (2)

mean and v the moments of q. As prior times scaled sites integrates to its value at the posterior mean times a constant,
no log scales of sites are needed, which diverge where a precision passes zero. The last bracket of (1) is
`Belief.prior_gap`.
"""

import numpy as np

from cavity.ep.site_updates import find_cavities, is_within_float64, kernel

NO_FRACTIONS = np.zeros(0)  # for the kernel: the cavities of EP leave out one observation each


def evaluate_sites(log_z, mean, variance, cavity_mean, cavity_variance):
    """Return the terms of the evidence, log Z_i q_i/c_i at the means of q: (2) with log Z_i."""
    shift = mean - cavity_mean
    return log_z + 0.5 * (np.log(cavity_variance / variance) + shift * shift / cavity_variance)


def measure_influence(mean, variance, cavity_mean, cavity_variance):
    """Return KL(c_i || q) = [v_c/v - 1 - log(v_c/v) + (m_c - mean)^2/v]/2, in nats.

    It is that of the whole belief, as a site acts in the direction of its own value only. Of sites that act on d values
    of equal variance, as those of clutter, it is the share of one of the values.
    """
    with np.errstate(over="ignore"):
        ratio, shift = cavity_variance / variance, cavity_mean - mean
        return 0.5 * (ratio - 1.0 - np.log(ratio) + shift * shift / variance)


def measure_residual(mean, variance, cavity_mean, cavity_variance, tau, rho):
    """Return the largest distance of q_i from the moments of c_i times (tau, rho): means in sd, variances relative."""
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
        The sum of their terms of the evidence (1) and their residual; for each observation left out its log density,
        nan where leaving it out gives no distribution, and its influence.
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
    density, match_tau, match_rho = sites.match(part, m, v)  # raises for a row whose moments no rule resolves
    value = float(np.sum(evaluate_sites(density, mean, variance, m, v) / fraction))  # (1)
    residual = measure_residual(mean, variance, m, v, match_tau, match_rho)
    if not sites.leaves_one:
        m, v, proper = find_cavities(mean, variance, tau, rho, sites.part(sites.one, part))
        density = np.where(proper, sites.log_z(part, m, v), np.nan)
    return value, residual, density, measure_influence(mean, variance, m, v)
