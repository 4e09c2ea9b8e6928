"""StreamingGP: single rows, batches, bounds with gradients and sparse classification beside NumPy and GPflow.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_streaming_gp.py`. GPflow is skipped where it is not
installed. Every answer is compared with another implementation's.
"""

import os
import warnings
from functools import lru_cache, partial
from itertools import cycle

import numpy as np
import pytest
from rivals import streaming_gp as reference

import cavity
from cavity import covariances, data, likelihoods
from cavity.models.process.settings import Settings
from cavity.models.streaming_gp.bound_increment import BoundIncrement
from cavity.models.streaming_gp.rows import BatchRows
from cavity.runs.executors import Threads, single_blas

VARIANCE, LENGTHSCALE, NOISE, JITTER = 4.0, 2.5, 0.5, 1e-8
COLUMNS, ROWS = 8, 1000
BANANA_VARIANCE, BANANA_LENGTHSCALE = 4.0, 0.5
TOLERANCE = 1e-8


@lru_cache(maxsize=1)
def stream():
    """Rows in random order and noisy values of a smooth function of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4096, COLUMNS))
    return X, 2.0 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(0.0, np.sqrt(NOISE), size=len(X))


def settings(inducing, jitter=JITTER):
    """NumPy's settings, with rows that are not observed as inducing points."""
    Z = np.random.default_rng(1).normal(size=(inducing, COLUMNS))
    return reference.Settings(Z, VARIANCE, LENGTHSCALE, NOISE, jitter)


def covariance_of(truth):
    """Our covariance with the same settings."""
    return covariances.RBF(variance=truth.variance, lengthscale=truth.lengthscale)


def process(truth, likelihood):
    """Our process with the same settings."""
    return cavity.StreamingGP(covariance_of(truth), likelihood, inducing=truth.Z, jitter=truth.jitter)


def our_state(truth):
    """Our state before any row."""
    return process(truth, likelihoods.Gaussian(NOISE)).fit(np.empty((0, COLUMNS)), np.empty(0), learn=False)


def check_regression(truth, log_bound, mean):
    """Compare a log bound and the mean of the inducing variables with the textbook's for all rows of the stream."""
    textbook = reference.Textbook(truth)
    textbook.update(*stream())
    np.testing.assert_allclose(log_bound, textbook.log_bound(), rtol=1e-11)
    expected = truth.L @ reference.Batches.mean(textbook)
    np.testing.assert_allclose(mean, expected, rtol=0.0, atol=1e-8 * np.abs(expected).max())


# ---------------------------------------------------------------------------------------------- regression

SINGLE = {
    "expert": reference.Triangular,
    "refactored": reference.Refactored,
    "covariance": reference.Covariance,
    "naive": reference.Rotated,
}


@pytest.mark.parametrize("inducing", [100, 300])
@pytest.mark.parametrize("name", ["cavity", *SINGLE])
def test_single_row(measure, inducing, name):
    """One observation: ours through the public `update`, all checks on, and NumPy with its checks off."""
    truth, (X, y) = settings(inducing), stream()
    if name == "cavity":
        state, rows = our_state(truth), [(X[i : i + 1], y[i : i + 1]) for i in range(len(X))]
        observe = state.update
    else:
        state, rows = SINGLE[name](truth), list(zip(X, y.tolist(), strict=True))
        observe = state.observe
    for row in rows:
        observe(*row)
    if name == "cavity":
        check_regression(truth, state.log_bound, state.mean)
    else:
        check_regression(truth, state.log_bound(), truth.L @ state.mean())
    second = cycle(rows)
    measure(f"streaming GP, one row, M={inducing}, D={COLUMNS}", name, lambda: observe(*next(second)), 1, "row")


def floor(truth, rows):
    """Return a function with the operations of dtrsm, dsyrk and dpotrf as dgemm, and the exponentials of a batch."""
    M = len(truth.Z)
    size = round((0.5 * (2.0 * rows * M**2 + M**3 / 3.0)) ** (1.0 / 3.0))
    left, exponents = np.asfortranarray(np.random.default_rng(0).normal(size=(size, size))), np.full((rows, M), -1.0)
    product, out = np.empty((size, size)), np.empty((rows, M))

    def call():
        np.matmul(left, left, out=product)
        np.exp(exponents, out=out)

    return call


