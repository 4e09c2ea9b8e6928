"""M-steps: maximum likelihood, and the variational updates that scikit-learn makes.

References
----------
.. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, sections 9.2.2 and 10.2.
.. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
   2006, eqs. (18) and (19).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, digamma, gammaln

from cavity.distributions.family import LOG_2PI
from cavity.sklearn.mixture.em import Gaussians, log_determinants, roots
from cavity.sklearn.mixture.priors import Priors


@dataclass(frozen=True, slots=True)
class Point:
    """Point estimates of a mixture; means are measured from the origin. `root` as in `_em.roots`."""

    weights: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    root: np.ndarray


@dataclass(frozen=True, slots=True)
class Likelihood:
    """EM for maximum likelihood [B]_, eqs. (9.24)-(9.26); the bound is the mean log likelihood of the E-step."""

    covariance_type: str
    total: float

    def best(self, moments):
        """Return the estimates that moments lead to."""
        weights = moments.count / np.sum(moments.count)
        return Point(weights, moments.mean, moments.covariance, roots(moments.covariance, self.covariance_type))

    def gaussians(self, state):
        """Return the Gaussians of the E-step."""
        d = state.mean.shape[1]
        with np.errstate(divide="ignore"):  # a given weight may be zero
            height = np.log(state.weights) - 0.5 * d * LOG_2PI
        height = height + log_determinants(state.root, self.covariance_type, d)
        return Gaussians(self.covariance_type, state.mean, state.root, height)

    def bound(self, state, log_likelihood, entropy):
        """Return the mean log likelihood before the step."""
        return log_likelihood / self.total


@dataclass(frozen=True, slots=True)
class Belief:
    """The factors of q; `covariance` is the inverse scale over the degrees of freedom."""

    concentration: np.ndarray | tuple
    mean_precision: np.ndarray
    mean: np.ndarray
    degrees_of_freedom: np.ndarray | float
    covariance: np.ndarray
    root: np.ndarray


@dataclass(frozen=True, slots=True)
class Constrained:
    """The updates of scikit-learn [B]_, eqs. (10.58)-(10.63), and [BJ]_ for the weights: the priors, and what follows.

    For "diag" and "spherical" they keep a Wishart distribution of every component and give it the mean that a diagonal
    matrix would have; for "tied" each component counts N/K rows. The prior mean is measured from the origin.
    """

    covariance_type: str
    process: bool
    prior: Priors

    def best(self, moments):
        """Return the factors that moments lead to."""
        count = moments.count
        mean_precision = self.prior.mean_precision + count
        mean = (self.prior.mean_precision * self.prior.mean + count[:, None] * moments.mean) / mean_precision[:, None]
        pulled = count * (self.prior.mean_precision / mean_precision)
        held = np.mean(count) if self.covariance_type == "tied" else count
        freedom = self.prior.degrees_of_freedom + held
        covariance = self._inverse_scale(moments, pulled) / _along(freedom, np.ndim(self.prior.covariance))
        root = roots(covariance, self.covariance_type)
        return Belief(self._weights(count), mean_precision, mean, freedom, covariance, root)

    def _weights(self, count):
        """Return the Dirichlet parameters, or both of the sticks' Beta parameters."""
        if not self.process:
            return self.prior.weight_concentration + count
        after = np.append(np.cumsum(count[:0:-1])[::-1], 0.0)
        return 1.0 + count, self.prior.weight_concentration + after

    def _inverse_scale(self, moments, pulled):
        """Return the inverse scales: the prior's, the scatter, and the pull between the means, of the type's shape."""
        apart = moments.mean - self.prior.mean
        if self.covariance_type == "full":
            outer = apart[:, :, None] * apart[:, None, :]
            return (
                self.prior.covariance
                + moments.count[:, None, None] * moments.covariance
                + pulled[:, None, None] * outer
            )
        if self.covariance_type == "tied":
            pull = (pulled[:, None] * apart).T @ apart / len(apart)
            return self.prior.covariance + np.mean(moments.count) * moments.covariance + pull
        squares = apart**2 if self.covariance_type == "diag" else np.mean(apart**2, axis=1)
        count, pulled = _along(moments.count, squares.ndim - 1), _along(pulled, squares.ndim - 1)
        return self.prior.covariance + count * moments.covariance + pulled * squares

    def gaussians(self, state):
        """Return the Gaussians of the E-step: expected log weights, log determinants and precisions."""
        d = state.mean.shape[1]
        log_determinant = self._log_determinants(state, d) + 0.5 * (d * np.log(2.0) + _digammas(state, d))
        height = log_weights(state.concentration) + log_determinant - 0.5 * d * (LOG_2PI + 1.0 / state.mean_precision)
        return Gaussians(self.covariance_type, state.mean, state.root, height)

    def bound(self, state, log_likelihood, entropy):
        """Return scikit-learn's lower bound: without the constants, of the factors after the step."""
        k, d = state.mean.shape
        freedom = np.asarray(state.degrees_of_freedom)
        gammas = gammaln(0.5 * (freedom[..., None] - np.arange(d))).sum(axis=-1)
        wishart = freedom * (self._log_determinants(state, d) + 0.5 * d * np.log(2.0)) + gammas
        wishart = (k if self.covariance_type == "tied" else 1) * np.sum(wishart)
        c = state.concentration
        weights = np.sum(betaln(*c)) if self.process else np.sum(gammaln(c)) - gammaln(np.sum(c))
        return float(entropy + wishart + weights - 0.5 * d * np.sum(np.log(state.mean_precision)))

    def _log_determinants(self, state, d):
        """Return half the log determinants of the scales."""
        known = log_determinants(state.root, self.covariance_type, d)
        return known - 0.5 * d * np.log(state.degrees_of_freedom)


def _along(values, ndim):
    """Return values (K,) with axes of length one after them, for arrays of one more dimension than `ndim`."""
    return values if np.ndim(values) == 0 else values.reshape(len(values), *[1] * ndim)


def _digammas(state, d):
    return digamma(0.5 * (np.asarray(state.degrees_of_freedom)[..., None] - np.arange(d))).sum(axis=-1)


def log_weights(concentration):
    """Return E[log pi] (K,) of a Dirichlet distribution or of sticks."""
    if not isinstance(concentration, tuple):
        return digamma(concentration) - digamma(np.sum(concentration))
    first, second = concentration
    whole = digamma(first + second)
    left = np.cumsum(digamma(second) - whole)
    return digamma(first) - whole + np.append(0.0, left[:-1])


def mean_weights(concentration):
    """Return E[pi] (K,), of sticks made to sum to one."""
    if not isinstance(concentration, tuple):
        return concentration / np.sum(concentration)
    share = concentration[0] / (concentration[0] + concentration[1])
    weights = share * np.append(1.0, np.cumprod(1.0 - share)[:-1])
    return weights / np.sum(weights)
