"""Sites at random cavities, against closed forms and quadrature in many digits."""

from dataclasses import replace

import numpy as np
from attack.rule import near
from reference.sites import entry
from support.responses import SPECIAL_RESPONSES, draw, make_likelihood
from support.sites import assert_golden, kernel

from cavity import likelihoods
from cavity.likelihoods import Likelihood

# d1 sd and d2 variance of a site of quadrature below which 1e-10 is of this: 1e-13 of what moves the cavity by a sd
SMALLEST = 1e-3
CLOSED_FORM_NAMES = ("Probit", "Step", "Interval", "Gaussian", "Laplace", "Clutter", "OrderedProbit")
QUADRATURE_NAMES = ("Probit", "Logit", "Poisson", "NegativeBinomial", "Binomial", "StudentT")
NOT_CONCAVE = ("Beta", "BetaBinomial", "ZeroInflatedPoisson", "ZeroInflatedNegativeBinomial", "HurdlePoisson")


def positive(rng, low=-2, high=2):
    """A number, uniform in its logarithm."""
    return float(10 ** rng.uniform(low, high))


def cavity_near(rng, place, scale):
    """(mean, variance) of a cavity as wide as `scale` times 1e-4 to 1e4, some of its sds from a place, or many."""
    sd = scale * positive(rng, -4, 4)
    far = rng.choice([0.0, 1.0, 3.0, 30.0]) * rng.normal() * sd
    return float(place + far), float(sd**2)


def closed_forms(rng):
    """Likelihoods with closed forms, at their kinks too."""
    name = str(rng.choice(CLOSED_FORM_NAMES))
    scale, power, parameters, y = positive(rng), 1, {}, float(np.round(rng.normal(), 3))
    place = y
    if name in ("Probit", "Step"):
        y, scale, place = int(rng.choice([-1, 1])), 1.0, 0.0
    elif name == "Interval":
        lower, upper = y, y + scale * positive(rng)
        parameters = {"noise_variance": scale**2}
        y = [(lower, upper), (lower, np.inf), (-np.inf, upper), (lower, lower)][rng.integers(4)]
    elif name == "OrderedProbit":
        thresholds = np.round(y + np.cumsum([0.0, positive(rng), positive(rng)]), 3).tolist()
        y, scale, place = int(rng.integers(4)), 1.0, thresholds[rng.integers(3)]
        parameters = {"thresholds": thresholds}
    elif name == "Clutter":
        shares = {"clutter_weight": float(rng.uniform(0.01, 0.99)), "clutter_mean": float(np.round(rng.normal(), 3))}
        parameters = shares | {"clutter_variance": scale**2 * positive(rng, 0, 4), "noise_variance": scale**2}
    else:
        power = rng.choice([1.0, 0.5, float(rng.uniform(0.05, 1))])
        parameters = {"scale": scale} if name == "Laplace" else {"noise_variance": scale**2}
    check(name, parameters, y, float(power), *cavity_near(rng, place, scale))


def quadrature(rng):
    """Likelihoods whose moments are integrals."""
    name = str(rng.choice(QUADRATURE_NAMES))
    power, parameters, scale, place = float(rng.choice([1.0, rng.uniform(0.05, 1)])), {}, 1.0, 0.0
    if name in ("Probit", "Logit"):
        y = int(rng.choice([-1, 1]))
        power = min(power, 0.9) if name == "Probit" else power
    elif name == "StudentT":
        scale, y = positive(rng), float(np.round(rng.normal(), 3))
        parameters, place = {"degrees_of_freedom": positive(rng, -0.5, 2), "scale": scale}, y
    elif name == "Binomial":
        n = int(rng.integers(1, 50))
        y, parameters = (int(rng.integers(0, n + 1)), n), {"link": str(rng.choice(["logit", "probit"]))}
    else:
        y = int(rng.choice([0, 1, rng.integers(0, 1000)]))
        place, scale = float(np.log(y + 0.5)), float(1 / np.sqrt(y + 1.0))
        parameters = {"dispersion": positive(rng)} if name == "NegativeBinomial" else {}
    check(name, parameters, y, power, *cavity_near(rng, place, scale))


def vary(rng, likelihood):
    """Move positive parameters by factors up to three."""
    positive_ones = [name for name, domain in likelihood.parameters.items() if domain in ("positive", "scale")]
    return replace(likelihood, **{name: getattr(likelihood, name) * positive(rng, -0.5, 0.5) for name in positive_ones})


def responses(rng):
    """Positive amounts, times that may be censored, shares, counts with excess zeros, ordered classes, quantiles."""
    row = str(rng.choice(list(SPECIAL_RESPONSES)))
    likelihood, place = vary(rng, make_likelihood(row)), float(rng.choice([0.0, 1.0, 3.0]) * rng.normal())
    parameters = {name: getattr(likelihood, name) for name in SPECIAL_RESPONSES[row][0]}
    y = draw(row, rng, np.full(3, place))[rng.integers(3)].tolist()
    y = tuple(y) if isinstance(y, list) else int(y) if y == int(y) else y
    power = float(rng.uniform(0.05, 1)) if likelihood.any_power and rng.random() < 0.5 else 1.0
    mean, variance = cavity_near(rng, place, 1.0)
    check(type(likelihood).__name__, parameters, y, power, mean, variance, quick=row not in NOT_CONCAVE)


def check(name, parameters, y, power, mean, variance, quick=True):
    """Compare one site with many digits."""
    expected = entry(name, parameters, y, power, mean, variance, quick)
    likelihood = getattr(likelihoods, name)(**parameters)
    observed = np.ascontiguousarray(np.atleast_1d(likelihood.check(np.array([y], dtype=float))))
    result = kernel(likelihood, observed, power, np.array([mean]), np.array([variance]))
    assert_golden(expected, [float(item[0]) for item in result], SMALLEST)


class Own(Likelihood):
    """A likelihood known by its density alone."""

    def __init__(self, likelihood):
        self.likelihood = likelihood

    def log_p(self, y, f):
        return self.likelihood.log_p(y, f)


def own_likelihoods(rng):
    """The quadrature of users' likelihoods, with density and kinks of one that has a kernel; to 1e-9, as promised."""
    likelihood, y = [
        (likelihoods.Probit(), rng.choice([-1.0, 1.0])),
        (likelihoods.Laplace(positive(rng)), rng.normal()),
        (likelihoods.StudentT(positive(rng, -0.3, 1.5), positive(rng)), rng.normal()),
        (likelihoods.Poisson(), float(rng.integers(0, 100))),
    ][rng.integers(4)]
    mean, variance = cavity_near(rng, y if likelihood.n_classes is None and not likelihood.discrete else 0.0, 1.0)
    log_z, d1, d2 = likelihood.log_tilted(y, mean, variance)
    result = Own(likelihood).log_tilted(y, mean, variance)
    sd = np.sqrt(variance)
    near("log_z", result[0], log_z, 1e-8 * (1 + abs(log_z)))
    near("d1", result[1] * sd, d1 * sd, 1e-8 * (1 + abs(d1 * sd)))
    near("d2", result[2] * variance, d2 * variance, 1e-7 * (1 + abs(d2 * variance)))


ATTACKS = (closed_forms, quadrature, responses, own_likelihoods)
