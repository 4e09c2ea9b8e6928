"""Fast deterministic approximate Bayesian inference on a compiled core."""

from importlib import import_module

TYPE_CHECKING = False  # as that of typing, which takes longer to import than all of this
__version__ = "0.4.0"

_NAMES_BY_MODULE = {
    "base.errors": ("ConvergenceWarning", "NotPositiveDefiniteError", "NumericalWarning", "SettingsWarning"),
    "base.summary": ("Table",),
    "distributions.divergence": ("kl",),
    "distributions.gaussian": ("Gaussian", "SphericalGaussian", "match_moments"),
    "distributions.monte_carlo": ("monte_carlo_elbo", "monte_carlo_kl"),
    "distributions.products": ("divide", "multiply"),
    "jobs.progress": ("Event",),
    "models.clutter.model": ("Clutter",),
    "models.clutter.posterior": ("ClutterPosterior",),
    "models.comparison": ("compare",),
    "models.factorized.model": ("FactorizedGaussian",),
    "models.factorized.posterior": ("FactorizedGaussianPosterior",),
    "models.glm.model": ("GLM",),
    "models.glm.posterior": ("GLMPosterior",),
    "models.gp.chain_posterior": ("GaussianProcessChainPosterior",),
    "models.gp.chain_end": ("GaussianProcessEndPosterior",),
    "models.gp.model": ("GaussianProcess",),
    "models.gp.posterior": ("GaussianProcessPosterior",),
    "models.hyperparameters": ("Hyperparameters",),
    "models.integration": ("Integration",),
    "models.leave_one_out": ("LeaveOneOut",),
    "models.marginal": ("Marginal", "TabulatedMarginal"),
    "models.approximation_check": ("ApproximationCheck",),
    "models.many.posterior": ("ManyPosterior",),
    "models.mixed.model": ("MixedGLM",),
    "models.mixed.posterior": ("MixedGLMPosterior",),
    "models.mixed.terms": ("RandomEffects",),
    "models.mixture.model": ("GaussianMixture",),
    "models.mixture.posterior": ("GaussianMixturePosterior",),
    "models.mixture.selection": ("Selection", "select_components"),
    "models.model_check": ("ModelCheck",),
    "models.regression.linear": ("LinearRegression", "LinearRegressionPosterior"),
    "models.regression.logistic": ("LogisticRegression", "LogisticRegressionPosterior"),
    "models.saved": ("load",),
    "models.streaming_gp.model": ("StreamingGP",),
    "models.streaming_gp.state": ("StreamingGPState",),
    "models.unit_mixture.model": ("UnitMixture",),
    "models.unit_mixture.posterior": ("UnitMixturePosterior",),
    "sources.sources": ("Source", "source"),
}
_PUBLIC_NAMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

_PUBLIC_MODULES = (
    *("covariances", "data", "distributions", "likelihoods", "mean_field", "online_bound", "priors", "terms"),
)
_OPTIONAL_MODULES = ("plot", "sklearn")  # which need extras, so that `from cavity import *` leaves them out

