"""What tests of GLMs and Gaussian processes share."""

import numpy as np

import cavity
from cavity.base.rows import Rows, check_design_matrix
from cavity.models.glm.problem import GLMProblem


def GLM(likelihood, prior_mean=0.0, prior_variance=1.0, approximation="full"):
    """The model of the columns as they are: nothing is left to the data."""
    settings = {"prior_mean": prior_mean, "prior_variance": prior_variance, "approximation": approximation}
    return cavity.GLM(likelihood, intercept=False, **settings)


def problem_of(model, X, y, offset=None, sample_weight=None):
    """What a fit of these rows is given."""
    rows = Rows.checked(model.likelihood, check_design_matrix(X, model.approximation), y, offset, sample_weight)
    return GLMProblem.of(model, rows)


def factors(likelihood, y, power=1.0):
    """log p(y_i|f)^e as functions of f, with the places where they have kinks."""
    y = likelihood.check(y)
    power = np.broadcast_to(power, len(y))
    functions = [lambda f, y=y[i], e=power[i]: e * likelihood.log_p(y, f) for i in range(len(y))]
    for function, value in zip(functions, y, strict=True):
        kinks = {"Laplace": (value,), "AsymmetricLaplace": (value,), "Step": (0.0,)}
        function.kinks = kinks.get(type(likelihood).__name__, ())
    return functions
