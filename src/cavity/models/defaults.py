"""Defaults from the observations: the likelihood, and scales of f.

References
----------
.. [GJ] A. Gelman, A. Jakulin, M. G. Pittau and Y.-S. Su, "A weakly informative default prior distribution for logistic
   and other regression models", Annals of Applied Statistics 2, 2008.
"""

import numpy as np

from cavity import likelihoods
from cavity.base.arrays import error_of
from cavity.base.column_statistics import robust_spread, weighted_median
from cavity.base.frames import find_refusal
from cavity.base.labels import HOW_TO_ORDER, has_classes, infer_target_kind
from cavity.likelihoods.names import make_likelihood
from cavity.likelihoods.parameters import check_declared

LIKELIHOOD_BY_TARGET = {"ordered": "ordered-probit", "numbers": "gaussian"}  # names of likelihoods
LOGITS_PER_PROBIT = 1.7  # Phi(f) is within .0095 of 1/(1 + exp(-1.7 f)) for every f, and no factor comes much closer
LOGIT_PRIOR_SCALE = 2.5  # [GJ]_: two sd of a column change log odds, and logs of rates, by 5 at most
PROBIT_PRIOR_SCALE = LOGIT_PRIOR_SCALE / LOGITS_PER_PROBIT
REAL_PRIOR_SCALE = 2.5  # in spreads of y
LARGEST_SCALE = 1e152  # of observations, and the inverse of the smallest: variances of f are within float64
LIKELIHOODS_OF_TIMES = "times until an event, 'weibull', 'lognormal', 'loglogistic', 'exponential' or 'gaussian'"
LIKELIHOODS_WITH_LOG_OR_LOGIT = (  # whose f is the log of a rate, a mean or a time, or a logit, whatever the unit of y
    likelihoods.ZeroInflatedPoisson,
    likelihoods.ZeroInflatedNegativeBinomial,
    likelihoods.HurdlePoisson,
    likelihoods.BetaBinomial,
    likelihoods.Beta,
    likelihoods.Gamma,
    likelihoods.Tweedie,
    likelihoods.LogNormal,
    likelihoods.Exponential,
    likelihoods.Weibull,
    likelihoods.LogLogistic,
)
# Prior sd of what a scale of a column does to f, where the prior is left to the data: in units of f for classes and
# counts, in robust spreads of y for real numbers. By class, subclasses included, and by link where a class has several.
PRIOR_SCALES = {
    likelihoods.Logit: LOGIT_PRIOR_SCALE,
    likelihoods.Probit: PROBIT_PRIOR_SCALE,
    likelihoods.OrderedProbit: PROBIT_PRIOR_SCALE,
    likelihoods.Cloglog: LOGIT_PRIOR_SCALE,
    likelihoods.OrderedLogit: LOGIT_PRIOR_SCALE,
    likelihoods.Step: LOGIT_PRIOR_SCALE,  # depends on the sign of f only: any number gives the same probabilities
    likelihoods.Binomial: {"logit": LOGIT_PRIOR_SCALE, "probit": PROBIT_PRIOR_SCALE},
    likelihoods.Poisson: LOGIT_PRIOR_SCALE,
    likelihoods.NegativeBinomial: LOGIT_PRIOR_SCALE,
    **dict.fromkeys(LIKELIHOODS_WITH_LOG_OR_LOGIT, LOGIT_PRIOR_SCALE),
    likelihoods.Gaussian: REAL_PRIOR_SCALE,
    likelihoods.StudentT: REAL_PRIOR_SCALE,
    likelihoods.Laplace: REAL_PRIOR_SCALE,
    likelihoods.AsymmetricLaplace: REAL_PRIOR_SCALE,
    likelihoods.Clutter: REAL_PRIOR_SCALE,
    likelihoods.Interval: REAL_PRIOR_SCALE,  # f and the bounds have one unit
    likelihoods.Likelihood: REAL_PRIOR_SCALE,  # a user's own: spreads of y; units of f for classes and counts
}


def check_kind(value, name, kind, module):
    """Raise TypeError unless a setting of a model is of a kind of cavity's."""
    if not isinstance(value, kind):
        hint = " (did you forget the brackets?)" if isinstance(value, type) else ""
        if type(value).__module__.startswith("sklearn."):
            hint = " of scikit-learn; the estimators in cavity.sklearn take its kernels"
        raise TypeError(f"{name} must be an instance of cavity.{module}.{kind.__name__}, got {value!r}{hint}")


