"""What a file of the clutter model holds."""

from cavity.base import arrays
from cavity.base.observation_digest import DIGEST_FIELD
from cavity.base.records import NUMBERS, POSITIVE, Array, Nullable, Record, integer, names, one_of, together

RESULT = {
    "mean": Array("B? D | ()"),
    "variance": Array("B?", "positive"),
    "log_evidence": Array("B?"),
    "converged": Array("B?", kind="b"),
    "n_iter": Array("B?", "nonnegative", kind="i"),
    "status": Array("B?", kind="U"),
}
BEFORE = {f"before_{name}": RESULT[name] for name in ("mean", "variance", "log_evidence")}
ARRAYS = {  # a batch has the axis B
    "state_site_tau": Array("B? N D"),
    "state_site_rho": Array("B? N"),
    "state_tau": Array("B? D"),
    "state_rho": Array("B?", "positive"),
    "state_site_value": Array("B? N"),
    "state_log_evidence": Array("B?"),
    "state_loo?": Array("B? N", "any"),
    "units_origin": Array("B? D"),
    "units_scale": Array("()", "positive"),
    "units_model": Array("5"),
    "units_centre": Array("B? D"),
    "units_prior_tau": Array("B? D"),
    "units_prior_rho": Array("() | B?", "positive"),
    "trace_change?": Array("c B?", "any"),
    "trace_improper?": Array("i B?", "nonnegative", kind="i"),
    "trace_double_loop?": Array("B?", "nonnegative", kind="i"),
    **RESULT,
    **{f"{name}?": array for name, array in BEFORE.items()},
}
SETTINGS = {
    "model": {
        "clutter_weight": POSITIVE,
        "clutter_variance": POSITIVE,
        "noise_variance": POSITIVE,
        "prior_mean": NUMBERS,
        "prior_variance": POSITIVE,
        "clutter_mean": NUMBERS,
    },
    "method": one_of("ep", "adf"),
    "n_samples": integer(1),
    "columns?": Nullable(names()),
    "observation_digest?": DIGEST_FIELD,
}


def _fits(stored, settings, sizes):
    """Whether what is known of a posterior fits together, as a rule of its record."""
    tau, mean, model = stored["state_site_tau"], stored["mean"], settings["model"]
    d, n = tau.shape[-1], tau.shape[-2]
    for name in ("clutter_mean", "prior_mean"):
        arrays.vector(model[name], name, d)
    if mean.ndim == 0 and tau.shape[1:] != (1,):
        return f"array 'mean' must not be a number where array 'state_site_tau' has shape {tau.shape}"
    if stored.get("before_mean", mean).shape != mean.shape:
        return f"array 'before_mean' must have shape {mean.shape} like 'mean', got {stored['before_mean'].shape}"
    many = settings["n_samples"]
    if many < n or (many > n and "before_mean" not in stored):
        return f"setting 'n_samples' must be {n}, the number of sites, or more after updates, got {many}"
    return None


RECORD = Record(
    ARRAYS,
    SETTINGS,
    (together(*BEFORE), _fits),
    {"state_": "_sites.", "units_": "_units."} | {name: f"before.{place}" for place, name in enumerate(BEFORE)},
)
