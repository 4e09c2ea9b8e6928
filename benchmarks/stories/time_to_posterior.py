"""Time to a posterior: `python benchmarks/stories/time_to_posterior.py` prints one table.

Models of this library beside the point estimates of the same models in scikit-learn and statsmodels, and beside other
posteriors there: small, middle and large data of a fixed seed. Times are processor times of a fit, the shortest of
calls that alternate. Every fit has one thread. Another posterior is Bayesian ridge regression, or by Laplace's method,
or maximum likelihood with its curvature, or by variational inference. `--quick` is a smoke test, `--only` takes rows
whose names begin so.
"""

import argparse
import os
import time
import warnings
from functools import partial

os.environ |= {"OMP_NUM_THREADS": "1", "CAVITY_NUM_THREADS": "1"}

import numpy as np
import statsmodels.api as sm
from sklearn import gaussian_process, kernel_ridge, linear_model, mixture
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM
from statsmodels.regression.mixed_linear_model import MixedLM

import cavity

SECONDS = 1.0  # at least so long for each row


def draw_plane(n, dim):
    """Return rows, a linear function of them with noise, and labels that the function makes more or less probable."""
    rng = np.random.default_rng(n + dim)
    X = rng.normal(size=(n, dim))
    f = X @ np.sin(np.arange(dim) + 1.0)
    return X, f + 0.5 * rng.normal(size=n), (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(int)


def compare_linear(n, dim):
    """Return the name of a linear regression, its fit, a point estimate and another posterior."""
    X, y, _ = draw_plane(n, dim)
    mine = partial(cavity.LinearRegression(intercept=True).fit, X, y)
    return "linear regression", mine, sm.OLS(y, sm.add_constant(X)).fit, partial(linear_model.BayesianRidge().fit, X, y)


def compare_labels(n, dim):
    """Return the same of a logistic regression; statsmodels' point estimate comes with its curvature."""
    X, _, y = draw_plane(n, dim)
    mine = partial(cavity.GLM("logit", prior_variance=1.0, intercept=100.0).fit, X, y)
    theirs = partial(linear_model.LogisticRegression().fit, X, y)
    return "logistic regression", mine, theirs, partial(sm.Logit(y, sm.add_constant(X)).fit, disp=0)


def compare_counts(n, dim):
    """Return the same of a Poisson regression."""
    X, f, _ = draw_plane(n, dim)
    y = np.random.default_rng(n).poisson(np.exp(np.clip(0.2 * f, -3.0, 3.0)))
    mine = partial(cavity.GLM("poisson", intercept=True).fit, X, y)
    other = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson())
    return "Poisson regression", mine, partial(linear_model.PoissonRegressor().fit, X, y), other.fit


def draw_curve(n):
    """Return rows in the plane, a smooth function of them with noise, and labels."""
    rng = np.random.default_rng(n)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    f = np.sin(2.0 * X).sum(axis=1)
    return X, f + 0.1 * rng.normal(size=n), (rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * f))).astype(int)


def compare_processes(n, dim):
    """Return the same of a Gaussian process that learns its kernel; the point estimate has the right one."""
    X, y, _ = draw_curve(n)
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    mine = partial(cavity.GaussianProcess("rbf", "gaussian").fit, X, y)
    point = partial(kernel_ridge.KernelRidge(kernel=RBF(1.0), alpha=0.01).fit, X, y)
    return "Gaussian process", mine, point, partial(gaussian_process.GaussianProcessRegressor(kernel).fit, X, y)


def compare_process_labels(n, dim):
    """Return the same of a Gaussian process of labels; there is no point estimate."""
    X, _, y = draw_curve(n)
    kernel = ConstantKernel(1.0) * RBF(1.0)
    mine = partial(cavity.GaussianProcess("rbf", "logit").fit, X, y)
    return "Gaussian process, labels", mine, None, partial(gaussian_process.GaussianProcessClassifier(kernel).fit, X, y)


