"""Fast deterministic approximate Bayesian inference on a compiled core."""

from importlib import import_module

__version__ = "0.3.0"

_PUBLIC = {
    "Clutter": "models.clutter.model",
    "ClutterPosterior": "models.clutter.posterior",
    "ConvergenceWarning": "base.errors",
    "FactorizedGaussian": "models.factorized.model",
    "FactorizedGaussianPosterior": "models.factorized.posterior",
    "GLM": "models.glm.model",
    "GLMPosterior": "models.glm.posterior",
    "Gaussian": "distributions.gaussian",
    "GaussianMixture": "models.mixture.model",
    "GaussianMixturePosterior": "models.mixture.posterior",
    "GaussianProcess": "models.gp.model",
    "GaussianProcessPosterior": "models.gp.posterior",
    "LeaveOneOut": "models.leave_one_out",
    "LinearRegression": "models.regression.linear",
    "LinearRegressionPosterior": "models.regression.linear",
    "LogisticRegression": "models.regression.logistic",
    "LogisticRegressionPosterior": "models.regression.logistic",
    "NotPositiveDefiniteError": "base.errors",
    "NumericalWarning": "base.errors",
    "Selection": "models.mixture.selection",
    "SettingsWarning": "base.errors",
    "SphericalGaussian": "distributions.gaussian",
    "StreamingGP": "models.streaming_gp.model",
    "StreamingGPState": "models.streaming_gp.state",
    "Table": "base.summary",
    "UnitMixture": "models.unit_mixture.model",
    "UnitMixturePosterior": "models.unit_mixture.posterior",
    "compare": "models.comparison",
    "divide": "distributions.products",
    "kl": "distributions.divergence",
    "load": "models.saved",
    "match_moments": "distributions.gaussian",
    "monte_carlo_elbo": "distributions.monte_carlo",
    "monte_carlo_kl": "distributions.monte_carlo",
    "multiply": "distributions.products",
    "select_components": "models.mixture.selection",
}

_MODULES = ("covariances", "data", "distributions", "likelihoods", "mean_field", "online_bound")

__all__ = ["__version__", *sorted((*_PUBLIC, *_MODULES))]


def __getattr__(name):
    """Import public names when they are first used: `import cavity` itself costs milliseconds."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cavity' has no attribute {name!r}")
    value = getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
