"""The container of checked rows: parts, joins, and which rows get a site."""

import numpy as np
import pytest
from scipy import sparse

from cavity import likelihoods
from cavity.base.rows import MAX_COPIES, Rows

X, Y = np.arange(8.0).reshape(4, 2), np.array([1.0, -1.0, 1.0, 1.0])
OFFSET, WEIGHTS, NOISE = np.array([0.5, 0.0, -1.0, 2.0]), np.array([2.0, 0.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
NAMES = ("X", "y", "offset", "weights", "noise", "f_known")


def same(rows, expected):
    for name, value in zip(NAMES, expected, strict=True):
        result = getattr(rows, name)
        assert (result is None) == (value is None), name
        if value is not None:
            np.testing.assert_array_equal(result, value)


@pytest.mark.parametrize("index", [np.array([True, False, True, False]), slice(1, 3), np.array([3, 0, 0])])
def test_parts_of_everything(index):
    truth = np.array([False, False, True, False])
    full = Rows(X, Y, OFFSET, WEIGHTS, NOISE, truth)
    same(full.part(index), (X[index], Y[index], OFFSET[index], WEIGHTS[index], NOISE[index], truth[index]))
    same(Rows(X, Y).part(index), (X[index], Y[index], None, None, None, None))
    same(Rows(None, Y, noise=NOISE).part(index), (None, Y[index], None, None, NOISE[index], None))


def test_parts_of_sparse_rows_and_of_subclasses():
    class More(Rows):
        pass

    result = More(sparse.csr_array(X), Y).part(slice(1, 3))
    assert type(result) is More
    np.testing.assert_array_equal(result.X.toarray(), X[1:3])


def test_joined_rows_have_what_none_means():
    both = Rows(X, Y).joined(Rows(X[:1], Y[:1], OFFSET[:1], WEIGHTS[:1], None, np.array([True])))
    expected = [np.append(fill, last) for fill, last in ((np.zeros(4), 0.5), (np.ones(4), 2.0))]
    same(both, (np.vstack([X, X[:1]]), np.append(Y, Y[0]), *expected, None, [False] * 4 + [True]))
    same(Rows(X, Y).joined(Rows(X, Y)), (np.vstack([X, X]), np.append(Y, Y), None, None, None, None))
    np.testing.assert_array_equal(Rows(X, Y, noise=NOISE).joined(Rows(X, Y, noise=NOISE)).noise, [*NOISE, *NOISE])


def test_rows_in_use():
    rows = Rows(X, Y, OFFSET, WEIGHTS, None, np.array([True, False, False, False]))
    assert rows.left_out.tolist() == [False, True, False, False]
    assert rows.in_use.tolist() == [False, False, True, True]
    same(rows.used(), (X[2:], Y[2:], OFFSET[2:], None, None, None))
    assert rows.scattered(np.array([7.0, 8.0]), 0.0).tolist() == [0.0, 0.0, 7.0, 8.0]
    assert rows.scattered(np.array([7.0, 8.0]), OFFSET).tolist() == [0.5, 0.0, 7.0, 8.0]


def test_where_all_are_in_use_nothing_is_copied():
    rows = Rows(X, Y, weights=np.array([1.0, 2.0, 1.0, 1.0]))
    used, values = rows.used(), np.arange(4.0)
    assert used.X is X
    assert used.weights is rows.weights
    assert rows.scattered(values, np.nan) is values


def test_weights_and_noise_of_parts():
    gaussian, rows = likelihoods.Gaussian(4.0), Rows(X, Y, weights=WEIGHTS, noise=NOISE)
    assert Rows(X, Y).weight(slice(1, 3)).tolist() == [1.0]
    assert rows.weight(slice(1, 3)).tolist() == [0.0, 1.0]
    assert Rows(X, Y).precision(gaussian).tolist() == [0.25]
    assert rows.precision(gaussian, slice(2, 4)).tolist() == [1.0 / 3.0, 0.25]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1, -1]}, "one entry per row"),
        ({"offset": np.zeros(3)}, "offset must have one entry per row"),
        ({"sample_weight": [1.0, -1.0, 1.0, 1.0]}, "sample_weight must not be negative, got -1.0 in row 1"),
        ({"sample_weight": np.zeros(4)}, "zeros only"),
    ],
)
def test_what_is_checked(change, message):
    with pytest.raises(ValueError, match=message):
        Rows.checked(likelihoods.Probit(), X, **{"y": Y} | change)


def test_checked():
    same(Rows.checked(likelihoods.Probit(), X, [1, 0, 1, 1], OFFSET, WEIGHTS), (X, Y, OFFSET, WEIGHTS, None, None))
    assert Rows.checked(likelihoods.Probit(), X, Y, None, np.zeros(4), needs_rows=False).used().n == 0


@pytest.mark.parametrize("likelihood", [likelihoods.Binomial(), likelihoods.Interval()])
def test_two_numbers_are_no_pairs_of_two_rows(likelihood):
    with pytest.raises(ValueError, match=r"y must have 2 dimensions, a row for each of X, got shape \(2,\)"):
        Rows.checked(likelihood, X[:2], np.array([1.0, 2.0]))
    assert Rows.checked(likelihood, X[:2], np.array([[1.0, 2.0], [0.0, 2.0]])).y.shape == (2, 2)


def test_copies_of_rows():
    """Each as often as its weight says; weights that are no whole numbers give a sample of as many rows or more."""
    assert Rows(X, Y, None, np.ones(4)).list_copies() == slice(None)
    np.testing.assert_array_equal(Rows(X, Y, None, WEIGHTS).list_copies(), np.repeat(np.arange(4), [2, 0, 1, 1]))
    weights = np.array([0.5, 0.0, 1.5, 8.0])
    np.testing.assert_array_equal(Rows(X, Y, None, weights).list_copies(), [2, 2, *[3] * 8])
    np.testing.assert_array_equal(Rows(X, Y, None, np.array([0.0, 0.1, 0.1, 0.0])).list_copies(), [1, 2])
    many = Rows(X, Y, None, np.array([3e9, 1e9, 0.0, 0.0])).list_copies()
    assert np.bincount(many).tolist() == [3 * MAX_COPIES // 4, MAX_COPIES // 4]
