"""Marginals of posteriors with an integral over hyperparameters: of effects, weights, and hyperparameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.base import arrays, summary
from cavity.models.integration import put_values
from cavity.models.marginal import Marginal, NumberMarginal, tabulate_mixture_marginals


class IntegratedEffects:
    """Base of posteriors that may have an `integration`.

    A subclass has ``_effect_posterior``, moments of all effects or a `PosteriorMixture` of them, and
    ``_find_index(effect)``, the number of one of them.
    """

    __slots__ = ()

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
        means = np.stack([each.mean[index] for each in points])
        sds = np.sqrt(np.stack([each.variance[index] for each in points])) * corrections.sd_factors[index]
        return corrections.weights, means, sds, corrections.skewness[index]

    def marginal(self, effect: Any) -> NumberMarginal:
        """Return the posterior of one number: normal, or, with `integrate`, integrated and corrected.

        Standard deviations and skewness of effects are corrected by third cumulants of tilted distributions.

        Parameters
        ----------
        effect : str, tuple or int
            The name of a coefficient; of random effects (term, level) or (term, level, column); of f of a Gaussian
            process the number of a row of the fit; or the name of a hyperparameter that is integrated.

        Returns
        -------
        Marginal or TabulatedMarginal
            With `mean`, `sd`, `density`, `cdf`, `quantile` and `interval`; the second of hyperparameters.

        Raises
        ------
        ValueError, TypeError
            For an effect that is not there.
        """
        if isinstance(effect, str) and effect in self._integrated_names:
            return self.integration.marginal(effect)
        names = getattr(self, "coefficient_names", ())
        if isinstance(effect, str) and names:
            arrays.check_choice(effect, "effect", (*names, *self._integrated_names))
        index = np.array([self._find_index(effect)])
        weights, means, sds, skewness = self._components(index)
        name = ", ".join(map(str, effect)) if isinstance(effect, tuple) else str(effect)
        return Marginal(name, weights, means[:, 0], sds[:, 0], float(skewness[0]))
