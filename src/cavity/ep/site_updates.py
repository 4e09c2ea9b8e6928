"""Sites renewed: all of a block from one belief, or one after the other, seeing each other through the joint covariance
of their f.
"""

import numpy as np

from cavity import _core

kernel = _core.best("ep")

MIN_CAVITY_SHARE = kernel.smallest_share  # of a posterior precision that a cavity must keep: less is rounding


def find_cavities(mean, variance, tau, rho, fraction):
    """Moments of q_i/site_i^f, and which are proper; the others keep the moments of q_i."""
    keep = 1.0 - fraction * rho * variance
    proper = keep > MIN_CAVITY_SHARE
    v = variance / np.where(proper, keep, 1.0)
    m = np.where(proper, mean + v * fraction * (rho * mean - tau), mean)
    return m, v, proper


def is_within_float64(tau, rho):
    """Which sites have both numbers within the range of float64: contradictory data make them grow without bound."""
    return np.isfinite(tau) & np.isfinite(rho)


def renew_sites(sites, part, mean, variance, tau, rho, up, down):
    """Renew the sites of a block from the moments of their f under one belief.

    Returns
    -------
    tau, rho, skipped
        The new sites, and the number of those left alone.
    """
    if sites.compiled:
        new_tau, new_rho = np.empty(len(mean)), np.empty(len(mean))
        unresolved, skipped = kernel.renew_all(
            *sites.arguments(part), mean, variance, tau, rho, up, down, new_tau, new_rho
        )
        if unresolved < 0:
            return new_tau, new_rho, skipped
    fraction = sites.part(sites.fraction, part)
    m, v, proper = find_cavities(mean, variance, tau, rho, fraction)
    _, match_tau, match_rho = sites.match(part, m, v)  # which raises for a row whose moments no rule resolves
    proper &= is_within_float64(match_tau, match_rho)
    d_rho = np.where(proper, match_rho / fraction - rho, 0.0)
    damping = np.where(d_rho >= 0, up, down)
    tau = tau + damping * np.where(proper, match_tau / fraction - tau, 0.0)
    return tau, rho + damping * d_rho, int(np.sum(~proper))


def visit_sites(sites, block, f, joint, tau, rho, up, down):
    """Visit the sites of a block, compiled or, for a likelihood in plain Python, one call each (slow).

    `f` and `joint` are the moments of all values of the block and keep, in entry i and in row i from the diagonal on,
    what they were when site i was visited; tau and rho, of the sites of the block, change in place.

    Returns
    -------
    skipped, log_z
        The number of sites left alone, and the sum of log normalisers of the others.
    """
    if sites.compiled:
        return kernel.sweep(*sites.arguments(block), f, joint, tau, rho, up, down)
    skipped, total = 0, 0.0
    for j in range(len(tau)):
        one, here = slice(block.start + j, block.start + j + 1), slice(j, j + 1)
        fraction, variance = sites.part(sites.fraction, one), joint[j, j]
        m, v, proper = find_cavities(f[here], joint[j, here], tau[here], rho[here], fraction)
        if not (proper[0] and variance + sites.part(sites.residual, one)[0] > 0.0):
            skipped += 1
            continue
        log_z, match_tau, match_rho = sites.match(one, m, v)
        d_tau, d_rho = match_tau[0] / fraction[0] - tau[j], match_rho[0] / fraction[0] - rho[j]
        damping = up if d_rho >= 0 else down
        if fraction[0] < 1.0 and damping > fraction[0] and 1.0 + damping * d_rho * variance < 0.5:
            damping = fraction[0]
        d_tau, d_rho = damping * d_tau, damping * d_rho
        scale = 1.0 + d_rho * variance
        if not scale > 0.0:
            skipped += 1
            continue
        total += float(log_z[0])
        tau[j] += d_tau
        rho[j] += d_rho
        column = joint[j, j + 1 :]
        f[j + 1 :] += (d_tau - d_rho * f[j]) / scale * column
        joint[j + 1 :, j + 1 :] -= d_rho / scale * np.outer(column, column)
    return skipped, total
