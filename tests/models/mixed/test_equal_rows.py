"""Rows with one predictor are one site: exact values, laws of copies and flips, rows left out."""

import dataclasses

import numpy as np
import pytest
from scipy import integrate, sparse, special, stats
from support.tolerances import AT_REST, EARLY, EXPANSION, ROOT_EPS, SLOPES

import cavity
from cavity import likelihoods
from cavity.base.rows import Rows
from cavity.models.mixed import problem
from cavity.models.mixed.coded_effects import code_effects
from cavity.models.mixed.equal_rows import merge_equal_rows
from cavity.models.predicted_rows import find_loo_moments

SUCCESSES = [4, 2, 2] + [1] * 6 + [0] * 16  # of 25 groups of 4 rows
GROUPS = np.repeat(np.arange(25), 4)
BINARY = np.concatenate([np.repeat([1, 0], [k, 4 - k]) for k in SUCCESSES])
RNG = np.random.default_rng(11)
NODES = np.linspace(-40.0, 40.0, 16001)  # the rule converges exponentially for densities that are smooth on its step


def fit_groups(likelihood, y, groups, X=None, variance=4.0, **options):
    """An intercept N(0, 25) and effects of groups."""
    model = cavity.MixedGLM("g", likelihood, prior_variance=25.0, effect_covariances={"g": variance})
    X = np.ones((len(y), 1)) if X is None else X
    return model.fit(X, y, groups={"g": groups}, tol=1e-11, **options)


def test_rare_successes_are_those_of_binomial_sites():
    """The number with a site for each group is right to .0005 nats, that with one for each row is .27 too low."""
    posterior = fit_groups(likelihoods.Logit(), BINARY, GROUPS)
    assert type(posterior.log_evidence) is float
    assert posterior.log_evidence == pytest.approx(-39.6444061111, abs=AT_REST)
    assert posterior.sites.mean.shape == posterior.loo_log_density.shape == (100,)
    truth = -39.64390369  # by quadrature
    assert abs(posterior.log_evidence - truth) < 6e-4


@pytest.mark.parametrize(
    ("likelihood", "log_p"),
    [
        (likelihoods.Probit(), lambda y, f: special.log_ndtr(np.where(y > 0, f, -f))),
        (likelihoods.Logit(), lambda y, f: special.log_expit(np.where(y > 0, f, -f))),
        (likelihoods.Poisson(), lambda y, f: stats.poisson.logpmf(y, np.exp(f))),
    ],
    ids=["probit", "logit", "poisson"],
)
def test_one_predictor_is_exact(likelihood, log_p):
    """All rows are equal, so that everything is an integral over one f, those of rows left out as well."""
    y, prior_sd, offset = np.array([1, 0, 1, 1, 1]), np.sqrt(25.0 + 4.0), 0.4
    posterior = fit_groups(likelihood, y, np.zeros(5, dtype=int), offset=np.full(5, offset))

    log_prior, terms = stats.norm(0.0, prior_sd).logpdf(NODES), [log_p(row, NODES + offset) for row in y]

    def integral(rows, weight=np.ones_like):
        return integrate.trapezoid(np.exp(log_prior + sum(terms[i] for i in rows)) * weight(NODES), NODES)

    everything = integral(range(5))
    assert posterior.log_evidence == pytest.approx(np.log(everything), abs=ROOT_EPS)
    without = [integral([j for j in range(5) if j != i]) for i in range(5)]
    np.testing.assert_allclose(posterior.loo_log_density, np.log(everything) - np.log(without), atol=ROOT_EPS)
    mean, variance = posterior.predict(posterior.rows(np.ones((1, 1)), {"g": [0]}), offset=[0.0])
    expected = integral(range(5), lambda f: f) / everything
    assert mean[0] == pytest.approx(expected, rel=EARLY)
    assert variance[0] == pytest.approx(integral(range(5), lambda f: f * f) / everything - expected**2, rel=EARLY)
    for i in (0, 1):  # the belief without a row has the moments of the tilted distribution of the others
        rows = [j for j in range(5) if j != i]
        m = integral(rows, lambda f: f) / without[i]
        v = integral(rows, lambda f: f * f) / without[i] - m**2
        influence = 0.5 * (v / variance[0] - 1.0 - np.log(v / variance[0]) + (m - mean[0]) ** 2 / variance[0])
        assert posterior._influence[i] == pytest.approx(influence, rel=EARLY)


