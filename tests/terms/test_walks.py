"""Walks, autoregressions, seasonal patterns, given precisions, several levels a row: priors, rows, what is refused."""

import numpy as np
import pytest
from scipy import sparse
from support.coal_disasters import count_disasters
from support.term_priors import assert_prior, assert_restored, dense_precision
from support.tolerances import AT_REST, EARLY, INTEGRAL, ROOT_EPS, SOLVES

import cavity
from cavity.terms import Autoregressive, GivenPrecision, MultiMembership, RandomWalk, Seasonal, TensorSmooth, intrinsic

pd = pytest.importorskip("pandas")

IRREGULAR = np.array([0, 0.5, 0.7, 2, 3.5, 10, 11])
TREE = np.array([[3.0, -1, -1, 0], [-1, 2, 0, -0.5], [-1, 0, 2.5, 0], [0, -0.5, 0, 1.5]])


def panel(n=60):
    rng = np.random.default_rng(0)
    t = rng.integers(0, 15, n).astype(float)
    return {"t": t, "g": rng.choice(list("uvw"), n), "h": rng.choice(list("tuvw"), n), "w": rng.uniform(1, 2, n)}


TERMS = {
    "rw1": RandomWalk("t"),
    "rw2": RandomWalk("t", 2),
    "rw1 by group": RandomWalk("t", 1, "g"),
    "rw2 by group": RandomWalk("t", 2, "g"),
    "ar1": Autoregressive("t"),
    "ar1 by group": Autoregressive("t", "g", until=20),
    "seasonal": Seasonal("t", 4),
    "seasonal by group": Seasonal("t", 4, "g"),
    "precision": GivenPrecision("g", TREE, ["w", "u", "v", "x"], scale=True),
    "precision with a null space": GivenPrecision(
        "g", [[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]], ["u", "v", "w"], null=[1.0, 1, 1]
    ),
    "mm": MultiMembership(("g", "h"), weights=(1, "w")),
    "mm of walks": MultiMembership(("g", "h"), (1, -1), RandomWalk("t")),
    "mm of seasons": MultiMembership(("g", "h"), (1, -1), Seasonal("t", 4)),
}


@pytest.mark.parametrize("name", TERMS)
def test_the_normalising_constant_is_that_of_dense_algebra(name):
    """(2) of the contract against eigenvalues on the subspace, and its derivatives against differences."""
    prior = TERMS[name].build(panel()).prior
    free = np.linspace(-0.4, 0.7, len(prior.parameters))
    P, _ = assert_prior(prior, free)
    if prior.constraints is not None:
        pinned = P + np.diag(np.isin(np.arange(len(P)), prior.pins))
        assert np.linalg.eigvalsh(pinned)[0] > 1e-6


@pytest.mark.parametrize("name", TERMS)
def test_a_file_gives_the_same_rows(name):
    built, second = assert_restored(TERMS[name], panel())
    assert built.prior.log_determinant == second.prior.log_determinant if hasattr(built.prior, "which") else True


@pytest.mark.parametrize(
    ("order", "times", "log_determinant", "scale"),
    [
        (1, np.arange(50.0), np.log(50), 7.555444),
        (1, np.arange(100.0), np.log(100), 15.114764),
        (2, np.arange(50.0), np.log(50**2 * (50**2 - 1) / 12), 214.498709),
        (2, np.arange(100.0), np.log(100**2 * (100**2 - 1) / 12), 1713.153381),
        (2, IRREGULAR, 4.61977136, 2.00252017),
        (2, np.arange(1851.0, 1963), 16.3890091, 2406.587254736),
        (1, np.arange(1851.0, 1963), np.log(112), 16.928829038),
    ],
)
def test_golden_scales_of_walks(order, times, log_determinant, scale):
    """Closed forms of equal steps (Rue and Held, 2005), and values of other code for irregular ones."""
    built = RandomWalk("t", order).build({"t": times})
    N = built.prior.constraints.T
    assert built.prior.scales[0] == pytest.approx(scale, rel=EARLY)
    assert built.prior.log_determinant - np.linalg.slogdet(N.T @ N)[1] == pytest.approx(log_determinant, abs=EARLY)


