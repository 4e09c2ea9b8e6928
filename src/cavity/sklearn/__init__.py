"""Models with the interface of scikit-learn, which is imported here and nowhere else (the sklearn extra)."""

from ..errors import missing_extra

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise missing_extra("scikit-learn", "sklearn") from error

from .gaussian_process import GaussianProcessClassifier
from .gaussian_process_regression import GaussianProcessRegressor
from .linear import LogitClassifier, ProbitClassifier
from .maximum_likelihood import GaussianMixture
from .mixture import BayesianGaussianMixture
from .streaming_gp import StreamingGPClassifier
from .streaming_gp_regression import StreamingGPRegressor

__all__ = [
    "BayesianGaussianMixture",
    "GaussianMixture",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "LogitClassifier",
    "ProbitClassifier",
    "StreamingGPClassifier",
    "StreamingGPRegressor",
]
