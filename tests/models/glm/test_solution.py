"""From problems to weights: who solves what, and what weights say about rows."""

import numpy as np
import pytest
from support.glms import GLM, problem_of
from support.tolerances import ROUNDING, SOLVES

from cavity import likelihoods
from cavity.ep.options import Options
from cavity.models.glm.solution import Weights, solve
from cavity.runs.executors import Threads

RNG = np.random.default_rng(5)
X = RNG.normal(size=(30, 3))
Y = RNG.integers(0, 2, size=30)


@pytest.mark.parametrize("approximation", ["full", "diagonal"])
@pytest.mark.parametrize("method", ["ep", "adf"])
def test_solutions_are_what_posteriors_say(approximation, method):
    model = GLM(likelihoods.Probit(), approximation=approximation)
    solution = solve(problem_of(model, X, Y), method, Options(), Threads(1))
    posterior = model.fit(X, Y, method=method)
    np.testing.assert_array_equal(solution.weights.mean, posterior.mean)
    np.testing.assert_array_equal(solution.weights.variance, posterior.variance)
    assert solution.fit.log_evidence == posterior.log_evidence
    assert (solution.weights.covariance is None) == (approximation == "diagonal")
    np.testing.assert_array_equal(solution.weights.predict(X, np.zeros(30)), posterior.predict(X))


def test_without_a_row_in_use_the_prior_stays():
    solution = solve(problem_of(GLM(likelihoods.Probit(), 0.3, 2.0), 0.0 * X, Y), "ep", Options(), Threads(1))
    assert solution.weights.mean.tolist() == [0.3] * 3
    np.testing.assert_allclose(solution.weights.variance, 2.0)
    assert solution.fit.converged


def test_independent_weights_agree_with_and_without_preparation():
    weights, offset = Weights(np.array([0.5, -1.0, 0.0]), np.array([1.0, 0.5, 2.0]), None), np.linspace(0.0, 1.0, 30)
    plain, prepared = weights.predict(X, offset), weights.predict(X, offset, lambda x: x.copy())
    np.testing.assert_allclose(plain, prepared, rtol=SOLVES, atol=ROUNDING)
    np.testing.assert_allclose(plain[0], X @ weights.mean + offset)
    with pytest.raises(OverflowError, match="row 0 of X"):
        weights.predict(1e200 * X, offset)
