"""Divergences of the factors of a mixture, cheap enough for every sweep over a few hundred rows.

In their textbook form they cancel: rounding is the larger the more observations a factor is worth. Up to DIRECT of them
it stays below 1e-9 nats, which no ELBO shows; beyond, the sums of terms that are never negative take over.
"""

import numpy as np

from cavity.base import special as cavity_special
from cavity.base.lazy import special
from cavity.distributions import Dirichlet, Gamma
from cavity.distributions.divergence import kl

MAX_SHAPE_OF_TEXTBOOK_FORM = 1e6


def _is_textbook_form_exact(*shapes):
    return all(shape.size == 0 or shape.max() <= MAX_SHAPE_OF_TEXTBOOK_FORM for shape in shapes)


def _compute_shape_terms(a, b):
    """log Gamma(b)/Gamma(a) + (a - b) digamma(a)."""
    return special.gammaln(b) - special.gammaln(a) + (a - b) * special.digamma(a)


def compute_excess(y, x):
    """y/x - 1 - log(y/x), to absolute accuracy."""
    return y / x - 1.0 - (np.log(y) - np.log(x))


def compute_gamma_kl(a, r, b, s):
    """KL of Gamma(shape a, rate r) from Gamma(b, s), summed."""
    if not _is_textbook_form_exact(a, b):
        return float(np.sum(kl(Gamma(a, r), Gamma(b, s))))
    return float((_compute_shape_terms(a, b) + b * (np.log(r) - np.log(s)) + a * (s / r - 1.0)).sum())


def compute_dirichlet_kl(a, b):
    """KL of Dirichlet(a) from Dirichlet(b), (..., K), summed."""
    if not _is_textbook_form_exact(a, b):
        return float(np.sum(kl(Dirichlet(a), Dirichlet(b))))
    return float(_compute_shape_terms(a, b).sum() - _compute_shape_terms(a.sum(axis=-1), b.sum(axis=-1)).sum())


def compute_wishart_kls(nu, factor, root, nu0, factor0):
    """KL of Wishart(nu, V) from Wishart(nu0, V0), (T,): lower Cholesky factors of V and V0, and the inverse of V's."""
    dim = factor.shape[-1]
    ratio = np.sqrt(nu / nu0)[:, None]
    # the eigenvalues of M M' are those of one mean in units of the other
    M = ratio[:, :, None] * (root @ factor0)
    diagonal = np.einsum("kii->ki", M)  # M is triangular, and its diagonal is taken care of: a view
    if _is_textbook_form_exact(nu, nu0):
        means = (diagonal**2 - 1.0 - 2.0 * np.log(diagonal)).sum(axis=1)
        diagonal[:] = 0.0
        means += np.einsum("kij,kij->k", M, M)
        steps = 0.5 * np.arange(dim)
        shapes = _compute_shape_terms(0.5 * nu[:, None] - steps, 0.5 * nu0[:, None] - steps).sum(axis=1)
        shapes += 0.5 * dim * (nu0 * np.log(nu / nu0) + nu0 - nu)
        return 0.5 * nu0 * means + shapes
    a, b = factor.diagonal(0, 1, 2), factor0.diagonal(0, 1, 2) * ratio
    diagonal[:] = 0.0
    gaps = cavity_special.gap((b - a) / a * (b / a + 1.0), 2.0 * cavity_special.log_ratio(b, a))
    means = np.sum(gaps, axis=1) + np.sum(M * M, axis=(1, 2))
    return 0.5 * nu0 * means + cavity_special.wishart_shape_divergence(nu, nu0, dim)
