"""Updates of EP's sites: all of a block from one belief (parallel), or one after the other (sequential).

A site exp(tau f - rho f^2/2) acts on a value f whose marginal under the belief is q_i = N(mean, v). An update takes the
fraction e of the site out, matches the tilted distribution (`sites.Sites.match`) and moves the site [M]_ [RW]_
(section 3.6):

    cavity q_i/site^e:         1/v_c = 1/v - e rho,     m_c = mean + v_c e (rho mean - tau),                        (1)
    change of the site:        d tau = tau*/e - tau,     d rho = rho*/e - rho,                                       (2)
    moments of all values:     mean += (d tau - d rho mean_i)/(1 + d rho v) s,   Sigma -= d rho/(1 + d rho v) s s',  (3)

where (tau*, rho*) is the factor that turns the cavity into the moments of the tilted distribution, and s the column of
the site in Sigma. Damping multiplies the changes (2). A cavity is proper if its precision is positive.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006.
"""

import numpy as np

from cavity import _core

kernel = _core.best("ep")

MIN_CAVITY_SHARE = kernel.smallest_share  # of a posterior precision that a cavity must keep: less is rounding


def find_cavities(mean, variance, tau, rho, fraction):
    """Return the moments of the cavities (1), and which are proper; the others have the moments of q_i."""
    share = 1.0 - fraction * rho * variance  # v/v_c
    proper = share > MIN_CAVITY_SHARE
    v = variance / np.where(proper, share, 1.0)
    m = np.where(proper, mean + v * fraction * (rho * mean - tau), mean)
    return m, v, proper


def is_within_float64(tau, rho):
    """Return which sites are within the range of float64: contradictory data make them grow without bound."""
    return np.isfinite(tau) & np.isfinite(rho)


def renew_sites(sites, part, mean, variance, tau, rho, up, down):
    """Renew the sites of a block from the moments of their f under one belief; `up` and `down` are the damping.

    Returns
    -------
    tau, rho, skipped
        The new sites, and the number of those that keep their values because their cavity is improper.
    """
    if sites.compiled:
        new_tau, new_rho = np.empty(len(mean)), np.empty(len(mean))
        unresolved, skipped = kernel.renew_all(
            *sites.arguments(part), mean, variance, tau, rho, up, down, new_tau, new_rho
        )
        if unresolved < 0:
            return new_tau, new_rho, skipped
    fraction = sites.part(sites.fraction, part)
    m, v, proper = find_cavities(mean, variance, tau, rho, fraction)  # (1)
    _, match_tau, match_rho = sites.match(part, m, v)  # raises for a row whose moments no rule resolves
    proper &= is_within_float64(match_tau, match_rho)
    d_rho = np.where(proper, match_rho / fraction - rho, 0.0)  # (2)
    damping = np.where(d_rho >= 0, up, down)
    tau = tau + damping * np.where(proper, match_tau / fraction - tau, 0.0)  # (2)
    return tau, rho + damping * d_rho, int(np.sum(~proper))


def visit_sites(sites, block, f, joint, tau, rho, up, down):
    """Update the sites of a block one after the other, compiled or, for a likelihood in Python, one call each (slow).

    `f` and `joint` are the moments of all values of the block. On return entry i of f, and row i of joint from the
    diagonal on, are those at the visit of site i; tau and rho, of the sites of the block, change in place.

    Returns
    -------
    skipped, log_z
        The number of sites that keep their values, and the sum of log normalisers of the others.
    """
    if sites.compiled:
        return kernel.sweep(*sites.arguments(block), f, joint, tau, rho, up, down)
    skipped, total = 0, 0.0
    for j in range(len(tau)):
        row, site = slice(block.start + j, block.start + j + 1), slice(j, j + 1)
        fraction, variance = sites.part(sites.fraction, row), joint[j, j]
        m, v, proper = find_cavities(f[site], joint[j, site], tau[site], rho[site], fraction)  # (1)
        if not (proper[0] and variance + sites.part(sites.residual, row)[0] > 0.0):
            skipped += 1
            continue
        log_z, match_tau, match_rho = sites.match(row, m, v)  # (tau*, rho*)
        d_tau, d_rho = match_tau[0] / fraction[0] - tau[j], match_rho[0] / fraction[0] - rho[j]  # (2)
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
        column = joint[j, j + 1 :]  # s of (3), for the sites still to be visited
        f[j + 1 :] += (d_tau - d_rho * f[j]) / scale * column  # (3)
        joint[j + 1 :, j + 1 :] -= d_rho / scale * np.outer(column, column)  # (3)
    return skipped, total
