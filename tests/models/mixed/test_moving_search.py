"""Searches of mixed models that move with passes of EP: their information, where they end, and when they give up."""

import numpy as np
import pytest
from support.tolerances import EXPANSION, OPTIMUM, SLOPES

import cavity
from cavity.models.linear import moving_search
from cavity.models.mixed import variance_search
from cavity.models.mixed.variance_search import MixedEvidence


class Killed(BaseException):
    """The process ends."""


def draw_rows(n=400, levels=30):
    """Columns of a smooth, levels, times, and counts, successes and real numbers that depend on these."""
    rng = np.random.default_rng(3)
    x, g, t = rng.uniform(size=n), rng.integers(levels, size=n), rng.integers(12, size=n)
    f = np.sin(6.0 * x) + rng.normal(size=levels)[g] + np.cumsum(rng.normal(size=12))[t] * 0.3
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(f))).astype(float)
    y = f + x * rng.normal(size=levels)[g] + rng.normal(size=n)
    return {"x": x, "g": g, "t": t, "counts": counts, "y": y, "won": f + rng.normal(size=n) > 0}


MODELS = [
    ("counts ~ s(x, k=12) + (1 | g)", "negative-binomial", None),
    ("y ~ s(x, k=12) + (1 + x | g) + rw1(t)", "gaussian", {"sd": cavity.priors.PC(upper=1.0, probability=0.05)}),
    ("won ~ 0 + (1 | g) + ar1(t)", "probit", {"sd": cavity.priors.HalfNormal(1.0)}),
]


@pytest.mark.parametrize(("formula", "likelihood", "priors"), MODELS)
def test_searches_that_move_end_at_the_maximum_of_whole_fits(formula, likelihood, priors, set_sizes):
    """The same numbers as a search around fits has, after fewer of these."""
    model, table = cavity.MixedGLM(formula, likelihood, priors=priors), draw_rows()
    usual = model.fit(table)
    set_sizes(MIN_MOVED_ROWS=100)
    moving = model.fit(table)
    assert moving.converged
    assert moving.trace["learning"].size < usual.trace["learning"].size / 2
    np.testing.assert_allclose(moving.log_evidence, usual.log_evidence, rtol=OPTIMUM)
    certainty = np.array(usual.hyperparameters.sd, float)
    apart = np.subtract(moving.hyperparameters.values, usual.hyperparameters.values) / certainty
    assert np.max(np.abs(apart)) < EXPANSION
    np.testing.assert_allclose(moving.hyperparameters.sd, certainty, rtol=10 * EXPANSION)


@pytest.fixture
def points(monkeypatch, set_sizes):
    """The evidences and points with information of the next fit."""
    set_sizes(MIN_MOVED_ROWS=100)
    pairs, pass_at = [], MixedEvidence.pass_at

    def keep(evidence, settings, informs=False):
        point = pass_at(evidence, settings, informs)
        if informs:
            pairs.append((evidence, point))
        return point

    monkeypatch.setattr(MixedEvidence, "pass_at", keep)
    return pairs


def test_information_is_that_of_average_information_reml(points):
    """Beside y'P V_i P V_j P y/2 with dense matrices, P the inverse of the covariance V of the rows."""
    table = draw_rows()
    cavity.MixedGLM("y ~ x + (1 | g) + (1 | t)", "gaussian").fit(table)
    for evidence, point in points:
        prior, noise = evidence.problem.prior, point.settings.likelihood.noise_variance
        X, apart = evidence.problem.used.X, table["y"] - evidence.problem.used.X @ prior.mean
        kernels = [np.equal.outer(table[name], table[name]) * 1.0 for name in ("g", "t")]
        parts = [float(v.item()) * kernel for v, kernel in zip(point.settings.prior, kernels, strict=True)]
        V = sum(parts) + noise * np.eye(len(X)) + (X * prior.variance) @ X.T
        weighted = np.linalg.solve(V, apart)
        moved = np.array([2.0 * part @ weighted for part in parts])  # dV for the log of an sd
        expected = 0.5 * moved @ np.linalg.solve(V, moved.T)
        np.testing.assert_allclose(point.information[:2, :2], expected, rtol=OPTIMUM, atol=OPTIMUM * expected.max())


@pytest.mark.parametrize(("formula", "likelihood", "priors"), MODELS)
def test_information_is_near_the_curvature(points, formula, likelihood, priors):
    """Within a factor of two of differences of gradients at given sites, at the maximum."""
    cavity.MixedGLM(formula, likelihood).fit(draw_rows(4000))
    evidence, point = points[-1]
    vector, fit, n = evidence.vector, point.fit, evidence.vector.n_prior
    x, sites = vector.pack(point.settings), None if fit is None else (fit.tau, fit.rho)

    def find_gradient(x):
        evidence.start, evidence._last = sites, None
        return vector.gradient(evidence, evidence.pass_at(vector.unpack(x)))[:n]

    step = 1e-3
    rows = [(find_gradient(x - d) - find_gradient(x + d)) / (2.0 * step) for d in step * np.eye(len(x))[:n]]
    ratios = np.linalg.eigvals(np.linalg.solve(point.information[:n, :n], np.array(rows)))
    assert np.all((np.real(ratios) > 0.5) & (np.real(ratios) < 2.0))


