"""Markov fields: priors against dense algebra, golden values of Scotland, forms of graphs, what is refused."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, special, stats
from support.term_priors import assert_prior
from support.tolerances import AT_REST, EXPANSION, INTEGRAL, PRINTED, ROOT_EPS, SOLVES

import cavity
from cavity.ep.sparse import Pattern
from cavity.models.mixed.effect_layout import EffectLayout, StructuredBlock
from cavity.terms import MarkovField
from cavity.terms.graphs import FIELD_PRIORS
from cavity.terms.saved import describe_term, restore_term

pd = pytest.importorskip("pandas")

SCOTTISH_SCALE = 0.4853177363694  # of the graph, by other code
REGIONS = list("abcdefgh")  # c-a-b-d-a, e-f-g, h alone
PAIRS = [("c", "a"), ("b", "a"), ("b", "d"), ("d", "a"), ("e", "f"), ("f", "g")]
WEIGHTS = np.zeros((8, 8))
for _one, _other in PAIRS:
    WEIGHTS[REGIONS.index(_one), REGIONS.index(_other)] = WEIGHTS[REGIONS.index(_other), REGIONS.index(_one)] = 1.0
COMPONENTS = [range(4), range(4, 7), [7]]
SHARES = {"icar": (), "bym2": (0.3,), "leroux": (0.6,), "car": (0.8,)}
NAMES = {"icar": ("sd",), "bym2": ("sd", "phi"), "leroux": ("sd", "lam"), "car": ("sd", "alpha")}


def field(prior, W=WEIGHTS, regions=REGIONS):
    return MarkovField("region", W, prior, regions)


def covariance_of_f(prior, W, sd, share=None):
    """The covariance of the regions' effects, by dense algebra from the definition."""
    D = np.diag(W.sum(axis=1))
    single = np.diag((W.sum(axis=1) == 0).astype(float))
    if prior == "leroux":
        return sd**2 * np.linalg.inv(share * (D - W + single) + (1 - share) * np.eye(len(W)))
    if prior == "car":
        return sd**2 * np.linalg.inv(D + single - share * W)
    V = np.zeros_like(W)
    for part in COMPONENTS:
        block = np.ix_(part, part)
        V[block] = np.linalg.pinv((D - W)[block]) if len(part) > 1 else 1.0
        V[block] /= np.exp(np.mean(np.log(np.diagonal(V[block]))))
    return sd**2 * (V if prior == "icar" else share * V + (1 - share) * np.eye(len(W)))


