"""How good the approximation of a mixed model is: its sites and effects as `judge_approximation` takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, Data, Seed
from cavity.models.approximation_check import (
    ApproximationCheck,
    check_same_rows,
    find_plug_in_evidence,
    judge_approximation,
)
from cavity.models.corrected_marginal import RowsAtMaximum, check_rows_are_there
from cavity.models.integral import SiteMoments
from cavity.models.mixed.effect_layout import select_rows
from cavity.models.mixed.equal_rows import merge_equal_rows
from cavity.models.mixed.groups_out import OF_ROWS


class ChecksApproximation:
    """Base of posteriors of mixed models that judge their approximation."""

    __slots__ = ()
    _row_arguments = ("y", "groups", "event", "offset", "exposure")  # of `marginal`

    def check_approximation(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        draws: int = 4000,
        rng: Seed = 0,
    ) -> ApproximationCheck:
        """Return what EP may miss, at the hyperparameters of the fit; `check` is about the data.

        Parameters
        ----------
        X : data frame or array_like (N, D)
            The rows of the fit once more.
        y : array_like (N,) or str, optional
            Observations in the form of the likelihood; a formula names them.
        groups : dict of columns (N,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        event : array_like (N,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        draws : int, default 4000
            Draws of the posterior that are weighted.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ApproximationCheck
            It shows itself, with a verdict in words.

        Raises
        ------
        ValueError
            For rows that are not as many as those of the fit; after `update`.
        """
        draws = arrays.check_integer(draws, "draws", low=100)
        arguments = {"groups": groups, "event": event, "offset": offset, "exposure": exposure}
        _, _, merged, moments = self._find_sites(X, y, arguments)
        base = merged.rows.offset
        arguments = self._prior_gap(), find_plug_in_evidence(self), draws, arrays.make_generator(rng)
        more = {"offset": 0.0 if base is None else base, "constant": float(merged.constant(self.model.likelihood))}
        return judge_approximation(moments, self._mode_effects, *arguments, **more)

    def _find_sites(self, X, y, arguments):
        """The rows of the fit once more, effects of those in use, their `SiteRows` and `SiteMoments` at the maximum."""
        if self._tau is None:
            raise ValueError(f"a correction needs the sites {OF_ROWS}")
        groups, event, offset, exposure = map(arguments.get, ("groups", "event", "offset", "exposure"))
        rows, values, _ = self._observed_rows(X, y, groups, offset, exposure, self._row_weights, event)
        check_same_rows(self, rows)
        subset, mask, likelihood = rows.used(), rows.in_use, self.model.likelihood
        matrix = self._layout.rows(subset.X, [select_rows(value, mask) for value in values])
        merged, effects = merge_equal_rows(likelihood, subset, matrix), self._mode_effects
        sites, natural = merged.make_sites(likelihood), merged.gather(self._tau[mask], self._rho[mask])
        base = merged.rows.offset
        moments = SiteMoments(sites, merged.matrix, *effects.predict(merged.matrix, base), *natural)
        return rows, matrix, merged, moments

    def _find_fitted_rows(self, X=None, y=None, **arguments):
        rows, matrix, _, moments = self._find_sites(check_rows_are_there(X), y, arguments)
        offset = np.zeros(matrix.shape[0]) if rows.offset is None else rows.offset[rows.in_use]
        return RowsAtMaximum(moments, self._mode_effects, matrix, offset, rows.in_use)

    def _prior_gap(self):
        """log of the posterior's density over the prior's, at the posterior mean of the mode."""
        layout, effects = self._layout, self._mode_effects
        prior = layout.precision(self.model.prior_variance, self._settings)
        rows, columns = layout.entries()
        step = effects.mean.copy()
        step[: len(self.mean)] -= self.model.prior_mean
        times = np.where(rows == columns, 1.0, 2.0)
        square = float(np.sum(times * prior.entries * step[rows] * step[columns]))
        return 0.5 * (square + effects.log_determinant - prior.log_determinant)
