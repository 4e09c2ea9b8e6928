"""Distributions as the factors of a mean-field posterior: joint coordinates, steps that stay in the domain, arrays."""

from dataclasses import replace

import numpy as np

from cavity.base.records import Array, refusing
from cavity.distributions.gamma import Gamma
from cavity.distributions.gaussian import Gaussian, SphericalGaussian
from cavity.distributions.multivariate import MultivariateGaussian
from cavity.distributions.simplex import Categorical, Dirichlet
from cavity.distributions.wishart import NormalWishart, Wishart

SAVED_WHOLE = (Categorical, MultivariateGaussian)  # what they are built from would not give back every bit
MIN_REMAINING_SHARE = 0.1  # of its distance from zero is what an extrapolation leaves a positive parameter at least
STEP_SHARES = 0.5 ** np.arange(1, 7)  # of the way, tried until one stays in the domain

GAUSSIAN_SCALES = {"rho": Array("S{0}*", "known"), "log_scale": Array("S{0}*", "known")}
WISHART_PARAMETERS = {"degrees_of_freedom": Array("()", "positive"), "inverse_scale": Array("D{0} D{0}", "symmetric")}
SAVED_ATTRIBUTES = {  # the attributes that files keep of each, where {0} is a number for each factor
    Categorical: {"probabilities": Array("S{0}* K{0}", "shares"), "_logits": Array("S{0}* K{0}", "log shares")},
    Dirichlet: {"concentration": Array("S{0}* K{0}", "positive")},
    Gamma: {"shape": Array("S{0}*", "positive"), "rate": Array("S{0}*", "positive")},
    Gaussian: {"tau": Array("S{0}*")} | GAUSSIAN_SCALES,
    MultivariateGaussian: {
        "mean": Array("D{0}"),
        "tau": Array("D{0}"),
        "covariance": Array("D{0} D{0}", "symmetric"),
        "precision": Array("D{0} D{0}", "symmetric"),
        "_factor": Array("D{0} D{0}", "triangle"),
        "_given": Array("()", kind="U"),
    },
    NormalWishart: {"mean": Array("D{0}"), "mean_precision": Array("()", "positive")} | WISHART_PARAMETERS,
    SphericalGaussian: {"tau": Array("S{0}* D{0}")} | GAUSSIAN_SCALES,
    Wishart: WISHART_PARAMETERS,
}


def to_arrays(name, distribution):
    """Return what files keep of a distribution as arrays called name.attribute."""
    kind = type(distribution)
    return {f"{name}.{attribute}": np.asarray(getattr(distribution, attribute)) for attribute in SAVED_ATTRIBUTES[kind]}


def from_arrays(name, family, arrays):
    """Rebuild a distribution, of the family with the given class name, that `to_arrays` took apart."""
    kind = FAMILIES_BY_NAME[family]
    values = {attribute: arrays[f"{name}.{attribute}"][()] for attribute in SAVED_ATTRIBUTES[kind]}
    with refusing(f"arrays '{name}': "):
        return kind._of(**values) if kind in SAVED_WHOLE else kind(**values)


def join_coordinates(factors):
    """Return the natural parameters and expected statistics of factors, one after the other; None has neither."""
    present = [factor for factor in factors if factor is not None]
    empty = np.zeros(0)
    return (
        np.concatenate([empty, *(factor.natural for factor in present)]),
        np.concatenate([empty, *(factor.statistics for factor in present)]),
    )


def step_towards(factors, natural):
    """Return factors with other natural parameters or, if some leave their domain, a shorter way towards them; or None.

    If even short ways leave the domain, some element of a Gamma is about to: then each of them is held back alone.
    """
    start, _ = join_coordinates(factors)
    held_back = start + np.concatenate([_hold_back(f, part) for f, part in _split_vector(factors, natural - start)])
    candidates = [natural, *(start + share * (natural - start) for share in STEP_SHARES), held_back]
    return next((step for step in (_rebuild(factors, candidate) for candidate in candidates) if step is not None), None)


def _split_vector(factors, vector):
    """Pair factors with their parts of a vector; None has none."""
    ends = np.cumsum([0 if factor is None else factor.natural.size for factor in factors])
    return zip(factors, np.split(vector, ends[:-1]), strict=True)


def _rebuild(factors, natural):
    try:
        return tuple(f if f is None else f.with_natural(part) for f, part in _split_vector(factors, natural))
    except (ValueError, OverflowError):
        return None


def _hold_back(factor, change):
    """Return a change of natural parameters that leaves every shape and rate of a Gamma at least the share NEARER."""
    if not isinstance(factor, Gamma):
        return change
    limits = (1.0 - MIN_REMAINING_SHARE) * np.concatenate([np.ravel(factor.shape), np.ravel(factor.rate)])
    half = limits.size // 2
    return np.concatenate([np.maximum(change[:half], -limits[:half]), np.minimum(change[half:], limits[half:])])


FAMILIES_BY_NAME = {kind.__name__: kind for kind in SAVED_ATTRIBUTES}


def declare_arrays(name, family, index):
    """Return the `Array`s, by name, that `to_arrays` gives for the place-th of several distributions, of a family."""
    attributes = SAVED_ATTRIBUTES[FAMILIES_BY_NAME[family]].items()
    return {f"{name}.{attribute}": replace(array, axes=array.axes.format(index)) for attribute, array in attributes}
