"""Extents of blocks against the plain sums of all rows."""

import math

import numpy as np
import pytest
from support.tolerances import LAST_BIT, ROUNDING

from cavity.sources import column_summary
from cavity.sources.sources import open_source

ROWS = np.random.default_rng(0).normal(5.0, 2.0, (700, 3))


def extent_of(rows, missing=False):
    return column_summary.summarize_block(rows, 0, (open_source(rows, "X", ndim=(2,)), missing, False))


def test_two_blocks_are_joined():
    result = column_summary.merge_summaries(extent_of(ROWS[:300]), extent_of(ROWS[300:]))
    np.testing.assert_array_equal(result[0], ROWS.min(axis=0))
    np.testing.assert_array_equal(result[1], ROWS.max(axis=0))
    np.testing.assert_array_equal(result[-1], [700.0] * 3)
    np.testing.assert_allclose(
        column_summary.compute_means(*result), [math.fsum(column) / 700 for column in ROWS.T], rtol=LAST_BIT
    )


def test_missing_and_huge_numbers():
    rows = ROWS.copy()
    rows[::7, 1], rows[:, 2] = np.nan, 1.7e308
    result = extent_of(rows, missing=True)
    np.testing.assert_array_equal(result[-1], [700.0, 600.0, 700.0])
    np.testing.assert_allclose(
        column_summary.compute_means(*result), [*np.nanmean(rows[:, :2], axis=0), 1.7e308], rtol=ROUNDING
    )
    with pytest.raises(ValueError, match=r"X must be finite, got X\[0, 1\] = nan"):
        extent_of(rows)
