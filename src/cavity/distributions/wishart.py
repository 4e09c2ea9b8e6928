"""Distributions over precision matrices: Wishart, and Wishart with a Gaussian mean (Normal-Wishart)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2, LOG_2PI, LOG_PI
from cavity.base.errors import check_within_range
from cavity.base.lazy_scipy import special, stats
from cavity.base.public_objects import FloatArray, FloatOrArray, set_fields
from cavity.base.special import excess, quiet, shape_entropy, stirling
from cavity.base.triangles import invert_lower
from cavity.distributions.family import Distribution


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wishart(Distribution):
    """A Wishart distribution over positive definite D x D matrices L.

    The density is proportional to |L|^((nu - D - 1)/2) exp(-tr(V L)/2). For D = 1 it is Gamma(nu/2, V/2).

    Parameters
    ----------
    degrees_of_freedom : float
        nu, greater than D - 1.
    inverse_scale : array_like, shape (D, D)
        V, positive definite; the mean is nu times its inverse.

    Attributes
    ----------
    degrees_of_freedom : float
        nu.
    inverse_scale : ndarray (D, D)
        V, read-only.

    Raises
    ------
    ValueError, TypeError
        For a matrix that is not square, finite and symmetric, or too few degrees of freedom.
    NotPositiveDefiniteError
        If V is not positive definite.

    Notes
    -----
    `natural` holds (nu - D - 1)/2 and then -V/2, `statistics` E log|L| and then E L, raveled.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006: (B.78) to (B.82), with V for
       the inverse of its W.

    Examples
    --------
    >>> from cavity.distributions import Wishart
    >>> q = Wishart(5.0, [[2.0, 0.0], [0.0, 4.0]])
    >>> q.mean.round(12).tolist(), round(float(q.statistics[0]), 6)
    ([[2.5, 0.0], [0.0, 1.25]], 0.432794)
    """

    degrees_of_freedom: float
    inverse_scale: FloatOrArray
    _factor: FloatArray = field(init=False)  # lower Cholesky factor of V
    _root: FloatArray = field(init=False)  # upper triangular, root root' is the inverse of V

    def __post_init__(self) -> None:
        V = arrays.check_symmetric(self.inverse_scale, "inverse_scale")
        nu = arrays.check_number(self.degrees_of_freedom, "degrees_of_freedom", low=len(V) - 1)
        factor = arrays.cholesky(V, "inverse_scale")
        with np.errstate(over="ignore", invalid="ignore"):
            root = invert_lower(factor).T
            check_within_range(nu * (root @ root.T), "Wishart: the means")
        V, factor, root = (arrays.make_read_only(np.array(array)) for array in (V, factor, root))
        set_fields(self, degrees_of_freedom=nu, inverse_scale=V, _factor=factor, _root=root)

    @property
    def dim(self) -> int:
        """The dimension D."""
        return len(self.inverse_scale)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape (D, D) of one sample."""
        return self.inverse_scale.shape

    def to_scipy(self) -> Any:
        """Return the distribution as a frozen one of scipy.stats.

        Returns
        -------
        scipy.stats distribution
            ``wishart``.
        """
        return stats.wishart(self.degrees_of_freedom, self._root @ self._root.T)

    @property
    def natural(self) -> FloatArray:
        """(nu - D - 1)/2 and then -V/2, raveled."""
        power = 0.5 * (self.degrees_of_freedom - self.dim - 1)
        return np.concatenate([[power], -0.5 * self.inverse_scale.ravel()])

    @property
    def statistics(self) -> FloatArray:
        """E log|L| and then E L, raveled."""
        return np.concatenate([[self._expected_log_determinant()], self.mean.ravel()])

    @property
    def mean(self) -> FloatOrArray:
        """nu times the inverse of V, shape (D, D)."""
        return self.degrees_of_freedom * (self._root @ self._root.T)

    @property
    def variance(self) -> FloatOrArray:
        """Variances of the entries, shape (D, D)."""
        W = self._root @ self._root.T
        return self.degrees_of_freedom * (W * W + np.outer(np.diag(W), np.diag(W)))

    def _log_determinant(self):
        """log|V|."""
        return 2.0 * float(np.sum(np.log(np.diag(self._factor))))

    def _shapes(self):
        """Shapes (nu - i)/2, i = 0..D-1, of the gamma functions in the normaliser, and the i/2."""
        steps = 0.5 * np.arange(self.dim)
        return 0.5 * self.degrees_of_freedom - steps, steps

    def _expected_log_determinant(self):
        return float(np.sum(special.digamma(self._shapes()[0]))) + self.dim * LOG_2 - self._log_determinant()

    def entropy(self) -> float:
        """Return the differential entropy in nats, over the D (D + 1)/2 free entries.

        Returns
        -------
        float
            log normaliser - (nu - D - 1)/2 E log|L| + nu D/2.
        """
        d, (a, steps) = self.dim, self._shapes()
        gammas = shape_entropy(a) + (0.5 * (d + 1) - steps) * special.digamma(a)
        constant = 0.25 * d * (d - 1) * (1.0 + LOG_PI) + 0.5 * d * (d + 1) * LOG_2
        return float(np.sum(gammas)) + constant - 0.5 * (d + 1) * self._log_determinant()

    def __repr__(self) -> str:
        return f"<Wishart in {self.dim} dimension(s), {self.degrees_of_freedom:g} degrees of freedom>"

    def _from_natural(self, vector):
        return Wishart(2.0 * vector[0] + self.dim + 1, -2.0 * vector[1:].reshape(self.event_shape))

    @quiet
    def _log_density(self, x):
        nu, d = self.degrees_of_freedom, self.dim
        # eigenvalues of L in units of its mean: nu/2 (log - value) is largest at 1
        values = np.linalg.eigvalsh(self._factor.T @ (0.5 * (x + np.swapaxes(x, -1, -2))) @ self._factor) / nu
        inside = np.all(values > 0, axis=-1)
        values = np.where(inside[..., None], values, 1.0)
        a, steps = self._shapes()
        constant = np.sum(stirling(a) + steps * np.log(0.5 * nu) - a * excess(0.5 * nu, a))
        constant -= 0.25 * d * (d - 1) * LOG_PI
        log_determinant = np.sum(np.log(values), axis=-1) + d * np.log(nu) - self._log_determinant()
        value = constant - 0.5 * nu * np.sum(excess(values, 1.0), axis=-1) - 0.5 * (d + 1) * log_determinant
        return np.where(inside, value, -np.inf)

    def _sample(self, n, rng):
        root = self._sample_roots(n, rng)
        return root @ np.swapaxes(root, -1, -2)

    def _sample_roots(self, n, rng):
        """Bartlett: T B with B lower triangular, chi variables on its diagonal, and T T' the scale."""
        lower = np.tril(rng.standard_normal((n, self.dim, self.dim)), -1)
        diagonal = np.sqrt(2.0 * rng.standard_gamma(self._shapes()[0], (n, self.dim)))
        lower[:, range(self.dim), range(self.dim)] = diagonal
        return self._root @ lower


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NormalWishart(Distribution):
    """The conjugate prior of a Gaussian's mean mu and precision L: N(mu; m0, (beta L)^-1) Wishart(L; nu, V).

    Parameters
    ----------
    mean : array_like, shape (D,)
        m0, the mean of mu.
    mean_precision : float
        beta, positive: how many observations the knowledge of mu is worth.
    degrees_of_freedom : float
        nu, greater than D - 1.
    inverse_scale : array_like, shape (D, D)
        V, positive definite.

    Attributes
    ----------
    mean : ndarray (D,)
        m0, read-only.
    mean_precision : float
        beta.
    precision : Wishart
        The distribution of L.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefiniteError
        For parameters outside their domain.

    Notes
    -----
    `natural` holds beta m0, -beta/2, (nu - D)/2 and -(V + beta m0 m0')/2; `statistics` the expectations of L mu,
    mu'L mu, log|L| and L. A point (and a sample) is a (D + 1, D) array: mu in its first row, L below. When V is small
    beside beta m0 m0', `with_natural` recovers it from a difference that has lost as many digits: centre the data.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006: (10.40), (B.52).

    Examples
    --------
    >>> from cavity.distributions import NormalWishart
    >>> q = NormalWishart([1.0, 0.0], 2.0, 5.0, [[2.0, 0.0], [0.0, 4.0]])
    >>> q.precision.mean.round(12).tolist(), q.covariance.tolist()
    ([[2.5, 0.0], [0.0, 1.25]], [[0.5, 0.0], [0.0, 1.0]])
    """

    mean: FloatOrArray
    mean_precision: float
    degrees_of_freedom: float
    inverse_scale: FloatOrArray
    precision: Wishart = field(init=False)

    def __post_init__(self) -> None:
        mean = arrays.check_finite_array(self.mean, "mean", ndim=(1,))
        V = arrays.check_symmetric(self.inverse_scale, "inverse_scale", len(mean))
        precision = Wishart(self.degrees_of_freedom, V)
        beta = arrays.check_number(self.mean_precision, "mean_precision", low=0)
        if beta == np.inf:
            raise ValueError("mean_precision must be finite, got inf")
        shared = {name: getattr(precision, name) for name in ("degrees_of_freedom", "inverse_scale")}
        set_fields(self, mean=arrays.copy_read_only(mean), mean_precision=beta, precision=precision, **shared)

    @property
    def dim(self) -> int:
        """The dimension D."""
        return len(self.mean)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape (D + 1, D) of one sample."""
        return (self.dim + 1, self.dim)

    @property
    def natural(self) -> FloatArray:
        """beta m0, -beta/2, (nu - D)/2 and -(V + beta m0 m0')/2, raveled."""
        m, beta = self.mean, self.mean_precision
        with np.errstate(over="ignore"):
            second = -0.5 * (self.inverse_scale + beta * np.outer(m, m))
            parts = [beta * m, [-0.5 * beta, 0.5 * (self.degrees_of_freedom - self.dim)], second.ravel()]
        return check_within_range(np.concatenate(parts), "natural: the parameters")

    @property
    def statistics(self) -> FloatArray:
        """The expectations of L mu, mu'L mu, log|L| and L, raveled."""
        L = self.precision.mean
        with np.errstate(over="ignore", invalid="ignore"):
            first = L @ self.mean
            scalars = [self.dim / self.mean_precision + self.mean @ first, self.precision.statistics[0]]
        return check_within_range(np.concatenate([first, scalars, L.ravel()]), "statistics: the moments")

    @property
    def covariance(self) -> FloatArray:
        """The covariance V/(beta (nu - D - 1)) of mu, shape (D, D); infinite if nu <= D + 1."""
        surplus = self.degrees_of_freedom - self.dim - 1
        if surplus <= 0:
            return np.full(self.inverse_scale.shape, np.inf)
        return self.inverse_scale / (self.mean_precision * surplus)

    def entropy(self) -> float:
        """Return the differential entropy in nats of mu and the D (D + 1)/2 free entries of L.

        Returns
        -------
        float
            The entropy of L plus the expected entropy of mu given L.
        """
        conditional = self.dim * (1.0 + LOG_2PI - np.log(self.mean_precision)) - self.precision.statistics[0]
        return self.precision.entropy() + 0.5 * float(conditional)

    def __repr__(self) -> str:
        return f"<NormalWishart in {self.dim} dimension(s), {self.degrees_of_freedom:g} degrees of freedom>"

    def _from_natural(self, vector):
        d = self.dim
        beta = arrays.check_number(-2.0 * vector[d], "mean_precision", low=0)
        m = vector[:d] / beta
        V = -2.0 * vector[d + 2 :].reshape(d, d) - np.outer(m, vector[:d])
        return NormalWishart(m, beta, 2.0 * vector[d + 1] + d, V)

    @quiet
    def _log_density(self, x):
        mu, L = x[..., 0, :], x[..., 1:, :]
        deviation = mu - self.mean
        value = self.precision.log_density(L)
        quadratic = np.einsum("...i,...ij,...j->...", deviation, L, deviation)
        log_determinant = np.linalg.slogdet(L)[1]
        conditional = self.dim * (np.log(self.mean_precision) - LOG_2PI) + log_determinant
        conditional = 0.5 * (conditional - self.mean_precision * quadratic)
        return np.where(np.isneginf(value), -np.inf, value + conditional)

    def _sample(self, n, rng):
        root = self.precision._sample_roots(n, rng)
        z = rng.standard_normal((n, self.dim, 1))
        transposed = np.swapaxes(root, -1, -2)
        step = np.linalg.solve(transposed, z)[..., 0] / np.sqrt(self.mean_precision)
        L = root @ transposed
        return np.concatenate([(self.mean + step)[:, None, :], L], axis=1)
