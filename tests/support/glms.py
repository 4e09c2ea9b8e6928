"""What tests of GLMs and Gaussian processes share."""

import numpy as np

import cavity
from cavity.likelihoods import labels, noise


def GLM(likelihood, prior_mean=0.0, prior_variance=1.0, approximation="full"):
    """The model of the columns as they are: nothing is left to the data."""
    return cavity.GLM(likelihood, prior_mean, prior_variance, approximation, intercept=False)


def factors(likelihood, y, power=1.0):
    """log p(y_i|f)^e as functions of f, with the places where they have kinks."""
    y = likelihood.check(y)
    power = np.broadcast_to(power, len(y))
    functions = [lambda f, y=y[i], e=power[i]: e * likelihood.log_p(y, f) for i in range(len(y))]
    for function, value in zip(functions, y, strict=True):
        function.kinks = {noise.Laplace: (value,), labels.Step: (0.0,)}.get(type(likelihood), ())
    return functions
