"""Linear regression with relevance determination and the interface of scikit-learn.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, sections 7.2 and 10.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike
from cavity.models.regression.linear import LinearRegression
from cavity.sklearn.base import Estimator, check_rows

__all__ = ["ARDRegression"]


@dataclass(kw_only=True, eq=False, repr=False)
class ARDRegression(RegressorMixin, Estimator):
    """Linear regression in which each weight has a variance of its own, those of idle columns vanishing [B]_.

    The model of `cavity.LinearRegression` on centred data; noise and variances are learnt with their uncertainty.

    Parameters
    ----------
    ard : bool, default True
        Whether each weight has a variance of its own; False is ridge regression of which one variance is learnt.
    fit_intercept : bool, default True
        Whether there is an intercept, with a flat prior: columns and targets are centred.
    max_iter : int, default 1000
        Most passes over the data, those of rejected extrapolations included.
    tol : float, default 1e-10
        Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per row.
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    coef_, coef_sd_ : ndarray (D,)
        Posterior means and standard deviations of the weights.
    intercept_ : float
        The intercept; 0.0 if there is none.
    relevance_ : ndarray (D,)
        Share of each weight that the data determine, from 0 to 1.
    noise_variance_ : float
        1 over the posterior mean of the precision of the noise.
    elbo_ : float
        Lower bound of the log evidence of the centred targets.
    n_iter_ : int
        Passes.
    converged_ : bool
        Whether the stopping rule was met.
    posterior_ : cavity.LinearRegressionPosterior
        The posterior.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    cavity.LinearRegression : The model underneath; it reads files larger than memory.
    sklearn.linear_model.ARDRegression : Point estimates of the variances, and a threshold that removes columns.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import ARDRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> y = 3.0 + X @ [2.0, 0.0, -1.0, 0.0, 0.0] + rng.normal(0.0, 0.5, size=100)
    >>> model = ARDRegression().fit(X, y)
    >>> model.coef_.round(1).tolist(), round(model.intercept_, 1)
    ([2.0, 0.0, -1.0, 0.0, 0.0], 3.0)
    """

    ard: bool = True
    fit_intercept: bool = True
    max_iter: int = 1000
    tol: float = 1e-10
    n_threads: int | None = None
    verbose: int = 0

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit by coordinate ascent.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows, of any scale.
        y : array_like, shape (N,)
            The targets.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; ``converged_`` is False then.
        """
        X, y, _ = check_rows(self, X, y, dtype=np.float64, y_numeric=True)
        model = LinearRegression(ard=arrays.check_flag(self.ard, "ard"), intercept=False)
        intercept = arrays.check_flag(self.fit_intercept, "fit_intercept")
        self._centre = np.mean(X, axis=0) if intercept else np.zeros(X.shape[1])
        middle = float(np.mean(y)) if intercept else 0.0
        posterior = model.fit(X - self._centre, y - middle, **self._options("max_iter", "tol", "n_threads"))
        self.posterior_, self.coef_, self.relevance_ = posterior, posterior.mean.copy(), posterior.relevance
        self.coef_sd_ = np.sqrt(posterior.variance)
        self.intercept_ = middle - float(self._centre @ self.coef_)
        self.noise_variance_, self.elbo_ = 1.0 / posterior.noise_precision.mean, posterior.elbo
        self.n_iter_, self.converged_ = posterior.n_iter, posterior.converged
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Mean of the predictive distribution and, on request, its standard deviations.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.
        return_std : bool, default False
            Whether to return standard deviations, those of new observations as in scikit-learn.

        Returns
        -------
        mean : ndarray, shape (n,)
            The means.
        std : ndarray, shape (n,)
            Only with `return_std`.
        """
        X = self._new_rows(X)
        mean, variance = self.posterior_.predict(X - self._centre, noise=True)
        mean = mean + (self.intercept_ + float(self._centre @ self.coef_))
        return (mean, np.sqrt(variance)) if return_std else mean
