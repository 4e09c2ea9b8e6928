"""What a fit of a GLM is given, checked once: rows, which of them tell something about the weights, and the prior."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.rows import Rows
from cavity.blocks.job import QUIET
from cavity.blocks.reading import each_block, is_elsewhere, is_stored
from cavity.ep.dense import Dense
from cavity.ep.elsewhere import DenseElsewhere
from cavity.models.glm.weights import ROWS_TOGETHER

SMALLEST_REACH, LARGEST_REACH = 1e-150, 1e150  # of a row times the prior sd: squares stay in the range of float64
USUAL_SQUARES = 1e-280, 1e290  # of lengths of rows of up to 1e20 columns whose largest entries are within these


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """N(mean, root root') of the weights, or what takes its place in an update."""

    mean: np.ndarray  # (D,)
    variance: np.ndarray  # (), (D,) or (D, D), as it was given
    root: np.ndarray  # (D,) where the weights are independent, else (D, D)

    @classmethod
    def of(cls, mean, variance, n_features):
        """Return the prior of D weights, its variance factorised; ValueError if numbers are not for so many."""
        mean, variance = np.array(arrays.vector(mean, "prior_mean", n_features)), np.asarray(variance)
        d = n_features
        if variance.shape not in ((), (d,), (d, d)):
            raise ValueError(
                f"prior_variance must be a number or have shape ({d},) or ({d}, {d}) for {d} columns, "
                f"got {variance.shape}"
            )
        if variance.ndim == 2:
            return cls(mean, variance, arrays.cholesky(variance, "prior_variance"))
        return cls(mean, variance, np.sqrt(np.broadcast_to(variance, (d,))))

    @property
    def moments(self):
        """Mean and root, as geometries take them."""
        return self.mean, self.root


@dataclass(frozen=True, slots=True, eq=False)
class GLMProblem:
    """Rows and prior of a fit."""

    model: object  # the GLM
    rows: Rows  # all that were given
    used: Rows  # those that get a site
    prior: Prior

    @classmethod
    def of(cls, model, rows):
        """Return the problem of a model whose settings are numbers and of checked rows."""
        X = rows.X
        prior = Prior.of(model.prior_mean, model.prior_variance, X.shape[1])
        if model.approximation == "full":
            silent = ~rows.left_out & _silent(X, float(np.max(np.abs(prior.root))))
            rows = replace(rows, f_known=silent if silent.any() else None)
        return cls(model, rows, rows.used(), prior)

    def with_prior(self, mean, variance, root=None):
        """Return the same rows with another prior, which is factorised if its root is not given."""
        prior = Prior.of(mean, variance, len(self.prior.mean)) if root is None else Prior(mean, variance, root)
        return replace(self, prior=prior)

    def geometry(self, threads, job=QUIET):
        """Return where the sites of the rows in use act; scratch files are beside the checkpoint of a job."""
        kind = DenseElsewhere if is_elsewhere(self.used.X) else Dense
        return kind(self.used.X, self.used.offset, *self.prior.moments, threads, job.folder)


def _silent(X, scale):
    """Return which rows of X are zero, or so small that the variance of f underflows: they say nothing about w."""
    silent = np.zeros(len(X), dtype=bool)
    if is_stored(X) and scale * X.least >= SMALLEST_REACH and scale * max(*X.high, *-X.low) < LARGEST_REACH:
        return silent
    for part, x in each_block(X, ROWS_TOGETHER):
        if is_usual(x, scale):
            continue
        reach = scale * np.max(np.abs(x), axis=1)
        silent[part] = reach < SMALLEST_REACH
        if not np.all(reach < LARGEST_REACH):
            row = part.start + int(np.argmax(~(reach < LARGEST_REACH)))
            raise OverflowError(f"the latent value of row {row} leaves the range of float64; rescale the columns of X")
    return silent


def is_usual(x, scale):
    """Whether the lengths of all rows are well inside the limits: their squares are found far faster than maxima."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = scale * scale * np.einsum("ij,ij->i", x, x)
    return squares.size > 0 and squares.min() > USUAL_SQUARES[0] and squares.max() < USUAL_SQUARES[1]
