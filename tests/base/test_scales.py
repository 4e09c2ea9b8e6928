"""Location and spread: against numpy, rows repeated by their weights, numbers at the ends of the range."""

import numpy as np
import pytest
from scipy import sparse

from cavity.base.scales import column_scales, constant_columns, robust_spread, weighted_median

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 1e-3, 1e4] + [0.0, 5.0, -2e4]
COPIES = RNG.integers(0, 4, size=60)


@pytest.mark.parametrize("unit", [1e-300, 1.0, 1e300])
def test_columns_have_the_moments_of_numpy(unit):
    mean, sd = column_scales(unit * X)
    np.testing.assert_allclose(mean, unit * X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(sd, unit * X.std(axis=0), rtol=1e-12)
    assert column_scales(np.array([[1, 7], [3, 7]], dtype=np.int8))[0].tolist() == [2.0, 7.0]
    assert column_scales(np.full((7, 1), 0.1))[1].tolist() == [0.0]


@pytest.mark.parametrize("weights", [None, COPIES])
def test_any_layout_gives_the_same_bits(weights):
    np.testing.assert_array_equal(column_scales(np.asfortranarray(X), weights), column_scales(X, weights))


def test_weights_count_rows():
    repeated = np.repeat(X, COPIES, axis=0)
    for ours, theirs in zip(column_scales(X, COPIES.astype(float)), column_scales(repeated), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    for column in X.T:
        for weights in (COPIES, COPIES[:41], COPIES[:40]):
            values, whole = column[: len(weights)], np.repeat(column[: len(weights)], weights)
            assert weighted_median(values, weights.astype(float)) == pytest.approx(np.median(whole), rel=1e-14)
            assert robust_spread(values, weights.astype(float)) == pytest.approx(robust_spread(whole), rel=1e-13)


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