@pytest.mark.parametrize(
    ("m", "n", "value", "scale"), [(12, 60, 20.18872368, 1.46152011), (4, 20, 6.21460810, 1.47173080)]
)
def test_golden_scales_of_seasons(m, n, value, scale):
    prior = Seasonal("t", m).build({"t": np.arange(n)}).prior
    N = prior.constraints.T
    assert prior.scales[0] == pytest.approx(scale, abs=ROOT_EPS)
    assert prior.log_determinant - np.linalg.slogdet(N.T @ N)[1] == pytest.approx(value, abs=ROOT_EPS)


def test_seasons_by_group_have_their_covariance():
    """Those of the first cycle have equal variances and sum to what any m do; chains of fewer seasons than a cycle."""
    table = {"t": np.array([3, 11, 5, 6]), "g": ["long", "long", "short", "short"]}
    built = Seasonal("t", 4, "g").build(table)
    sd, start = 0.7, 1.3
    P, _ = dense_precision(built.prior, np.log([sd, start]))
    covariance = np.linalg.inv(P)
    np.testing.assert_allclose(covariance[:9, 9:], 0.0, atol=SOLVES)
    sums = np.array([np.arange(9) - at for at in range(6)])
    sums = ((sums >= 0) & (sums < 4)).astype(float)
    np.testing.assert_allclose(sums @ covariance[:9, :9] @ sums.T, sd**2 * np.eye(6), atol=SOLVES)
    first = start**2 * (4.0 / 3.0) * (np.eye(4) - 0.25)
    np.testing.assert_allclose(covariance[:3, :3], first[:3, :3], atol=SOLVES)
    np.testing.assert_allclose(covariance[9:, 9:], first[:2, :2], atol=SOLVES)


def test_generalised_inverses():
    """Their diagonal against the pseudo-inverse of a dense matrix."""
    built = RandomWalk("t", 2).build({"t": IRREGULAR})
    S, _ = dense_precision(built.prior, [0.5 * np.log(built.prior.scales[0])])
    _, variances = intrinsic.analyse(sparse.csc_array(S), built.prior.constraints.T)
    np.testing.assert_allclose(variances, np.diagonal(np.linalg.pinv(S)), rtol=AT_REST)


def test_autoregressions_have_their_covariance():
    """sd^2 rho^|i - j|."""
    prior = Autoregressive("t").build({"t": np.array([3, 9])}).prior
    sd, rho = 0.7, 0.6
    P, _ = dense_precision(prior, [p.free(v) for p, v in zip(prior.parameters, (sd, rho), strict=True)])
    lags = np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
    np.testing.assert_allclose(np.linalg.inv(P), sd**2 * rho**lags, atol=SOLVES)


@pytest.mark.parametrize(
    ("order", "sd", "log_evidence", "fixed", "f", "f_sd"),
    [
        (
            *(2, 0.5, -179.9655534179, [0.32712837, -1.83278226]),
            [1.12225264, 1.21129574, 0.01629681, -0.94045087],
            [0.23451612, 0.12421989, 0.18192595, 0.46616299],
        ),
        (2, 0.7, -179.7642374608, [0.31197702, -1.86053209], None, None),
        (
            *(1, 0.5, -177.6886705961, None),
            [1.16514762, 1.22414619, 0.05905941, -0.61982946],
            [0.24760786, 0.18141590, 0.24167471, 0.38669045],
        ),
    ],
)
def test_golden_values_of_coal_disasters(order, sd, log_evidence, fixed, f, f_sd):
    """EP by other code; the scale of walks there is the geometric mean of the variances of their nodes."""
    counts = count_disasters()
    assert counts.sum() == 191
    year, term = np.arange(1851, 1963), f"rw{order}(year)"
    scale = (
        RandomWalk("year", order).build({"year": year}).prior.scales[0] / {1: 16.928829038, 2: 2406.587254736}[order]
    )
    model = cavity.MixedGLM(
        f"y ~ {term}",
        "poisson",
        prior_mean=0.0,
        prior_variance=[100.0, 100.0 * 1.11**2][:order],  # the slope is in units of the range of 111 years
        centre=[0.0] * order,
        effect_covariances={term: sd**2 * scale},
    )
    posterior = model.fit({"y": counts, "year": year}, tol=1e-11)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=AT_REST)
    if fixed is not None:
        np.testing.assert_allclose(posterior.mean / [1.0, 1.11], fixed, atol=ROOT_EPS)
    if f is not None:
        mean, variance = posterior.predict({"year": year[[0, 20, 55, 111]]})
        np.testing.assert_allclose(mean, f, atol=ROOT_EPS)
        np.testing.assert_allclose(np.sqrt(variance), f_sd, atol=ROOT_EPS)