@pytest.mark.parametrize("prior", FIELD_PRIORS)
@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_the_prior_is_that_of_dense_algebra(prior, factor):
    """(2) of the contract by eigenvalues on the subspace, its derivatives by differences, and the covariance."""
    term = field(prior, factor * WEIGHTS).build({"region": REGIONS}).prior
    values = (0.7, *SHARES[prior])
    free = np.array([p.free(value) for p, value in zip(term.parameters, values, strict=True)])
    P, _ = assert_prior(term, free)
    V = np.eye(len(P)) if term.constraints is None else np.linalg.svd(term.constraints)[2][len(term.constraints) :].T
    Z = np.tile(np.eye(8), len(P) // 8)
    covariance = Z @ V @ np.linalg.inv(V.T @ P @ V) @ V.T @ Z.T
    np.testing.assert_allclose(covariance, covariance_of_f(prior, factor * WEIGHTS, *values), atol=SOLVES)


@pytest.mark.parametrize("prior", FIELD_PRIORS)
def test_gaussian_evidence_and_predictions_are_those_of_dense_algebra(prior):
    rng = np.random.default_rng(0)
    region = rng.choice(list("abdefh"), 30)  # c and g have no rows
    y = rng.normal(size=30)
    settings = dict(zip(NAMES[prior], (0.7, *SHARES[prior]), strict=True))
    name = f"{prior}(region, W)"
    model = cavity.MixedGLM(
        f"y ~ {name}",
        cavity.likelihoods.Gaussian(0.5),
        prior_variance=9.0,
        effect_covariances={name: settings},
        graphs={"W": (WEIGHTS, REGIONS)},
    )
    posterior = model.fit(pd.DataFrame({"region": region, "y": y}))
    Z = (region[:, None] == np.array(REGIONS)).astype(float)
    K = covariance_of_f(prior, WEIGHTS, *settings.values()) + 9.0
    V = Z @ K @ Z.T + 0.5 * np.eye(30)
    expected = -0.5 * (y @ np.linalg.solve(V, y) + np.linalg.slogdet(V)[1] + 30 * np.log(2 * np.pi))
    assert posterior.log_evidence == pytest.approx(expected, abs=INTEGRAL)
    mean, variance = posterior.predict(pd.DataFrame({"region": REGIONS}))
    gain = np.linalg.solve(V, Z @ K).T
    np.testing.assert_allclose(mean, gain @ y, atol=AT_REST)
    np.testing.assert_allclose(variance, np.diagonal(K - gain @ Z @ K), atol=AT_REST)
    new = posterior.predict(pd.DataFrame({"region": ["zz", "h"]}), levels="new")[1]
    intercept = posterior.covariance[0, 0]
    assert new[0] == pytest.approx(intercept + 0.7**2, rel=SOLVES)


def read_scotland():
    """The counties by their numbers, so that levels are in the order of rows; outdoors in units of 10 %."""
    frame, _ = cavity.data.table("scotland", as_frame=True)
    frame = frame.assign(county=frame.county.astype(int), y=frame.cases, x=frame.outdoors / 10)
    return frame, {i: list(map(int, others.split())) for i, others in zip(frame.county, frame.neighbours, strict=True)}


def fit_scotland(formula, settings, variance=25.0, **options):
    frame, neighbours = read_scotland()
    settings = {f"{name}(county, W)" if name != "county" else name: value for name, value in settings.items()}
    model = cavity.MixedGLM(
        f"y ~ x + {formula}",
        "poisson",
        prior_mean=0.0,
        prior_variance=variance,
        effect_covariances=settings,
        graphs={"W": neighbours},
    )
    return model.fit(frame, exposure="expected", **options), frame


@pytest.mark.parametrize(
    ("formula", "settings", "log_evidence", "mean"),
    [
        ("icar(county, W)", {"icar": 0.4 * SCOTTISH_SCALE}, -166.2790219880, None),
        ("leroux(county, W)", {"leroux": {"lam": 0.7}}, -169.0579885742, (-0.25711757, 0.42525177)),
        ("leroux(county, W)", {"leroux": {"lam": 0.95}}, -166.6797938527, (-0.22383617, 0.38286473)),
        ("car(county, W)", {"car": {"alpha": 0.9}}, -171.1713122166, (-0.34816531, 0.45065818)),
        ("car(county, W)", {"car": {"alpha": 0.999}}, -166.3570115348, (-0.28691496, 0.37552772)),
        ("car(county, W)", {"car": {"alpha": 1 - 1e-6}}, -168.3382770750, (-0.00493320, 0.37474087)),
    ],
)
def test_golden_values_of_scotland(formula, settings, log_evidence, mean):
    """EP by other code in two forms. As alpha goes to 1 "car" goes below "icar", and on: it has a second intercept."""
    for value in settings.values():
        if isinstance(value, dict):
            value["sd"] = np.sqrt(0.4)
    posterior, _ = fit_scotland(formula, settings, tol=1e-11)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=AT_REST)
    if mean is not None:
        np.testing.assert_allclose(posterior.mean, mean, atol=ROOT_EPS)


