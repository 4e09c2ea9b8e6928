"""Likelihoods by their names, in strings and on the command line."""

from functools import partial

from cavity.base import arrays
from cavity.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from cavity.likelihoods.labels import Logit, OrderedProbit, Probit
from cavity.likelihoods.noise import Gaussian, Laplace, StudentT

BINARY = {"probit": Probit, "logit": Logit}
ORDERED = {"ordered-probit": OrderedProbit}
COUNTS = {"poisson": Poisson, "negative-binomial": NegativeBinomial}
REAL = {"gaussian": Gaussian, "student-t": StudentT, "laplace": Laplace}
SHARES = {"binomial": Binomial, "binomial-probit": partial(Binomial, "probit")}
NAMED = BINARY | SHARES | ORDERED | COUNTS | REAL
LEFT_OPEN = ("noise_variance", "scale", "dispersion", "thresholds")  # parameters that a name says nothing about


def named(name, argument="likelihood"):
    """Return the likelihood of a name, its scales, dispersion and thresholds open; ValueError with the known names."""
    kind = NAMED[arrays.check_choice(name, argument, tuple(NAMED))]
    return kind(**{parameter: None for parameter in LEFT_OPEN if parameter in getattr(kind, "parameters", ())})
