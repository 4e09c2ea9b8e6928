"""Residuals of observations under what a posterior predicts of them, and fitted values.

References
----------
.. [DS] P. K. Dunn and G. K. Smyth, "Randomized quantile residuals", Journal of Computational and Graphical Statistics
   5, 1996.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special
from cavity.base.types import ArrayLike, Data, FloatArray
from cavity.likelihoods import Interval, predictive

if TYPE_CHECKING:
    from cavity.models.model_check import ModelCheck

LOO_TOLERANCE = 1e-6  # nats by which a leave-one-out log density found from a site may differ from that of the fit
RESIDUAL_KINDS = ("quantile", "response", "pearson")
SMALLEST_PROBABILITY, LARGEST_PROBABILITY = np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg


class ResidualChecks:
    """Methods of posteriors with a likelihood that compare observations with what is predicted of them.

    A subclass has ``_observed_moments(X, y, offset, exposure)``: checked observations, and moments of f.
    """

    __slots__ = ()

    def fitted(self, X: Data, *, offset: ArrayLike | None = None, exposure: ArrayLike | None = None) -> FloatArray:
        """Return the mean of the observation of each row under the posterior, all rows of the fit included.

        Parameters
        ----------
        X : array_like (n, D), data frame, or what else `predict` takes
            Rows.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to.

        Returns
        -------
        ndarray (n,) or (n, n_classes)
            Means of numbers, shares of trials, probabilities of the second of two classes, or of all of several.
        """
        if self._likelihood.n_classes is None:
            return self.expected(X, offset=offset, exposure=exposure)
        probabilities = self.predict_proba(X, offset=offset)
        return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities

    def residuals(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        kind: Literal["quantile", "response", "pearson"] = "quantile",
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        rng: Any = 0,
    ) -> FloatArray:
        """Return how far observations are from what is predicted of them.

        Rows that are those of the fit are predicted from all others, where the fit has leave-one-out; rows of any other
        table, and those of a fit with weights, are predicted by the posterior.

        Parameters
        ----------
        X : array_like (n, D), data frame, or what else `predict` takes
            Rows.
        y : array_like (n,) or str, optional
            Their observations; by default the column of the fit, or what the formula says.
        kind : {"quantile", "response", "pearson"}, default "quantile"
            "quantile" is the normal quantile of the predicted probability of values up to the observed one, for counts
            and classes at random between the probabilities of less and of no more [DS]_: standard normal if the model
            is right, whatever the likelihood. "response" is y less its mean, "pearson" that divided by its standard
            deviation; classes count as their numbers 0, 1, ..., bounds of an interval have neither.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness, for counts, classes and intervals.

        Returns
        -------
        ndarray (n,)
            Quantile residuals of probabilities that round to 1 are 8.2.

        Raises
        ------
        ValueError, TypeError
            For bad rows, another kind, and where a likelihood has no distribution function.

        Examples
        --------
        >>> import cavity
        >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
        >>> posterior = cavity.GLM("Reaction ~ Days").fit(table)
        >>> posterior.residuals(table, kind="pearson").round(2)[:3].tolist()
        [-0.04, -0.07, -0.45]
        """
        arrays.check_choice(kind, "kind", RESIDUAL_KINDS)
        rows = self._predicted_rows(X, y, offset, exposure)
        if kind == "quantile":
            return rows.quantile_residuals(arrays.make_generator(rng))
        value, mean, variance = rows.moments()
        return value - mean if kind == "response" else (value - mean) / np.sqrt(variance)

    def check(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        rng: Any = 0,
    ) -> ModelCheck:
        """Compare observations with what the model says of them, and say in words what does not fit and what to try.

        Parameters
        ----------
        X : array_like (n, D), data frame, or what else `predict` takes
            Rows, as a rule those of the fit; columns that are not in the model are looked at, too.
        y : array_like (n,) or str, optional
            Their observations; by default the column of the fit, or what the formula says.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness of quantile residuals and simulated observations.

        Returns
        -------
        ModelCheck
            With a `table` of statistics, each with what is expected of it and by how many standard deviations of chance
            it differs; `findings`, a sentence for each that differs by more than 4; and `plot`.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=300)
        >>> y = rng.poisson(np.exp(1.0 + 0.5 * x) * rng.gamma(1.0, 1.0, 300))
        >>> posterior = cavity.GLM("y ~ x", "poisson").fit({"x": x, "y": y})
        >>> print(posterior.check({"x": x, "y": y}).findings[0])
        counts vary 3.9 times as much as Poisson allows: try 'negative-binomial'
        """
        from cavity.models.model_check import compare_rows  # which is of no use to a fit

        return compare_rows(self, X, self._predicted_rows(X, y, offset, exposure), arrays.make_generator(rng))

    def _predicted_rows(self, X, y, offset, exposure):
        """Return the `PredictedRows` of observations."""
        y, mean, variance = self._observed_moments(X, y, offset, exposure)
        loo = find_loo_moments(self, y, mean, variance)
        return PredictedRows(self._likelihood, y, *(loo or (mean, variance)), loo is not None)


@dataclass(frozen=True, slots=True, eq=False)
class PredictedRows:
    """Observations of rows, and the moments of f by which they are predicted.

    Attributes
    ----------
    likelihood : Likelihood
        Of the observations.
    y : ndarray (n,) or (n, 2)
        As the likelihood takes them.
    mean, variance : ndarray (n,)
        Of f.
    are_left_out : bool
        Whether each row is predicted from all others.
    """

    likelihood: Any
    y: FloatArray
    mean: FloatArray
    variance: FloatArray
    are_left_out: bool

    @property
    def class_numbers(self):
        """The numbers 0, 1, ... of the classes of the rows."""
        return (self.y > 0).astype(np.intp) if self.likelihood.n_classes == 2 else self.y.astype(np.intp)

    @property
    def trials(self):
        """The trials of each row, as an argument of a likelihood that takes some."""
        return {"trials": self.y[:, 1]} if self.likelihood.takes_trials else {}

    def class_probabilities(self):
        """Return the probabilities (n, n_classes) of the classes."""
        from cavity.models.latent_posterior import predict_class_probabilities  # which imports this module

        return predict_class_probabilities(self.likelihood, lambda: (self.mean, self.variance))

    def moments(self):
        """Return observations as numbers, and their predicted means and variances, (n,) each."""
        if self.likelihood.n_classes is not None:
            probabilities = self.class_probabilities()
            numbers = np.arange(probabilities.shape[1])
            mean = probabilities @ numbers
            return self.class_numbers.astype(float), mean, probabilities @ numbers**2.0 - mean**2
        if isinstance(self.likelihood, Interval):
            raise arrays.error_of("kind", "must be 'quantile' for bounds of observations, which have no value")
        mean, variance = self.likelihood.moments(self.mean, self.variance, **self.trials)
        return (self.y[:, 0] if self.trials else self.y), mean, variance

    def probabilities_below(self):
        """Return the predicted probabilities of values below, and of values up to, each observation."""
        if self.likelihood.n_classes is not None:
            probabilities, rows = self.class_probabilities(), np.arange(len(self.y))
            upto = np.cumsum(probabilities, axis=1)[rows, self.class_numbers]
            return upto - probabilities[rows, self.class_numbers], upto
        if isinstance(self.likelihood, Interval):
            sd = np.sqrt(self.variance + self.likelihood.noise_variance)
            return tuple(special.ndtr((self.y[:, k] - self.mean) / sd) for k in (0, 1))
        y, *trials = (self.y[:, 0], self.y[:, 1]) if self.trials else (self.y,)
        at = [y - 1.0, y] if self.likelihood.discrete else [y]

        def integrate(values):
            def conditional(f, index):
                return self.likelihood.cdf(values[index, None], f, *(column[index, None] for column in trials))

            return predictive.integrate(conditional, self.mean, self.variance)

        cdfs = [integrate(values) for values in at]
        return cdfs[0], cdfs[-1]

    def quantile_residuals(self, rng):
        """Return randomised quantile residuals [DS]_."""
        below, upto = self.probabilities_below()
        if self.likelihood.discrete or self.likelihood.n_classes is not None or isinstance(self.likelihood, Interval):
            upto = below + (upto - below) * rng.random(len(upto))
        return special.ndtri(np.clip(upto, SMALLEST_PROBABILITY, LARGEST_PROBABILITY))


def find_loo_moments(posterior, y, mean, variance):
    """Return the moments of f of rows of a fit without their own sites: the marginals divided by these.

    None where there are no sites, and where densities are not the leave-one-out densities of the fit: with weights, and
    for other rows.
    """
    try:
        sites, density = posterior.sites, posterior.loo_log_density
    except (AttributeError, ValueError):  # a fit without sites: by ADF, stochastic, by mean field, updated
        return None
    if np.shape(density) != np.shape(mean):
        return None
    from cavity.models.latent_posterior import integrate_log_density  # which imports this module

    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 / variance - sites.rho
        mean, variance = (mean / variance - sites.tau) / rho, 1.0 / rho
        if not np.all(rho > 0):
            return None
        loo_density = integrate_log_density(posterior._likelihood, y, mean, variance)
    agree = np.allclose(loo_density, density, rtol=LOO_TOLERANCE, atol=LOO_TOLERANCE)
    return (mean, variance) if agree else None
