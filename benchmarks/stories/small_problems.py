"""Small problems beside scikit-learn: `python benchmarks/stories/small_problems.py` prints one table.

Every drop-in of cavity.sklearn and the estimator of the same name in scikit-learn, with the same settings, fit the same
rows, which are made with a fixed seed: N = 30 to 1000 of them, more for linear classifiers, which stand beside
LogisticRegression. `cavity.GaussianMixture` and `cavity.LinearRegression`, which are no drop-ins, stand beside the
estimators that come closest. Both judge 1000 other rows. The calls of the two alternate, the shortest processor time of
each counts, and what each has reached stands beside the times. `--quick` is a smoke test, `--only Gaussian` takes
the rows whose names begin so.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one BLAS thread for both

import numpy as np
import sklearn.gaussian_process as their_gp
import sklearn.linear_model as their_linear
import sklearn.mixture as their_mixture
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import cavity
import cavity.sklearn as ours

SIZES = (30, 100, 300, 1000)
REGRESSION_SHAPES = (30, 3), (100, 4), (500, 10), (1000, 4), (5000, 50)
JUDGED = 1000  # rows


@dataclass(frozen=True)
class Case:
    """One estimator twice: `mine()` and `theirs()` have a fit(X[, y]); what it returns goes to the other functions."""

    name: str
    mine: Callable
    theirs: Callable
    data: Callable  # data(rng, rows, columns): X and y, or X and None
    shapes: tuple  # of the rows to fit
    judge: Callable  # judge(fitted, X): the plain prediction
    spread: Callable  # spread(fitted, X): the one with probabilities or standard deviations
    reached: Callable  # reached(fitted, X, y) of the rows judged


def blobs(rng, n, dim, k=3):
    """Return rows of k overlapping groups of their own shapes."""
    shapes = np.random.default_rng(7)  # the same for all rows
    centres = 3.0 * shapes.normal(size=(k, dim))
    factors = shapes.normal(size=(k, dim, dim)) / np.sqrt(dim)
    labels = rng.integers(0, k, n)
    return centres[labels] + np.einsum("nij,nj->ni", factors[labels], rng.normal(size=(n, dim))), None


def curve(rng, n, dim):
    """Return rows with a smooth function of them and noise."""
    X = rng.uniform(-3.0, 3.0, (n, dim))
    return X, np.sin(2.0 * X).sum(axis=1) + 0.1 * rng.normal(size=n)


def patches(rng, n, dim):
    """Return rows with labels that a smooth function of them makes more or less probable."""
    X, f = curve(rng, n, dim)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * f))).astype(int)


def plane(rng, n, dim):
    """Return rows with a linear function of them and noise."""
    X = rng.normal(size=(n, dim))
    return X, X @ np.sin(np.arange(dim) + 1.0) + 0.5 * rng.normal(size=n)


def sides(rng, n, dim):
    """Return rows with labels that a linear function of them makes more or less probable."""
    X = rng.normal(size=(n, dim))
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ np.sin(np.arange(dim) + 1.0)))).astype(int)


def mean_density(fitted, X, y):
    """Return the mean log density of rows."""
    return np.mean(fitted.log_density(X) if hasattr(fitted, "log_density") else fitted.score(X))


def mean_log_probability(fitted, X, y):
    """Return the mean log probability of labels."""
    return np.mean(np.log(fitted.predict_proba(X)[np.arange(len(y)), y]))


def log_evidence(fitted, X, y):
    """Return the log evidence of the rows that were fitted, the largest that was found."""
    return fitted.log_marginal_likelihood_value_


def mean_gaussian(fitted, X, y):
    """Return the mean log density of targets under normal predictions."""
    mean, spread = mean_and_spread(fitted, X)
    variance = spread if isinstance(fitted, cavity.LinearRegressionPosterior) else spread**2
    return -0.5 * np.mean(np.log(2.0 * np.pi * variance) + (y - mean) ** 2 / variance)


def mean_and_spread(fitted, X):
    """Return means of the targets with their standard deviations, or variances as the model has them."""
    if isinstance(fitted, cavity.LinearRegressionPosterior):
        return fitted.predict(X, noise=True)
    return fitted.predict(X, return_std=True)


def predict(fitted, X):
    """Return the plain prediction."""
    return fitted.predict(X)


def probabilities(fitted, X):
    """Return the probability of every class or component."""
    return fitted.responsibilities(X) if hasattr(fitted, "responsibilities") else fitted.predict_proba(X)


def mixtures():
    """Return the cases of Gaussian mixtures, in two and four columns."""
    shapes = tuple((n, dim) for dim in (2, 4) for n in SIZES)
    faces = dict(judge=predict, spread=probabilities, reached=mean_density, data=blobs, shapes=shapes)
    for covariance in ("full", "diag"):
        settings = dict(n_components=3, covariance_type=covariance, random_state=0)
        for name in ("GaussianMixture", "BayesianGaussianMixture"):
            mine, theirs = (partial(getattr(module, name), **settings) for module in (ours, their_mixture))
            yield Case(f"{name}, {covariance}, K=3", mine, theirs, **faces)
    priors = dict(weight_concentration_prior_type="dirichlet_distribution", max_iter=1000)
    theirs = partial(their_mixture.BayesianGaussianMixture, n_components=3, random_state=0, **priors)
    yield Case("cavity.GaussianMixture(3)", partial(cavity.GaussianMixture, 3), theirs, **faces)


def processes():
    """Return the cases of Gaussian processes that learn their kernel."""
    shapes = ((30, 1), (40, 1), (100, 2), (120, 2), (300, 2), (1000, 2))
    kernel = ConstantKernel(1.0) * RBF(1.0)
    mine, theirs = (partial(item.GaussianProcessClassifier, kernel, random_state=0) for item in (ours, their_gp))
    arguments = dict(data=patches, judge=predict, spread=probabilities, reached=mean_log_probability)
    yield Case("GaussianProcessClassifier", mine, theirs, shapes=shapes, **arguments)
    noisy = kernel + WhiteKernel(0.1)
    mine, theirs = (partial(value.GaussianProcessRegressor, noisy, random_state=0) for value in (ours, their_gp))
    arguments = dict(data=curve, judge=predict, spread=mean_and_spread, reached=log_evidence)
    yield Case("GaussianProcessRegressor", mine, theirs, shapes=shapes, **arguments)


def linear():
    """Return the cases of linear classifiers and regressions."""
    shapes = (*((n, 4) for n in SIZES), (700, 8), (4000, 20), (20000, 20))
    arguments = dict(data=sides, shapes=shapes, judge=predict, spread=probabilities, reached=mean_log_probability)
    for name in ("LogitClassifier", "ProbitClassifier"):
        mine = partial(getattr(ours, name), prior_variance=1.0, intercept_variance=100.0)  # C = 1
        yield Case(name, mine, their_linear.LogisticRegression, **arguments)
    arguments = dict(data=plane, shapes=REGRESSION_SHAPES, judge=predict, spread=mean_and_spread, reached=mean_gaussian)
    for name, rival in (("", "BayesianRidge"), ("ard=True", "ARDRegression")):
        mine = partial(cavity.LinearRegression, ard=bool(name), intercept=False)
        theirs = partial(getattr(their_linear, rival), fit_intercept=False)
        yield Case(f"cavity.LinearRegression({name}), {rival}", mine, theirs, **arguments)


def shortest(calls, seconds):
    """Return the shortest time of each call, and what each returned: they alternate until `seconds` have passed."""
    best, result, begun = [np.inf] * len(calls), [None] * len(calls), time.perf_counter()
    while True:
        for i, call in enumerate(calls):
            started = time.process_time()
            result[i] = call()
            best[i] = min(best[i], time.process_time() - started)
        if time.perf_counter() - begun >= seconds:
            return best, result


def row(case, n, dim, seconds):
    """Time one shape of a case; return its line."""
    rng = np.random.default_rng(n + dim)
    (X, y), (new, truth) = case.data(rng, n, dim), case.data(rng, JUDGED, dim)
    rows = (X,) if y is None else (X, y)
    estimators = [case.mine(), case.theirs()]
    fit, fitted = shortest([partial(estimator.fit, *rows) for estimator in estimators], seconds)
    plain, _ = shortest([partial(case.judge, value, new) for value in fitted], seconds / 2)
    spread, _ = shortest([partial(case.spread, entry, new) for entry in fitted], seconds / 2)
    values = [case.reached(item, new, truth) for item in fitted]
    times = " | ".join(f"{1e3 * mine:.3g} | {theirs / mine:.2f}" for mine, theirs in (fit, plain, spread))
    return f"| {case.name} | {n} x {dim} | {times} | {values[0]:.4f} | {values[1]:.4f} |"


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="30 rows, each call once or twice")
    parser.add_argument("--only", default="", help="rows whose names begin so")
    parser.add_argument("--seconds", type=float, default=0.4, help="at least so long for each row's fits")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # not converged, parameters at their bounds: both say so
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(
        "| estimator | rows | fit, ms | ratio | predict, ms | ratio | its spread, ms | ratio | reached | by sklearn |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in (*mixtures(), *processes(), *linear()):
        if case.name.startswith(options.only):
            for n, dim in case.shapes[:1] if options.quick else case.shapes:
                print(row(case, n, dim, 0.0 if options.quick else options.seconds), flush=True)


if __name__ == "__main__":
    main()
