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
from cavity.models.posterior_mixture import draw_points


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

    def marginal(self, effect: Any, X: Any = None, *, method: str | None = None, **arguments: Any) -> NumberMarginal:
        """Return the posterior of one number: normal, or, with `integrate`, integrated; and corrected.

        Parameters
        ----------
        effect : str, tuple or int
            The name of a coefficient; of random effects (term, level) or (term, level, column); for f the number of a
            row of the fit; or the name of a hyperparameter that is integrated.
        X : data frame or array_like (N, D), optional
            The rows of the fit once more.
        method : "cumulants", "factors" or "1step", optional
            How effects are corrected [CH]_: with "cumulants", of posteriors with `integrate`, standard deviations and
            skewness by third cumulants of tilted distributions; with "factors" the density by the factors of all rows
            given the effect, each by itself; with "1step" by all of them together after one step of EP, for up to 2,000
            effects. The last two take the rows of the fit, but for processes. By default "factors" where X is there,
            otherwise "cumulants".
        **arguments
            What else `check_approximation` takes of the rows: y, groups, event, offset, exposure.

        Returns
        -------
        Marginal or TabulatedMarginal
            With `mean`, `sd`, `density`, `cdf`, `quantile` and `interval`; the second of hyperparameters, and with
            "factors" and "1step".

        Raises
        ------
        ValueError, TypeError
            For an effect that is not there; for rows that are not those of the fit.
        ArithmeticError
            Where the integrals of "factors" or "1step" have no digits.

        Notes
        -----
        f of a row with "factors" is the tilted distribution times the factors of the other rows. Both methods are found
        at the maximum of the hyperparameters, and scaled to the moments at the other points of an integral. Their
        densities take 31 integrals a row and, for "1step", 31 factorisations.

        References
        ----------
        .. [CH] B. Cseke and T. Heskes, "Approximate marginals in latent Gaussian models", JMLR 12, 2011.
        """
        if isinstance(effect, str) and effect in self._integrated_names:
            return self.integration.marginal(effect)
        names = getattr(self, "coefficient_names", ())
        if isinstance(effect, str) and names:
            check_choice(effect, "effect", (*names, *self._integrated_names))
        method = (FACTORS_METHOD if X is not None else CUMULANTS_METHOD) if method is None else method
        name = ", ".join(map(str, effect)) if isinstance(effect, tuple) else str(effect)
        if check_choice(method, "method", MARGINAL_METHODS) != CUMULANTS_METHOD:
            return self._correct_by_rows(effect, name, method, X, arguments)
        if X is not None or arguments:
            raise error_of("method", "must be 'factors' or '1step' for the rows of a fit, got 'cumulants'")
        index = np.array([self._find_index(effect)])
        weights, means, sds, skewness = self._components(index)
        return Marginal(name, weights, means[:, 0], sds[:, 0], float(skewness[0]))

    def _correct_by_rows(self, effect, name, method, X, arguments):
        """The marginal of an effect or a row by the factors of all rows."""
        unknown = [argument for argument in arguments if argument not in self._row_arguments]
        if unknown:
            raise TypeError(f"marginal() got an unexpected keyword argument {unknown[0]!r}")
        fitted, offset = self._find_fitted_rows(X, **arguments), 0.0
        if isinstance(effect, numbers.Integral):
            combination, offset = fitted.take_row(check_integer(effect, "effect", low=0))
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