def test_golden_values_of_scotland_with_independent_effects():
    settings = {"icar": 0.4 * SCOTTISH_SCALE, "county": 0.1}
    posterior, _ = fit_scotland("icar(county, W) + (1 | county)", settings, tol=1e-11)
    assert posterior.log_evidence == pytest.approx(-167.2813676626, abs=AT_REST)
    np.testing.assert_allclose(posterior.mean, [-0.24883435, 0.39866928], atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(np.diagonal(posterior.covariance)), [0.13594643, 0.13616987], atol=ROOT_EPS)
    effects = posterior.effects("icar(county, W)").columns
    np.testing.assert_allclose(effects["mean"][[0, 48, 55]], [0.96404476, -0.62760331, -0.40549617], atol=ROOT_EPS)
    np.testing.assert_allclose(effects["sd"][[0, 48, 55]], [0.28932179, 0.21050913, 0.27301459], atol=ROOT_EPS)
    own = posterior.effects("county").columns
    mean = next(np.asarray(column) for name, column in own.items() if name.endswith("mean") or name == "mean")
    np.testing.assert_allclose(mean[[0, 48, 55]], [0.20465906, -0.21615471, -0.13177212], atol=ROOT_EPS)


@pytest.mark.long
def test_the_evidence_of_scotland_by_importance_sampling():
    """Draws from a wide Student t about the mode of the joint density of all 58 effects, found by Newton's method."""
    posterior, frame = fit_scotland("leroux(county, W)", {"leroux": {"sd": np.sqrt(0.4), "lam": 0.7}})
    _, neighbours = read_scotland()
    S = np.zeros((56, 56))
    for i, others in neighbours.items():
        S[i - 1, np.array(others) - 1] = -1.0
    S -= np.diag(S.sum(axis=1))
    P = np.zeros((58, 58))
    P[:2, :2], P[2:, 2:] = np.eye(2) / 25.0, (0.7 * S + 0.3 * np.eye(56)) / 0.4
    X = np.column_stack([np.ones(56), frame.x, np.eye(56)])
    y, offset, a = frame.y.to_numpy(), np.log(frame.expected.to_numpy()), np.zeros(58)
    for _ in range(50):
        rate = np.exp(X @ a + offset)
        H = P + X.T * rate @ X
        a += np.linalg.solve(H, X.T @ (y - rate) - P @ a)
    freedom, n = 100.0, 40_000
    rng, root = np.random.default_rng(0), np.linalg.cholesky(np.linalg.inv(H))
    stretch = np.sqrt(freedom / rng.chisquare(freedom, n))[:, None]
    draws = rng.standard_normal((n, 58)) * stretch @ root.T
    f = (a + draws) @ X.T + offset
    log_p = np.sum(y * f - np.exp(f) - special.gammaln(y + 1), axis=1)
    log_p += 0.5 * (np.linalg.slogdet(P / (2 * np.pi))[1] - np.einsum("ij,jk,ik->i", a + draws, P, a + draws))
    squares = np.einsum("ij,jk,ik->i", draws, H, draws)
    log_q = special.gammaln(0.5 * (freedom + 58)) - special.gammaln(0.5 * freedom) - 29.0 * np.log(np.pi * freedom)
    log_q += 0.5 * np.linalg.slogdet(H)[1] - 0.5 * (freedom + 58) * np.log1p(squares / freedom)
    weights = np.exp(log_p - log_q - np.max(log_p - log_q))
    error = np.std(weights) / np.mean(weights) / np.sqrt(n)
    assert error < 0.005
    truth = np.log(np.mean(weights)) + np.max(log_p - log_q)
    assert posterior.log_evidence == pytest.approx(truth, abs=4 * error + EXPANSION)  # EP is off by 8e-4 there


def test_golden_values_of_bym2():
    posterior, frame = fit_scotland("bym2(county, W)", {"bym2": {"sd": 0.5, "phi": 0.8}}, 1.0, tol=1e-11)
    assert posterior.log_evidence == pytest.approx(-163.3516679415, abs=AT_REST)
    np.testing.assert_allclose(posterior.mean, [-0.22306530, 0.37590032], atol=ROOT_EPS)
    mean, variance = posterior.predict(frame)
    f = (mean - np.log(frame.expected))[[0, 55]]
    np.testing.assert_allclose(f, [1.51979497, -0.33333282], atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(variance)[[0, 55]], [0.29048634, 0.34169429], atol=ROOT_EPS)
    total = posterior.curve("bym2(county, W)").columns["mean"]
    parts = posterior.effects("bym2(county, W)").columns["mean"].reshape(2, -1)
    np.testing.assert_allclose(total, parts.sum(axis=0), atol=SOLVES)