def check_likelihood(likelihood):
    """Return the likelihood of an object or a name, or None, to be chosen from y."""
    if isinstance(likelihood, str):
        return make_likelihood(likelihood)
    if likelihood is not None:
        check_kind(likelihood, "likelihood", likelihoods.Likelihood, "likelihoods")
        check_declared(likelihood)
    return likelihood


def likelihood_for(y, binary="probit"):
    """Return the default likelihood for observations, its parameters open; `binary` names that of two values.

    Raises
    ------
    ValueError
        For more than two classes without an order.
    """
    kind = "numbers" if _are_two_numbers(y) else infer_target_kind(y)
    names = LIKELIHOOD_BY_TARGET | {"binary": binary}
    if kind not in names:
        _refuse_dates(y)
        raise ValueError(
            "y must hold numbers, two classes or ordered classes, got more than two classes without an order: there "
            "is no likelihood for these; the classifiers in cavity.sklearn fit one class against the rest. If they "
            f"have an order, {HOW_TO_ORDER}"
        )
    return make_likelihood(names[kind])


def _refuse_dates(y):
    """Raise ValueError for observations that are dates."""
    for column in (y, np.asarray(y, dtype=object)):
        refusal = (find_refusal(column) or ("",))[0]
        if refusal.startswith("dates"):
            raise ValueError(f"y must hold numbers or classes, got {refusal}: turn them into days since a first day")


def choose_for_times(likelihood):
    """Return the likelihood of a model for times that may be censored: `Interval` in place of `Gaussian`.

    Raises
    ------
    ValueError
        For a likelihood of other observations.
    """
    if likelihood is None:
        return make_likelihood("weibull")
    if isinstance(likelihood, likelihoods.Gaussian):
        return likelihoods.Interval(likelihood.noise_variance)
    if not likelihood.takes_event:
        raise error_of("event", f"is for {LIKELIHOODS_OF_TIMES}, got {type(likelihood).__name__}")
    return likelihood


def _are_two_numbers(y):
    """Whether y has two rows, of numbers other than -1, 0 and 1, as a small first batch may have."""
    y = np.asarray(y) if hasattr(y, "__len__") and len(y) == 2 else np.zeros(0)
    return y.shape == (2,) and y.dtype.kind in "iuf" and not np.all((np.abs(y) == 1) | (y == 0))


def is_real(likelihood):
    """Whether observations are real numbers like f: no labels, no counts, no numbers whose log or logit f is."""
    return not (has_classes(likelihood) or likelihood.discrete) and likelihood.link in (None, "identity")


def follows_units(likelihood):
    """Whether f is the log of the scale of the observations, which are no counts."""
    return likelihood.link == "log" and not likelihood.discrete


def find_prior_scale(likelihood):
    """Return the entry of a likelihood in `PRIOR_SCALES`."""
    scale = next(PRIOR_SCALES[kind] for kind in type(likelihood).__mro__ if kind in PRIOR_SCALES)
    return scale[likelihood.link] if isinstance(scale, dict) else scale


def find_location_and_spread(likelihood, rows):
    """Return the median and the robust spread of rough values of f less offsets; 0 and 1 for labels, counts, shares.

    Where f is the log of the scale of y the spread is 1. Bounds count if they are finite.
    """
    has_log_scale = follows_units(likelihood)
    if not (has_log_scale or is_real(likelihood)):
        return 0.0, 1.0
    y = likelihood.start(rows.y) if has_log_scale or rows.y.ndim == 1 else None
    y = (rows.y if y is None else y).reshape(rows.n, -1)
    weights = None if rows.weights is None else np.repeat(rows.weights, y.shape[1])
    values = (y if rows.offset is None else y - rows.offset[:, None]).ravel()
    usable = np.isfinite(values) if weights is None else np.isfinite(values) & (weights > 0)
    if not usable.any():
        return 0.0, 1.0
    values, weights = values[usable], None if weights is None else weights[usable]
    location, spread = weighted_median(values, weights), 1.0 if has_log_scale else robust_spread(values, weights)
    if not (1.0 / LARGEST_SCALE < spread < LARGEST_SCALE and abs(location) < LARGEST_SCALE):
        sizes = f"squares of its median, {location:.3g}, or of its spread, {spread:.3g}"
        raise OverflowError(f"y: {sizes}, leave the range of float64; rescale it")
    return location, spread
