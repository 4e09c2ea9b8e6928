"""GaussianProcess: EP classification, regression, learning and updates beside NumPy, GPy and scikit-learn.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_gaussian_process.py`. GPy and scikit-learn are
skipped where they are not installed. What takes milliseconds is compared with another implementation before it is
timed, what takes seconds after it, by the result of the timed call. Labels and values are drawn from the model.
"""

import warnings
from functools import lru_cache, partial

import numpy as np
import pytest
from rivals import gp as reference
from scipy.linalg.blas import dgemm

import cavity
from cavity import covariances, likelihoods
from cavity.base.rows import Rows
from cavity.ep.options import Options
from cavity.models.gp.evidence import Evidence
from cavity.models.process.settings import Settings
from cavity.runs.executors import Threads

VARIANCE, NOISE = 4.0, 0.5
LENGTHSCALES = {2: 1.0, 8: 2.5}  # by the number of columns: neighbours are correlated, all rows are not
TOLERANCE = 1e-8


@lru_cache(maxsize=4)
def drawn(rows, columns):
    """Rows, function values at them drawn from an RBF prior, and their Gram matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    K = reference.gram("rbf", X, VARIANCE, LENGTHSCALES[columns])
    return X, np.linalg.cholesky(K + 1e-9 * np.eye(rows)) @ rng.normal(size=rows), K


def labels(rows, columns):
    """Probit labels of the values."""
    return np.where(drawn(rows, columns)[1] + np.random.default_rng(1).normal(size=rows) > 0, 1.0, -1.0)


def values(rows, columns):
    """The values with noise."""
    return drawn(rows, columns)[1] + np.random.default_rng(1).normal(0.0, np.sqrt(NOISE), size=rows)


@lru_cache(maxsize=4)
def fixed_point(rows, columns):
    """Means and variances of probit classification, to 1e-10."""
    return reference.parallel(drawn(rows, columns)[2], labels(rows, columns), 1e-10)[:2]


def model(columns, likelihood):
    """Our process."""
    covariance = covariances.RBF(variance=VARIANCE, lengthscale=np.full(columns, LENGTHSCALES[columns]))
    return cavity.GaussianProcess(covariance, likelihood)


# ---------------------------------------------------------------------------------------------- classification


def gpy_fit(rows, columns, epsilon):
    """Return a function that runs GPy's sequential EP on the Gram matrix: means and variances.

    GPy stops when the mean squared changes of the sites' parameters are below epsilon: that of 1e-16 leaves means and
    variances that are wrong by some 1e-9 standard deviations here, that of 1e-8 by 1e-4.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpy = pytest.importorskip("GPy")
    (X, _, K), y = drawn(rows, columns), labels(rows, columns)

    def call():
        np.random.seed(0)  # noqa: NPY002  the order of its sites
        ep = gpy.inference.latent_function_inference.expectation_propagation.EP(epsilon=epsilon)
        targets = gpy.core.gp.ObsAr(y[:, None])
        ep.inference(gpy.kern.RBF(columns), X, gpy.likelihoods.Bernoulli(), targets, K=K)
        return ep._ep_approximation[0].mu, ep._ep_approximation[0].Sigma_diag

    return call


def operations(posterior, schedule):
    """Return the operations of dense linear algebra that a fit with this many sweeps cannot do without.

    A parallel sweep takes dpotrf and dtrtri, N^3/3 each. A sequential sweep, which is also the first of the parallel
    schedule, takes N^3 for the triangle of the covariance. The sequential fit ends with dpotrf and dtrtri.
    """
    one_by_one = 1 if schedule == "parallel" else posterior.n_iter
    factorised = posterior.n_iter - 1 if schedule == "parallel" else 1
    return (one_by_one + 2.0 / 3.0 * factorised) * posterior.n_samples**3


