"""Covariances from strings, as of the command line, with first values and bounds in the scale of the data.

A string is a sum of products of names, like "rbf + linear * periodic"; numbers in brackets are the first values of the
parameters of a name, as in "rbf(2, 0.5)".
"""

import re
from dataclasses import fields

import numpy as np

from cavity.base.argument_names import suggest_names
from cavity.base.errors import name_arguments
from cavity.covariances import kinds

COVARIANCES_BY_NAME = {
    "rbf": kinds.RBF,
    "matern12": kinds.Matern12,
    "matern32": kinds.Matern32,
    "matern52": kinds.Matern52,
    "rational-quadratic": kinds.RationalQuadratic,
    "periodic": kinds.Periodic,
    "linear": kinds.Linear,
    "constant": kinds.Constant,
    "white": kinds.White,
}
INITIAL_NOISE_SHARE = 0.1  # share of the variance of y that a search ascribes to noise at first
LENGTHSCALE_FACTORS = np.array([1e-3, 1e4])  # bounds of lengthscales over the spread of a column, or over 1
VARIANCE_FACTORS = np.array([1e-6, 1e6])  # bounds of variances over their first values
SIGN_PATTERNS = {sign: re.compile(rf"\{sign}(?![^(]*\))") for sign in "+*"}  # signs outside of brackets


def parse(described):
    """Return the terms of a sum, each a list of its factors, (name, numbers); ValueError for what is none."""
    terms = SIGN_PATTERNS["+"].split(described)
    return [[_parse_factor(factor) for factor in SIGN_PATTERNS["*"].split(term)] for term in terms]


def make_covariance(described, spread, size, *, ard=True, lengthscale=None, period=None):
    """Return the covariance that a string describes, where a search may begin.

    Parameters
    ----------
    described : str
        Sum of products of names.
    spread : ndarray (D,)
        Standard deviation of each column of X: the first lengthscales.
    size : float
        Variance of f, in which the terms of the sum have equal shares.
    ard : bool, default True
        Whether each column has its own lengthscale.
    lengthscale, period : array_like, optional
        First lengthscales and periods, in place of the spreads.

    Returns
    -------
    Covariance
        With bounds in the scale of the data.
    """
    terms, total = parse(described), None
    for first, *others in terms:
        share = INITIAL_NOISE_SHARE * size if first[0] == "white" else size / len(terms)
        product = _make_leaf(*first, share, spread, ard, lengthscale, period)
        for name, numbers in others:  # the first factor has the variance
            fixed = () if name == "linear" else ("variance",)
            product = product * _make_leaf(name, numbers, 1.0, spread, ard, lengthscale, period, fixed)
        total = product if total is None else total + product
    return total


def _make_error(message):
    return name_arguments(ValueError(f"covariance: {message}"), "covariance")


def _parse_factor(factor):
    """Return the name of a factor like rbf(2,0.5), and its numbers."""
    name, bracket, rest = (part.strip() for part in factor.partition("("))
    if name not in COVARIANCES_BY_NAME:
        suggestion = suggest_names(name, COVARIANCES_BY_NAME)
        raise _make_error(f"{name!r} is none of {', '.join(COVARIANCES_BY_NAME)}{suggestion}")
    try:
        numbers = [float(part) for part in rest.removesuffix(")").split(",")] if bracket else []
    except ValueError:
        raise _make_error(f"expected numbers in brackets, like {name}(2,0.5), got {factor!r}") from None
    parameters = _list_parameters(name)
    if len(numbers) > len(parameters):
        raise _make_error(f"{name} has {', '.join(parameters)}, got {len(numbers)} numbers")
    for parameter, value in zip(parameters, numbers, strict=False):
        if not 0.0 < value < np.inf:
            raise _make_error(f"the {parameter} of {name} must be positive, got {value:g}")
    return name, numbers


def _list_parameters(name):
    """Return the names of the parameters of a leaf, in the order of numbers in brackets."""
    return [field.name for field in fields(COVARIANCES_BY_NAME[name]) if field.name in COVARIANCES_BY_NAME[name]._slots]


def _make_leaf(name, numbers, variance, spread, ard, lengthscale, period, fixed=()):
    """Return a leaf, scaled to the columns, with bounds."""
    settings, bounds = _choose_start(name, variance, spread, ard, lengthscale, period)
    for setting, value in zip(settings, numbers, strict=False):
        settings[setting] = value + np.zeros(np.shape(settings[setting]))
        bounds[setting] = value * (VARIANCE_FACTORS if setting == "variance" else LENGTHSCALE_FACTORS)
    return COVARIANCES_BY_NAME[name](**settings, fixed=fixed, bounds=bounds)


def _choose_start(name, variance, spread, ard, lengthscale, period):
    """Return first values of the parameters of a leaf, scaled to the columns, and bounds of some of them."""
    bounds = {"variance": variance * VARIANCE_FACTORS}
    if name in ("constant", "white"):
        return {"variance": variance}, bounds
    if not ard:
        spread = np.exp(np.mean(np.log(spread)))
    if name == "linear":
        slope = variance / spread**2
        return {"variance": slope}, {"variance": VARIANCE_FACTORS * [np.min(slope), np.max(slope)]}
    start = spread if lengthscale is None else lengthscale
    sizes = np.append(spread, start)
    reach = LENGTHSCALE_FACTORS * [np.min(sizes), np.max(sizes)]
    if name == "periodic":
        first = {"variance": variance, "lengthscale": 1.0, "period": spread if period is None else period}
        return first, bounds | {"period": reach, "lengthscale": LENGTHSCALE_FACTORS}
    further = {"shape": 1.0} if name == "rational-quadratic" else {}
    return {"variance": variance, "lengthscale": start} | further, bounds | {"lengthscale": reach}
