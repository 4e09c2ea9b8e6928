"""Residuals of observations under what a posterior predicts of them, and fitted values.

References
----------
.. [DS] P. K. Dunn and G. K. Smyth, "Randomized quantile residuals", Journal of Computational and Graphical Statistics
   5, 1996.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, Data, FloatArray
from cavity.models.model_check import ModelCheck, compare_rows
from cavity.models.predicted_rows import PredictedRows, find_loo_moments

RESIDUAL_KINDS = ("quantile", "response", "pearson")


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
            Rows, as `predict` takes them.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.

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
            Rows, as `predict` takes them.
        y : array_like (n,) or str, optional
            Observations, labels as in the fit; or the name of their column in X. By default the column of the fit, or
            what the formula contains.
        kind : {"quantile", "response", "pearson"}, default "quantile"
            "quantile" is the normal quantile of the predicted probability of values up to the observed one, for counts
            and classes at random between the probabilities of less and of no more [DS]_: standard normal if the model
            is right, whatever the likelihood. "response" is y less its mean, "pearson" that divided by its standard
            deviation; classes count as their numbers 0, 1, ..., bounds of an interval have neither.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n,)
            Quantile residuals of probabilities that round to 1 are 8.2, and those of probabilities that round to 0 are
            -37.5, but for Gaussian noise.

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
        """Compare observations with their predictions, and describe what does not fit and what to try.

        Columns of X that are not in the model are compared with the residuals, too, if they have no missing values.
        Columns of labels, and of whole numbers with three rows or more of each on average, are compared as groups
        ("levels of" them). Rows count once, whatever their weights in the fit.

        Parameters
        ----------
        X : array_like (n, D), data frame, or what else `predict` takes
            Rows, as `predict` takes them.
        y : array_like (n,) or str, optional
            Observations, labels as in the fit; or the name of their column in X. By default the column of the fit, or
            what the formula contains.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ModelCheck
            With a `table` of statistics, each with what is expected of it and by how many standard deviations of chance
            it differs; `findings`, a sentence for each that differs by more than 3.5; and `plot`.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=300)
        >>> y = rng.poisson(np.exp(1.0 + 0.5 * x) * rng.gamma(1.0, 1.0, 300))
        >>> posterior = cavity.GLM("y ~ x", "poisson").fit({"x": x, "y": y})
        >>> print(posterior.check({"x": x, "y": y}).findings[0])
        counts vary 4.8 times as much as Poisson allows: try 'negative-binomial'
        """
        return compare_rows(self, X, self._predicted_rows(X, y, offset, exposure), arrays.make_generator(rng))

    def _predicted_rows(self, X, y, offset, exposure, leave_out=True):
        """Return the `PredictedRows` of observations, those of the fit predicted from all others if `leave_out`."""
        y, mean, variance = self._observed_moments(X, y, offset, exposure)
        loo = find_loo_moments(self, y, mean, variance) if leave_out else None
        return PredictedRows(self._likelihood, y, *(loo or (mean, variance)), loo is not None)
