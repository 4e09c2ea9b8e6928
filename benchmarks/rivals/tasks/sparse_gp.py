"""Sparse Gaussian process regression, N = 50,000, D = 4, M = 100 inducing points, everything learnt.

cavity chooses inducing points among the rows; GPy, GPflow and GPyTorch begin with the same 100 random rows and move
them with the hyperparameters. All four maximise Titsias' bound, which stands for the log evidence.
"""

from types import SimpleNamespace

import numpy as np
from tasks.gp_regression import score_fit

CASES = {"50000": "Sparse GP regression, N = 50,000, D = 4, M = 100"}
COLUMNS = ("log evidence", "held-out log density")
ADAM_STEPS, MOST_ITERATIONS = 100, 100


def data(case, small):
    """Return rows to fit, others to judge by, and inducing points to begin with."""
    n, rng = 300 if small else int(case), np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, (n + 2000, 4))
    y = np.sin(2.0 * X[:, 0]) + np.cos(X[:, 1]) * X[:, 2] + 0.3 * X[:, 3] + 0.2 * rng.normal(size=len(X))
    first = rng.choice(n, 20 if small else 100, replace=False)
    return SimpleNamespace(X=X[:n], y=y[:n], Z=X[n:], z=y[n:], inducing=X[first])


def cavity(data, threads):
    """The whole fit, choice of inducing points included."""
    import cavity

    model = cavity.StreamingGP("rbf", "gaussian", n_inducing=len(data.inducing))
    return lambda: model.fit(data.X, data.y, n_threads=threads), lambda fitted: score_fit(
        fitted.log_bound, data.z, *fitted.predict(data.Z, noise=True)
    )


def gpy(data, threads):
    """SparseGPRegression, its optimize() stopped after a hundred iterations."""
    import GPy

    def fit():
        kernel = GPy.kern.RBF(4, ARD=True)
        model = GPy.models.SparseGPRegression(data.X, data.y[:, None], kernel, Z=data.inducing.copy())
        model.optimize(max_iters=MOST_ITERATIONS)
        return model

    return fit, lambda fitted: score_fit(fitted.log_likelihood(), data.z, *fitted.predict(data.Z))


def gpflow(data, threads):
    """SGPR with gpflow.optimizers.Scipy, stopped after a hundred iterations."""
    import gpflow

    def fit():
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(4))
        model = gpflow.models.SGPR((data.X, data.y[:, None]), kernel, data.inducing.copy())
        options = {"maxiter": MOST_ITERATIONS}
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options=options)
        return model

    def judge(fitted):
        mean, variance = fitted.predict_y(data.Z)
        return score_fit(fitted.elbo().numpy(), data.z, mean.numpy(), variance.numpy())

    return fit, judge


def gpytorch(data, threads):
    """InducingPointKernel, a hundred steps of Adam with rate 0.1, in double precision."""
    import gpytorch
    import torch

    torch.set_num_threads(threads)
    X, y, Z = (torch.from_numpy(values) for values in (data.X, data.y, data.Z))

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            dense = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=4))
            points = torch.from_numpy(data.inducing.copy())
            self.covar_module = gpytorch.kernels.InducingPointKernel(dense, points, likelihood)

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    def fit():
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        model = Model(likelihood).double().train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(ADAM_STEPS):
            optimizer.zero_grad()
            loss = -objective(model(X), y)
            loss.backward()
            optimizer.step()
        return model, likelihood, -loss.item() * len(y)

    def judge(fitted):
        model, likelihood, evidence = fitted
        with torch.no_grad():
            predicted = likelihood.eval()(model.eval()(Z))
            return score_fit(evidence, data.z, predicted.mean.numpy(), predicted.variance.numpy())

    return fit, judge


LIBRARIES = {"cavity": cavity, "GPy": gpy, "GPyTorch": gpytorch, "GPflow": gpflow}
