"""Free numbers that move with the passes of EP: where they end, what their curvature is, and when they give up."""

from dataclasses import replace

import numpy as np
import pytest
from support.glms import GLM, problem_of
from support.tolerances import EARLY, EXPANSION, OPTIMUM, ROUNDING, SLOPES

from cavity import likelihoods
from cavity.ep.options import Options
from cavity.models.linear import evidence_search, moving_search
from cavity.models.linear.evidence import PRIOR_VARIANCE, FreeFactors, LinearEvidence
from cavity.models.linear.moving_search import _has_arrived, _update_inverse, move_with_passes
from cavity.runs.executors import Threads


class Killed(BaseException):
    """The process ends."""


def draw_counts(n=2000, d=3):
    """A design and counts of a negative binomial with dispersion 2."""
    rng = np.random.default_rng(8)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
    f = X @ np.resize([0.4, 0.5, -0.3], d)
    return X, rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, n)).astype(float)


def prepare(names=(PRIOR_VARIANCE, "dispersion"), schedule="parallel"):
    """The evidence of all rows, that of a quarter of them, and where the latter is largest with the root there."""
    X, y = draw_counts()
    likelihood = likelihoods.NegativeBinomial(2.0)
    some = slice(0, None, 4)
    evidences = []
    for rows in (slice(None), some):
        problem = problem_of(GLM(likelihood, 0.0, 1.0), X[rows], y[rows])
        vector = FreeFactors(names, np.array([-1, 0, 0]) if PRIOR_VARIANCE in names else None, likelihood, problem)
        evidences.append(LinearEvidence(problem, vector, Threads(1), Options(schedule=schedule)))
    evidence, sample = evidences
    x = sample.vector.start(-1.0, likelihood)[-sample.vector.size :]
    sample.at(sample.vector.unpack(x))
    evidence.start = sample.posterior_of_sites(sample.vector.unpack(x))
    return evidence, x


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_numbers_end_where_the_gradient_of_whole_fits_is_zero(schedule):
    """With a curvature that is right in the likelihood's number, along which the steps went."""
    evidence, x = prepare(schedule=schedule)
    bounds, root = evidence.vector.bounds(), np.diag([1.0, 0.06])
    moved = move_with_passes(evidence, x + [0.5, 0.3], root, bounds)
    end, slope, root = moved.x, moved.slope, moved.root
    point = evidence.at(evidence.vector.unpack(end))
    gradient = evidence.vector.gradient(evidence, point)
    assert np.max(np.abs(root.T @ gradient)) < 1e-2
    assert slope < 1.0
    usual = GLM(likelihoods.NegativeBinomial(2.0), 0.0, 1.0).fit(
        *draw_counts(), learn=(PRIOR_VARIANCE, "dispersion"), prior_groups=[-1, 0, 0]
    )
    relative = usual.hyperparameters.sd[1] / usual.hyperparameters.values[1]
    assert np.exp(end[1]) == pytest.approx(usual.hyperparameters.values[1], rel=0.01 * relative)
    assert np.sqrt((root @ root.T)[1, 1]) == pytest.approx(relative, rel=0.1)


def test_passes_that_lead_nowhere_are_given_up(monkeypatch):
    """Too few of them, a posterior that is not proper, and a gradient that is not finite."""
    evidence, x = prepare(("dispersion",))
    bounds, root, first = evidence.vector.bounds(), np.array([[0.06]]), evidence.start
    monkeypatch.setattr(moving_search, "MAX_PASSES", 1)
    assert move_with_passes(evidence, x + 0.5, root, bounds) is None
    monkeypatch.undo()
    evidence.start = first
    monkeypatch.setattr(evidence.vector, "gradient", lambda *_: np.array([np.nan]))
    assert move_with_passes(evidence, x, root, bounds) is None
    monkeypatch.undo()
    evidence.start = first
    monkeypatch.setattr(LinearEvidence, "pass_at", lambda *_: None)
    assert move_with_passes(evidence, x, root, bounds) is None


