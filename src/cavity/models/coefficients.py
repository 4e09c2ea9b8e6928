"""What posteriors of weights share: tables of coefficients, intervals, and what other libraries have for them."""

import numpy as np

from cavity.base import summary
from cavity.base.results import Summarized


class Coefficients(Summarized):
    """Base of posteriors N(mean, covariance) of weights that have `coefficient_names`."""

    __slots__ = ()

    @property
    def sd(self):
        """Posterior standard deviations of the weights, (D,)."""
        return np.sqrt(self.variance)

    def interval(self, level=0.95):
        """Return intervals of the weights, each of which holds its weight with that probability.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            The probability; as much is left out on either side.

        Returns
        -------
        ndarray (D, 2)
            Lower and upper ends, of the same weights as `mean`.
        """
        return summary.gaussian(self.coefficient_names, self.mean, self.sd).interval(level)

    def _marginals(self):
        """Those of the coefficients, per unit of the columns as they were given."""
        names, mean, variance = self._per_column()
        return summary.gaussian(names, mean, np.sqrt(variance))

    def covariance_table(self, *, correlation=False):
        """Return the posterior covariance of the coefficients of `summary`, as a table with their names.

        Parameters
        ----------
        correlation : bool, default False
            Return correlations instead.

        Returns
        -------
        Table
            Rows and columns by names; ``covariance_table().to_frame()`` is a data frame.
        """
        names, matrix = self._per_column()[0], self._covariance_per_column()
        if correlation:
            sd = np.sqrt(np.diagonal(matrix))
            matrix = matrix / sd / sd[:, None]
        form = 3 if correlation else None
        title = f"Posterior {'correlations' if correlation else 'covariances'} of {len(names)} coefficients"
        columns = dict(zip(names, matrix.T, strict=True))
        return summary.Table(title, names, columns, dict.fromkeys(columns, form))

    def _per_column(self):
        """Return names, means and variances of the coefficients of the columns as they were given."""
        return self.coefficient_names, self.mean, self.variance

    def _covariance_per_column(self):
        """Return the covariance of these coefficients."""
        return self.covariance
