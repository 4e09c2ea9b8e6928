"""What a file of a GLM holds, and the posterior made of it again."""

from cavity.base import records
from cavity.base.records import FLAG, Array, Record, one_of, together
from cavity.ep.weights import Covariance
from cavity.models.glm.model import GLM
from cavity.models.glm.posterior import GLMPosterior
from cavity.models.latent import FITTED, TRACE, fitted_from_arrays


def _arrays_of(settings):
    full, ep = settings["approximation"] == "full", settings["method"] == "ep"
    root = {"covariance_root": Array("D | D D")}
    root |= {"covariance_basis?": Array("D M"), "covariance_factor?": Array("M M")}
    sites = {"_tau?": Array("N", "any"), "_rho?": Array("N", "any")}  # stochastic EP keeps none
    return {
        "mean": Array("D"),
        "variance": Array("D", "nonnegative"),
        **(root if full else {}),
        **({"_loo?": Array("N", "any")} if ep else {}),
        **(sites if full and ep else {}),
        "prior_mean": Array("() | D"),
        "prior_variance": Array("() | D | D D"),
        "centre?": Array("C"),
        "spread?": Array("C", "positive"),
        **TRACE,
    }


def _fits(arrays, settings, sizes):
    """Whether sites and columns are as many as there should be, as a rule of the record."""
    if settings["n_samples"] != sizes.get("N", settings["n_samples"]):
        return f"setting 'n_samples' must be {sizes['N']} like the sites, got {settings['n_samples']}"
    added = int(settings.get("intercept", False))
    if sizes.get("C", sizes["D"] - added) != sizes["D"] - added:
        return f"there must be {sizes['D'] - added} columns, as there are {sizes['D']} weights, got {sizes['C']}"
    return None


RECORD = Record(
    _arrays_of,
    FITTED
    | {
        "method": one_of("ep", "adf"),
        "approximation": one_of("full", "diagonal"),
        "intercept?": FLAG,
        "has_offset?": FLAG,
    },
    (*map(together, ("_tau", "covariance_basis", "centre"), ("_rho", "covariance_factor", "spread")), _fits),
)


def rebuilt(arrays, settings):
    """Return the posterior of checked arrays and settings."""
    prior = arrays["prior_mean"][()], arrays["prior_variance"][()]
    model = GLM(settings["likelihood"], *prior, settings["approximation"])
    parts = records.part(arrays, "covariance_")
    return GLMPosterior(
        model=model,
        mean=arrays["mean"],
        variance=arrays["variance"],
        **fitted_from_arrays(arrays, settings),
        method=settings["method"],
        _covariance=Covariance(**parts) if parts else None,
        **{name: arrays.get(name) for name in ("_loo", "_tau", "_rho", "centre", "spread")},
        **{name: settings.get(name, False) for name in ("intercept", "has_offset")},
    )
