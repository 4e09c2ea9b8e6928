"""The factors of q in a Gaussian mixture, for all components at once, and the updates that are optimal for them.

`WishartFactors` serve full and tied covariances, `GammaFactors` diagonal and spherical ones, `WeightFactors` both kinds
of weights. All are natural parameters of exponential families: conjugate updates, minibatch steps, merging and
forgetting are affine combinations of them. They are kept as means and scatter about these means, and combined by
differences of means, so that no digits are lost where data lie far from the origin.

A factor offers

- ``update(prior, ...)``: the optimum given statistics of the responsibilities;
- ``divergence(prior)``: KL(q || prior), in nats, summed over the components;
- ``natural()``, ``statistics()``: natural parameters and expected statistics, flat arrays in one order; means and
  precisions have ``coordinates()``, both;
- ``at(natural)``: the factor with these natural parameters, or None where they are outside the domain;
- ``combine(terms)``: the affine combination of [(share, factor), ...] whose shares add up to 1;
- ``take(order)``: the components in another order, or some of them.

References
----------
.. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
.. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
   2006.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError
from cavity.base.lazy_scipy import special
from cavity.base.triangles import invert_lower
from cavity.models.mixture import elbo

_kernel = _core.best("mixture_factors")

MAX_COMPILED_COLUMNS = 16  # beyond, LAPACK is faster than loops over the entries of small matrices


def is_full(covariance):
    """Whether precisions of this kind are matrices, not numbers for single columns or all."""
    return covariance in ("full", "tied")


def _compute_outer(a):
    """The outer products of vectors (..., D) with themselves."""
    return a[..., :, None] * a[..., None, :]


def _broadcast(a, shape):
    """An array, repeated where the shape is larger."""
    return a if a.shape == shape else np.ascontiguousarray(np.broadcast_to(a, shape))


def _update_mean(mean, prior, counts, first):
    """Return (beta, optimal mean, its step from `mean`, its step from the prior mean) given N and s about `mean`.

    Steps are not differences of means, which would lose the digits of a small one; the mean is a short step away from
    one of the two.
    """
    beta = prior.beta + counts  # beta_k = beta_0 + N_k, [B]_ (10.60)
    # m_k = (beta_0 m_0 + N_k xbar_k)/beta_k (10.61), as a step from `mean` and from m_0
    step = (prior.beta * (prior.mean - mean) + first) / beta
    away = (first + counts * (mean - prior.mean)) / beta
    return beta, np.where(prior.beta > counts, prior.mean + away, mean + step), step, away


@dataclass(frozen=True, slots=True)
class WeightFactors:
    """q(pi): Dirichlet(alpha), alpha (K,), or K - 1 sticks v_k ~ Beta(a_k, b_k), (K - 1, 2).

    With sticks pi_k = v_k prod_{j<k} (1 - v_j). The last stick takes all that is left: v_K = 1 [BJ]_.
    """

    concentration: np.ndarray

    @property
    def sticks(self):
        """Whether the weights are broken from a stick."""
        return self.concentration.ndim == 2

    def expected_logs(self):
        """E log pi, (K,)."""
        logs = self.statistics().reshape(self.concentration.shape)
        if not self.sticks:
            return logs
        expected = np.zeros(len(logs) + 1)
        np.cumsum(logs[:, 1], out=expected[1:])
        expected[:-1] += logs[:, 0]
        return expected

    def mean(self):
        """E pi, (K,)."""
        if not self.sticks:
            return self.concentration / np.sum(self.concentration)
        shares = self.concentration / np.sum(self.concentration, axis=1, keepdims=True)
        left = np.concatenate([[1.0], np.cumprod(shares[:, 1])])
        return left * np.append(shares[:, 0], 1.0)

    def variance(self):
        """Variances of pi, (K,)."""
        if not self.sticks:
            mean = self.mean()
            return mean * (1.0 - mean) / (np.sum(self.concentration) + 1.0)
        total = np.sum(self.concentration, axis=1, keepdims=True)
        squares = self.concentration * (self.concentration + 1.0) / (total * (total + 1.0))  # of v and of 1 - v
        left = np.concatenate([[1.0], np.cumprod(squares[:, 1])])
        return np.maximum(left * np.append(squares[:, 0], 1.0) - self.mean() ** 2, 0.0)

    def update(self, prior, counts):
        """Return the optimum given N_k [B]_ (10.58)."""
        if not prior.sticks:
            return WeightFactors(prior.concentration + counts)
        added = np.empty((len(counts) - 1, 2))
        added[:, 0] = counts[:-1]
        added[:, 1] = counts[::-1].cumsum()[-2::-1]  # the sums of the N_j, j > k
        return WeightFactors(prior.concentration + added)

    def counts(self, prior):
        """Return the N_k that lead from the prior to these weights, (K,)."""
        added = self.concentration - prior.concentration
        return added if not self.sticks else np.append(added[:, 0], added[-1:, 1] if len(added) else 0.0)

    def divergence(self, prior):
        a, b = (np.atleast_2d(concentration) for concentration in (self.concentration, prior.concentration))
        value = _kernel.dirichlet_divergence(a, b, elbo.MAX_SHAPE_OF_TEXTBOOK_FORM)
        return value if np.isfinite(value) else elbo.compute_dirichlet_kl(self.concentration, prior.concentration)

    def natural(self):
        return self.concentration.ravel()

    def statistics(self):
        rows = np.atleast_2d(self.concentration)
        out = np.empty(rows.shape)
        _kernel.dirichlet_statistics(rows, out)
        return out.ravel()

    def at(self, natural):
        inside = ((natural > 0) & np.isfinite(natural)).all()
        return WeightFactors(natural.reshape(self.concentration.shape)) if inside else None

    @staticmethod
    def combine(terms):
        return WeightFactors(sum(share * f.concentration for share, f in terms))


class GaussianFactors:
    """q(mu | L) q(L) of all components, for two families of precisions L: what follows from their fields alone.

    A family has `mean`, `beta`, `nu` and `scatter`, and

    - ``of(mean, beta, nu, scatter)``: the factors, or NotPositiveDefiniteError;
    - ``squares(weight, step)``: weight times the squares of steps (K, D), summed over all that share a precision;
    - ``least``: what nu is above;
    - ``sides()``: expected precisions and their inverses, (K, numbers).
    """

    __slots__ = ()

    def natural(self):
        return self.coordinates()[0]

    def statistics(self):
        return self.coordinates()[1]

    def _allocate(self):
        """Return arrays for the fields of factors of the same shapes."""
        return [np.empty(getattr(self, name).shape) for name in self.__slots__]

    @classmethod
    def combine(cls, terms):
        beta, first = sum(share * f.beta for share, f in terms), terms[0][1].mean
        mean = first + sum(share * f.beta * (f.mean - first) for share, f in terms) / beta
        nu = sum(share * f.nu for share, f in terms)
        scatter = sum(share * (f.scatter + f.squares(f.beta, f.mean - mean)) for share, f in terms)
        return cls.of(mean, beta, nu, scatter)

    def widen(self):
        """Return these factors with a beta for each column, for data of which values may be missing."""
        return replace(self, beta=np.array(np.broadcast_to(self.beta, self.mean.shape)))

    def widen_like(self, other):
        """Return these factors, with a beta for each column if `other` has that."""
        return self.widen() if other.beta.shape[1] > self.beta.shape[1] else self

    def take(self, order):
        own = {name: part[order] for name in self.__slots__ if len(part := getattr(self, name)) == len(self.mean)}
        return replace(self, **own)

    def contrasts(self, other):
        """Return tr(P C') + tr(P' C) + d'(P + P')d (K, K): expected precisions P, C their inverses, d between means."""
        (p, c), (p2, c2) = self.sides(), other.sides()
        step = self.mean[:, None] - other.mean
        square = (_compute_outer(step) if self.scatter.ndim == 3 else step**2).reshape(*step.shape[:2], -1)
        return p @ c2.T + c @ p2.T + np.einsum("abi,ai->ab", square, p) + np.einsum("abi,bi->ab", square, p2)


@dataclass(frozen=True, slots=True)
class WishartFactors(GaussianFactors):
    """q(mu_k | L) = N(mean_k, (beta_k L)^-1) with q(L_k) = Wishart(nu_k, V_k), or one q(L) for all (T = 1, not K).

    ``root`` holds the inverses of the lower Cholesky factors of V.
    """

    mean: np.ndarray  # (K, D)
    beta: np.ndarray  # (K, 1)
    nu: np.ndarray  # (T,)
    scatter: np.ndarray  # V, (T, D, D)
    factor: np.ndarray  # (T, D, D)
    root: np.ndarray  # (T, D, D)

    @classmethod
    def of(cls, mean, beta, nu, scatter):
        """Return the factors with V factorised; NotPositiveDefiniteError names the component."""
        factor, root = np.empty_like(scatter), np.empty_like(scatter)
        for k, V in enumerate(scatter):
            description = f"the scatter of component {k}" if len(scatter) > 1 else "the scatter"
            try:
                factor[k] = arrays.cholesky(V, description)
            except NotPositiveDefiniteError as error:
                raise NotPositiveDefiniteError(
                    f"{error}: the data and covariance_prior leave it no spread in some direction; give a larger "
                    "covariance_prior"
                ) from None
            root[k] = invert_lower(factor[k])
        return cls(mean, beta, nu, scatter, factor, root)

    def expected_log_determinants(self):
        """E log|L|, (T,)."""
        out = np.empty(len(self.nu))
        _kernel.wishart_log_determinants(self.nu, self.factor, out)
        return out

    def constants(self):
        """Return (E log N at zero distance (K,), F (K, D, D)): E log N(x; mu, 1/L) = constant - |F (x - mean)|^2/2."""
        k, dim = self.mean.shape
        height, precision = np.empty(k), np.empty((k, dim, dim))
        _kernel.wishart_constants(self.beta, self.nu, self.factor, self.root, height, precision)
        return height, precision

    def _precision_factor(self):
        return np.sqrt(self.nu)[:, None, None] * self.root

    def update(self, prior, counts, first, second):
        """Return the optimum given N_k (K, 1), s_k (K, D) and S_k (K, D, D) about the own means, [B]_ (10.60-63)."""
        if first.shape[1] <= MAX_COMPILED_COLUMNS:
            fields = self._allocate()
            of_prior = prior.mean, prior.beta, prior.nu, prior.scatter
            scratch = np.empty((2, first.shape[1]))
            if _kernel.wishart_update(self.mean, *of_prior, counts, first, second, *fields, scratch) < 0:
                return WishartFactors(*fields)
        beta, mean, step, away = _update_mean(self.mean, prior, counts, first)
        cross = first[:, :, None] * step[:, None, :]
        # N_k S_k + beta_0 N_k/beta_k (xbar_k - m_0)(xbar_k - m_0)' of (10.62), about the new means
        scatter = second - (cross + cross.swapaxes(1, 2)) + counts[:, :, None] * _compute_outer(step)
        scatter += prior.beta[:, :, None] * _compute_outer(away)
        if len(prior.scatter) == len(mean):  # nu_k = nu_0 + N_k (10.63)
            return WishartFactors.of(mean, beta, prior.nu + counts[:, 0], prior.scatter + scatter)
        total = prior.scatter + np.sum(scatter, axis=0, keepdims=True)
        return WishartFactors.of(mean, beta, prior.nu + np.sum(counts), total)

    def divergence(self, prior):
        dim = self.mean.shape[1]
        if dim <= MAX_COMPILED_COLUMNS:
            own = self.mean, self.beta, self.nu, self.factor, self.root
            of_prior = prior.mean, prior.beta, prior.nu, prior.factor
            value = _kernel.wishart_divergence(*own, *of_prior, elbo.MAX_SHAPE_OF_TEXTBOOK_FORM)
            if np.isfinite(value):
                return value
        step = np.matmul(self._precision_factor(), (self.mean - prior.mean)[:, :, None])[:, :, 0]
        means = dim * elbo.compute_excess(prior.beta, self.beta)[:, 0] + prior.beta[:, 0] * (step**2).sum(axis=1)
        wisharts = elbo.compute_wishart_kls(self.nu, self.factor, self.root, prior.nu, prior.factor)
        return 0.5 * float(means.sum()) + float(wisharts.sum())

    @property
    def least(self):
        return self.mean.shape[1] - 1

    def squares(self, weight, step):
        terms = weight[:, :, None] * _compute_outer(step)
        return terms if len(terms) == len(self.scatter) else np.sum(terms, axis=0, keepdims=True)

    def coordinates(self):
        if self.mean.shape[1] <= MAX_COMPILED_COLUMNS:
            natural, statistics = np.empty((2, self.mean.size + self.beta.size + self.scatter.size + self.nu.size))
            fields = self.mean, self.beta, self.nu, self.scatter, self.factor, self.root
            _kernel.wishart_coordinates(*fields, natural, statistics)
            return natural, statistics
        moment = self.scatter + self.squares(self.beta, self.mean)
        natural = self.beta * self.mean, -0.5 * self.beta, -0.5 * moment, 0.5 * self.nu
        factor = self._precision_factor()
        precision = factor.swapaxes(1, 2) @ factor
        pull = np.matmul(precision, self.mean[:, :, None])[:, :, 0]
        square = self.mean.shape[1] / self.beta[:, 0] + (pull * self.mean).sum(axis=1)
        statistics = pull, square, precision, self.expected_log_determinants()
        return tuple(np.concatenate([part.ravel() for part in parts]) for parts in (natural, statistics))

    def at(self, natural):
        if self.mean.shape[1] <= MAX_COMPILED_COLUMNS:
            fields = self._allocate()
            return WishartFactors(*fields) if _kernel.wishart_at(natural, *fields) else None
        ends = np.cumsum([self.mean.size, self.beta.size, self.scatter.size])
        pull, beta, moment, nu = np.split(natural, ends)
        pull, beta, moment = pull.reshape(self.mean.shape), -2.0 * beta[:, None], moment.reshape(self.scatter.shape)
        if not (np.isfinite(natural).all() and (beta > 0).all() and (nu > 0.5 * self.least).all()):
            return None
        scatter = -(moment + moment.swapaxes(1, 2)) - self.squares(beta, mean := pull / beta)
        try:
            return WishartFactors.of(mean, beta, 2.0 * nu, scatter)
        except NotPositiveDefiniteError:
            return None

    def sides(self):
        k, dim = self.mean.shape
        factor = self._precision_factor()
        sides = np.swapaxes(factor, 1, 2) @ factor, self.scatter / self.nu[:, None, None]
        return [np.broadcast_to(side, (k, dim, dim)).reshape(k, -1) for side in sides]

    def rescale(self, shift, scale):
        """Return these factors in coordinates (z - shift) scale."""
        scatter = self.scatter * _compute_outer(scale)
        return WishartFactors.of((self.mean - shift) * scale, self.beta, self.nu, scatter)


@dataclass(frozen=True, slots=True)
class GammaFactors(GaussianFactors):
    """q(mu_kd | l) = N(mean_kd, 1/(beta_kd l)), q(l_kg) = Gamma(nu_kg/2, scatter_kg/2); g is a column, or all (G = 1).

    beta has one column where no value is missing.
    """

    mean: np.ndarray  # (K, D)
    beta: np.ndarray  # (K, 1) or (K, D)
    nu: np.ndarray  # (K, G)
    scatter: np.ndarray  # (K, G)

    least = 0.0

    @classmethod
    def of(cls, mean, beta, nu, scatter):
        """Return the factors; NotPositiveDefiniteError if a scatter is not positive."""
        if not (scatter > 0).all():
            raise NotPositiveDefiniteError("the scatter of the combined components must be positive")
        return cls(mean, beta, nu, scatter)

    def expected_log_precisions(self):
        """E log l, (K, G)."""
        return special.digamma(0.5 * self.nu) - np.log(0.5 * self.scatter)

    def constants(self):
        """Return (gain (K, D), precision (K, D)): E log N(x_d; mu, 1/l) = gain - precision (x_d - mean)^2/2."""
        shape = self.mean.shape
        gain = 0.5 * (self.expected_log_precisions() - LOG_2PI - 1.0 / self.beta)
        return _broadcast(gain, shape), _broadcast(self.nu / self.scatter, shape)

    def _sum(self, terms):
        """Sum terms (K, D) or (K, 1) over the columns that share a precision."""
        if self.nu.shape == self.mean.shape:
            return terms
        return _broadcast(terms, self.mean.shape).sum(axis=1, keepdims=True)

    def squares(self, weight, step):
        return self._sum(weight * step**2)

    def update(self, prior, counts, first, second):
        """Return the optimum given N (K, 1) or (K, D), s and S (K, D) about the means of `self`."""
        fields, of_prior = self._allocate(), (prior.mean, prior.beta, prior.nu, prior.scatter)
        fields[1] = np.empty(np.broadcast_shapes(prior.beta.shape, counts.shape))
        _kernel.gamma_update(self.mean, *of_prior, counts, first, second, *fields)
        return GammaFactors(*fields)

    def divergence(self, prior):
        fields = (getattr(factors, name) for factors in (self, prior) for name in self.__slots__)
        value = _kernel.gamma_divergence(*fields, elbo.MAX_SHAPE_OF_TEXTBOOK_FORM)
        if np.isfinite(value):
            return value
        precision = self.nu / self.scatter
        means = elbo.compute_excess(prior.beta, self.beta) + prior.beta * precision * (self.mean - prior.mean) ** 2
        halves = (0.5 * part for part in (self.nu, self.scatter, prior.nu, prior.scatter))
        return 0.5 * float(means.sum()) + elbo.compute_gamma_kl(*halves)

    def coordinates(self):
        natural, statistics = np.empty((2, self.mean.size + self.beta.size + self.scatter.size + self.nu.size))
        _kernel.gamma_coordinates(self.mean, self.beta, self.nu, self.scatter, natural, statistics)
        return natural, statistics

    def at(self, natural):
        fields = self._allocate()
        return GammaFactors(*fields) if _kernel.gamma_at(natural, *fields) else None

    def sides(self):
        return [np.broadcast_to(side, self.mean.shape) for side in (self.nu / self.scatter, self.scatter / self.nu)]

    def rescale(self, shift, scale):
        """Return these factors in coordinates (z - shift) scale; it is one scale where columns share a precision."""
        square = scale**2 if self.nu.shape[1] == len(scale) else scale[:1] ** 2
        return GammaFactors((self.mean - shift) * scale, self.beta, self.nu, self.scatter * square)