def test_counts_in_any_split_and_order():
    """Trials as rows, as successes of trials, and in between; the evidence is that of the rows."""
    k, n = np.array([3, 0, 2, 5, 1, 4]), np.array([5, 4, 2, 6, 3, 4])
    groups, x = np.array([0, 1, 2, 0, 1, 2]), np.array([0.5, -1.0, 0.3, 2.0, 0.1, -0.4])
    X = np.column_stack([np.ones(6), x])
    joint = fit_groups(likelihoods.Binomial(), np.column_stack([k, n]), groups, X)
    index = RNG.permutation(np.repeat(np.arange(6), n))
    y = np.zeros(len(index))
    for i in range(6):
        y[np.flatnonzero(index == i)[: k[i]]] = 1.0
    single = fit_groups(likelihoods.Logit(), y, groups[index], X[index])
    assert single.log_evidence + np.sum(np.log(special.binom(n, k))) == pytest.approx(joint.log_evidence, abs=AT_REST)
    np.testing.assert_allclose(single.mean, joint.mean, rtol=AT_REST)
    np.testing.assert_allclose(single.covariance, joint.covariance, rtol=AT_REST)
    total = np.zeros(6)
    np.add.at(total, index, single._rho)
    np.testing.assert_allclose(total, joint._rho, rtol=EARLY)


@pytest.mark.parametrize("mean", [3.0, 50.0])
def test_sums_of_counts(mean):
    """Rows with one mean are as their sum with the exposure of all."""
    groups, counts = np.repeat([0, 1, 2], 3), RNG.poisson(mean, size=9)
    rows = fit_groups(likelihoods.Poisson(), counts, groups)
    sums = np.bincount(groups, counts)
    joint = fit_groups(likelihoods.Poisson(), sums, np.arange(3), exposure=np.full(3, 3.0))
    split = np.sum(special.gammaln(sums + 1.0) - sums * np.log(3.0)) - np.sum(special.gammaln(counts + 1.0))
    assert rows.log_evidence == pytest.approx(joint.log_evidence + split, abs=AT_REST)
    np.testing.assert_allclose(rows.mean, joint.mean, rtol=AT_REST)
    tau, rho = rows._tau, rows._rho  # of f of a row, which is that of its sum less log 3
    np.testing.assert_allclose(np.bincount(groups, rho), joint._rho, rtol=EARLY)
    np.testing.assert_allclose(np.bincount(groups, tau), joint._tau - np.log(3.0) * joint._rho, rtol=EARLY)
    one = rows.leave_group_out("g", np.ones((9, 1)), counts, groups={"g": groups})
    for level in range(3):
        others = groups != level
        truth = fit_groups(likelihoods.Poisson(), counts[others], groups[others])
        assert one[level] == pytest.approx(rows.log_evidence - truth.log_evidence, abs=EXPANSION)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_a_row_is_that_of_the_other_sign_with_the_other_class(link):
    """Games of two players, as wins of the first or of the second."""
    first, second = np.array([0, 1, 0, 1, 0, 2]), np.array([1, 0, 1, 2, 2, 1])
    wins = np.array([1, 0, 0, 1, 1, 1])
    swap = np.array([False, True, True, False, True, False])
    model = cavity.MixedGLM(
        [cavity.terms.MultiMembership(("home", "away"), weights=(1, -1))],
        link,
        prior_variance=1.0,
        intercept=False,
        effect_covariances={"mm(home, away)": 2.0},
    )
    fits = []
    for flipped in (np.zeros(6, dtype=bool), swap):
        home, away = np.where(flipped, second, first), np.where(flipped, first, second)
        frame = {"home": np.array(["abc"[i] for i in home]), "away": np.array(["abc"[i] for i in away])}
        fits.append(
            model.fit(
                np.zeros((6, 0)) if False else np.where(flipped, -0.1, 0.1)[:, None],
                wins ^ flipped,
                groups=frame,
                tol=1e-11,
            )
        )
    assert fits[0].log_evidence == pytest.approx(fits[1].log_evidence, abs=AT_REST)
    np.testing.assert_allclose(fits[0].loo_log_density, fits[1].loo_log_density, atol=EARLY)


