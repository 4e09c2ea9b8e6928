"""Covariances by their names, in strings and on the command line, with first values in the scale of the data.

A string is a sum of products of names, like "rbf + linear * periodic"; numbers in brackets are the first values of the
parameters of a name, as in "rbf(2, 0.5)".
"""

import re
from dataclasses import fields

import numpy as np

from cavity.base.errors import name_arguments
from cavity.covariances import kinds

LEAVES = {
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
NOISE = 0.1  # share of the variance of y that a search ascribes to noise at first
SHORTEST, LONGEST = 1e-3, 1e4  # lengthscales learnt lie between these multiples of the spread of a column, or of 1
SMALLEST, LARGEST = 1e-6, 1e6  # variances learnt, of what they are at first
OUTSIDE = {sign: re.compile(rf"\{sign}(?![^(]*\))") for sign in "+*"}  # signs outside of brackets


def parsed(described):
    """Return the terms of a sum, each a list of its factors, (name, numbers); ValueError for what is none."""
    return [[_factor(factor) for factor in OUTSIDE["*"].split(term)] for term in OUTSIDE["+"].split(described)]


def named(described, spread, size, *, ard=True, lengthscale=None, period=None):
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
    terms, total = parsed(described), None
    for first, *others in terms:
        share = NOISE * size if first[0] == "white" else size / len(terms)
        product = _leaf(*first, share, spread, ard, lengthscale, period)
        for name, given in others:  # the first factor has the variance
            fixed = () if name == "linear" else ("variance",)
            product = product * _leaf(name, given, 1.0, spread, ard, lengthscale, period, fixed)
        total = product if total is None else total + product
    return total


def _wrong(words):
    return name_arguments(ValueError(f"covariance: {words}"), "covariance")


def _factor(factor):
    """Return the name of a factor like rbf(2,0.5), and its numbers."""
    name, bracket, rest = (part.strip() for part in factor.partition("("))
    if name not in LEAVES:
        raise _wrong(f"{name!r} is none of {', '.join(LEAVES)}")
    try:
        given = [float(part) for part in rest.removesuffix(")").split(",")] if bracket else []
    except ValueError:
        raise _wrong(f"expected numbers in brackets, like {name}(2,0.5), got {factor!r}") from None
    parameters = _parameters(name)
    if len(given) > len(parameters):
        raise _wrong(f"{name} has {', '.join(parameters)}, got {len(given)} numbers")
    for parameter, value in zip(parameters, given, strict=False):
        if not 0.0 < value < np.inf:
            raise _wrong(f"the {parameter} of {name} must be positive, got {value:g}")
    return name, given


def _parameters(name):
    """Return the names of the parameters of a leaf, in the order of numbers in brackets."""
    return [each.name for each in fields(LEAVES[name]) if each.name in LEAVES[name]._slots]


def _leaf(name, given, variance, spread, ard, lengthscale, period, fixed=()):
    """Return a leaf, scaled to the columns, with bounds."""
    settings, bounds = _first(name, variance, spread, ard, lengthscale, period)
    for setting, value in zip(settings, given, strict=False):
        settings[setting] = value + np.zeros(np.shape(settings[setting]))
        low, high = (SMALLEST, LARGEST) if setting == "variance" else (SHORTEST, LONGEST)
        bounds[setting] = low * value, high * value
    return LEAVES[name](**settings, fixed=fixed, bounds=bounds)


def _first(name, variance, spread, ard, lengthscale, period):
    """Return first values of the parameters of a leaf, scaled to the columns, and bounds of some of them."""
    bounds = {"variance": (SMALLEST * variance, LARGEST * variance)}
    if name in ("constant", "white"):
        return {"variance": variance}, bounds
    if not ard:
        spread = np.exp(np.mean(np.log(spread)))
    if name == "linear":
        slope = variance / spread**2
        return {"variance": slope}, {"variance": (SMALLEST * np.min(slope), LARGEST * np.max(slope))}
    start = spread if lengthscale is None else lengthscale
    reach = SHORTEST * np.min([np.min(spread), np.min(start)]), LONGEST * np.max([np.max(spread), np.max(start)])
    if name == "periodic":
        first = {"variance": variance, "lengthscale": 1.0, "period": spread if period is None else period}
        return first, bounds | {"period": reach, "lengthscale": (SHORTEST, LONGEST)}
    further = {"shape": 1.0} if name == "rational-quadratic" else {}
    return {"variance": variance, "lengthscale": start} | further, bounds | {"lengthscale": reach}
