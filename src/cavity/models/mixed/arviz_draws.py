"""Draws of all effects of a mixed model, of hyperparameters and of log likelihoods, for ArviZ."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, Data, Seed
from cavity.models.coefficients import load_arviz, make_inference_data
from cavity.models.posterior_mixture import draw_points


class DrawsForArviz:
    """Base of posteriors of mixed models whose draws go to ArviZ."""

    __slots__ = ()

    def to_arviz(
        self,
        draws: int = 1000,
        *,
        rng: Seed,
        X: Data | None = None,
        y: ArrayLike | None = None,
        groups: Any = None,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Any:
        """Return draws of all effects for ArviZ, which plots and summarises them; needs the arviz extra.

        Parameters
        ----------
        draws : int, default 1000
            How many, independent of each other: one chain.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.
        X : data frame or array_like (N, D), optional
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

        Returns
        -------
        arviz.InferenceData
            Its posterior has ``coefficients``, the effects of each term under the name of the term, with a dimension of
            levels and one of columns if there are several, and hyperparameters that are integrated; its log_likelihood,
            where X is given, has ``y``, which ``arviz.loo`` needs. From ArviZ 1.0 on it is an xarray.DataTree.

        Raises
        ------
        ImportError
            If ArviZ is not installed, with the command that installs it.
        """
        load_arviz()
        draws, rng = arrays.check_integer(draws, "draws", low=1), arrays.make_generator(rng)
        effects, numbers = self._draw_with_points(draws, rng)
        variables, coords, dims = self._name_draws(effects)
        if self._integrated_names:
            variables |= dict(zip(self._integrated_names, self.integration.values[numbers].T[:, None], strict=True))
        samples = {"posterior": variables}
        if X is not None:
            rows, values, _ = self._observed_rows(X, y, groups, offset, exposure, None, event)
            f = effects @ self._layout.rows(rows.X, values).T
            f += 0.0 if rows.offset is None else rows.offset
            log_p = np.empty(f.shape)
            for number in np.unique(numbers):
                is_drawn = numbers == number
                likelihood = self._point_likelihoods[number] if self._integrated_names else self.model.likelihood
                log_p[is_drawn] = likelihood.log_p(rows.y[None], f[is_drawn])
            samples["log_likelihood"] = {"y": log_p[None]}
        return make_inference_data(samples, coords, dims)

    def _draw_with_points(self, n, rng):
        """Draws (n, all effects), and the numbers (n,) of the points of the integral that they are from."""
        numbers = np.zeros(n, dtype=np.intp)
        if not self._integrated_names:
            return self._mode_effects.sample(n, rng), numbers
        effects = np.empty((n, len(self._mode_effects.mean)))
        for draws, number in draw_points(self.integration.weights, n, rng):
            effects[draws], numbers[draws] = self._effects.points[number].sample(int(np.sum(draws)), rng), number
        return effects, numbers

    def _name_draws(self, effects):
        """Variables (1, n, ...) by names, and their coordinates and dimensions, of draws of all effects."""
        d = len(self.mean)
        variables = {"coefficients": self._drawn_per_column(effects[:, :d])[None]}
        coords, dims = {"coefficient": list(self._per_column()[0])}, {"coefficients": ["coefficient"]}
        for number, name in enumerate(self.terms):
            columns, levels = self.effect_names(name)
            values = effects[:, self._layout.part(number)].reshape(len(effects), len(levels), len(columns))
            dims[name], coords[f"{name} level"] = [f"{name} level"], list(levels)
            if len(columns) > 1:
                dims[name], coords[f"{name} column"] = [*dims[name], f"{name} column"], list(columns)
            variables[name] = (values if len(columns) > 1 else values[:, :, 0])[None]
        for name in self.structured_terms:
            term, part, _ = self._find_structured(name)
            variables[name], dims[name] = effects[None, :, part], [f"{name} effect"]
            coords[f"{name} effect"] = list(term.effect_names())
        return variables, coords, dims