def test_weights_that_are_no_whole_numbers_keep_sites_of_their_own():
    weights = np.array([1.0, 2.0, 0.5, 0.5, 1.0])
    y = np.array([1, 0, 1, 1, 1])
    sites = merge_equal_rows(
        likelihoods.Logit(), Rows(np.ones((5, 1)), y, weights=weights), sparse.csr_array(np.ones((5, 1)))
    )
    assert sites.merged.merged.index.tolist() == [0, 0, 1, 2, 0]
    assert sites.rows.y.tolist() == [[2.0, 4.0], [1.0, 1.0], [1.0, 1.0]]
    assert sites.rows.weights.tolist() == [1.0, 0.5, 0.5]


def test_rows_that_differ_stay_as_they_are():
    X = np.column_stack([np.ones(4), [0.0, 1.0, 0.0, 1.0]])
    rows = Rows(X, np.array([1.0, 0.0, 1.0, 0.0]), offset=np.array([0.0, 0.0, 1e-300, 2.0]))
    for likelihood in (likelihoods.Logit(), likelihoods.StudentT(4.0, 1.0)):
        sites = merge_equal_rows(likelihood, rows, sparse.csr_array(X))
        assert sites.merged is None
        assert sites.rows is rows
        assert sites.constant(likelihood) == 0.0


def test_updates_and_groups_left_out_merge_as_well():
    """As those of successes of trials, whose factors of the number of orders are known."""
    k, n, levels = np.array(SUCCESSES), np.full(25, 4), np.arange(25)
    rows, joint = (
        fit_groups(likelihoods.Logit(), BINARY, GROUPS),
        fit_groups(likelihoods.Binomial(), np.column_stack([k, n]), levels),
    )
    orders = np.log(special.binom(n, k))
    one = rows.leave_group_out("g", np.ones((100, 1)), BINARY, groups={"g": GROUPS})
    other = joint.leave_group_out("g", np.ones((25, 1)), np.column_stack([k, n]), groups={"g": levels})
    np.testing.assert_allclose(one, other - orders, atol=EARLY)
    few = rows.update(np.ones((6, 1)), [1, 0, 1, 1, 0, 0], groups={"g": [0, 0, 0, 7, 7, 7]})
    same = joint.update(np.ones((2, 1)), [[2, 3], [1, 3]], groups={"g": [0, 7]})
    assert few.log_evidence == pytest.approx(same.log_evidence - orders.sum() - 2.0 * np.log(3.0), abs=EARLY)
    np.testing.assert_allclose(few.mean, same.mean, rtol=EARLY)


FAMILIES = [  # with observations
    (likelihoods.Gaussian(0.7), [1.2, -0.3, 0.8, 1.2, 2.0]),
    (likelihoods.NegativeBinomial(1.7), [3.0, 0.0, 1.0, 3.0, 6.0]),
    (likelihoods.Gamma(2.5), [0.2, 1.4, 0.7, 3.0, 1.4]),
    (likelihoods.Tweedie(1.5, 0.8), [0.0, 1.4, 0.0, 3.0, 0.2]),
    (likelihoods.Beta(4.0), [0.2, 0.9, 0.55, 0.9, 0.31]),
    (likelihoods.StudentT(3.0, 0.6), [1.2, -0.3, 1.2, 1.2, 2.0]),
    (likelihoods.OrderedProbit([-0.5, 0.8]), [0.0, 1.0, 2.0, 1.0, 1.0]),
    (likelihoods.Cloglog(), [1.0, 0.0, 1.0, 1.0, 1.0]),
    (likelihoods.BetaBinomial(2.0), [[3, 5], [0, 2], [3, 5], [1, 1], [4, 9]]),
    (likelihoods.ZeroInflatedPoisson(0.3), [0.0, 2.0, 0.0, 1.0, 4.0]),
    (likelihoods.Weibull(1.4), [[0.5, 0.5], [2.0, 2.0], [1.1, np.inf], [1.1, 1.1], [0.2, 0.2]]),
]


