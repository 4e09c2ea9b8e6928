"""What a file of a Gaussian mixture holds."""

import numpy as np

from cavity.base.records import REAL_LISTS, Array, Nullable, Record, integer, one_of
from cavity.models.mixture.factors import is_full

PRECISION_AXES = {  # axes of degrees of freedom and scatter
    "full": ("K", "K D D"),
    "tied": ("1", "1 D D"),
    "diag": ("K D", "K D"),
    "spherical": ("K 1", "K 1"),
}
MODEL_SETTINGS = {
    "n_components": integer(1, "K"),
    "covariance": one_of(*PRECISION_AXES),
    "weights": one_of("dirichlet", "stick_breaking"),
    "weight_concentration_prior": Nullable(REAL_LISTS),
    "mean_prior": Nullable(REAL_LISTS),
    "mean_precision_prior": REAL_LISTS,
    "degrees_of_freedom_prior": Nullable(REAL_LISTS),
    "covariance_prior": Nullable(REAL_LISTS),
}


def _arrays_of(settings):
    model = settings["model"]
    full = is_full(model["covariance"])
    nu, scatter = PRECISION_AXES[model["covariance"]]
    state = {
        "mean": Array("K D"),
        "concentration": Array("K" if model["weights"] == "dirichlet" else "K-1 2", "positive"),
        "beta": Array("K 1" if full else "K 1 | K D", "positive"),
        "nu": Array(nu, "positive"),
        "scatter": Array(scatter, "symmetric" if full else "positive"),
        "counts": Array("K"),
    }
    if full:
        state |= {"factor": Array(scatter, "triangle"), "root": Array(scatter, "triangle")}
    table = {f"{label}_{name}": array for label in ("q", "prior") for name, array in state.items()}
    return table | {"trace_moves?": Array("moves", "nonnegative", "fi")}


def _proper(arrays, settings, sizes):
    """Whether there are degrees of freedom enough for matrices, as a rule of the record."""
    for label in ("q", "prior"):
        if is_full(settings["model"]["covariance"]) and not np.all(arrays[f"{label}_nu"] > sizes["D"] - 1):
            return f"array '{label}_nu' must be above D - 1 = {sizes['D'] - 1}"
    return None


POSTERIOR_RECORD = Record(
    _arrays_of,
    {},
    (_proper,),
    {"q_counts": "_state.counts counts", "prior_counts": "_prior.counts"}
    | {"q_concentration": "_state.weights.concentration", "prior_concentration": "_prior.weights.concentration"}
    | {"q_": "_state.factors.", "prior_": "_prior.factors."},
)
