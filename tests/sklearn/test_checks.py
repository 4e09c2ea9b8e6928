"""Checks that several faces share: rows that count, and classes."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import cavity
from cavity.sklearn import base


def test_rows_of_weight_zero_are_left_out():
    X, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "c"])
    rows, labels, weight = base.drop_zero_weights([0.5, 0.0, 2.0], X, y)
    assert (rows.tolist(), labels.tolist(), weight.tolist()) == ([[0.0, 1.0], [4.0, 5.0]], ["a", "c"], [0.5, 2.0])
    rows, weight = base.drop_zero_weights(3.0, X)
    assert rows is X
    assert weight.tolist() == [3.0, 3.0, 3.0]
    assert base.drop_zero_weights(None, X, y) == (X, y, None)


@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0, 1.0], r"must have shape \(3,\)"), (-1.0, "must not be negative, got -1.0"), ([0, 0, 0], "no row is left")],
)
def test_weights_that_make_no_sense(weight, message):
    with pytest.raises(ValueError, match=f"^sample_weight .*{message}"):
        base.drop_zero_weights(weight, np.zeros((3, 1)))


def test_a_warning_of_both_libraries():
    assert issubclass(base.UnfinishedWarning, cavity.ConvergenceWarning)
    assert issubclass(base.UnfinishedWarning, ConvergenceWarning)