@pytest.mark.parametrize(("likelihood", "y"), FAMILIES, ids=[type(item).__name__ for item, _ in FAMILIES])
def test_every_family_is_exact_for_one_predictor(likelihood, y):
    """Powers at a mean and lists of factors, with a row of two copies; rows left out, too."""
    y, weights = np.array(y), np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    posterior = fit_groups(likelihood, y, np.zeros(5, dtype=int), sample_weight=weights)
    checked = likelihood.check(y)

    log_prior, terms = stats.norm(0.0, np.sqrt(29.0)).logpdf(NODES), [likelihood.log_p(row, NODES) for row in checked]

    def integral(copies, weight=np.ones_like):
        log_density = log_prior + sum(c * term for c, term in zip(copies, terms, strict=True) if c)
        return integrate.trapezoid(np.exp(log_density) * weight(NODES), NODES)

    everything = integral(weights)
    assert posterior.log_evidence == pytest.approx(np.log(everything), abs=ROOT_EPS)
    mean, variance = posterior.predict(posterior.rows(np.ones((1, 1)), {"g": [0]}))
    expected = integral(weights, lambda f: f + 10.0) / everything - 10.0
    assert mean[0] == pytest.approx(expected, abs=EARLY)
    assert variance[0] == pytest.approx(integral(weights, lambda f: (f - expected) ** 2) / everything, rel=EARLY)
    for i in (0, 2):
        others = integral(weights - (np.arange(5) == i))
        assert posterior.loo_log_density[i] == pytest.approx(np.log(everything / others), abs=EARLY)


LEARNT = {
    "noise_variance": likelihoods.Gaussian(None),
    "dispersion": likelihoods.NegativeBinomial(),
    "shape": likelihoods.Gamma(),
    "scale": likelihoods.StudentT(4.0, None),
}


@pytest.mark.parametrize("name", LEARNT)
def test_parameters_are_learnt_from_sites_of_equal_rows(name):
    """The slopes of the evidence, of which a part is in no site, are zero where it is highest."""
    rng = np.random.default_rng(5)
    groups, levels = np.repeat(np.arange(8), 12), 0.7 * rng.normal(size=8)
    y = np.round(rng.gamma(2.0, 0.5 * np.exp(1.0 + levels[groups])), 1) + 0.1
    y = np.round(y) if name == "dispersion" else y
    X = np.ones((96, 1))
    learnt = cavity.MixedGLM("g", LEARNT[name], prior_variance=25.0).fit(X, y, groups={"g": groups}, tol=1e-11)
    assert learnt.converged
    value, near = getattr(learnt.model.likelihood, name), []
    for factor in (0.99, 1.0, 1.01):
        fixed = dataclasses.replace(learnt.model.likelihood, **{name: factor * value})
        fit = fit_groups(fixed, y, groups, variance=learnt.model.effect_covariances["g"])
        near.append(fit.log_evidence)
    assert near[1] == pytest.approx(learnt.log_evidence, abs=AT_REST)
    assert abs(near[2] - near[0]) < 0.05 * (2.0 * near[1] - near[0] - near[2])  # of it within 3e-4 of itself


def make_curve(n=4000):
    rng = np.random.default_rng(8)
    x = rng.uniform(-2.0, 5.0, size=n)
    return {"x": x, "y": rng.poisson(np.exp(np.sin(x)))}