def chain_counts():
    i = np.arange(200)
    return i, np.floor(2 * np.exp(np.sin(i / 15) + 0.5 * np.cos(i / 4)))


def test_golden_values_of_a_poisson_autoregression():
    """Two forms of EP by other code: log evidence and marginals; the offset .5 is known."""
    i, y = chain_counts()
    arguments = {"ar1(t)": {"sd": 0.8, "rho": 0.9}}
    model = cavity.MixedGLM("y ~ 0 + ar1(t)", "poisson", effect_covariances=arguments)
    posterior = model.fit({"t": i, "y": y}, offset=np.full(200, 0.5), tol=1e-11)
    assert posterior.log_evidence == pytest.approx(-290.5670444040, abs=AT_REST)
    mean, variance = posterior.predict({"t": i[[0, 50, 100, 199]]}, offset=0.5)
    np.testing.assert_allclose(mean, [0.96397347, 0.55599197, 1.32957151, 1.37573918], atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(variance), [0.37908549, 0.36063716, 0.29500789, 0.33942147], atol=ROOT_EPS)


@pytest.mark.parametrize(
    ("wins", "losses", "mean", "sd"),
    [(5, 0, 6.59670851644, 6.79340454349), (1, 0, 4.20522087003, 7.19448134883), (10, 10, 0.0, 5.94940141374)],
)
def test_golden_values_of_two_players(wins, losses, mean, sd):
    """Ratings 25 + 25/6 sqrt(2) effect, exact by quadrature; EP is within its error of some thousandths."""
    games = {"a": ["x"] * (wins + losses), "b": ["y"] * (wins + losses), "won": np.repeat([1, 0], [wins, losses])}
    model = cavity.MixedGLM("won ~ 0 + mm(a, b, weights=(1, -1))", "probit", effect_covariances={"mm(a, b)": 2.0})
    posterior = model.fit(games)
    unit = 25.0 / 6.0 * np.sqrt(2.0)
    assert abs(unit * posterior._effects.mean[0] - mean) < 0.05 * sd
    assert abs(unit * np.sqrt(posterior._effects.variance[0]) / sd - 1.0) < 0.03
    if wins == losses:
        assert posterior.log_evidence == pytest.approx(-15.836199917087, abs=0.1)


def test_a_level_twice_in_a_row_adds_up():
    built = MultiMembership(("g", "h")).build({"g": ["a", "b"], "h": ["a", "a"]})
    np.testing.assert_array_equal(built.design({"g": ["a", "b"], "h": ["a", "a"]}).toarray(), [[2, 0], [1, 1]])


def test_walks_of_several_levels_a_row():
    """Differences of states have the covariance of walks from N(0, sd(start)^2), by dense algebra."""
    table = panel(40)
    term = MultiMembership(("g", "h"), (1, -1), RandomWalk("t"))
    assert term.name == "rw1(t | mm(g, h))"
    built = term.build(table)
    assert built.variables == ("g", "h", "t")
    assert len(built.effect_names()) == len(
        {*zip(table["g"], table["t"], strict=True)} | {*zip(table["h"], table["t"], strict=True)}
    )
    rng = np.random.default_rng(1)
    y, sd, start = rng.normal(size=40), 0.4, 0.9
    arguments = {term.name: {"sd": sd, "sd(start)": start}}
    model = cavity.MixedGLM([term], cavity.likelihoods.Gaussian(0.2), intercept=False, effect_covariances=arguments)
    posterior = model.fit(np.ones((40, 1)), y, groups=table)
    first = {level: min(table["t"][(table["g"] == level) | (table["h"] == level)]) for level in "tuvw"}

    def covary(one, other):
        since = np.array([first[level] for level in one])
        return (one[:, None] == other) * (
            start**2 + sd**2 * (np.minimum.outer(table["t"], table["t"]) - since[:, None])
        )

    g, h = table["g"], table["h"]
    effects = covary(g, g) + covary(h, h) - covary(g, h) - covary(h, g)
    prior = posterior.model.prior_variance
    total = effects + prior * np.ones((40, 40)) + 0.2 * np.eye(40)
    expected = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(total)[1] + 40 * np.log(2 * np.pi))
    assert posterior.log_evidence == pytest.approx(expected, abs=INTEGRAL)
    rows = {key: values[:1] for key, values in table.items()}
    item = [posterior.curve(term.name, {"t": rows["t"], "g": rows[name]}).columns["mean"] for name in "gh"]
    both = posterior.curve(term.name, rows).columns["mean"]
    np.testing.assert_allclose(item[0] - item[1], both, atol=SOLVES)


