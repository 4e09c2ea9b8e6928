"""What a file of a GLM holds that its fields do not say."""

from cavity.base.records import Array, Record, one_of, together
from cavity.models.hyperpriors import PRIORS_SETTING
from cavity.models.integration import INTEGRATE_SETTING, INTEGRATION_ARRAYS
from cavity.models.likelihood_settings import LIKELIHOOD_SETTING

MODEL_SETTINGS = {
    "likelihood": LIKELIHOOD_SETTING,
    "approximation": one_of("full", "diagonal"),
    "prior_mean": Array("() | D"),
    "prior_variance": Array("() | D | D D"),
    "priors?": PRIORS_SETTING,
    "integrate?": INTEGRATE_SETTING,
}


def _absent(settings):
    """What there is not after a fit with these settings; stochastic EP keeps no sites either."""
    full, ep = settings["approximation"] == "full", settings["method"] == "ep"
    names = () if full else ("covariance_root", "covariance_basis?", "covariance_factor?")
    names += () if ep else ("_loo?", "_influence?")
    names += () if full and ep else ("_tau?", "_rho?")
    return dict.fromkeys(names)


def _fits(arrays, settings, sizes):
    """Whether sites and columns are as many as there should be, as a rule of the record."""
    if settings["n_samples"] != sizes.get("N", settings["n_samples"]):
        return f"setting 'n_samples' must be {sizes['N']} like the sites, got {settings['n_samples']}"
    if sizes.get("n", sizes["D"]) != sizes["D"] or sizes.get("e", sizes["D"] ** 2) != sizes["D"] ** 2:
        return f"arrays 'integration_means' and 'integration_entries' must be of {sizes['D']} weights"
    added = int(settings.get("intercept", False))
    if sizes.get("C", sizes["D"] - added) != sizes["D"] - added:
        return f"there must be {sizes['D'] - added} columns, as there are {sizes['D']} weights, got {sizes['C']}"
    return None


POSTERIOR_RECORD = Record(
    _absent,
    rules=(
        *map(together, ("_tau", "covariance_basis", "centre"), ("_rho", "covariance_factor", "spread")),
        together(*(f"integration_{name}" for name in INTEGRATION_ARRAYS)),
        _fits,
    ),
    places={name: f"{name} model.{name}" for name in ("centre", "spread", "intercept")},
)
