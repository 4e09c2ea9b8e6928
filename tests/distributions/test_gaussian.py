"""The Gaussian algebra: every branch against mpmath, the group laws, arrays of every kind, errors."""

import functools
import pickle

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gaussian as reference
from scipy import integrate, stats
from support.examples import count_draws
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, LOSSES, ROUNDING, SOLVES, SUMS

import cavity
from cavity import Gaussian, SphericalGaussian, _core

EPS = np.finfo(float).eps
INF = np.inf


def scaled(low=-1000, high=1000, zero=True):
    """Doubles of either sign with exponents over the whole range, and zero."""
    sign, mantissa, exponent = st.sampled_from([-1.0, 1.0]), st.floats(1, 2), st.integers(low, high)
    numbers = st.builds(lambda s, m, e: s * m * 2.0**e, sign, mantissa, exponent)
    return st.one_of(numbers, st.just(0.0)) if zero else numbers


def gaussians(low=-1000, high=1000):
    """(tau, rho, gamma) of proper, improper and flat factors."""
    return st.tuples(scaled(low, high), scaled(low, high), st.floats(-100, 100))


def check(sign, f, g, result):
    """Compare a product or quotient with its definition; the tolerance is eps times the condition of the problem."""
    tau, rho, gamma = reference.combine(sign, *f, *g)
    assert float(tau) == result[0]
    assert float(rho) == result[1]
    if rho != 0 and mp.mpf(result[1]) != rho:  # the rounded precision is the one the log scale belongs to
        with mp.workdps(reference.DIGITS):
            gamma += mp.log(abs(rho / mp.mpf(result[1]))) / 2
    if abs(gamma) < 1e308:
        bound = 30 * EPS * (reference.conditioning(sign, *f, *g) + abs(gamma))
        assert abs(mp.mpf(result[2]) - gamma) <= bound, (result, float(gamma), float(bound))
    assert not np.isnan(result[2])


BRANCHES = [
    ((1.0, 2.0, 0.3), (3.0, 4.0, -0.2)),  # ordinary
    ((1.0, 2.0, 0.3), (3.0, -1.0, -0.2)),  # improper factor, proper product
    ((1.0, 2.0, 0.3), (3.0, -5.0, -0.2)),  # improper product
    ((1.0, -2.0, 0.3), (-3.0, -5.0, 0.0)),
    ((1.0, 2.0, 0.3), (3.0, 0.0, -0.2)),  # flat second factor
    ((1.0, 0.0, 0.3), (3.0, 2.0, -0.2)),  # flat first factor
    ((1.0, 0.0, 0.3), (3.0, 0.0, -0.2)),  # both flat
    ((1.0, 2.0, 0.3), (3.0, -2.0, -0.2)),  # precisions cancel in the product
    ((1.0, 2.0, 0.3), (3.0, 2.0, -0.2)),  # precisions cancel in the quotient
    ((1.0, 2.0, 0.3), (1.0, 2.0, -0.2)),
    ((0.0, 1e-300, 0.0), (0.0, 1e300, 0.0)),  # exponents far apart
    ((1e-290, 1e-300, 0.0), (1e150, 1e300, 0.0)),
    ((1e200, 1e200, 5.0), (1e200, 3e200, 1.0)),
    ((1e-200, 1e-200, 5.0), (1e-200, 3e-200, 1.0)),
    ((5e-324, 5e-324, 0.0), (0.0, 1.0, 0.0)),  # subnormal
    ((1e6 / 1e-6, 1 / 1e-6, 0.0), (1.000001e6 / 1e-6, 1 / 1e-6, 0.0)),  # mean 1e6, sd 1e-3
]


@pytest.mark.parametrize(("f", "g"), BRANCHES)
def test_every_branch_against_mpmath(f, g):
    check(1, f, g, cavity.multiply(*f, *g))
    check(-1, f, g, cavity.divide(*f, *g))
    product, quotient = Gaussian(*f) * Gaussian(*g), Gaussian(*f) / Gaussian(*g)
    assert (product.tau, product.rho, product.log_scale) == cavity.multiply(*f, *g)
    assert (quotient.tau, quotient.rho, quotient.log_scale) == cavity.divide(*f, *g)


@given(gaussians(), gaussians())
def test_any_exponents_against_mpmath(f, g):
    check(1, f, g, cavity.multiply(*f, *g))
    check(-1, f, g, cavity.divide(*f, *g))


@given(gaussians(), gaussians())
def test_product_commutes(f, g):
    assert cavity.multiply(*f, *g) == pytest.approx(cavity.multiply(*g, *f), rel=ROUNDING, abs=SOLVES)


def same(a, b, scale, tolerance=1e-11):
    """Equal up to rounding of terms as large as `scale`."""
    return all(abs(x - y) <= tolerance * s for x, y, s in zip(a, b, scale, strict=True))


@given(gaussians(-40, 40), gaussians(-40, 40))
def test_quotient_undoes_product(f, g):
    back = cavity.divide(*cavity.multiply(*f, *g), *g)
    size = float(reference.conditioning(1, *f, *g) + reference.conditioning(-1, *cavity.multiply(*f, *g), *g))
    # the sums round to the larger operand, and gamma depends on tau and rho: its condition number at (tau, rho)
    loss = EPS * (abs(f[1]) + abs(g[1])) / abs(f[1]) if f[1] else 0
    if loss < 1e-6 and back[1] != 0 and f[1] != 0:
        m2 = (abs(f[0]) + abs(g[0])) ** 2 / abs(f[1])
        slack = 1e-11 * size + 10 * loss + 10 * EPS * m2 * (1 + (abs(f[1]) + abs(g[1])) / abs(f[1]))
        assert same(back[:2], f[:2], (abs(f[0]) + abs(g[0]), abs(f[1]) + abs(g[1])))
        assert abs(back[2] - f[2]) <= slack


@given(st.lists(gaussians(-20, 20), min_size=3, max_size=3))
def test_product_is_associative(factors):
    a, b, c = (Gaussian(*f) for f in factors)
    left, right = (a * b) * c, a * (b * c)
    sizes = [sum(abs(f[0]) for f in factors), sum(abs(f[1]) for f in factors)]
    assert same((left.tau, left.rho), (right.tau, right.rho), sizes)
    rhos = [f[1] for f in factors]
    partial = [rhos[0] + rhos[1], rhos[1] + rhos[2], sum(rhos)]
    if all(abs(p) > 1e-3 * max(map(abs, rhos)) for p in partial):
        size = 1 + sum(abs(f[2]) for f in factors) + sum(sizes[0] ** 2 / abs(r) for r in (*rhos, *partial) if r)
        assert abs(left.log_scale - right.log_scale) <= 1e-10 * size


