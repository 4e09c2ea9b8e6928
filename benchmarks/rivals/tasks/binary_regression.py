"""Bayesian logistic and probit regression, N = 1e5, D = 20, prior N(0, I) where a library has priors.

The truth is the posterior: normal draws around its mode, weighted by importance, with the draws themselves as control
variate, so that its own error is about a hundredth of those in the table. Errors are the largest of all weights: of
means in posterior standard deviations, and of standard deviations as a share.
"""

from types import SimpleNamespace

import numpy as np
from scipy.special import expit, ndtr
from tasks.scores import log_probability, mean_log_probability, sides

CASES = {"logit": "Logistic regression, N = 1e5, D = 20", "probit": "Probit regression, N = 1e5, D = 20"}
COLUMNS = ("held-out log probability", "error of means", "error of sds")
DIM, DRAWS, SVI_STEPS = 20, 2000, 2000


def data(case, small):
    """Return rows to fit, and others to judge by."""
    n = 300 if small else 10**5
    X, y = sides(np.random.default_rng(2), n + 2000, 4 if small else DIM, case)
    return SimpleNamespace(X=X[:n], y=y[:n], Z=X[n:], z=y[n:], link=case)


def exact(data, mean, covariance):
    """Return posterior means and standard deviations, by importance weights of draws of a normal approximation."""
    factor, rng = np.linalg.cholesky(covariance), np.random.default_rng(3)
    half = rng.normal(size=(DRAWS // 2, len(mean)))
    steps = np.concatenate([half, -half])
    draws = mean + steps @ factor.T
    log_w = 0.5 * np.sum(steps**2, axis=1) - 0.5 * np.sum(draws**2, axis=1)
    for start in range(0, DRAWS, 100):
        block = slice(start, start + 100)
        log_w[block] += log_probability(data.link, data.y[:, None], data.X @ draws[block].T).sum(axis=0)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    shift = (w - 1.0 / DRAWS) @ draws
    second = np.sum(factor**2, axis=1) + (w - 1.0 / DRAWS) @ (draws - mean) ** 2
    return mean + shift, np.sqrt(second - shift**2)


def near(data, mean):
    """Return the covariance of the normal approximation at a mean: that of the posterior with its curvature there."""
    f = data.X @ mean
    density = expit(f) * expit(-f) if data.link == "logit" else np.exp(-0.5 * f**2) / np.sqrt(2.0 * np.pi)
    p = expit if data.link == "logit" else ndtr
    weight = density**2 / (p(f) * p(-f))  # the expected curvature
    return np.linalg.inv(np.eye(len(mean)) + (data.X * weight[:, None]).T @ data.X)


def score_fit(data, mean, sd=None, p=None):
    """Return what the columns of the table are; p from the means alone, if a library has no more."""
    mean = np.ravel(mean)
    mode, covariance = mode_of(data)
    true_mean, true_sd = exact(data, mode, covariance)
    if p is None:
        p = (expit if data.link == "logit" else ndtr)(data.Z @ mean)
    scores = {
        "held-out log probability": mean_log_probability(data.z, p),
        "error of means": float(np.max(np.abs(mean - true_mean) / true_sd)),
    }
    return scores if sd is None else {**scores, "error of sds": float(np.max(np.abs(np.ravel(sd) / true_sd - 1.0)))}


def mode_of(data):
    """Return the mode of the posterior by Fisher scoring, and the covariance there."""
    mean, sign = np.zeros(data.X.shape[1]), 2.0 * data.y - 1.0
    for _ in range(50):
        f = sign * (data.X @ mean)
        slope = expit(-f) if data.link == "logit" else np.exp(-0.5 * f * f) / np.sqrt(2.0 * np.pi) / ndtr(f)
        step = near(data, mean) @ (data.X.T @ (sign * slope) - mean)
        mean = mean + step
    return mean, near(data, mean)


def cavity(data, threads):
    """EP with the given prior."""
    import cavity

    likelihood = cavity.likelihoods.Logit() if data.link == "logit" else cavity.likelihoods.Probit()
    model = cavity.GLM(likelihood, prior_variance=1.0)
    return lambda: model.fit(data.X, data.y, n_threads=threads), lambda fitted: score_fit(
        data, fitted.mean, fitted.sd, fitted.predict_proba(data.Z)[:, 1]
    )


def scikit_learn(data, threads):
    """The penalty is the prior; lbfgs is the default, newton-cholesky what the guide has for N much larger than D."""
    from sklearn.linear_model import LogisticRegression

    if data.link == "probit":
        raise NotImplementedError("has no probit regression")
    model = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky", tol=1e-6)
    return lambda: model.fit(data.X, data.y), lambda fitted: score_fit(data, fitted.coef_)


def statsmodels(data, threads):
    """Maximum likelihood, and the standard errors of its curvature."""
    from statsmodels.discrete.discrete_model import Logit, Probit

    kind = Logit if data.link == "logit" else Probit
    return lambda: kind(data.y, data.X).fit(disp=False), lambda fitted: score_fit(data, fitted.params, fitted.bse)


def numpyro(data, threads):
    """SVI with AutoMultivariateNormal and Adam, in double precision."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import log_ndtr
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    jax.config.update("jax_enable_x64", True)
    X, y = jax.numpy.asarray(data.X), jax.numpy.asarray(data.y)

    def model():
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
        if data.link == "logit":
            numpyro.sample("y", dist.BernoulliLogits(X @ w), obs=y)
        else:
            numpyro.factor("y", log_ndtr((2.0 * y - 1.0) * (X @ w)).sum())

    def fit():
        guide = AutoMultivariateNormal(model)
        svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
        fitted = svi.run(jax.random.PRNGKey(0), SVI_STEPS if len(y) > 1000 else 20, progress_bar=False)
        normal = guide.get_posterior(fitted.params)
        return np.asarray(normal.mean), np.sqrt(np.diagonal(np.asarray(normal.covariance_matrix)))

    return fit, lambda fitted: score_fit(data, *fitted)


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "statsmodels": statsmodels, "NumPyro": numpyro}
