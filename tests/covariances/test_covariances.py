"""Covariances: against their formulas in 50 digits, positive definiteness, laws, parameters and priors; bad input."""

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import covariance_formulas as reference
from scipy import integrate, stats
from support.examples import examples
from support.tolerances import AT_REST, INTEGRAL, LOSSES, ROOT_EPS, ROUNDING, SOLVES, SUMS

import cavity
from cavity.covariances import (
    RBF,
    Constant,
    Covariance,
    Gamma,
    Linear,
    LogNormal,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    Sum,
    White,
    from_settings,
)

ARD = [0.7, 2.0, 1.3]
LEAVES = {
    "Constant": Constant(1.7),
    "White": White(0.3),
    "Linear": Linear(0.6),
    "Linear ARD": Linear(ARD),
    "RBF": RBF(1.7, 0.8),
    "RBF ARD": RBF(1.7, ARD),
    "Matern12": Matern12(0.4, 1.2),
    "Matern12 ARD": Matern12(0.4, ARD),
    "Matern32": Matern32(2.0, 0.9),
    "Matern32 ARD": Matern32(2.0, ARD),
    "Matern52": Matern52(0.9, 1.1),
    "Matern52 ARD": Matern52(0.9, ARD),
    "Matern 7/2": Matern(3.5, 0.9, 1.1),
    "Matern 21/2 ARD": Matern(10.5, 0.9, ARD),
    "RationalQuadratic": RationalQuadratic(1.1, 0.8, 0.6),
    "RationalQuadratic ARD": RationalQuadratic(1.1, ARD, 3.0),
    "Periodic": Periodic(1.2, 0.9, 2.5),
    "Periodic ARD": Periodic(1.2, [0.5, 1.0, 2.0], [2.5, 1.7, 4.0]),
}
COMPOSED = {
    "sum": RBF(1.7, ARD) + Linear(0.5) + White(0.2),
    "product": RBF(1.7, 0.8) * Periodic(1.2, 0.9, 2.5),
    "number": 2.5 * Matern32(lengthscale=ARD),
    "nested": (RBF(0.5) + Linear(ARD)) * (Constant(0.7) + Matern52(1.1, ARD)) * Periodic() + White(0.1),
    "equal leaves": RBF(1.0, 0.5) + RBF(2.0, 4.0) * RBF(0.3, ARD),
    "columns": RBF(lengthscale=[0.5, 2.0], columns=[2, 0]) * Linear(columns=[1]) + Matern12(columns=(1,)),
    "fixed": RBF(1.3, ARD, fixed="lengthscale")
    + Periodic(fixed=("variance", "period"))
    + Linear(ARD, fixed="variance"),
    "noise that grows": Linear(ARD) * White(0.4) + RBF(),
    "polynomial": (Constant(0.5) + Linear(ARD)) * (Constant(2.0) + Linear(0.3)),
}
ALL = LEAVES | COMPOSED


