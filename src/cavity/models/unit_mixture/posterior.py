"""The posterior of a unit mixture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.frames import order_columns
from cavity.base.lazy_scipy import special
from cavity.base.missing_values import DroppedRows, join_dropped
from cavity.base.public_objects import ArrayLike, Data, FloatArray, FloatOrArray, IntArray, Seed
from cavity.base.records import POSITIVE_REAL, REAL_LISTS, Array, Nullable, declare, integer, names
from cavity.base.results import SummaryMixin, VariationalPosterior, declare_common, format_count
from cavity.base.summary import make_gaussian_marginals, tabulate_estimates
from cavity.models.row_predictions import complete_dataset, predict_rows
from cavity.models.unit_mixture.sweep import MIN_WEIGHT, compute_responsibilities
from cavity.runs import merge
from cavity.sources.chunkwise import map_chunks
from cavity.sources.dataset import Dataset

if TYPE_CHECKING:
    from cavity.models.unit_mixture.model import UnitMixture

MODEL_SETTINGS = {  # settings in files
    "n_components": integer(1, "K"),
    "prior_variance": REAL_LISTS,
    "prior_mean": REAL_LISTS,
    "noise_variance": POSITIVE_REAL,
    "weights": Nullable(REAL_LISTS),
    "learn": names(),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class UnitMixturePosterior(SummaryMixin, VariationalPosterior):
    """The approximate posterior of a `UnitMixture` fit.

    Notes
    -----
    `counts` include the points of earlier updates; after `update`, `observation_digest` is that of the new points, as
    `elbo` is. It is None where it is not known, as of an iterator seen once and in files of earlier versions.
    """

    mean: FloatArray = declare(Array("K"), "Means of q(theta_k), the means of the components.")
    variance: FloatArray = declare(Array("K", "positive"), "Variances of q(theta_k).")
    weights: FloatArray = declare(Array("K", "shares"), "Probabilities of the components, given or learnt.")
    counts: FloatArray = declare(Array("K"), "Expected number of points of each component, sum_n q(z_n = k).")
    noise_variance: float = declare(POSITIVE_REAL, "Variance around the component means, given or learnt.")
    prior_variance: FloatOrArray = declare(Array("() | K", "positive"), "Variance of the component means.")
    n_samples: int = declare_common("n_samples")
    columns: tuple[str, ...] | None = declare_common("columns")
    dropped: DroppedRows | None = declare_common("dropped")
    model: UnitMixture = declare(MODEL_SETTINGS, "The settings.")

    kind: ClassVar[str] = "unit_mixture"

    @predict_rows(lambda self, **_: (len(self.mean),))
    def responsibilities(self, y: ArrayLike, *, missing: Literal["raise", "nan"] = "raise") -> FloatArray:
        """Return the probability of each component for each point.

        Parameters
        ----------
        y : array_like (N,)
            Points.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.

        Returns
        -------
        ndarray (N, K)
            q(z_n = k); rows sum to 1. Here and below a lazy dask array where y is a collection of dask.

        Raises
        ------
        ValueError, TypeError
            If y is not a vector of finite numbers.
        OverflowError
            If a point is so far from every component that its squared distance overflows.

        Examples
        --------
        >>> import cavity
        >>> posterior = cavity.UnitMixture(2).fit([-3.2, -2.7, 2.4, 2.2])
        >>> posterior.responsibilities([-3.0, 0.0]).round(3).tolist()
        [[1.0, 0.0], [0.156, 0.844]]
        """
        parameters = self.mean, 1.0 / self.variance, self.weights, self.noise_variance
        return compute_responsibilities(self._points(y), *parameters)

    @map_chunks(dtype=lambda self: np.intp)
    def predict(self, y: ArrayLike) -> IntArray:
        """Return the most probable component of each point.

        Parameters
        ----------
        y : array_like (N,)
            Points.

        Returns
        -------
        ndarray of int (N,)
            Numbers of components, from 0.
        """
        return np.argmax(self.responsibilities(y), axis=1)

    @predict_rows()
    def log_density(self, y: ArrayLike, *, missing: Literal["raise", "nan"] = "raise") -> FloatArray:
        """Return the log of the posterior predictive density of each point.

        Parameters
        ----------
        y : array_like (N,)
            Points.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.

        Returns
        -------
        ndarray (N,)
            log sum_k w_k N(y_n; mean_k, noise_variance + variance_k).

        Raises
        ------
        ValueError, TypeError
            If y is not a vector of finite numbers.
        OverflowError
            If a point is so far from every component that its squared distance overflows.
        """
        points = self._points(y)
        spread = self.noise_variance + self.variance
        result = np.empty(len(points))
        for start, stop in merge.split_rows(len(points)):
            with np.errstate(over="ignore"):  # a point may be too far from some components, but not from all
                terms = -0.5 * (points[start:stop, None] - self.mean) ** 2 / spread - 0.5 * np.log(2 * np.pi * spread)
            result[start:stop] = special.logsumexp(terms, b=self.weights, axis=1)
        return check_within_range(result, "log_density: values")

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw new observations from the posterior predictive distribution.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n,)
            The draws, independent of each other given the posterior.
        """
        n, generator = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        component = generator.choice(len(self.mean), size=n, p=self.weights)
        spread = np.sqrt(self.noise_variance + self.variance)
        return generator.normal(self.mean[component], spread[component])

    def update(self, y: Data, **options: Any) -> UnitMixturePosterior:
        """Fit more data with this posterior as the prior of the component means; weights and noise variance stay.

        Parameters
        ----------
        y : array_like (N,), path, or list of paths
            More data.
        **options
            As for `UnitMixture.fit`; the component means start where they are.

        Returns
        -------
        UnitMixturePosterior
            Of all data; its ELBO is that of the new data given the old.

        Examples
        --------
        >>> import cavity
        >>> first = cavity.UnitMixture(2).fit([-3.2, -2.7, 2.4, 2.2])
        >>> both = first.update([-2.9, 1.8, 2.6])
        >>> both.mean.round(2).tolist(), both.variance.round(3).tolist()
        ([-2.92, 2.24], [0.332, 0.249])
        """
        weights = np.maximum(self.weights, MIN_WEIGHT)  # learnt ones fall to zero
        settings = {"prior_mean": self.mean, "prior_variance": self.variance, "noise_variance": self.noise_variance}
        model = replace(self.model, weights=weights, learn=(), **settings)
        new = model.fit(order_columns(y, self.columns, "y"), **{"initial_means": self.mean, **options})
        n_samples, counts = self.n_samples + new.n_samples, self.counts + new.counts
        labels = {"columns": self.columns or new.columns, "dropped": join_dropped(self.dropped, new.dropped)}
        return replace(new, n_samples=n_samples, counts=counts, **labels)

    def _marginals(self):
        """Those of the means of the components."""
        column = "" if self.columns is None else f", {self.columns[0]}"
        names = tuple(f"mean[{k}{column}]" for k in range(len(self.mean)))
        return make_gaussian_marginals(names, self.mean, np.sqrt(self.variance))

    def _below(self, level):
        """The table of what is no random variable here."""
        names = [f"weight[{k}]" for k in range(len(self.mean))]
        return tabulate_estimates("Given or learnt", [*names, "noise_variance"], [*self.weights, self.noise_variance])

    def _open(self, y):
        """Return the `Dataset` of points."""
        return Dataset.open(order_columns(y, self.columns, "y"), name="y")

    def _points(self, y):
        return self._open(y).vector()

    def _complete_rows(self, y, arguments):
        return complete_dataset(self._open(y))

    def __repr__(self) -> str:
        sizes = f"{format_count(self.n_samples, 'point')}, {format_count(len(self.mean), 'component')}"
        noise = f"{self.noise_variance:.6g}"
        return self._described(
            f"UnitMixturePosterior: {sizes}", mean=self.mean, weights=self.weights, noise_variance=noise
        )


def build_posterior(model, done, n_samples, columns=None, **outcome):
    """Return the posterior that a fit of so many points has led to, with the fields of a `VariationalPosterior`."""
    state = done.state
    shared = "prior_variance" in model.learn or np.ndim(model.prior_variance) == 0
    return UnitMixturePosterior(
        model=model,
        mean=state.mean.copy(),
        variance=1.0 / state.precision,
        weights=state.weights.copy(),
        counts=done.image.counts.copy(),
        noise_variance=state.noise_variance,
        prior_variance=float(state.prior_variance[0]) if shared else state.prior_variance.copy(),
        n_samples=n_samples,
        columns=columns,
        **outcome,
    )
