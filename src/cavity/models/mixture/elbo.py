"""The evidence lower bound (ELBO) of a Gaussian mixture, in nats, with all constants [B]_ (10.70).

With q(z_n) optimal for the other factors, the terms (10.71) + (10.72) - (10.75) are the first line of ::

    ELBO = sum_n w_n log sum_k exp(E log pi_k + E log N(x_n; mu_k, 1/L_k))
           - KL(q(pi) || p(pi)) - KL(q(mu, L) || p(mu, L))

which the E-step computes with the statistics; the divergences are (10.76) - (10.73) and (10.77) - (10.74), cheap enough
for every sweep over a few hundred rows. The textbook's forms cancel: rounding grows with the number of observations of
a factor. Up to MAX_SHAPE_OF_TEXTBOOK_FORM it stays below 1e-9 nats; above, sums of terms that are never
negative are used.

References
----------
.. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.2.
"""

import numpy as np

from cavity.base import special as cavity_special
from cavity.base.lazy import special
from cavity.distributions import Dirichlet, Gamma
from cavity.distributions.divergence import kl

MAX_SHAPE_OF_TEXTBOOK_FORM = 1e6


def compute_elbo(log_density_sum, state, prior):
    """Return the ELBO of a state, given the sum over rows of log sum_k exp(E log pi_k + E log N)."""
    return log_density_sum - state.divergence(prior)


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
    # the eigenvalues of M M' are those of one mean relative to the other
    M = ratio[:, :, None] * (root @ factor0)
    diagonal = np.einsum("kii->ki", M)  # a view of the diagonal of M, which is triangular
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
