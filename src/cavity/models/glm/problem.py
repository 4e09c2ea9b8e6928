"""The problem of a GLM: rows, those that inform the weights, and the prior."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LARGEST_REACH, SMALLEST_REACH
from cavity.base.rows import Rows
from cavity.ep.factories import make_geometry
from cavity.jobs.job import SILENT_JOB
from cavity.models.linear.prior import Prior
from cavity.sources.features import ROWS_PER_BLOCK, SPARSE_KIND, kind_of, reach_of
from cavity.sources.read_ahead import iterate_blocks

MATRICES_PER_FIT = 6  # (D, D), or (N, N) if N < D: sums, factor and root, before a step and after it
ROW_COPIES_PER_FIT = 2  # if N < D: rows times the prior's root, and the directions that they span
USUAL_SQUARES = 1e-280, 1e290  # of lengths of rows of up to 1e20 columns whose largest entries are within these


@dataclass(frozen=True, slots=True, eq=False)
class GLMProblem:
    """Rows and prior of a fit."""

    model: object  # the GLM
    rows: Rows  # all
    used: Rows  # those with sites
    prior: Prior

    @classmethod
    def of(cls, model, rows):
        """Return the problem of a model whose settings are numbers and of checked rows."""
        X = rows.X
        prior = Prior.of(model.prior_mean, model.prior_variance, X.shape[1])
        if model.approximation == "full":
            silent = ~rows.left_out & _find_silent_rows(X, float(np.max(np.abs(prior.root))))
            rows = replace(rows, f_known=silent if silent.any() else None)
        return cls(model, rows, rows.used(), prior)

    def with_prior(self, mean, variance, root=None):
        """Return the same rows with another prior, which is factorised if its root is not given."""
        prior = Prior.of(mean, variance, len(self.prior.mean)) if root is None else Prior(mean, variance, root)
        return replace(self, prior=prior)

    def geometry(self, threads, job=SILENT_JOB):
        """Return where the sites of the rows in use act; scratch files are beside the checkpoint of a job."""
        return make_geometry(self.used.X, self.used.offset, *self.prior.moments, threads, job.folder)


def _find_silent_rows(X, scale):
    """Return which rows of X are zero, or so small that the variance of f underflows: they do not inform w."""
    silent = np.zeros(len(X), dtype=bool)
    least, largest = reach_of(X)
    if scale * least >= SMALLEST_REACH and scale * largest < LARGEST_REACH:
        return silent
    for part, x in iterate_blocks(X, ROWS_PER_BLOCK):
        if is_usual(x, scale):
            continue
        reach = scale * np.max(np.abs(x), axis=1)
        silent[part] = reach < SMALLEST_REACH
        if not np.all(reach < LARGEST_REACH):
            row = part.start + int(np.argmax(~(reach < LARGEST_REACH)))
            raise OverflowError(
                f"the latent value of row {row} leaves the range of float64; rescale y or the columns of X"
            )
    return silent


def is_usual(x, scale):
    """Whether the lengths of all rows are well inside the limits: their squares are found far faster than maxima."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = scale * scale * np.einsum("ij,ij->i", x, x)
    return squares.size > 0 and squares.min() > USUAL_SQUARES[0] and squares.max() < USUAL_SQUARES[1]


def check_memory(dataset, approximation, weights):
    """Raise MemoryError, before any row is read, if matrices of dependent weights do not fit into memory."""
    if approximation == "diagonal" or len(dataset.shape) != 2 or kind_of(dataset.X) == SPARSE_KIND:
        return  # `open_features` refuses the last two, or there is little data
    n, d = dataset.n_rows if weights is None else np.count_nonzero(weights), dataset.shape[1]
    remedy = "; approximation='diagonal' takes many columns", "approximation"
    size = min(n, d)
    for count, shape, description in (
        (MATRICES_PER_FIT, (size, size), "matrices"),
        (ROW_COPIES_PER_FIT if n < d else 0, (n, d), "copies of X"),
    ):
        arrays.allocate_matrices(count, shape, f"approximation='full': {count} {description}, each", *remedy)
