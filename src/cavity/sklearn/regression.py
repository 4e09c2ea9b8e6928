"""Linear models with the interface of scikit-learn: robust, of quantiles, and of counts.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [GJ] Andrew Gelman et al., "A weakly informative default prior distribution for logistic and other regression
   models", Annals of Applied Statistics 2, 2008.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.likelihoods import AsymmetricLaplace, Laplace, NegativeBinomial, Poisson, StudentT
from cavity.models.glm.model import GLM
from cavity.sklearn.base import (
    Estimator,
    check_per_row,
    drop_zero_weights,
    list_own_settings_first,
    share_docstring,
    validate_data,
)

__all__ = ["NegativeBinomialRegressor", "PoissonRegressor", "QuantileRegressor", "RobustRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class GLMEstimator(Estimator):
    """What estimators on `cavity.GLM` share; a subclass has `_likelihood_of_fit()`.

    prior_variance : float, optional
        Variance of the prior of each weight. By default (c/s_j)^2 for column j [GJ]_, as in `cavity.GLM`: s_j is its
        standard deviation, or half the distance of its two values, and c is 2.5 robust spreads of y for real y, 2.5 for
        counts, 2.5/1.7 for ordered classes.
    max_iter : int, default 200
        Most sweeps.
    tol : float, default 1e-8
        Stopping rule, see `cavity.GLM.fit`.
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    coef_, coef_sd_ : ndarray (D,)
        Posterior means and standard deviations of the weights.
    likelihood_ : cavity.likelihoods.Likelihood
        With the parameters that were learnt.
    log_evidence_ : float
        Log probability of the targets, integrated over the weights.
    loo_score_ : float
        Mean over the rows (weighted) of the log density of a target given all other rows, which EP has for free. Not
        where a row has no proper cavity.
    n_iter_ : int
        Sweeps.
    converged_ : bool
        Whether the stopping rule was met.
    posterior_ : cavity.GLMPosterior
        The posterior, the intercept first.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.
    """

    prior_variance: float | None = None
    max_iter: int = 200
    tol: float = 1e-8
    n_threads: int | None = None
    verbose: int = 0

    def __init_subclass__(cls, **options):
        """Put what the regressors share into a docstring, in place of its line "{settings}"."""
        super().__init_subclass__(**options)
        share_docstring(cls, GLMEstimator)

    def _fit_checked(self, X, y, weight, *, intercept, **arguments):
        """Fit checked rows without those of weight zero, copies as weights: a search then sees them as one."""
        rows, inverse = np.unique(np.column_stack([X, y, *arguments.values()]), axis=0, return_inverse=True)
        X, (y, *others) = rows[:, : X.shape[1]], rows[:, X.shape[1] :].T
        arguments, weight = dict(zip(arguments, others, strict=True)), np.bincount(inverse.ravel(), weight)
        prior = self.prior_variance
        prior = None if prior is None else arrays.check_number(prior, "prior_variance", low=0)
        model = GLM(self._likelihood_of_fit(), prior_variance=prior, intercept=intercept)
        arguments |= self._options("max_iter", "tol", "n_threads")
        posterior = model.fit(X, y, sample_weight=weight, **arguments)
        self.__dict__.pop("loo_score_", None)  # that of an earlier fit
        self.posterior_, self.likelihood_ = posterior, posterior.model.likelihood
        mean, sd = posterior.mean, np.sqrt(posterior.variance)
        self.coef_, self.coef_sd_ = mean[intercept:].copy(), sd[intercept:].copy()
        self.intercept_ = float(mean[0]) if intercept else 0.0
        self.log_evidence_, self.n_iter_ = posterior.log_evidence, posterior.n_iter
        self.converged_ = posterior.converged
        self._set_loo_score(lambda: posterior.loo_log_density, weight)


@dataclass(kw_only=True, eq=False, repr=False)
class _GLMRegressor(RegressorMixin, GLMEstimator):
    """Regressors, which have an intercept."""

    fit_intercept: bool = True

    def _fit(self, X, y, sample_weight, offset=0.0):
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        X, y, offset, weight = drop_zero_weights(sample_weight, X, y, check_offset(offset, len(y)))
        intercept = arrays.check_flag(self.fit_intercept, "fit_intercept")
        self._fit_checked(X, y, weight, intercept=intercept, offset=offset)
        return self


def check_offset(offset, n):
    """Return the known part of f of n rows, (n,)."""
    return check_per_row(0.0 if offset is None else offset, "offset", n, "number")


class _LocationRegressor(_GLMRegressor):
    """Regressors of f itself: the middle of the noise, or a quantile."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit by expectation propagation, and find what is None by the evidence.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,)
            The targets.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

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
            If the stopping rule of `cavity.GLM.fit` was not met; ``converged_`` is False then.
        """
        return self._fit(X, y, sample_weight)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Mean of the function and, on request, its standard deviations.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.
        return_std : bool, default False
            Whether to return standard deviations of the function; of new observations see ``posterior_.quantile``.

        Returns
        -------
        mean : ndarray, shape (n,)
            The means.
        std : ndarray, shape (n,)
            Only with `return_std`.
        """
        X = self._new_rows(X)
        mean, variance = self.posterior_.predict(X)
        return (mean, np.sqrt(variance)) if return_std else mean