@pytest.mark.parametrize("likelihood", ["poisson", "logit"])
def test_residuals_of_rows_of_one_site_are_without_the_row(likelihood):
    """Moments given all other rows are near those of rows with sites of their own, which a jitter of x makes."""
    rng = np.random.default_rng(0)
    g, x = np.repeat(np.arange(8), 5), np.tile([0.0, 0.0, 1.0, 1.0, 2.0], 8)
    counts = rng.poisson(np.exp(0.5 * x + 0.6 * rng.normal(size=8)[g]))
    table = {"x": x, "g": g, "y": counts if likelihood == "poisson" else (counts > 1) * 1}
    model = cavity.MixedGLM("y ~ x + (1 | g)", likelihood, effect_covariances={"g": 0.36})
    posterior = model.fit(table)
    assert "each row predicted from all others" in str(posterior.check(table))
    other = table | {"x": x + 1e-9 * rng.normal(size=40)}
    apart = model.fit(other)
    mean, variance = find_loo_moments(apart, apart._likelihood.check(table["y"]), *apart.predict(other))
    assert np.max(np.abs(posterior._loo_mean - mean) / np.sqrt(variance)) < 0.05
    np.testing.assert_allclose(posterior._loo_variance, variance, rtol=0.05)


def test_bins_are_rounded_covariates():
    """With a site for each, and the fit of the rounded table; new rows are not rounded."""
    table = make_curve()
    posterior = cavity.MixedGLM("y ~ s(x, k=8)", "poisson", bins=50).fit(table)
    low, step = table["x"].min(), np.ptp(table["x"]) / 49
    rounded = {"x": low + step * np.rint((table["x"] - low) / step), "y": table["y"]}
    same = cavity.MixedGLM("y ~ s(x, k=8)", "poisson").fit(rounded)
    assert posterior.n_sites == same.n_sites == 50
    assert posterior.log_evidence == pytest.approx(same.log_evidence, abs=AT_REST)
    new = {"x": np.array([0.1, 0.11])}
    np.testing.assert_allclose(posterior.predict(new)[0], same.predict(new)[0], rtol=EARLY)
    assert np.diff(posterior.predict(new)[0])[0] != 0.0
    assert "covariates of smooths in 50 bins: 4000 rows at 50 sites" in str(posterior.summary())
    few = cavity.MixedGLM("y ~ s(x, k=8)", "poisson", bins=5000).fit(table)
    assert few.n_sites == 4000


def make_binned_rows(n, levels):
    """Return a table of two smooths, a factor, counts, and levels of a group."""
    rng = np.random.default_rng(5)
    x, z, g = rng.uniform(size=n), rng.normal(size=n), rng.integers(levels, size=n)
    few = {"f": np.array(["a", "b", "c"])[rng.integers(3, size=n)], "m": rng.integers(4, size=n).astype(float)}
    f = np.sin(6.0 * x) + np.cos(2.0 * z) + 0.5 * rng.normal(size=levels)[g] + 0.1 * few["m"]
    return {"x": x, "z": z, "g": g, "y": rng.poisson(np.exp(f)), "b": (f > rng.logistic(size=n)) * 1} | few


@pytest.mark.long_cases("y ~ s(x, k=8) + s(z, k=6) + (1 | g)-negative-binomial-1500-True")
@pytest.mark.parametrize(
    ("formula", "likelihood", "levels", "is_coded"),
    [
        ("y ~ s(x, k=8) + s(z, k=6) + (1 | g)", "negative-binomial", 1500, True),
        ("y ~ s(x, k=8) + s(z, k=6) + f + m + (1 | g)", "poisson", 12, True),
        ("b ~ 0 + m + s(x, k=8) + s(z, k=6) + (1 | g)", "logit", 1500, True),
        ("y ~ s(x, k=8) + s(z, k=6)", "gaussian", 5, True),
        ("y ~ s(x, k=8) + s(z, k=6) + (1 + m | g)", "gaussian", 5, False),
        ("y ~ s(x, by=f, k=6) + s(z, k=6)", "gaussian", 5, False),
    ],
)
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum in the corr")  # effects of m do not differ
def test_tables_of_bins_give_the_fit_of_rounded_covariates(formula, likelihood, levels, is_coded, monkeypatch):
    """With the same bits for all threads; effects of too many values take rows as those of no bins."""
    table, coded = make_binned_rows(max(1200, 2 * levels), levels), []

    def spy(*arguments):
        coded.append(code_effects(*arguments))
        return coded[-1]

    monkeypatch.setattr(problem, "code_effects", spy)
    model = cavity.MixedGLM(formula, likelihood, bins=60)
    posterior, other = (model.fit(table, n_threads=threads) for threads in (1, 2))
    assert posterior.log_evidence == other.log_evidence
    assert [rows is not None for rows in coded] == [is_coded] * len(coded)
    assert coded or not is_coded
    rounded = dict(table)
    for name in ("x", "z"):
        low, step = table[name].min(), np.ptp(table[name]) / 59
        rounded[name] = np.clip(low + step * np.rint((table[name] - low) / step), low, table[name].max())
    same = cavity.MixedGLM(formula, likelihood).fit(rounded)
    assert posterior.log_evidence == pytest.approx(same.log_evidence, abs=EARLY)
    new = {name: values[:20] for name, values in table.items()}
    for moment, expected in zip(posterior.predict(new), same.predict(new), strict=True):
        np.testing.assert_allclose(moment, expected, rtol=SLOPES)


