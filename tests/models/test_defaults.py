"""What is chosen from the observations: a likelihood, and where they are."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, ndtr
from support.own_likelihoods import OwnGamma
from support.tolerances import AT_REST

from cavity import GLM, GaussianProcess, StreamingGP, likelihoods
from cavity.base.rows import Rows
from cavity.models.defaults import (
    LOGITS_PER_PROBIT,
    PRIOR_SCALES,
    check_likelihood,
    find_location_and_spread,
    find_prior_scale,
    is_real,
    likelihood_for,
)

GRADES = pd.Categorical(["low", "high", "mid", "low"], categories=["low", "mid", "high"], ordered=True)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([0, 1, 1, 0], likelihoods.Probit()),
        ([-1.0, 1.0], likelihoods.Probit()),
        ([True, False], likelihoods.Probit()),
        (["no", "yes", "no"], likelihoods.Probit()),
        ([3.5, 3.5, -2.0], likelihoods.Probit()),
        ([1.0, 2.0, 4.0], likelihoods.Gaussian(None)),
        ([0, 1, 2], likelihoods.Gaussian(None)),  # counts are not guessed
        ([1.5, 2.5], likelihoods.Gaussian(None)),  # of two rows of numbers nobody knows
        (GRADES, likelihoods.OrderedProbit()),
    ],
)
def test_the_target_says_what_it_is(y, expected):
    assert likelihood_for(y) == expected


def test_labels_of_one_class_are_said_to_be_of_one():
    with pytest.raises(ValueError, match="two classes, got 'a' in every row"):
        GLM(intercept=True).fit(np.arange(4.0)[:, None], ["a"] * 4)


def test_classes_without_an_order_have_no_likelihood():
    with pytest.raises(ValueError, match=r"more than two classes without an order.*in cavity\.sklearn"):
        likelihood_for(["a", "b", "c"])


def test_likelihoods_are_given_named_or_left_open():
    own = likelihoods.Laplace(2.0)
    assert check_likelihood(own) is own
    assert check_likelihood(None) is None
    assert check_likelihood("logit") == likelihoods.Logit()
    with pytest.raises(TypeError, match="did you forget the brackets"):
        check_likelihood(likelihoods.Probit)


def test_where_observations_are():
    y, offset = np.array([1.0, 2.0, 3.0, 4.0, 1e6]), np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    gaussian = likelihoods.Gaussian()
    assert find_location_and_spread(gaussian, Rows(None, y)) == (3.0, pytest.approx(1.4826))
    assert find_location_and_spread(gaussian, Rows(None, y, offset, weights)) == (2.5, pytest.approx(1.4826))
    bounds = np.array([[-np.inf, 3.0], [1.0, np.inf], [2.0, 2.0]])
    assert find_location_and_spread(likelihoods.Interval(1.0), Rows(None, bounds)) == (2.0, pytest.approx(0.7413))
    assert find_location_and_spread(likelihoods.Interval(1.0), Rows(None, bounds * [[np.inf]] * 3)) == (0.0, 1.0)
    for likelihood in (likelihoods.Probit(), likelihoods.Poisson(), likelihoods.OrderedProbit()):
        assert not is_real(likelihood)
        assert find_location_and_spread(likelihood, Rows(None, y)) == (0.0, 1.0)


def test_classes_without_order_hear_how_to_say_it():
    with pytest.raises(ValueError, match=r"If they have an order, say their order: pandas\.Categorical.*polars\.Enum"):
        likelihood_for(["a", "b", "c"])


@pytest.mark.parametrize("model", [GLM(intercept=True), GaussianProcess(), StreamingGP()])
def test_dates_are_no_classes(model):
    dates, X = np.datetime64("2020-01-01", "D") + np.arange(3), np.array([[0.0], [1.0], [2.0]])
    for y in (dates, dates.tolist(), pd.Series(dates)):
        with pytest.raises(ValueError, match="y must hold numbers or classes, got dates or times: turn them into days"):
            model.fit(X, y)
    with pytest.raises(TypeError, match=r"y must hold real numbers, got dtype datetime64\[ns\]"):
        model.fit(X, dates.astype("M8[ns]"))
    with pytest.raises(ValueError, match="got dates as text: turn them into days"):
        model.fit(X, dates.astype(str))


@pytest.mark.parametrize("model", [GLM(intercept=True), GaussianProcess(), StreamingGP()])
def test_fits_without_observations_say_that_y_is_missing(model):
    with pytest.raises(TypeError, match=r"y must hold an observation for each row.*got None"):
        model.fit(np.array([[0.0], [1.0]]), None)


def test_every_likelihood_has_an_entry_in_the_table_of_prior_scales():
    assert set(PRIOR_SCALES) == {getattr(likelihoods, name) for name in likelihoods.__all__}
    logit, probit = 2.5, 2.5 / 1.7
    assert [find_prior_scale(likelihoods.Binomial(link)) for link in ("logit", "probit")] == [logit, probit]
    assert [find_prior_scale(item) for item in (likelihoods.Logit(), likelihoods.Probit())] == [logit, probit]

    class OwnProbit(likelihoods.Probit):
        pass

    class Own(likelihoods.Likelihood):
        pass

    assert (find_prior_scale(OwnProbit()), find_prior_scale(Own())) == (probit, 2.5)


def test_a_unit_of_probit_is_so_many_of_logit():
    f = np.linspace(-6.0, 6.0, 1201)
    gaps = [np.max(np.abs(ndtr(f) - expit(k * f))) for k in (1.6, LOGITS_PER_PROBIT, 1.8)]
    assert gaps[1] < 0.0096
    assert gaps[1] < min(gaps[0], gaps[2])


def rows_of(likelihood, y):
    return Rows(None, likelihood.check(y))


@pytest.mark.parametrize(
    ("likelihood", "y", "location"),
    [
        (likelihoods.Gamma(), [1.0, 7.0, 9.0], np.log(7.0)),
        (likelihoods.Tweedie(), [0.0, 7.0, 9.0], np.log(7.0)),
        (likelihoods.Weibull(), [[2.0, np.inf], [0.0, 5.0], [7.0, 7.0]], np.log(5.0)),
        (likelihoods.Weibull(effect="hazard"), [1.0, 7.0, 9.0], -np.log(7.0)),
        (likelihoods.Beta(), [0.1, 0.2, 0.9], 0.0),
        (likelihoods.HurdlePoisson(), [0, 2, 9], 0.0),
        (likelihoods.Poisson(), [0, 2, 9], 0.0),
        (OwnGamma(), [1.0, 7.0, 9.0], np.log(7.0)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, likelihoods.Likelihood) else "",
)
def test_locations(likelihood, y, location):
    assert find_location_and_spread(likelihood, rows_of(likelihood, y)) == (pytest.approx(location, abs=AT_REST), 1.0)
