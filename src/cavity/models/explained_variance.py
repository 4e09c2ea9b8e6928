"""The share of the variance of observations that a regression explains.

References
----------
.. [GGGV] A. Gelman, B. Goodrich, J. Gabry and A. Vehtari, "R-squared for Bayesian regression models", The American
   Statistician 73, 2019.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from cavity.base import arrays, summary
from cavity.base.frames import join_names
from cavity.base.public_objects import Data

DEFAULT_DRAWS = 1000  # of the coefficients, for standard deviations and intervals
ROWS_PER_BLOCK = 256  # whose draws are made at a time: 2 MB


class ExplainedVariance:
    """The method `r2`; a subclass has ``_linear_rows`` and ``_effect_draws``, as `AverageEffects` describes them."""

    __slots__ = ()

    def _effect_draws(self, n, rng):
        return self.sample(n, rng)

    def _checked_linear_rows(self, data, row_options):
        """Return ``_linear_rows`` of data, after a check of the names of its options."""
        _, *options = signature(self._linear_rows).parameters
        for name in row_options.keys() - set(options):
            raise arrays.error_of("row_options", f"must be of {join_names(options)}, got {name!r}")
        return self._linear_rows(data, **row_options)

    def r2(self, data: Data, *, level: float = 0.95, rng: Any = 0, **row_options: Any) -> summary.Table:
        """Return the share of the variance of observations that is that of their means, by draws of the coefficients.

        For each draw it is V/(V + M): V is the variance over the rows of the mean of the observation given f, M the
        mean over the rows of its variance given f (eq. 3 of [GGGV]_). Effects of groups are among the coefficients, and
        trials count one by one.

        Parameters
        ----------
        data : data frame, dict of columns, or array_like (n, D)
            Rows, as `predict` takes them.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness; a seed gives the same bits again.
        **row_options : optional
            offset and exposure, and of mixed models groups and levels, as `predict` takes them: ``exposure=1.0`` gives
            rates, ``levels="zero"`` typical groups, ``levels="new"`` averages over groups that have not been seen.

        Returns
        -------
        Table
            Mean, sd and interval of the share.

        Raises
        ------
        ValueError
            For more than two classes, bounds, and observations without a variance.

        Examples
        --------
        >>> import cavity
        >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
        >>> shares = cavity.GLM("Reaction ~ Days").fit(table).r2(table)
        >>> round(float(shares.columns["mean"][0]), 2)
        0.28
        """
        level, rng = arrays.check_number(level, "level", low=0, high=1), arrays.make_generator(rng)
        matrix, offset, extra = self._checked_linear_rows(data, row_options)
        weights = self._effect_draws(DEFAULT_DRAWS, rng)
        n, sums = matrix.shape[0], np.zeros((3, DEFAULT_DRAWS))
        centre = None
        for start in range(0, n, ROWS_PER_BLOCK):
            part = slice(start, start + ROWS_PER_BLOCK)
            f = matrix[part] @ weights.T  # (rows, effects) (effects, draws)
            f = f if offset is None else f + offset[part][:, None]
            if extra is not None and extra[part].any():
                f += np.sqrt(extra[part])[:, None] * rng.standard_normal(f.shape)
            mean, variance = find_conditional_moments(self._likelihood, f)
            centre = mean[0] if centre is None else centre  # so that sums of squares keep their digits
            sums += ((mean - centre).sum(axis=0), ((mean - centre) ** 2).sum(axis=0), variance.sum(axis=0))
        first, second, residual = sums / n
        explained = second - first**2
        columns = summary.summarise_draws(explained / (explained + residual), level)
        columns = {name: np.array([value]) for name, value in columns.items()}
        notes = (f"of {DEFAULT_DRAWS} draws",)
        return summary.Table("Explained share of variance", ("R2",), columns, dict.fromkeys(columns, "sd"), notes)


def find_conditional_moments(likelihood, f):
    """Return the mean and the variance of observations given f."""
    if likelihood.n_classes == 2:
        y = likelihood.check(np.ones(f.size))
        p = np.exp(likelihood.log_p(y, f.ravel())).reshape(f.shape)
        return p, p * (1.0 - p)
    if likelihood.n_classes is not None:
        raise arrays.error_of("data", f"must be of numbers or two classes, got {likelihood.n_classes} classes")
    return np.asarray(likelihood.conditional_mean(f)), likelihood.conditional_variance(f) + np.zeros(f.shape)