@pytest.mark.parametrize("prior", ["leroux", "car"])
def test_hyperparameters_are_at_a_maximum(prior, tmp_path):
    """Found by exact gradients: steps in either parameter have less evidence; and the fit comes back from a file."""
    formula = f"{prior}(county, W)"
    best, frame = fit_scotland(formula, {}, 1.0)
    values = best.model.effect_covariances[formula]
    assert best.converged
    for name, step in (("sd", 0.01), (list(values)[1], 0.002)):
        for sign in (-1, 1):
            other, _ = fit_scotland(formula, {prior: values | {name: values[name] + sign * step}}, 1.0)
            assert other.log_evidence < best.log_evidence
    best.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(cavity.load(tmp_path / "fit.npz").predict(frame), best.predict(frame))


def test_a_prior_of_the_share_from_the_graph(tmp_path):
    frame, neighbours = read_scotland()
    priors = {"sd": cavity.priors.PC(1.0), "phi": cavity.priors.PCMixing.of(MarkovField("county", neighbours))}
    model = cavity.MixedGLM("y ~ x + bym2(county, W)", "poisson", graphs={"W": neighbours}, priors=priors)
    posterior = model.fit(frame, exposure="expected")
    assert posterior.converged
    assert 0.5 < posterior.model.effect_covariances["bym2(county, W)"]["phi"] < 0.99
    intervals = posterior.variance_components().columns
    assert 0.0 < intervals["2.5%"][1] < intervals["97.5%"][1] < 1.0
    posterior.save(tmp_path / "fit.npz")
    assert cavity.load(tmp_path / "fit.npz").model.priors["phi"] == priors["phi"]


@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_a_share_at_its_edge():
    """Scotland's overdispersion is all like that of neighbours: "bym2" then is "icar"."""
    both = [fit_scotland(f"{prior}(county, W)", {}, 1.0)[0] for prior in ("bym2", "icar")]
    assert both[0].log_evidence == pytest.approx(both[1].log_evidence, abs=EXPANSION)
    np.testing.assert_allclose(both[0].mean, both[1].mean, atol=EXPANSION)


def test_a_component_without_data_takes_no_part():
    rng = np.random.default_rng(1)
    region, y = rng.choice(list("abcd"), 40), rng.poisson(2.0, 40)
    posteriors = []
    for pairs, regions in ((PAIRS, REGIONS), (PAIRS[:4], REGIONS[:4])):
        term = MarkovField("region", pairs, "icar", regions)
        model = cavity.MixedGLM([term], "poisson", prior_variance=4.0, effect_covariances={term.name: 0.3})
        posteriors.append(model.fit(np.ones((40, 1)), y, groups={"region": region}))
    assert posteriors[0].log_evidence == pytest.approx(posteriors[1].log_evidence, abs=INTEGRAL)
    effects = posteriors[0].effects("icar(region, W)").columns
    np.testing.assert_allclose(effects["mean"][4:], 0.0, atol=SOLVES)
    np.testing.assert_allclose(effects["sd"][4:], np.sqrt(np.diagonal(covariance_of_f("icar", WEIGHTS, 0.3**0.5))[4:]))


