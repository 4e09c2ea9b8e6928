"""Linear models of positive numbers with the interface of scikit-learn.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
"""

from __future__ import annotations

from dataclasses import dataclass

from cavity.likelihoods import Gamma, Tweedie
from cavity.sklearn.base import list_own_settings_first
from cavity.sklearn.regression import LogLinkRegressor

__all__ = ["GammaRegressor", "TweedieRegressor"]


@list_own_settings_first
@dataclass(kw_only=True, eq=False, repr=False)
class GammaRegressor(LogLinkRegressor):
    """Regression of positive numbers whose sd is in proportion to their mean, with a log link, by EP [M]_.

    Parameters
    ----------
    shape : float, optional
        One over the squared coefficient of variation. Learnt, by the evidence, if None.
    fit_intercept : bool, default True
        Whether there is an intercept; its prior is wide.
    {settings}
    intercept_ : float
        Posterior mean of the intercept; 0.0 if there is none.

    See Also
    --------
    TweedieRegressor : For amounts of which some are 0.
    sklearn.linear_model.GammaRegressor : The posterior mode, without its uncertainty; sooner.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import GammaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> model = GammaRegressor().fit(X, rng.gamma(3.0, np.exp(7.0 + 0.5 * X[:, 0]) / 3.0))
    >>> model.coef_.round(1).tolist(), model.coef_sd_.round(2).tolist()
    ([0.5], [0.04])
    """

    shape: float | None = None

    def _deviance_power(self):
        return 2.0

    def _likelihood_of_fit(self):
        return Gamma(self.shape)


@list_own_settings_first
@dataclass(kw_only=True, eq=False, repr=False)
class TweedieRegressor(LogLinkRegressor):
    """Regression of amounts of which some are 0, with a log link, by EP [M]_.

    Parameters
    ----------
    power : float in (1, 2), optional
        The variance is in proportion to this power of the mean. Learnt, by the evidence, if None.
    fit_intercept : bool, default True
        Whether there is an intercept; its prior is wide.
    {settings}
    intercept_ : float
        Posterior mean of the intercept; 0.0 if there is none.

    See Also
    --------
    GammaRegressor : For amounts that are all positive.
    sklearn.linear_model.TweedieRegressor : The posterior mode, of any power, which is not learnt.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import TweedieRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> y = rng.gamma(2.0, np.exp(1.0 + 0.5 * X[:, 0])) * (rng.random(200) < 0.6)
    >>> model = TweedieRegressor(power=1.5).fit(X, y)
    >>> model.coef_.round(1).tolist(), round(model.likelihood_.dispersion, 1)
    ([0.6], 3.7)
    """

    power: float | None = None

    def _deviance_power(self):
        return self.likelihood_.power

    def _likelihood_of_fit(self):
        return Tweedie(self.power)
