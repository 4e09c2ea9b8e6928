"""What a file of a Gaussian mixture holds, and the posterior made of it again."""

from dataclasses import fields

import numpy as np

from cavity.base import records
from cavity.base.records import NONNEGATIVE, NUMBERS, TEXT, Array, Made, Nullable, Record, integer, names
from cavity.base.results import OUTCOME, TRACE, VariationalPosterior, to_tuple
from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors, is_full
from cavity.models.mixture.posterior import posterior_of
from cavity.models.mixture.scaling import Scaling
from cavity.models.mixture.state import MixtureState

MODEL = {
    "n_components": integer(1, "K"),
    "covariance": TEXT,
    "weights": TEXT,
    "weight_concentration_prior": Nullable(NUMBERS),
    "mean_prior": Nullable(NUMBERS),
    "mean_precision_prior": NUMBERS,
    "degrees_of_freedom_prior": Nullable(NUMBERS),
    "covariance_prior": Nullable(NUMBERS),
}
PRECISIONS = {  # axes of degrees of freedom and scatter
    "full": ("K", "K D D"),
    "tied": ("1", "1 D D"),
    "diag": ("K D", "K D"),
    "spherical": ("K 1", "K 1"),
}


def _model(given):
    from cavity.models.mixture.model import GaussianMixture

    return GaussianMixture(**given)


def _arrays_of(settings):
    model = settings["model"]
    full = is_full(model.covariance)
    nu, scatter = PRECISIONS[model.covariance]
    state = {
        "mean": Array("K D"),
        "concentration": Array("K" if model.weights == "dirichlet" else "K-1 2", "positive"),
        "beta": Array("K 1" if full else "K 1 | K D", "positive"),
        "nu": Array(nu, "positive"),
        "scatter": Array(scatter, "symmetric" if full else "positive"),
        "counts": Array("K"),
    }
    if full:
        state |= {"factor": Array(scatter, "triangle"), "root": Array(scatter, "triangle")}
    table = {f"{label}_{name}": array for label in ("q", "prior") for name, array in state.items()}
    table |= {"origin": Array("D"), "scale": Array("D", "positive")}
    return table | TRACE | {"trace_moves?": Array("moves", "nonnegative", "fi")}


def _proper(arrays, settings, sizes):
    """Whether there are degrees of freedom enough for matrices, as a rule of the record."""
    for label in ("q", "prior"):
        if is_full(settings["model"].covariance) and not np.all(arrays[f"{label}_nu"] > sizes["D"] - 1):
            return f"array '{label}_nu' must be above D - 1 = {sizes['D'] - 1}"
    return None


RECORD = Record(
    _arrays_of,
    OUTCOME | {"n_samples": NONNEGATIVE, "model": Made(_model, MODEL), "columns?": Nullable(names("D"))},
    (_proper,),
)


def rebuilt(arrays, settings):
    """Return the posterior of checked arrays and settings."""
    model = settings["model"]
    family = WishartFactors if is_full(model.covariance) else GammaFactors

    def state(label):
        parts = records.part(arrays, f"{label}_")
        weights, factors = (kind(**{f.name: parts[f.name] for f in fields(kind)}) for kind in (WeightFactors, family))
        return MixtureState(weights, factors, parts["counts"])

    scaling = Scaling(arrays["origin"], arrays["scale"])
    outcome = VariationalPosterior.outcome_from_arrays(arrays, settings)
    columns = to_tuple(settings.get("columns"))
    return posterior_of(model, state("q"), state("prior"), scaling, settings["n_samples"], outcome, columns)