def test_levels_of_components_are_effects_of_their_own():
    """Two components with means 10 apart: with (1 | part) they are found, and the field is about the rest."""
    region = np.repeat(REGIONS[:7], 20)
    part = np.array([MarkovField("region", PAIRS).components[item] for item in region])
    y = 10.0 * part + 0.3 * np.random.default_rng(2).normal(size=140)
    frame = pd.DataFrame({"region": region, "part": part, "y": y})
    formula = "y ~ icar(region, W) + (1 | part)"
    arguments = {"icar(region, W)": 0.1, "part": 100.0}
    fit = cavity.MixedGLM(formula, cavity.likelihoods.Gaussian(0.09), effect_covariances=arguments, graphs={"W": PAIRS})
    posterior = fit.fit(frame)
    effects = posterior.effects("icar(region, W)").columns["mean"]
    assert np.max(np.abs(effects)) < 0.3
    mean, _ = posterior.predict(frame)
    assert abs(mean[-1] - mean[0] - 10.0) < 0.3


NEIGHBOURS = {r: [s for s in REGIONS if WEIGHTS[i, REGIONS.index(s)]] for i, r in enumerate(REGIONS)}


@pytest.mark.parametrize(
    ("graph", "regions"),
    [
        (PAIRS, REGIONS),
        (np.array([*PAIRS, ("a", "c")]), list("hgfedcba")),
        (pd.DataFrame(PAIRS), REGIONS),
        (NEIGHBOURS, None),
        (SimpleNamespace(neighbors=NEIGHBOURS), None),
        (WEIGHTS, REGIONS),
        (WEIGHTS[::-1, ::-1].tolist(), REGIONS[::-1]),
        (sparse.coo_array(WEIGHTS), REGIONS),
    ],
)
def test_forms_of_graphs(graph, regions):
    term = MarkovField("region", graph, "icar", regions)
    assert term.regions == tuple(REGIONS)
    np.testing.assert_array_equal(term.graph.toarray(), WEIGHTS)
    assert list(term.components.values()) == [0, 0, 0, 0, 1, 1, 1, 2]
    second = restore_term(describe_term(term))
    np.testing.assert_array_equal(second.graph.toarray(), WEIGHTS)
    built = restore_term(describe_term(second.build({"region": REGIONS})))
    np.testing.assert_array_equal(built.design({"region": list("ha")}).toarray(), np.eye(8)[[7, 0]])


def test_two_regions_and_numbers_as_labels():
    assert MarkovField("g", [[0, 1], [1, 0]], regions=[4, 2]).regions == (2, 4)
    assert MarkovField("g", [(4, 2), (2, 7)]).regions == (2, 4, 7)


def test_polygons_need_libpysal(monkeypatch):
    frame = SimpleNamespace(geometry=None, index=None)
    monkeypatch.setitem(sys.modules, "libpysal", None)
    with pytest.raises(ImportError, match=r"needs libpysal for a table of polygons, .* pip install 'cavity\[areas\]'"):
        MarkovField("region", frame)
    made = SimpleNamespace(
        Queen=SimpleNamespace(from_dataframe=lambda table, use_index: SimpleNamespace(neighbors=NEIGHBOURS))
    )
    monkeypatch.setitem(sys.modules, "libpysal", SimpleNamespace(weights=made))
    monkeypatch.setitem(sys.modules, "libpysal.weights", made)
    assert MarkovField("region", frame).regions == tuple(REGIONS)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The weights matrix is not fully connected")
