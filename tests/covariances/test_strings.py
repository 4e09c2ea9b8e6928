"""Covariances by their names: what strings describe, in the scale of the data."""

import numpy as np
import pytest
from support.tolerances import ROUNDING

from cavity import covariances
from cavity.covariances.strings import COVARIANCES_BY_NAME, make_covariance

SPREAD, SIZE = np.array([2.0, 0.1]), 9.0


def test_sums_of_products_share_the_variance():
    made = make_covariance("rbf + matern32*linear + white", SPREAD, SIZE)
    parts = made.parameters
    assert [parts["rbf.variance"], parts["matern32.variance"], parts["white.variance"]] == pytest.approx(
        [3.0, 3.0, 0.9]
    )
    np.testing.assert_allclose(parts["rbf.lengthscale"], SPREAD)
    np.testing.assert_allclose(parts["linear.variance"], 1.0 / SPREAD**2)
    assert len(made.log_parameters) == 9  # a product has its variance in its first factor, and slopes


def test_numbers_in_brackets_are_first_values():
    made = make_covariance("rbf(2, 0.5) * periodic(1, 1, 3)", SPREAD, SIZE, ard=False)
    expected = covariances.RBF(2.0, 0.5) * covariances.Periodic(1.0, 1.0, period=3.0)
    X = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_allclose(made.gram(X), expected.gram(X), rtol=ROUNDING)
    assert make_covariance("rbf(2,0.5)", SPREAD, SIZE).lengthscale.tolist() == [0.5, 0.5]
    assert "periodic.variance" not in dict(zip(made.parameter_names, made.log_parameters, strict=True))


@pytest.mark.parametrize("name", COVARIANCES_BY_NAME)
def test_every_name_lies_within_its_bounds_in_any_units(name):
    for unit in (1e-6, 1.0, 1e6):
        made = make_covariance(name, unit * SPREAD, SIZE / unit)
        low, high = made.log_bounds.T
        assert np.all((low < made.log_parameters) & (made.log_parameters < high))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ("RBF", "'RBF' is none of .*; did you mean 'rbf'"),
        ("matern", "did you mean 'matern12' or 'matern32' or 'matern52'"),
        ("rbf+cosine", "covariance: 'cosine' is none of rbf, matern12"),
        ("rbf(a)", r"expected numbers in brackets, like rbf\(2,0.5\), got 'rbf\(a\)'"),
        ("constant(1,2)", "constant has variance, got 2 numbers"),
        ("rbf(-1)", "the variance of rbf must be positive, got -1"),
        ("", "'' is none of"),
    ],
)
def test_what_no_string_describes(described, message):
    with pytest.raises(ValueError, match=message):
        make_covariance(described, SPREAD, SIZE)
