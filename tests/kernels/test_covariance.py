"""The covariance kernel: many digits, the naive twin, rows and symmetry, extremes, laws, equal bits in all variants."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import covariances as reference
from reference.covariances import (
    ADD,
    CONSTANT,
    LINEAR,
    MATERN,
    MATERN12,
    MATERN32,
    MATERN52,
    MATERN_ORDER,
    MULTIPLY,
    NAMES,
    PERIODIC,
    RATIONAL_QUADRATIC,
    RBF,
    WHITE,
)
from support.tolerances import INTEGRAL, LAST_BIT, LOSSES, ROOT_EPS, ROUNDING, SOLVES, SUMS

from cavity import _core
from cavity.covariances import program as covariance_program

VARIANTS = _core.variants("covariance")
MAIN = _core.best("covariance")
STATIONARY = (RBF, MATERN12, MATERN32, MATERN52, MATERN, RATIONAL_QUADRATIC)
LEAVES = (CONSTANT, WHITE, LINEAR, *STATIONARY, PERIODIC)
COMPOSED = (
    (RBF, WHITE, ADD),
    (CONSTANT, MATERN52, MULTIPLY),
    (RBF, LINEAR, ADD, PERIODIC, MULTIPLY, RATIONAL_QUADRATIC, ADD),
    (MATERN32, LINEAR, RBF, MULTIPLY, ADD, WHITE, MATERN12, MULTIPLY, ADD),
    (RBF, MATERN12, MATERN32, MATERN52, MULTIPLY, ADD, MULTIPLY),
)
PROGRAMS = (*((op,) for op in LEAVES), *COMPOSED)
SHAPES = ((1, 1, 1), (2, 5, 2), (7, 8, 3), (63, 64, 8), (65, 130, 3), (130, 63, 1), (17, 65, 17))


def title(value):
    """Name a program or a leaf in the names of tests."""
    if isinstance(value, tuple) and value in PROGRAMS:
        return " ".join(NAMES[op] for op in value)
    return NAMES[value] if isinstance(value, int) and not isinstance(value, bool) and value < len(NAMES) else None


def draw(program, n, m, n_features, seed=0, spread=1.0):
    """Return (code, parameters, left, right) with columns of their own for each leaf."""
    rng = np.random.default_rng(seed)
    code, n_columns, n_parameters = [], 0, 0
    for op in program:
        width = n_features if LINEAR <= op < ADD else 0
        code.append((op, n_columns, width, n_parameters) if op < ADD else (op, 0, 0, 0))
        n_columns += width
        n_parameters += reference.n_parameters(op, width) if op < ADD else 0
    left, right = (spread * rng.normal(size=(n_columns, size)) / np.sqrt(n_features) for size in (n, m))
    parameters = rng.uniform(0.3, 2.5, n_parameters)
    for op, _, _, first in code:
        if op == MATERN:
            parameters[first + 1 : first + reference.n_parameters(op, 0)] = reference.matern_parameters(MATERN_ORDER)
    return np.array(code, dtype=np.int32), parameters, left, right


def weights_for(n, m, symmetric, seed=1):
    w = np.random.default_rng(seed).normal(size=(n, m))
    return w + w.T if symmetric else w


def fill(code, parameters, left, right, symmetric, span=None, module=MAIN):
    """Return the Gram matrix, nan where nothing was written."""
    out = np.full((left.shape[1], right.shape[1]), np.nan)
    module.fill(code, parameters, left, right, symmetric, *(span or (0, left.shape[1])), out)
    return out


def contract(code, parameters, left, right, symmetric, weights, span=None, module=MAIN):
    """Return the sums of all slots."""
    out = np.full(sum(reference.n_slots(op, width) for op, _, width, _ in code.tolist() if op < ADD), np.nan)
    module.contract(code, parameters, left, right, symmetric, *(span or (0, left.shape[1])), weights, out)
    return out


def contract_inputs(code, parameters, left, right, weights, span=None, module=MAIN):
    """Return the derivatives by coordinates of the left points, nan where nothing was written."""
    out = np.full(left.shape, np.nan)
    module.contract_inputs(code, parameters, left, right, *(span or (0, left.shape[1])), weights, out)
    return out


def everything(code, parameters, left, right, symmetric, module=MAIN):
    """Return what all three operations do."""
    w = weights_for(left.shape[1], right.shape[1], symmetric)
    return (
        fill(code, parameters, left, right, symmetric, module=module),
        contract(code, parameters, left, right, symmetric, w, module=module),
        contract_inputs(code, parameters, left, right, w, module=module),
    )


def assert_same_bits(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(np.ascontiguousarray(a).view(np.int64), np.ascontiguousarray(b).view(np.int64))


def assert_within(result, expected, bound):
    off = np.abs(result - expected)
    assert np.all(off <= bound), f"{float(np.max(off / bound))} bounds off"


# ---------------------------------------------------------------------------------------------- many digits


def textbook(op, x, z, variance, scales, shape, periods):
    """k(x, z) of one leaf in its usual parameters, for numbers of any kind."""
    if op == CONSTANT:
        return variance
    if op == LINEAR:
        return sum(v * a * b for v, a, b in zip(scales, x, z, strict=True))
    if op == PERIODIC:
        terms = zip(scales, periods, x, z, strict=True)
        return variance * mp.exp(-2 * sum(mp.sin(mp.pi * (a - b) / t) ** 2 / s**2 for s, t, a, b in terms))
    r2 = sum((a - b) ** 2 / s**2 for s, a, b in zip(scales, x, z, strict=True))
    r = mp.sqrt(r2)
    if op == RATIONAL_QUADRATIC:
        return variance * (1 + r2 / (2 * shape)) ** -shape
    s = r * mp.sqrt({MATERN12: 1, MATERN32: 3, MATERN52: 5, MATERN: 2 * MATERN_ORDER + 1}.get(op, 0))
    if op == MATERN:  # its definition, by a Bessel function
        nu = mp.mpf(2 * MATERN_ORDER + 1) / 2
        return variance * 2 ** (1 - nu) / mp.gamma(nu) * s**nu * mp.besselk(nu, s)
    factor = {RBF: mp.exp(-r2 / 2), MATERN12: 1, MATERN32: 1 + s, MATERN52: 1 + s + s**2 / 3}[op]
    return variance * factor * mp.exp(-s)


def textbook_slots(op):
    """Settings whose coordinates are exact in double, in the order of the slots: a list, and how to read it."""
    sizes = {CONSTANT: (1, 0, 0, 0), LINEAR: (0, 2, 0, 0), RATIONAL_QUADRATIC: (1, 2, 1, 0), PERIODIC: (1, 2, 0, 2)}
    n_variances, n_scales, n_shapes, n_periods = sizes.get(op, (1, 2, 0, 0))
    return [1.75][:n_variances] + [0.625][:n_shapes] + [0.25, 4.0][:n_scales] + [2.0, 0.5][:n_periods], (
        n_variances,
        n_variances + n_shapes,
        n_variances + n_shapes + n_scales,
    )


@pytest.mark.parametrize("op", [op for op in LEAVES if op != WHITE], ids=title)
def test_many_digits(op):
    """Values and derivatives of a weighted sum in 40 digits, by differences of the usual formulas."""
    X, Z = [[0.5, -1.25], [0.375, 2.0], [-0.5, 0.75]], [[0.25, 1.0], [0.5, -1.5]]
    settings, (a, b, c) = textbook_slots(op)
    w = weights_for(3, 2, False)

    def value(values, x, z):
        return textbook(op, x, z, *(values[:a] or [None]), values[b:c], *(values[a:b] or [None]), values[c:])

    def total(*logs):
        values = [mp.exp(t) for t in logs]
        return sum(mp.mpf(w[i, j]) * value(values, X[i], Z[j]) for i in range(3) for j in range(2))

    divisor = {LINEAR: 1 / np.sqrt(settings[:2]), PERIODIC: np.array(settings[c:])}.get(op, np.array(settings[b:c]))
    left, right = (np.ascontiguousarray((np.array(x) / divisor).T) if op else np.empty((0, len(x))) for x in (X, Z))
    parameters = settings[:b] if op != LINEAR else []
    parameters += [s**-2 for s in settings[b:c]] if op == PERIODIC else []
    parameters += reference.matern_parameters(MATERN_ORDER) if op == MATERN else []
    code = np.array([[op, 0, len(left), 0]], dtype=np.int32)
    arguments = code, np.array(parameters), left, right
    with mp.workdps(40):
        k = [[float(value([mp.mpf(s) for s in settings], x, z)) for z in Z] for x in X]
        logs = [mp.log(s) for s in settings]
        slots = [float(mp.diff(total, logs, tuple(int(i == j) for j in range(len(logs))))) for i in range(len(logs))]
        inputs = np.zeros(left.shape)
        for d in range(len(left)):
            for i in range(3):
                for j in range(2):
                    x, z = X[i], Z[j]
                    slope = mp.diff(lambda t, x=x, z=z, d=d: value(settings, [*x[:d], t, *x[d + 1 :]], z), x[d])
                    inputs[d, i] += w[i, j] * float(slope) * divisor[d]
    np.testing.assert_allclose(fill(*arguments, False), k, rtol=2e-14)
    np.testing.assert_allclose(contract(*arguments, False, w), slots, rtol=SOLVES, atol=LAST_BIT)
    np.testing.assert_allclose(contract_inputs(*arguments, w), inputs, rtol=SOLVES, atol=LAST_BIT)
    np.testing.assert_allclose(
        reference.slot_sums(*arguments, False, w)[0].astype(float), slots, rtol=SOLVES, atol=LAST_BIT
    )
    np.testing.assert_allclose(reference.input_sums(*arguments, w)[0].astype(float), inputs, rtol=SOLVES, atol=LAST_BIT)


# ---------------------------------------------------------------------------------------------- the twin


@pytest.mark.long_cases("rbf linear add periodic multiply rational quadratic add-False")
@pytest.mark.sample(3)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=title)
def test_equals_the_naive_twin(program, symmetric):
    for n, m, n_features in SHAPES:
        code, parameters, left, right = draw(program, n, m, n_features)
        right = left if symmetric else right
        w = weights_for(n, right.shape[1], symmetric)
        arguments = code, parameters, left, right
        k = fill(*arguments, symmetric)
        assert_within(k, *reference.gram(*arguments, symmetric))
        assert_within(contract(*arguments, symmetric, w), *reference.slot_sums(*arguments, symmetric, w))
        assert_within(contract_inputs(*arguments, w), *reference.input_sums(*arguments, w))
        if symmetric:
            np.testing.assert_array_equal(k, k.T)


@pytest.mark.parametrize("op", [*STATIONARY, PERIODIC], ids=title)
def test_small_values_keep_their_digits(op):
    """Distances up to where k is 1e-300: the error grows with log k only."""
    code, parameters, left, right = draw((op,), 40, 70, 2, spread=30.0 if op == MATERN12 else 12.0)
    parameters[1:] *= 40.0 if op == PERIODIC else 1.0
    value, bound = reference.gram(code, parameters, left, right, False)
    assert np.min(value) < 1e-20 or op == RATIONAL_QUADRATIC
    assert_within(fill(code, parameters, left, right, False), value, bound)


def test_leaves_may_share_columns():
    """The kernel halves the coordinates of stationary leaves: of its own copy."""
    code = np.array([[RBF, 0, 2, 0], [LINEAR, 1, 2, 0], [ADD, 0, 0, 0], [PERIODIC, 0, 3, 1], [MULTIPLY, 0, 0, 0]])
    code, rng = code.astype(np.int32), np.random.default_rng(0)
    arguments = code, rng.uniform(1, 2, 5), rng.normal(size=(3, 20)), rng.normal(size=(3, 9))
    w = weights_for(20, 9, False)
    assert_within(fill(*arguments, False), *reference.gram(*arguments, False))
    assert_within(contract(*arguments, False, w), *reference.slot_sums(*arguments, False, w))
    assert_within(contract_inputs(*arguments, w), *reference.input_sums(*arguments, w))


def test_large_matrices():
    """Beyond 2^20 entries the result is written past the caches."""
    code, parameters, left, right = draw((LINEAR,), 1030, 1047, 1)
    np.testing.assert_array_equal(fill(code, parameters, left, right, False), left.T * right)
    for start in range(3):  # other alignments
        part = np.ascontiguousarray(left[:, start:])
        np.testing.assert_array_equal(fill(code, parameters, part, part, True), part.T * part)


# ---------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("program", PROGRAMS, ids=title)
def test_ranges_of_rows_make_up_the_whole(program):
    code, parameters, left, right = draw(program, 150, 70, 3)
    w, cuts = weights_for(150, 70, False), (0, 1, 9, 64, 139, 150)
    spans = list(pairwise(cuts))
    full, inputs = fill(code, parameters, left, right, False), contract_inputs(code, parameters, left, right, w)
    symmetric, rows = fill(code, parameters, left, left, True), np.arange(150)
    for start, stop in spans:
        part = fill(code, parameters, left, right, False, (start, stop))
        assert_same_bits([part[start:stop]], [full[start:stop]])
        assert np.all(np.isnan(np.delete(part, slice(start, stop), axis=0)))
        part = fill(code, parameters, left, left, True, (start, stop))
        later = np.maximum(rows[:, None], rows)
        written = (later >= start) & (later < stop)
        assert_same_bits([part[written]], [symmetric[written]])
        assert np.all(np.isnan(part[~written]))
        part = contract_inputs(code, parameters, left, right, w, (start, stop))
        assert_same_bits([part[:, start:stop]], [inputs[:, start:stop]])
        assert np.all(np.isnan(np.delete(part, slice(start, stop), axis=1)))


@pytest.mark.sample(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=title)
@pytest.mark.parametrize("symmetric", [False, True])
def test_sums_over_ranges_of_rows(program, symmetric):
    code, parameters, left, right = draw(program, 90, 70, 2)
    right = left if symmetric else right
    w, rows = weights_for(90, right.shape[1], symmetric), np.arange(90)
    for span in ((0, 0), (0, 1), (5, 70), (70, 90)):
        inside = (rows >= span[0]) & (rows < span[1])
        stored = w * (inside[np.maximum(rows[:, None], rows)] if symmetric else inside[:, None])
        result = contract(code, parameters, left, right, symmetric, w, span)
        assert_within(result, *reference.slot_sums(code, parameters, left, right, symmetric, stored))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", [LINEAR, RBF, PERIODIC], ids=title)
def test_rows_of_a_block_see_nothing_of_the_block_before(op, variant):
    """Derivatives by the coordinates of the last rows of every block, whose sums begin at 0."""
    for n in (127, 128, 129, 255, 256, 257, 264):
        code, parameters, left, right = draw((op,), n, 9, 2)
        w = weights_for(n, 9, False)
        result = contract_inputs(code, parameters, left, right, w, module=_core.load("covariance", variant))
        assert_within(result, *reference.input_sums(code, parameters, left, right, w))


@pytest.mark.parametrize("variant", VARIANTS)
def test_targets(variant):
    """Rows compared with points scaled once: the twin, and the first row that is not finite or out of reach."""
    for n in (1, 2, 8, 9, 129):
        for m in (1, 7, 8, 9, 64, 65):
            kernel, rng = _core.load("covariance", variant), np.random.default_rng(n)
            code, parameters, _, right = draw((RBF, LINEAR, ADD), 1, m, 3)
            columns = np.array([0, 2, 5, 1, 3, 4], dtype=np.int32)  # 6 is not asked for, but has to be finite
            origin, divisors = rng.normal(size=6), rng.uniform(0.5, 2.0, 6)
            target = kernel.Target(code, parameters, right, columns, origin, divisors, 100.0, 7)
            X, out = rng.normal(size=(n, 7)), np.full((n, m), np.nan)
            assert target.fill(X, out) == n
            assert_within(out, *reference.gram(code, parameters, ((X[:, columns] - origin) / divisors).T, right, False))
            for i in {0, n // 2, n - 1}:
                for column, value in ((0, np.nan), (6, np.nan), (6, -np.inf), (0, 1e4), (4, 1e4)):
                    spoilt, untouched = X.copy(), np.full((n, m), np.nan)
                    spoilt[i:, column] = value
                    assert target.fill(spoilt, untouched) == i
                    assert np.all(np.isnan(untouched))


def test_weights_right_of_the_diagonal_are_not_read():
    code, parameters, left, _ = draw(COMPOSED[2], 100, 1, 3)
    w = weights_for(100, 100, True)
    lower = np.where(np.tri(100, dtype=bool), w, np.nan)
    assert_same_bits(
        [contract(code, parameters, left, left, True, w)], [contract(code, parameters, left, left, True, lower)]
    )


def test_no_rows_is_nothing():
    code, parameters, left, right = draw((RBF,), 5, 6, 2)
    assert np.all(np.isnan(fill(code, parameters, left, right, False, (3, 3))))
    np.testing.assert_array_equal(contract(code, parameters, left, right, False, np.ones((5, 6)), (2, 2)), 0)
    assert np.all(np.isnan(contract_inputs(code, parameters, left, right, np.ones((5, 6)), (5, 5))))


# ---------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("op", [*STATIONARY, PERIODIC], ids=title)
def test_duplicates(op):
    """k is the variance, and nothing but the variance has a derivative there."""
    code, parameters, left, _ = draw((op,), 1, 1, 3)
    left = np.repeat(left, 11, axis=1)
    k, slots, inputs = everything(code, parameters, left, left, True)
    np.testing.assert_array_equal(k, parameters[0])
    np.testing.assert_allclose(slots[0], parameters[0] * weights_for(11, 11, True).sum(), rtol=SUMS)
    np.testing.assert_array_equal(slots[1:], 0)
    np.testing.assert_array_equal(inputs, 0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", [*STATIONARY, PERIODIC], ids=title)
def test_tiny_and_huge_distances(op, variant):
    """Never nan, nor inf: near 0 the variance, far away 0; for PERIODIC these are whole turns."""
    for distance in (1e-320, 1e-200, 1e-160, 1e-8, 1e3, 1e8, 1e16, 1e150, 1e160, 1e200, 1.7e308):
        code, parameters, _, _ = draw((op,), 1, 1, 2)
        left = np.array([[0.0, distance, -distance, 1.0, distance], [0.0, 0.0, distance, 2.0, distance]])
        k, slots, inputs = everything(code, parameters, left, left, True, module=_core.load("covariance", variant))
        assert np.all(np.isfinite(k))
        assert np.all(np.isfinite(slots))
        assert np.all(np.isfinite(inputs))
        assert np.all((k >= 0) & (k <= parameters[0]))
        np.testing.assert_array_equal(np.diag(k), parameters[0])
        if distance <= 1e-8:
            assert k[0, 1] == pytest.approx(parameters[0], rel=ROOT_EPS)
        elif op == PERIODIC:
            assert distance < 1e16 or k[0, 1] == parameters[0]
        elif op != RATIONAL_QUADRATIC or distance >= 1e160:
            assert k[0, 1] == k[1, 2] == 0


def test_a_derivative_beyond_reach_of_one_column():
    """One column too far for a double squared: k and its derivatives are 0, also by the others."""
    for op in STATIONARY:
        code, parameters, _, _ = draw((op,), 1, 1, 2)
        left, right = np.array([[1.5e308], [0.5]]), np.array([[-1.5e308], [0.25]])
        k, slots, inputs = everything(code, parameters, left, right, False)
        for result in (k, slots, inputs):
            np.testing.assert_array_equal(result, 0)


def test_rational_quadratic_of_extreme_shapes():
    """A large shape is an RBF; the derivative by the shape keeps its digits where 1 + r^2/(2 shape) has none of r."""
    code, _, left, right = draw((RATIONAL_QUADRATIC,), 20, 30, 2)
    rbf = np.array([[RBF, 0, 2, 0]], dtype=np.int32)
    for shape in (1e20, 1e100, 1e300):
        p = np.array([1.5, shape])
        np.testing.assert_allclose(fill(code, p, left, right, False), fill(rbf, p, left, right, False), rtol=4e-15)
    w = np.ones((20, 30))
    r2 = np.sum((left[:, :, None] - right[:, None]) ** 2, axis=0)
    for shape in (1e5, 1e12):
        p = np.array([1.5, shape])
        first_order = -np.sum(fill(rbf, p, left, right, False) * r2**2) / (8 * shape)
        assert contract(code, p, left, right, False, w)[1] == pytest.approx(
            first_order, rel=20 / shape + ROUNDING, abs=0
        )
    np.testing.assert_allclose(fill(code, np.array([1.5, 1e-300]), left, right, False), 1.5, rtol=LAST_BIT)
    far = np.array([[0.0, 1e200], [0.0, 0.0]])  # r^2 overflows: 0 by agreement, though 1e-40 is nearer
    np.testing.assert_array_equal(fill(code, np.array([1.5, 0.1]), far, far, True), 1.5 * np.eye(2))


def test_whole_and_half_turns():
    """delta is reduced exactly: also 2^51 + 1/2 turns are half a turn."""
    code, p = np.array([[PERIODIC, 0, 1, 0]], dtype=np.int32), np.array([1.5, 0.25])
    full = np.array([[0.0, 1.0, -3.0, 2.0**40, 2.0**52, 2.0**53, 1e300]])
    half = np.array([[0.5, -1.5, 2.0**40 + 0.5, 2.0**51 + 0.5]])
    zero = np.zeros((1, 1))
    np.testing.assert_array_equal(fill(code, p, full, zero, False), 1.5)
    np.testing.assert_allclose(fill(code, p, half, zero, False), 1.5 * np.exp(-0.5), rtol=4e-16)
    for x in (full, half):
        np.testing.assert_array_equal(contract_inputs(code, p, x, zero, np.ones((x.shape[1], 1))), 0)
        assert contract(code, p, x, zero, False, np.ones((x.shape[1], 1)))[2] == 0


@pytest.mark.parametrize("n", [1, 8, 63, 64, 65, 130])
def test_white_noise_is_on_the_diagonal_of_a_symmetric_matrix_only(n):
    code, parameters, left, right = draw((WHITE, RBF, MULTIPLY), n, n, 2)
    np.testing.assert_array_equal(fill(code, parameters, left, left, True), np.prod(parameters) * np.eye(n))
    np.testing.assert_array_equal(fill(code, parameters, left, left.copy(), False), 0)
    single = code[:1], parameters, left, left
    w = weights_for(n, n, True)
    np.testing.assert_allclose(contract(*single, True, w), [parameters[0] * np.trace(w)], rtol=SUMS, atol=LAST_BIT)
    np.testing.assert_array_equal(contract(*single, False, w), 0)


# ---------------------------------------------------------------------------------------------- laws


@given(op=st.sampled_from((*STATIONARY, PERIODIC)), seed=st.integers(0, 1000), shift=st.integers(-(2**20), 2**20))
def test_points_may_be_moved_together(op, seed, shift):
    """Coordinates that are moved exactly lead to the same bits; derivatives by both points cancel."""
    code, parameters, left, right = draw((op,), 17, 23, 2, seed)
    left, right = np.round(left * 2.0**20) / 2.0**20, np.round(right * 2.0**20) / 2.0**20
    assert_same_bits(
        everything(code, parameters, left, right, False),
        everything(code, parameters, left + shift, right + shift, False),
    )
    w = weights_for(17, 23, False)
    one = contract_inputs(code, parameters, left, right, w)
    other = contract_inputs(code, parameters, right, left, np.ascontiguousarray(w.T))
    np.testing.assert_allclose(one.sum(axis=1), -other.sum(axis=1), atol=SOLVES)


@given(program=st.sampled_from(COMPOSED), seed=st.integers(0, 1000))
def test_symmetric_and_cross_agree(program, seed):
    """But for white noise, which is on the diagonal of the symmetric one."""
    code, parameters, left, _ = draw(program, 29, 1, 2, seed)
    parameters[[row[3] for row in code if row[0] == WHITE]] = 0.0
    w = weights_for(29, 29, True, seed)
    assert_same_bits([fill(code, parameters, left, left, True)], [fill(code, parameters, left, left, False)])
    one, other = (contract(code, parameters, left, left, symmetric, w) for symmetric in (True, False))
    np.testing.assert_allclose(one, other, rtol=INTEGRAL, atol=LOSSES)


@given(op=st.sampled_from((*STATIONARY, PERIODIC, CONSTANT)), seed=st.integers(0, 1000))
def test_a_covariance_is_proportional_to_its_variance(op, seed):
    code, parameters, left, right = draw((op,), 12, 70, 3, seed)
    w = weights_for(12, 70, False)
    k = fill(code, parameters, left, right, False)
    slots = contract(code, parameters, left, right, False, w)
    assert slots[0] == pytest.approx(np.sum(w * k), abs=SUMS * np.sum(np.abs(w * k)))
    parameters[0] *= 4.0
    assert_same_bits([4.0 * k], [fill(code, parameters, left, right, False)])
    assert_same_bits([4.0 * slots], [contract(code, parameters, left, right, False, w)])


@given(seed=st.integers(0, 1000), first=st.sampled_from(LEAVES), second=st.sampled_from(LEAVES))
def test_order_of_operands(seed, first, second):
    for join in (ADD, MULTIPLY):
        code, parameters, left, right = draw((first, second, join), 13, 9, 2, seed)
        swapped = np.ascontiguousarray(code[[1, 0, 2]])
        assert_same_bits([fill(code, parameters, left, right, False)], [fill(swapped, parameters, left, right, False)])


# ---------------------------------------------------------------------------------------------- bits


@pytest.mark.parametrize("variant", VARIANTS[1:])
@pytest.mark.parametrize("program", PROGRAMS, ids=title)
def test_variants_return_the_same_bits(program, variant):
    one, other = _core.load("covariance", _core.BASELINE_VARIANT), _core.load("covariance", variant)
    for n, m, n_features in SHAPES:
        for symmetric in (False, True):
            for spread in (1.0, 1e-3, 30.0):
                code, parameters, left, right = draw(program, n, m, n_features, spread=spread)
                arguments = code, parameters, left, left if symmetric else right, symmetric
                assert_same_bits(everything(*arguments, module=one), everything(*arguments, module=other))


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_alignment_and_read_only_arrays_change_no_bit(variant):
    module = _core.load("covariance", variant)
    code, parameters, left, _ = draw(COMPOSED[2], 1100, 1, 2)
    w = weights_for(1100, 1100, True)
    for array in (code, parameters, left, w):
        array.flags.writeable = False
    expected = fill(code, parameters, left, left, True, module=module)
    out = np.full(1100 * 1100 + 1, np.nan)[1:].reshape(1100, 1100)
    spans = [(start, min(start + 90, 1100)) for start in range(0, 1100, 90)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda span: module.fill(code, parameters, left, left, True, *span, out), spans))
        slots = list(pool.map(lambda span: contract(code, parameters, left, left, True, w, span, module), spans))
    assert_same_bits([out], [expected])
    assert_same_bits(slots, [contract(code, parameters, left, left, True, w, span, module) for span in spans])


def test_a_value_depends_on_its_two_points_only():
    for program in PROGRAMS:
        code, parameters, left, right = draw(program, 70, 75, 3)
        full = fill(code, parameters, left, right, False)
        for i, j in ((0, 0), (3, 74), (69, 8), (64, 63)):
            one, other = np.ascontiguousarray(left[:, i : i + 1]), np.ascontiguousarray(right[:, j : j + 1])
            assert fill(code, parameters, one, other, False)[0, 0] == full[i, j]


# ---------------------------------------------------------------------------------------------- no programs


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(ADD, 0, 0, 0)],
        [(RBF, 0, 2, 0), (ADD, 0, 0, 0)],
        [(RBF, 0, 2, 0), (RBF, 0, 2, 0)],
        [(12, 0, 0, 0)],
        [(MATERN, 0, 2, 0)],
        [(-1, 0, 0, 0)],
        [(RBF, 1, 2, 0)],
        [(RBF, -1, 2, 0)],
        [(RBF, 0, -1, 0)],
        [(RBF, 0, 2, 3)],
        [(RBF, 0, 2, -1)],
        [(RATIONAL_QUADRATIC, 0, 2, 2)],
        [(PERIODIC, 0, 2, 1)],
    ],
)
def test_what_is_no_program_is_refused(rows):
    code, x = np.array(rows, dtype=np.int32).reshape(-1, 4), np.ones((2, 3))
    with pytest.raises(ValueError, match="not a program"):
        fill(code, np.ones(3), x, x, False)


@pytest.mark.parametrize(
    ("shape", "size"), [((5, 1), 128), ((1000, 1), 1000), ((1000, 100), 1000), ((1000, 1000), 128), ((300, 0), 300)]
)
def test_blocks_of_rows_have_at_least_so_many_numbers_or_are_all_rows(shape, size):
    result = covariance_program.split_rows(*shape)  # which has to end for a matrix without columns, too
    assert result == [(low, min(low + size, shape[0])) for low in range(0, shape[0], size)]