if TYPE_CHECKING:  # the same names for type checkers and editors, which do not run `__getattr__`
    from cavity import covariances as covariances
    from cavity import data as data
    from cavity import distributions as distributions
    from cavity import likelihoods as likelihoods
    from cavity import mean_field as mean_field
    from cavity import online_bound as online_bound
    from cavity import plot as plot
    from cavity import priors as priors
    from cavity import sklearn as sklearn
    from cavity import terms as terms
    from cavity.base.errors import ConvergenceWarning as ConvergenceWarning
    from cavity.base.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
    from cavity.base.errors import NumericalWarning as NumericalWarning
    from cavity.base.errors import SettingsWarning as SettingsWarning
    from cavity.base.summary import Table as Table
    from cavity.distributions.divergence import kl as kl
    from cavity.distributions.gaussian import Gaussian as Gaussian
    from cavity.distributions.gaussian import SphericalGaussian as SphericalGaussian
    from cavity.distributions.gaussian import match_moments as match_moments
    from cavity.distributions.monte_carlo import monte_carlo_elbo as monte_carlo_elbo
    from cavity.distributions.monte_carlo import monte_carlo_kl as monte_carlo_kl
    from cavity.distributions.products import divide as divide
    from cavity.distributions.products import multiply as multiply
    from cavity.jobs.progress import Event as Event
    from cavity.models.approximation_check import ApproximationCheck as ApproximationCheck
    from cavity.models.clutter.model import Clutter as Clutter
    from cavity.models.clutter.posterior import ClutterPosterior as ClutterPosterior
    from cavity.models.comparison import compare as compare
    from cavity.models.factorized.model import FactorizedGaussian as FactorizedGaussian
    from cavity.models.factorized.posterior import FactorizedGaussianPosterior as FactorizedGaussianPosterior
    from cavity.models.glm.model import GLM as GLM
    from cavity.models.glm.posterior import GLMPosterior as GLMPosterior
    from cavity.models.gp.chain_end import GaussianProcessEndPosterior as GaussianProcessEndPosterior
    from cavity.models.gp.chain_posterior import GaussianProcessChainPosterior as GaussianProcessChainPosterior
    from cavity.models.gp.model import GaussianProcess as GaussianProcess
    from cavity.models.gp.posterior import GaussianProcessPosterior as GaussianProcessPosterior
    from cavity.models.hyperparameters import Hyperparameters as Hyperparameters
    from cavity.models.integration import Integration as Integration
    from cavity.models.leave_one_out import LeaveOneOut as LeaveOneOut
    from cavity.models.many.posterior import ManyPosterior as ManyPosterior
    from cavity.models.marginal import Marginal as Marginal
    from cavity.models.marginal import TabulatedMarginal as TabulatedMarginal
    from cavity.models.mixed.model import MixedGLM as MixedGLM
    from cavity.models.mixed.posterior import MixedGLMPosterior as MixedGLMPosterior
    from cavity.models.mixed.terms import RandomEffects as RandomEffects
    from cavity.models.mixture.model import GaussianMixture as GaussianMixture
    from cavity.models.mixture.posterior import GaussianMixturePosterior as GaussianMixturePosterior
    from cavity.models.mixture.selection import Selection as Selection
    from cavity.models.mixture.selection import select_components as select_components
    from cavity.models.model_check import ModelCheck as ModelCheck
    from cavity.models.regression.linear import LinearRegression as LinearRegression
    from cavity.models.regression.linear import LinearRegressionPosterior as LinearRegressionPosterior
    from cavity.models.regression.logistic import LogisticRegression as LogisticRegression
    from cavity.models.regression.logistic import LogisticRegressionPosterior as LogisticRegressionPosterior
    from cavity.models.saved import load as load
    from cavity.models.streaming_gp.model import StreamingGP as StreamingGP
    from cavity.models.streaming_gp.state import StreamingGPState as StreamingGPState
    from cavity.models.unit_mixture.model import UnitMixture as UnitMixture
    from cavity.models.unit_mixture.posterior import UnitMixturePosterior as UnitMixturePosterior
    from cavity.sources.sources import Source as Source
    from cavity.sources.sources import source as source
else:
    __all__ = ["__version__", *sorted((*_PUBLIC_NAMES, *_PUBLIC_MODULES))]

    def __getattr__(name):
        """Import public names when they are first used: `import cavity` itself costs milliseconds."""
        if name in _PUBLIC_MODULES or name in _OPTIONAL_MODULES:
            return import_module(f".{name}", __name__)
        if name not in _PUBLIC_NAMES:
            raise AttributeError(f"module 'cavity' has no attribute {name!r}")
        value = getattr(import_module(f".{_PUBLIC_NAMES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted((*_PUBLIC_NAMES, *_PUBLIC_MODULES, *_OPTIONAL_MODULES, "__version__"))
