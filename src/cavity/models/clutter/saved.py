"""What a file of the clutter model holds."""

from cavity.base import arrays
from cavity.base.records import NUMBERS, POSITIVE, Array, Record, together

MODEL = {  # settings
    "clutter_weight": POSITIVE,
    "clutter_variance": POSITIVE,
    "noise_variance": POSITIVE,
    "prior_mean": NUMBERS,
    "prior_variance": POSITIVE,
    "clutter_mean": NUMBERS,
}
TRACE = {  # a batch has the axis B
    "change?": Array("c B?", "any"),
    "improper?": Array("i B?", "nonnegative", kind="i"),
    "double_loop?": Array("B?", "nonnegative", kind="i"),
}
BEFORE = {
    "before_mean": Array("B? D | ()"),
    "before_variance": Array("B?", "positive"),
    "before_log_evidence": Array("B?"),
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
    {f"{name}?": array for name, array in BEFORE.items()},
    {},
    (together(*BEFORE), _fits),
    {name: f"before.{place}" for place, name in enumerate(BEFORE)},
    order=("state_", "units_", "trace_", ""),
)