def test_other_times_of_a_walk():
    """Between states the bridge, beyond them the walk: against a walk that has states there."""
    t = np.array([0.0, 1.0, 4.0, 5.0])
    y = np.array([0.3, 0.9, -0.4, 0.1])
    fixed = {"prior_variance": 4.0, "effect_covariances": {"rw1(t | g)": {"sd": 0.6, "sd(start)": 1.3}}}
    model = cavity.MixedGLM([RandomWalk("t", 1, "g")], cavity.likelihoods.Gaussian(0.1), **fixed)
    few = model.fit(np.ones((4, 1)), y, groups={"t": t, "g": ["a"] * 4})
    times = np.array([2.5, 5.0, 7.0])
    weights = np.repeat([1.0, 0.0], [4, 3])
    groups = {"t": np.append(t, times), "g": ["a"] * 7}
    many = model.fit(np.ones((7, 1)), np.append(y, [0.0] * 3), groups=groups, sample_weight=weights)
    new = {"t": times, "g": ["a"] * 3}
    moments = [posterior.predict(np.ones((3, 1)), groups=new) for posterior in (few, many)]
    np.testing.assert_allclose(*moments, atol=SOLVES)
    assert few.log_evidence == pytest.approx(many.log_evidence, abs=INTEGRAL)


@pytest.mark.parametrize(
    "formula",
    [
        *("rw1(t) + (1 | g)", "rw1(t | g)", "rw2(t)", "ar1(t | g)", "seasonal(t, 4)", "mm(g, h)"),
        "seasonal(t | g, 4)",
        *("rw1(t | mm(g, h, weights=(1, -1)))", "s(w | mm(g, h), k=5)"),
    ],
)
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_formulas_fit_save_and_predict(formula, tmp_path):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(panel(150))
    frame["y"] = rng.poisson(np.exp(0.5 + np.sin(frame.t / 3.0) + 0.3 * (frame.g == "u")))
    posterior = cavity.GLM(f"y ~ {formula}", "poisson").fit(frame)
    assert posterior.converged
    posterior.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(cavity.load(tmp_path / "fit.npz").predict(frame), posterior.predict(frame))


