"""The bits of a fixed set of fits: `python benchmarks/bits.py > before.txt`, change the code, run it again, compare.

Each line is the name of a fit and a hash of every number and setting that its posterior would save. Fits that go
through linear algebra have the same bits on one machine and one build of BLAS only, so the hashes are compared between
two checkouts, never with a table. For changes that must not alter any result: moves, splits, new tests.
"""

import hashlib
import json
import sys
import warnings

import numpy as np

import cavity
from cavity import covariances, likelihoods


def problems():
    """Yield (name, function without arguments that returns a posterior), one per model, schedule and option."""
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(300), rng.normal(size=(300, 4))])
    f = X @ [0.3, 1.0, -0.5, 0.0, 0.2]
    labels = f + rng.normal(size=300) > 0
    real, counts = f + 0.3 * rng.standard_t(3, 300), rng.poisson(np.exp(0.5 * f))
    weights = rng.integers(0, 3, 300).astype(float)
    probit = likelihoods.Probit()

    def glm(likelihood, y, rows=slice(None), prior=2.0, approximation="full", **options):
        return lambda: cavity.GLM(likelihood, 0.0, prior, approximation, intercept=False).fit(
            X[rows], y[rows], **options
        )

    yield "glm probit parallel", glm(probit, labels)
    yield "glm probit sequential", glm(probit, labels, schedule="sequential")
    yield "glm probit stochastic", glm(probit, labels, schedule="stochastic")
    yield "glm probit adf", glm(probit, labels, method="adf")
    yield "glm probit diagonal", glm(probit, labels, approximation="diagonal")
    yield "glm probit diagonal adf", glm(probit, labels, approximation="diagonal", method="adf")
    yield "glm logit weights", glm(likelihoods.Logit(), labels, sample_weight=weights)
    yield "glm logit damped power", glm(likelihoods.Logit(), labels, damping=0.7, power=0.5)
    yield "glm poisson offset", glm(likelihoods.Poisson(), counts, offset=0.1 * X[:, 1])
    yield "glm negative binomial", glm(likelihoods.NegativeBinomial(2.0), counts)
    yield "glm student-t learn", glm(likelihoods.StudentT(4.0, 0.3), real, learn="prior_variance")
    yield "glm laplace ard", glm(likelihoods.Laplace(0.3), real, prior=np.full(5, 2.0), learn="prior_variance")
    yield "glm clutter", glm(likelihoods.Clutter(0.1, 25.0, 0.1), real)
    yield "glm wide", glm(probit, labels, rows=slice(3))
    yield "glm step double loop", glm(likelihoods.Step(), labels, rows=slice(40))
    yield "glm update", lambda: glm(probit, labels, rows=slice(200))().update(X[200:], labels[200:])

    wide = rng.normal(size=(200, 3))
    for schedule in ("sequential", "parallel"):
        yield f"clutter {schedule}", lambda s=schedule: cavity.Clutter().fit(real, schedule=s)
        yield f"clutter batch {schedule}", lambda s=schedule: cavity.Clutter().fit(wide.T[..., None], schedule=s)
    yield "clutter power", lambda: cavity.Clutter().fit(wide, power=0.5, schedule="parallel")
    yield "clutter adf update", lambda: cavity.Clutter().fit(real[:200], method="adf").update(real[200:])

    rbf = covariances.RBF(1.0, 1.0)

    def process(likelihood, y, n=80, kernel=rbf, **options):
        return lambda: cavity.GaussianProcess(kernel, likelihood, mean="constant").fit(X[:n, 1:3], y[:n], **options)

    composed = covariances.Matern32(1.0, [1.0, 2.0]) + covariances.Linear(0.5)
    yield "gp gaussian", process(likelihoods.Gaussian(0.1), real)
    yield "gp composed", process(likelihoods.Gaussian(0.1), real, kernel=composed, noise_variance=0.01 + weights[:80])
    yield "gp probit", process(probit, labels)
    yield "gp student-t parallel", process(likelihoods.StudentT(4.0, 0.3), real, schedule="parallel", learn=False)
    yield "gp update", lambda: process(likelihoods.Gaussian(0.1), real, n=60)().update(X[60:80, 1:3], real[60:80])

    def stream(likelihood, y, alpha=0.0, n_inducing=20, **options):
        model = cavity.StreamingGP(covariances.RBF(1.0, [1.0, 1.0]), likelihood, n_inducing=n_inducing, alpha=alpha)

        def run():
            state = model.fit(X[:150, 1:3], y[:150], **options)
            state.update(X[150:250, 1:3], y[150:250])
            for row in range(250, 260):
                state.update(X[row : row + 1, 1:3], y[row : row + 1])
            return state

        return run

    yield "stream vfe", stream(likelihoods.Gaussian(0.1), real)
    yield "stream power ep", stream(likelihoods.Gaussian(0.1), real, alpha=0.5, n_inducing=10)
    yield "stream fixed settings", stream(likelihoods.Gaussian(0.1), real, learn=False)
    yield "stream probit", stream(probit, labels, alpha=1.0)

    table = np.vstack([rng.normal(size=(150, 2)), [3.0, 1.0] + rng.normal(size=(150, 2)) @ [[1.0, 0.6], [0.0, 0.5]]])
    for kind in ("full", "tied", "diag", "spherical"):
        yield f"mixture {kind}", lambda k=kind: cavity.GaussianMixture(3, covariance=k).fit(table, n_threads=2)
    sticks = cavity.GaussianMixture(4, weights="stick_breaking")
    yield "mixture sticks moves", lambda: sticks.fit(table, moves=True, sample_weight=weights)
    yield "mixture stochastic", lambda: sticks.fit_stochastic(table, batch_size=50, n_epochs=3)
    yield "mixture update merge", lambda: sticks.fit(table[:200]).update(table[200:250]).forget(0.5)
    yield "mixture selected", lambda: cavity.select_components(sticks, table, range(1, 4)).best
    numbers = table[:, 0]
    yield "unit mixture", lambda: cavity.UnitMixture(3, 4.0).fit(numbers, n_threads=2)
    yield "unit mixture stochastic", lambda: cavity.UnitMixture(3, 4.0).fit_stochastic(numbers, batch_size=50)

    yield "linear regression", lambda: cavity.LinearRegression().fit(X, real)
    yield "logistic regression", lambda: cavity.LogisticRegression().fit(X, labels)
    precision = np.cov(X[:, 1:].T) + np.eye(4)
    yield "factorized", lambda: cavity.FactorizedGaussian(np.zeros(4), precision=precision).fit()


def digest(posterior):
    """Hash every array and setting of a posterior."""
    arrays, settings = posterior.to_arrays()
    total = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()[:16]


def main():
    """Print a line for each fit, or for those whose names hold one of the words given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, fit in problems():
            if len(sys.argv) == 1 or any(word in name for word in sys.argv[1:]):
                print(f"{digest(fit())}  {name}")


if __name__ == "__main__":
    main()