def rows(n, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def symmetric_weights(n, seed=1):
    weights = np.random.default_rng(seed).normal(size=(n, n))
    return weights + weights.T


def floats(matrix):
    return np.array([[float(v) for v in row] for row in matrix])


def assert_gradient(actual, covariance, target):
    assert covariance.parameter_names == tuple(name for name in covariance.parameter_names if name in target)
    assert len(target) == len(actual)
    expected = np.array([target[name] for name in covariance.parameter_names])
    np.testing.assert_allclose(actual, expected, rtol=LOSSES, atol=SOLVES * np.max(np.abs(expected), initial=0.0))


@pytest.mark.parametrize("name", ALL)
def test_matrices_are_those_of_the_formulas(name):
    covariance, X, Z = ALL[name], rows(7), rows(5, seed=3)
    expected = floats(reference.matrix(covariance.to_settings(), X))
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    gram = covariance.gram(X)
    assert np.all(np.abs(gram - expected) <= 2e-14 * scale)
    assert np.array_equal(gram, gram.T)
    np.testing.assert_allclose(covariance.diagonal(X), np.diag(expected), rtol=ROUNDING)
    crossed = floats(reference.matrix(covariance.to_settings(), X, Z))
    np.testing.assert_allclose(covariance.cross(X, Z), crossed, rtol=SUMS, atol=ROUNDING)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", ALL)
def test_gradients_are_differences_of_the_formulas(name):
    covariance, X, Z = ALL[name], rows(4), rows(3, seed=3)
    weights, other = symmetric_weights(4), np.random.default_rng(2).normal(size=(4, 3))
    described = covariance.to_settings()
    assert_gradient(covariance.gradient(X, weights), covariance, reference.gradient(described, X, weights))
    assert_gradient(covariance.gradient(X, other, Z), covariance, reference.gradient(described, X, other, Z))
    single = np.diag(weights[0])
    actual = covariance.diagonal_gradient(X, weights[0])
    assert_gradient(actual, covariance, reference.gradient(described, X, single))
    # gradients for the inputs
    expected = np.array(reference.input_gradient(described, X, weights))
    scale = 1e-12 * np.max(np.abs(expected), initial=0.0)
    np.testing.assert_allclose(covariance.input_gradient(X, weights), expected, rtol=LOSSES, atol=scale)
    expected = np.array(reference.input_gradient(described, X, other, Z))
    np.testing.assert_allclose(covariance.input_gradient(X, other, Z), expected, rtol=LOSSES, atol=scale)


positive = st.floats(0.2, 5.0)
leaf = st.one_of(
    st.builds(Constant, positive),
    st.builds(White, positive),
    st.builds(Linear, st.one_of(positive, st.lists(positive, min_size=2, max_size=2))),
    *(
        st.builds(kind, positive, st.one_of(positive, st.lists(positive, min_size=2, max_size=2)))
        for kind in (RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic)
    ),
)
trees = st.recursive(
    leaf,
    lambda part: st.tuples(part, part, st.booleans()).map(lambda t: t[0] + t[1] if t[2] else t[0] * t[1]),
    max_leaves=6,
)


@examples(30)
@given(trees, st.integers(0, 1000))
def test_any_composition_is_that_of_the_formulas(covariance, seed):
    X, weights = rows(3, 2, seed), symmetric_weights(3, seed)
    described = json.loads(json.dumps(covariance.to_settings()))
    expected = floats(reference.matrix(described, X))
    np.testing.assert_allclose(covariance.gram(X), expected, rtol=SOLVES, atol=SUMS * np.trace(expected))
    assert_gradient(covariance.gradient(X, weights), covariance, reference.gradient(described, X, weights))
    assert from_settings(described) == covariance
    assert eval(repr(covariance)) == covariance
    assert (
        np.min(np.linalg.eigvalsh(covariance.gram(rows(30, 2, seed)))) >= -1e-12 * np.max(covariance.diagonal(X)) * 30
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ALL)
def test_gram_matrices_are_positive_semi_definite(name):
    gram = ALL[name].gram(rows(200, seed=5))
    assert np.min(np.linalg.eigvalsh(gram)) >= -1e-12 * np.trace(gram)


@pytest.mark.parametrize("name", ["nested", "columns", "noise that grows", "White", "Periodic ARD"])
def test_bits_do_not_depend_on_the_number_of_threads(name):
    covariance, X, Z = ALL[name], rows(700), rows(300, seed=3)
    weights, other = symmetric_weights(700), np.random.default_rng(2).normal(size=(700, 300))
    calls = (
        lambda n: covariance.gram(X, n_threads=n),
        lambda n: covariance.cross(X, Z, n_threads=n),
        lambda n: covariance.gradient(X, weights, n_threads=n),
        lambda n: covariance.gradient(X, other, Z, n_threads=n),
        lambda n: covariance.input_gradient(X, weights, n_threads=n),
        lambda n: covariance.input_gradient(X, other, Z, n_threads=n),
    )
    for call in calls:
        assert np.array_equal(call(1), call(3))


def test_blocks_do_not_show():
    covariance, X, weights = COMPOSED["nested"], rows(700), symmetric_weights(700)
    gram, part = covariance.gram(X), slice(250, 260)
    np.testing.assert_allclose(gram[part], covariance.cross(X[part], X) + 0.1 * np.eye(700)[part], rtol=SOLVES)
    total = sum(covariance.gradient(X[i : i + 100], weights[i : i + 100], X) for i in range(0, 700, 100))
    total[-1] = 0.1 * np.trace(weights)
    np.testing.assert_allclose(covariance.gradient(X, weights), total, rtol=AT_REST, atol=AT_REST)


@pytest.mark.parametrize("name", ALL)
def test_rows_in_another_order(name):
    covariance, X, order = ALL[name], rows(150), np.random.default_rng(4).permutation(150)
    assert np.array_equal(covariance.gram(X[order]), covariance.gram(X)[np.ix_(order, order)])


@pytest.mark.parametrize("kind", [RBF, Matern12, Matern32, Matern52, RationalQuadratic])
def test_units_of_x(kind):
    X, weights = rows(40), symmetric_weights(40)
    narrow, wide = kind(1.5, ARD), kind(1.5, 8.0 * np.array(ARD))
    assert np.array_equal(narrow.gram(X), wide.gram(8.0 * X))
    np.testing.assert_allclose(narrow.gradient(X, weights), wide.gradient(8.0 * X, weights), rtol=SOLVES)
    moved = narrow.input_gradient(X, weights)
    np.testing.assert_allclose(moved, 8.0 * wide.input_gradient(8.0 * X, weights), rtol=INTEGRAL, atol=SOLVES)


def test_units_of_other_leaves():
    X = rows(40)
    assert np.array_equal(Periodic(period=3.0).gram(X), Periodic(period=12.0).gram(4.0 * X))
    assert np.array_equal(Linear(16.0).gram(X), Linear(1.0).gram(4.0 * X))
    assert np.array_equal(RBF(3.0).gram(X), 3.0 * RBF(1.0).gram(X))


@pytest.mark.parametrize("covariance", [RBF(1.5, ARD), Matern12(), Periodic(period=2.0), RationalQuadratic()])
@pytest.mark.parametrize("shift", [1e8, -1e8, 1e12])
def test_far_from_zero_digits_are_those_of_the_data(covariance, shift):
    X = rows(6) + shift
    np.testing.assert_allclose(covariance.gram(X), floats(reference.matrix(covariance.to_settings(), X)), rtol=SOLVES)
    Z = X[:3] + 0.5
    expected = floats(reference.matrix(covariance.to_settings(), X, Z))
    np.testing.assert_allclose(covariance.cross(X, Z), expected, rtol=SOLVES)


def test_one_row_far_away_takes_no_digits_from_the_others():
    X = np.array([[1e8], [1e-9], [2e-9], [-4e-9]])
    covariance = RBF(lengthscale=1e-9, fixed="lengthscale")
    expected = floats(reference.matrix(covariance.to_settings(), X))
    np.testing.assert_allclose(covariance.gram(X), expected, rtol=SUMS)
    assert 0.1 < covariance.gram(X)[1, 2] < 0.9


def test_duplicates_are_two_rows_to_white():
    X = np.vstack([rows(3), rows(3)])
    assert np.array_equal(White(0.3).gram(X), 0.3 * np.eye(6))
    assert np.array_equal(White(0.3).cross(X, X), np.zeros((6, 6)))
    gram = (RBF() + White(0.25)).gram(X)
    assert np.array_equal(np.diag(gram), np.full(6, 1.25))
    assert np.array_equal(gram[:3, 3:] - RBF().gram(X[:3]), np.zeros((3, 3)))


@pytest.mark.parametrize("kind", [RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic])
def test_rows_very_far_apart_and_equal_rows(kind):
    X = np.array([[0.0, 0.0], [1e300, 3.0], [1e300, 3.0], [-1e300, 1e-300]])
    covariance = kind(2.0) if kind is not RationalQuadratic else kind(2.0, shape=2.0)
    gram, weights = covariance.gram(X), symmetric_weights(4)
    assert np.array_equal(np.diag(gram), np.full(4, 2.0))
    assert gram[1, 2] == 2.0
    assert kind is Periodic or gram[0, 1] == 0.0
    assert np.all(np.isfinite(covariance.gradient(X, weights)))
    assert np.all(np.isfinite(covariance.input_gradient(X, weights)))


@pytest.mark.parametrize("covariance", [Periodic(0.65, 1e-154, 1e155), Periodic(1.0, 2e-154, 3e153), Matern12(1e200)])
def test_slopes_at_the_ends_of_the_range_of_floats(covariance):
    X, Z, weights = np.array([[0.0], [1.0]]), np.array([[0.0], [3.0]]), np.array([[2.0, 1.0], [1.0, -1.0]])
    described = covariance.to_settings()
    for other in (None, Z):
        expected = reference.gradient(described, X, weights, other)
        assert_gradient(covariance.gradient(X, weights, other), covariance, expected)
        assert np.isfinite(covariance.input_gradient(X, weights, other)).all()


def test_shapes_and_kinds_of_rows():
    X = rows(30)
    gram = RBF().gram(X)
    assert np.array_equal(RBF().gram(np.asfortranarray(X)), gram)
    assert np.array_equal(RBF().gram(np.repeat(X, 2, axis=0)[::2]), gram)
    assert np.array_equal(RBF().gram(X.astype(np.float32)), RBF().gram(X.astype(np.float32).astype(float)))
    assert np.array_equal(RBF(columns=[0, 2]).gram(X), RBF().gram(X[:, [0, 2]]))
    assert RBF(lengthscale=2.0).gram([[1], [3]])[0, 1] == RBF(lengthscale=2.0).gram([[1.0], [3.0]])[1, 0]
    assert np.array_equal(RBF(3.0).gram(X[:1]), [[3.0]])
    assert RBF().cross(X, X[:1]).shape == (30, 1)


def test_gram_into_an_array():
    X, out = rows(30), np.full((30, 30), np.nan)
    assert RBF().gram(X, out=out) is out
    assert np.array_equal(out, RBF().gram(X))
    frozen = np.frombuffer(bytes(8 * 900)).reshape(30, 30)
    for bad in (np.zeros((30, 29)), np.zeros((30, 30), order="F"), np.zeros((30, 30), dtype=np.float32), frozen):
        with pytest.raises(ValueError, match=r"out must be a writeable float64 array of shape \(30, 30\) in C order"):
            RBF().gram(X, out=bad)
    with pytest.raises(TypeError, match="out must be an array, got list"):
        RBF().gram(X, out=[[0.0] * 30] * 30)


def test_names_values_and_order_of_parameters():
    covariance = RBF(2.0, [1.0, 3.0]) + 0.5 * RBF(4.0) * Periodic(5.0, 6.0, 7.0) + RationalQuadratic(8.0, 9.0, 10.0)
    assert covariance.parameter_names == (
        "rbf_1.variance",
        "rbf_1.lengthscale[0]",
        "rbf_1.lengthscale[1]",
        "rbf_2.variance",
        "rbf_2.lengthscale",
        "periodic.variance",
        "periodic.lengthscale",
        "periodic.period",
        "rational_quadratic.variance",
        "rational_quadratic.shape",
        "rational_quadratic.lengthscale",
    )
    np.testing.assert_allclose(np.exp(covariance.log_parameters), [2, 1, 3, 4, 1, 5, 6, 7, 8, 10, 9])
    parameters = covariance.parameters
    assert parameters["constant.variance"] == 0.5
    assert parameters["rbf_1.lengthscale"].tolist() == [1.0, 3.0]
    assert not parameters["rbf_1.lengthscale"].flags.writeable
    assert parameters["rational_quadratic.shape"] == 10.0


def test_other_values_of_the_parameters():
    covariance = COMPOSED["nested"]
    start = covariance.log_parameters
    assert covariance.with_log_parameters(start) == covariance
    moved = covariance.with_log_parameters(start + np.linspace(-1, 1, start.size))
    np.testing.assert_allclose(moved.log_parameters, start + np.linspace(-1, 1, start.size), atol=ROUNDING)
    assert moved.parameter_names == covariance.parameter_names
    one = start.copy()
    one[2] += 0.5
    changed = covariance.with_log_parameters(one).log_parameters == start
    assert changed.tolist() == [i != 2 for i in range(start.size)]
    with pytest.raises(ValueError, match=r"vector must have shape \(14,\), got \(3,\)"):
        covariance.with_log_parameters([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="vector must be finite"):
        covariance.with_log_parameters(np.full(start.size, np.nan))


def test_bounds():
    covariance = RBF(2.0, [1.0, 3.0], bounds={"lengthscale": (0.3, 7.0)}) + White(fixed="variance")
    assert np.array_equal(covariance.log_bounds, np.log([[1e-300, 1e300], [0.3, 7.0], [0.3, 7.0]]))
    for k in (0, 1):
        corner = covariance.with_log_parameters(covariance.log_bounds[:, k])
        assert corner.parameters["rbf.lengthscale"].tolist() == [(0.3, 7.0)[k]] * 2
        assert corner.parameters["rbf.variance"] == (1e-300, 1e300)[k]
        assert np.array_equal(corner.log_parameters, covariance.log_bounds[:, k])
    outside = covariance.log_parameters
    outside[2] = np.log(7.1)
    with pytest.raises(ValueError, match=r"vector must lie in log_bounds, got .* for rbf.lengthscale\[1\]"):
        covariance.with_log_parameters(outside)
    assert RBF(bounds={"variance": (1.0, 1.0)}).log_bounds[0].tolist() == [0.0, 0.0]
    assert RBF(1e-9, fixed="variance").parameters["rbf.variance"] == 1e-9


def test_a_rounding_inside_of_a_bound_is_inside():
    for low in np.random.default_rng(0).uniform(1.0, 1.1, 200):
        covariance = White(10.0, bounds={"variance": (low, 99.0 * low)})
        for k, towards in ((0, np.inf), (1, -np.inf)):
            moved = covariance.with_log_parameters(np.nextafter(covariance.log_bounds[:, k], towards))
            assert low <= moved.variance <= 99.0 * low


def test_fixing_and_freeing():
    covariance = 2.0 * RBF(1.0, ARD) + White(0.1)
    assert covariance.fix("rbf.lengthscale").parameter_names == ("rbf.variance", "white.variance")
    assert covariance.fix("rbf").parameter_names == ("white.variance",)
    assert covariance.free("constant.variance").parameter_names[0] == "constant.variance"
    nothing = covariance.fix()
    assert nothing.parameter_names == ()
    assert nothing.log_parameters.shape == (0,)
    assert nothing.log_bounds.shape == (0, 2)
    assert nothing.gradient(rows(4), symmetric_weights(4)).shape == (0,)
    assert nothing.diagonal_gradient(rows(4), np.ones(4)).shape == (0,)
    assert nothing.log_prior()[0] == 0.0
    assert nothing.log_prior()[1].shape == (0,)
    assert nothing.with_log_parameters([]) == nothing
    assert nothing.free("rbf", "white") == covariance
    assert np.array_equal(nothing.gram(rows(4)), covariance.gram(rows(4)))
    with pytest.raises(ValueError, match="no parameter 'rbf.lengthscales'; there are constant.variance, rbf.variance"):
        covariance.fix("rbf.lengthscales")
    with pytest.raises(ValueError, match=r"variance must be within its bounds \(1e-300, 1e\+300\), got 1e-305"):
        (1e-305 * RBF()).free("constant")


def test_composition():
    a, b, c = RBF(), White(0.1), Linear()
    assert a + b + c == a + (b + c) == Sum((a, b, c))
    assert a * b * c == a * (b * c) == Product((a, b, c))
    assert a + b != b + a
    assert a != RBF(lengthscale=2.0)
    assert RBF(lengthscale=2.0) != RBF(lengthscale=[2.0])
    assert a != Matern12()
    assert a != "RBF"
    assert 2 * a == np.float64(2.0) * a == Product((Constant(2.0, fixed="variance"), a))
    assert a * 2.0 == Product((a, Constant(2.0, fixed="variance")))
    assert (2.0 * a).parameter_names == a.parameter_names
    for wrong in (lambda: a + 1.0, lambda: a * "2", lambda: "2" * a, lambda: a * True, lambda: np.ones(2) * a):
        with pytest.raises(TypeError, match=r"unsupported operand|can't multiply"):
            wrong()
    with pytest.raises(ValueError, match=r"variance must be in \(0, inf\), got -1.0"):
        -1.0 * a
    with pytest.raises(TypeError, match="Sum must have two or more covariances as parts"):
        Sum((a,))
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    with pytest.raises(AttributeError):
        a.variance = 2.0


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (RBF(2.0, [1.0, 0.5]) + White(0.1), "RBF(variance=2.0, lengthscale=[1.0, 0.5]) + White(variance=0.1)"),
        (2.0 * (Constant() + Linear(3)), "2.0 * (Constant(variance=1.0) + Linear(variance=3.0))"),
        (
            Matern12(columns=[1], fixed="variance", bounds={"lengthscale": (0.1, 9)}, priors={"variance": Gamma(2, 1)}),
            "Matern12(variance=1.0, lengthscale=1.0, columns=(1,), fixed=('variance',), "
            "bounds={'lengthscale': (0.1, 9.0)}, priors={'variance': Gamma(shape=2.0, rate=1.0)})",
        ),
        (Constant(3.0) * White(fixed="variance"), "Constant(variance=3.0) * White(variance=1.0, fixed=('variance',))"),
        (
            2.0 * (3.0 * White()),  # 2.0 * 3.0 would be one number
            "Constant(variance=2.0, fixed=('variance',)) * Constant(variance=3.0, fixed=('variance',)) * "
            "White(variance=1.0)",
        ),
    ],
)
def test_repr_is_what_one_would_type(covariance, message):
    assert repr(covariance) == message
    assert eval(repr(covariance)) == covariance


