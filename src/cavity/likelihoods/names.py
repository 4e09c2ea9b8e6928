"""Likelihoods by their names, in strings and on the command line."""

from functools import partial
from typing import Literal

from cavity.base import arrays
from cavity.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from cavity.likelihoods.labels import Logit, OrderedProbit, Probit
from cavity.likelihoods.noise import Gaussian, Laplace, StudentT

BINARY_LIKELIHOODS = {"probit": Probit, "logit": Logit}
ORDERED_LIKELIHOODS = {"ordered-probit": OrderedProbit}
COUNT_LIKELIHOODS = {"poisson": Poisson, "negative-binomial": NegativeBinomial}
REAL_LIKELIHOODS = {"gaussian": Gaussian, "student-t": StudentT, "laplace": Laplace}
SHARE_LIKELIHOODS = {"binomial": Binomial, "binomial-probit": partial(Binomial, "probit")}
_LABEL_LIKELIHOODS = BINARY_LIKELIHOODS | SHARE_LIKELIHOODS | ORDERED_LIKELIHOODS
LIKELIHOODS_BY_NAME = _LABEL_LIKELIHOODS | COUNT_LIKELIHOODS | REAL_LIKELIHOODS
LikelihoodName = Literal[  # for editors and type checkers: the names of the table above
    "probit",
    "logit",
    "binomial",
    "binomial-probit",
    "ordered-probit",
    "poisson",
    "negative-binomial",
    "gaussian",
    "student-t",
    "laplace",
]
OPEN_PARAMETERS = ("noise_variance", "scale", "dispersion", "thresholds")  # parameters that fits find


def make_likelihood(name, argument="likelihood"):
    """Return the likelihood with this name, its scales, dispersion and thresholds open."""
    kind = LIKELIHOODS_BY_NAME[arrays.check_choice(name, argument, tuple(LIKELIHOODS_BY_NAME))]
    return kind(**{parameter: None for parameter in OPEN_PARAMETERS if parameter in getattr(kind, "parameters", ())})
