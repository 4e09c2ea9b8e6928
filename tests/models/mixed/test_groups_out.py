"""Groups left out, and how many effects the data determine: improper cavities, updates, and heavy tails."""

import numpy as np
import pytest
from scipy import integrate, special
from support.tolerances import AT_REST, EARLY, EXPANSION, OPTIMUM

import cavity
from cavity import likelihoods
from cavity.priors import HalfNormal

SLOW = pytest.mark.long
IMPROPER = (4, 11, 32, pytest.param(65, marks=SLOW), 74, pytest.param(116, marks=SLOW))  # of the first 120 problems


def problem(seed):
    """Outliers under Student-t noise, in a few groups."""
    rng = np.random.default_rng(seed)
    n, k, d = int(rng.integers(12, 60)), int(rng.integers(2, 8)), int(rng.integers(1, 4))
    g, X = rng.integers(k, size=n), np.column_stack([np.ones(n), rng.normal(size=(n, d - 1))])
    nu, scale = float(rng.choice([1.0, 1.5, 2, 3, 4])), float(rng.choice([0.05, 0.1, 0.3, 1.0]))
    f = X @ rng.normal(size=d) + rng.normal(size=k)[g]
    y = f + scale * rng.standard_t(nu, size=n) * float(rng.choice([1, 1, 3]))
    return cavity.MixedGLM("g", likelihoods.StudentT(nu, scale), effect_covariances={"g": 1.0}), X, y, g


def dense(posterior, X, g):
    """The rows of all effects, those of levels in order, and the precision of the prior."""
    levels = np.unique(g)
    rows = np.hstack([X, (g[:, None] == levels) * 1.0])
    variance = np.append(np.broadcast_to(posterior.model.prior_variance, X.shape[1]), np.ones(len(levels)))
    return rows, np.diag(1.0 / variance), levels


def cavities(posterior, X, g):
    """The precision of all effects without the sites of each level, and its precision times mean."""
    rows, prior, levels = dense(posterior, X, g)
    mean = np.append(np.broadcast_to(posterior.model.prior_mean, X.shape[1]), np.zeros(len(levels)))
    for level in levels:
        out = g != level
        rho, tau = posterior.sites.rho[out], posterior.sites.tau[out]
        precision = prior + rows[out].T * rho @ rows[out]
        yield level, precision, prior @ mean + rows[out].T @ tau


@pytest.mark.long_cases("74")
@pytest.mark.parametrize("seed", IMPROPER)
def test_a_level_without_which_the_posterior_is_improper_is_named(seed):
    model, X, y, g = problem(seed)
    posterior = model.fit(X, y, groups=g)
    first = next(level for level, precision, _ in cavities(posterior, X, g) if np.linalg.eigvalsh(precision)[0] <= 0)
    message = (
        rf"level '{first}' of 'g' has no log density given all other rows: .*improper; the rows of the other levels"
    )
    with pytest.raises(ValueError, match=message):
        posterior.leave_group_out("g", X, y, groups=g)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_others_are_the_evidence_under_the_cavity(seed):
    """By one row at a time, whose site is exact: the integral of its density over the cavity."""
    model, X, y, g = problem(seed)
    g = np.where(np.arange(len(g)) < 3, 100 + np.arange(len(g)), g)  # three levels of one row
    posterior = model.fit(X, y, groups=g)
    left = posterior.leave_group_out("g", X, y, groups=g)
    assert np.isfinite(left).all()
    rows, _, levels = dense(posterior, X, g)
    z = np.linspace(-40.0, 40.0, 400_001)
    for number, (level, precision, tau) in enumerate(cavities(posterior, X, g)):
        if level < 100:
            continue
        row = level - 100
        mean = rows[row] @ np.linalg.solve(precision, tau)
        sd = np.sqrt(rows[row] @ np.linalg.solve(precision, rows[row]))
        density = np.exp(model.likelihood.log_p(y[row], mean + sd * z) - 0.5 * z**2) / np.sqrt(2.0 * np.pi)
        assert left[number] == pytest.approx(np.log(integrate.trapezoid(density, z)), abs=OPTIMUM)
        assert left[number] == pytest.approx(posterior.loo_log_density[row], abs=EARLY)


