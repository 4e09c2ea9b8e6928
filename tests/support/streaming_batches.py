"""What the tests of learning from streams share: rows, and two batches by the library and by integrals in 40 digits."""

import mpmath as mp
import numpy as np
from reference import streaming_learn as reference

from cavity import StreamingGP, covariances, likelihoods
from cavity.models.process.settings import Settings
from cavity.models.streaming_gp.bound_increment import BoundIncrement, RowSites
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information
from cavity.models.streaming_gp.new_data_factor import add_gaussian_rows
from cavity.models.streaming_gp.rows import BatchRows
from cavity.runs.executors import Threads

__all__ = ["JITTER", "THREADS", "Case", "model_of", "points", "rows_in", "rows_of", "settings_of"]

JITTER = 1e-6
THREADS = Threads(1)


def rows_of(n, seed=0, d=2):
    """Rows, what was seen there, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n), rng.uniform(0.4, 2.5, n)


def rows_in(X, y, w=None, noise=None):
    return BatchRows(X, y, None, w, noise)


def model_of(alpha, **settings):
    return StreamingGP(covariances.RBF(), alpha=alpha, jitter=JITTER, **settings)


def settings_of(kernel, noise=0.2):
    return Settings(kernel, likelihoods.Gaussian(noise))


def points(which, X):
    """Inducing points of a first batch, and of the second: the same, some of them, or none."""
    first = X[:4].copy()
    second = {
        "same": first,
        "turned": first[::-1],
        "partly": np.vstack([first[[2, 0]], X[4:7]]),
        "others": X[5:9].copy(),
    }[which]
    return first, second


class Case:
    """Two batches, by the library and by the twin; the second may be under another covariance."""

    def __init__(self, which, alpha, row_noise=False, negative=False, pooled=False):
        self.alpha, self.pooled, X, y, w = alpha, pooled, *rows_of(12)
        self.noise = np.linspace(0.1, 0.6, 6) if row_noise else None
        self.first, self.second = points(which, X)
        self.old_batch, self.rows = (X[:6], y[:6], w[:6]), (X[6:], y[6:], w[6:])
        self.sites = (np.array([0.3, -0.5, 0.2, 0.1, 0.9, -1.0]), np.array([0.8, -0.05, 0.0, 1.5, -0.1, 0.4]))
        self.sites = self.sites if negative else None

    def library(self, start, kernel):
        """(increment, its Increment, its IncrementPoint)."""
        X, y, w = self.old_batch
        model, basis = (
            model_of(self.alpha, likelihood=likelihoods.Gaussian(0.2)),
            InducingBasis.of(start, self.first, JITTER, THREADS),
        )
        old = basis, add_gaussian_rows(basis, Information.empty(4), rows_in(X, y, w), model, self.alpha, THREADS)
        X, y, w = self.rows
        batch = rows_in(X, y, w, self.noise)
        increment = BoundIncrement(old, self.second, batch, model, THREADS, pooled=self.pooled)
        sites = None
        if self.sites is not None:
            sites = RowSites(*self.sites, self.alpha * np.minimum(1.0, 1.0 / w))
        return increment, increment.at(settings_of(kernel, 0.5 if self.pooled else 0.2), sites=sites)

    def old(self, k, noise=0.2):
        """The state of the twin after the first batch."""
        X, y, w = self.old_batch
        sites, constant = reference.gaussian(y, [mp.mpf(noise)] * len(y), w)
        state = reference.batch(k, None, self.first, X, sites, w, self.alpha, JITTER)
        return *state[:3], state[3] + constant, state[4] + constant

    def twin(self, old, k, log_noise=None):
        """The increment of the second batch by the twin."""
        X, y, w = self.rows
        log_noise = mp.log(mp.mpf(0.2)) if log_noise is None else log_noise
        noise = [mp.exp(log_noise)] * len(y) if self.noise is None else [mp.mpf(v) for v in self.noise]
        sites, constant = reference.gaussian(y, noise, w)
        if self.sites is not None:
            sites, constant = [[mp.mpf(v) for v in part] for part in self.sites], 0
        return reference.batch(k, old, self.second, X, sites, w, self.alpha, JITTER)[4] + constant - old[4]
