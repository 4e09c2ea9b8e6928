"""Rows of regressions, sums of statistics over their blocks, and the fit by coordinate ascent."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cavity.base import arrays, column_statistics
from cavity.mean_field import engine
from cavity.models.linear.defaults import has_added_intercept, warn_of_intercepts
from cavity.models.observations import Observations
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import MAX_RUN_BLOCKS, reduce_runs
from cavity.sources.dataset import Dataset
from cavity.sources.features import SPARSE_KIND, kind_of
from cavity.sources.sources import Source, open_source


def fit_weights(model, X, y, sweeps_of, missing, run):
    """Approximate the posterior of the weights of a regression by coordinate ascent.

    Parameters
    ----------
    model : LinearRegression or LogisticRegression
        The settings.
    X, y : Data and array_like
        The arguments of `fit`.
    sweeps_of : type
        `LinearSweeps` or `LogisticSweeps`: a view of the engine with a `likelihood` of y, `block_rows`, which returns
        the number of rows of a block, and `ascend`, which returns the fit and the fields of its posterior.
    missing : {"raise", "drop"}
        What is done about rows with missing values.
    run : AscentOptions
        How to iterate.

    Returns
    -------
    dict
        The fields of the posterior, by name.
    """
    dataset = Dataset.open(X, {"y": y}, remote=True).leave_out(missing)
    observations = Observations.of(sweeps_of.likelihood, dataset, remote=True)
    features = open_rows(dataset)
    features.block_rows = sweeps_of.block_rows(features.n_features)
    rows = RegressionRows.of(features, observations.y, model.intercept)
    with run.open(model, {"X": rows.X, "y": rows.y}) as threads:
        sweeps = sweeps_of(model, rows, threads, run.job.substage("rows"))
        done, fields = sweeps.ascend(replace(run, job=run.job.substage("passes")))
    fields |= {"model": model, "n_samples": rows.n, "intercept_prior": sweeps.prior.intercept}
    fields |= {"observation_digest": observations.digest, **observations.labels}
    return fields | engine.report_outcome(done, rows.n, run)


PRODUCTS_PER_CHECK = 1 << 28  # products that a thread sums between two checks for an interrupt


def open_rows(dataset, block_rows=None):
    """Return the features of a dataset as a Source (N, D); those of a sparse matrix are filled in block by block."""
    source = dataset.blocks(block_rows)
    size, description = source.n_features, "the covariance of the weights"
    description += ", which is dense," * (kind_of(dataset.X) == SPARSE_KIND)
    arrays.allocate_matrix((size, size), description, "; GLM(approximation='diagonal') takes many columns")
    return source


@dataclass(frozen=True, slots=True)
class RegressionRows:
    """Rows X (N, D), whose numbers are checked in the first pass, and as many observations.

    Observations are checked and in memory, or remote with X.
    """

    X: Source
    y: Source
    intercept: bool = False  # whether functions of blocks get a column of ones before the others

    @classmethod
    def of(cls, X, y, intercept=False):
        """Return the rows of a Source, and an array or a Source; warn as a GLM where X and the setting do not agree."""
        y = open_source(y, "y", block_rows=X.block_rows)
        if y.n_rows != X.n_rows:
            raise ValueError(f"y must have one entry per row of X, that is {X.n_rows}, got {y.n_rows}")
        if intercept is not False:
            warn_of_intercepts(intercept, find_constant_columns(X))
        return cls(X, y, has_added_intercept(intercept))

    @property
    def n(self):
        """N."""
        return self.X.n_rows

    @property
    def width(self):
        """The number of weights."""
        return self.X.n_features + self.intercept

    def total(self, function, broadcast, threads, add=None):
        """Return the sum of the arrays function(X, y, start, broadcast) over blocks; ValueError naming the first number
        of X that is not finite.
        """
        task = BlockTask(partial(apply_with_ones, function) if self.intercept else function, add=add)
        grain = min(MAX_RUN_BLOCKS, max(1, PRODUCTS_PER_CHECK // (self.X.block_rows * self.X.n_features**2)))
        out = reduce_runs(task, broadcast, (self.X, self.y), threads, grain=grain, add=add)
        if not all(np.isfinite(sums).all() for sums in (out if isinstance(out, tuple) else (out,))):
            self.X.summary(threads)
            self.y.summary(threads)
        return out


def add_ones(X):
    """Return the rows of a block with a column of ones before the others."""
    return np.column_stack((np.ones(len(X)), X))


def apply_with_ones(function, X, y, start, broadcast):
    """Return a function of a block with a column of ones before the others."""
    return function(add_ones(X), y, start, broadcast)


def find_constant_columns(X):
    """Return which columns of a Source have one value other than 0, a mask (D,).

    Rows beyond the first block are read only if a column is constant there.
    """
    mask = column_statistics.constant_columns(X.rows(0, min(X.block_rows, X.n_rows)))
    if mask.any() and X.block_count > 1:
        with Threads(1) as thread:
            low, high, _ = X.summary(thread)
        mask = (low == high) & (low != 0)
    return mask