def test_a_level_without_rows_in_use_says_nothing():
    model, X, y, g = problem(0)
    weight = np.where(g == g[0], 0.0, 1.0)
    posterior = model.fit(X, y, groups=g, sample_weight=weight)
    left = posterior.leave_group_out("g", X, y, groups=g, sample_weight=weight)
    assert np.isfinite(left).all()
    assert left[np.flatnonzero(np.unique(g) == g[0])[0]] == 0.0


@pytest.mark.parametrize("prior_variance", [2.0, np.array([2.0, 3.0]), np.array([[2.0, 0.5], [0.5, 3.0]])])
def test_effective_parameters_are_at_most_the_effects_whatever_the_updates(prior_variance):
    """The trace of the posterior covariance times the precision that all sites have added to the prior."""
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(3), 20)
    X = np.column_stack([np.ones(60), rng.normal(size=60)])
    y = X @ [1.0, 2.0] + rng.normal(size=3)[g] + rng.normal(size=60)
    covariance = 0.7 * np.eye(3)
    model = cavity.MixedGLM("g", likelihoods.Gaussian(0.5), 0.0, prior_variance, effect_covariances={"g": 0.7})
    full = model.fit(X, y, groups=g)
    posterior = model.fit(X[::3], y[::3], groups=g[::3])
    posterior = posterior.update(X[1::3], y[1::3], groups=g[1::3]).update(X[2::3], y[2::3], groups=g[2::3])
    rows = np.hstack([X, (g[:, None] == np.arange(3)) * 1.0])
    prior = np.zeros((5, 5))
    prior[:2, :2] = np.linalg.inv(
        np.broadcast_to(prior_variance, (2, 2))
        if np.ndim(prior_variance) == 2
        else np.diag(np.broadcast_to(prior_variance, 2))
    )
    prior[2:, 2:] = np.linalg.inv(covariance)
    added = rows.T @ rows / 0.5
    expected = np.trace(added @ np.linalg.inv(prior + added))
    assert expected < 5.0
    assert full.effective_parameters == pytest.approx(expected, abs=AT_REST)
    assert posterior.effective_parameters == pytest.approx(expected, abs=AT_REST)


def test_effective_parameters_below_zero_are_saved(tmp_path):
    """Outliers make the posterior wider than the prior."""
    rng = np.random.default_rng(149)
    n = int(rng.integers(2, 8))
    X, g, y = np.ones((n, 1)), rng.integers(2, size=n), 10.0 * rng.standard_cauchy(n)
    model = cavity.MixedGLM("g", likelihoods.StudentT(1.0, 0.3), effect_covariances={"g": 1.0}, prior_variance=1.0)
    posterior = model.fit(X, y, groups=g)
    assert posterior.effective_parameters < 0
    posterior.save(tmp_path / "p.npz")
    assert cavity.load(tmp_path / "p.npz").effective_parameters == posterior.effective_parameters


def test_groups_left_out_are_averaged_over_the_points_of_an_integral():
    """Gaussian sites do not depend on other rows: against fits with and without a level at the values of the points."""
    rng = np.random.default_rng(2)
    g, t = np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5)
    data = {"g": g, "t": t, "x": rng.normal(size=20)}
    data["y"] = data["x"] + np.array([0.0, 3.0, -1.0, 0.5, -0.5])[g] + 0.2 * t + 0.5 * rng.normal(size=20)
    settings = {"prior_mean": 0.3, "prior_variance": 4.0}
    formula = "y ~ x + (1 | g) + rw1(t)"
    posterior = cavity.MixedGLM(formula, integrate="ccd", **settings).fit(data)
    left = posterior.leave_group_out("g", data)
    names, densities = posterior.integration.names, []
    assert {"sd(intercept | g)", "noise_variance"} <= set(names)
    for values in posterior.integration.values:
        at = dict(zip(names, values.tolist(), strict=True))
        covariances = {"g": at["sd(intercept | g)"] ** 2}
        (walk,) = posterior.structured_terms
        covariances[walk] = {"sd": at[next(name for name in names if "rw1" in name)]}
        model = cavity.MixedGLM(
            formula, likelihoods.Gaussian(at["noise_variance"]), effect_covariances=covariances, **settings
        )
        point = model.fit(data)
        densities.append(point.leave_group_out("g", data))
    expected = -special.logsumexp(-np.array(densities), axis=0, b=posterior.integration.weights[:, None])
    np.testing.assert_allclose(left, expected, atol=AT_REST)
    assert np.ptp(densities, axis=0).max() > 1.0
    keep = g != 2  # exact: the density of all rows over that of the others
    out = model.fit({name: column[keep] for name, column in data.items()})
    assert densities[-1][2] == pytest.approx(point.log_evidence - out.log_evidence, abs=OPTIMUM)


