"""Linear regression with a twentieth of outliers, N = 1e5, D = 10.

cavity and NumPyro have Student-t noise of 4 degrees of freedom with its scale learnt; statsmodels and scikit-learn
Huber's loss, which has no density. The error of weights is against those the rows were made with, in standard
deviations of least squares without outliers, root mean square: about 1 is what such an oracle has.
"""

from types import SimpleNamespace

import numpy as np
from scipy.stats import t

CASES = {"100000": "Robust regression, N = 1e5, D = 10, 5 % outliers"}
COLUMNS = ("held-out log density", "error of weights")
NOISE, DIM, SVI_STEPS = 0.5, 10, 2000


def data(case, small):
    """Return rows to fit, and others to judge by."""
    n, rng = 400 if small else int(case), np.random.default_rng(7)
    X = np.column_stack([np.ones(n + 2000), rng.normal(size=(n + 2000, DIM - 1))])
    w = np.sin(np.arange(DIM) + 1.0)
    spread = np.where(rng.random(n + 2000) < 0.05, 10.0, 1.0)
    y = X @ w + NOISE * spread * rng.normal(size=n + 2000)
    return SimpleNamespace(X=X[:n], y=y[:n], Z=X[n:], z=y[n:], w=w)


def score_fit(data, mean, scale=None):
    """Return the scores in the columns of the table."""
    mean = np.ravel(mean)
    sd = NOISE * np.sqrt(np.diag(np.linalg.inv(data.X.T @ data.X)))
    scores = {"error of weights": float(np.sqrt(np.mean(((mean - data.w) / sd) ** 2)))}
    if scale is None:
        return scores
    return {**scores, "held-out log density": float(np.mean(t.logpdf(data.z, 4.0, data.Z @ mean, scale)))}


def cavity(data, threads):
    """EP; the scale is learnt by the evidence."""
    import cavity

    model = cavity.GLM(cavity.likelihoods.StudentT(4.0, None), prior_variance=10.0)

    def judge(fitted):
        return score_fit(data, fitted.mean, fitted.model.likelihood.scale)

    return lambda: model.fit(data.X, data.y, n_threads=threads), judge


def statsmodels(data, threads):
    """RLM with HuberT, the default."""
    from statsmodels.robust.robust_linear_model import RLM

    return lambda: RLM(data.y, data.X).fit(), lambda fitted: score_fit(data, fitted.params)


def scikit_learn(data, threads):
    """HuberRegressor."""
    from sklearn.linear_model import HuberRegressor

    model = HuberRegressor(fit_intercept=False, max_iter=1000, alpha=0.0)
    return lambda: model.fit(data.X, data.y), lambda fitted: score_fit(data, fitted.coef_)


def numpyro(data, threads):
    """SVI with AutoMultivariateNormal and Adam, in double precision."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    jax.config.update("jax_enable_x64", True)
    X, y = jax.numpy.asarray(data.X), jax.numpy.asarray(data.y)

    def model():
        w = numpyro.sample("w", dist.Normal(0.0, np.sqrt(10.0)).expand([DIM]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(5.0))
        numpyro.sample("y", dist.StudentT(4.0, X @ w, scale), obs=y)

    def fit():
        guide = AutoMultivariateNormal(model)
        svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
        fitted = svi.run(jax.random.PRNGKey(0), SVI_STEPS if len(y) > 1000 else 50, progress_bar=False)
        return guide.median(fitted.params)

    def judge(fitted):
        return score_fit(data, np.asarray(fitted["w"]), float(fitted["scale"]))

    return fit, judge


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "statsmodels": statsmodels, "NumPyro": numpyro}
