"""The priors of many responses: the defaults of each follow its own observations, as in a fit alone."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.constants import MAD_TO_SD
from cavity.base.rows import Rows
from cavity.models.defaults import find_location_and_spread, find_prior_scale, follows_units, is_real
from cavity.models.linear.defaults import (
    INTERCEPT_VARIANCE_RATIO,
    ColumnScales,
    choose_prior,
    has_added_intercept,
    scale_prior_variance,
)
from cavity.models.linear.prior import Prior
from cavity.sources.features import compute_column_scales, find_constant_columns


@dataclass(frozen=True, slots=True, eq=False)
class PriorChoice:
    """How the prior of the weights of a response is found.

    Attributes
    ----------
    model : GLM
        The settings, before defaults.
    rows : Rows
        The rows, before an intercept is added and columns are scaled.
    columns : ColumnScales
        Those of X.
    constant : ndarray (D,) of bool
        Which columns of X are constant.
    first : Prior
        That of the first response.
    """

    model: object
    rows: Rows
    columns: ColumnScales
    constant: np.ndarray
    first: Prior

    @classmethod
    def of(cls, model, rows, resolved):
        """Return the choice of settings for rows, and for these the settings with defaults."""
        columns = ColumnScales.of(model, rows, has_added_intercept(model.intercept))
        first = Prior.of(resolved.model.prior_mean, resolved.model.prior_variance, resolved.rows.X.shape[1])
        return cls(model, rows, columns, find_constant_columns(rows.X, rows.weights), first)

    @property
    def follows_responses(self):
        """Whether defaults depend on the observations."""
        return is_real(self.model.likelihood) or follows_units(self.model.likelihood)

    def of_rows(self, index):
        """Return the choice for some of the rows; columns keep their centre and spread, a prior covariance its root."""
        rows, columns, added = self.rows.part(index), self.columns, has_added_intercept(self.model.intercept)
        if columns.scale is not None:
            mean, _, scale = compute_column_scales(rows.X, rows.weights)
            if columns.scaled:
                mean, scale = (mean - columns.centre) / columns.spread, scale / columns.spread
            columns = replace(columns, mean=mean, scale=scale)
        part = replace(self, rows=rows, columns=columns, constant=find_constant_columns(rows.X, rows.weights))
        if self.follows_responses or self.first.variance.ndim == 2:
            return part
        prior = choose_prior(self.model, rows, columns, part.constant, added)
        return replace(part, first=Prior.of(*prior, len(self.first.mean)))

    def of_response(self, y, offset):
        """Return mean and variance of the prior for one response."""
        if not self.follows_responses:
            return self.first.mean, self.first.variance
        rows = replace(self.rows, y=y, offset=offset)
        return choose_prior(self.model, rows, self.columns, self.constant, has_added_intercept(self.model.intercept))

    def of_responses(self, y, offset, observed):
        """Return prior means (B, D) and standard deviations of whitened columns (B, D) of responses (B, N).

        `observed` are the entries that count: responses in which they are of the same rows have one choice.
        """
        if observed.all():
            return self._of_complete(y, offset)
        patterns, numbers = np.unique(observed, axis=0, return_inverse=True)
        mean, sd = np.empty((2, len(y), len(self.first.mean)))
        for number, pattern in enumerate(patterns):
            members = np.flatnonzero(numbers.ravel() == number)
            choice = self if pattern.all() else self.of_rows(pattern)
            mean[members], sd[members] = choice._of_complete(y[members][:, pattern], offset[members][:, pattern])
        return mean, sd

    def _of_complete(self, y, offset):
        if not self.follows_responses or self.first.variance.ndim == 2:
            return self._of_one_root(y, offset)
        location, size = self._find_locations(y, offset)
        columns, shape = self.columns, (len(y), len(self.constant))
        mean, variance = np.broadcast_to(self.model.prior_mean, shape), self.model.prior_variance
        if variance is None:
            variance = scale_prior_variance(columns, self.constant, location, size)
        if has_added_intercept(self.model.intercept):
            wide = self.model.intercept
            if wide is True:
                wide = INTERCEPT_VARIANCE_RATIO * size**2
                wide = wide + np.sum(variance * columns.mean**2, axis=-1, keepdims=True)
                wide = wide + np.sum(mean * columns.mean, axis=-1, keepdims=True) ** 2
            head = np.broadcast_to(wide, location.shape)
            mean = np.hstack([location, mean])
            variance = np.hstack([head, np.broadcast_to(variance, shape)])
        shape = len(y), len(self.first.mean)
        return np.array(np.broadcast_to(mean, shape)), np.sqrt(np.broadcast_to(variance, shape))

    def _of_one_root(self, y, offset):
        """Return the same where the root of the prior is that of the first response, but for an added intercept."""
        first, count = self.first, len(y)
        mean, sd = np.tile(first.mean, (count, 1)), np.tile(first.find_scales(first), (count, 1))
        if self.follows_responses:
            for b in range(count):
                mean[b], variance = self.of_response(y[b], offset[b])
                sd[b] = Prior.of(mean[b], variance, len(first.mean)).find_scales(first)
        return mean, sd

    def _find_locations(self, y, offset):
        """Return location and prior scale of f of each response, (B, 1) both."""
        likelihood, weights = self.model.likelihood, self.rows.weights
        scale = find_prior_scale(likelihood)
        if weights is None and is_real(likelihood):
            values = y - offset
            location = np.median(values, axis=1, keepdims=True)
            spread = MAD_TO_SD * np.median(np.abs(values - location), axis=1, keepdims=True)
            if np.all(spread > 0):
                return location, scale * spread
        rows = (Rows(self.rows.X, *pair, weights) for pair in zip(y, offset, strict=True))
        pairs = np.array([find_location_and_spread(likelihood, part) for part in rows])
        return pairs[:, :1], scale * pairs[:, 1:]