def test_polygons_and_weights_of_libpysal():
    """Squares of two rows of three, one of which is missing, and one far away: corners touch for queens only."""
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    weights = pytest.importorskip("libpysal.weights")
    corners = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (9, 9)]
    squares = [shapely.box(x, y, x + 1, y + 1) for x, y in corners]
    frame = geopandas.GeoDataFrame({"rate": range(6)}, geometry=squares, index=list("fedcba"))
    x, y = np.abs(np.array(corners)[:, None] - np.array(corners)).transpose(2, 0, 1)[:, ::-1, ::-1]
    queen, rook = (np.maximum(x, y) == 1).astype(float), (x + y == 1).astype(float)
    divided = weights.Rook.from_dataframe(frame, use_index=True, silence_warnings=True)
    divided.transform = "r"
    for graph, expected in ((frame, queen), (divided, rook)):
        term = MarkovField("region", graph)
        assert term.regions == tuple("abcdef")
        np.testing.assert_array_equal(term.graph.toarray(), expected)
    one_way = weights.W({"a": ["b"], "b": []}, silence_warnings=True)
    with pytest.raises(ValueError, match="graph must be symmetric, got a weight of 0 from 'b' to 'a', and 1 back"):
        MarkovField("region", one_way)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PAIRS, "besag"), "prior must be one of"),
        (([("a", "b", "c")],), r"graph must be pairs of labels \(E, 2\).*got list of shape \(1, 3\)"),
        ((WEIGHTS,), "regions must have the labels of the rows of the matrix, 8 of them, got None"),
        ((WEIGHTS, "icar", list("abc")), r"graph must be a matrix \(n, n\) of the weights of 3 regions"),
        ((np.triu(WEIGHTS), "icar", REGIONS), "graph must be symmetric, got a weight of 0 from 'b' to 'a', and 1 back"),
        (({"a": ["b"], "b": []},), "graph must be symmetric, got a weight of 0 from 'b' to 'a', and 1 back"),
        (({"a": ["b"]}, "icar", ["a"]), "graph must have pairs of the regions 'a', got one with 'b'"),
        (([("a", "a")],), "graph must have pairs of different regions, got 'a' with itself"),
        ((-WEIGHTS, "icar", REGIONS), "graph must have positive weights, got -1 of 'b' and 'a'"),
        ((np.eye(3), "icar", list("abc")), "graph must have pairs of different regions, got 'a' with itself"),
        ((PAIRS, "icar", [*REGIONS, "a"]), "regions must have each region once, got 'a' twice"),
        ((PAIRS, "icar", [*REGIONS, None]), "regions must have a text or number for each region, got None in place 8"),
        (([("a", 1)],), "regions must be texts, or numbers, that can be sorted, got 'a', 1"),
    ],
)
def test_graphs_that_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MarkovField("region", *arguments)


def test_regions_that_are_refused():
    with pytest.raises(
        ValueError, match=r"column 'region' must have regions of the graph, got 'z', 'y' in row 1; there is 'a'"
    ):
        field("icar").build({"region": ["a", "z", "y"]})
    with pytest.raises(ValueError, match="must hold a label in every row, got None in row 1"):
        field("icar").build({"region": ["a", None]})
    with pytest.raises(
        ValueError, match=r"'V' must be one of the graphs= of the model, which has 'W'.*like bym2\(region"
    ):
        cavity.MixedGLM("y ~ bym2(region, V)", graphs={"W": PAIRS}).fit(pd.DataFrame({"y": [1.0], "region": ["a"]}))
    for graph in (np.eye(2), (["a", "b"], np.eye(2))):
        with pytest.raises(ValueError, match=r"graphs\['Q'\] must be a pair of a matrix and the labels of its rows"):
            cavity.MixedGLM("y ~ precision(g, Q)", graphs={"Q": graph}).fit({"y": [1.0, 2.0], "g": ["a", "b"]})
    arguments = {"bym2(region, W)": {"phi": 1.5}}
    model = cavity.MixedGLM("y ~ bym2(region, W)", "gaussian", graphs={"W": PAIRS}, effect_covariances=arguments)
    with pytest.raises(ValueError, match=r"effect_covariances\['bym2\(region, W\)'\]\['phi'\] must be"):
        model.fit(pd.DataFrame({"y": [1.0, 2.0], "region": ["a", "b"]}))


@pytest.mark.parametrize("prior", ["icar", "bym2"])
def test_factors_of_large_graphs_are_sparse(prior):
    """A grid of 40 x 40 whose labels are in a random order: entries of the factor beside those of a dense one."""
    n = 1600
    labels = np.random.default_rng(5).permutation(n).reshape(40, 40)
    ends = (labels[1:], labels[:-1]), (labels[:, 1:], labels[:, :-1])
    pairs = np.concatenate([np.stack([one.ravel(), other.ravel()], axis=1) for one, other in ends])
    built = MarkovField("region", pairs, prior).build({"region": np.arange(n)})
    layout = EffectLayout(1, (StructuredBlock(built.size, built.prior),))
    rows = sparse.csr_array(sparse.hstack([np.ones((n, 1)), built.design({"region": np.arange(n)})]))
    pattern = Pattern(rows, *layout.entries(), layout.order())
    assert pattern.cholesky.n_entries < 0.05 * n**2