def test_passes_that_lead_nowhere_leave_the_search_around_fits(monkeypatch, set_sizes):
    """Too few passes, improper cavities, arithmetic that fails, no curvature: the usual numbers to the last bit."""
    model, table = cavity.MixedGLM(*MODELS[0][:2]), draw_rows()
    usual = model.fit(table).hyperparameters
    set_sizes(MIN_MOVED_ROWS=100)

    def fail(*_, **__):
        raise ArithmeticError

    for owner, name, value in (
        (moving_search, "MAX_PASSES_FROM_AFAR", 2),
        (MixedEvidence, "_renew_at", lambda *_: None),
        (MixedEvidence, "_renew_at", fail),
        (variance_search, "find_likelihood_information", lambda free, *_: np.full(free.size, np.nan)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            assert model.fit(table).hyperparameters == usual


@pytest.mark.parametrize("killed_at", [2, 6, 9])
def test_a_search_that_moves_goes_on_where_it_was_killed(killed_at, tmp_path, set_sizes):
    """Bits: passes before the checkpoint's evaluations are made again. A callback that stops leaves a posterior."""
    set_sizes(MIN_MOVED_ROWS=100)
    model, table, path, stages = cavity.MixedGLM(*MODELS[0][:2]), draw_rows(), tmp_path / "part", []
    full = model.fit(table)

    def kill(event):
        stages.append(event.stage)
        if len(stages) == killed_at:
            raise Killed

    with pytest.raises(Killed):
        model.fit(table, callback=kill, checkpoint=path, checkpoint_every=0.0)
    resumed = model.fit(table, checkpoint=path)
    assert stages[0] == "passes"
    assert resumed.hyperparameters == full.hyperparameters
    np.testing.assert_array_equal(resumed.mean, full.mean)


@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
def test_a_callback_stops_between_passes(set_sizes):
    """There is a posterior, which says so."""
    set_sizes(MIN_MOVED_ROWS=100)
    stages = []
    stopped = cavity.MixedGLM(*MODELS[0][:2]).fit(
        draw_rows(), callback=lambda event: stages.append(event.stage) or True
    )
    assert not stopped.converged
    assert stages == ["passes"]


@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning", "ignore::cavity.SettingsWarning")
def test_a_search_without_a_maximum_says_so_as_one_around_fits(set_sizes):
    """Noise of constant observations goes to 0, where slopes leave the range of float64."""
    set_sizes(MIN_MOVED_ROWS=100)
    posterior = cavity.MixedGLM("y ~ x + (1 | g)", "gaussian").fit(draw_rows(300) | {"y": np.full(300, 3.0)})
    assert posterior.status.startswith("the log evidence has no maximum")


@pytest.mark.parametrize("bins", [None, 1000])
def test_searches_that_begin_on_some_rows_end_where_those_of_all_do(bins, monkeypatch):
    """With an effect that vanishes, whose sd goes as far as steps lead, and the search from all rows as a fallback."""
    rng = np.random.default_rng(4)
    x, z, g = rng.uniform(size=6000), rng.uniform(size=6000), rng.integers(60, size=6000)
    f = np.sin(6.0 * x) + 0.4 * z + 0.5 * rng.normal(size=60)[g]
    table = {"x": x, "z": z, "g": g, "counts": rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(f)))}
    model = cavity.MixedGLM("counts ~ s(x, k=12) + s(z, k=12) + (1 | g)", "negative-binomial", bins=bins)
    with pytest.warns(cavity.NumericalWarning, match=r"sd\(s\(z\)\)"):
        usual = model.fit(table)
    monkeypatch.setattr(variance_search, "MIN_SAMPLED_ROWS", 4000)
    sizes, pass_at = [], MixedEvidence.pass_at
    monkeypatch.setattr(
        MixedEvidence, "pass_at", lambda e, *args: sizes.append(e.problem.sites.rows.n) or pass_at(e, *args)
    )
    with pytest.warns(cavity.NumericalWarning, match=r"sd\(s\(z\)\)"):
        sampled = model.fit(table)
    assert sizes.count(375) > 3
    assert sizes.count(6000) > 1
    assert sampled.converged
    np.testing.assert_allclose(sampled.log_evidence, usual.log_evidence, rtol=0, atol=SLOPES)
    sd = np.array([value or np.nan for value in usual.hyperparameters.sd])
    apart = np.subtract(sampled.hyperparameters.values, usual.hyperparameters.values) / sd
    assert np.nanmax(np.abs(apart)) < EXPANSION