def compare_mixtures(n, dim):
    """Return the same of a mixture of four Gaussians."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, dim)) + 3.0 * rng.normal(size=(4, dim))[rng.integers(0, 4, n)]
    settings = dict(n_components=4, random_state=0)
    other = mixture.BayesianGaussianMixture(max_iter=1000, **settings)
    mine = partial(cavity.GaussianMixture(4).fit, X)
    return "Gaussian mixture", mine, partial(mixture.GaussianMixture(**settings).fit, X), partial(other.fit, X)


def draw_groups(n, dim):
    """Return a column of ones and another one, groups of ten rows, and a response with effects of groups."""
    rng = np.random.default_rng(n)
    X, groups = np.column_stack([np.ones(n), rng.normal(size=n)]), np.arange(n) // 10
    return X, groups, X @ [0.5, 1.0] + rng.normal(size=groups[-1] + 1)[groups], rng


def compare_mixed(n, dim):
    """Return the same of a linear mixed model with a random intercept; there is no other posterior."""
    X, groups, f, rng = draw_groups(n, dim)
    y = f + rng.normal(size=n)
    rows = {"x": X[:, 1], "g": groups}
    mine = partial(cavity.GLM("y ~ x + (1 | g)", "gaussian").fit, rows | {"y": y})
    return "mixed model", mine, MixedLM(y, X, groups).fit, None


def compare_mixed_labels(n, dim):
    """Return the same of a mixed model of labels."""
    X, groups, f, rng = draw_groups(n, dim)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-f))).astype(int)
    rows = {"x": X[:, 1], "g": groups, "y": y}
    indicators = np.eye(groups[-1] + 1)[groups]
    other = BinomialBayesMixedGLM(y, X, indicators, np.zeros(indicators.shape[1], dtype=int))
    return "mixed model, labels", partial(cavity.GLM("y ~ x + (1 | g)", "logit").fit, rows), None, other.fit_vb


COMPARISONS = (
    (compare_linear, ((100, 5), (5000, 50), (200_000, 20))),
    (compare_labels, ((100, 5), (5000, 20), (200_000, 20))),
    (compare_counts, ((100, 5), (5000, 20), (200_000, 20))),
    (compare_processes, ((50, 2), (300, 2), (1000, 2))),
    (compare_process_labels, ((50, 2), (200, 2), (600, 2))),
    (compare_mixtures, ((200, 2), (5000, 5), (200_000, 8))),
    (compare_mixed, ((100, 2), (2000, 2), (20_000, 2))),
    (compare_mixed_labels, ((100, 2), (1000, 2), (4000, 2))),
)


def find_shortest(calls, seconds):
    """Return the shortest time of each call, nan for None: they alternate until `seconds` have passed."""
    best, begun = [np.inf if call else np.nan for call in calls], time.perf_counter()
    while True:
        for i, call in enumerate(calls):
            if call is not None:
                started = time.process_time()
                call()
                best[i] = min(best[i], time.process_time() - started)
        if time.perf_counter() - begun >= seconds:
            return best


def format_seconds(seconds):
    """Return a time in ms of three digits; nothing for nan."""
    return "" if np.isnan(seconds) else f"{float(f'{1e3 * seconds:.3g}'):g}"


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest data, each call once")
    parser.add_argument("--only", default="", help="rows whose names begin so")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # not converged, parameters at their bounds
    print(f"Measured with cavity {cavity.__version__}, in milliseconds.\n")
    print("| model | rows | posterior | point estimate | ratio | another posterior | ratio |")
    print("|---|---|---|---|---|---|---|")
    for compare, shapes in COMPARISONS:
        for n, dim in shapes[:1] if options.quick else shapes:
            name, *calls = compare(n, dim)
            if not name.startswith(options.only):
                continue
            mine, point, other = find_shortest(calls, 0.0 if options.quick else SECONDS)
            ratios = ("" if np.isnan(theirs) else f"{theirs / mine:.2f}" for theirs in (point, other))
            cells = *map(format_seconds, (mine, point, other)), *ratios
            print(f"| {name} | {n} x {dim} | {cells[0]} | {cells[1]} | {cells[3]} | {cells[2]} | {cells[4]} |")


if __name__ == "__main__":
    main()
