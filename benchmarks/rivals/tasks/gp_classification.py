"""Gaussian process classification, N = 1000, D = 2: variance and one lengthscale learnt.

cavity and GPy have probit sites and EP, scikit-learn logit sites and Laplace's approximation, GPflow and GPyTorch
probit sites and a normal q over all rows, fitted to a variational bound: the log evidences are not of one kind.
"""

from types import SimpleNamespace

import numpy as np
from scipy.special import ndtr
from tasks.scores import mean_log_probability

CASES = {"500": "GP classification, N = 500, D = 2", "1000": "GP classification, N = 1000, D = 2"}
COLUMNS = ("log evidence", "held-out log probability")
ADAM_STEPS, NATURAL_STEPS = 200, 100


def data(case, small):
    """Return rows to fit, and others to judge by."""
    n, rng = 40 if small else int(case), np.random.default_rng(4)
    X = rng.uniform(-3.0, 3.0, (n + 2000, 2))
    p = ndtr(2.0 * np.sin(X[:, 0]) * np.cos(1.5 * X[:, 1]) + 0.5)
    y = (rng.random(len(X)) < p).astype(float)
    return SimpleNamespace(X=X[:n], y=y[:n], Z=X[n:], z=y[n:])


def score_fit(data, evidence, p):
    """Return the scores in the columns of the table."""
    return {"log evidence": float(evidence), "held-out log probability": mean_log_probability(data.z, p)}


def cavity(data, threads):
    """EP, evidence maximised from the given start."""
    import cavity

    model = cavity.GaussianProcess(cavity.covariances.RBF(), "probit")
    return lambda: model.fit(data.X, data.y, n_threads=threads), lambda fitted: score_fit(
        data, fitted.log_evidence, fitted.predict_proba(data.Z)[:, 1]
    )


def scikit_learn(data, threads):
    """Laplace's approximation."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return lambda: GaussianProcessClassifier(ConstantKernel() * RBF()).fit(data.X, data.y), lambda fitted: score_fit(
        data, fitted.log_marginal_likelihood_value_, fitted.predict_proba(data.Z)[:, 1]
    )


def gpy(data, threads):
    """GPClassification, which is EP, and its optimize()."""
    import GPy

    def fit():
        model = GPy.models.GPClassification(data.X, data.y[:, None], GPy.kern.RBF(2))
        model.optimize()
        return model

    return fit, lambda fitted: score_fit(data, fitted.log_likelihood(), fitted.predict(data.Z)[0])


def gpflow(data, threads):
    """VGP: natural gradients for q and Adam for the rest in turn, as its guide advises."""
    import gpflow
    import tensorflow as tf

    def fit():
        kernel = gpflow.kernels.SquaredExponential()
        model = gpflow.models.VGP((data.X, data.y[:, None]), kernel, gpflow.likelihoods.Bernoulli())
        gpflow.set_trainable(model.q_mu, False)
        gpflow.set_trainable(model.q_sqrt, False)
        natural = gpflow.optimizers.NaturalGradient(gamma=0.5)
        adam = tf.keras.optimizers.legacy.Adam(0.1)

        @tf.function
        def step():
            natural.minimize(model.training_loss, [(model.q_mu, model.q_sqrt)])
            adam.minimize(model.training_loss, model.trainable_variables)

        for _ in range(NATURAL_STEPS):
            step()
        return model

    return fit, lambda fitted: score_fit(data, fitted.elbo().numpy(), fitted.predict_y(data.Z)[0].numpy())


def gpytorch(data, threads):
    """ApproximateGP with q over all rows and Adam with rate 0.1, as its example of classification has it."""
    if len(data.y) > 500:
        raise NotImplementedError("not done after 150 s at this size")
    import gpytorch
    import torch

    torch.set_num_threads(threads)
    X, y, Z = (torch.from_numpy(values) for values in (data.X, data.y, data.Z))

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(X))
            super().__init__(gpytorch.variational.UnwhitenedVariationalStrategy(self, X, q, False))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    def fit():
        model, likelihood = Model().double().train(), gpytorch.likelihoods.BernoulliLikelihood().double()
        objective = gpytorch.mlls.VariationalELBO(likelihood, model, len(y))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(ADAM_STEPS):
            optimizer.zero_grad()
            loss = -objective(model(X), y)
            loss.backward()
            optimizer.step()
        return model, likelihood, -loss.item() * len(y)

    def judge(fitted):
        model, likelihood, bound = fitted
        with torch.no_grad():
            return score_fit(data, bound, likelihood(model.eval()(Z)).mean.numpy())

    return fit, judge


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "GPy": gpy, "GPyTorch": gpytorch, "GPflow": gpflow}