def test_integrated_groups_left_out_by_quadrature():
    """An unusual level of rare successes, which says much about the standard deviation of all."""
    successes = [4, 2, 1, 1, 0, 0]
    rows = np.ones((24, 1)), np.concatenate([np.repeat([1, 0], [k, 4 - k]) for k in successes])
    groups = {"g": np.repeat(np.arange(6), 4)}
    model = cavity.MixedGLM("g", "logit", prior_variance=25.0, priors={"sd": HalfNormal(3.0)}, integrate="grid")
    left = model.fit(*rows, groups=groups).leave_group_out("g", *rows, groups=groups)
    z, intercepts, sds = np.linspace(-8.0, 8.0, 81), np.linspace(-15.0, 12.0, 91), np.linspace(1e-3, 12.0, 241)
    w = np.exp(-0.5 * z * z) / np.sum(np.exp(-0.5 * z * z))
    f = intercepts[:, None] + sds[:, None, None] * z
    p, q = special.expit(f), special.expit(-f)
    by_count = {k: np.log(p**k * q ** (4 - k) @ w) for k in set(successes)}
    log_joint = sum(by_count[k] for k in successes) - intercepts**2 / 50.0 - sds[:, None] ** 2 / 18.0
    total = special.logsumexp(log_joint)
    exact = np.array([total - special.logsumexp(log_joint - by_count[k]) for k in successes])
    np.testing.assert_allclose(left[1:], exact[1:], atol=EXPANSION)
    assert left[0] == pytest.approx(exact[0], abs=0.08)  # of EP, whose other sites know the level
    at_maximum = cavity.MixedGLM("g", "logit", prior_variance=25.0, priors={"sd": HalfNormal(3.0)})
    plug_in = at_maximum.fit(*rows, groups=groups).leave_group_out("g", *rows, groups=groups)
    assert plug_in[0] > exact[0] + 0.7


SETTINGS = {
    "rw1(t | g)": {"sd": 0.4, "sd(start)": 0.8},
    "seasonal(n | g, 4)": {"sd": 0.3, "sd(start)": 0.7},
    "s(x | g, knots=(0, 3, 6, 9))": {"sd": 0.5, "sd(intercept)": 0.6, "sd(slope)": 0.7},
    "precision(g, Q)": {"sd": 0.9},
}


@pytest.mark.parametrize("term", SETTINGS)
def test_levels_of_structured_terms_are_left_out(term):
    """With Gaussian noise the evidence of all rows less that of the others; a level without rows has 0."""
    rng = np.random.default_rng(5)
    n = 90
    rows = {
        "t": rng.integers(8, size=n),
        "n": np.arange(n) % 9,
        "x": rng.uniform(0.0, 9.0, n),
        "g": rng.choice(list("uvw"), n),
    }
    rows["y"] = rng.normal(size=n)
    pairs = {"Q": (np.eye(4) * 2.0 - np.diag(np.ones(3), 1) - np.diag(np.ones(3), -1), list("uvwz"))}
    name = term.replace(", knots=(0, 3, 6, 9)", "")
    settings = {"effect_covariances": {name: SETTINGS[term]}, "prior_variance": 1.0, "graphs": pairs}
    model = cavity.MixedGLM(f"y ~ {term}", likelihoods.Gaussian(0.5), **settings)
    posterior = model.fit(rows)
    left = posterior.leave_group_out("g", rows)
    for number, level in enumerate("uvw"):
        others = {column: np.asarray(values)[rows["g"] != level] for column, values in rows.items()}
        assert left[number] == pytest.approx(posterior.log_evidence - model.fit(others).log_evidence, abs=AT_REST)
    assert left[3:].tolist() == [0.0] * (term == "precision(g, Q)")


def test_models_without_groups_have_none_to_leave_out():
    rows = {"x": np.arange(9.0), "y": np.arange(9.0) % 2}
    posterior = cavity.MixedGLM(
        "y ~ rw1(x)", likelihoods.Gaussian(0.5), effect_covariances={"rw1(x)": {"sd": 1.0}}
    ).fit(rows)
    with pytest.raises(ValueError, match="group must be a group of the model, which has none, got 'g'"):
        posterior.leave_group_out("g", rows)
