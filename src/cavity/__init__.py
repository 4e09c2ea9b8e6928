"""Fast deterministic approximate Bayesian inference on a compiled core."""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "Clutter": "clutter",
    "ClutterPosterior": "clutter",
    "ConvergenceWarning": "errors",
    "FactorizedGaussian": "factorized",
    "FactorizedGaussianPosterior": "factorized",
    "GLM": "glm",
    "GLMPosterior": "glm",
    "Gaussian": "gaussian",
    "GaussianMixture": "mixture",
    "GaussianMixturePosterior": "_mixture_posterior",
    "GaussianProcess": "gp",
    "GaussianProcessPosterior": "_gp_posterior",
    "LinearRegression": "linear_regression",
    "LinearRegressionPosterior": "linear_regression",
    "LogisticRegression": "logistic_regression",
    "LogisticRegressionPosterior": "logistic_regression",
    "NotPositiveDefiniteError": "errors",
    "NumericalWarning": "errors",
    "Selection": "selection",
    "SettingsWarning": "errors",
    "SphericalGaussian": "gaussian",
    "StreamingGP": "streaming_gp",
    "StreamingGPState": "_streaming_state",
    "UnitMixture": "unit_mixture",
    "UnitMixturePosterior": "unit_mixture",
    "UnivariateGaussian": "univariate_gaussian",
    "UnivariateGaussianPosterior": "univariate_gaussian",
    "divide": "products",
    "kl": "divergence",
    "load": "persistence",
    "match_moments": "gaussian",
    "monte_carlo_elbo": "_monte_carlo",
    "monte_carlo_kl": "_monte_carlo",
    "multiply": "products",
    "select_components": "selection",
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