@list_own_settings_first
@dataclass(eq=False, repr=False)
class RobustRegressor(_LocationRegressor):
    """Linear regression that lets go of outliers: noise with heavy tails, of a scale that is learnt, by EP [M]_.

    Parameters
    ----------
    noise : {"student-t", "laplace"}, default "student-t"
        Distribution of the noise. Outliers have no influence with Student-t noise, a bounded one with Laplace noise.
    degrees_of_freedom : float, default 4.0
        Of Student-t noise; None to learn them too.
    scale : float, optional
        Scale of the noise in units of y; learnt, by the evidence, if None.
    fit_intercept : bool, default True
        Whether there is an intercept; its prior is wide.
    {settings}
    intercept_ : float
        Posterior mean of the intercept; 0.0 if there is none.

    See Also
    --------
    sklearn.linear_model.HuberRegressor : A point estimate with a bounded loss; sooner.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import RobustRegressor
    >>> X = np.arange(20.0)[:, None]
    >>> y = 1.0 + 2.0 * X[:, 0] + 0.1 * np.cos(7.0 * X[:, 0])
    >>> y[3] = 500.0
    >>> model = RobustRegressor().fit(X, y)
    >>> model.coef_.round(2).tolist(), model.predict([[30.0]]).round(1).tolist()
    ([2.0], [61.0])
    """

    noise: Literal["student-t", "laplace"] = "student-t"
    _: KW_ONLY
    degrees_of_freedom: float | None = 4.0
    scale: float | None = None

    def _likelihood_of_fit(self):
        arrays.check_choice(self.noise, "noise", ("student-t", "laplace"))
        return Laplace(self.scale) if self.noise == "laplace" else StudentT(self.degrees_of_freedom, self.scale)


@list_own_settings_first
@dataclass(kw_only=True, eq=False, repr=False)
class QuantileRegressor(_LocationRegressor):
    """Linear regression of a quantile, as of the median or of a value that nine of ten targets stay below, by EP [M]_.

    The likelihood is `cavity.likelihoods.AsymmetricLaplace`, a device for quantiles and no model of noise: ``coef_sd_``
    and the standard deviations of `predict` are not calibrated. A bootstrap over rows has standard errors.

    Parameters
    ----------
    quantile : float, default 0.5
        The share of targets below, between 0 and 1.
    fit_intercept : bool, default True
        Whether there is an intercept; its prior is wide.
    {settings}
    intercept_ : float
        Posterior mean of the intercept; 0.0 if there is none.

    See Also
    --------
    sklearn.linear_model.QuantileRegressor : A point estimate by linear programming, with an L1 penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import QuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, y = np.arange(400.0)[:, None], np.arange(400.0) + rng.exponential(size=400)
    >>> round(float(np.mean(y < QuantileRegressor(quantile=0.9).fit(X, y).predict(X))), 2)
    0.9
    """

    quantile: float = 0.5

    def _likelihood_of_fit(self):
        return AsymmetricLaplace(arrays.check_number(self.quantile, "quantile", low=0, high=1), None)


