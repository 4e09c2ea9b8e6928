"""Observations that are constant, or fitted exactly: learnt noise has no maximum of the evidence, and fits say so."""

import numpy as np
import pytest
from support.tolerances import EXPANSION

import cavity
from cavity import covariances, likelihoods

RNG = np.random.default_rng(0)
N = 60
X = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
G = RNG.integers(6, size=N)
FITS = {
    "glm": lambda y: cavity.GLM("gaussian").fit(X, y),
    "bounds": lambda y: cavity.GLM(likelihoods.Interval(None)).fit(X, np.column_stack([y, y])),
    "learn more": lambda y: cavity.GLM("gaussian", prior_variance=1.0).fit(X, y, learn=True),
    "mixed": lambda y: cavity.MixedGLM("g", "gaussian").fit(X, y, groups=G),
    "gp": lambda y: cavity.GaussianProcess(covariances.RBF()).fit(X[:, 1:], y),
}


@pytest.mark.parametrize("value", [3.0, 0.0])
@pytest.mark.parametrize("name", FITS)
def test_constant_observations_have_no_maximum(name, value):
    with pytest.warns(cavity.ConvergenceWarning, match="no maximum: it still rises .* because y is constant"):
        posterior = FITS[name](np.full(N, value))
    assert not posterior.converged
    assert posterior.status.startswith("the log evidence has no maximum")
    assert set(posterior.hyperparameters.sd) == {None}
    assert "NOT CONVERGED" in repr(posterior)


@pytest.mark.parametrize("rows", [1, N])
@pytest.mark.parametrize("value", [3.0, 0.0])
def test_streams_of_constant_observations_have_none(rows, value):
    model = cavity.StreamingGP("rbf", "gaussian")
    with pytest.warns(cavity.ConvergenceWarning, match="no maximum: it still rises .* because y is constant"):
        state = model.fit(X[:rows, 1:], np.full(rows, value))
    assert not state.converged
    assert state.status.startswith("the log evidence has no maximum")
    offset = RNG.normal(size=rows)
    with pytest.warns(cavity.ConvergenceWarning, match="no maximum"):
        assert not model.fit(X[:rows, 1:], value + offset, offset=offset).converged
    given = cavity.StreamingGP(covariances.RBF(), likelihoods.Gaussian(0.1)).fit(
        X[:rows, 1:], np.full(rows, value), learn=False
    )
    assert given.converged


def test_what_is_fitted_exactly_has_none_either():
    with pytest.warns(cavity.ConvergenceWarning, match="no maximum"):
        assert not cavity.GLM("gaussian").fit(X, X @ [1.0, 2.0, 3.0]).converged
    offset = RNG.normal(size=N)
    with pytest.warns(cavity.ConvergenceWarning, match="no maximum"):
        assert not cavity.GLM("gaussian").fit(X, 1.0 + offset, offset=offset).converged


def test_there_is_a_maximum_where_the_columns_do_not_hold_the_constant():
    """Found again by the exact evidence, log N(y; 0, X S X' + noise)."""
    posterior = cavity.GLM("gaussian", prior_variance=1.0, intercept=False).fit(X[:, 1:], np.full(N, 3.0))
    assert posterior.converged
    noise = np.geomspace(0.5, 2.0, 301) * posterior.model.likelihood.noise_variance

    def evidence(variance):
        covariance = X[:, 1:] @ X[:, 1:].T + variance * np.eye(N)
        return -0.5 * (np.linalg.slogdet(2.0 * np.pi * covariance)[1] + 9.0 * np.linalg.inv(covariance).sum())

    values = [evidence(item) for item in noise]
    assert abs(int(np.argmax(values)) - 150) <= 1
    assert posterior.log_evidence == pytest.approx(max(values), abs=EXPANSION)


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize("name", ["glm", "mixed", "gp", "stream", "linear"])
def test_squares_beyond_float64_are_refused_by_the_name_of_what_is_too_large(name, size):
    fits = FITS | {
        "gp": lambda y: cavity.GaussianProcess("rbf", "gaussian").fit(X[:, 1:], y),
        "stream": lambda y: cavity.StreamingGP("rbf", "gaussian").fit(X[:, 1:], y),
        "linear": lambda y: cavity.LinearRegression(intercept=True).fit(X[:, 1:], y),
    }
    with pytest.raises(OverflowError, match=r"^y: squares of its median, .* leave the range of float64; rescale it"):
        fits[name](size * X[:, 1])
    if name in ("glm", "mixed"):
        groups = {"groups": G} if name == "mixed" else {}
        model = cavity.MixedGLM("g", "gaussian") if name == "mixed" else cavity.GLM("gaussian")
        with pytest.raises(
            OverflowError, match=r"^X: squares of y over column 2, whose scale is .*; rescale the column"
        ):
            model.fit(X * [1.0, 1.0, size], X[:, 1], **groups)


def test_given_noise_and_a_proper_prior_of_it_have_an_answer():
    y = np.full(N, 3.0)
    assert cavity.GLM(likelihoods.Gaussian(0.1)).fit(X, y).converged
    order = np.random.default_rng(1).permutation(N)
    one, other = (cavity.LinearRegression().fit(X[rows], y) for rows in (np.arange(N), order))
    assert one.converged
    np.testing.assert_allclose(one.mean / one.sd, other.mean / one.sd, atol=EXPANSION)


@pytest.mark.parametrize("value", [1.0, 2.0])
@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
def test_quantiles_of_noise_below_rounding_say_so(value):
    posterior = cavity.GLM("gamma").fit(np.ones((4, 1)), np.full(4, value))
    with pytest.raises(ArithmeticError, match="vary so little given f that float64 does not resolve it, as where y is"):
        posterior.quantile(np.ones((1, 1)), [0.1])
