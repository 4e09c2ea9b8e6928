"""Base classes of Bayesian regressions by mean field: the precisions of the weights, and predictions from q(w)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays, records
from cavity.base.constants import LOG_2PI
from cavity.base.errors import check_within_range
from cavity.base.missing_values import DroppedRows
from cavity.base.public_objects import ArrayLike, Data, FloatArray, Seed, check_positive, set_fields
from cavity.base.records import FINITE_REAL, POSITIVE_REAL, REAL_LISTS, TRUTH_VALUE, Array, Made, Nullable, declare
from cavity.base.results import VariationalPosterior, declare_common, format_count
from cavity.base.rows import check_moments, check_n_features
from cavity.distributions import Gamma
from cavity.distributions.divergence import kl
from cavity.models.average_effects import AverageEffects
from cavity.models.coefficients import ColumnCoefficients
from cavity.models.latent_posterior import Predictions
from cavity.models.linear.defaults import ColumnScales, add_intercept, check_intercept
from cavity.models.linear.prior import Prior
from cavity.models.regression.rows import add_ones, open_rows
from cavity.models.row_predictions import name_moments, predict_rows
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import map_runs

PREDICT_ROWS = 4096


@dataclass(frozen=True, slots=True)
class WeightPrior:
    """w_i ~ N(0, 1/alpha_i): alpha known, or alpha_i ~ Gamma(shape, rate) for each weight (ard) or one for all.

    The precision of an added intercept is known: it comes before the others, and no alpha is learnt from its weight.
    """

    precisions: FloatArray | None  # (D,) precisions
    ard: bool
    shape: float
    rate: float
    size: int
    intercept: tuple[float, float] | None = None  # mean and variance

    @classmethod
    def of(cls, model, size, intercept=None):
        """Return the prior of a model for `size` columns and an added intercept, if any."""
        precisions = None
        if model.prior_variance is not None:
            precisions = 1.0 / arrays.check_vector(model.prior_variance, "prior_variance", size)
        return cls(precisions, model.ard, model.prior_shape, model.prior_rate, size, intercept)

    @staticmethod
    def of_intercept(model, location, size, mean, sd, least):
        """Return mean and variance of the prior of an added intercept, those of a GLM.

        Parameters
        ----------
        model : LinearRegression or LogisticRegression
            The settings. A learnt prior variance of a column counts as the default of a GLM.
        location, size : float
            Median of y, 0 for labels, and the default prior sd of the weight of a column of unit variance.
        mean, sd : ndarray (D,)
            Of the columns of X.
        least : float
            Standard deviations below this multiple of the mean are rounding errors.

        Returns
        -------
        tuple of two floats
            Mean and variance.
        """
        variance = model.prior_variance
        if variance is None:
            variance = (size / np.where(sd > least * np.abs(mean), sd, np.inf)) ** 2
        wide, columns = None if model.intercept is True else model.intercept, ColumnScales(mean, sd)
        prior = add_intercept(Prior.of(0.0, variance, len(mean)), columns, location, size, wide)
        return tuple(float(moments[0]) for moments in prior)

    @property
    def is_learnt(self):
        """Whether q has a factor for alpha."""
        return self.precisions is None

    @property
    def added(self):
        """Precisions of weights that come before those of columns, (0,) or (1,)."""
        return np.array([] if self.intercept is None else [1.0 / self.intercept[1]])

    def around(self, precisions):
        """Return q(alpha) with these means of all weights and shape 1; None if alpha is known."""
        if not self.is_learnt:
            return None
        precisions = precisions[self.added.size :]
        mean = precisions if self.ard else float(np.exp(np.mean(np.log(precisions))))
        return Gamma(np.full(np.shape(mean), 1.0), 1.0 / mean)

    def update(self, second):
        """Return the best q(alpha) given E[w_i^2]."""
        if not self.is_learnt:
            return None
        second = second[self.added.size :]
        if self.ard:
            return Gamma(np.full(self.size, self.shape + 0.5), self.rate + 0.5 * second)
        return Gamma(self.shape + 0.5 * self.size, self.rate + 0.5 * float(np.sum(second)))

    def mean(self, q):
        """Return E[alpha] of all weights."""
        return np.append(self.added, np.broadcast_to(q.mean, self.size) if self.is_learnt else self.precisions)

    def elbo(self, q, second):
        """Return E[log p(w | alpha)] - KL(q(alpha) || p(alpha)), given E[w_i^2]."""
        alpha = self.mean(q)
        if self.is_learnt:
            statistics = q.statistics
            logs = np.append(np.log(self.added), np.broadcast_to(statistics[: statistics.size // 2], self.size))
            divergence = float(np.sum(kl(q, Gamma(self.shape, self.rate))))
        else:
            logs, divergence = np.log(alpha), 0.0
        return 0.5 * float(np.sum(logs - LOG_2PI - alpha * second)) - divergence


def check_prior(model):
    """Check and store the settings of a model that `WeightPrior` uses."""
    if model.prior_variance is not None:
        variance = arrays.check_positive_array(model.prior_variance, "prior_variance")
        arrays.check_ndim(variance, "prior_variance", (0, 1))
        set_fields(model, prior_variance=arrays.to_tuple(variance))
        if model.ard:
            raise ValueError("ard=True learns the prior variances: leave prior_variance None")
    set_fields(model, ard=arrays.check_flag(model.ard, "ard"), intercept=check_intercept(model.intercept))
    check_positive(model, "prior_shape", "prior_rate")


PRIOR_SETTINGS = {
    "prior_variance": Nullable(REAL_LISTS),
    "ard": TRUTH_VALUE,
    "prior_shape": POSITIVE_REAL,
    "prior_rate": POSITIVE_REAL,
}
INTERCEPT_SETTING = records.Setting(
    "true, false or a number above 0", lambda value: TRUTH_VALUE.test(value) or POSITIVE_REAL.test(value)
)


def _list_arrays(settings):
    alpha = Array("C" if settings["model"]["ard"] else "()", "positive")
    return {} if settings["model"]["prior_variance"] is not None else {"alpha_shape": alpha, "alpha_rate": alpha}


def find_block_moments(X, start, broadcast):
    """Return means and variances of f at the rows of a block."""
    source, mean, root = broadcast
    source.check_finite(X, start)
    X = X if X.shape[1] == len(mean) else add_ones(X)
    spread = X @ root
    return X @ mean, np.einsum("ij,ij->i", spread, spread)


def _find_misfit(arrays, settings, sizes):
    """Whether there is a prior for each weight, and a name for each column, as a rule of the record."""
    prior, columns = settings["model"]["prior_variance"], sizes["D"] - ("intercept_prior" in settings)
    if sizes.get("C", columns) != columns:
        return f"there must be {columns} columns, as there are {sizes['D']} weights, got {sizes['C']}"
    if np.ndim(prior) and len(prior) != columns:
        return f"setting 'model.prior_variance' must be a number or {columns} of them, got {len(prior)}"
    return None


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class WeightsPosterior(AverageEffects, ColumnCoefficients, Predictions, VariationalPosterior):
    """Base of posteriors with a Gaussian q(w) = N(mean, root root'); a subclass has `model`."""

    mean: FloatArray = declare(Array("D"), "Mean of q(w), that of an added intercept first.")
    _root: FloatArray = declare(Array("D D"), name="root")
    alpha: Gamma | Any = declare(None, "q(alpha), with ard one for each column; None if the prior variance is known.")
    model: Any
    n_samples: int = declare_common("n_samples")
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(records.names("C")))
    classes: tuple[Any, ...] | None = declare_common("classes")
    roles: dict[str, Any] | None = declare_common("roles")
    dropped: DroppedRows | None = declare_common("dropped")
    intercept_prior: tuple[float, float] | None = declare(None, "Prior mean and variance of an added intercept.", None)

    record: ClassVar[Any] = records.Record(
        _list_arrays,
        {"intercept?": INTERCEPT_SETTING, "intercept_prior?": Made(tuple, [FINITE_REAL, POSITIVE_REAL], list)},
        (_find_misfit,),
        {"alpha_": "alpha.", "intercept": "model.intercept", "intercept_prior": "intercept_prior"},
    )

    @property
    def intercept(self) -> bool:
        """Whether the first weight is that of a column of ones, which is put before those of new rows."""
        return self.intercept_prior is not None

    @property
    def covariance(self) -> FloatArray:
        """Covariance of q(w), (D, D)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return check_within_range(self._root @ self._root.T, "covariance: its entries")

    @property
    def variance(self) -> FloatArray:
        """Variances of q(w), (D,)."""
        return check_within_range(self._squares(), "variance: its entries")

    def _squares(self):
        """Variances of the weights, infinite beyond float64."""
        with np.errstate(over="ignore"):
            return np.einsum("ij,ij->i", self._root, self._root)

    @property
    def relevance(self) -> FloatArray:
        """How much of each weight the data determine, 1 - E[alpha_i] variance_i: 0 is nothing but the prior, 1 all."""
        return 1.0 - WeightPrior.of(self.model, self.n_features, self.intercept_prior).mean(self.alpha) * self.variance

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw weights from q(w).

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n, D)
            The draws.
        """
        n, generator = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        z = generator.standard_normal((n, len(self.mean)))
        with np.errstate(over="ignore", invalid="ignore"):
            return check_within_range(self.mean + z @ self._root.T, "sample: the draws")

    @predict_rows(lambda self, **_: (2,), pair=True, columns=name_moments)
    def predict(
        self,
        X: Data,
        *,
        offset: ArrayLike | None = None,
        noise: bool = False,
        missing: Literal["raise", "nan"] = "raise",
        as_frame: bool = False,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent value f = x'w of new rows, or a new observation y: mean and variance.

        Parameters
        ----------
        X : array_like (n, D), data frame, path, list of paths, or Source
            Rows; the columns of a table are found by their names, in whatever order. Files are read block by block.
        offset : float or array_like (n,), optional
            Known part of f.
        noise : bool, default False
            Whether to predict a new observation y instead of f; there are numbers of a `LinearRegression` only, whose
            noise is that of the mean of its precision, 1/E[tau] (eq. 10.106 of Bishop 2006).
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.
        as_frame : bool, default False
            Whether to return a pandas data frame with the columns mean and sd, and the index of X.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f, or of y, under q(w); or a pandas.DataFrame. Lazy dask arrays where X is a collection of dask.

        Raises
        ------
        ValueError, TypeError
            For bad rows, and for noise=True where y has classes: see predict_proba.
        OverflowError
            If moments leave the range of float64, naming the row.
        """
        return self._observed(X, self._latent(X, offset, None), noise, None)

    has_offset = False  # of fits: they have none

    def _rows_of(self, X, offset, exposure):
        """Return new rows checked, in the order of the fit, and the known part of their f."""
        dataset = self._open(X, offset, exposure)
        X = open_rows(dataset, PREDICT_ROWS)
        check_n_features(X.shape[1], self.n_features)
        return X, self._known_offset(dataset)

    def _linear_rows(self, X, offset=None, exposure=None):
        X, offset_values = self._rows_of(X, offset, exposure)
        rows = X.rows()
        X.check_finite(rows, 0)
        return add_ones(rows) if self.intercept else rows, offset_values, None

    def _linear_moments(self, matrix, offset):
        with np.errstate(over="ignore", invalid="ignore"):
            mean, spread = matrix @ self.mean, matrix @ self._root
            mean, variance = mean if offset is None else mean + offset, np.einsum("ij,ij->i", spread, spread)
        check_moments(mean, variance)
        return mean, variance

    def _drawn(self, X, n, rng, offset, exposure):
        rows, offsets, _ = self._linear_rows(X, offset, exposure)
        with np.errstate(over="ignore", invalid="ignore"):
            f = self.sample(n, rng) @ rows.T
            return check_within_range(f if offsets is None else f + offsets, "sample_y: the draws of f")

    def _latent(self, X, offset, exposure):
        X, offsets = self._rows_of(X, offset, exposure)
        with Threads(1) as thread, np.errstate(over="ignore", invalid="ignore"):
            parts = map_runs(BlockTask(find_block_moments), (X, self.mean, self._root), [X], thread, grain=1)
            mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
            mean = mean if offsets is None else mean + offsets
        check_moments(mean, variance)
        return mean, variance

    def __repr__(self) -> str:
        title = (
            f"{type(self).__name__}: {format_count(self.n_samples, 'row')}, {format_count(len(self.mean), 'column')}"
        )
        return self._described(title, mean=self.mean, variance=self._squares())
