"""Likelihoods by their names, in strings and on the command line."""

from functools import partial

from cavity.base import arrays
from cavity.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from cavity.likelihoods.labels import Logit, OrderedProbit, Probit
from cavity.likelihoods.noise import Gaussian, Laplace, StudentT

BINARY_LIKELIHOODS = {"probit": Probit, "logit": Logit}
ORDERED_LIKELIHOODS = {"ordered-probit": OrderedProbit}
COUNT_LIKELIHOODS = {"poisson": Poisson, "negative-binomial": NegativeBinomial}
REAL_LIKELIHOODS = {"gaussian": Gaussian, "student-t": StudentT, "laplace": Laplace}
SHARE_LIKELIHOODS = {"binomial": Binomial, "binomial-probit": partial(Binomial, "probit")}
LIKELIHOODS_BY_NAME = (
    BINARY_LIKELIHOODS | SHARE_LIKELIHOODS | ORDERED_LIKELIHOODS | COUNT_LIKELIHOODS | REAL_LIKELIHOODS
)
OPEN_PARAMETERS = ("noise_variance", "scale", "dispersion", "thresholds")  # parameters that a name says nothing about


def make_likelihood(name, argument="likelihood"):
    """Return the likelihood of a name, its scales, dispersion and thresholds open; ValueError with the known names."""
    kind = LIKELIHOODS_BY_NAME[arrays.choice(name, argument, tuple(LIKELIHOODS_BY_NAME))]
    return kind(**{parameter: None for parameter in OPEN_PARAMETERS if parameter in getattr(kind, "parameters", ())})
