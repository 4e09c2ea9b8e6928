"""Likelihoods by their names."""

import pytest

from cavity import likelihoods
from cavity.likelihoods.named import NAMED, named
from cavity.likelihoods.parameters import open_parameters


def test_names_leave_scales_open():
    assert named("probit") == likelihoods.Probit()
    assert named("student-t") == likelihoods.StudentT(4.0, None)
    assert named("gaussian") == likelihoods.Gaussian(None)
    assert named("negative-binomial") == likelihoods.NegativeBinomial()
    assert named("ordered-probit") == likelihoods.OrderedProbit()
    assert named("binomial") == likelihoods.Binomial("logit")
    assert named("binomial-probit") == likelihoods.Binomial("probit")
    for name, kind in NAMED.items():
        assert isinstance(named(name), getattr(kind, "func", kind))
        assert "degrees_of_freedom" not in open_parameters(named(name))


def test_other_names_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="likelihood must be one of 'probit', 'logit', .*'laplace', got 'probbit'"):
        named("probbit")
