"""What a file of a streaming Gaussian process holds."""

import numpy as np

from cavity.base import records
from cavity.base.missing_values import DROPPED_ROWS_SETTING
from cavity.base.observation_digest import DIGEST_SETTING
from cavity.base.records import ANY_TEXT, FINITE_REAL, NONNEGATIVE_REAL, TRUTH_VALUE, Array, Made, Nullable, integer
from cavity.base.results import column_settings
from cavity.models.formula.saved import CODING_SETTING
from cavity.models.likelihood_settings import OPEN_LIKELIHOOD_SETTING
from cavity.models.process.model import check_columns
from cavity.models.process.saved import COVARIANCE_SETTING, EP_OPTIONS
from cavity.models.streaming_gp.snapshot import EMPTY_TRACE

INFORMATION_ARRAYS = ("A", "r", "factor", "c")  # the arrays of an Information
STATE_ARRAYS = {  # m and w may be 0
    "prior_mean": Array("() | P"),
    "Z": Array("m D"),
    "nugget": Array("m", "nonnegative"),
    "triangle": Array("m m", "triangle"),
    "inducing_ids": Array("m", "nonnegative", "i"),
    "A": Array("m m"),
    "r": Array("m"),
    "factor": Array("m m", "triangle"),
    "c": Array("m"),
    "waiting_X": Array("w D"),
    "waiting_weight": Array("w", "nonnegative"),
    **{f"trace_{name}": Array(f"{name[0]}", "any") for name in EMPTY_TRACE},
}
SNAPSHOT_PARTS = {  # of a snapshot, with the underscores that some have in files
    "_next_id": integer(),
    "n_samples": integer(),
    "_log_bound": FINITE_REAL,
    "last_increment": FINITE_REAL,
    "information_lost": FINITE_REAL,
    "last_information_lost": FINITE_REAL,
    "status": ANY_TEXT,
    "n_iter": integer(),
    "n_updates?": integer(),
    "_uniform": TRUTH_VALUE,
    "has_offset": TRUTH_VALUE,
}
WAITING_SETTINGS = {"patience": FINITE_REAL, "debt": FINITE_REAL, "count?": integer()}  # files up to 0.4.0 have a count
STATE_SETTINGS = {
    "information": {"constant": FINITE_REAL, "n": NONNEGATIVE_REAL, "squares": NONNEGATIVE_REAL, "gap": FINITE_REAL},
    "history?": {
        "changed": TRUTH_VALUE,
        "own_weight": NONNEGATIVE_REAL,
        "own_log_noise": Nullable(FINITE_REAL, np.nan),
        "worst": Nullable(
            {
                "update": integer(),
                "n_samples": integer(),
                "status": ANY_TEXT,
                "change": Nullable(NONNEGATIVE_REAL, np.inf),
            }
        ),
    },
    "parts": Made(
        dict, SNAPSHOT_PARTS, lambda now: {name.strip("?"): getattr(now, name.strip("_?")) for name in SNAPSHOT_PARTS}
    ),
    "waiting": Made(dict, WAITING_SETTINGS, lambda now: {name: getattr(now, name) for name in ("debt", "patience")}),
    **column_settings("D"),
    "covariance": COVARIANCE_SETTING,
    "likelihood": OPEN_LIKELIHOOD_SETTING,
    "model": {
        "n_inducing": integer(1),
        "tolerance": NONNEGATIVE_REAL,
        "jitter": NONNEGATIVE_REAL,
        "alpha": NONNEGATIVE_REAL,
    },
    "given": Made(bool, TRUTH_VALUE, lambda model: model.inducing is not None),
    "observation_digest?": DIGEST_SETTING,
    "dropped?": DROPPED_ROWS_SETTING,
    "coding?": CODING_SETTING,
    "n_features": integer(1, "D"),
    "options": Made(
        dict,
        EP_OPTIONS | {"schedule": records.one_of("auto", "sequential", "parallel")},
        lambda options: options.record("schedule", *EP_OPTIONS),
    ),
}
FIELD_PATHS = {
    "": "_now.",
    **{name: f"_now.model.{name}" for name in ("covariance", "likelihood")},
    **{name: f"_now.basis.{name}" for name in ("Z", "nugget")},
    **{name: f"_now.information.{name}" for name in INFORMATION_ARRAYS},
    **{name: name for name in ("n_features", "observation_digest")},
    "prior_mean": "_now.model.mean",
    "triangle": "_now.basis.factor",
    "waiting_": "_now.waiting.",
    "trace_": "_now.trace.",
    "parts": "_now",
    "given": "_now.model",
    "options": "_options",
}


def _fits(stored, settings, sizes):
    """Whether model, inducing points and what is known of them fit together, as a rule of the record."""
    check_columns(settings["covariance"], stored["prior_mean"], sizes["D"])
    for name, rows in (("Z", stored["Z"]), ("inducing_ids", stored["inducing_ids"][:, None])):
        if len(np.unique(rows, axis=0)) < len(rows):
            return f"array {name!r} must not say anything twice"
    if np.any(stored["inducing_ids"] >= settings["parts"]["_next_id"]):
        return "setting 'parts._next_id' must be above all of 'inducing_ids'"
    return None


STATE_RECORD = records.Record(STATE_ARRAYS, STATE_SETTINGS, (_fits,), FIELD_PATHS)
