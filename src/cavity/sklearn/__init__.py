"""Models with the interface of scikit-learn, which is imported here and nowhere else (the sklearn extra)."""

from ..errors import missing_extra

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise missing_extra("scikit-learn", "sklearn") from error

from .linear import LogitClassifier, ProbitClassifier

__all__ = ["LogitClassifier", "ProbitClassifier"]
