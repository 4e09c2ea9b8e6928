"""Mean field for models of one's own: conditionally conjugate models written in plain Python.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013.
"""

from cavity.mean_field.model import MeanFieldPosterior, Model, fit, fit_stochastic

__all__ = ["MeanFieldPosterior", "Model", "fit", "fit_stochastic"]


def __dir__():
    return sorted(__all__)
