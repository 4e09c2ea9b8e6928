"""Points of integrals over hyperparameters at which EP finds no fixed point, or corrections are not to be trusted."""

import time
import warnings

import numpy as np
import pytest
from support.tolerances import LAST_BIT, SOLVES

import cavity
from cavity.covariances import RBF
from cavity.likelihoods import StudentT
from cavity.models import integral
from cavity.models.integration_designs import integrate

DESIGN, Y = np.column_stack([np.ones(4), np.arange(4.0)]), np.array([0.0, 1.0, 5.0, 2.0])
FAILED = r"EP found no fixed point within (?:10|60) steps of the double loop at (\d+) of (\d+) points of the integral"


def fit_linear():
    return cavity.GLM(StudentT(None, None), prior_variance=25.0, integrate="grid").fit(DESIGN[:3], Y[:3])


def fit_mixed():
    model = cavity.MixedGLM(
        "g", StudentT(None, None), prior_variance=25.0, effect_covariances={"g": 1.0}, integrate="grid"
    )
    return model.fit(DESIGN, Y, groups={"g": [0, 1, 1, 0]})


def fit_process():
    covariance = RBF(25.0, 2.0, fixed=("variance", "lengthscale"))
    return cavity.GaussianProcess(covariance, StudentT(None, None), mean=0.0, integrate="grid").fit(DESIGN[:, 1:], Y)


@pytest.mark.long_cases("fit_mixed", "fit_process")
@pytest.mark.parametrize("fit", [fit_linear, fit_mixed, fit_process])
def test_points_without_a_fixed_point_are_counted(fit, tmp_path, set_sizes):
    """Few rows under Student-t noise of which nothing is known: sites are not log-concave where the scale is small."""
    if fit is fit_linear:
        set_sizes(MAX_DOUBLE_LOOP_STEPS=10)
    begin = time.process_time()
    with pytest.warns(cavity.NumericalWarning, match=FAILED) as record:
        posterior = fit()
    assert time.process_time() - begin < 12.0  # 2 to 4 s; with double loops of 600 steps 20 s
    integration = posterior.integration
    n_failed = integration.n_failed
    assert n_failed > 0
    assert f"at {n_failed} of " in str(next(w.message for w in record if "no fixed point" in str(w.message)))
    points = f"{len(integration.weights)} points of a grid, without {n_failed} at which EP found no fixed point"
    assert points in integration.describe()
    assert np.sum(integration.weights) == pytest.approx(1.0, rel=10 * LAST_BIT)
    assert abs(posterior.evidence_correction) < integral.MAX_TRUSTED_CORRECTION
    posterior.save(tmp_path / "few.npz")
    assert cavity.load(tmp_path / "few.npz").integration.describe() == integration.describe()


def make_points(corrections, monkeypatch):
    """Integrate a normal density of two numbers with these corrections, functions of z; return points and messages."""

    def find(point):
        return integral.EvidenceCorrection(corrections(point), 0.0), None

    monkeypatch.setattr(integral, "find_correction", find)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        points = integrate(lambda x, _: (-0.5 * x @ x, x), np.zeros(2), np.eye(2), "grid", integral._correct_by_axes)
    return points, [str(warning.message) for warning in record]


def test_large_changes_of_corrections_are_not_used(monkeypatch):
    """R of hundreds of nats at a point of an axis: its parabola would give all weight to the far end of the grid."""
    points, messages = make_points(lambda x: 0.1 + 150.0 * (x[0] < -1.0), monkeypatch)
    assert points.log_integral - points.plain_log_integral == pytest.approx(0.1, rel=SOLVES)
    assert len(messages) == 1
    assert "may miss 1.5e+02 nats at a point of the integral" in messages[0]
    assert np.argmax(points.weights) == 0


def test_small_changes_of_corrections_are_parabolas_within_half_a_nat(monkeypatch):
    points, messages = make_points(lambda x: 0.1 + 0.1 * x[0] + 0.05 * x[1] ** 2, monkeypatch)
    assert messages == []
    x = points.x
    weights = -0.5 * np.sum(x**2, axis=1) + np.clip(0.1 * x[:, 0] + 0.05 * x[:, 1] ** 2, -0.5, 0.5)
    expected = np.exp(weights - weights.max())
    np.testing.assert_allclose(points.weights, expected / expected.sum(), rtol=SOLVES)
    large, messages = make_points(lambda x: 10.0 + 2.0 * x[0], monkeypatch)  # of many rows R is large, and changes
    assert messages == []
    assert large.log_integral - large.plain_log_integral == pytest.approx(12.0, rel=0.01)