def test_a_fit_without_them_is_the_search_around_fits(monkeypatch):
    """The same maximum, from more evaluations."""
    X, y = draw_counts()
    monkeypatch.setattr(evidence_search, "MIN_SAMPLED_ROWS", 1000)
    monkeypatch.setattr(evidence_search, "SAMPLE_ROWS", 500)
    model = GLM(likelihoods.NegativeBinomial(), prior_variance=1.0)
    moving = model.fit(X, y)
    monkeypatch.setattr(evidence_search, "move_with_passes", lambda *_: None)
    usual = model.fit(X, y)
    assert moving.trace["learning"].size < usual.trace["learning"].size
    np.testing.assert_allclose(moving.hyperparameters.values, usual.hyperparameters.values, rtol=OPTIMUM)
    np.testing.assert_allclose(moving.hyperparameters.sd, usual.hyperparameters.sd, rtol=EXPANSION)


@pytest.mark.parametrize("killed_at", [1, 2, 4, 5])
def test_a_search_that_moves_goes_on_where_it_was_killed(killed_at, tmp_path, monkeypatch):
    """Bits: passes before the checkpoint's evaluations are made again."""
    X, y = draw_counts()
    monkeypatch.setattr(evidence_search, "MIN_SAMPLED_ROWS", 1000)
    monkeypatch.setattr(evidence_search, "SAMPLE_ROWS", 500)
    model, path, events = GLM(likelihoods.NegativeBinomial(), prior_variance=1.0), tmp_path / "part", []
    full = model.fit(X, y)

    def kill(event):
        events.append(event)
        if len(events) == killed_at:
            raise Killed

    with pytest.raises(Killed):
        model.fit(X, y, callback=kill, checkpoint=path, checkpoint_every=0.0)
    resumed = model.fit(X, y, checkpoint=path)
    assert resumed.hyperparameters == full.hyperparameters
    np.testing.assert_array_equal(resumed.mean, full.mean)


def test_the_curvature_along_a_step_is_that_of_its_gradients():
    """And all of it where gradients are linear in steps; steps beside which sites move tell nothing."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    hessian = root @ root.T + np.eye(3)
    inverse = np.eye(3)
    for _ in range(2):
        step = rng.normal(size=3)
        inverse = _update_inverse(inverse, step, hessian @ step, 0.0)
        np.testing.assert_allclose(inverse @ hessian @ step, step, rtol=ROUNDING)
        np.testing.assert_allclose(inverse, inverse.T, rtol=ROUNDING)
        assert np.linalg.eigvalsh(inverse)[0] > 0
    assert _update_inverse(inverse, step, hessian @ step, 10.0) is inverse
    assert _update_inverse(inverse, step, -hessian @ step, 0.0) is inverse


def test_passes_end_where_the_next_step_is_small():
    """Steps fall by their ratio at least: fits go on from there, unless sites have moved far in the last pass."""
    assert _has_arrived([0.009], 0.02)
    assert not _has_arrived([0.009], 0.5)
    assert not _has_arrived([3.0], 0.02)
    assert _has_arrived([3.0, 0.05], 0.5)
    assert not _has_arrived([3.0, 0.05], 2.0)
    assert not _has_arrived([3.0, 0.3], 0.5)


def test_gradients_by_passes_are_those_of_fits():
    evidence, x = prepare(("dispersion",))
    by_passes = evidence.find_converged_gradient(x + 0.01, EARLY)
    point = evidence.at(evidence.vector.unpack(x + 0.01), tol=EARLY)
    np.testing.assert_allclose(by_passes, evidence.gradient(point, evidence.vector), rtol=SLOPES, atol=SLOPES)
    evidence.options = replace(evidence.options, max_iter=1)
    with pytest.raises(ArithmeticError, match="passes do not converge"):
        evidence.find_converged_gradient(x + 1.0, EARLY)
