"""Coefficients of the columns as they are, of weights that apply to scaled columns."""

import numpy as np

from cavity.base.errors import check_within_range
from cavity.sources.features import prepare_rows


class ScaledColumns:
    """Base of a posterior whose weights apply to columns that are scaled by `centre`, `spread` and `intercept`."""

    @property
    def _scales_rows(self):
        """Whether new rows are scaled, or get a column of ones."""
        return self.intercept or self.centre is not None

    def _scale(self, x):
        """Return rows as the weights take them."""
        return prepare_rows(x, self.centre, self.spread, self.intercept)

    def _per_column(self):
        """Return names, means and variances of the coefficients of the columns before scaling."""
        names, mean, variance = self.coefficient_names, self.mean, self.variance
        if self.centre is None:
            return names, mean, variance
        with np.errstate(over="ignore", under="ignore"):
            mean, variance = mean[self.intercept :] / self.spread, variance[self.intercept :] / self.spread**2
        if not self.intercept:
            return names, mean, variance
        at_zero = self._scale(np.zeros((1, self.n_features)))
        first = self._weights.predict(at_zero, np.zeros(1))
        moments = np.append(first[0], mean), np.append(first[1], variance)
        return names, *(check_within_range(values, "summary: coefficients") for values in moments)

    def _covariance_per_column(self):
        """Return the covariance of these coefficients."""
        return self.covariance if self.centre is None else self._unscaling @ self.covariance @ self._unscaling.T

    def _drawn_per_column(self, weights):
        """Return draws of these coefficients, of draws of the weights."""
        return weights if self.centre is None else weights @ self._unscaling.T

    @property
    def _unscaling(self):
        """The matrix that turns weights of scaled columns into these coefficients."""
        slopes = np.pad(np.diag(1.0 / self.spread), ((0, 0), (self.intercept, 0)))
        return np.vstack([self._scale(np.zeros((1, self.n_features))), slopes]) if self.intercept else slopes
