"""Likelihoods by their names."""

from typing import get_args

import pytest

from cavity import likelihoods
from cavity.likelihoods.names import LIKELIHOODS_BY_NAME, LikelihoodName, make_likelihood
from cavity.likelihoods.parameters import list_open_parameters


def test_names_leave_scales_open():
    assert make_likelihood("probit") == likelihoods.Probit()
    assert make_likelihood("student-t") == likelihoods.StudentT(4.0, None)
    assert make_likelihood("gaussian") == likelihoods.Gaussian(None)
    assert make_likelihood("negative-binomial") == likelihoods.NegativeBinomial()
    assert make_likelihood("ordered-probit") == likelihoods.OrderedProbit()
    assert make_likelihood("weibull") == likelihoods.Weibull(None, "time")
    assert make_likelihood("tweedie") == likelihoods.Tweedie(None, None)
    assert make_likelihood("binomial") == likelihoods.Binomial("logit")
    assert make_likelihood("binomial-probit") == likelihoods.Binomial("probit")
    for name, kind in LIKELIHOODS_BY_NAME.items():
        assert isinstance(make_likelihood(name), getattr(kind, "func", kind))
        assert "degrees_of_freedom" not in list_open_parameters(make_likelihood(name))


def test_other_names_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="likelihood must be one of 'probit', 'logit', .*'beta', got 'probbit'"):
        make_likelihood("probbit")
    for name, close in (("possion", "poisson"), ("logti", "logit"), ("Probit", "probit")):
        with pytest.raises(ValueError, match=f"got '{name}'; did you mean '{close}'\\?"):
            make_likelihood(name)
    with pytest.raises(ValueError, match="got 'wald'$"):
        make_likelihood("wald")


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("cox", "Weibull"), ("softmax", "one class against"), ("multinomial", "ordered-logit"), ("ZOIB", "beta-binomial")],
)
def test_likelihoods_that_are_missing_are_answered_with_others(name, way_out):
    with pytest.raises(ValueError, match=f"likelihood must be .*, got '{name}': .*{way_out}"):
        make_likelihood(name)


def test_type_checkers_have_the_names_of_the_table():
    assert get_args(LikelihoodName) == (*LIKELIHOODS_BY_NAME,)
