"""Variational Gaussian mixture, N = 2e4, D = 5, 8 overlapping components of full covariance, K = 8.

Each library begins and stops by its own rule, with its own default prior. "below the truth" is the held-out log density
under the mixture that the rows were drawn from, minus that of the fit.
"""

from types import SimpleNamespace

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t

CASES = {"8": "Variational Gaussian mixture, N = 2e4, D = 5, K = 8"}
COLUMNS = ("held-out log density", "below the truth")
DIM = 5


def data(case, small):
    """Return rows to fit, others to judge by, and the log density of those."""
    n, k, rng = 500 if small else 20_000, 3 if small else int(case), np.random.default_rng(6)
    means, roots = 2.5 * rng.normal(size=(k, DIM)), rng.normal(size=(k, DIM, DIM)) / np.sqrt(DIM)
    covariances = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(DIM)
    labels = rng.integers(0, k, n + 5000)
    X = means[labels] + np.einsum(
        "nij,nj->ni", np.linalg.cholesky(covariances)[labels], rng.normal(size=(n + 5000, DIM))
    )
    parts = [multivariate_normal.logpdf(X[n:], m, S) for m, S in zip(means, covariances, strict=True)]
    return SimpleNamespace(X=X[:n], Z=X[n:], k=k, truth=float(np.mean(logsumexp(parts, axis=0) - np.log(k))))


def score_fit(data, log_density):
    """Return the scores in the columns of the table."""
    mean = float(np.mean(log_density))
    return {"held-out log density": mean, "below the truth": data.truth - mean}


def cavity(data, threads):
    """The default start and stopping rule, a change of the bound by 1e-10 of it."""
    import cavity

    model = cavity.GaussianMixture(data.k)
    return lambda: model.fit(data.X, n_threads=threads), lambda fitted: score_fit(data, fitted.log_density(data.Z))


def scikit_learn(data, threads):
    """A Dirichlet prior of the weights, as the others; more iterations than its 100, so that it converges."""
    from sklearn.mixture import BayesianGaussianMixture

    def fit():
        kind = "dirichlet_distribution"
        model = BayesianGaussianMixture(
            n_components=data.k, weight_concentration_prior_type=kind, max_iter=1000, random_state=0
        )
        return model.fit(data.X)

    return fit, lambda fitted: score_fit(data, fitted.score_samples(data.Z))


def bayespy(data, threads):
    """Its guide's mixture: random responsibilities to begin with, `update` until the bound changes by less than tol."""
    from bayespy.inference import VB
    from bayespy.nodes import Categorical, Dirichlet, Gaussian, Mixture, Wishart

    def fit():
        np.random.seed(0)  # noqa: NPY002  # what it draws from
        weights = Dirichlet(np.ones(data.k), name="weights")
        labels = Categorical(weights, plates=(len(data.X),), name="labels")
        mean = Gaussian(np.zeros(DIM), 1e-2 * np.eye(DIM), plates=(data.k,), name="mean")
        precision = Wishart(DIM, np.eye(DIM), plates=(data.k,), name="precision")
        rows = Mixture(labels, Gaussian, mean, precision, name="rows")
        labels.initialize_from_random()
        rows.observe(data.X)
        VB(rows, mean, precision, labels, weights).update(repeat=500, tol=1e-6, verbose=False)
        return weights, mean, precision

    def judge(nodes):
        (alpha,), (m, mm), (P, _) = nodes[0].phi, nodes[1].u, nodes[2].u
        share = alpha / np.sum(alpha)
        freedom = 2.0 * nodes[2].phi[1]  # half of it is the natural parameter of the Wishart
        logs = []
        for k in range(data.k):
            spread = mm[k] - np.outer(m[k], m[k])
            scale = np.linalg.inv(P[k]) * freedom[k] / (freedom[k] - DIM + 1.0) + spread
            logs.append(np.log(share[k]) + multivariate_t.logpdf(data.Z, m[k], scale, freedom[k] - DIM + 1.0))
        return score_fit(data, logsumexp(logs, axis=0))

    return fit, judge


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "bayespy": bayespy}
