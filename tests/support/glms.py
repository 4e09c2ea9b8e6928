"""What tests of GLMs and Gaussian processes share."""

import numpy as np

from cavity.likelihoods import labels, noise


def factors(likelihood, y, power=1.0):
    """log p(y_i|f)^e as functions of f, with the places where they have kinks."""
    y = likelihood.check(y)
    power = np.broadcast_to(power, len(y))
    functions = [lambda f, y=y[i], e=power[i]: e * likelihood.log_p(y, f) for i in range(len(y))]
    for function, value in zip(functions, y, strict=True):
        function.kinks = {noise.Laplace: (value,), labels.Step: (0.0,)}.get(type(likelihood), ())
    return functions
