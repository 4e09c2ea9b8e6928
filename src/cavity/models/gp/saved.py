"""What a file of a Gaussian process holds."""

import numpy as np

from cavity.base import records
from cavity.base.records import FINITE_REAL, TRUTH_VALUE, UNIT_SHARE, Array, Record, integer, one_of, together
from cavity.base.rows import Rows
from cavity.models.gp.chain_processes import PROCESS_METHODS, find_obstacle
from cavity.models.integration import INTEGRATE_SETTING, INTEGRATION_ARRAYS
from cavity.models.likelihood_settings import LIKELIHOOD_SETTING
from cavity.models.process.model import check_columns
from cavity.models.process.saved import COVARIANCE_SETTING

NEGATIVE_SITE_ARRAYS = ("negative", "weight", "reach", "corner")  # what a solver has of sites of negative precision
SAVED_ARRAYS = {
    "_loo": Array("N", "any"),
    "_tau": Array("N"),
    "_rho": Array("N"),
    "rows_X": Array("N D"),
    "rows_y": Array("N | N 2", "known"),
    "rows_base": Array("N"),
    "rows_weights?": Array("N", "nonnegative"),
    "rows_noise?": Array("N", "positive"),
    "rows_spare": Array("N", kind="b"),
    "rows_idle": Array("N", kind="b"),
    "prior_mean": Array("() | w"),
    "trace_learning?": Array("l", "any"),
}
MODEL_SETTINGS = {
    "likelihood": LIKELIHOOD_SETTING,
    "covariance": COVARIANCE_SETTING,
    "method?": one_of(*PROCESS_METHODS),
    "integrate?": INTEGRATE_SETTING,
}
EP_SETTINGS = {"schedule": one_of("sequential", "parallel"), "power": UNIT_SHARE}  # options of these fits alone
SAVED_SETTINGS = {"n_samples": integer(1, "N")}


def _rows_fit(arrays, settings, sizes):
    """Whether rows and model fit together, as a rule of the record."""
    check_columns(settings["covariance"], arrays["prior_mean"], sizes["D"])
    likelihood, y = settings["likelihood"], arrays["rows_y"]
    with records.refusing("array 'rows_y': "):
        same = y.ndim == likelihood._y_ndim and np.array_equal(likelihood.check(y), y)
    if not same:
        return f"array 'rows_y' must hold observations as {type(likelihood).__name__} has them"
    if not np.array_equal(arrays["X"], arrays["rows_X"]):
        return "array 'rows_X' must be 'X'"
    if np.any((arrays.get("rows_weights", np.ones(1)) == 0) & ~arrays["rows_spare"]):
        return "array 'rows_weights' must be positive but where 'rows_spare' is true"
    return None


def _chain_fits(arrays, settings, sizes):
    """Whether the covariance is one of chains, and the posterior of the sites is proper."""
    obstacle = find_obstacle(settings["covariance"], None, sizes["D"])
    return None if obstacle is None else f"a chain {obstacle}"


def _solver_fits(arrays, settings, sizes):
    """Whether the solver is one of the rows in use."""
    n_used = int(np.sum(~(arrays["rows_spare"] | arrays["rows_idle"])))
    if n_used != sizes["U"]:
        return f"array '_alpha' must be of the {n_used} rows in use, got {sizes['U']}"
    n_entries = 3 * n_used + np.array([0, np.size(arrays["prior_mean"])])
    if sizes.get("n", n_used) != n_used or sizes.get("e", 3 * n_used) not in n_entries:
        return f"arrays 'integration_means' and 'integration_entries' must be of the {n_used} rows in use"
    negative = arrays.get("solver_negative", np.zeros(0, dtype=np.intp))
    if np.any(negative >= n_used) or len(np.unique(negative)) < len(negative):
        return f"array 'solver_negative' must hold different numbers of rows below {n_used}"
    return None


def _stored(rows):
    """Return what a file holds of rows."""
    idle = np.zeros(rows.n, dtype=bool) if rows.f_known is None else rows.f_known
    weights = None if rows.used().weights is None else rows.weights
    stored = {"X": rows.X, "y": rows.y, "base": rows.offset, "noise": rows.noise}
    return stored | {"weights": weights, "spare": rows.left_out, "idle": idle}


def _rows(X, y, base, spare, idle, weights=None, noise=None):
    """Return the rows of which a file holds that."""
    if np.any(spare):  # without weights in the file those of all others are one
        weights = np.where(spare, 0.0, 1.0 if weights is None else weights)
    return Rows(X, y, base, weights, noise, idle if np.any(idle) else None)


PATHS_BY_PREFIX = {"rows_": "_rows.", "prior_mean": "model.mean"}
RECORD_FORMS = {"_rows": (_stored, _rows)}
POSTERIOR_RECORD = Record(
    SAVED_ARRAYS,
    SAVED_SETTINGS | {"solver": {"inverted": TRUTH_VALUE, "log_determinant": FINITE_REAL}},
    (
        together(*(f"solver_{name}" for name in NEGATIVE_SITE_ARRAYS)),
        together(*(f"integration_{name}" for name in INTEGRATION_ARRAYS)),
        _rows_fit,
        _solver_fits,
    ),
    PATHS_BY_PREFIX | {"solver": "_solver"},
    RECORD_FORMS,
)
CHAIN_RECORD = Record(SAVED_ARRAYS, SAVED_SETTINGS, (_rows_fit, _chain_fits), PATHS_BY_PREFIX, RECORD_FORMS)