RIVALS = {"expert": reference.parallel, "blocked": reference.blocked, "naive": reference.sequential}
FITS = [
    *("cavity", "cavity, parallel", "cavity, 2 threads", *RIVALS, "gpy", "gpy, loose"),
    *("dgemm of cavity", "dgemm of cavity, parallel"),
]


def our_fit(rows, columns, name):
    """Return a function that does our fit."""
    X, y, process = drawn(rows, columns)[0], labels(rows, columns), model(columns, likelihoods.Probit())
    schedule = "parallel" if name.endswith("parallel") else "sequential"
    settings = dict(learn=False, schedule=schedule, tol=TOLERANCE, n_threads=1 + name.endswith("2 threads"))
    return lambda: process.fit(X, y, **settings)


@pytest.mark.parametrize("columns", LENGTHSCALES)
@pytest.mark.parametrize("name", FITS)
def test_classification(measure, small, columns, name):
    """A probit fit to 1e-8, hyperparameters given: ours from rows to evidence and leave-one-out densities.

    The others are given the Gram matrix and find means and variances: "expert" by parallel sweeps, "blocked" and
    "naive" site by site, in blocks and with one rank-1 update each. "dgemm" is a product of matrices, scaled to the
    operations that our fit cannot do without.
    """
    if name == "gpy, loose" and columns > 2:
        pytest.skip("one such case is enough")
    rows, elements, accuracy = 100 if small else 1000, 1.0, 1e-7
    K, y, call = drawn(rows, columns)[2], labels(rows, columns), our_fit(rows, columns, name)
    if name in RIVALS:

        def call():
            return RIVALS[name](K, y, TOLERANCE)[:2]
    elif name.startswith("gpy"):
        loose = name.endswith("loose")
        call, accuracy = gpy_fit(rows, columns, 1e-8 if loose else 1e-16), 1e-2 if loose else 1e-7
    elif name.startswith("dgemm"):
        elements = 2.0 * rows**3 / operations(call(), "parallel" if name.endswith("parallel") else "sequential")
        left, right = np.asfortranarray(K), np.asfortranarray(K + 1.0)

        def call():
            return dgemm(1.0, left, right)

    title = f"GP classification, probit, N={rows}, D={columns}"
    result = measure(title, name, call, elements, "fit", once=name in ("gpy", "gpy, loose", "naive"))
    if not name.startswith("dgemm"):
        result = (result.mean, result.variance) if name.startswith("cavity") else result
        assert reference.change(fixed_point(rows, columns), result) < accuracy


def their_classifier(columns):
    """scikit-learn's classifier (Laplace approximation, logit) with the same start."""
    process = pytest.importorskip("sklearn.gaussian_process")
    start = 1.0 if columns == 2 else np.ones(columns)
    return process.GaussianProcessClassifier(1.0 * process.kernels.RBF(start))


@pytest.mark.parametrize("columns", LENGTHSCALES)
@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "sklearn"])
def test_learning(measure, small, columns, name):
    """A classifier whose variance and lengthscale (one for two columns, else one for each) are learnt.

    From the same start to each one's own stopping rule; both must then predict held-out labels better than their share.
    """
    rows = 100 if small else 500
    X, y = drawn(2 * rows, columns)[0], labels(2 * rows, columns)
    covariance = covariances.RBF(lengthscale=1.0 if columns == 2 else np.ones(columns))
    process, threads = cavity.GaussianProcess(covariance, likelihoods.Probit()), 1 + name.endswith("2 threads")
    options = {} if name == "sklearn" else {"n_threads": threads}
    process = their_classifier(columns) if name == "sklearn" else process
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's where a parameter is at a bound, ours in the first fit
        process.fit(X[:20], y[:20], **options)  # loads what is loaded once
        warnings.simplefilter("ignore" if name == "sklearn" else "error")
        title = f"GP classifier learnt, N={rows}, D={columns}{'' if columns == 2 else ', ARD'}"
        posterior = measure(
            title, name, lambda: process.fit(X[:rows], y[:rows], **options), 1, "fit", once=name == "sklearn"
        )
    density = np.log(posterior.predict_proba(X[rows:])[np.arange(rows), (y[rows:] > 0).astype(int)])
    share = np.mean(y[:rows] > 0)
    assert np.mean(density) > np.mean(np.log(np.where(y[rows:] > 0, share, 1.0 - share)))


