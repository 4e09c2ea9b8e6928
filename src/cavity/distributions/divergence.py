"""Kullback-Leibler divergences in closed form, written as sums of terms that are never negative."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity import distributions
from cavity.base import special
from cavity.base.errors import check_within_range
from cavity.base.public_objects import FloatOrArray
from cavity.base.special import binet_divergence, excess, gap, log_ratio, quiet, quotient_difference, shape_divergence
from cavity.base.triangles import solve_lower, whiten

# in Frobenius norm: eigenvalues of the relative difference of two matrices stay in (-1/2, 1/2)
MAX_SERIES_DISTANCE = 0.5


@quiet
def kl(p: Any, q: Any) -> FloatOrArray:
    """Return KL(p || q), the expectation under p of log p - log q, in closed form.

    Parameters
    ----------
    p, q : distributions of one family
        `Gaussian`, `SphericalGaussian`, or from `cavity.distributions` `MultivariateGaussian`, `Gamma`, `Wishart`,
        `NormalWishart`, `Dirichlet`, `Categorical`. A single `SphericalGaussian` may be paired with a
        `MultivariateGaussian`. Batches broadcast; log scales are left aside.

    Returns
    -------
    float or ndarray
        Divergences in nats, one per element of the batch: zero or positive, exactly 0 for ``kl(p, p)``; inf where a
        categorical q gives no mass to a category that p may draw.

    Raises
    ------
    TypeError
        If the two are not of one family.
    ValueError
        If their dimensions or batch shapes do not fit, or a Gaussian is improper or a point mass.
    OverflowError
        If a divergence leaves the range of float64.

    Notes
    -----
    Every formula is arranged as a sum of terms y/x - 1 - log(y/x) >= 0, squares, and the Bregman divergence of Binet's
    remainder of the log-gamma function, each computed from differences of the parameters. Close distributions therefore
    keep the relative digits of a tiny divergence. For Gamma(a, b) with means m = a/b, for example, it is

        KL = a_q (m_p/m_q - 1 - log(m_p/m_q)) + (a_q/a_p - 1 - log(a_q/a_p))/2 + R(a_q) - R(a_p) - (a_q - a_p) R'(a_p)

    with R(a) = lgamma(a) - (a - 1/2) log a + a - log(2 pi)/2.

    For matrices the digits are those of the parameters the distributions were made from: a difference of covariances is
    used if both were given by moments, of precisions otherwise.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006: (1.113), appendix B.

    Examples
    --------
    >>> import cavity
    >>> p, q = cavity.Gaussian.from_moments(0.0, 1.0), cavity.Gaussian.from_moments(1.0, 4.0)
    >>> round(cavity.kl(p, q), 6), round(cavity.kl(q, p), 6)
    (0.443147, 1.306853)
    >>> cavity.kl(p, cavity.Gaussian.from_moments([0.0, 1e-8, 1e-8], [1.0, 1.0, 4.0])) < 1e-16
    array([ True,  True, False])
    """
    divergence = _CLOSED_FORMS.get((type(p), type(q)))
    if divergence is None:
        raise TypeError(f"kl needs two distributions of one family, got {type(p).__name__} and {type(q).__name__}")
    value = divergence(p, q)
    if divergence is not _kl_categorical:
        check_within_range(value, "kl: the divergences")
    return value if np.ndim(value) else float(value)


def _check_sizes(p_size, q_size, description):
    if p_size != q_size:
        raise ValueError(f"kl: p and q have {p_size} and {q_size} {description}")


def _check_batches(p_shape, q_shape):
    try:
        np.broadcast_shapes(p_shape, q_shape)
    except ValueError:
        raise ValueError(f"kl: the batches of p and q must broadcast, got shapes {p_shape} and {q_shape}") from None


def _kl_gaussian(p, q):
    """(d excess(rho_q, rho_p) + rho_q |m_p - m_q|^2)/2."""
    (m_p, rho_p), (m_q, rho_q) = p._proper_parts("kl"), q._proper_parts("kl")
    _check_sizes(m_p.shape[-1], m_q.shape[-1], "dimensions")
    _check_batches(rho_p.shape, rho_q.shape)
    # m_p - m_q from differences of natural parameters, which are exact for close ones
    sharper = np.maximum(rho_p, rho_q)[..., None]
    wider_mean = np.where((rho_p >= rho_q)[..., None], m_q, m_p)
    step = (p._parts()[0] - q._parts()[0]) / sharper - wider_mean * ((rho_p - rho_q)[..., None] / sharper)
    return 0.5 * (m_p.shape[-1] * excess(rho_q, rho_p) + np.sum((np.sqrt(rho_q)[..., None] * step) ** 2, axis=-1))


def _to_multivariate(gaussian):
    """A single spherical Gaussian as a multivariate one."""
    if isinstance(gaussian, distributions.MultivariateGaussian):
        return gaussian
    if gaussian.shape:
        raise ValueError(f"kl: with a MultivariateGaussian goes a single SphericalGaussian, got shape {gaussian.shape}")
    _, rho = gaussian._proper_parts("kl")
    return distributions.MultivariateGaussian.from_natural(gaussian.tau, rho * np.eye(gaussian.dim))


def _kl_multivariate(p, q):
    """(tr(A) - D - log|A| + (m_p - m_q)' L_q (m_p - m_q))/2 for A = L_q S_p, precision L and covariance S."""
    p, q = _to_multivariate(p), _to_multivariate(q)
    _check_sizes(p.dim, q.dim, "dimensions")
    if p._given == q._given == "natural":
        step = p._factor @ (p._factor.T @ ((p.tau - q.tau) - (p.precision - q.precision) @ q.mean))
    else:
        step = p.mean - q.mean
    if p._given == q._given == "covariance":
        relative = whiten(q._factor, p.covariance - q.covariance)
    else:
        relative = p._factor.T @ (q.precision - p.precision) @ p._factor
    scaled = solve_lower(q._factor, step)
    return 0.5 * (_matrix_excess(relative, p._factor, q._factor) + scaled @ scaled)


def _matrix_excess(relative, factor_b, factor_a):
    """tr(A^-1 B) - D - log|A^-1 B| of matrices with lower Cholesky factors.

    `relative` is symmetric with the eigenvalues of A^-1 B - 1, used where they are small. Else M = factor_a^-1 factor_b
    is lower triangular, tr(A^-1 B) the sum of its squares and log|A^-1 B| twice that of the logs of its diagonal.
    """
    if np.sqrt(np.sum(relative * relative)) <= MAX_SERIES_DISTANCE:
        u = np.linalg.eigvalsh(0.5 * (relative + relative.T))
        return np.sum(gap(u, np.log1p(u)))
    M = solve_lower(factor_a, factor_b)
    a, b = np.diag(factor_a), np.diag(factor_b)
    diagonal = gap((b - a) / a * (b / a + 1.0), 2.0 * log_ratio(b, a))
    return np.sum(diagonal) + np.sum(np.tril(M, -1) ** 2)


def _kl_gamma(p, q):
    _check_batches(p.event_shape, q.event_shape)
    means = excess(p.mean, q.mean, quotient_difference(p.shape, p.rate, q.shape, q.rate))
    return q.shape * means + shape_divergence(p.shape, q.shape)


def _kl_wishart(p, q):
    """nu_q/2 excess(mean_p in units of mean_q), and what the degrees of freedom add at equal means."""
    _check_sizes(p.dim, q.dim, "dimensions")
    n_p, n_q = p.degrees_of_freedom, q.degrees_of_freedom
    relative = whiten(p._factor, q.inverse_scale - p.inverse_scale) * (n_p / n_q)
    relative[np.diag_indices(p.dim)] += (n_p - n_q) / n_q
    means = _matrix_excess(relative, q._factor / np.sqrt(n_q), p._factor / np.sqrt(n_p))
    return 0.5 * n_q * means + special.wishart_shape_divergence(n_p, n_q, p.dim)


def _kl_normal_wishart(p, q):
    """KL of the precisions, plus the expected KL of the means given the precision."""
    _check_sizes(p.dim, q.dim, "dimensions")
    step = p.precision._root.T @ (p.mean - q.mean)
    distance = q.mean_precision * p.degrees_of_freedom * (step @ step)
    return _kl_wishart(p.precision, q.precision) + 0.5 * (p.dim * excess(q.mean_precision, p.mean_precision) + distance)


def _kl_dirichlet(p, q):
    """With means m, k and totals A, B of concentrations a, b: B KL(k || m), and what shapes add at equal means.

    The latter is sum S(a_j, b_j) - S(A, B), S as in `shape_divergence`. In it excess(B, A) is taken from the others:
    sum excess(b_j, a_j) - excess(B, A) = sum (1 - m_j) excess(b_j, a_j) + sum m_j excess(k_j, m_j).
    """
    a, b = p.concentration, q.concentration
    _check_sizes(a.shape[-1], b.shape[-1], "categories")
    _check_batches(a.shape[:-1], b.shape[:-1])
    A, B, difference = p.total[..., None], q.total[..., None], np.sum(b - a, axis=-1, keepdims=True)
    m, k = a / A, b / B
    means = b * excess(m, k, quotient_difference(a, A, b, B, difference))
    back = m * excess(k, m, quotient_difference(b, B, a, A, -difference))
    terms = means + 0.5 * ((A - a) / A * excess(b, a) + back) + binet_divergence(b, a)
    value = np.sum(terms, axis=-1) - binet_divergence(B, A, difference)[..., 0]
    # the exact value is not negative: below zero is rounding of the one difference that is left
    return np.maximum(value, 0.0)


def _kl_categorical(p, q):
    """sum p log(p/q), as a sum of p log(p/q) - p + q >= 0."""
    a, b = p.probabilities, q.probabilities
    _check_sizes(a.shape[-1], b.shape[-1], "categories")
    _check_batches(a.shape[:-1], b.shape[:-1])
    u, logs = (b - a) / a, q._logits - p._logits
    near = np.abs(u) <= MAX_SERIES_DISTANCE
    terms = np.where(near, a * gap(u, np.log1p(u)), (b - a) - a * logs)
    return np.sum(np.where(a > 0, terms, b), axis=-1)


_CLOSED_FORMS = {
    (distributions.Gaussian, distributions.Gaussian): _kl_gaussian,
    (distributions.SphericalGaussian, distributions.SphericalGaussian): _kl_gaussian,
    (distributions.MultivariateGaussian, distributions.MultivariateGaussian): _kl_multivariate,
    (distributions.MultivariateGaussian, distributions.SphericalGaussian): _kl_multivariate,
    (distributions.SphericalGaussian, distributions.MultivariateGaussian): _kl_multivariate,
    (distributions.Gamma, distributions.Gamma): _kl_gamma,
    (distributions.Wishart, distributions.Wishart): _kl_wishart,
    (distributions.NormalWishart, distributions.NormalWishart): _kl_normal_wishart,
    (distributions.Dirichlet, distributions.Dirichlet): _kl_dirichlet,
    (distributions.Categorical, distributions.Categorical): _kl_categorical,
}