@given(gaussians())
def test_uniform_is_the_identity(f):
    g = Gaussian(*f)
    for result in (g * Gaussian.uniform(), Gaussian.uniform() * g, g / Gaussian.uniform()):
        assert (result.tau, result.rho) == f[:2]
        assert result.log_scale == pytest.approx(f[2], rel=ROUNDING, abs=ROUNDING)


def test_moments_at_the_ends_of_the_range():
    with pytest.raises(OverflowError, match="mean/variance leaves the range"):
        Gaussian.from_moments(1e300, 1e-300)
    with pytest.raises(ValueError, match="variance must be 0 or at least 5.6e-309, got 1e-320"):
        Gaussian.from_moments(0.0, 1e-320)
    assert Gaussian.from_moments(2.0, 0.0).rho == INF
    assert Gaussian.from_moments(2.0, INF).rho == 0.0
    batch = SphericalGaussian.from_moments([2.0, 1.0], [0.0, INF, 4.0])
    assert batch.rho.tolist() == [INF, 0.0, 0.25]
    assert batch.tau.tolist() == [[2.0, 1.0], [0.0, 0.0], [0.5, 0.25]]


def test_point_masses():
    g = Gaussian.from_moments(1.0, 2.0, 0.5)
    point = Gaussian.point_mass(3.0)
    for product in (point * g, g * point):
        assert (product.tau, product.rho) == (3.0, INF)
        assert product.log_scale == pytest.approx(0.5 + stats.norm(1, np.sqrt(2)).logpdf(3.0), rel=ROUNDING)
    assert (product / g).log_scale == pytest.approx(0.0, abs=ROUNDING)
    assert (point * Gaussian.point_mass(4.0)).log_scale == -INF
    assert np.isnan((point * Gaussian.point_mass(3.0)).log_scale)
    assert point.mean == 3.0
    assert point.variance == 0.0
    with pytest.raises(ZeroDivisionError, match="point mass"):
        g / point


def test_densities_of_a_mean_beyond_float64_need_no_warning():
    far = Gaussian(1e200, 1e-200)
    assert far.log_density(0.0) == -np.inf
    assert far.entropy() == Gaussian(0.0, 1e-200).entropy()
    with pytest.raises(OverflowError, match="sample: the draws leave the range of float64"):
        far.sample(2, 0)


def test_results_beyond_float64_are_refused():
    for operation in (cavity.multiply, lambda *a: cavity.divide(*a[:4], -a[4], a[5])):
        with pytest.raises(OverflowError, match="element 0 leave the range"):
            operation(0.0, 1.7e308, 0.0, 0.0, 1.7e308, 0.0)
    with pytest.raises(OverflowError, match="element 1"):
        cavity.multiply([0.0, 1.7e308], 1.0, 0.0, [0.0, 1.7e308], 1.0, 0.0)


# ---------------------------------------------------------------------------------------------- arrays

RNG = np.random.default_rng(5)


def operands(shape, special=True):
    """Six arrays with ordinary, improper, flat, extreme and point-mass factors mixed in."""
    arrays = [RNG.normal(size=shape), RNG.normal(size=shape) * 3, RNG.normal(size=shape)]
    arrays += [RNG.normal(size=shape), RNG.normal(size=shape) * 3, RNG.normal(size=shape)]
    if special:
        flat = arrays[1].reshape(-1)
        flat[::7], flat[3::11], flat[5::13] = 0.0, INF, 1e-250
    return arrays


@pytest.mark.parametrize("operation", [cavity.multiply, cavity.divide])
@pytest.mark.parametrize("n", [0, 1, 5, 127, 128, 129, 1000])
def test_arrays_equal_single_elements(operation, n):
    arrays = operands(n)
    results = operation(*arrays)
    for i in range(n):
        single = operation(*(float(a[i]) for a in arrays))
        np.testing.assert_array_equal([r[i] for r in results], single)


@pytest.mark.parametrize("variant", _core.variants("gaussian"))
@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_variants_return_the_same_bits(variant, name):
    for special in (False, True):
        arrays = operands(3000, special)
        base = getattr(_core.load("gaussian", _core.BASELINE_VARIANT), name)(*arrays)[2]
        other = getattr(_core.load("gaussian", variant), name)(*arrays)[2]
        for a, b in zip(base, other, strict=True):
            np.testing.assert_array_equal(a.view(np.int64), b.view(np.int64))


@pytest.mark.parametrize("variant", _core.variants("gaussian"))
@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_the_last_rows_of_a_chunk_count(name, variant):
    """Rows in chunks, in one that is filled up, and one by one; special ones only at the end, or nowhere."""
    function = getattr(_core.load("gaussian", variant), name)
    every = operands(258, special=False)
    singles = [function(*(float(a[i]) for a in every))[2] for i in range(258)]
    for n in (*range(1, 20), *range(31, 35), *range(125, 132), *range(142, 147), 255, 256, 257, 258):
        arrays = [a[:n].copy() for a in every]
        status, row, result = function(*arrays)
        assert status == row == 0
        np.testing.assert_array_equal(np.transpose(result), singles[:n])
        arrays[1][-1], arrays[4][-1] = 0.5, -0.5 if name == "multiply" else 0.5  # precisions cancel
        last = function(*(float(a[-1]) for a in arrays))[2]
        np.testing.assert_array_equal(np.transpose(function(*arrays)[2]), [*singles[: n - 1], last])
        arrays[1][-1], arrays[4][-1] = 1.7e308, 1.7e308 if name == "multiply" else -1.7e308
        status, row, _ = function(*arrays)
        assert (status != 0, row) == (True, n - 1)


@pytest.mark.long_cases("divide-True")
@pytest.mark.sample(3)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("operation", [cavity.multiply, cavity.divide])
def test_threads_and_streaming_return_the_same_bits(operation, special):
    """Chunks with a special row are not streamed."""
    arrays = operands((1 << 20) + 77, special)
    base = [
        np.concatenate(parts)
        for parts in zip(
            *(operation(*(a[i : i + 50000] for a in arrays)) for i in range(0, arrays[0].size, 50000)), strict=True
        )
    ]
    for n_threads in (1, 2, 3):
        for out in (None, tuple(np.empty_like(arrays[0]) for _ in range(3))):
            for a, b in zip(base, operation(*arrays, out=out, n_threads=n_threads), strict=True):
                np.testing.assert_array_equal(a, b)


