"""Poisson and negative binomial regression with a log link, N = 1e5, D = 10.

There is no prior to speak of (variance 100). The error of weights is against those the rows were made with, in their
standard deviations, root mean square: about 1 is the least possible. The variance of negative binomial counts is
mean + dispersion mean^2, with a dispersion of 0.5.
"""

from types import SimpleNamespace

import numpy as np
from scipy.stats import nbinom, poisson

CASES = {"poisson": "Poisson regression, N = 1e5, D = 10", "negative": "Negative binomial regression, N = 1e5, D = 10"}
COLUMNS = ("held-out log probability", "error of weights", "dispersion")
DIM, DISPERSION = 10, 0.5


def data(case, small):
    """Return rows to fit, and others to judge by; the variance of negative counts is mean + DISPERSION mean^2."""
    n, rng = 300 if small else 10**5, np.random.default_rng(8)
    X = np.column_stack([np.ones(n + 2000), rng.normal(size=(n + 2000, DIM - 1))])
    w = 0.3 * np.sin(np.arange(DIM) + 1.0)
    rate = np.exp(X @ w)
    if case == "negative":
        rate = rate * rng.gamma(1.0 / DISPERSION, DISPERSION, n + 2000)
    y = rng.poisson(rate).astype(float)
    return SimpleNamespace(X=X[:n], y=y[:n], Z=X[n:], z=y[n:], w=w, case=case)


def score_fit(data, mean, dispersion=None):
    """Return what the columns of the table are; the error is that against the truth, root mean square."""
    mean = np.ravel(mean)
    rate = np.exp(data.Z @ mean)
    weight = np.exp(data.X @ data.w)
    weight = weight / (1.0 + DISPERSION * weight) if data.case == "negative" else weight
    sd = np.sqrt(np.diag(np.linalg.inv((data.X * weight[:, None]).T @ data.X)))
    scores = {"error of weights": float(np.sqrt(np.mean(((mean - data.w) / sd) ** 2)))}
    if dispersion is None:
        return {**scores, "held-out log probability": float(np.mean(poisson.logpmf(data.z, rate)))}
    logs = nbinom.logpmf(data.z, 1.0 / dispersion, 1.0 / (1.0 + dispersion * rate))
    return {**scores, "held-out log probability": float(np.mean(logs)), "dispersion": float(dispersion)}


def cavity(data, threads):
    """EP; the dispersion is learnt by the evidence."""
    import cavity

    negative = data.case == "negative"
    likelihood = cavity.likelihoods.NegativeBinomial() if negative else cavity.likelihoods.Poisson()
    model = cavity.GLM(likelihood, prior_variance=100.0)

    def judge(fitted):
        return score_fit(data, fitted.mean, 1.0 / fitted.model.likelihood.dispersion if negative else None)

    return lambda: model.fit(data.X, data.y, n_threads=threads), judge


def statsmodels(data, threads):
    """GLM by Fisher scoring; NegativeBinomial by BFGS, which finds the dispersion."""
    from statsmodels.discrete.discrete_model import NegativeBinomial
    from statsmodels.genmod.families import Poisson
    from statsmodels.genmod.generalized_linear_model import GLM

    if data.case == "poisson":
        return lambda: GLM(data.y, data.X, Poisson()).fit(), lambda fitted: score_fit(data, fitted.params)
    return lambda: NegativeBinomial(data.y, data.X).fit(disp=False, maxiter=200), lambda fitted: score_fit(
        data, fitted.params[:-1], fitted.params[-1]
    )


def scikit_learn(data, threads):
    """PoissonRegressor with Newton's method."""
    from sklearn.linear_model import PoissonRegressor

    if data.case == "negative":
        raise NotImplementedError("has no negative binomial regression")
    model = PoissonRegressor(alpha=0.0, fit_intercept=False, solver="newton-cholesky")
    return lambda: model.fit(data.X, data.y), lambda fitted: score_fit(data, fitted.coef_)


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "statsmodels": statsmodels}