PRIORS = RBF(
    2.0,
    [0.5, 3.0],
    priors={"variance": LogNormal(1.5, 0.8), "lengthscale": Gamma(3.0, 2.0)},
    bounds={"variance": (1, 9)},
)


@pytest.mark.parametrize("covariance", [*ALL.values(), PRIORS, PRIORS * White(fixed="variance")])
def test_settings_and_copies(covariance):
    described = json.loads(json.dumps(covariance.to_settings()))
    for other in (from_settings(described), pickle.loads(pickle.dumps(covariance)), copy.deepcopy(covariance)):
        assert other == covariance
        assert other is not covariance
        assert other.parameter_names == covariance.parameter_names
        assert np.array_equal(other.log_bounds, covariance.log_bounds)
        arrays = [value for value in other.parameters.values() if isinstance(value, np.ndarray)]
        assert not any(array.flags.writeable for array in arrays)


def test_settings_of_another_kind():
    with pytest.raises(ValueError, match="settings must be of a kind among Constant, .*RBF, .*, got 'Spline'"):
        from_settings({"kind": "Spline", "variance": 1.0})


def test_log_normal_prior():
    prior = LogNormal(2.0, 0.7)
    total, _ = integrate.quad(lambda x: np.exp(prior.log_density(x)), 0, np.inf)
    assert abs(total - 1) < 1e-8
    half, _ = integrate.quad(lambda x: np.exp(prior.log_density(x)), 0, 2.0)
    assert abs(half - 0.5) < 1e-8
    assert abs(prior.log_density(3.0) - stats.lognorm(0.7, scale=2.0).logpdf(3.0)) < 1e-14
    for bad in ((0.0, 1.0), (1.0, -1.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match=r"must be in \(0, inf\)"):
            LogNormal(*bad)


def test_log_prior_and_its_gradient():
    covariance = PRIORS + Matern12(priors={"variance": LogNormal(1.0, 1.0)}, fixed="variance")

    def total(logs):
        variance, *lengths = np.exp(logs[:3])
        return stats.lognorm(0.8, scale=1.5).logpdf(variance) + np.sum(stats.gamma(3.0, scale=0.5).logpdf(lengths))

    value, gradient = covariance.log_prior()
    start = covariance.log_parameters
    assert abs(value - total(start)) < 1e-13
    steps = 1e-5 * np.eye(start.size)
    expected = [(total(start + step) - total(start - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient, expected, rtol=ROOT_EPS, atol=INTEGRAL)
    assert gradient[3] == 0.0  # the lengthscale without a prior


class HalfNormal:
    """A prior of one's own: exp(-x^2/2) up to a constant, for the tests."""

    def log_density(self, value):
        return -0.5 * np.asarray(value) ** 2

    def slope(self, value):
        return -(np.asarray(value) ** 2)


def test_a_prior_of_your_own():
    covariance = RBF(2.0, [1.0, 3.0], priors={"lengthscale": HalfNormal()})
    value, gradient = covariance.log_prior()
    assert value == -5.0
    assert gradient.tolist() == [0.0, -1.0, -9.0]
    with pytest.raises(TypeError, match=r"priors\['lengthscale'\] is a prior of your own \(HalfNormal\)"):
        covariance.to_settings()


REFUSED = {
    "variance zero": (lambda: RBF(0.0), ValueError, r"variance must be in \(0, inf\), got 0.0"),
    "variance nan": (lambda: White(np.nan), ValueError, r"variance must be in \(0, inf\), got nan"),
    "variance array": (lambda: RBF([1.0, 2.0]), TypeError, "variance must be a number"),
    "variance word": (lambda: RBF("1"), TypeError, "variance must be a number"),
    "lengthscale": (lambda: RBF(lengthscale=-2.0), ValueError, r"lengthscale must be in \(0, inf\), got -2.0"),
    "lengthscales": (lambda: RBF(lengthscale=[1.0, 0.0]), ValueError, "lengthscale must be positive, got 0.0"),
    "infinite": (
        lambda: RBF(lengthscale=[1.0, np.inf]),
        ValueError,
        r"lengthscale must be finite, got lengthscale\[1\]",
    ),
    "no lengthscales": (lambda: RBF(lengthscale=[]), ValueError, "lengthscale must not be empty"),
    "matrix": (lambda: RBF(lengthscale=np.eye(2)), ValueError, "lengthscale must have 1 dimension"),
    "shape": (lambda: RationalQuadratic(shape=0), ValueError, r"shape must be in \(0, inf\), got 0.0"),
    "period": (lambda: Periodic(period=-1), ValueError, r"period must be in \(0, inf\), got -1.0"),
    "outside": (lambda: RBF(1e301), ValueError, r"variance must be within its bounds \(1e-300, 1e\+300\), got 1e\+301"),
    "outside own": (
        lambda: RBF(lengthscale=[1.0, 3.0], bounds={"lengthscale": (0.5, 2.0)}),
        ValueError,
        r"lengthscale must be within its bounds \(0.5, 2\), got 3.0",
    ),
    "fixed": (
        lambda: RBF(fixed=("scale",)),
        ValueError,
        "fixed: RBF has no parameter 'scale', it has variance, length",
    ),
    "bounds": (
        lambda: White(bounds={"lengthscale": (1, 2)}),
        ValueError,
        "bounds: White has no parameter 'lengthscale'",
    ),
    "bounds kind": (lambda: RBF(bounds=[(1, 2)]), TypeError, "bounds must be a dict by names of parameters"),
    "bounds order": (
        lambda: RBF(bounds={"variance": (2, 1)}),
        ValueError,
        r"bounds\['variance'\] must be \(low, high\)",
    ),
    "bounds zero": (lambda: RBF(bounds={"variance": (0, 1)}), ValueError, "0 < low <= high"),
    "bounds three": (lambda: RBF(bounds={"variance": (1, 2, 3)}), ValueError, r"must be \(low, high\)"),
    "priors": (lambda: RBF(priors={"shape": LogNormal(1, 1)}), ValueError, "priors: RBF has no parameter 'shape'"),
    "prior": (
        lambda: RBF(priors={"variance": 1.0}),
        TypeError,
        r"priors\['variance'\] must be a prior of cavity.priors, or",
    ),
    "prior class": (lambda: RBF(priors={"variance": LogNormal}), TypeError, "must be a prior of cavity.priors"),
    "prior batch": (lambda: RBF(priors={"variance": Gamma([1, 2], 1)}), ValueError, "one distribution for every entry"),
    "no columns": (lambda: RBF(columns=[]), ValueError, "columns must be a list of one or more column numbers from 0"),
    "columns": (lambda: RBF(columns=[-1]), ValueError, "columns must be a list of one or more column numbers"),
    "column names": (lambda: RBF(columns=["a"]), ValueError, "columns must be a list of one or more column numbers"),
    "columns twice": (lambda: RBF(columns=[1, 1]), ValueError, r"columns must not repeat, got \[1, 1\]"),
    "widths": (lambda: RBF(lengthscale=ARD, columns=[0, 1]), ValueError, r"for each of 2 column\(s\), got 3"),
    "two widths": (lambda: Periodic(1, ARD, [1, 2]), ValueError, r"period must be a number or one for each of 3"),
    "width of X": (
        lambda: (RBF() + RBF(lengthscale=ARD)).gram(rows(4, 2)),
        ValueError,
        r"rbf_2: lengthscale must be a number or one for each of 2 column\(s\), got 3",
    ),
    "missing column": (lambda: Linear(columns=[0, 3]).gram(rows(4)), ValueError, "columns must be below 3, .* got 3"),
    "vector": (lambda: RBF().gram([1.0, 2.0]), ValueError, r"X must have 2 dimension\(s\), got shape \(2,\)"),
    "empty": (lambda: RBF().gram(np.zeros((0, 3))), ValueError, "X must not be empty"),
    "nan": (lambda: RBF().gram([[1.0], [np.nan]]), ValueError, r"X must be finite, got X\[1, 0\] = nan"),
    "other width": (lambda: RBF().cross(rows(3), rows(3, 2)), ValueError, r"Z must have 3 column\(s\) like X"),
    "other nan": (lambda: RBF().cross(rows(3, 1), [[np.inf]]), ValueError, r"Z must be finite, got Z\[0, 0\] = inf"),
    "weights": (lambda: RBF().gradient(rows(3), np.ones((3, 2))), ValueError, "weights must have shape"),
    "asymmetric": (lambda: RBF().gradient(rows(2), [[1, 2], [3, 4]]), ValueError, "weights must be symmetric"),
    "other weights": (
        lambda: RBF().gradient(rows(3), np.ones((3, 3)), rows(2)),
        ValueError,
        r"weights must have shape \(3, 2\), got \(3, 3\)",
    ),
    "diagonal": (lambda: RBF().diagonal_gradient(rows(3), [1.0]), ValueError, r"weights must have shape \(3,\)"),
    "threads": (lambda: RBF().gram(rows(3), n_threads=0), ValueError, "n_threads must be at least 1"),
    "too far": (
        lambda: RBF(columns=[1]).gram([[0.0, 1e308], [0.0, -1e308]]),
        OverflowError,
        r"column 1 \(counted from 0\) of X leaves the range of float64 when it is scaled for RBF",
    ),
    "too fine": (
        lambda: RBF(lengthscale=1e-5).cross([[0.0]], [[1e305]]),
        OverflowError,
        r"column 0 \(counted from 0\) of Z leaves the range of float64",
    ),
    "linear": (
        lambda: Linear().gram([[1e200, 1e200], [1e200, -1e200]]),
        OverflowError,
        "covariance of these rows leaves the range of float64",
    ),
    "product": (
        lambda: (Linear() * Linear() * RBF()).gram([[1e100], [0.0]]),
        OverflowError,
        "covariance of these rows leaves the range of float64",
    ),
    "roughness": (
        lambda: Periodic(lengthscale=1e-200, fixed="lengthscale").gram(rows(2)),
        OverflowError,
        "covariance of these rows leaves the range of float64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


def test_more_rows_than_memory_allows():
    n = 10**7
    X = np.broadcast_to(np.zeros((1, 1)), (n, 1))
    with pytest.raises(MemoryError, match=rf"shape \({n}, {n}\) needs {8 * n * n} bytes"):
        RBF().gram(X)
    with pytest.raises(MemoryError, match="the matrix of covariances of shape"):
        RBF().cross(X, X)


def test_the_module_is_public():
    assert cavity.covariances.RBF is RBF
    assert all(isinstance(covariance, Covariance) for covariance in ALL.values())