def test_errors_of_bins_shrink_with_their_square():
    """So does the difference of the evidence to that of the covariates as they are."""
    table = make_curve()
    exact, *binned = (
        cavity.MixedGLM("y ~ s(x, k=8)", "poisson", bins=bins, effect_covariances={"s(x)": 0.5}).fit(table).log_evidence
        for bins in (None, 30, 120)
    )
    assert abs(binned[1] - exact) < 0.25 * abs(binned[0] - exact)


def test_linear_effects_of_binned_covariates_are_those_of_the_bins():
    table = make_curve(400)
    plain, linear = (cavity.MixedGLM(f, "poisson", bins=50).fit(table) for f in ("y ~ s(x)", "y ~ x + s(x)"))
    assert linear.n_sites == plain.n_sites == 50
    assert linear.coefficient_names == ("intercept", "x")


@pytest.mark.parametrize("far", [6.0, 1e3])
def test_rows_of_weight_zero_do_not_count_for_bins(far):
    table = make_curve(400)
    model = cavity.MixedGLM("y ~ s(x)", "poisson", bins=50)
    more = {"x": np.append(table["x"], far), "y": np.append(table["y"], 3)}
    posterior = model.fit(more, sample_weight=np.append(np.ones(400), 0.0))
    assert posterior.log_evidence == pytest.approx(model.fit(table).log_evidence, abs=AT_REST)


def test_bins_that_are_refused():
    with pytest.raises(ValueError, match="bins must be an integer of at least 10, got 3|bins must be"):
        cavity.MixedGLM("y ~ s(x)", bins=3)
    with pytest.raises(ValueError, match="bins has a meaning for formulas with smooths, got 20"):
        cavity.GLM("poisson", bins=20).fit(np.ones((3, 1)), [1, 2, 3])


def test_rows_of_weight_zero_do_not_count_for_knots():
    table = make_curve(300)
    weights = np.ones(300)
    weights[:20] = 0.0
    table["x"][:20] = np.linspace(8.0, 20.0, 20)
    model = cavity.MixedGLM("y ~ s(x, k=8)", "poisson")
    weighted = model.fit(table, sample_weight=weights)
    without = model.fit({name: column[20:] for name, column in table.items()})
    assert weighted.log_evidence == pytest.approx(without.log_evidence, abs=AT_REST)
    np.testing.assert_allclose(weighted.mean, without.mean, rtol=EARLY)


def test_smooths_of_one_column_with_and_without_a_period():
    table = make_curve(400)
    table["y"] = table["y"] + np.rint(2.0 * np.sin(2.0 * np.pi * table["x"]) + 2.0)
    posterior = cavity.MixedGLM("y ~ s(x, k=8) + s(x, k=8, period=1)", "poisson").fit(table)
    assert posterior.structured_terms == ("s(x)", "s(x, period=1)")
    assert len(posterior.curve("s(x, period=1)").columns["mean"]) > 10
    with pytest.raises(ValueError, match="must have each term once"):
        cavity.MixedGLM("y ~ s(x, k=8) + s(x, k=9)", "poisson").fit(table)
