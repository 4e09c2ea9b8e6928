"""What a file of a GLM holds."""

from cavity.base.observation_digest import DIGEST_FIELD
from cavity.base.records import FLAG, Array, Record, names, one_of, together
from cavity.models.latent import EP_TRACE, FITTED, ROW_WEIGHTS
from cavity.models.learnt import LEARNT


def _arrays_of(settings):
    full, ep = settings["approximation"] == "full", settings["method"] == "ep"
    root = {"covariance_root": Array("D | D D")}
    root |= {"covariance_basis?": Array("D M"), "covariance_factor?": Array("M M")}
    sites = {"_tau?": Array("N", "any"), "_rho?": Array("N", "any")}  # stochastic EP keeps none
    return {
        "mean": Array("D"),
        "variance": Array("D", "nonnegative"),
        **(root if full else {}),
        **({"_loo?": Array("N", "any"), "_influence?": Array("N", "known")} if ep else {}),
        "_row_weights?": ROW_WEIGHTS,
        **(sites if full and ep else {}),
        "prior_mean": Array("() | D"),
        "prior_variance": Array("() | D | D D"),
        "centre?": Array("C"),
        "spread?": Array("C", "positive"),
        **EP_TRACE,
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
        "chosen?": names(),
        "learnt?": LEARNT,
        "observation_digest?": DIGEST_FIELD,
    },
    (*map(together, ("_tau", "covariance_basis", "centre"), ("_rho", "covariance_factor", "spread")), _fits),
    {"covariance_": "_covariance."}
    | {name: f"model.{name}" for name in ("approximation", "likelihood", "prior_")}
    | {name: f"{name} model.{name}" for name in ("centre", "spread", "intercept")},
)
