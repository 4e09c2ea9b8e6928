"""The bases of faces: predictions follow from log probabilities, or from moments, of rows as they come."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF
from support.tolerances import LAST_BIT

import cavity.sklearn
from cavity.sklearn.base import Classifier, Regressor, UnfinishedWarning, drop_zero_weights, normalise


class Fixed(Classifier, BaseEstimator):
    classes_ = np.array(["a", "b"])

    def _log_probabilities(self, X):
        return np.log(np.asarray(X))


class Line(Regressor, BaseEstimator):
    def _moments(self, X, with_std, with_cov):
        mean = np.asarray(X)[:, 0]
        return mean, np.eye(len(mean)) if with_cov else np.ones(len(mean)) if with_std else None


def test_classes():
    X = [[0.25, 0.75], [0.5, 0.5]]
    assert Fixed().predict(X).tolist() == ["b", "a"]
    np.testing.assert_allclose(Fixed().predict_proba(X), X)
    np.testing.assert_array_equal(Fixed().predict_log_proba(X), np.log(X))


def test_numbers():
    X = [[1.0], [2.0]]
    assert Line().predict(X).tolist() == [1.0, 2.0]
    assert [part.tolist() for part in Line().predict(X, return_std=True)] == [[1.0, 2.0], [1.0, 1.0]]
    assert Line().predict(X, return_cov=True)[1].shape == (2, 2)
    assert Line().sample_y(X, 3).shape == (2, 3)
    np.testing.assert_array_equal(Line().sample_y(X, 3), Line().sample_y(X, 3))
    with pytest.raises(RuntimeError, match="At most one"):
        Line().predict(X, return_std=True, return_cov=True)


ESTIMATORS = [
    *(cavity.sklearn.ProbitClassifier, cavity.sklearn.StreamingGPClassifier, cavity.sklearn.StreamingGPRegressor),
    *(cavity.sklearn.GaussianProcessClassifier, cavity.sklearn.GaussianProcessRegressor),
]


@pytest.mark.long_cases("StreamingGPRegressor")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_verbose_fits_show_progress_on_stderr(kind, capsys):
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = X[:, 0] > 0 if "Classifier" in kind.__name__ else X[:, 0]
    more = {"kernel": RBF()} if kind is cavity.sklearn.GaussianProcessClassifier else {}  # the default learns nothing
    quiet, text = kind(**more).fit(X, y), clone(kind(**more, verbose=1))
    assert capsys.readouterr() == ("", "")
    text.fit(X, y)
    out, err = capsys.readouterr()
    assert (out, err.count("\n") >= 1) == ("", True)
    np.testing.assert_array_equal(text.predict(X), quiet.predict(X))
    assert kind(verbose=True).fit(X[:10], y[:10])
    with pytest.raises((TypeError, ValueError), match="verbose must be"):
        kind(verbose=-1).fit(X, y)


def test_rows_of_weight_zero_are_left_out():
    X, y = np.arange(6.0).reshape(3, 2), np.array(["a", "b", "c"])
    rows, labels, weight = drop_zero_weights([0.5, 0.0, 2.0], X, y)
    assert (rows.tolist(), labels.tolist(), weight.tolist()) == ([[0.0, 1.0], [4.0, 5.0]], ["a", "c"], [0.5, 2.0])
    rows, weight = drop_zero_weights(3.0, X)
    assert rows is X
    assert weight.tolist() == [3.0, 3.0, 3.0]
    assert drop_zero_weights(None, X, y) == (X, y, None)


@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0, 1.0], r"must have shape \(3,\)"), (-1.0, "must not be negative, got -1.0"), ([0, 0, 0], "no row is left")],
)
def test_weights_that_make_no_sense(weight, message):
    with pytest.raises(ValueError, match=f"^sample_weight .*{message}"):
        drop_zero_weights(weight, np.zeros((3, 1)))


def test_a_warning_of_both_libraries():
    assert issubclass(UnfinishedWarning, cavity.ConvergenceWarning)
    assert issubclass(UnfinishedWarning, ConvergenceWarning)


def test_probabilities_too_small_for_float64_still_sum_to_one():
    logs = normalise(np.array([[-800.0, -900.0, -801.0], [-1e5, -1e5, -1e5]]))
    share = 1.0 / (1.0 + np.exp(-1.0))
    np.testing.assert_allclose(np.exp(logs), [[share, 0.0, 1.0 - share], [1 / 3] * 3], atol=LAST_BIT)
