"""Marginal densities of EP with the factors of all rows at each value, instead of their cumulants.

With the posterior q of EP, the sites t_i and F_i = p_i/t_i, the exact marginal of a linear combination x of the effects
is q(x) E_q[prod_i F_i | x], but for a constant. With z = (x - m)/s, and r_i the posterior correlation of x and f_i,

    q(f_i | z) = N(m_i + s_i r_i z, s_i^2 (1 - r_i^2)),                                                            (1)

so that each E_q[F_i | z] is an integral of p_i over one cavity. They are joined in one of two ways,

    factors [CH]_   log p(z) = -z^2/2 + sum_i log E_q[F_i | z],                                                    (2)
    1step [CH]_     log p(z) = -z^2/2 + log int q(f | z) prod_i G_i(f_i; z) df,                                    (3)

where G_i(f_i; z) is the Gaussian factor with the integral and the first two moments of F_i under (1): one parallel step
of EP for the remaining effects. With u_i and v_i the moments (1), dtau and drho the natural parameters of G_i, B a root
of the covariance of f given z, D = diag(drho), H = I + B'DB and c = B'(dtau - D u),

    (3) = (2) + sum_i [log(1 + drho v)/2 - v (dtau - drho u)^2/(2 (1 + drho v))]_i - log|H|/2 + c'H^-1 c/2.        (4)

Rows of correlation 1, as that of which x is the f, have F_i itself in the place of its mean: their tilted
distributions.

References
----------
.. [CH] B. Cseke and T. Heskes, "Approximate marginals in latent Gaussian models", JMLR 12, 2011.
"""

from typing import NamedTuple

import numpy as np

from cavity.base.lazy_scipy import interpolate, linalg
from cavity.ep.sites import Sites

GRID_STEP = 0.4  # of z
GRID_REACHES_SD = (6.0, 12.0, 24.0)  # of z: the next one where the density has not fallen
N_CELLS = 16  # of a step, where the density is tabulated
MAX_END_DENSITY = 1e-7  # of that at the maximum, at the ends of a grid
SAME_SHARE = 1e-10  # 1 - r^2 of rows that are x itself, but for rounding


class StandardDensity(NamedTuple):
    """The log density, but for a constant, of z on a regular grid, (M,) each."""

    z: np.ndarray
    log_density: np.ndarray


def correct_density(moments, correlations, root=None, loadings=None):
    """Return the `StandardDensity` of a linear combination of effects: (2), or (3) with `root` and `loadings`.

    Parameters
    ----------
    moments : tuple
        The sites of N rows, and mean, variance, tau, rho (N,) of their f and of themselves.
    correlations : ndarray (N,)
        Of x and the rows.
    root : ndarray (N, n), optional
        A root of the posterior covariance of the rows, that is f = mean + root e with e ~ N(0, I).
    loadings : ndarray (n,), optional
        z = loadings'e, of length 1.

    Raises
    ------
    ArithmeticError
        Where an integral has too few digits, or the density does not fall within 24 standard deviations.
    """
    sites, *numbers = moments
    weights = np.broadcast_to(sites.weights * sites.copies, (len(sites),)).astype(np.float64)
    if not np.all(sites.fraction == 1.0):
        sites = Sites(sites.likelihood, sites.y, copies=weights)
    is_same = 1.0 - correlations**2 < SAME_SHARE
    rest = None if root is None else _take_out(root, loadings)
    for reach in GRID_REACHES_SD:
        z = np.linspace(-reach, reach, 1 + round(2.0 * reach / GRID_STEP))
        values = [_join_factors(value, sites, numbers, correlations, ~is_same, rest) for value in z]
        fine = np.linspace(-reach, reach, 1 + (len(z) - 1) * N_CELLS)
        out = interpolate.CubicSpline(z, values)(fine) - 0.5 * fine**2
        out += _sum_exact_factors(fine, sites, weights, numbers, correlations, is_same)
        out -= np.max(out)
        if max(out[0], out[-1]) < np.log(MAX_END_DENSITY):
            return StandardDensity(fine, out)
    raise ArithmeticError(f"the density of the marginal does not fall within {reach:g} standard deviations of its mean")


def _take_out(root, loadings):
    """Return a root (N, n - 1) of the covariance of f given z: without the direction of z, by a reflection."""
    normal = loadings.copy()
    normal[0] += np.copysign(1.0, loadings[0])
    return (root - np.outer(root @ normal, normal) * (2.0 / (normal @ normal)))[:, 1:]


def _join_factors(z, sites, numbers, correlations, partners, rest):
    """Return (2), or (4) with a root, less -z^2/2 and the factors of rows that are x itself."""
    if not partners.any():
        return 0.0
    index = np.flatnonzero(partners)
    (mean, variance, tau, rho), r = (array[index] for array in numbers), correlations[index]
    u, v = mean + np.sqrt(variance) * r * z, variance * (1.0 - r**2)  # (1)
    share = 1.0 - rho * v
    if not np.all(share > 0.0):
        raise ArithmeticError(f"the site of row {index[np.argmin(share)]} is not to be taken out of its marginal")
    centre, spread = (u - v * tau) / share, v / share  # (1) without the site
    log_z, new_tau, new_rho = sites.match(index, centre, spread, sites.part(sites.exponent, index))
    # log int N(f; u, v)/t df = -log(1 - rho v)/2 - [u tau - (u^2 rho + v tau^2)/2]/(1 - rho v)
    log_mean = log_z - 0.5 * np.log(share) - (u * tau - 0.5 * (u * u * rho + v * tau * tau)) / share
    if rest is None:
        return float(np.sum(log_mean))
    d_tau, d_rho = new_tau - tau, new_rho - rho
    own, force = 1.0 + d_rho * v, d_tau - d_rho * u
    log_factors = log_mean + 0.5 * np.log(own) - 0.5 * v * force**2 / own
    B = rest[index]
    try:
        triangle = linalg.cholesky(np.eye(B.shape[1]) + B.T @ (d_rho[:, None] * B), lower=True)  # H
    except linalg.LinAlgError:
        raise ArithmeticError(
            f"one step of EP from {z:.3g} standard deviations has no proper posterior: take method='factors'"
        ) from None
    half = linalg.solve_triangular(triangle, B.T @ force, lower=True)
    return float(np.sum(log_factors) - np.sum(np.log(np.diagonal(triangle))) + 0.5 * half @ half)  # (4)


def _sum_exact_factors(z, sites, weights, numbers, correlations, is_same):
    """Return the sum of log F of the rows that are x itself, at each z."""
    if not is_same.any():
        return np.zeros(len(z))
    (mean, variance, tau, rho), y = (array[is_same, None] for array in numbers), sites.y[is_same]
    f = mean + np.sqrt(variance) * np.sign(correlations[is_same])[:, None] * z
    log_p = sites.likelihood.log_p(y[:, None] if y.ndim == 1 else y[:, None, :], f)
    return np.sum(weights[is_same, None] * log_p - tau * f + 0.5 * rho * f * f, axis=0)
