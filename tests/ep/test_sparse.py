"""The sparse geometry of EP against the dense one, and its own laws."""

import numpy as np
import pytest
from scipy import sparse
from support.tolerances import AT_REST, EARLY, INTEGRAL, OPTIMUM, ROOT_EPS

from cavity import likelihoods
from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.options import Options
from cavity.ep.sites import Sites
from cavity.ep.sparse import Pattern, Precision, Sparse
from cavity.runs.executors import Threads, single_blas

LEVELS = 9, 6
VARIANCE = np.repeat([0.5, 0.3, 4.0], [*LEVELS, 2])


def design(n, seed):
    """Rows of two crossed groups, a constant and a column: a dense matrix."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, sum(LEVELS) + 2))
    X[np.arange(n), rng.integers(LEVELS[0], size=n)] = 1.0
    X[np.arange(n), LEVELS[0] + rng.integers(LEVELS[1], size=n)] = 1.0
    X[:, -2:] = np.column_stack([np.ones(n), rng.normal(size=n)])
    return X, X @ (rng.normal(size=len(VARIANCE)) * np.sqrt(VARIANCE)), rng


def geometries(X, offset, threads, mean=None):
    """The same problem in both geometries."""
    d = X.shape[1]
    mean = np.zeros(d) if mean is None else mean
    pattern = Pattern(sparse.csr_array(X), np.arange(d), np.arange(d))
    precision = Precision(1.0 / VARIANCE, -float(np.sum(np.log(VARIANCE))))
    return Sparse(pattern, mean, precision, offset, threads), Dense(X, offset, mean, np.sqrt(VARIANCE), threads)


def sign(f, rng):
    return np.where(f + rng.normal(size=len(f)) > 0, 1.0, -1.0)


CASES = {
    "probit": (likelihoods.Probit(), sign),
    "logit": (likelihoods.Logit(), sign),
    "poisson": (likelihoods.Poisson(), lambda f, rng: rng.poisson(np.exp(np.minimum(f, 3.0)))),
    "binomial": (
        likelihoods.Binomial(),
        lambda f, rng: np.column_stack([rng.binomial(5, 1 / (1 + np.exp(-f))), 5 + 0 * f]),
    ),
    "gaussian": (likelihoods.Gaussian(0.5), lambda f, rng: f + rng.normal(size=len(f))),
    "laplace": (likelihoods.Laplace(0.5), lambda f, rng: f + rng.laplace(size=len(f))),
    "student-t": (likelihoods.StudentT(0.05, 3.0), lambda f, rng: f + rng.standard_t(1.5, size=len(f))),
    "double loop": (likelihoods.StudentT(0.001, 2.0), lambda f, rng: f + rng.standard_t(1.0, size=len(f))),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_dense_geometry(name, power):
    """Evidence, divergence, leave-one-out, moments of f and of the weights are those of the dense geometry."""
    likelihood, make = CASES[name]
    X, f, rng = design(80, 1)
    y, offset = likelihood.check(make(f, rng)), 0.3 * rng.normal(size=80)
    weights = rng.choice([0.5, 1.0, 2.0], size=80) if power == 1.0 else None
    options = Options.checked(power=power, tol=1e-10)
    sites = Sites(likelihood, y, weights, power)
    with Threads(1) as threads, single_blas():
        ours, theirs = geometries(X, offset, threads, 0.1 * rng.normal(size=X.shape[1]))
        fit, truth = (Engine(item, sites, options).run() for item in (ours, theirs))
        mean, variance = ours.values(fit.belief, slice(None), None)
        known_mean, known_variance = theirs.values(truth.belief, slice(None), X)
    assert fit.converged
    assert truth.converged
    assert (fit.trace["double_loop"] > 0) == (name == "double loop")
    assert fit.log_evidence == pytest.approx(truth.log_evidence, abs=AT_REST)
    assert fit.belief.divergence() == pytest.approx(truth.belief.divergence(), abs=OPTIMUM)
    np.testing.assert_allclose(fit.loo, truth.loo, atol=EARLY)
    np.testing.assert_allclose(mean, known_mean, atol=ROOT_EPS)
    np.testing.assert_allclose(variance, known_variance, rtol=EARLY)
    np.testing.assert_allclose(ours.prior_mean + fit.belief.step, truth.belief.mean, atol=ROOT_EPS)


def test_the_slope_is_the_length_in_the_fisher_metric():
    X, _, rng = design(60, 2)
    tau, rho = rng.normal(size=60), rng.uniform(0.1, 1.0, size=60)
    with Threads(1) as threads, single_blas():
        ours, theirs = geometries(X, None, threads)
        results = []
        for item in (ours, theirs):
            belief = item.belief(*item.gather(tau, rho))
            h, g = item.gather(tau + 0.3 * np.sin(np.arange(60)), rho * (1.0 + 0.2 * np.cos(np.arange(60))))
            results.append(item.slope(belief, h - belief.h, g - belief.g))
    assert results[0] == pytest.approx(results[1], rel=OPTIMUM)


def test_an_improper_belief_is_none():
    X, _, _ = design(40, 3)
    with Threads(1) as threads, single_blas():
        ours, _ = geometries(X, None, threads)
        assert ours.belief(*ours.gather(np.zeros(40), np.full(40, -1.0))) is None


def test_a_sharpened_belief_has_the_same_mean_and_less_variance():
    X, _, rng = design(40, 4)
    with Threads(1) as threads, single_blas():
        ours, _ = geometries(X, None, threads)
        belief = ours.belief(*ours.gather(rng.normal(size=40), np.ones(40)))
        sharp = ours.sharpen(belief, 10.0)
    np.testing.assert_allclose(sharp.step, belief.step, rtol=INTEGRAL)
    np.testing.assert_allclose(10.0 * sharp.variance, belief.variance, rtol=INTEGRAL)
