"""Gaussian process regression: a lengthscale for each of 4 columns, variance and noise learnt by the evidence.

Each library searches with the optimiser its documentation recommends: L-BFGS-B from one start, and GPyTorch a hundred
steps of Adam with rate 0.1.
"""

from types import SimpleNamespace

import numpy as np
from tasks.scores import mean_log_density

CASES = {"500": "GP regression, N = 500, D = 4", "2000": "GP regression, N = 2000, D = 4"}
COLUMNS = ("log evidence", "held-out log density")
ADAM_STEPS = 100


def data(case, small):
    """Return rows to fit, and others to judge by."""
    n, rng = 60 if small else int(case), np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (n + 1000, 4))
    f = np.sin(2.0 * X[:, 0]) + np.cos(X[:, 1]) * X[:, 2] + 0.3 * X[:, 3]
    y = f + 0.2 * rng.normal(size=len(X))
    return SimpleNamespace(X=X[:n], y=y[:n], Z=X[n:], z=y[n:])


def score_fit(evidence, z, mean, variance):
    """Return the scores in the columns of the table."""
    return {"log evidence": float(evidence), "held-out log density": mean_log_density(z, mean, variance)}


def cavity(data, threads):
    """RBF with a lengthscale a column, which the string means; no mean, as the others."""
    import cavity

    model = cavity.GaussianProcess("rbf", "gaussian", mean=0.0)
    return lambda: model.fit(data.X, data.y, n_threads=threads), lambda fitted: score_fit(
        fitted.log_evidence, data.z, *fitted.predict(data.Z, noise=True)
    )


def scikit_learn(data, threads):
    """Noise by a WhiteKernel, as its user guide does."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    def fit():
        kernel = ConstantKernel() * RBF(np.ones(4)) + WhiteKernel()
        return GaussianProcessRegressor(kernel).fit(data.X, data.y)

    def judge(fitted):
        mean, sd = fitted.predict(data.Z, return_std=True)
        return score_fit(fitted.log_marginal_likelihood_value_, data.z, mean, sd**2)

    return fit, judge


def gpy(data, threads):
    """GPRegression and its optimise()."""
    import GPy

    def fit():
        model = GPy.models.GPRegression(data.X, data.y[:, None], GPy.kern.RBF(4, ARD=True))
        model.optimize()
        return model

    return fit, lambda fitted: score_fit(fitted.log_likelihood(), data.z, *fitted.predict(data.Z))


def gpflow(data, threads):
    """GPR with gpflow.optimizers.Scipy."""
    import gpflow

    def fit():
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(4))
        model = gpflow.models.GPR((data.X, data.y[:, None]), kernel)
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        return model

    def judge(fitted):
        mean, variance = fitted.predict_y(data.Z)
        return score_fit(fitted.log_marginal_likelihood().numpy(), data.z, mean.numpy(), variance.numpy())

    return fit, judge


def gpytorch(data, threads):
    """ExactGP in double precision with Cholesky factors, which it takes by itself for N <= 800 only."""
    import gpytorch
    import torch

    torch.set_num_threads(threads)
    X, y, Z = (torch.from_numpy(values) for values in (data.X, data.y, data.Z))

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4))

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    def fit():
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        model = Model(likelihood).double().train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        with gpytorch.settings.max_cholesky_size(10**4):
            for _ in range(ADAM_STEPS):
                optimizer.zero_grad()
                loss = -objective(model(X), y)
                loss.backward()
                optimizer.step()
        return model, likelihood, -loss.item() * len(y)

    def judge(fitted):
        model, likelihood, evidence = fitted
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**4):
            predicted = likelihood.eval()(model.eval()(Z))
            return score_fit(evidence, data.z, predicted.mean.numpy(), predicted.variance.numpy())

    return fit, judge


LIBRARIES = {"cavity": cavity, "scikit-learn": scikit_learn, "GPy": gpy, "GPyTorch": gpytorch, "GPflow": gpflow}
