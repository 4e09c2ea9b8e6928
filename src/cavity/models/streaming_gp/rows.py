"""The rows of a batch, and how a sparse Gaussian process takes them in: by sums over blocks, or by EP.

Each row has a site on its f. Given the inducing variables f_n = g_n + N(0, residual_n), g_n = W_n'w, so on g_n a site
(tau, rho) acts as (tau, rho)/(1 + fraction rho residual_n): with fraction 0 as in VFE [T]_, with 1 as in FITC, in
between as in power EP [BYT]_ (eq. 17).

References
----------
.. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

import os
from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.rows import observations, row_vector, row_weights
from cavity.blocks import merge
from cavity.blocks.executors import Threads
from cavity.blocks.sources import Source, open_source
from cavity.likelihoods import Gaussian
from cavity.likelihoods.base import ONE
from cavity.models.gp.process import checked_X, prior_means, row_noise
from cavity.models.streaming_gp.basis import BLOCK

INLINE = Threads(1)  # for tasks, which run on threads themselves
HELD = 1 << 22  # numbers of W that are kept rather than computed again


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Checked rows: none has weight zero."""

    X: object  # (N, D) array in C order, or Source in blocks of BLOCK rows
    y: np.ndarray
    offset: np.ndarray | None  # (N,)
    weights: np.ndarray | None  # (N,)
    noise: np.ndarray | None  # (N,): known noise variances

    @property
    def n(self):
        """N."""
        return len(self.y)

    def spans(self):
        """The (start, stop) of the blocks."""
        return merge.starts(self.n, BLOCK)

    def block(self, start, stop):
        """Rows of X, finite, float64 in C order."""
        if isinstance(self.X, np.ndarray):
            return self.X[start:stop]
        X = self.X.read(start // BLOCK)
        bad = arrays.first_nonfinite(X)
        if bad is not None:
            row, column = bad
            raise ValueError(f"X must be finite, got {X[bad]} in {self.X.where(start + row)}, column {column}")
        return X

    def candidates(self, most):
        """At most that many rows, at equal distances, in C order like all rows, and their indices."""
        step = max(1, -(-self.n // most))
        X = np.ascontiguousarray(self.X[::step]) if isinstance(self.X, np.ndarray) else self.X.sample(most)
        return X, np.arange(0, self.n, step)

    def weight(self, part=slice(None)):
        """Weights of a part, (n,) or (1,) where all are one."""
        return ONE if self.weights is None else self.weights[part]

    def base(self, model, X, part):
        """Prior means of f of a part."""
        base = prior_means(model, X)
        return base if self.offset is None else base + self.offset[part]

    def bases(self, model):
        """Prior means of f of all rows, (N,), block by block: one may be gone when the next is read."""
        out = np.empty(self.n)
        for start, stop in self.spans():
            out[start:stop] = self.base(model, self.block(start, stop), slice(start, stop))
        return out

    def noise_variance(self, likelihood, part=slice(None)):
        """Noise variances of Gaussian observations of a part, a number or (n,)."""
        return likelihood.noise_variance if self.noise is None else self.noise[part]

    def precision(self, likelihood, part=slice(None)):
        """Precisions of Gaussian observations of a part, weights included, (n,) or (1,)."""
        return self.weight(part) / self.noise_variance(likelihood, part)


def fractions(weights, alpha):
    """The exponents f of the sites, see `cavity.ep.sites`: alpha, or alpha/w for w copies of a row."""
    return alpha / np.maximum(1.0, weights)


def features(basis, rows, threads):
    """W and residuals of every block, kept if that takes little memory; else None."""
    if rows.n * max(basis.n, 1) > HELD:
        return None
    return threads.run(lambda start, stop: basis.features(rows.block(start, stop), INLINE), rows.spans())


def is_exact(likelihood):
    """Whether rows of a likelihood are Gaussian factors as they are."""
    return isinstance(likelihood, Gaussian)


def checked_rows(model, n_features, X, y, offset, noise_variance, sample_weight):
    """Rows checked, those of weight zero left out; None if there are none."""
    source = paths_in(X)
    if source is None:
        if np.shape(X) in ((0,), (0, n_features)) and np.shape(y)[:1] == (0,):
            return None
        if len(np.shape(X)) == 2 and np.shape(X)[1] != n_features:
            raise ValueError(f"X must have {n_features} columns like the data of the fit, got {np.shape(X)[1]}")
        X = checked_X(X, n_features)
    elif source.n_features != n_features:
        raise ValueError(f"X must have {n_features} columns like the data of the fit, got {source.n_features}")
    n = len(X) if source is None else source.n_rows
    y = paths_in(y, "y", 1).rows() if paths_in(y, "y", 1) is not None else y
    y = observations(model.likelihood, y, n)
    offset = None if offset is None else row_vector(offset, "offset", n)
    noise = row_noise(model, noise_variance, n)
    weights = None if sample_weight is None else row_weights(sample_weight, n, some=False)
    if weights is not None and np.any(weights == 0):
        keep = weights > 0
        if not np.any(keep):
            return None
        X, source = (X if source is None else source.rows())[keep], None
        y, weights = y[keep], weights[keep]
        offset, noise = (None if a is None else a[keep] for a in (offset, noise))
    if weights is not None and np.all(weights == 1):
        weights = None
    return Rows(X if source is None else source, y, offset, weights, noise)


def paths_in(data, name="X", ndim=2):
    """Return data in files, or mapped from one, as a Source; None for other data."""
    first = data[0] if isinstance(data, list | tuple) and len(data) else data
    if isinstance(first, str | os.PathLike) or isinstance(data, np.memmap | Source):
        return open_source(data, name, ndim=(ndim,), block_rows=BLOCK)
    return None