# ---------------------------------------------------------------------------------------------- regression


def sklearn_regression(X, y):
    """Return scikit-learn's log evidence with its gradient."""
    process = pytest.importorskip("sklearn.gaussian_process")
    kernels = process.kernels
    columns = X.shape[1]
    kernel = kernels.ConstantKernel(VARIANCE) * kernels.RBF(np.full(columns, LENGTHSCALES[columns]))
    kernel += kernels.WhiteKernel(NOISE)
    truth = process.GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    theta = truth.kernel_.theta
    return lambda: truth.log_marginal_likelihood(theta, eval_gradient=True, clone_kernel=False)


def our_evidence(X, y, threads):
    """Return a function that finds our log evidence and gradient, as learning does at every step."""
    process = model(X.shape[1], likelihoods.Gaussian(NOISE))
    rows = Rows(X, y, np.zeros(len(y)))
    evidence = Evidence(process.likelihood, rows, threads, Options(max_iter=1, tol=1.0))

    def call():
        point = evidence.at(Settings(process.covariance, process.likelihood))
        return point.log_evidence, np.concatenate(evidence.gradient(point))

    return call


@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "expert", "naive", "sklearn"])
def test_evidence(measure, small, name):
    """Log evidence of RBF regression with its gradient in variance, eight lengthscales and noise."""
    rows, columns = 100 if small else 1000, 8
    X, y, lengthscale = drawn(rows, columns)[0], values(rows, columns), np.full(columns, LENGTHSCALES[columns])
    regression = reference.Regression(X, y)
    with Threads(1 + name.endswith("2 threads")) as threads:
        if name == "sklearn":
            call = sklearn_regression(X, y)
        elif name == "naive":
            call = partial(reference.regression_gradient, X, y, VARIANCE, lengthscale, NOISE)
        else:
            call = (
                our_evidence(X, y, threads) if name != "expert" else partial(regression, VARIANCE, lengthscale, NOISE)
            )
        for actual, expected in zip(call(), regression(VARIANCE, lengthscale, NOISE), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-8)
        measure(f"GP evidence and gradient, N={rows}, D={columns}, ARD", name, call, 1, "fit")


@pytest.mark.parametrize("name", ["cavity", "refit", "expert", "naive"])
def test_update(measure, small, name):
    """Rows added to a regression by `update` or a new fit without learning; in NumPy by a grown factor or anew."""
    (rows, more), columns = (100, 10) if small else (1000, 100), 8
    X, _, K = drawn(rows + more, columns)
    y, n = values(rows + more, columns), rows
    process = model(columns, likelihoods.Gaussian(NOISE))
    before, grown = process.fit(X[:n], y[:n], learn=False), reference.GrownRegression(K[:n, :n], y[:n], NOISE)

    def covariance(left, right):
        return reference.gram("rbf", left, VARIANCE, LENGTHSCALES[columns], right)

    call = {
        "cavity": lambda: before.update(X[n:], y[n:]).log_evidence,
        "refit": lambda: process.fit(X, y, learn=False).log_evidence,
        "expert": lambda: grown(covariance(X[:n], X[n:]), covariance(X[n:], X[n:]), y[n:])[0],
        "naive": lambda: reference.regression(covariance(X, X), y, NOISE)[0],
    }[name]
    np.testing.assert_allclose(call(), reference.regression(K, y, NOISE)[0], rtol=1e-9)
    measure(f"GP regression, {more} rows added to {rows}", name, call, 1, "fit")
