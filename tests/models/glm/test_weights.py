"""Rows as the weights take them."""

import numpy as np
import pytest

from cavity.sources.features import ROWS_PER_BLOCK, prepare_rows


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("n", [0, 1, ROWS_PER_BLOCK, 2 * ROWS_PER_BLOCK + 1])
def test_prepared_rows_are_those_of_one_go(n, scaled, intercept):
    X = np.asfortranarray(np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32))
    centre, spread = (np.array([0.1, -2.0]), np.array([3.0, 0.7])) if scaled else (None, None)
    expected = X.astype(float)
    if scaled:
        expected = (expected - centre) / spread
    if intercept:
        expected = np.column_stack([np.ones(n), expected])
    result = prepare_rows(X, centre, spread, intercept)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, expected, strict=True)