@pytest.mark.parametrize("inducing", [100, 300])
@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "expert", "naive", "floor of cavity"])
def test_batch(measure, inducing, name):
    """A batch of rows at fixed inducing points."""
    truth, (X, y) = settings(inducing), stream()
    if name.startswith("floor"):
        call = floor(truth, ROWS)
    elif name.startswith("cavity"):
        state = our_state(truth)
        update = partial(state.update, n_threads=1 + name.endswith("2 threads"))
        for start in range(0, len(X), ROWS):
            update(X[start : start + ROWS], y[start : start + ROWS])
        check_regression(truth, state.log_bound, state.mean)
        call = partial(update, X[:ROWS], y[:ROWS])
    else:
        state = {"expert": reference.Batches, "naive": reference.Textbook}[name](truth)
        for start in range(0, len(X), ROWS):
            state.update(X[start : start + ROWS], y[start : start + ROWS])
        check_regression(truth, state.log_bound(), truth.L @ reference.Batches.mean(state))
        call = partial(state.update, X[:ROWS], y[:ROWS])
    measure(f"streaming GP, {ROWS} rows, M={inducing}, D={COLUMNS}", name, call, 1, "fit")


# ---------------------------------------------------------------------------------------------- learning


def gpflow_gradient(truth, X, y):
    """Return a function with GPflow's compiled SGPR loss and gradient, and one that makes of them what ours returns.

    Inducing points are fixed, as in ours. GPflow learns softplus^-1 of its parameters, ours logarithms.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpflow = pytest.importorskip("gpflow")
        import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != 1:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        gpflow.config.set_default_jitter(truth.jitter * truth.variance)
        kernel = gpflow.kernels.SquaredExponential(truth.variance, truth.lengthscale)
        inducing = gpflow.inducing_variables.InducingPoints(truth.Z)
        gpflow.set_trainable(inducing, False)
        model = gpflow.models.SGPR((X, y[:, None]), kernel, inducing, noise_variance=truth.noise_variance)
        learnt = kernel.variance, kernel.lengthscales, model.likelihood.variance

        @tf.function
        def call():
            with tf.GradientTape() as tape:
                loss = model.training_loss()
            return loss, tape.gradient(loss, [parameter.unconstrained_variable for parameter in learnt])

        call()  # compiles

    def convert(result):
        loss, slopes = result
        gradient = []
        for parameter, slope in zip(learnt, slopes, strict=True):
            free = parameter.unconstrained_variable
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(parameter.transform.forward(free))
            gradient.append(np.atleast_1d(-slope * parameter / tape.gradient(value, free)))
        return -float(loss), np.concatenate(gradient)

    return call, convert


def our_gradient(truth, X, y, threads):
    """Return a function that finds our bound and gradient, as learning does at every step."""
    noise = likelihoods.Gaussian(truth.noise_variance)
    increment = BoundIncrement(None, truth.Z, BatchRows(X, y, None, None, None), process(truth, noise), threads)

    def call():
        point = increment.at(Settings(covariance_of(truth), noise))
        return point.log_evidence, np.concatenate(increment.gradient(point))

    return call


@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "expert", "naive", "gpflow"])
def test_bound_and_gradient(measure, name):
    """The bound of a batch with its gradient in variance, eight lengthscales and noise.

    GPflow's jitter does not grow with the variance, so that it is made too small to be seen in the slope.
    """
    truth, (X, y) = settings(100, jitter=1e-12), stream()
    X, y, convert = X[:ROWS], y[:ROWS], lambda found: found
    parameters = truth.Z, VARIANCE, np.full(COLUMNS, LENGTHSCALE), NOISE
    with Threads(1 + name.endswith("2 threads")) as threads, single_blas():
        if name == "gpflow":
            call, convert = gpflow_gradient(truth, X, y)
        elif name == "naive":
            call = partial(reference.textbook_gradient, truth, X, y)
        elif name == "expert":
            call = partial(reference.gradient, *parameters, X, y, truth.jitter)
        else:
            call = our_gradient(truth, X, y, threads)
        value, gradient = convert(call())
        textbook = reference.textbook_gradient(truth, X, y)
        np.testing.assert_allclose(value, reference.dense_bound(truth, X, y), rtol=1e-11)
        np.testing.assert_allclose(value, textbook[0], rtol=1e-11)
        np.testing.assert_allclose(gradient, textbook[1], rtol=1e-8)
        measure(f"bound and gradient, N={ROWS}, M=100, D={COLUMNS}, ARD", name, call, 1, "fit")


# ---------------------------------------------------------------------------------------------- classification


@lru_cache(maxsize=2)
def banana(rows):
    """So many shuffled points of the banana with their labels, and inducing points on a grid over all."""
    columns, _ = data.table("banana")
    order = np.random.default_rng(0).permutation(len(columns["x"]))[:rows]
    X = np.column_stack([columns["x"], columns["y"]])
    Z = np.stack(np.meshgrid(*(np.linspace(low, high, 10) for low, high in zip(X.min(0), X.max(0), strict=True))), -1)
    return X[order], columns["class"][order], Z.reshape(-1, 2)


def gpy_fit(truth, X, y):
    """Return a function that runs GPy's sparse EP, which takes what inducing points leave of f for nothing (DTC)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gpy = pytest.importorskip("GPy")
    inference = gpy.inference.latent_function_inference.expectation_propagation

    def call():
        np.random.seed(0)  # noqa: NPY002  the order of its sites
        ep, targets = inference.EPDTC(epsilon=TOLERANCE), gpy.core.gp.ObsAr(0.5 * (y[:, None] + 1.0))
        kernel = gpy.kern.RBF(X.shape[1], truth.variance, truth.lengthscale[0])
        ep.inference(kernel, X, truth.Z, gpy.likelihoods.Bernoulli(), targets)
        return ep._ep_approximation[0].mu

    return call


