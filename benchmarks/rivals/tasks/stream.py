"""A stream of 1e5 rows of 20 columns, which are predicted before they are learnt from.

cavity takes batches of 1000 by assumed-density filtering, scikit-learn the same by partial_fit; river takes row by row
as it is made for. The linear regressions are Bayesian and have the noise; SGDRegressor has no variances.
"""

from types import SimpleNamespace

import numpy as np
from tasks.scores import mean_log_density, mean_log_probability, sides

CASES = {
    "logistic": "Online logistic regression, a stream of 1e5 rows, D = 20",
    "linear": "Online linear regression, a stream of 1e5 rows, D = 20",
}
COLUMNS = ("log density before learning",)
DIM, BATCH, NOISE = 20, 1000, 0.5


def data(case, small):
    """Return the rows in order."""
    n, rng = 600 if small else 10**5, np.random.default_rng(9)
    X, y = sides(rng, n, DIM, "logit")
    if case == "linear":
        y = X @ np.sin(np.arange(DIM) + 1.0) + NOISE * rng.normal(size=n)
    return SimpleNamespace(
        X=X, y=y, case=case, batches=range(0, n, 100 if small else BATCH), size=100 if small else BATCH
    )


def score_fit(data, fitted):
    """Return what the column of the table is: of all rows but the first batch."""
    y = data.y[data.size :]
    if data.case == "logistic":
        p = np.clip(np.concatenate(fitted), 1e-15, 1.0 - 1e-15)
        return {COLUMNS[0]: mean_log_probability(y, p)}
    mean, variance = np.concatenate(fitted, axis=1)
    return {COLUMNS[0]: mean_log_density(y, mean, variance)}


def cavity(data, threads):
    """`update` of a GLM with prior N(0, I) by ADF."""
    import cavity

    logistic = data.case == "logistic"
    likelihood = cavity.likelihoods.Logit() if logistic else cavity.likelihoods.Gaussian(NOISE**2)
    model = cavity.GLM(likelihood, prior_variance=1.0)

    def fit():
        posterior = model.fit(data.X[: data.size], data.y[: data.size], method="adf")
        fitted = []
        for start in data.batches[1:]:
            X, y = data.X[start : start + data.size], data.y[start : start + data.size]
            fitted.append(posterior.predict_proba(X)[:, 1] if logistic else posterior.predict(X, noise=True))
            posterior = posterior.update(X, y)
        return fitted

    return fit, lambda fitted: score_fit(data, fitted)


def scikit_learn(data, threads):
    """SGDClassifier with log loss and partial_fit."""
    from sklearn.linear_model import SGDClassifier

    if data.case == "linear":
        raise NotImplementedError("SGDRegressor has no predictive variance")

    def fit():
        model = SGDClassifier(loss="log_loss", fit_intercept=False, random_state=0)
        model.partial_fit(data.X[: data.size], data.y[: data.size], classes=[0, 1])
        fitted = []
        for start in data.batches[1:]:
            X = data.X[start : start + data.size]
            fitted.append(model.predict_proba(X)[:, 1])
            model.partial_fit(X, data.y[start : start + data.size])
        return fitted

    return fit, lambda fitted: score_fit(data, fitted)


def river(data, threads):
    """Row by row: logistic regression by SGD, or Bayesian linear regression, which is exact."""
    from river.linear_model import BayesianLinearRegression, LogisticRegression

    rows = [dict(enumerate(row)) for row in data.X.tolist()]
    if data.case == "linear":

        def fit():
            model, fitted = BayesianLinearRegression(alpha=1.0, beta=1.0 / NOISE**2), []
            for x, y in zip(rows, data.y.tolist(), strict=True):
                normal = model.predict_one(x, with_dist=True)
                fitted.append((normal.mu, normal.sigma**2))
                model.learn_one(x, y)
            return [np.array(fitted[data.size :]).T]

        return fit, lambda fitted: score_fit(data, fitted)

    def fit():
        model, fitted = LogisticRegression(intercept_lr=0.0), []
        for x, y in zip(rows, data.y.astype(bool).tolist(), strict=True):
            fitted.append(model.predict_proba_one(x)[True])
            model.learn_one(x, y)
        return [np.array(fitted[data.size :])]

    return fit, lambda fitted: score_fit(data, fitted)


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "river": river}