def test_a_pedigree_by_formula():
    """precision(g, Q) with the matrix of graphs=, against random effects with its inverse as dense covariance."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"g": rng.choice(list("uvwx"), 40), "y": rng.normal(size=40)})
    model = cavity.MixedGLM(
        "y ~ precision(g, A)",
        cavity.likelihoods.Gaussian(0.5),
        prior_variance=9.0,
        effect_covariances={"precision(g, A)": 0.49},
        graphs={"A": (TREE, ["w", "u", "v", "x"])},
    )
    posterior = model.fit(frame)
    Z = (frame.g.to_numpy()[:, None] == np.array(["w", "u", "v", "x"])).astype(float)
    cov = 0.5 * np.eye(40) + 9.0 + 0.49 * Z @ np.linalg.inv(TREE) @ Z.T
    expected = -0.5 * (frame.y @ np.linalg.solve(cov, frame.y) + np.linalg.slogdet(cov)[1] + 40 * np.log(2 * np.pi))
    assert posterior.log_evidence == pytest.approx(expected, abs=INTEGRAL)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (lambda: RandomWalk("t", 3), "order must be 1 or 2"),
        (lambda: RandomWalk(1.5), "column must be the name or number of a column"),
        (lambda: RandomWalk("c"), r"column 'c' must have different values for rw1\(c\)"),
        (lambda: RandomWalk("two", 2), "must have 3 different times, got 2"),
        (lambda: Autoregressive("w"), "must hold whole numbers for ar1"),
        (lambda: Autoregressive("far"), "must hold consecutive whole numbers"),
        (lambda: Autoregressive("t", until=3), "until must be at least the last time, 14"),
        (lambda: Seasonal("t", 1), "period must be at least 2"),
        (lambda: Seasonal("t", 40), "must have more times than a cycle of 40, got 15"),
        (lambda: GivenPrecision("g", [[1.0, 2], [0, 1]], "uv"), "must be symmetric, got 0 in row 1, column 0, and 2"),
        (lambda: GivenPrecision("g", -TREE, "uvwx"), "must be positive definite, which it is not; null="),
        (lambda: GivenPrecision("g", TREE, "uvw"), "must be 4 different labels"),
        (lambda: GivenPrecision("g", TREE, "uvwx", null=[1.0] * 4), "must be a null space of Q"),
        (lambda: GivenPrecision("g", TREE, "abcd"), "must have levels of Q, got"),
        (lambda: MultiMembership(("g", "h"), (1,)), "must be one for each of 2 columns"),
        (lambda: MultiMembership("g"), "must be two columns or more"),
        (
            lambda: MultiMembership(("g", "h"), effects=TensorSmooth(("t", "w"))),
            "effects must be a term that has effects by group",
        ),
        (
            lambda: MultiMembership(("g", "h"), effects=RandomWalk("t", 1, "w")),
            "effects must be a term that has effects",
        ),
    ],
)
def test_what_is_refused(term, message):
    table = panel() | {"c": np.ones(60), "two": np.arange(60) % 2, "far": np.arange(60) * 1000}
    with pytest.raises((ValueError, TypeError), match=message):
        term().build(table).design(table)


@pytest.mark.parametrize("name", ["rw2", "ar1", "seasonal"])
def test_times_without_states_are_refused(name):
    built = TERMS[name].build(panel())
    with pytest.raises(ValueError, match=r"must have times of the fit, which are within 0 to 14, got 15.5 in row 1"):
        built.design({"t": np.array([3.0, 15.5])})


def test_terms_that_act_in_no_row():
    table = {"a": ["u", "v", "u"], "b": ["u", "v", "u"], "y": [0.0, 1.0, 2.0], "t": [0.0, 1.0, 2.0]}
    for formula in ("y ~ mm(a, b, weights=(0, 0))", "y ~ mm(a, b, weights=(1, -1))"):
        with pytest.raises(ValueError, match=r"must act in some row, got mm\(a, b\)"):
            cavity.MixedGLM(formula).fit(table)
    with pytest.raises(ValueError, match="its group must be another column than 't'"):
        cavity.MixedGLM("y ~ rw1(t | t)").fit(table)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("unit", [1e150, 1e-150])
def test_walks_do_not_depend_on_the_unit_of_time(order, unit):
    rng = np.random.default_rng(0)
    t, y = np.cumsum(rng.uniform(0.5, 2.0, 40)), rng.normal(size=40)
    new = t if order == 2 else np.array([t[0] - 1.0, t[3] + 0.2, t[-1] + 2.0])
    settings = {"effect_covariances": {f"rw{order}(t)": {"sd": 0.7}}}
    plain, other = (
        cavity.MixedGLM(f"y ~ rw{order}(t)", cavity.likelihoods.Gaussian(1.0), **settings).fit({"t": s * t, "y": y})
        for s in (1.0, unit)
    )
    assert other.log_evidence == pytest.approx(plain.log_evidence, rel=AT_REST)
    for ours, theirs in zip(other.predict({"t": unit * new}), plain.predict({"t": new}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=AT_REST, atol=INTEGRAL)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("unit", [1e150, 1e-150])
def test_walks_by_group_name_a_unit_of_time_that_has_no_sd(order, unit):
    table = panel()
    with pytest.raises(ValueError, match="column 't' must have a range within 1e-50 and 1e50 .*; got 1.4e.*: change"):
        RandomWalk("t", order, "g").build(table | {"t": unit * table["t"]})
