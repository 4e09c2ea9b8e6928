"""Smooths of two variables: the prior against dense algebra and integrals, fits, invariances, what is refused."""

import numpy as np
import pytest
from scipy import interpolate, linalg
from support.term_priors import assert_prior, assert_restored, dense_precision
from support.tolerances import AT_REST, INTEGRAL, OPTIMUM, PRINTED, ROOT_EPS, SLOPES, SOLVES

import cavity
from cavity.terms import TensorSmooth

pd = pytest.importorskip("pandas")

TERMS = {
    "te": TensorSmooth(("x", "z"), k=(7, 5)),
    "te, wider": TensorSmooth(("x", "z"), k=6, ranges=((-10, 10), (0, 5000))),
    "ti": TensorSmooth(("x", "z"), k=(5, 8), interaction=True),
    "te, a cycle": TensorSmooth(("x", "z"), k=(6, 8), period=(None, 7.0)),
    "te, two cycles": TensorSmooth(("x", "z"), k=(5, 6), period=(4.0, 7.0)),
    "ti, a cycle": TensorSmooth(("x", "z"), k=(7, 6), interaction=True, period=(4.0, None), ranges=(None, (0, 999))),
}
SDS = {"sd(x)": 0.7, "sd(z)": 0.4}


def table_of(n=80):
    """z of uneven values, so that its knots are at quantiles."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-3.0, 9.0, n), np.exp(rng.uniform(-4.0, 6.0, n))
    return {"x": x, "z": z, "y": np.sin(x) * np.log(z) / 5.0 + 0.3 * rng.normal(size=n)}


def integrate_products(knots, basis, derivative):
    """Integrals over [0, 1] of products of splines or their derivatives, by 20 points an interval."""
    curve = interpolate.BSpline(knots, basis, 3)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    ends = knots[3:-3]
    half = 0.5 * np.diff(ends)[:, None]
    t = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * nodes).ravel()
    values = curve(t, derivative)
    return values.T @ ((half * weights).ravel()[:, None] * values)


def expand(built, table):
    """Eigenfunctions of either variable at rows (N, k), eigenvalues (k,), and variances where sd is 1.

    B-splines over the ends of a cycle are the same: their coefficients are equal.
    """
    out = []
    for column, (low, high), breaks, is_cycle in zip(
        built.columns, built.ranges, built.breaks, built.cycles, strict=True
    ):
        steps = np.arange(1, 4)
        knots = np.concatenate(
            [breaks[0] - (breaks[1] - breaks[0]) * steps[::-1], breaks, breaks[-1] + (breaks[-1] - breaks[-2]) * steps]
        )
        n = len(knots) - 4
        basis = np.eye(n)[:, : n - 3] + np.eye(n, n - 3, -(n - 3)) if is_cycle else np.eye(n)
        d, vectors = linalg.eigh(integrate_products(knots, basis, 2), integrate_products(knots, basis, 0))
        curve, t = interpolate.BSpline(knots, basis @ vectors, 3), (table[column] - low) / (high - low)
        d[: 1 if is_cycle else 2] = 0.0
        out.append((d, curve(t % 1.0 if is_cycle else t), 1.0 / 720.0 if is_cycle else 1.0 / 420.0))
    return out


@pytest.mark.parametrize("name", TERMS)
def test_the_normalising_constant_is_that_of_dense_algebra(name):
    """(2) of the contract against eigenvalues on the subspace, and its derivatives against differences."""
    prior = TERMS[name].build(table_of()).prior
    for free in ([-0.4, 0.7], [1.5, -2.0]):
        assert_prior(prior, np.array(free))


@pytest.mark.parametrize(("name", "n_lines"), [("te", 3), ("te, a cycle", 1), ("te, two cycles", 0)])
def test_a_fit_is_that_of_its_kronecker_twin(name, n_lines):
    """Evidence and predictions of Gaussian noise against the covariance of rows, by products of eigenfunctions."""
    table, term = table_of(), TERMS[name]
    built = term.build(table)
    (d, first, x_unit), (e, second, z_unit) = expand(built, table)
    precision = x_unit * d[:, None] / SDS["sd(x)"] ** 2 + z_unit * e / SDS["sd(z)"] ** 2
    variances = np.where(precision > 0.0, 1.0 / np.where(precision > 0.0, precision, 1.0), 0.0)
    values = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    t, u = ((table[c] - low) / (high - low) - 0.5 for c, (low, high) in zip("xz", built.ranges, strict=True))
    fixed = np.stack([np.ones_like(t), t, u, t * u][: 1 + n_lines], axis=1)
    effects = (values * variances.ravel()) @ values.T
    covariance = effects + 4.0 * fixed @ fixed.T
    total, y = covariance + 0.09 * np.eye(len(t)), table["y"]
    model = cavity.MixedGLM(
        [term], cavity.likelihoods.Gaussian(0.09), prior_variance=4.0, effect_covariances={term.name: SDS}
    )
    posterior = model.fit(np.ones((len(t), 1)), y, groups=table)
    expected = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(total)[1] + len(y) * np.log(2 * np.pi))
    assert posterior.log_evidence == pytest.approx(expected, abs=INTEGRAL)
    mean, variance = posterior.predict(np.ones((len(t), 1)), groups=table)
    np.testing.assert_allclose(mean, covariance @ np.linalg.solve(total, y), atol=SOLVES)
    left = covariance - covariance @ np.linalg.solve(total, covariance)
    np.testing.assert_allclose(variance, np.diagonal(left), atol=SOLVES)


def find_prior_moments(built, free):
    """The covariance of the effects under the prior, and points for integrals over [0, 1]."""
    P, _ = dense_precision(built.prior, free)
    A = built.prior.constraints
    V = np.linalg.svd(A)[2][len(A) :].T
    side = np.linspace(0.0, 1.0, 801)[:-1] + 1.0 / 1600.0  # midpoints
    return V @ np.linalg.inv(V.T @ P @ V) @ V.T, side


def test_the_meaning_of_the_sds():
    """Of the mean over the other variable, the variance averages to sd^2; that of all is 4.96 times as large."""
    built = TensorSmooth(("x", "z"), k=16, ranges=((0, 1), (0, 1))).build({c: np.linspace(0, 1, 50) for c in "xz"})
    covariance, side = find_prior_moments(built, np.log([0.5, 2.0]))
    x, z = (margin.evaluate(side).toarray() for margin in built.margins)
    over_z, over_x = np.kron(x, z.mean(axis=0)), np.kron(x.mean(axis=0), z)
    for rows, sd in ((over_z, 0.5), (over_x, 2.0)):
        assert np.mean(np.sum((rows @ covariance) * rows, axis=1)) == pytest.approx(sd**2, rel=0.01)
    covariance, _ = find_prior_moments(built, [0.0, 0.0])
    gram = np.kron(x.T @ x, z.T @ z) / len(side) ** 2
    assert np.sum(covariance * gram) == pytest.approx(4.96, rel=0.01)


def test_the_sd_of_a_cycle_is_that_of_a_periodic_smooth():
    """The mean over x varies about its own mean by sd(z)."""
    term = TensorSmooth(("x", "z"), k=16, ranges=((0, 1), None), period=(None, 1.0))
    built = term.build({c: np.linspace(0, 1, 50) for c in "xz"})
    covariance, side = find_prior_moments(built, np.log([0.5, 2.0]))
    x, z = (margin.evaluate(side).toarray() for margin in built.margins)
    for rows, sd in ((np.kron(x, z.mean(axis=0)), 0.5), (np.kron(x.mean(axis=0), z), 2.0)):
        assert np.mean(np.sum((rows @ covariance) * rows, axis=1)) == pytest.approx(sd**2, rel=0.01)


def test_interactions_have_no_main_effects():
    """The mean over either variable is zero everywhere, and so are the constraints of the fixed effects."""
    built = TERMS["ti"].build(table_of())
    covariance, side = find_prior_moments(built, [0.0, 0.0])
    x, z = (margin.evaluate(side).toarray() for margin in built.margins)
    for mean in (x.mean(axis=0), z.mean(axis=0)):
        np.testing.assert_allclose(mean, 0.0, atol=PRINTED * np.abs(x).max())
    assert list(built.fixed_columns(table_of())) == ["ti(x, z) slope[x:z]"]
    assert built.size == 4 * 7
    assert np.linalg.matrix_rank(covariance) == built.size - 1


def test_null_spaces_are_lines_and_their_product():
    table = table_of()
    for name in TERMS:
        built = TERMS[name].build(table)
        x, z = built.margins
        N = np.kron(x.N, z.N)
        P, _ = dense_precision(built.prior, [0.3, -0.2])
        np.testing.assert_allclose(P @ N, 0.0, atol=SOLVES * np.abs(P).max())
        values = built.design(table) @ N
        columns = built.fixed_columns(table)
        assert len(columns) == N.shape[1] - (not built.interaction)
        if not columns:
            continue
        fixed = np.stack(list(columns.values()), axis=1)
        rest = fixed - values @ np.linalg.lstsq(values, fixed, rcond=None)[0]
        np.testing.assert_allclose(rest, 0.0, atol=SOLVES)


def test_units_and_order_of_variables_do_not_matter():
    frame = pd.DataFrame(table_of())
    base = cavity.GLM("y ~ te(x, z, k=(7, 5))").fit(frame)
    other = frame.assign(x=5.0 - 1000.0 * frame.x)[::-1]
    moved = cavity.GLM("y ~ te(z, x, k=(5, 7))").fit(other)
    assert moved.log_evidence == pytest.approx(base.log_evidence, abs=OPTIMUM)
    np.testing.assert_allclose(moved.predict(other)[0][::-1], base.predict(frame)[0], atol=PRINTED)
    second, first, noise = moved.hyperparameters.values
    np.testing.assert_allclose((first, second, noise), base.hyperparameters.values, rtol=PRINTED)


@pytest.fixture(scope="module")
def weekly():
    """A fit to days, x of which is a cycle in the second variable."""
    rng = np.random.default_rng(2)
    x, day = rng.uniform(0.0, 10.0, 300), rng.integers(0, 70, 300).astype(float)
    y = np.sin(x) * np.cos(2.0 * np.pi * day / 7.0) + 0.3 * rng.normal(size=300)
    return cavity.GLM("y ~ te(x, day, k=(9, 6), period=(None, 7))").fit({"x": x, "day": day, "y": y})


def test_both_ends_of_a_cycle_are_equal(weekly):
    """The function, its band and its derivatives; over several cycles as over the first."""
    assert weekly.coefficient_names == ("intercept", "te(x, day) slope[x]")
    for derivative in (False, "x", "day"):
        tables = [
            weekly.curve("te(x, day)", {"x": [1.0, 6.0], "day": day}, derivative=derivative).columns
            for day in (0.0, 7.0, -21.0)
        ]
        for other in tables[1:]:
            for column in ("mean", "sd"):
                np.testing.assert_allclose(other[column], tables[0][column], atol=SOLVES)


@pytest.mark.parametrize("name", TERMS)
def test_rows_of_derivatives_are_limits_of_differences(name):
    """In each variable, of the rows of effects and of the lines."""
    built, points = TERMS[name].build(table_of()), {"x": np.linspace(-2.5, 7.5, 9), "z": np.linspace(8.3, 303.1, 9)}
    for d, column in enumerate("xz"):
        rows, fixed = built.derivative_design(points, column)
        step = 1e-5 * (built.ranges[d][1] - built.ranges[d][0])
        up, down = (points | {column: points[column] + way * step} for way in (1.0, -1.0))
        differences = (built.design(up) - built.design(down)).toarray() / (2.0 * step)
        np.testing.assert_allclose(rows.toarray(), differences, atol=SLOPES * np.abs(differences).max())
        above, below = built.fixed_columns(up), built.fixed_columns(down)
        assert fixed.keys() == above.keys()
        for line, values in fixed.items():
            np.testing.assert_allclose(values, (above[line] - below[line]) / (2.0 * step), atol=ROOT_EPS)


@pytest.mark.parametrize("column", ["x", "day"])
def test_derivatives_of_surfaces_have_the_moments_of_differences(weekly, column):
    """Mean and sd against a difference of two near points, which has the covariance of both."""
    at, step = {"x": 3.0, "day": 2.2}, 1e-3
    up, down = (at | {column: at[column] + way * step} for way in (1.0, -1.0))
    near = weekly.curve("te(x, day)", up, reference=down).columns
    slope = weekly.curve("te(x, day)", at, derivative=column).columns
    for key in ("mean", "sd"):
        np.testing.assert_allclose(slope[key], near[key] / (2.0 * step), rtol=PRINTED)


def test_two_points_of_a_surface_are_compared_with_their_covariance(weekly):
    """Against draws of both, of the function and of its derivative; a point less itself is 0."""
    points = {"x": [2.0, 8.0], "day": [1.0, 5.0]}
    table = weekly.curve("te(x, day)", points, reference={"x": 8.0, "day": 5.0}).columns
    draws = weekly.sample_curve("te(x, day)", 20000, 0, points)
    difference = draws[:, 0] - draws[:, 1]
    assert abs(difference.mean() - table["mean"][0]) < 4 * table["sd"][0] / np.sqrt(len(draws))
    assert difference.std() == pytest.approx(table["sd"][0], rel=0.03)
    np.testing.assert_allclose([table["mean"][1], table["sd"][1]], 0.0, atol=AT_REST)
    changes = weekly.curve("te(x, day)", points, reference={"x": 8.0, "day": 5.0}, derivative="x")
    slopes = weekly.curve("te(x, day)", points, derivative="x").columns["mean"]
    assert changes.title == "Differences of the derivative of te(x, day)"
    np.testing.assert_allclose(changes.columns["mean"], slopes - slopes[1], atol=SOLVES)


@pytest.mark.parametrize("derivative", [True, "z"])
def test_the_variable_of_a_derivative_is_named(weekly, derivative):
    with pytest.raises(ValueError, match=f"derivative must be one of 'x', 'day', got {derivative!r}"):
        weekly.curve("te(x, day)", derivative=derivative)


@pytest.mark.parametrize(
    "formula", ["te(x, z, k=6)", "s(x, k=8) + s(z, k=6) + ti(x, z, k=(6, 5))", "te(x, z, k=6, period=(6, None))"]
)
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
def test_formulas_fit_save_and_predict(formula, tmp_path):
    frame = pd.DataFrame(table_of(200)).assign(z=lambda frame: np.log(frame.z))
    posterior = cavity.GLM(f"y ~ {formula}").fit(frame)
    assert posterior.converged
    assert posterior.r2(frame).to_frame()["mean"].iloc[0] > 0.5
    posterior.save(tmp_path / "fit.npz")
    restored = cavity.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(restored.predict(frame), posterior.predict(frame))
    name = posterior.structured_terms[-1]
    mean, without = posterior.predict(frame)[0], posterior.predict(frame, without=name)[0]
    np.testing.assert_allclose(mean - without, posterior.curve(name, frame).columns["mean"], atol=AT_REST)
    assert len(posterior.curve(name).names) == 100


@pytest.mark.parametrize("name", TERMS)
def test_a_file_gives_the_same_rows(name):
    assert_restored(TERMS[name], table_of())


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (
            "te(x, z, k=(5, 81))",
            r"k of te\(x, z\) must be from 4 to 80, the number of different values of column 'z', got 81",
        ),
        ("te(x, f)", r"column 'f' must have 4 different values for te\(x, f\), got 3"),
        ("te(x, z, k=3)", "k must be at least 4"),
        ("te(x, z, k=(5, 5, 5))", "k must be a pair"),
        ("te(x, c)", r"column 'c' must have different values for te\(x, c\), got 1 in every row"),
        ("te(x, x)", "columns must be two different columns, got 'x' twice"),
        ("te(x)", "it has 2 arguments before its options, got 1"),
        ("te(x | f, z)", "it has no effects by group"),
        ("te(x, z, extrapolate=True)", "options are k, period, ranges, got 'extrapolate'"),
        ("te(x, z, ranges=(0, 1))", "ranges must"),
        ("te(x, z, ranges=((9, -3), (0, 1000)))", "ranges must be two pairs, each a lower and a higher number"),
        ("te(x, z, ranges=((0, 9), (0, 1000)))", "ranges must span -2.9.* for x, got 0 to 9"),
        ("ti(x, z, interaction=True)", "options are k, period, ranges, got 'interaction'"),
        ("te(x, z, period=7)", "period must be a pair, one for each of two variables, got 7"),
        ("te(x, z, period=(None, -7))", r"period must be in \(0, inf\), got -7"),
        ("te(x, z, period=(None, 7), ranges=((-5, 10), (0, 7)))", "ranges must be None for z, which has a period"),
        ("te(x, z, k=(5, 9), period=(None, 7), ranges=(9, None))", "ranges must be two pairs"),
        ("te(x, f, period=(None, 3))", r"column 'f' must have 4 different values modulo 3 for te\(x, f"),
    ],
)
def test_what_is_refused(formula, message):
    table = table_of() | {"c": np.ones(80), "f": np.arange(80) % 3}
    with pytest.raises((ValueError, TypeError), match=message):
        cavity.GLM(f"y ~ {formula}").fit(table)


def test_rows_outside_the_rectangle_are_refused():
    table = table_of()
    built = TERMS["te"].build(table)
    with pytest.raises(ValueError, match=r"must be within the range of te\(x, z\), .*, got 99 in row 2.*ranges="):
        built.design({"x": [0.0, 1.0, 99.0], "z": [1.0, 2.0, 3.0]})
    wide = TERMS["te, wider"].build(table)
    assert wide.design({"x": [-10.0, 10.0], "z": [0.0, 5000.0]}).shape == (2, 36)
