"""What the tests of streaming Gaussian processes share: problems, models with their naive twins, comparisons."""

from dataclasses import dataclass

import numpy as np
from reference import streaming_gp as reference

import cavity
from cavity import likelihoods
from cavity.covariances import RBF

__all__ = ["Problem", "assert_same_bits", "assert_state", "bits", "model_of", "pieces", "problem"]


@dataclass
class Problem:
    """Rows of a function with noise, inducing points, and a covariance twice: the library's and the reference's."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    variance: float
    lengthscale: float
    noise: float
    jitter: float
    rng: np.random.Generator

    @property
    def covariance(self):
        """The library's."""
        return RBF(self.variance, lengthscale=self.lengthscale)

    @property
    def k(self):
        """The reference's."""
        return reference.rbf(self.variance, self.lengthscale)

    def model(self, **changes):
        """The library's model with these inducing points."""
        settings = {"likelihood": likelihoods.Gaussian(self.noise), "inducing": self.Z, "jitter": self.jitter}
        return cavity.StreamingGP(self.covariance, **settings | changes)

    def fit(self, X=None, y=None, **changes):
        """The library's state after the rows, or those given."""
        X, y = (self.X, self.y) if X is None else (X, y)
        return self.model(**changes).fit(X, y, learn=False)

    def many(self, digits_of):
        """Arrays in mpmath's numbers."""
        return (reference.many_digits(getattr(self, name)) for name in digits_of)


def problem(seed=0, n=30, m=6, d=1, jitter=1e-6):
    """A random problem."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    y = np.sin(2 * X[:, 0]) + X[:, -1] / 2 + 0.3 * rng.normal(size=n)
    Z = rng.uniform(-3, 3, (m, d))
    return Problem(X, y, Z, rng.uniform(0.3, 3), rng.uniform(0.5, 2), rng.uniform(0.05, 0.5), jitter, rng)


def model_of(p, **changes):
    """`p.model`."""
    return p.model(**changes)


def pieces(rng, n, most=5):
    """A random division of range(n) into batches, empty ones among them."""
    cuts = np.sort(rng.integers(0, n + 1, rng.integers(0, most)))
    return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


def assert_state(state, q, log_bound, atol=1e-9):
    """Compare q(u), in standard deviations, and the bound."""
    mean, S = (reference.plain(part) for part in q)
    sd = np.sqrt(np.diag(S))
    np.testing.assert_allclose(state.mean / sd, mean / sd, rtol=0, atol=atol)
    np.testing.assert_allclose(state.covariance / np.outer(sd, sd), S / np.outer(sd, sd), rtol=0, atol=atol)
    assert abs(state.log_bound - reference.plain(log_bound)) < atol * (1 + abs(reference.plain(log_bound)))


def bits(state):
    """All that a state knows, as bytes."""
    arrays, settings = state.to_arrays()
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}, repr(settings)


def assert_same_bits(a, b):
    """Compare all that two states know."""
    mine, theirs = bits(a), bits(b)
    assert mine[1] == theirs[1]
    assert mine[0] == theirs[0]
