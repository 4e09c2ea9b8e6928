"""Location and spread: against numpy, rows repeated by their weights, numbers at the ends of the range."""

import numpy as np
import pytest
from scipy import sparse
from support.tolerances import LOSSES, ROUNDING, SOLVES, SUMS

from cavity.base.column_statistics import column_scales, constant_columns, robust_spread, weighted_median

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 1e-3, 1e4] + [0.0, 5.0, -2e4]
COPIES = RNG.integers(0, 4, size=60)


@pytest.mark.parametrize("unit", [1e-300, 1.0, 1e300])
def test_columns_have_the_moments_of_numpy(unit):
    mean, sd, scale = column_scales(unit * X)
    np.testing.assert_allclose(mean, unit * X.mean(axis=0), rtol=SUMS)
    np.testing.assert_allclose(sd, unit * X.std(axis=0), rtol=SOLVES)
    np.testing.assert_array_equal(scale, sd)  # more than two values each
    assert column_scales(np.array([[1, 7], [3, 7]], dtype=np.int8))[0].tolist() == [2.0, 7.0]
    assert column_scales(np.full((7, 1), 0.1))[1].tolist() == [0.0]


@pytest.mark.parametrize("weights", [None, COPIES])
def test_any_layout_gives_the_same_bits(weights):
    np.testing.assert_array_equal(column_scales(np.asfortranarray(X), weights), column_scales(X, weights))


def test_weights_count_rows():
    repeated = np.repeat(X, COPIES, axis=0)
    for ours, theirs in zip(column_scales(X, COPIES.astype(float)), column_scales(repeated), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=SOLVES)
    for column in X.T:
        for weights in (COPIES, COPIES[:41], COPIES[:40]):
            values, full = column[: len(weights)], np.repeat(column[: len(weights)], weights)
            assert weighted_median(values, weights.astype(float)) == pytest.approx(np.median(full), rel=ROUNDING)
            assert robust_spread(values, weights.astype(float)) == pytest.approx(robust_spread(full), rel=SUMS)


@pytest.mark.parametrize("n", [2, 7, 100, 250_000])
@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (-3e-7, 0.1), (2019.0, 2020.0), (-1e308, 1.7e308)])
def test_a_column_of_two_values_has_half_their_distance_for_its_scale(n, a, b):
    columns = np.full((n, 4), a)
    columns[-1, 0] = columns[1::2, 1] = columns[n // 3, 2] = b
    columns[0, 3], columns[-1, 3] = b, 0.5 * a + 0.5 * b  # two values of two rows, three of more
    mean, sd, scale = column_scales(columns)
    np.testing.assert_array_equal(scale[:3], 0.5 * b - 0.5 * a)
    assert scale[3] == (sd[3] if n > 2 else 0.5 * columns[0, 3] - 0.5 * columns[1, 3])
    if n % 2 == 0:
        assert sd[1] == pytest.approx(scale[1], rel=LOSSES)  # both values as often: as the sd is
    weights = np.ones(n)
    weights[-1] = 0.0  # a row that does not count makes a third value none, and the second one too
    assert column_scales(columns, weights)[2][3] == (0.0 if n == 2 else 0.5 * b - 0.5 * a)
    assert column_scales(columns, weights)[2][0] == 0.0
    if abs(b) < 1e300:
        dtype = np.int32 if a == 2019.0 else np.float64
        np.testing.assert_array_equal(column_scales(np.asfortranarray(columns[:, :3].astype(dtype)))[2], scale[:3])


def test_a_spread_that_is_never_zero():
    assert robust_spread(np.array([0.0, 0.0, 0.0, 0.0, 1.0])) == pytest.approx(
        0.4
    )  # no deviation in the middle: the sd
    assert robust_spread(np.ones(5)) == 1.0
    assert robust_spread(RNG.normal(size=100_000)) == pytest.approx(1.0, abs=0.02)
    assert robust_spread(np.append(RNG.normal(size=1000), 1e9)) == pytest.approx(1.0, abs=0.1)


def test_columns_of_one_value():
    columns = np.column_stack([np.ones(9), np.zeros(9), np.arange(9.0), np.append(np.ones(8), 2.0), np.full(9, -3.0)])
    columns = np.column_stack([columns, [1.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    expected = [True, False, False, False, True, False]
    assert constant_columns(columns).tolist() == expected
    assert constant_columns(sparse.csr_array(columns)).tolist() == expected
    assert constant_columns(sparse.csr_matrix(columns)).tolist() == expected
    weights = np.append(np.ones(8), 0.0)
    assert constant_columns(columns, weights).tolist() == [True, False, False, True, True, False]
