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

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.errors import check_within_range
from cavity.base.rows import Rows
from cavity.covariances.program import get_program
from cavity.likelihoods import Gaussian, Laplace, StudentT
from cavity.likelihoods.predictive import MIN_VARIANCE
from cavity.models.process.model import compute_prior_means
from cavity.models.streaming_gp.inducing_basis import ROWS_PER_BLOCK
from cavity.runs import merge
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import map_runs, reduce_runs
from cavity.sources.dense_rows import in_blocks, open_dense

CALLING_THREAD = Threads(1)  # for tasks, which run on threads themselves
BLOCKS_PER_TASK = 4  # of ROWS_PER_BLOCK, which take some 10 ms with 200 inducing points
MAX_KEPT_NUMBERS = 1 << 22  # of W that are kept rather than computed again


@dataclass(frozen=True, slots=True, eq=False)
class BatchRows(Rows):
    """Checked rows of a batch, none of weight zero: X is an array in C order or a Source."""

    def spans(self):
        """Return the (start, stop) of the blocks."""
        return merge.split_rows(self.n, ROWS_PER_BLOCK)

    def map_blocks(self, function, threads):
        """Yield function(X, start) for each block of X, finite, float64 in C order, that begins with row `start`."""
        blocks = in_blocks(self.X, ROWS_PER_BLOCK)
        return map_runs(BlockTask(_call_on_block), (blocks, function), [blocks], threads, grain=1)

    def sum_blocks(self, function, threads):
        """Return the sum of what `map_blocks` yields."""
        blocks = in_blocks(self.X, ROWS_PER_BLOCK)
        return reduce_runs(BlockTask(_call_on_block), (blocks, function), [blocks], threads, grain=BLOCKS_PER_TASK)

    def sample_rows(self, most):
        """Return at most that many rows of X, at equal distances, in C order, and their indices."""
        step = max(1, -(-self.n // most))
        X = np.ascontiguousarray(self.X[::step]) if isinstance(self.X, np.ndarray) else self.X.sample(most)
        return X, np.arange(0, self.n, step)

    def observed(self, index):
        """Return what was observed in some rows, without X."""
        return replace(self, X=None).part(index)

    def base(self, model, X, part):
        """Return prior means of f of a part, whose rows are X."""
        base = compute_prior_means(model, X)
        return base if self.offset is None else base + self.offset[part]

    def compute_prior_means(self, model, threads):
        """Return prior means of f of all rows, (N,)."""
        if np.ndim(model.mean) == 0:  # X does not matter
            return self.base(model, np.empty((self.n, 0)), slice(None))

        def base(X, start):
            return self.base(model, X, slice(start, start + len(X)))

        return np.concatenate(list(self.map_blocks(base, threads)))


def _call_on_block(X, start, broadcast):
    """Call a function for a block of rows."""
    blocks, function = broadcast
    blocks.check_finite(X, start)
    return function(X, start)


def compute_fractions(weights, alpha):
    """The exponents f of the sites, see `cavity.ep.sites`: alpha, or alpha/w for w copies of a row."""
    return alpha / np.maximum(1.0, weights)


def compute_features(basis, rows, threads):
    """W and residuals of every block, kept if that takes little memory; else None."""
    if rows.n * max(basis.n, 1) > MAX_KEPT_NUMBERS:
        return None
    return list(rows.map_blocks(lambda X, start: basis.features(X, threads), threads))


def is_exact(likelihood):
    """Whether rows of a likelihood are Gaussian factors as they are."""
    return isinstance(likelihood, Gaussian)


def compute_loss_rates(model, X, rows, index):
    """Return the nats that a unit of residual variance costs at rows of an index, whose features are X."""
    if is_exact(model.likelihood):
        rate = check_within_range(0.5 * rows.precision(model.likelihood), "the precisions of the noise")
        return np.broadcast_to(rate, (rows.n,))[index]
    weight = np.broadcast_to(rows.weight(), (rows.n,))[index]
    if isinstance(model.likelihood, Laplace | StudentT):  # observations of f with noise of that size
        return check_within_range(0.5 * weight / model.likelihood.scale**2, "the precisions of the noise")
    prior = get_program(model.covariance, X.shape[1]).diagonal(X)
    is_positive = prior > MIN_VARIANCE
    return np.where(is_positive, 0.5 * weight / np.where(is_positive, prior, 1.0), 0.0)


def open_rows(dataset, n_features):
    """Return the rows of a dataset as a batch has them; None if there are none."""
    if not dataset.n_rows and np.shape(dataset.X) in ((0,), (0, n_features)):
        return None
    return open_dense(dataset, ROWS_PER_BLOCK, n_features)
