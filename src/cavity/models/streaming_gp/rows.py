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
from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.base.frames import names_of, taken
from cavity.base.rows import Rows
from cavity.blocks import merge
from cavity.blocks.executors import Threads
from cavity.blocks.sources import Source, open_source
from cavity.covariances.program import program_of
from cavity.likelihoods import Gaussian, Laplace, StudentT
from cavity.models.gp.process import checked_X, prior_means, row_noise
from cavity.models.latent import KNOWN_VARIANCE
from cavity.models.streaming_gp.basis import ROWS_AT_ONCE

INLINE = Threads(1)  # for tasks, which run on threads themselves
KEPT_NUMBERS = 1 << 22  # of W that are kept rather than computed again


@dataclass(frozen=True, slots=True, eq=False)
class BatchRows(Rows):
    """Checked rows of a batch, none of weight zero: X is an array in C order, or a Source of blocks of ROWS_AT_ONCE."""

    def spans(self):
        """Return the (start, stop) of the blocks."""
        return merge.starts(self.n, ROWS_AT_ONCE)

    def block(self, start, stop):
        """Return rows of X, finite, float64 in C order."""
        if isinstance(self.X, np.ndarray):
            return self.X[start:stop]
        X = self.X.read(start // ROWS_AT_ONCE)
        bad = arrays.first_nonfinite(X)
        if bad is not None:
            row, column = bad
            raise ValueError(f"X must be finite, got {self.X.found(X[bad], start + row, column)}")
        return X

    def candidates(self, most):
        """Return at most that many rows of X, at equal distances, in C order, and their indices."""
        step = max(1, -(-self.n // most))
        X = np.ascontiguousarray(self.X[::step]) if isinstance(self.X, np.ndarray) else self.X.sample(most)
        return X, np.arange(0, self.n, step)

    def observed(self, index):
        """Return what was observed in some rows, without X."""
        return replace(self, X=None).part(index)

    def base(self, model, X, part):
        """Return prior means of f of a part, whose rows are X."""
        base = prior_means(model, X)
        return base if self.offset is None else base + self.offset[part]

    def bases(self, model):
        """Return prior means of f of all rows, (N,), block by block: one may be gone when the next is read."""
        out = np.empty(self.n)
        for start, stop in self.spans():
            out[start:stop] = self.base(model, self.block(start, stop), slice(start, stop))
        return out


def fractions(weights, alpha):
    """The exponents f of the sites, see `cavity.ep.sites`: alpha, or alpha/w for w copies of a row."""
    return alpha / np.maximum(1.0, weights)


def features(basis, rows, threads):
    """W and residuals of every block, kept if that takes little memory; else None."""
    if rows.n * max(basis.n, 1) > KEPT_NUMBERS:
        return None
    return threads.run(lambda start, stop: basis.features(rows.block(start, stop), INLINE), rows.spans())


def is_exact(likelihood):
    """Whether rows of a likelihood are Gaussian factors as they are."""
    return isinstance(likelihood, Gaussian)


def loss_rates(model, X, rows, index):
    """Return the nats that a unit of residual variance costs at rows of an index, whose features are X."""
    if is_exact(model.likelihood):
        rate = within_range(0.5 * rows.precision(model.likelihood), "the precisions of the noise")
        return np.broadcast_to(rate, (rows.n,))[index]
    weight = np.broadcast_to(rows.weight(), (rows.n,))[index]
    if isinstance(model.likelihood, Laplace | StudentT):  # observations of f with noise of that size
        return within_range(0.5 * weight / model.likelihood.scale**2, "the precisions of the noise")
    prior = program_of(model.covariance, X.shape[1]).diagonal(X)
    seen = prior > KNOWN_VARIANCE
    return np.where(seen, 0.5 * weight / np.where(seen, prior, 1.0), 0.0)


def checked_rows(model, n_features, X, y, offset, noise_variance, sample_weight):
    """Return rows checked, those of weight zero left out; None if there are none."""
    if names_of(X) is not None and len(X) > ROWS_AT_ONCE:  # fewer are one block, which is converted once
        X = open_source(X, "X", ndim=(2,), block_rows=ROWS_AT_ONCE)
    if isinstance(X, Source):
        if X.n_features != n_features:
            raise ValueError(f"X must have {n_features} columns like the data of the fit, got {X.n_features}")
    elif np.shape(X) in ((0,), (0, n_features)) and np.shape(y)[:1] == (0,):
        return None
    else:
        if len(np.shape(X)) == 2 and np.shape(X)[1] != n_features:
            raise ValueError(f"X must have {n_features} columns like the data of the fit, got {np.shape(X)[1]}")
        X = checked_X(X, n_features)
    noise = row_noise(model, noise_variance, X.shape[0])
    rows = BatchRows.checked(model.likelihood, X, y, offset, sample_weight, noise, some=False)
    if rows.left_out.all():
        return None
    if isinstance(X, Source) and rows.left_out.any():
        rows = replace(rows, X=X.rows())
    return rows.used()


def by_name(model, X, y, offset, exposure, noise_variance, sample_weight, columns=None, roles=None):
    """Return `frames.taken` of the arguments of an update; those without names may be in files, which are opened."""
    text = isinstance(y, list | tuple) and len(y) and isinstance(y[0], str)
    known = None if model.likelihood is None else model.likelihood.n_classes
    labels = text and (model.likelihood is None or known is not None) and not y[0].endswith(".npy")
    if names_of(X) is None:
        X, y = _opened(X), y if labels else _opened(y, "y", 1)
    y = y.rows() if isinstance(y, Source) else y
    given = {"y": y, "offset": offset, "exposure": exposure}
    given |= {"noise_variance": noise_variance, "sample_weight": sample_weight}
    return taken(X, given, columns, roles)


def some_rows(X):
    """Return checked rows by which settings can be scaled: all, or of rows in files some."""
    return X.sample() if isinstance(X, Source) else checked_X(X)


def _opened(data, name="X", ndim=2):
    """Return data in files, or mapped from one, as a Source of blocks of ROWS_AT_ONCE; other data as they are."""
    first = data[0] if isinstance(data, list | tuple) and len(data) else data
    if isinstance(first, str | os.PathLike) or isinstance(data, np.memmap):
        return open_source(data, name, ndim=(ndim,), block_rows=ROWS_AT_ONCE)
    return data
