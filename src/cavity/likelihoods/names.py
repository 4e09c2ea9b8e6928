"""Likelihoods by their names, in strings and on the command line."""

from functools import partial
from typing import Literal

from cavity.base import arrays
from cavity.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from cavity.likelihoods.inflated import HurdlePoisson, ZeroInflatedNegativeBinomial, ZeroInflatedPoisson
from cavity.likelihoods.labels import Cloglog, Logit, OrderedLogit, OrderedProbit, Probit
from cavity.likelihoods.noise import AsymmetricLaplace, Gaussian, Laplace, StudentT
from cavity.likelihoods.positive import Gamma, Tweedie
from cavity.likelihoods.shares import Beta, BetaBinomial
from cavity.likelihoods.survival import Exponential, LogLogistic, LogNormal, Weibull

BINARY_LIKELIHOODS = {"probit": Probit, "logit": Logit, "cloglog": Cloglog}
ORDERED_LIKELIHOODS = {"ordered-probit": OrderedProbit, "ordered-logit": OrderedLogit}
COUNT_LIKELIHOODS = {
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "zero-inflated-poisson": ZeroInflatedPoisson,
    "zero-inflated-negative-binomial": ZeroInflatedNegativeBinomial,
    "hurdle-poisson": HurdlePoisson,
}
REAL_LIKELIHOODS = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "laplace": Laplace,
    "asymmetric-laplace": AsymmetricLaplace,
}
POSITIVE_LIKELIHOODS = {"gamma": Gamma, "tweedie": Tweedie}
TIME_LIKELIHOODS = {"lognormal": LogNormal, "exponential": Exponential, "weibull": Weibull, "loglogistic": LogLogistic}
SHARE_LIKELIHOODS = {
    "binomial": Binomial,
    "binomial-probit": partial(Binomial, "probit"),
    "beta-binomial": BetaBinomial,
}
_LABEL_LIKELIHOODS = BINARY_LIKELIHOODS | SHARE_LIKELIHOODS | ORDERED_LIKELIHOODS
_NUMBER_LIKELIHOODS = POSITIVE_LIKELIHOODS | TIME_LIKELIHOODS | {"beta": Beta}
LIKELIHOODS_BY_NAME = _LABEL_LIKELIHOODS | COUNT_LIKELIHOODS | REAL_LIKELIHOODS | _NUMBER_LIKELIHOODS
LikelihoodName = Literal[  # for editors and type checkers: the names of the table above
    "probit",
    "logit",
    "cloglog",
    "binomial",
    "binomial-probit",
    "beta-binomial",
    "ordered-probit",
    "ordered-logit",
    "poisson",
    "negative-binomial",
    "zero-inflated-poisson",
    "zero-inflated-negative-binomial",
    "hurdle-poisson",
    "gaussian",
    "student-t",
    "laplace",
    "asymmetric-laplace",
    "gamma",
    "tweedie",
    "lognormal",
    "exponential",
    "weibull",
    "loglogistic",
    "beta",
]
OPEN_PARAMETERS = {  # parameters that fits find
    *("noise_variance", "scale", "dispersion", "thresholds", "shape", "sd", "power", "precision", "zero_probability")
}
_POISSON_TRICK = (
    "there is no likelihood of classes without an order: fit one class against the rest, as the classifiers in "
    "cavity.sklearn do, or counts of the classes with 'poisson' and an effect for each row; classes with an order have "
    "'ordered-logit' and 'ordered-probit'"
)
_USE_INSTEAD = {  # names of other packages, and what to use
    "cox": "use Weibull(effect='hazard'), or 'poisson' with an exposure and a row for each interval of time "
    "(piecewise exponential)",
    "softmax": _POISSON_TRICK,
    "multinomial": _POISSON_TRICK,
    "zoib": "use 'beta-binomial' for shares of counts; for others fit whether they are 0 or 1 with 'logit', and those "
    "between with 'beta'",
}


def make_likelihood(name, argument="likelihood"):
    """Return the likelihood with this name, its scales, dispersion, thresholds and the like open."""
    if isinstance(name, str) and name.lower() in _USE_INSTEAD:
        raise arrays.error_of(argument, f"must be a likelihood there is, got {name!r}: {_USE_INSTEAD[name.lower()]}")
    kind = LIKELIHOODS_BY_NAME[arrays.check_choice(name, argument, tuple(LIKELIHOODS_BY_NAME))]
    return kind(**{parameter: None for parameter in OPEN_PARAMETERS if parameter in getattr(kind, "parameters", ())})
