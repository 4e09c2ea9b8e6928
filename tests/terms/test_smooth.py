"""Smooth terms: the prior against dense algebra, published and golden values, rows, invariances, what is refused."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import interpolate, stats
from support.term_priors import assert_prior, assert_restored, dense_precision
from support.tolerances import AT_REST, EARLY, EXPANSION, OPTIMUM, PRINTED, ROUNDING, SOLVES

import cavity
from cavity.terms import Smooth, StructuredTerm, splines
from cavity.terms.contract import BuiltTerm

pd = pytest.importorskip("pandas")

# MASS::mcycle (B. W. Silverman, JRSS B 47, 1985): times in ms and head acceleration in g
MCYCLE = """
2.4 2.6 3.2 3.6 4 6.2 6.6 6.8 7.8 8.2 8.8 8.8 9.6 10 10.2 10.6 11 11.4 13.2 13.6 13.8 14.6 14.6 14.6 14.6 14.6 14.6
14.8 15.4 15.4 15.4 15.4 15.6 15.6 15.8 15.8 16 16 16.2 16.2 16.2 16.4 16.4 16.6 16.8 16.8 16.8 17.6 17.6 17.6 17.6
17.8 17.8 18.6 18.6 19.2 19.4 19.4 19.6 20.2 20.4 21.2 21.4 21.8 22 23.2 23.4 24 24.2 24.2 24.6 25 25 25.4 25.4 25.6
26 26.2 26.2 26.4 27 27.2 27.2 27.2 27.6 28.2 28.4 28.4 28.6 29.4 30.2 31 31.2 32 32 32.8 33.4 33.8 34.4 34.8 35.2
35.2 35.4 35.6 35.6 36.2 36.2 38 38 39.2 39.4 40 40.4 41.6 41.6 42.4 42.8 42.8 43 44 44.4 45 46.6 47.8 47.8 48.8
50.6 52 53.2 55 55 55.4 57.6
/
0 -1.3 -2.7 0 -2.7 -2.7 -2.7 -1.3 -2.7 -2.7 -1.3 -2.7 -2.7 -2.7 -5.4 -2.7 -5.4 0 -2.7 -2.7 0 -13.3 -5.4 -5.4 -9.3
-16 -22.8 -2.7 -22.8 -32.1 -53.5 -54.9 -40.2 -21.5 -21.5 -50.8 -42.9 -26.8 -21.5 -50.8 -61.7 -5.4 -80.4 -59 -71
-91.1 -77.7 -37.5 -85.6 -123.1 -101.9 -99.1 -104.4 -112.5 -50.8 -123.1 -85.6 -72.3 -127.2 -123.1 -117.9 -134 -101.9
-108.4 -123.1 -123.1 -128.5 -112.5 -95.1 -81.8 -53.5 -64.4 -57.6 -72.3 -44.3 -26.8 -5.4 -107.1 -21.5 -65.6 -16 -45.6
-24.2 9.5 4 12 -21.5 37.5 46.9 -17.4 36.2 75 8.1 54.9 48.2 46.9 16 45.6 1.3 75 -16 -54.9 69.6 34.8 32.1 -37.5 22.8
46.9 10.7 5.4 -1.3 -21.5 -13.3 30.8 -10.7 29.4 0 -10.7 14.7 -1.3 0 10.7 10.7 -26.8 -14.7 -13.3 0 10.7 -14.7 -2.7
10.7 -2.7 10.7
"""
TIMES, ACCEL = (np.array(part.split(), float) for part in MCYCLE.split("/"))
KNOTS = np.linspace(2.4, 57.6, 21)
UNEVEN = np.quantile(np.unique(TIMES), np.linspace(0, 1, 16))
ONES = np.ones((len(TIMES), 1))


def table_of(rng, n=60):
    x = rng.uniform(-3.0, 9.0, n)
    return {"x": x, "f": rng.choice(list("abc"), n), "z": rng.normal(size=n), "g": rng.choice(list("uvwxyz"), n)}


TERMS = {
    "s(x)": Smooth("x", k=9),
    "s(x), uneven": Smooth("x", knots=[-3.5, -1.0, 0.0, 0.5, 4.0, 9.5]),
    "s(x, by=f)": Smooth("x", by="f", k=8),
    "s(x, by=z)": Smooth("x", by="z", k=8),
    "s(x | g)": Smooth("x", group="g", k=7),
    "s(x), a cycle": Smooth("x", period=5.0, k=9),
    "s(x), factor and cycle": Smooth("x", by="f", period=5.0, k=6),
}


@pytest.mark.parametrize("name", TERMS)
def test_the_normalising_constant_is_that_of_dense_algebra(name):
    """(2) of the contract against eigenvalues on the subspace, and its derivatives against differences."""
    built = TERMS[name].build(table_of(np.random.default_rng(0)))
    prior = built.prior
    free = np.linspace(-0.4, 0.7, len(prior.parameters))
    assert_prior(prior, free)


@pytest.mark.parametrize(
    ("knots", "tolerance"),
    [(np.linspace(0, 1, 6), 0.02), (np.linspace(0, 1, 30), EXPANSION), (np.array([0, 0.02, 0.3, 0.5, 0.9, 1]), 0.05)],
)
def test_the_prior_variance_averages_to_the_square_of_sd(knots, tolerance):
    """Over the range, of the function without its line: the meaning of sd, whatever the knots.

    White noise between knots is not resolved by few of them, so that the average grows to 1 as they get dense.
    """
    built = Smooth("x", knots=knots).build({"x": np.linspace(0, 1, 50)})
    P, _ = dense_precision(built.prior, [0.0])
    A = built.prior.constraints
    V = np.linalg.svd(A)[2][2:].T
    covariance = V @ np.linalg.inv(V.T @ P @ V) @ V.T
    average = float(np.sum(covariance * splines.gram(built.knots)))
    assert 1.0 - tolerance < average < 1.0


def test_golden_values_of_mcycle():
    """log|S|* in raw units; REML by mgcv 1.8-41, gam(accel ~ s(times, bs = "bs", m = c(3, 2))) with the same knots."""
    built = Smooth("x", knots=KNOTS).build({"x": TIMES})
    S, _ = dense_precision(built.prior, [0.5 * np.log(built.prior.scales[0])])
    raw = np.linalg.eigvalsh(S)[2:] / (KNOTS[-1] - KNOTS[0]) ** 3
    assert np.sum(np.log(raw)) == pytest.approx(-65.3359867087, abs=AT_REST)
    posterior = cavity.MixedGLM([Smooth("x", knots=KNOTS)], "gaussian", prior_variance=1e12).fit(
        ONES, ACCEL, groups={"x": TIMES}
    )
    values = dict(zip(posterior.hyperparameters.names, posterior.hyperparameters.values, strict=True))
    v = values["sd(s(x))"] ** 2 * 420.0 / (KNOTS[-1] - KNOTS[0]) ** 3
    assert values["noise_variance"] == pytest.approx(513.410102, rel=OPTIMUM)
    assert values["noise_variance"] / v == pytest.approx(10.449652, rel=5 * OPTIMUM)
    result = [0, 39, 79, 132]
    mean, variance = posterior.predict(ONES[result], groups={"x": TIMES[result]})
    np.testing.assert_allclose(mean, [-1.073997, -49.500185, -35.680620, 8.724870], rtol=OPTIMUM)
    np.testing.assert_allclose(np.sqrt(variance), [12.747282, 4.409816, 5.445663, 18.787558], rtol=OPTIMUM)
    flat = posterior.log_evidence + np.log(2.0 * np.pi * 1e12) - np.log(KNOTS[-1] - KNOTS[0])
    assert flat == pytest.approx(-620.725124, rel=AT_REST)


class BuiltWithConstraints(BuiltTerm):
    """A curve with other constraints than `Smooth`, and the line in the unit of the column."""

    def __init__(self, smooth, A):
        self.smooth, self.name, self.variables, self.size = smooth, "curve", ("x",), smooth.size
        S = np.zeros((smooth.size, smooth.size))
        prior = smooth.prior
        S[prior.rows, prior.columns] = S[prior.columns, prior.rows] = prior.structures[0]
        constant = splines.log_determinants(S, splines.lines(smooth.knots), A)[1]
        self.prior = replace(prior, constraints=A, log_determinant=constant)

    def design(self, table, levels="known"):
        return self.smooth.design(table)

    def fixed_columns(self, table):
        return {"x": np.asarray(table["x"])}


@dataclass(frozen=True)
class WithConstraints(StructuredTerm):
    """The term; `make` returns A from the built smooth."""

    make: object
    name = "curve"
    variables = ("x",)

    def build(self, table):
        smooth = Smooth("x", knots=KNOTS).build(table)
        return BuiltWithConstraints(smooth, self.make(smooth))


def lines_in_ms(smooth):
    """The coefficients (k, 2) of 1 and of the time."""
    return np.column_stack([np.ones(smooth.k), 30.0 + 55.2 * splines.lines(smooth.knots)[:, 1]])


CONSTRAINTS = {
    "coefficients": lambda smooth: lines_in_ms(smooth).T,
    "rows": lambda smooth: np.stack([np.ones(len(TIMES)), TIMES]) @ smooth.design({"x": TIMES}),
    "range": lambda smooth: splines.moments(smooth.knots),
}


@pytest.mark.parametrize("v", [10.0, 100.0])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_evidences_of_mcycle_with_other_constraints(name, v):
    """Columns 1 and time ~ N(0, 1e4), noise variance 500: dense algebra on the subspace, and golden values."""
    golden = {
        ("coefficients", 10.0): -640.95539950,
        ("coefficients", 100.0): -633.06431341,
        ("rows", 10.0): -641.05624588,
        ("rows", 100.0): -633.16008805,
    }
    settings = {"prior_variance": 1e4, "effect_covariances": {"curve": {"sd": (v * 55.2**3 / 420.0) ** 0.5}}}
    model = cavity.MixedGLM([WithConstraints(CONSTRAINTS[name])], cavity.likelihoods.Gaussian(500.0), **settings)
    posterior = model.fit(ONES, ACCEL, groups={"x": TIMES})
    built = WithConstraints(CONSTRAINTS[name]).build({"x": TIMES})
    V = np.linalg.svd(built.prior.constraints)[2][2:].T
    S = dense_precision(built.prior, [0.5 * np.log(v * 55.2**3 / 420.0)])[0]
    B, X = built.design({"x": TIMES}) @ V, np.column_stack([ONES, TIMES])
    covariance = B @ np.linalg.solve(V.T @ S @ V, B.T) + 1e4 * X @ X.T + 500.0 * np.eye(len(TIMES))
    expected = stats.multivariate_normal(cov=covariance).logpdf(ACCEL)
    assert posterior.log_evidence == pytest.approx(expected, rel=AT_REST)
    assert posterior.log_evidence == pytest.approx(golden.get((name, v), expected), rel=AT_REST)
    if (name, v) == ("coefficients", 100.0):
        mean, variance = posterior.predict(ONES[[0, 39, 79, 132]], groups={"x": TIMES[[0, 39, 79, 132]]})
        np.testing.assert_allclose(mean, [-0.63256109, -49.66674820, -35.22219439, 8.98686574], atol=OPTIMUM)
        np.testing.assert_allclose(np.sqrt(variance), [13.22270857, 4.59804735, 5.65239683, 19.66846355], rtol=EARLY)
        np.testing.assert_allclose(posterior.mean, [-27.63459746, 0.54119029], rtol=EARLY)


def test_the_evidence_of_mcycle_with_a_flat_line():
    """v = 100, noise variance 500: less the log density of the fixed effects, and with time in ms."""
    length = KNOTS[-1] - KNOTS[0]
    settings = {"prior_variance": 1e12, "effect_covariances": {"s(x)": {"sd": (100.0 * length**3 / 420.0) ** 0.5}}}
    model = cavity.MixedGLM([Smooth("x", knots=KNOTS)], cavity.likelihoods.Gaussian(500.0), **settings)
    flat = model.fit(ONES, ACCEL, groups={"x": TIMES}).log_evidence + np.log(2.0 * np.pi * 1e12) - np.log(length)
    assert flat == pytest.approx(-621.97068293, rel=AT_REST)


def test_uneven_knots_of_mcycle():
    """REML by mgcv, whose end knots are at other distances: the cubic splines on the range are the same."""
    posterior = cavity.MixedGLM([Smooth("x", knots=UNEVEN)], "gaussian", prior_variance=1e12).fit(
        ONES, ACCEL, groups={"x": TIMES}
    )
    assert len(posterior._reader.structured[0].breaks) == 16
    mean, _ = posterior.predict(ONES[[0, 39, 79, 132]], groups={"x": TIMES[[0, 39, 79, 132]]})
    np.testing.assert_allclose(mean, [-1.074292, -49.224858, -35.199586, 8.814974], rtol=OPTIMUM)
    sd, noise = posterior.hyperparameters.values
    length = UNEVEN[-1] - UNEVEN[0]
    assert noise == pytest.approx(508.58656, rel=OPTIMUM)
    assert noise * length**3 / (420.0 * sd**2) == pytest.approx(9.668424, rel=5 * OPTIMUM)
    flat = posterior.log_evidence + np.log(2.0 * np.pi * 1e12) - np.log(length)
    assert flat == pytest.approx(-620.047121, rel=AT_REST)


@pytest.mark.parametrize("name", TERMS)
def test_a_file_gives_the_same_rows(name):
    assert_restored(TERMS[name], table_of(np.random.default_rng(1)))


def test_rows_are_those_of_scipy():
    """Values and derivatives; a line beyond the range."""
    knots = splines.extend_knots(np.array([0.0, 0.3, 0.35, 0.8, 1.0]))
    b = np.random.default_rng(2).normal(size=len(knots) - 4)
    curve = interpolate.BSpline(knots, b, 3)
    t = np.linspace(0.0, 1.0, 41)
    for derivative in range(3):
        np.testing.assert_allclose(splines.evaluate(t, knots, derivative) @ b, curve(t, derivative), atol=SOLVES)
    rows, beyond = splines.evaluate_beyond(np.array([-0.5, 1.25]), knots)
    np.testing.assert_allclose(rows @ b, [curve(0) - 0.5 * curve(0, 1), curve(1) + 0.25 * curve(1, 1)], atol=SOLVES)
    np.testing.assert_allclose(beyond, [0.5, 0.25])


def test_periodic_rows():
    """They sum to 1, and values and two derivatives are the same at both ends of the cycle."""
    for derivative, total in ((0, 1.0), (1, 0.0), (2, 0.0)):
        ends = [splines.evaluate_periodic(np.array([t]), 7, derivative).toarray() for t in (1e-12, 1.0 - 1e-12)]
        np.testing.assert_allclose(*ends, atol=AT_REST * 100)
        rows = splines.evaluate_periodic(np.linspace(0, 1, 30), 7, derivative)
        np.testing.assert_allclose(rows.sum(axis=1), total, atol=SOLVES)


def test_lines_have_no_roughness():
    knots = splines.extend_knots(np.array([0.0, 0.1, 0.35, 0.8, 1.0]))
    np.testing.assert_allclose(splines.roughness(knots) @ splines.lines(knots), 0.0, atol=AT_REST)
    t = np.linspace(0, 1, 9)
    np.testing.assert_allclose(splines.evaluate(t, knots) @ splines.lines(knots)[:, 1], t - 0.5, atol=ROUNDING)


def fit(frame, formula="y ~ s(x, k=12) + s(u, k=8)", **settings):
    return cavity.GLM(formula, "gaussian", **settings).fit(frame)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    x, u = rng.uniform(0, 10, 300), rng.normal(size=300)
    return pd.DataFrame({"x": x, "u": u, "y": np.sin(x) + 0.3 * u**2 + 0.3 * rng.normal(size=300)})


def test_units_and_order_do_not_matter(frame):
    base = fit(frame)
    other = frame.assign(x=1000.0 * frame.x - 7.0)[::-1]
    moved = fit(other)
    assert moved.log_evidence == pytest.approx(base.log_evidence, abs=OPTIMUM)
    np.testing.assert_allclose(moved.hyperparameters.values, base.hyperparameters.values, rtol=PRINTED)
    np.testing.assert_allclose(moved.predict(other)[0][::-1], base.predict(frame)[0], atol=PRINTED)


def test_more_knots_change_little(frame):
    few, many = (fit(frame, f"y ~ s(x, k={k})") for k in (20, 60))
    assert few.log_evidence == pytest.approx(many.log_evidence, abs=0.1)
    np.testing.assert_allclose(few.predict(frame)[0], many.predict(frame)[0], atol=0.05)


def test_terms_that_share_the_constant(frame):
    """A cycle and a smooth have the intercept in common: pins make the precision regular, and change nothing."""
    posterior = fit(frame, "y ~ s(x, period=6.28, k=8) + s(u, k=8)")
    A, effects = posterior._effects.constraints, posterior._effects
    assert posterior.converged
    assert len(A) == 3
    covariance = effects.covariance(np.arange(len(effects.mean)))
    np.testing.assert_allclose(A @ covariance, 0.0, atol=AT_REST)
    draws = effects.sample(20000, np.random.default_rng(0))
    np.testing.assert_allclose(np.var(draws, axis=0), effects.variance, rtol=0.06)


@pytest.mark.parametrize("by", ["s(x, by=f)", "s(x, by=z)", "s(x | g)"])
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_by_and_groups_predict_and_reload(tmp_path, by):
    rng = np.random.default_rng(8)
    table = pd.DataFrame(table_of(rng, 200))
    phase = table.f.map(ord) + table.g.map(ord)
    table["y"] = np.sin(table.x + phase) + table.z * np.cos(table.x) + 0.3 * rng.normal(size=200)
    posterior = cavity.GLM(f"y ~ {by}", "gaussian").fit(table)
    posterior.save(tmp_path / "fit.npz")
    restored = cavity.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(restored.predict(table), posterior.predict(table))
    if by == "s(x, by=f)":
        assert {"f[b]", "s(x, by=f) slope[c]"} < set(posterior.coefficient_names)


def test_beyond_the_range_bands_grow(frame):
    """As those of the integral of white noise: v h^3/3 on top of the line's own."""
    posterior = fit(frame, "y ~ s(x, k=12)", prior_variance=100.0)
    beyond = pd.DataFrame({"x": frame.x.max() + np.array([0.0, 1.0, 2.0])})
    _, variance = posterior.predict(beyond)
    length = frame.x.max() - frame.x.min()
    v = posterior.hyperparameters.values[0] ** 2 * 420.0 / length**3
    rows, truth, extra = posterior._linear_rows(beyond)
    np.testing.assert_allclose(extra, v * np.array([0.0, 1.0, 8.0]) / 3.0, rtol=AT_REST)
    assert np.all(np.diff(variance) > 0)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (
            "y ~ s(x, k=301)",
            r"k of s\(x\) must be from 4 to 300, the number of different values of column 'x', got 301",
        ),
        ("y ~ s(x, k=3)", "k must be at least 4"),
        ("y ~ s(c)", r"column 'c' must have different values for s\(c\), got 1 in every row"),
        ("y ~ s(x, period=-1)", "period must be"),
        ("y ~ s(x, knots=(3, 2))", "knots must be at least two numbers that increase"),
        ("y ~ s(x, bs='cr')", "options are by, extrapolate, k, knots, period, got 'bs'"),
        ("y ~ s(x, u)", "it has 1 argument before its options, got 2"),
        ("y ~ s(log(x))", "make a column of an expression"),
        ("y ~ s(x) * u", "must stand alone|not understood"),
        ("y ~ s(x, by=f | g)", "not understood"),
        ("y ~ s(x) + s(x)", r"must have each term once, got s\(x\) twice"),
        ("y ~ s(missing)", "'missing' missing"),
    ],
)
def test_what_is_refused(frame, formula, message):
    with pytest.raises(ValueError, match=message):
        fit(frame.assign(c=1.0, f="a", g="b"), formula)


def test_levels_and_ranges_of_new_rows(frame):
    table = frame.assign(f=np.where(np.arange(300) % 2, "a", "b"))
    posterior = fit(table, "y ~ f + s(x, by=f, k=8)")
    with pytest.raises(ValueError, match="categories of the fit, got 'c'"):
        posterior.predict(table[:3].assign(f="c"))
    with pytest.raises(ValueError, match="must be within the range of the fit.*extrapolate=True"):
        posterior.predict(table[:3].assign(x=1e3))


def test_columns_of_very_uneven_values():
    """Knots at quantiles are no nearer than a twentieth of equal ones, so that searches keep their digits."""
    rng = np.random.default_rng(0)
    x = np.exp(2.5 * rng.normal(size=300))
    y = (rng.normal(size=300) + np.sin(np.log(x)) > 0).astype(float)
    built = Smooth("x").build({"x": x})
    assert np.min(np.diff(built.breaks)) > 0.9 * 0.05 / len(built.breaks)
    assert built.breaks[[0, -1]].tolist() == [0.0, 1.0]
    posterior = cavity.MixedGLM([Smooth("x")], "logit").fit(np.ones((300, 1)), y, groups={"x": x})
    assert posterior.converged
