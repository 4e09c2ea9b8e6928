"""Base classes of posteriors of latent values f: predictions of observations from the moments of f."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cavity.base import arrays, records
from cavity.base.labels import encode_new_labels
from cavity.base.missing_values import DroppedRows
from cavity.base.public_objects import ArrayLike, Data, FloatArray, Public, Seed
from cavity.base.records import Array, Nullable, Part, declare
from cavity.base.results import CLASSES_SETTING, Posterior, declare_common, format_count
from cavity.base.rows import check_observations, combine_known_parts
from cavity.likelihoods.base import has_kernel_for, refuse_classes
from cavity.likelihoods.counts import check_counts
from cavity.likelihoods.predictive import find_mixture_quantiles
from cavity.models.hyperparameters import HYPERPARAMETERS_SETTING, Hyperparameters
from cavity.models.leave_one_out import LeavesOneOut
from cavity.models.point_moments import average_log_density, average_moments, average_over_points, list_points
from cavity.models.predicted_rows import check_observed
from cavity.models.predictive_densities import predict_class_probabilities
from cavity.models.residuals import ResidualChecks
from cavity.models.row_predictions import complete_dataset, find_class_shape, name_classes, predict_rows
from cavity.sources.dataset import Dataset

AUTO_SCHEDULE = "auto"


def choose_schedule(options, likelihood, exponent):
    """Return options with a schedule in place of "auto": sequential where kernels have p^exponent."""
    if options.schedule != AUTO_SCHEDULE:
        return options
    return replace(options, schedule="sequential" if has_kernel_for(likelihood, exponent) else "parallel")


ROW_WEIGHTS = Array("N", "nonnegative")  # of leave-one-out densities
RESIDUAL_DESCRIPTION = "Largest change of a marginal moment, in sd or relative, by one undamped renewal of a site."
EP_TRACE = {
    "change?": Array("c", "any"),
    "improper?": Array("i", "nonnegative", "if"),
    "double_loop?": Array("()", "nonnegative", "i"),
}


class Predictions(ResidualChecks, Public):
    """Base of posteriors with a likelihood, that of their `model` or one of their own.

    It reads `columns`, `classes`, `roles` and `has_offset`, and calls ``_latent(X, offset, exposure)`` for moments of f
    at new rows, and ``_drawn(X, n, rng, offset, exposure)`` for draws of it, (n, rows). A subclass has `predict`, which
    is `_observed` of the moments.
    """

    __slots__ = ()
    _earliest = -np.inf  # the first input, of one column, at which f has moments
    _has_noise = False  # whether each row of the fit had a noise variance of its own

    @property
    def _likelihood(self):
        """The likelihood of new observations."""
        return self.model.likelihood

    @predict_rows(lambda self, **_: find_class_shape(self._likelihood), columns=name_classes)
    def predict_proba(
        self,
        X: Data,
        *,
        offset: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
        as_frame: bool = False,
    ) -> FloatArray:
        """Class probabilities, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.
        as_frame : bool, default False
            Whether to return a pandas data frame: columns under the names of the classes, rows under the index of X.

        Returns
        -------
        ndarray (n, n_classes), or pandas.DataFrame
            In the order of `classes`; where that is None of class -1 (or 0), then of class 1, of OrderedProbit of 0, 1,
            ... A lazy dask array where X is a collection of dask, and y, if any, a column of it, here and below.
        """
        if self._likelihood.n_classes is None:
            return predict_class_probabilities(self._likelihood, None)
        moments = self._latent(X, offset, None)
        return average_over_points(
            lambda likelihood, *point: predict_class_probabilities(likelihood, lambda: point), self._likelihood, moments
        )

    @predict_rows()
    def log_density(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
    ) -> FloatArray:
        """Log predictive density of new observations, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        y : array_like (n,) or str, optional
            Observations, labels as in the fit; or the name of their column in X. By default the column of the fit, or
            what the formula contains.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.

        Returns
        -------
        ndarray (n,)
            log p(y | x, data).

        Raises
        ------
        ValueError
            For bad rows; for a `GaussianProcess` fitted with noise_variance, which is unknown for new rows.
        """
        return average_log_density(self._likelihood, *self._observe_new_rows(X, y, offset, exposure))

    def _observed_moments(self, X, y, offset, exposure):
        """Return checked observations of new rows, and the means and variances of f."""
        y, (mean, variance) = self._observe_new_rows(X, y, offset, exposure)
        return y, mean, variance

    def _observe_new_rows(self, X, y, offset, exposure):
        """Return checked observations of new rows, and the moments of f, see `_latent_of`."""
        self._check_noise_is_known("log_density")
        dataset = self._open_arguments(X, {"y": y, "offset": offset, "exposure": exposure})
        moments, likelihood = self._latent_of(dataset), self._likelihood
        y = encode_new_labels(dataset.column("y"), likelihood, self.classes)
        return check_observations(likelihood, y, len(moments[0])), moments

    @predict_rows(on_collections=False)
    def expected(
        self,
        X: Data,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
    ) -> FloatArray:
        """Mean of a new observation, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.

        Returns
        -------
        ndarray (n,)
            E[y | x, data].

        Raises
        ------
        ValueError
            For bad rows, and where y has classes (see predict_proba) or no mean.
        """
        refuse_classes(self._likelihood, "expected")
        moments = self._latent(X, offset, exposure)
        extras = self._trials(X, trials, len(moments[0]))
        with np.errstate(over="ignore", invalid="ignore"):
            expected = average_over_points(
                lambda likelihood, *point: likelihood.expected(*point, **extras), self._likelihood, moments
            )
        check_observed(expected, moments[1])
        return expected

    @predict_rows(lambda self, q, **_: np.shape(q), on_collections=False)
    def quantile(
        self,
        X: Data,
        q: ArrayLike,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
    ) -> FloatArray:
        """Find quantiles of a new observation, integrated over the posterior.

        Parameters
        ----------
        X : array_like (n, D)
            Rows, as `predict` takes them.
        q : float or array_like (Q,)
            Probabilities in (0, 1).
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.

        Returns
        -------
        ndarray (n,) or (n, Q)
            The quantiles; of counts the smallest number that y does not exceed with probability q at least.

        Raises
        ------
        ValueError
            For bad rows or probabilities, and where y has classes: see predict_proba.

        Examples
        --------
        >>> import cavity
        >>> model = cavity.GLM(cavity.likelihoods.Poisson(), prior_variance=1.0)
        >>> posterior = model.fit([[1.0], [1.0], [1.0]], [3, 5, 4])
        >>> posterior.quantile([[1.0]], [0.05, 0.5, 0.95]).tolist()
        [[1.0, 3.0, 8.0]]
        """
        likelihood, q = self._likelihood, arrays.check_finite_array(q, "q", ndim=(0, 1))
        if not np.all((q > 0) & (q < 1)):
            raise ValueError(f"q must be in (0, 1), got {q.tolist()!r}")
        refuse_classes(likelihood, "quantile")
        self._check_noise_is_known("quantile")
        moments = self._latent(X, offset, exposure)
        extras = self._trials(X, trials, len(moments[0]))
        points = list_points(likelihood, moments)
        if q.ndim:
            points = [(weight, law, mean[:, None], variance[:, None]) for weight, law, mean, variance in points]
            extras = {name: value[:, None] for name, value in extras.items()}
        if len(points) > 1:
            return find_mixture_quantiles(points, q, *extras.values())
        return likelihood.quantile(q, *points[0][2:], **extras)

    def sample_y(
        self,
        X: Data,
        n: int,
        rng: Seed,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> FloatArray:
        """Draw new observations from the posterior: f of all rows together, then y of each.

        Parameters
        ----------
        X : array_like (m, D)
            Rows, as `predict` takes them.
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.
        offset : float or array_like (m,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (m,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        trials : int, array_like (m,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.

        Returns
        -------
        ndarray (n, m)
            The draws; of classes their names where the posterior has `classes`, else their numbers 0, 1, ...

        Examples
        --------
        >>> import cavity
        >>> model = cavity.GLM("probit", prior_variance=1.0, intercept=False)
        >>> posterior = model.fit([[1.0], [1.0], [-1.0]], ["yes", "yes", "no"])
        >>> posterior.sample_y([[1.0], [-1.0]], 2, rng=0).shape
        (2, 2)
        """
        self._check_noise_is_known("sample_y")
        n, rng = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        parts, indices = [], []
        for index, likelihood, f in self._drawn_by_point(X, n, rng, offset, exposure):
            extras = self._trials(X, trials, f.shape[1])
            with np.errstate(over="ignore"):
                parts.append(likelihood.draw(f, rng, **extras))
            indices.append(index)
        y = parts[0]
        if len(parts) > 1:
            y = np.empty((n, *y.shape[1:]), dtype=y.dtype)
            for index, part in zip(indices, parts, strict=True):
                y[index] = part
        has_classes = self._likelihood.n_classes is not None and self.classes is not None
        return np.asarray(self.classes)[y] if has_classes else y

    def _observed(self, X, moments, noise, trials):
        """Return moments of f, or with noise those of a new observation."""
        extras = self._trials(X, trials, len(moments[0]))
        if not arrays.check_flag(noise, "noise"):
            return moments
        refuse_classes(self._likelihood, "noise=True")
        self._check_noise_is_known("noise=True")
        with np.errstate(over="ignore", invalid="ignore"):
            observed = average_moments(
                lambda likelihood, *point: likelihood.moments(*point, **extras), self._likelihood, moments
            )
        check_observed(*observed)
        return observed

    def _trials(self, X, trials, n):
        """Return the trials of n new observations as a keyword argument for the likelihood, if there are any."""
        if trials is None:
            return {}
        if not self._likelihood.takes_trials:
            raise ValueError(f"trials is for the likelihood Binomial, got {type(self._likelihood).__name__}")
        trials = check_counts(Dataset.open(X, {"trials": trials}).column("trials"), "trials")
        return {"trials": arrays.check_vector(trials, "trials", n)}

    def _drawn_by_point(self, X, n, rng, offset, exposure):
        """Yield which of n draws are from a point of an integral, the likelihood there, and f (draws, m)."""
        yield slice(None), self._likelihood, self._drawn(X, n, rng, offset, exposure)

    def _open(self, X, offset, exposure):
        """Return the `Dataset` of new rows, with the columns of their offsets and exposures."""
        return self._open_arguments(X, {"offset": offset, "exposure": exposure})

    def _latent_of(self, dataset):
        """Return the means and variances of f at the rows of a dataset."""
        return self._latent(dataset.X, dataset.column("offset"), dataset.column("exposure"))

    def _open_arguments(self, X, arguments, **options):
        """Return the `Dataset` of new rows, with the columns of arguments."""
        return Dataset.open(X, arguments, self.columns, self.roles, **options)

    def _complete_rows(self, X, arguments):
        """Return the number of new rows, which of them have all values, None for all, and these rows and arguments."""
        return complete_dataset(Dataset.open(X, arguments, self.columns, self.roles))

    def _known_offset(self, dataset):
        """Return the known part of f of the rows of a dataset, see `_known_part`."""
        return self._known_part(dataset.column("offset"), dataset.column("exposure"), dataset.n_rows)

    def _known_part(self, offset, exposure, n):
        """Return the known part of f of n new rows, (n,) or None; ValueError where the fit had one and these do not."""
        likelihood = self._likelihood
        if offset is None and exposure is None and self.has_offset:
            arguments = "offsets or exposures" if likelihood.takes_exposure else "offsets"
            raise ValueError(f"offset: the fit had {arguments}: give those of the new rows; give offset=0 for none")
        return combine_known_parts(likelihood, offset, exposure, n, broadcast=True)

    def _shared_loo_moments(self):
        """Return the moments of f without a row where rows share sites; None where marginals and sites have them."""

    def _check_noise_is_known(self, request):
        """Raise ValueError where the noise of new observations is not known."""
        if self._has_noise:
            raise ValueError(
                f"{request} has no meaning where every row had a noise_variance of its own; add yours to predict"
            )


class LatentPosterior(Predictions, Posterior):
    """Base of posteriors by EP, whose `model` has a likelihood."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SitesPosterior(LeavesOneOut, LatentPosterior):
    """Base of posteriors with the sites of the rows of one fit and its outcome; a subclass has `model`."""

    log_evidence: float = declare_common("log_evidence")  # -inf: y impossible where f is known
    converged: bool = declare_common("converged")
    n_iter: int = declare_common("n_iter")
    status: str = declare_common("status")
    residual: float = declare(records.ANY_NUMBER, RESIDUAL_DESCRIPTION)
    n_samples: int = declare_common("n_samples")
    trace: dict[str, Any] = declare_common("trace", Part(EP_TRACE, "trace_"))
    classes: tuple[Any, ...] | None = declare_common("classes", Nullable(CLASSES_SETTING))
    hyperparameters: Hyperparameters | Any = declare_common("hyperparameters", HYPERPARAMETERS_SETTING)
    dropped: DroppedRows | None = declare_common("dropped")
    _loo: FloatArray | Any = declare(Array("N", "any"), name="_loo?")
    _tau: FloatArray | Any = declare(Array("N", "any"), name="_tau?")
    _rho: FloatArray | Any = declare(Array("N", "any"), name="_rho?")
    _influence: FloatArray | None = declare(Array("N", "known"), default=None)

    def _outcome_row(self, method: str) -> tuple[str, str]:
        """Return the last line of a repr."""
        ended = "converged" if self.converged else f"NOT CONVERGED: {self.status}"
        return "fit", f"{method}, {ended}, {format_count(self.n_iter, 'pass')}"

    def _proper_loo(self):
        """The leave-one-out log densities; ValueError naming the first row without one."""
        if np.any(np.isnan(self._loo)):
            row = int(np.argmax(np.isnan(self._loo)))
            raise ValueError(f"row {row} has no leave-one-out density: without it the approximation is improper")
        return self._loo
