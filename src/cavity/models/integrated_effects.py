"""Marginals of posteriors with an integral over hyperparameters: of effects, weights, and hyperparameters."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from cavity.base import summary
from cavity.base.arrays import check_choice, check_integer, error_of
from cavity.models.corrected_marginal import (
    CUMULANTS_METHOD,
    FACTORS_METHOD,
    MARGINAL_METHODS,
    correct_combination,
    find_moments,
    tabulate_mixture,
)
from cavity.models.integration import put_values
from cavity.models.marginal import Marginal, NumberMarginal, tabulate_mixture_marginals
from cavity.models.point_moments import list_points
from cavity.models.posterior_mixture import draw_points

WITHOUT_COMBINATION = "for new rows of a process, or of levels that the fit had not"  # f is no combination of effects


class IntegratedEffects:
    """Base of posteriors that may have an `integration`.

    A subclass has ``_effect_posterior``, moments of all effects or a `PosteriorMixture` of them, and
    ``_find_index(effect)``, the number of one of them, and ``_find_fitted_rows(X, **arguments)``, `RowsAtMaximum`.
    """

    __slots__ = ()
    _row_arguments = ("y", "event", "offset", "exposure")  # of `marginal`

    @property
    def evidence_correction(self) -> float | None:
        """What is added to `log_evidence` by higher cumulants of tilted distributions; None with integrate=False."""
        return None if self.integration is None else self.integration.evidence_correction

    @property
    def _integrated_names(self):
        """Names of the hyperparameters that are integrated."""
        return () if self.integration is None else self.integration.names

    @property
    def _point_likelihoods(self):
        """The likelihoods at the points of the integral."""
        return [
            put_values(self._likelihood, self.integration, number) for number in range(len(self.integration.weights))
        ]

    def _choose_points(self, n, rng, whole, points):
        """Yield which of n draws are from a point, its likelihood, their count and `points(number)`.

        All are from `whole` without an integral.
        """
        if not self._integrated_names:
            yield slice(None), self._likelihood, n, whole
            return
        likelihoods = self._point_likelihoods
        for draws, number in draw_points(self.integration.weights, n, rng):
            yield draws, likelihoods[number], int(np.sum(draws)), points(number)

    def _refuse_update(self):
        """Raise ValueError where there are corrections, which no update has."""
        if self.integration is not None:
            raise ValueError("a posterior that is integrated or corrected cannot be updated: fit all rows together")

    def _effect_marginals(self, names, index):
        """Those of some effects, by their numbers."""
        if self.integration is None:
            return summary.make_gaussian_marginals(
                names, self._effect_posterior.mean[index], np.sqrt(self._effect_posterior.variance[index])
            )
        return tabulate_mixture_marginals(names, *self._components(index))

    def _components(self, index):
        """Weights, means (P, m), sds and skewness of the components of the marginals of some effects."""
        if self.integration is None:
            sd = np.sqrt(self._effect_posterior.variance[index])
            return np.ones(1), self._effect_posterior.mean[None, index], sd[None], np.zeros(len(index))
        points, corrections = self._effect_posterior.points, self.integration
        means = np.stack([point.mean[index] for point in points])
        sds = np.sqrt(np.stack([point.variance[index] for point in points])) * corrections.sd_factors[index]
        return corrections.weights, means, sds, corrections.skewness[index]

    def marginal(
        self, effect: Any, X: Any = None, *, new_rows: Any = None, method: str | None = None, **arguments: Any
    ) -> NumberMarginal:
        """Return the posterior of one number: normal, or, with `integrate`, integrated; and corrected.

        Parameters
        ----------
        effect : str, tuple or int
            The name of a coefficient; of random effects (term, level) or (term, level, column); for f the number of a
            row of the fit, or of `new_rows`; or the name of a hyperparameter that is integrated.
        X : data frame or array_like (N, D), optional
            The rows of the fit once more.
        new_rows : data frame, array_like (n, D) or NewRows, optional
            Rows as `predict` takes them.
        method : "cumulants", "factors" or "1step", optional
            How effects are corrected [CH]_: with "cumulants", of posteriors with `integrate`, standard deviations and
            skewness by third cumulants of tilted distributions; with "factors" the density by the factors of all rows
            given the effect, each by itself; with "1step" by all of them together after one step of EP, for up to 2,000
            effects. The last two take the rows of the fit, but for processes. By default "factors" where X is there,
            otherwise "cumulants".
        **arguments
            What else `check_approximation` takes of the rows: y, groups, event, offset, exposure. Without X, offset and
            exposure are those of new rows.

        Returns
        -------
        Marginal or TabulatedMarginal
            With `mean`, `sd`, `density`, `cdf`, `quantile` and `interval`; the second of hyperparameters, and with
            "factors" and "1step".

        Raises
        ------
        ValueError, TypeError
            For an effect that is not there, or does not vary; for rows that are not those of the fit; for new rows with
            "factors" or "1step" of a process, or with levels that the fit had not.
        ArithmeticError
            Where the integrals of "factors" or "1step" have no digits.

        Notes
        -----
        f of a row with "factors" is the tilted distribution times the factors of the other rows. Both methods are found
        at the maximum of the hyperparameters, and scaled to the moments at the other points of an integral. Their
        densities take 31 integrals a row and, for "1step", 31 factorisations.

        f of a new row is by default a mixture of normal densities over the points of an integral, with the moments of
        EP: what hyperparameters may be widens and skews it, third cumulants of tilted distributions do not. With X it
        is a combination of effects, corrected as these are.

        References
        ----------
        .. [CH] B. Cseke and T. Heskes, "Approximate marginals in latent Gaussian models", JMLR 12, 2011.
        """
        if isinstance(effect, str) and effect in self._integrated_names and new_rows is None:
            return self.integration.marginal(effect)
        names = getattr(self, "coefficient_names", ())
        if isinstance(effect, str) and names:
            check_choice(effect, "effect", (*names, *self._integrated_names))
        possible = ("offset", "exposure") if X is None and new_rows is not None else self._row_arguments
        unknown = [argument for argument in arguments if argument not in possible]
        if unknown:
            raise TypeError(f"marginal() got an unexpected keyword argument {unknown[0]!r}")
        method = (FACTORS_METHOD if X is not None else CUMULANTS_METHOD) if method is None else method
        name = ", ".join(map(str, effect)) if isinstance(effect, tuple) else str(effect)
        if isinstance(effect, numbers.Integral):
            name = f"f of {'row' if new_rows is None else 'new row'} {effect}"
            if X is None and new_rows is None and self._row_arguments:
                raise error_of("X", "must be the rows of the fit for f of one of them, or new_rows others, got neither")
        if check_choice(method, "method", MARGINAL_METHODS) != CUMULANTS_METHOD:
            return self._correct_by_rows(effect, name, method, X, arguments, new_rows)
        if X is not None or (arguments and new_rows is None):
            raise error_of("method", "must be 'factors' or '1step' for the rows of a fit, got 'cumulants'")
        if new_rows is not None:
            return self._mix_new_row(effect, name, new_rows, arguments)
        index = np.array([self._find_index(effect)])
        weights, means, sds, skewness = self._components(index)
        return Marginal(name, weights, means[:, 0], sds[:, 0], float(skewness[0]))

    def _mix_new_row(self, effect, name, new_rows, arguments):
        """The marginal of f at a new row: a mixture of normal densities over the points."""
        moments = self._latent(new_rows, arguments.get("offset"), arguments.get("exposure"))
        number = check_integer(effect, "effect", low=0)
        if number >= len(moments[0]):
            raise error_of("effect", f"must be a row of new_rows, below {len(moments[0])}, got {number}")
        points = list_points(self._likelihood, moments)
        weights, means, variances = np.array([[weight, m[number], v[number]] for weight, _, m, v in points]).T
        if not np.all(variances > 0.0):
            raise error_of("effect", "must vary: its posterior variance is 0")
        return Marginal(name, weights, means, np.sqrt(variances), 0.0)

    def _combine_new_rows(self, fitted, new_rows):
        """The rows of a fit with new ones in place of those of f."""
        matrix, offset, extra = self._linear_rows(new_rows)
        if extra is not None and np.any(extra > 0.0):
            raise error_of("method", f"must be left out {WITHOUT_COMBINATION}")
        n = matrix.shape[0]
        return fitted._replace(matrix=matrix, offset=np.zeros(n) if offset is None else offset, in_use=np.ones(n, bool))

    def _correct_by_rows(self, effect, name, method, X, arguments, new_rows):
        """The marginal of an effect or a row by the factors of all rows."""
        fitted, offset = self._find_fitted_rows(X, **arguments), 0.0
        if new_rows is not None or isinstance(effect, numbers.Integral):
            rows = fitted if new_rows is None else self._combine_new_rows(fitted, new_rows)
            combination, offset = rows.take_row(check_integer(effect, "effect", low=0))
        else:
            combination = self._find_combination(effect)
        standard = correct_combination(fitted, combination, method)
        weights, points = np.ones(1), [fitted.effects]
        if self._integrated_names:
            weights, points = self.integration.weights, self._combined_posterior.points
        moments = np.array([find_moments(point, combination) for point in points])
        return tabulate_mixture(name, weights, offset + moments[:, 0], np.sqrt(moments[:, 1]), standard)

    @property
    def _combined_posterior(self):
        """The posterior of the effects whose combinations rows are."""
        return self._effect_posterior

    def _find_combination(self, effect):
        """The combination of effects that one of them is."""
        combination = np.zeros(len(self._effect_posterior.mean))
        combination[self._find_index(effect)] = 1.0
        return combination
