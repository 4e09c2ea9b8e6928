"""What a fit of a GLM is given: its prior, factorised once, and which rows tell something about the weights."""

import numpy as np
import pytest
from support.glms import GLM, problem_of

from cavity import likelihoods
from cavity.base import arrays
from cavity.base.constants import LARGEST_REACH, SMALLEST_REACH
from cavity.models.glm.problem import is_usual
from cavity.models.linear.prior import Prior

X, Y = np.array([[1.0, 2.0], [0.0, 0.0], [-1.0, 0.5], [1e-200, 0.0]]), [1, 0, 0, 1]


def test_rows_in_use():
    problem = problem_of(GLM(likelihoods.Probit()), X, Y, None, [1.0, 1.0, 0.0, 2.0])
    assert problem.rows.f_known.tolist() == [False, True, False, True]
    assert problem.used.n == 1
    np.testing.assert_array_equal(problem.used.X, X[:1])
    log_p, total = problem.rows.log_p_known(likelihoods.Probit())
    np.testing.assert_allclose(log_p, np.log([0.5, 0.5]))
    assert total == pytest.approx(3.0 * np.log(0.5))


@pytest.mark.parametrize("variance", [2.0, np.array([1.0, 4.0]), np.array([[2.0, 0.3], [0.3, 1.0]])])
def test_the_root_is_one_of_the_variance(variance):
    prior = Prior.of(0.5, variance, 2)
    root = np.diag(prior.root) if prior.root.ndim == 1 else prior.root
    np.testing.assert_allclose(root @ root.T, variance * np.eye(2) if np.ndim(variance) < 2 else variance)
    assert prior.mean.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("options", [{}, {"method": "adf"}, {"schedule": "sequential"}])
def test_a_fit_factorises_its_prior_once(options, monkeypatch):
    model, counted = GLM(likelihoods.Probit(), 0.0, np.array([[2.0, 0.3], [0.3, 1.0]])), []
    cholesky = arrays.cholesky
    monkeypatch.setattr(arrays, "cholesky", lambda *given: counted.append(given[1]) or cholesky(*given))
    model.fit(X, Y, **options)
    assert counted == ["prior_variance"]


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"prior_variance must be a number or have shape \(2,\) or \(2, 2\)"):
        problem_of(GLM(likelihoods.Probit(), prior_variance=np.ones(3)), X, Y)
    with pytest.raises(OverflowError, match="row 2 leaves"):
        problem_of(GLM(likelihoods.Probit()), X * [[1], [1], [1e200], [1]], Y)


@pytest.mark.parametrize("scale", [1e-160, 1e-20, 1.0, 1e20, 1e160])
@pytest.mark.parametrize("exponent", [-320, -160, -149, -120, 0, 120, 149, 160, 300])
def test_rows_of_usual_lengths_are_neither_silent_nor_out_of_range(scale, exponent):
    with np.errstate(over="ignore", under="ignore"):
        x = np.array([[0.0, 10.0**exponent], [1.0, -1.0]]) / scale
        reach = scale * np.max(np.abs(x), axis=1)
    inside = bool(np.all((reach > SMALLEST_REACH) & (reach < LARGEST_REACH)))
    assert inside or not is_usual(x, scale)
    assert is_usual(x, scale) or not (abs(exponent) <= 120 and 1e-100 < scale < 1e100)
    assert not is_usual(np.array([[np.nan, 1.0]]), scale)