@pytest.mark.long
def test_scotland_on_a_grid_of_fits_at_given_hyperparameters():
    """The same integral as a sum over 28 x 24 fits, in log sd and logit phi, whose densities are written out here."""
    log_sd, logit = np.linspace(np.log(0.1), np.log(1.6), 28), np.linspace(-9.0, 18.0, 24)
    points = np.array([(np.exp(a), special.expit(b)) for a in log_sd for b in logit])
    fits = [fit_scotland("bym2(county, W)", {"bym2": {"sd": s, "phi": phi}}, 1.0)[0] for s, phi in points]
    sd, phi = points.T
    prior = stats.halfnorm.logpdf(sd) + np.log(sd) + 0.5 * (np.log(phi) + np.log1p(-phi)) - np.log(np.pi)
    density = np.array([fit.log_evidence for fit in fits]) + prior
    total = special.logsumexp(density)
    weights = np.exp(density - total)
    area = (log_sd[1] - log_sd[0]) * (logit[1] - logit[0])
    assert total + np.log(area) == pytest.approx(-165.8266, abs=PRINTED)  # grids of other ranges and steps agree
    means, variances = np.array([[fit.mean, fit.sd**2] for fit in fits]).swapaxes(0, 1)
    mean = weights @ means
    np.testing.assert_allclose(mean, [-0.2136, 0.3624], atol=PRINTED)
    sds = np.sqrt(weights @ (variances + (means - mean) ** 2))
    np.testing.assert_allclose(sds, [0.1249, 0.1308], atol=PRINTED)
    mean = weights @ points
    np.testing.assert_allclose(mean, [0.5170, 0.8798], atol=PRINTED)
    np.testing.assert_allclose(np.sqrt(weights @ (points - mean) ** 2), [0.0864, 0.1399], atol=PRINTED)


@pytest.mark.long
def test_scotland_integrated_over_hyperparameters():
    """A grid of 28 x 24 points over the same priors, and the draws that Stan's documentation has."""
    priors = {"sd": cavity.priors.HalfNormal(1.0), "phi": cavity.priors.Beta(0.5, 0.5)}
    frame, neighbours = read_scotland()
    model = cavity.MixedGLM(
        "cases ~ x + bym2(county, W)",
        "poisson",
        graphs={"W": neighbours},
        priors=priors,
        prior_variance=1.0,
        centre=[0.0, 0.0],
        integrate="grid",
    )
    posterior = model.fit(frame, exposure="expected")
    corrected = posterior.log_evidence + posterior.evidence_correction
    assert corrected == pytest.approx(-165.8264, abs=0.002)
    np.testing.assert_allclose(posterior.mean, [-0.2136, 0.3624], atol=EXPANSION)
    np.testing.assert_allclose(posterior.sd, [0.1249, 0.1308], rtol=0.002)
    table = posterior.integration.table()
    np.testing.assert_allclose(table.columns["mean"], [0.5170, 0.8798], atol=EXPANSION)
    np.testing.assert_allclose(table.columns["sd"], [0.0864, 0.1399], rtol=0.01)
    np.testing.assert_allclose(table.columns["2.5%"], [0.365, 0.489], atol=0.01)
    np.testing.assert_allclose(table.columns["50%"], [0.510, 0.932], atol=0.01)
    np.testing.assert_allclose(table.columns["97.5%"], [0.718, 0.999], atol=0.02)
    stan = [-0.217, 0.365]  # of BYM2 in Stan's documentation
    np.testing.assert_allclose(posterior.mean, stan, atol=0.01)
    np.testing.assert_allclose(posterior.sd, [0.129, 0.134], rtol=0.05)