class LogLinkRegressor(_GLMRegressor):
    """Regressors whose mean is exp(x'w + offset), scored by the deviance of a power of the mean, that of counts."""

    def _deviance_power(self):
        return 1.0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> Self:
        """Fit by expectation propagation, and find what is None by the evidence.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,)
            Numbers, zero or more. Counts that are not whole are taken as scikit-learn takes them: with the density of
            a count.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.
        offset : array_like, shape (N,), optional
            Known part of the log of the mean: the log of the exposure.

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
            If the stopping rule of `cavity.GLM.fit` was not met; ``converged_`` is False then.
        """
        return self._fit(X, y, sample_weight, offset)

    def predict(self, X: ArrayLike, offset: ArrayLike | None = None, return_std: bool = False) -> Any:
        """Mean of a new observation, integrated over the posterior and, on request, its standard deviation.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.
        offset : array_like, shape (n,), optional
            Known part of the log of the mean: the log of the exposure.
        return_std : bool, default False
            Whether to return standard deviations of new observations.

        Returns
        -------
        mean : ndarray, shape (n,)
            The means.
        std : ndarray, shape (n,)
            Only with `return_std`.
        """
        X = self._new_rows(X)
        mean, variance = self.posterior_.predict(X, noise=True, offset=check_offset(offset, len(X)))
        return (mean, np.sqrt(variance)) if return_std else mean

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> float:
        """Fraction of the deviance that is explained, D^2, as the regressor of scikit-learn of this name has it.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.
        y : array_like, shape (n,)
            What was observed.
        sample_weight : array_like, shape (n,), optional
            A row of weight w counts as w copies; 0 leaves it out.
        offset : array_like, shape (n,), optional
            Known part of the log of the mean: the log of the exposure.

        Returns
        -------
        float
            1 at best, 0 for the mean of y.
        """
        return d2_tweedie_score(
            y, self.predict(X, offset=offset), sample_weight=sample_weight, power=self._deviance_power()
        )


class _Numbers:
    """Counts that need not be whole, as scikit-learn takes them."""

    __slots__ = ()

    def check(self, y: Any) -> FloatArray:
        """Accept numbers, zero or more."""
        array = arrays.check_finite_array(y, "y", ndim=(0, 1))
        if np.any(array < 0):
            raise ValueError(f"y must not be negative, got {float(np.min(array))!r}")
        return array


class _Poisson(_Numbers, Poisson):
    __slots__ = ()


class _NegativeBinomial(_Numbers, NegativeBinomial):
    __slots__ = ()


@list_own_settings_first
@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegressor(LogLinkRegressor):
    """Poisson regression of counts with a log link, by expectation propagation [M]_.

    Parameters
    ----------
    fit_intercept : bool, default True
        Whether there is an intercept; its prior is wide.
    {settings}
    intercept_ : float
        Posterior mean of the intercept; 0.0 if there is none.

    See Also
    --------
    NegativeBinomialRegressor : For counts whose variance is above their mean.
    sklearn.linear_model.PoissonRegressor : The posterior mode, without its uncertainty; sooner.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import PoissonRegressor
    >>> X = np.linspace(0.0, 1.0, 50)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1.0 + 2.0 * X[:, 0]))
    >>> model = PoissonRegressor().fit(X, y)
    >>> model.coef_.round(1).tolist(), model.coef_sd_.round(1).tolist()
    ([2.0], [0.2])
    """

    def _likelihood_of_fit(self):
        return _Poisson()


@list_own_settings_first
@dataclass(kw_only=True, eq=False, repr=False)
class NegativeBinomialRegressor(LogLinkRegressor):
    """Regression of counts that vary more than Poisson's, with a log link, by expectation propagation [M]_.

    Parameters
    ----------
    dispersion : float, optional
        r: the variance of a count of mean m is m + m^2/r. Learnt, by the evidence, if None.
    fit_intercept : bool, default True
        Whether there is an intercept; its prior is wide.
    {settings}
    intercept_ : float
        Posterior mean of the intercept; 0.0 if there is none.

    See Also
    --------
    PoissonRegressor : For counts whose variance is their mean.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import NegativeBinomialRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 1))
    >>> y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0]) * rng.gamma(2.0, 0.5, 400))
    >>> model = NegativeBinomialRegressor().fit(X, y)
    >>> model.coef_.round(1).tolist(), round(model.likelihood_.dispersion, 1)
    ([0.5], 2.0)
    """

    dispersion: float | None = None

    def _likelihood_of_fit(self):
        return _NegativeBinomial(self.dispersion)
