"""What a file of a Gaussian process holds, and the posterior made of it again."""

import numpy as np

from cavity.base import records
from cavity.base.records import FLAG, NUMBER, SHARE, Array, Nullable, Record, integer, names, one_of, together
from cavity.base.results import to_tuple
from cavity.base.rows import Rows
from cavity.ep.latent_solver import Solver
from cavity.models.gp.model import GaussianProcess
from cavity.models.gp.posterior import PLAIN, GaussianProcessPosterior
from cavity.models.gp.process import COVARIANCE, OPTIONS, check_columns
from cavity.models.latent import FITTED, TRACE

NEGATIVE = ("negative", "weight", "reach", "corner")  # what a solver has of sites of negative precision
ARRAYS = {  # of U rows that are in use, and J sites of negative precision
    "X": Array("N D"),
    "mean": Array("N"),
    "variance": Array("N", "nonnegative"),
    "_loo": Array("N", "any"),
    "_tau": Array("N"),
    "_rho": Array("N"),
    "_alpha": Array("U"),
    "rows_X": Array("N D"),
    "rows_y": Array("N | N 2", "known"),
    "rows_base": Array("N"),
    "rows_weights?": Array("N", "nonnegative"),
    "rows_noise?": Array("N", "positive"),
    "rows_spare": Array("N", kind="b"),
    "rows_idle": Array("N", kind="b"),
    "solver_root": Array("U", "nonnegative"),
    "solver_triangle": Array("U U", "triangle"),
    "solver_diagonal?": Array("U", "nonnegative"),
    "solver_negative?": Array("J", "nonnegative", "i"),
    "solver_weight?": Array("J", "positive"),
    "solver_reach?": Array("J U"),
    "solver_corner?": Array("J J", "triangle"),
    "prior_mean": Array("() | P"),
    **TRACE,
    "trace_learning?": Array("l", "any"),
}
SETTINGS = FITTED | {
    "n_samples": integer(1, "N"),
    "columns?": Nullable(names("D")),
    "_options": OPTIONS | {"schedule": one_of("sequential", "parallel"), "power": SHARE},
    "solver": {"inverted": FLAG, "log_determinant": NUMBER},
    "covariance": COVARIANCE,
}


def _fits(arrays, settings, sizes):
    """Whether rows, solver and model fit together, as a rule of the record."""
    check_columns(settings["covariance"], arrays["prior_mean"], sizes["D"])
    likelihood, y = settings["likelihood"], arrays["rows_y"]
    with records.refusing("array 'rows_y': "):
        same = y.ndim == likelihood._y_ndim and np.array_equal(likelihood.check(y), y)
    if not same:
        return f"array 'rows_y' must hold observations as {type(likelihood).__name__} has them"
    if not np.array_equal(arrays["X"], arrays["rows_X"]):
        return "array 'rows_X' must be 'X'"
    used = int(np.sum(~(arrays["rows_spare"] | arrays["rows_idle"])))
    if used != sizes["U"]:
        return f"array '_alpha' must be of the {used} rows in use, got {sizes['U']}"
    negative = arrays.get("solver_negative", np.zeros(0, dtype=np.intp))
    if np.any(negative >= used) or len(np.unique(negative)) < len(negative):
        return f"array 'solver_negative' must hold different numbers of rows below {used}"
    return None


RECORD = Record(ARRAYS, SETTINGS, (together(*(f"solver_{name}" for name in NEGATIVE)), _fits))


def rebuilt(arrays, settings):
    """Return the posterior of checked arrays and settings."""
    rows = {name: arrays.get(f"rows_{name}") for name in ("X", "y", "base", "weights", "noise", "spare", "idle")}
    weights, idle = rows["weights"], rows["idle"] if np.any(rows["idle"]) else None
    if np.any(rows["spare"]):  # without weights in the file those of all others are one
        weights = np.where(rows["spare"], 0.0, 1.0 if weights is None else weights)
    return GaussianProcessPosterior(
        model=GaussianProcess(settings["covariance"], settings["likelihood"], arrays["prior_mean"][()]),
        **{name: arrays[name] for name in ("X", "mean", "variance", "_loo", "_tau", "_rho", "_alpha")},
        **{name: settings[name] for name in PLAIN},
        trace=records.part(arrays, "trace_"),
        **{name: to_tuple(settings.get(name)) for name in ("columns", "classes")},
        _rows=Rows(rows["X"], rows["y"], rows["base"], weights, rows["noise"], idle),
        _solver=Solver(**records.part(arrays, "solver_"), **settings["solver"]),
    )
