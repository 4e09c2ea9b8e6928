"""Observations of fits and updates are checked in one place."""

import numpy as np
import pytest

from cavity.likelihoods import Gaussian, OrderedProbit, Poisson, Probit
from cavity.models.observations import Observations
from cavity.sources.dataset import Dataset

X = np.arange(8.0).reshape(4, 2)
NONE = dict.fromkeys(("offset", "exposure", "noise_variance", "sample_weight"))


def observe(likelihood, y, default=None, needs_rows=True, fitted=None, **columns):
    dataset = Dataset.open(X, {"y": y} | NONE | columns)
    more = {} if default is None else {"default": default}
    return Observations.of(likelihood, dataset, needs_rows=needs_rows, fitted=fitted, **more)


def test_y_chooses_the_likelihood_and_labels_are_numbered():
    result = observe(None, ["b", "a", "b", "a"])
    assert (result.likelihood, result.classes, result.chosen) == (Probit(), ("a", "b"), ("likelihood",))
    assert result.y.tolist() == [1.0, -1.0, 1.0, -1.0]
    assert result.labels == {"columns": None, "classes": ("a", "b"), "roles": None, "dropped": None}
    assert observe(Probit(), [0, 1, 1, 0]).chosen == ()
    assert observe(None, [0.0, 1.0, 1.0, 0.0], default=lambda y: Gaussian(2.0)).likelihood == Gaussian(2.0)


def test_labels_of_an_update_are_those_of_the_fit():
    fitted = observe(Probit(), ["b", "a", "b", "a"])
    assert observe(Probit(), ["b"] * 4, fitted=fitted).y.tolist() == [1.0] * 4
    with pytest.raises(ValueError, match="y must hold the classes 'a', 'b', got 'c' in row 0"):
        observe(Probit(), ["c"] * 4, fitted=fitted)


def test_exposures_are_added_to_offsets():
    result = observe(Poisson(), [1, 0, 2, 3], offset=[1.0] * 4, exposure=[1.0, 2.0, 1.0, 1.0])
    assert result.offset.tolist() == [1.0, 1.0 + np.log(2.0), 1.0, 1.0]
    rows = result.rows(X)
    assert rows.X is X
    assert (rows.n, rows.weights, rows.noise) == (4, None, None)


@pytest.mark.parametrize(
    ("likelihood", "columns", "message"),
    [
        (Probit(), {"exposure": [1.0] * 4}, "exposure is for counts"),
        (Probit(), {"noise_variance": [1.0] * 4}, "noise_variance needs the likelihood Gaussian"),
        (Gaussian(), {"noise_variance": [1.0, 1.0, 0.0, 1.0]}, "noise_variance must be positive, got 0.0 in row 2"),
        (Gaussian(), {"offset": [1.0] * 3}, "offset must have one entry per row of X, that is 4, got 3"),
        (Gaussian(), {"sample_weight": [1.0, -1.0, 0.0, 0.0]}, "sample_weight must not be negative, got -1.0 in row 1"),
        (Gaussian(), {"sample_weight": [0.0] * 4}, "sample_weight must be positive in some row"),
        (OrderedProbit(), {"y": ["a", "b", "c", "a"]}, "order"),
        (Gaussian(), {"y": [1.0] * 3}, "y must have one entry per row of X, that is 4"),
    ],
)
def test_what_is_wrong_is_named(likelihood, columns, message):
    with pytest.raises(ValueError, match=message):
        observe(likelihood, **{"y": [0.0, 1.0, 1.0, 0.0]} | columns)


def test_weights_may_all_be_zero_where_that_changes_nothing():
    assert observe(Gaussian(), [0.0] * 4, needs_rows=False, sample_weight=[0.0] * 4).weights.tolist() == [0.0] * 4
