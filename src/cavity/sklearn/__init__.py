"""Models with the interface of scikit-learn, which is imported here and nowhere else (the sklearn extra)."""

from cavity.base.errors import missing_extra_error

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise missing_extra_error("scikit-learn", "sklearn") from error

from cavity.sklearn.ard import ARDRegression
from cavity.sklearn.gp.classification import GaussianProcessClassifier
from cavity.sklearn.gp.regression import GaussianProcessRegressor
from cavity.sklearn.linear import LogitClassifier, ProbitClassifier
from cavity.sklearn.mixture.bayesian import BayesianGaussianMixture
from cavity.sklearn.mixture.maximum_likelihood import GaussianMixture
from cavity.sklearn.ordinal import OrdinalClassifier
from cavity.sklearn.positive import GammaRegressor, TweedieRegressor
from cavity.sklearn.regression import NegativeBinomialRegressor, PoissonRegressor, QuantileRegressor, RobustRegressor
from cavity.sklearn.streaming_gp.classification import StreamingGPClassifier
from cavity.sklearn.streaming_gp.regression import StreamingGPRegressor

__all__ = [
    "ARDRegression",
    "BayesianGaussianMixture",
    "GammaRegressor",
    "GaussianMixture",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "LogitClassifier",
    "NegativeBinomialRegressor",
    "OrdinalClassifier",
    "PoissonRegressor",
    "ProbitClassifier",
    "QuantileRegressor",
    "RobustRegressor",
    "StreamingGPClassifier",
    "StreamingGPRegressor",
    "TweedieRegressor",
]


def __dir__() -> list[str]:
    return sorted(__all__)
