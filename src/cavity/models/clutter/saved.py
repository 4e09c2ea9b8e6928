"""What a file of the clutter model holds, and the posterior made of it again."""

from cavity.base import arrays, records
from cavity.base.records import NUMBERS, POSITIVE, Array, Made, Nullable, Record, integer, names, one_of, together
from cavity.base.results import to_tuple
from cavity.models.clutter.model import Clutter
from cavity.models.clutter.points import WorkingUnits
from cavity.models.clutter.posterior import REPORTED, ClutterPosterior
from cavity.models.clutter.sites import ClutterSites

BEFORE = {f"before_{name}": REPORTED[name] for name in ("mean", "variance", "log_evidence")}
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
    **REPORTED,
    **{f"{name}?": array for name, array in BEFORE.items()},
}
SETTINGS = {
    "model": Made(
        lambda given: Clutter(**given),
        {
            "clutter_weight": POSITIVE,
            "clutter_variance": POSITIVE,
            "noise_variance": POSITIVE,
            "prior_mean": NUMBERS,
            "prior_variance": POSITIVE,
            "clutter_mean": NUMBERS,
        },
    ),
    "method": one_of("ep", "adf"),
    "n_samples": integer(1),
    "columns?": Nullable(names()),
}


def _fits(stored, settings, sizes):
    """Whether what is known of a posterior fits together, as a rule of its record."""
    tau, mean, model = stored["state_site_tau"], stored["mean"], settings["model"]
    d, n = tau.shape[-1], tau.shape[-2]
    for name in ("clutter_mean", "prior_mean"):
        arrays.vector(getattr(model, name), name, d)
    if mean.ndim == 0 and tau.shape[1:] != (1,):
        return f"array 'mean' must not be a number where array 'state_site_tau' has shape {tau.shape}"
    if stored.get("before_mean", mean).shape != mean.shape:
        return f"array 'before_mean' must have shape {mean.shape} like 'mean', got {stored['before_mean'].shape}"
    many = settings["n_samples"]
    if many < n or (many > n and "before_mean" not in stored):
        return f"setting 'n_samples' must be {n}, the number of sites, or more after updates, got {many}"
    return None


RECORD = Record(ARRAYS, SETTINGS, (together(*BEFORE), _fits))


def rebuilt(stored, settings):
    """Return the posterior of checked arrays and settings."""
    plain = {name: array if array.ndim else array.item() for name, array in stored.items()}
    return ClutterPosterior(
        **{name: plain[name] for name in REPORTED},
        model=settings["model"],
        n_samples=settings["n_samples"],
        method=settings["method"],
        columns=to_tuple(settings.get("columns")),
        trace=records.part(stored, "trace_"),
        before=tuple(records.part(plain, "before_").values()) or None,
        _sites=ClutterSites(**records.part(plain, "state_")),
        _units=WorkingUnits(**records.part(plain, "units_")),
    )