def test_in_place_and_overlapping_outputs():
    arrays = operands(500)
    expected = cavity.multiply(*arrays)
    shared = [a.copy() for a in arrays]
    out = cavity.multiply(*shared, out=tuple(shared[:3]))
    assert out[0] is shared[0]
    np.testing.assert_array_equal(out, expected)
    buffers = [np.concatenate([a, [0.0]]) for a in arrays]
    out = tuple(b[1:] for b in buffers[:3])  # shifted by one against the inputs
    cavity.multiply(*(b[:-1] for b in buffers), out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", ["float32", "strided", "reversed", "fortran", "readonly", "int", "list", "misaligned"])
def test_inputs_of_every_kind(kind):
    arrays = [np.round(a * 8) / 8 + 0.125 for a in operands((6, 10), special=False)]
    if kind == "int":
        arrays = [np.round(a) + 3 for a in arrays]
    expected = cavity.multiply(*arrays)

    def convert(a):
        if kind == "strided":
            wide = np.zeros((6, 20))
            wide[:, ::2] = a
            return wide[:, ::2]
        if kind == "misaligned":
            raw = np.zeros(a.nbytes + 1, dtype=np.uint8)[1:].view(np.float64).reshape(a.shape)
            raw[...] = a
            return raw
        if kind == "readonly":
            a = a.copy()
            a.flags.writeable = False
            return a
        return {
            "float32": a.astype(np.float32),
            "int": a.astype(np.int32),
            "fortran": np.asfortranarray(a),
            "reversed": a[::-1][::-1],
            "list": a.tolist(),
        }[kind]

    results = cavity.multiply(*map(convert, arrays))
    np.testing.assert_array_equal(results, expected)
    assert all(r.dtype == np.float64 for r in results)


@pytest.mark.parametrize("gamma", [0.25, np.float32(0.25), 3, np.int8(3), True])
def test_broadcasting(gamma):
    """NumPy's iterator before 2.3 read numbers of other types than float64 from memory that nobody had written."""
    tau, rho = RNG.normal(size=(4, 1)), RNG.gamma(2, size=7)
    results = cavity.multiply(tau, 1.0, 0.0, 0.5, rho, gamma)
    assert [r.shape for r in results] == [(4, 7)] * 3
    for i in range(4):
        for j in range(7):
            assert tuple(r[i, j] for r in results) == cavity.multiply(
                float(tau[i, 0]), 1.0, 0.0, 0.5, float(rho[j]), float(gamma)
            )
    product = Gaussian(tau, 1.0) * Gaussian(0.5, rho)
    assert product.shape == (4, 7)


def test_bad_raw_arguments():
    x = np.ones(3)
    with pytest.raises(TypeError, match="gamma2 must hold real numbers, got dtype <U1"):
        cavity.multiply(x, x, x, x, x, ["a", "b", "c"])
    with pytest.raises(TypeError, match="out must be a tuple of three arrays"):
        cavity.multiply(x, x, x, x, x, x, out=[x, x, x])
    with pytest.raises(ValueError, match=r"out: rho must be a writeable float array of shape \(3,\), got shape \(4,\)"):
        cavity.multiply(x, x, x, x, x, x, out=(np.ones(3), np.ones(4), np.ones(3)))
    frozen = np.ones(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out: tau must be a writeable"):
        cavity.divide(x, x, x, x, x, x, out=(frozen, np.ones(3), np.ones(3)))
    y = np.ones(3)
    with pytest.raises(ValueError, match="must not share memory"):
        cavity.multiply(x, x, x, x, x, x, out=(y, y, np.ones(3)))
    with pytest.raises(ValueError, match="broadcast"):
        cavity.multiply(x, np.ones(4), x, x, x, x)
    with pytest.raises(ValueError, match="n_threads must be at least 1, or -1 for all cores, got 0"):
        cavity.multiply(x, x, x, x, x, x, n_threads=0)


# ---------------------------------------------------------------------------------------------- the class


def test_moments_and_density():
    g = Gaussian.from_moments([1.0, -2.0], [4.0, 0.25], [0.0, 1.5])
    np.testing.assert_allclose(g.mean, [1, -2], rtol=LAST_BIT)
    np.testing.assert_allclose(g.variance, [4, 0.25], rtol=LAST_BIT)
    assert g.is_proper.all()
    x = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_allclose(g.logpdf(x), stats.norm([1, -2], [2, 0.5]).logpdf(x) + [0, 1.5], rtol=SUMS)
    np.testing.assert_allclose(g.to_scipy().logpdf(x), g.normalized().logpdf(x), rtol=SUMS)
    assert g[1].log_scale == 1.5
    assert len(g) == 2
    assert g[..., 0].mean == 1.0
    with pytest.raises((ValueError, AttributeError)):
        g.tau[0] = 3
    for improper in (Gaussian(1.0, 0.0, 2.0), Gaussian(1.0, -2.0, 0.5)):
        expected = reference.log_value(0.7, improper.tau, improper.rho, improper.log_scale)
        assert improper.logpdf(0.7) == pytest.approx(float(expected), rel=ROUNDING)
        assert not improper.is_proper
        with pytest.raises(ValueError, match="to_scipy"):
            improper.to_scipy()


def test_the_log_scale_is_the_log_of_the_integral():
    f, g = Gaussian.from_moments(1.0, 2.0, 0.3), Gaussian.from_moments(-1.0, 0.5, -0.7)
    product = f * g
    integral, _ = integrate.quad(
        lambda x: np.exp(f.logpdf(x) + g.logpdf(x)), -30, 30, epsabs=0, epsrel=1e-12, limit=200
    )
    assert product.log_scale == pytest.approx(np.log(integral), abs=LOSSES)


@given(st.lists(gaussians(-8, 8), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_prod_equals_the_definition(factors, random):
    tau, rho, gamma = np.array(factors).T
    product = Gaussian(tau, rho, gamma).prod()
    with mp.workdps(60):
        total = sum(reference.kappa(*f) for f in factors)
        t, r = sum(mp.mpf(f[0]) for f in factors), sum(mp.mpf(f[1]) for f in factors)
        size = sum(abs(f[0]) for f in factors), sum(abs(f[1]) for f in factors)
        assert abs(product.tau - t) <= 20 * EPS * size[0]
        assert abs(product.rho - r) <= 20 * EPS * size[1]
        if abs(r) > 1e-6 * size[1]:
            # the log scale of the rounded result that has the exact value at 0
            gamma = total - mp.log(abs(r) / (2 * mp.pi)) / 2 + t**2 / (2 * r)
            slack = (
                sum(
                    abs(f[2]) + (abs(f[0]) + abs(t / r * f[1])) ** 2 / abs(f[1]) if f[1] else abs(f[2] + f[0] * t / r)
                    for f in factors
                )
                + abs(t / r) * size[0]
                + (t / r) ** 2 * size[1]
                + 20
            )
            assert abs(mp.mpf(product.log_scale) - gamma) <= 1e-13 * slack


def test_prod_shapes_and_limits():
    g = Gaussian(RNG.normal(size=(3, 4, 5)), RNG.gamma(2, size=(3, 4, 5)))
    assert g.prod().shape == ()
    assert g.prod(1).shape == (3, 5)
    assert g.prod((0, -1)).shape == (4,)
    np.testing.assert_allclose(g.prod(1).prod(0).prod().log_scale, g.prod().log_scale, rtol=SOLVES)
    one_by_one = g[0, 0, 0]
    for i in np.ndindex(3, 4, 5):
        one_by_one = one_by_one * g[i] if any(i) else one_by_one
    assert g.prod().log_scale == pytest.approx(one_by_one.log_scale, rel=SOLVES)
    empty = Gaussian(np.zeros(0), 1.0).prod()
    assert (empty.tau, empty.rho, empty.log_scale) == (0.0, 0.0, 0.0)
    with_point = Gaussian([1.0, 3.0, 0.5], [2.0, INF, 1.0]).prod()
    assert (with_point.tau, with_point.rho) == (3.0, INF)
    assert Gaussian([1e-200, 1.0], [1e-250, 1e-250]).prod().rho == 2e-250


@pytest.mark.parametrize("power", [2.0, 0.5, -1.0, 3.7, 1.0, 0.0])
@pytest.mark.parametrize("f", [(1.0, 2.0, 0.3), (1.0, -2.0, 0.3), (1.5, 0.0, 0.3)])
def test_power(f, power):
    g = Gaussian(*f) ** power
    for x in (-1.0, 0.3, 2.0):
        assert g.logpdf(x) == pytest.approx(power * Gaussian(*f).logpdf(x), rel=SUMS, abs=SUMS)


def test_power_errors():
    with pytest.raises(ValueError, match="point mass"):
        Gaussian.point_mass(1.0) ** 2
    with pytest.raises(OverflowError, match="power: the natural parameters"):
        Gaussian(0.0, 1e200) ** 1e200
    with pytest.raises(OverflowError, match="power: the log scale"):
        Gaussian(0.0, 1e-3, 10.0) ** 1e308
    assert (Gaussian(0.0, 1.0, -INF) ** 0).log_scale == 0.0


@pytest.mark.parametrize("f", [(1.0, 2.0, 0.3), (1.0, -2.0, 0.3), (1.5, 0.0, 0.3), (3.0, 1e-320, 0.1)])
@pytest.mark.parametrize(("a", "b"), [(2.0, 1.0), (-0.5, 3.0), (-3.0, 0.0), (1e-5, 2.0)])
def test_pullback_is_composition(f, a, b):
    g, w = Gaussian(*f), np.array([-1.5, 0.0, 0.8])
    np.testing.assert_allclose(g.pullback(a, b).logpdf(w), g.logpdf(a * w + b), rtol=SOLVES, atol=SOLVES)


@pytest.mark.parametrize(("a", "b"), [(2.0, 1.0), (-0.5, 3.0)])
def test_pushforward_is_the_density_of_a_linear_function(a, b):
    g = Gaussian.from_moments(1.2, 0.7, 0.4)
    pushed, y = g.pushforward(a, b), np.linspace(-4, 4, 5)
    expected = stats.norm(a * 1.2 + b, abs(a) * np.sqrt(0.7)).logpdf(y) + 0.4
    np.testing.assert_allclose(pushed.logpdf(y), expected, rtol=SOLVES)
    np.testing.assert_allclose(pushed.pullback(a, b).logpdf(y) + np.log(abs(a)), g.logpdf(y), rtol=SOLVES)


def test_linear_limits_and_errors():
    g = Gaussian.from_moments(1.2, 0.7, 0.4)
    assert (g.pushforward(0.0, 5.0).tau, g.pushforward(0.0, 5.0).rho, g.pushforward(0.0, 5.0).log_scale) == (
        5.0,
        INF,
        0.4,
    )
    moved = Gaussian.point_mass(3.0).pullback(-2.0, 1.0)
    assert (moved.mean, moved.log_scale) == (-1.0, pytest.approx(-np.log(2)))
    assert Gaussian.point_mass(3.0).pushforward(-2.0, 1.0).mean == -5.0
    with pytest.raises(ValueError, match="a must not be zero"):
        g.pullback(0.0)
    with pytest.raises(ValueError, match="a must not be zero for an improper"):
        Gaussian(1.0, -1.0).pushforward(0.0)


@pytest.mark.parametrize("a", [2.0, -0.7, 0.0])
def test_observe_is_corollary_1(a):
    prior = Gaussian.from_moments(0.5, 2.0)
    posterior, log_evidence = prior.observe(1.7, a, 0.3, variance=0.6)
    assert log_evidence == pytest.approx(stats.norm(a * 0.5 + 0.3, np.sqrt(0.6 + a * a * 2)).logpdf(1.7), rel=SUMS)
    s2 = 1 / (1 / 2 + a * a / 0.6)
    assert posterior.variance == pytest.approx(s2, rel=ROUNDING)
    assert posterior.mean == pytest.approx(s2 * (a / 0.6 * (1.7 - 0.3) + 0.5 / 2), rel=ROUNDING)
    if a:  # the same by the algebra
        likelihood = Gaussian.from_moments(1.7, 0.6).pullback(a, 0.3)
        assert (prior * likelihood).log_scale == pytest.approx(log_evidence, rel=SOLVES)
    with pytest.raises(ValueError, match="variance must be positive, got 0.0"):
        prior.observe(1.0, variance=0.0)
    with pytest.raises(ValueError, match="prior must be proper"):
        Gaussian(1.0, 0.0).observe(1.0, variance=1.0)


def test_constructor_errors():
    for arguments, message in [
        ((np.nan, 1.0), "tau must be finite, got tau = nan"),
        (([1.0, INF], 1.0), r"tau must be finite, got tau\[1\] = inf"),
        ((1.0, np.nan), "rho must not be nan or -inf"),
        ((1.0, -INF), "rho must not be nan or -inf"),
        ((1.0, 1.0, np.nan), "log_scale must not be nan"),
        ((np.ones(3), np.ones(4)), r"tau, rho and log_scale must broadcast, got batch shapes \(3,\), \(4,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            Gaussian(*arguments)
    with pytest.raises(TypeError, match="tau must hold real numbers, got dtype complex128"):
        Gaussian(1j, 1.0)
    with pytest.raises(ValueError, match="variance must be zero or positive, got -1.0"):
        Gaussian.from_moments(0.0, -1.0)
    with pytest.raises(TypeError):
        Gaussian(1.0, 1.0) * 3


def test_pickle_and_repr():
    for g in (Gaussian(1.0, 2.0, 3.0), Gaussian([1.0, 2.0], 2.0), SphericalGaussian([1.0, 2.0], 2.0)):
        restored = pickle.loads(pickle.dumps(g))
        np.testing.assert_array_equal(restored.tau, g.tau)
        assert type(restored) is type(g)
    assert repr(Gaussian(1.0, 4.0)) == "<Gaussian: mean 0.25, sd 0.5>"
    assert repr(Gaussian(1.0, 4.0, 2.0)).endswith("sd 0.5, log_scale 2>")
    assert repr(Gaussian(1.0, -2.0)) == "Gaussian(tau=1.0, rho=-2.0, log_scale=0.0)"
    assert "shape (2,)" in repr(Gaussian([1.0, 2.0], 2.0))


# ---------------------------------------------------------------------------------------------- d dimensions

FACTORS = [
    ((1.0, -2.0, 0.5), 2.0),
    ((0.3, 0.1, -0.7), 3.0),
    ((1.0, 0.0, 2.0), -1.0),
    ((1.0, 1.0, 1.0), 0.0),
    ((1e-100, 1e-120, 0.0), 1e-200),
    ((2.0, 1.0, 0.0), -2.0),
]


@pytest.mark.parametrize("f", FACTORS)
@pytest.mark.parametrize("g", FACTORS)
def test_spherical_is_a_product_of_one_dimensional_factors(f, g):
    def apart(factor):
        return Gaussian(np.array(factor[0]), factor[1], 0.1)

    for operation in (lambda a, b: a * b, lambda a, b: a / b):
        full = operation(SphericalGaussian(*f, 0.3), SphericalGaussian(*g, 0.3))
        parts = operation(apart(f), apart(g))
        np.testing.assert_array_equal(full.tau, parts.tau)
        assert full.rho == parts.rho[0]
        size = np.abs(parts.log_scale).sum() + 1
        assert abs(full.log_scale - parts.log_scale.sum()) <= 1e-13 * size


@functools.cache
def exactly(sign, f, g):
    """(tau, rho, gamma) of a product or quotient in many digits, and its conditioning."""
    return reference.combine(sign, *f, *g), reference.conditioning(sign, *f, *g)


@pytest.mark.parametrize("variant", _core.variants("gaussian"))
@pytest.mark.parametrize("d", range(2, 10))
def test_the_last_dimension_counts(d, variant):
    """Every branch, all coordinates of the means but the last 0: the last one's log scale, and those of means of 0."""
    combine = _core.load("gaussian", variant).combine_spherical

    def call(sign, f, g):
        tau = [np.append(np.zeros(d - 1), item[0])[None] for item in (f, g)]
        one, other = (np.array([entry[1]]) for entry in (f, g)), (np.array([element[2]]) for element in (f, g))
        (r1, r2), (g1, g2) = one, other
        status, _, (tau, rho, gamma) = combine(sign, tau[0], r1, g1, tau[1], r2, g2)
        return status, tau[0], rho[0], gamma[0]

    for sign, (f, g) in ((sign, pair) for sign in (1, -1) for pair in BRANCHES):
        status, tau, rho, gamma = call(sign, f, g)
        (expected, size), (centred, more) = exactly(sign, f, g), exactly(sign, (0.0, f[1], 0.0), (0.0, g[1], 0.0))
        exact, size = expected[2] + (d - 1) * centred[2], size + (d - 1) * more
        assert status == 0
        np.testing.assert_array_equal(tau, [*np.zeros(d - 1), float(expected[0])])
        assert rho == float(expected[1])
        if abs(exact) < 1e308:
            assert abs(mp.mpf(gamma) - exact) <= 30 * EPS * (size + abs(exact))
    point = (3.0, INF, 0.5)
    for g in [(0.7, 0.0, 0.25), (0.7, 2.0, 0.25)]:
        normal = (d - 1) * reference.log_value(0.0, 0.0, g[1], 0.0)
        value = float(reference.log_value(3.0, *g) + normal)
        for result, log_scale in ((call(1, point, g), 0.5 + value), (call(-1, point, g), 0.5 - value)):
            np.testing.assert_array_equal(result[1], [*np.zeros(d - 1), 3.0])
            assert result[2:] == (INF, pytest.approx(log_scale, rel=SUMS))
        assert call(1, g, point)[2:] == call(1, point, g)[2:]
    assert call(1, point, (4.0, INF, 0.0))[3] == -INF
    assert np.isnan(call(1, point, point)[3])
    status, tau, _, gamma = call(1, (INF, 1.0, 0.0), (1.0, 2.0, 0.0))
    assert (status, tau[-1]) == (0, INF)
    assert np.isnan(gamma)
    assert call(1, (1.7e308, 1.0, 0.0), (1.7e308, 1.0, 0.0))[0] != 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("variant", _core.variants("gaussian"))
@pytest.mark.parametrize("n", range(1, 18))
def test_the_last_factor_of_a_product_counts(n, variant):
    """Ordinary factors but for the last, whose terms leave the range if formed naively; then the last coordinate."""
    kernel, rng = _core.load("gaussian", variant), np.random.default_rng(n)
    for d in (1, 2, 3):
        tau, rho, gamma = rng.normal(size=(2, n, d)), rng.uniform(0.5, 2.0, (2, n)), rng.normal(size=(2, n))
        tau[:, -1], rho[1, -1] = 0.0, 1e-320
        tau[1, -1, -1] = 1e-10
        out = np.full((2, d), np.nan), np.full(2, np.nan), np.full(2, np.nan)
        assert kernel.prod(tau, rho, gamma, *out, np.empty((2, d)))[0] == 0
        np.testing.assert_allclose(out[0], tau.sum(axis=1), rtol=SUMS, atol=ROUNDING)
        np.testing.assert_allclose(out[1], rho.sum(axis=1), rtol=ROUNDING)
        for b in range(2):
            exact = mp.mpf(0)
            with mp.workdps(700):
                r = sum(map(mp.mpf, rho[b].tolist()))
                for j in range(d):
                    t = sum(map(mp.mpf, tau[b, :, j].tolist()))
                    exact += sum(reference.kappa(*f, 0.0) for f in zip(tau[b, :, j], rho[b], strict=True))
                    exact += t**2 / (2 * r) - mp.log(r / (2 * mp.pi)) / 2
            assert out[2][b] == pytest.approx(float(exact + sum(gamma[b])), rel=SOLVES, abs=SOLVES)
        large = np.concatenate([tau[:1, :1], tau[:1, :1], tau[:1, :1], tau[:1]], axis=1)
        large[0, :3, -1] = [1.7e308, 1.7e308, -1.7e308]
        large[0, 3:, -1] = 0.0
        ones, zeros = np.ones((1, n + 3)), np.zeros((1, n + 3))
        assert kernel.prod(large, ones, zeros, *(a[:1] for a in out), np.empty((2, d)))[0] == 0
        assert (out[0][0, -1], out[2][0]) == (1.7e308, -INF)
    apart, rho = np.zeros((1, n + 1, 1)), np.zeros((1, n + 1))
    apart[0, [0, -1], 0], rho[0, [0, -1]] = (3.0, 4.0), INF
    out = np.empty((1, 1)), np.empty(1), np.empty(1)
    assert kernel.prod(apart, rho, np.zeros((1, n + 1)), *out, np.empty((2, 1)))[0] == 0
    assert [float(a.item()) for a in out] == [3.0, INF, -INF]  # the place of the first of two points


def test_spherical_methods():
    g = SphericalGaussian.from_moments([[1.0, 2.0], [0.0, -1.0]], [0.5, 2.0], [0.1, 0.2])
    assert g.shape == (2,)
    assert g.dim == 2
    x = np.array([0.3, 0.4])
    expected = [
        stats.multivariate_normal(m, v * np.eye(2)).logpdf(x) + c
        for m, v, c in zip(g.mean, g.variance, (0.1, 0.2), strict=True)
    ]
    np.testing.assert_allclose(g.logpdf(x), expected, rtol=SUMS)
    np.testing.assert_allclose(g.prod().log_scale, (g[0] * g[1]).log_scale, rtol=SUMS)
    np.testing.assert_allclose((g**2).log_scale, (g * g).log_scale, rtol=SUMS)
    np.testing.assert_allclose(g.pullback(-2.0, x).logpdf(x), g.logpdf(-2.0 * x + x), rtol=SOLVES)
    pushed = g.pushforward(-2.0, x)
    np.testing.assert_allclose(pushed.mean, -2 * g.mean + x, rtol=ROUNDING)
    np.testing.assert_allclose(pushed.variance, 4 * g.variance, rtol=ROUNDING)
    np.testing.assert_allclose(pushed.log_scale, g.log_scale, atol=ROUNDING)
    posterior, evidence = g[0].observe(x, -2.0, 1.0, variance=0.3)
    likelihood = SphericalGaussian.from_moments(x, 0.3).pullback(-2.0, 1.0)
    np.testing.assert_allclose(evidence, (g[0] * likelihood).log_scale - g[0].log_scale, rtol=SOLVES)
    np.testing.assert_allclose(posterior.mean, (g[0] * likelihood).mean, rtol=SUMS)
    assert SphericalGaussian.uniform(3).dim == 3
    assert (SphericalGaussian.point_mass(x) * g[0]).log_scale == pytest.approx(g[0].logpdf(x), rel=SUMS)
    np.testing.assert_allclose(g[0].to_scipy().mean, g[0].mean)
    with pytest.raises(ValueError, match="different dimensions: 2 and 3"):
        g * SphericalGaussian.uniform(3)
    with pytest.raises(AttributeError, match="immutable"):
        g.rho = 1.0
    with pytest.raises(ValueError, match=r"tau must have shape \(..., d\)"):
        SphericalGaussian(1.0, 1.0)


# ---------------------------------------------------------------------------------------------- projection


def test_match_moments_against_quadrature():
    weights, means, variances = [0.2, 0.5, 1.3], [-1.0, 0.5, 4.0], [0.3, 2.0, 0.7]
    q = cavity.match_moments(np.log(weights), means, variances)
    scales = weights / np.sqrt(2 * np.pi * np.array(variances))

    def moment(k):
        return integrate.quad(
            lambda x: x**k * np.dot(scales, np.exp(-0.5 * (x - np.array(means)) ** 2 / variances)),
            -20,
            25,
            epsabs=1e-13,
            limit=300,
        )[0]

    assert q.log_scale == pytest.approx(np.log(moment(0)), rel=SOLVES)
    assert q.mean == pytest.approx(moment(1) / moment(0), rel=INTEGRAL)
    assert q.variance == pytest.approx(moment(2) / moment(0) - q.mean**2, rel=AT_REST)


def test_match_moments_far_from_zero_and_in_batches():
    means = np.array([[1e9, 1e9 + 1.0], [0.0, 1.0]])
    q = cavity.match_moments([-1000.0, -1000.0], means, 1e-6)
    np.testing.assert_allclose(q.variance, 0.25 + 1e-6, rtol=SOLVES)
    dropped = cavity.match_moments([0.0, -INF], [2.0, 5.0], [1.0, 1.0])
    assert (dropped.mean, dropped.variance) == (2.0, 1.0)
    with pytest.raises(ValueError, match="at least one component must have a positive weight"):
        cavity.match_moments([-INF, -INF], [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="log_weights must not be nan"):
        cavity.match_moments([np.nan], [0.0], [1.0])
    with pytest.raises(ValueError, match="variance must be zero or positive, got -2.0"):
        cavity.match_moments([0.0], [0.0], [-2.0])


# ---------------------------------------------------------------------------------------------- found by attack


@pytest.mark.parametrize("epsilon", [1e-6, 1e-10, 1e-14])
def test_prod_of_factors_that_nearly_cancel(epsilon):
    g = Gaussian([1.0, 1.0], [1.0, -1 + epsilon])
    pair = g[0] * g[1]
    assert g.prod().log_scale == pytest.approx(pair.log_scale, rel=SOLVES)


def test_match_moments_without_weight():
    dropped = cavity.match_moments([-INF, 0.0], [1e20, 1.0], [1.0, 1.0])
    assert (dropped.mean, dropped.variance) == (1.0, 1.0)
    assert cavity.match_moments([-800.0, 0.0], [1e20, 1.0], [1.0, 1.0]).mean == pytest.approx(1.0)
    with pytest.raises(OverflowError, match="variance of the mixture"):
        cavity.match_moments([0.0, 0.0], [-1e200, 1e200], [1.0, 1.0])


def test_observe_at_the_ends_of_the_range():
    with pytest.raises(OverflowError, match="observe"):
        Gaussian(0.0, 1.0).observe(1.0, a=1e200, variance=1.0)
    with pytest.raises(OverflowError, match="observe"):
        Gaussian(0.0, 1.0).observe(1.0, variance=1e-320)
    posterior, _ = Gaussian(0.0, 1e-110).observe(1.0, a=1e-200, variance=1e-300)
    assert posterior.mean == pytest.approx(1e200, rel=AT_REST)
    assert Gaussian(0.0, 1e-200).observe(1e200, variance=1.0)[1] == pytest.approx(-5e199, rel=SOLVES)


def test_an_error_in_place_names_the_row_once():
    n = 300
    arrays = [np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n), np.ones(n), np.zeros(n)]
    arrays[1][200] = arrays[4][200] = 1.5e308
    with pytest.raises(OverflowError, match="element 200"):
        cavity.multiply(*arrays, out=tuple(arrays[:3]))
    assert set(arrays[1][:128]) == {2.0}
    assert set(arrays[1][256:]) == {1.0}


def test_a_power_that_underflows_is_flat():
    g = Gaussian(1e-150, 1e-200) ** 1e-200
    assert g.rho == 0.0
    assert g.log_scale == pytest.approx(1e-200 * Gaussian(1e-150, 1e-200).logpdf(0.0), rel=SOLVES)


# ---------------------------------------------------------------------------------------------- any exponents

WIDE = np.random.default_rng(8)


def any_number(top, count=None):
    """Numbers of either sign with exponents in base 2 up to `top`."""
    return np.ldexp(WIDE.choice([-1.0, 1.0], count) * WIDE.uniform(1, 2, count), WIDE.integers(-top, top, count))


def prod_slack(tau, rho, gamma, t, r, d=1):
    """What errors of eps in the factors can do to the log scale of their product, in units of eps."""
    place = sum(mp.sign(b) * a for a, b in zip(tau, rho, strict=True)) / max(sum(map(abs, rho)), mp.mpf("1e-999"))
    centre, slack = t / r, mp.mpf(50)
    for a, b, g in zip(tau, rho, gamma, strict=True):
        slack += abs(g) + (abs(mp.log(abs(b))) if b else 0) + abs(place - centre) * abs(a)
        pull = abs(a) + abs(centre * b)
        slack += pull * abs(a / b - centre) + EPS * pull**2 / abs(b) if b else abs(a * centre)
    return slack + (place - centre) ** 2 * sum(map(abs, rho))


def test_a_factor_that_is_nearly_all_of_a_product_leaves_what_the_other_says():
    """Far out, where the other is exp(1.6e362): beyond float64, though 1e-130 of what cancels."""
    tau = [float.fromhex("0x1.19e914bbfb26dp-989"), float.fromhex("-0x1.884c2c05c93acp+663")]
    rho = [float.fromhex("-0x1.eb436d5558ed5p-745"), float.fromhex("0x1.647607f5cf162p-311")]
    assert Gaussian(tau, rho, [-1.2, -0.4]).prod().log_scale == INF
    assert Gaussian(tau[::-1], rho[::-1], [-1.2, -0.4]).prod().log_scale == INF


@pytest.mark.more_draws
@pytest.mark.long_cases("8")
@pytest.mark.parametrize("top", [8, *(pytest.param(top, marks=pytest.mark.long) for top in (90, 110, 300)), 1000])
def test_prod_at_any_exponents(top):
    for _ in range(count_draws(60)):
        n = int(WIDE.integers(1, 6))
        rho = np.where(WIDE.random(n) < 0.15, 0.0, any_number(top, n))
        rho = np.abs(rho) if WIDE.random() < 0.5 else rho
        tau, gamma = np.where(WIDE.random(n) < 0.1, 0.0, any_number(top, n)), WIDE.normal(size=n)
        product = Gaussian(tau, rho, gamma).prod()
        with mp.workdps(1400):
            factors = [[mp.mpf(float(v)) for v in slot] for slot in (tau, rho, gamma)]
            t, r = sum(factors[0]), sum(factors[1])
            assert abs(product.tau - t) <= 10 * EPS * sum(map(abs, factors[0]))
            assert abs(product.rho - r) <= 10 * EPS * sum(map(abs, factors[1]))
            if abs(r) > 1e-3 * sum(map(abs, factors[1])):
                expected = sum(reference.kappa(*f) for f in zip(*factors, strict=True))
                expected += t**2 / (2 * r) - mp.log(abs(r) / (2 * mp.pi)) / 2
                if abs(expected) < 1e308:
                    assert abs(product.log_scale - expected) <= 30 * EPS * prod_slack(*factors, t, r)
                else:
                    assert product.log_scale == np.sign(float(mp.sign(expected))) * INF


def test_prod_forms_no_intermediate_product():
    tau = [2.9456389108415354e30, 4.309012688021266e-29, -6.178717854092879e-4]
    rho = [0, -1.2759476168213699e-11, 4645246.51866707]
    with mp.workdps(200):
        exact = sum(map(mp.mpf, tau)) ** 2 / (2 * sum(map(mp.mpf, rho)))  # next to which all else is nothing
    single, spherical = Gaussian(tau, rho).prod(), SphericalGaussian(np.array(tau)[:, None] * [1, 0], rho).prod()
    assert single.log_scale == pytest.approx(float(exact), rel=ROUNDING)
    assert spherical.log_scale == pytest.approx(float(exact), rel=ROUNDING)
    big = Gaussian([1.7e308, 1.7e308, -1.7e308], [1.7e308, 1.7e308, -1.7e308]).prod()  # out of range in between only
    assert (big.tau, big.rho) == (1.7e308, 1.7e308)
    with pytest.raises(OverflowError, match="multiply: the natural parameters of element 0 leave the range"):
        Gaussian([0.0, 0.0], [1.7e308, 1.7e308]).prod()
    at = Gaussian([3.0, 1e200, 1e-200], [INF, 1e250, 1e-250], [0.5, 0.25, 0.0]).prod()
    expected = 0.75 + reference.log_value(3.0, 1e200, 1e250, 0.0) + reference.log_value(3.0, 1e-200, 1e-250, 0.0)
    assert (at.tau, at.rho) == (3.0, INF)
    assert at.log_scale == pytest.approx(float(expected), rel=ROUNDING)
    assert Gaussian([3.0, 4.0, 1e200], [INF, INF, 1.0]).prod().log_scale == -INF
    assert np.isnan(Gaussian([3.0, 3.0, 1e200], [INF, INF, 1.0]).prod().log_scale)


def near(value, exact, size, tolerance=20):
    """Equal to `tolerance` roundings of `size`, below the smallest normal number to one of its last digit."""
    if abs(exact) > 1e308:
        return np.isinf(value)
    return abs(mp.mpf(float(value)) - exact) <= tolerance * EPS * size + mp.mpf("1e-320")


@pytest.mark.more_draws
@pytest.mark.long_cases("8", "110")
@pytest.mark.sample(2)
@pytest.mark.parametrize("top", [8, 90, 110, 300, 1000])
def test_linear_functions_at_any_exponents(top):
    """Where a result is in range it is right, wherever the terms of its formula go; where it is not, that is said."""
    for _ in range(count_draws(60)):
        t, r, a, b = any_number(top, 4)
        g = float(WIDE.normal())
        r = 0.0 if WIDE.random() < 0.1 else r
        with mp.workdps(1400):
            T, R, A, B, inverse = mp.mpf(t), mp.mpf(r), mp.mpf(a), mp.mpf(b), 1 / mp.mpf(a)
            at = dict(pullback=(A, B), pushforward=(inverse, -B * inverse))
            for name in ("pullback", "pushforward") if r else ("pullback",):
                slope, offset = at[name]
                tau, rho = slope * (T - R * offset), slope * slope * R
                terms = abs(slope * T) + abs(slope * R * offset)
                if max(abs(tau), abs(rho)) > 1.7e308:
                    with pytest.raises(OverflowError, match=f"{name}: the natural parameters leave the range"):
                        getattr(Gaussian(t, r, g), name)(a, b)
                    continue
                result = getattr(Gaussian(t, r, g), name)(a, b)
                assert near(result.tau, tau, terms)
                assert near(result.rho, rho, abs(rho))
                if result.rho:
                    expected = mp.mpf(g) - (mp.log(abs(A)) if name == "pullback" else 0)
                    assert near(result.log_scale, expected, abs(g) + abs(mp.log(abs(A))) + 1)
                else:
                    expected = reference.kappa(t, r, g) + T * offset - R * offset**2 / 2
                    expected -= mp.log(abs(A)) if name == "pushforward" else 0
                    size = abs(g) + 1e3 + (abs(R * offset) + abs(T)) ** 2 / abs(R) if r else abs(T * offset) + abs(g)
                    assert near(result.log_scale, expected, size)


@pytest.mark.more_draws
@pytest.mark.long_cases("8", "110")
@pytest.mark.sample(2)
@pytest.mark.parametrize("top", [8, 90, 110, 300, 1000])
def test_observe_at_any_exponents(top):
    for _ in range(count_draws(60)):
        t, r, a, b, y, noise = any_number(top, 6)
        r, noise = abs(r), abs(noise)
        with mp.workdps(1400):
            T, R, A, B, Y, V = map(mp.mpf, (t, r, a, b, y, noise))
            rho, tau = R + A * A / V, T + A / V * (Y - B)
            if max(rho, abs(tau)) > 1.7e308:
                with pytest.raises(OverflowError, match="observe: the natural parameters leave the range"):
                    Gaussian(t, r).observe(y, a, b, variance=noise)
                continue
            posterior, evidence = Gaussian(t, r).observe(y, a, b, variance=noise)
            assert near(posterior.rho, rho, rho)
            assert near(posterior.tau, tau, abs(T) + abs(A / V) * (abs(Y) + abs(B)))
            total, residual = V + A * A / R, Y - A * T / R - B
            expected = -(mp.log(2 * mp.pi * total) + residual**2 / total) / 2
            terms = abs(Y) + abs(A * T / R) + abs(B)
            size = 10 + abs(mp.log(total)) + abs(residual) * terms / total + EPS * terms**2 / total
            assert near(evidence, expected, size)


def test_moments_beyond_float64():
    """Means are refused; a variance is infinite, without a warning, which the tests make an error."""
    g = Gaussian([1e200, -1e200, 1.0], [1e-200, 1e-200, 5e-324])
    assert g.variance[2] == INF
    for item in (g, Gaussian(1e200, 1e-200), SphericalGaussian([1e200, 0.0], 1e-200)):
        with pytest.raises(OverflowError, match="mean: tau/rho leave the range of float64"):
            item.mean  # noqa: B018
    assert Gaussian(1e-79, 1e239).logpdf(-5e105) == -INF


@pytest.mark.parametrize(("kind", "mean"), [(Gaussian, [1.0, 2.0, -3.0]), (SphericalGaussian, [[1.0, 2.0]] * 3)])
def test_moments_in_place_of_natural_parameters(kind, mean):
    variance = [0.5, 0.0, INF]
    made, same = kind(mean=mean, variance=variance, log_scale=0.25), kind.from_moments(mean, variance, 0.25)
    for name in ("tau", "rho", "log_scale"):
        np.testing.assert_array_equal(getattr(made, name), getattr(same, name))
    assert made.rho.tolist() == [2.0, INF, 0.0]
    np.testing.assert_array_equal(np.asarray(made.tau)[1], mean[1])
    for arguments in (
        {},
        {"tau": mean},
        {"mean": mean},
        {"rho": 1.0, "mean": mean},
        {"tau": mean, "rho": 1.0, "variance": 1.0},
        {"tau": mean, "rho": 1.0, "mean": mean, "variance": 1.0},
    ):
        message = " and ".join(arguments) or "neither"
        with pytest.raises(TypeError, match=rf"give mean and variance, or tau .* and rho .*; got {message}$"):
            kind(**arguments)
    with pytest.raises(ValueError, match="variance must be zero or positive, got -1.0"):
        kind(mean=mean, variance=-1.0)


def test_means_beyond_float64_are_refused():
    """tau and rho are finite, tau/rho is 1e400."""
    with pytest.raises(OverflowError, match="mean: tau/rho leave the range of float64"):
        Gaussian(1e200, 1e-200).mean  # noqa: B018
    with pytest.raises(OverflowError, match="mean"):
        Gaussian([1.0, 1e200], [1.0, 1e-200]).mean  # noqa: B018
    assert Gaussian(1e200, 1e-100).mean == pytest.approx(1e300)
    np.testing.assert_array_equal(Gaussian([1e200, 3.0], [0.0, np.inf]).mean, [np.nan, 3.0])