@pytest.mark.parametrize("rows", [400, 5000])
@pytest.mark.parametrize("name", ["cavity", "cavity, parallel", "expert", "gpy", "dense"])
def test_sparse_classification(measure, small, rows, name):
    """Probit labels of the banana, 100 inducing points, to 1e-8: ours, NumPy's EP, GPy's, and our EP for all rows."""
    if name in ("dense", "gpy") and rows > 400:
        pytest.skip("half a minute and more")
    X, y, Z = banana(rows)
    truth = reference.Settings(Z, BANANA_VARIANCE, BANANA_LENGTHSCALE, 1.0, JITTER)
    schedule = "parallel" if name.endswith("parallel") else "sequential"
    options = dict(learn=False, tol=TOLERANCE, schedule=schedule)
    call = {
        "expert": lambda: reference.sparse_ep(truth, X, y, TOLERANCE),
        "dense": lambda: cavity.GaussianProcess(covariance_of(truth), likelihoods.Probit()).fit(X, y, **options),
    }.get(name, lambda: process(truth, likelihoods.Probit()).fit(X, y, **options))
    if name == "gpy":
        call = gpy_fit(truth, X, y)
    title = f"sparse GP classification, probit, N={rows}, M={len(Z)}"
    result = measure(title, name, call, 1, "fit", once=name == "gpy")
    if name == "gpy":
        np.testing.assert_allclose(result, reference.sparse_ep(truth, X, y, 1e-10, share=0.0)[0], rtol=0.0, atol=1e-3)
    if name.startswith("cavity"):
        mean, variance, _ = reference.sparse_ep(truth, X, y, 1e-10)
        W, residual = truth.features(X)
        np.testing.assert_allclose(result.predict(X)[0], mean, rtol=0.0, atol=1e-6)
        np.testing.assert_allclose(result.predict(X)[1], variance + residual, rtol=1e-6)
