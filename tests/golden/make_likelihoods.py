"""Write tests/golden/likelihoods.json: moments of sites to 20 digits, by tests/reference/sites.py (some minutes).

Every entry is a likelihood of cavity.likelihoods with its parameters, y, power, mean and variance of the cavity, and
[log_z, d1, d2, tau, rho, 1 + v d2] as strings.
"""

import itertools
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from reference.sites import entry

INFINITY = float("inf")


def closed_cases():
    """Yield (likelihood, parameters, y, power, mean, variance) of sites with closed forms."""
    for t in (40.0, 20.0, 8.3, 5.0, 2.0, 0.5, 0.0, -0.5, -2.0, -5.0, -10.0, -38.0, -1e3, -1e5):
        yield "Probit", {}, 1, 1, t * 1.25, 0.5625
        yield "Step", {}, -1, 1, -t * 1.5, 2.25
    yield "Probit", {}, 1, 1, 1.0, 0.5
    for v, t in itertools.product((1e-12, 1e6), (-30.0, 3.0)):
        yield "Probit", {}, 1, 1, t * (1 + v) ** 0.5, v
        yield "Step", {}, 1, 1, t * v**0.5, v
    finite = (-1.0, 1.0), (0.5, 0.5 + 1e-9), (0.25, 4.0), (-8.0, 30.0), (2.0, 2.0)
    for bounds, mean in itertools.product((*finite, (3.0, INFINITY), (-INFINITY, -1.0)), (0.3, 25.0, -400.0)):
        yield "Interval", {"noise_variance": 0.25}, bounds, 1, mean, 2.0
    for bounds, mean, v in (
        ((-1.0, 1.0), 0.2, 1e-12),
        ((-1.0, 1.0), 0.2, 1e6),
        ((-1.0, 1.0), -30.0, 1e6),
        ((1e-3, 2e-3), 4.0, 1e-2),
        ((-3.0, 1.5), 0.0, 1.0),
        ((-1.9, 2.2), 0.0, 1.0),
        ((0.0, 4.1), 0.0, 1.0),
        ((5.0, 6.5), 0.0, 1.0),
        ((5.0, 7.0), 0.0, 1.0),
        ((30.0, 30.3), 0.0, 1.0),
        ((-0.1, 45.0), 0.0, 1.0),
    ):
        yield "Interval", {"noise_variance": 0.0}, bounds, 1, mean, v
        yield "Interval", {"noise_variance": 1.0}, bounds, 1, mean, v
    observed = (0.7, 1.0), (-2.0, 1e-3), (3.0, 50.0)
    cavities = (0.5, 1e-12), (0.6, 0.4), (40.0, 2.0), (-900.0, 3.0), (1.0, 1e6)
    for (y, scale), (mean, v), power in itertools.product(observed, cavities, (1, 0.5)):
        yield "Laplace", {"scale": scale}, y, power, mean, v
        yield "Gaussian", {"noise_variance": scale}, y, power, mean, v
    clutter = {"clutter_weight": 0.25, "clutter_variance": 10.0, "noise_variance": 1.0, "clutter_mean": 0.5}
    cavities = (0.5, 1e-12), (0.6, 0.4), (8.0, 30.0), (-900.0, 3.0), (1.0, 1e6)
    for y, (mean, v) in itertools.product((0.3, 9.0, -60.0), cavities):
        yield "Clutter", clutter, y, 1, mean, v


def smooth_cases():
    """Yield the same of sites by quadrature."""
    cavities = (0.3, 1e-12), (-2.0, 1e-4), (0.5, 0.25), (1.5, 1.0), (-1.0, 4.0), (2.0, 6.5), (3.0, 100.0), (-40.0, 1e6)
    tails = (40.0, 1.0), (-40.0, 1.0), (-700.0, 9.0), (700.0, 2500.0), (30.0, 1e-12), (-30.0, 1e-12)
    for mean, v in (*cavities, *tails, (-8.0, 4.0), (9.0, 1.44), (0.0, 1e4)):
        yield "Logit", {}, 1, 1, mean, v
    for mean, v in ((0.3, 1e-12), (1.5, 1.0), (-8.0, 4.0), (3.0, 100.0), (-40.0, 1.0)):
        yield "Logit", {}, -1, 0.5, mean, v
    for mean, v in (*cavities, (40.0, 1.0), (-30.0, 2.0), (-300.0, 9.0), (-20.0, 1e-12)):
        yield "Probit", {}, 1, 0.3 if v == 1.0 else 0.5, mean, v
    some = *cavities[:4], *cavities[6:], (40.0, 1.0), (-30.0, 1.0)
    for y, (mean, v) in itertools.product((0, 3, 1000), some):
        yield "Poisson", {}, y, 1, mean, v
        yield "NegativeBinomial", {"dispersion": 2.5}, y, 1, mean, v
    yield "Poisson", {}, 10**7, 1, 16.0, 1.0
    yield "Poisson", {}, 10**12, 1, 27.0, 1e-6
    yield "Poisson", {}, 1040, 0.3, 29.0, 1e-12
    yield "Poisson", {}, 85000, 0.3, 24.0, 2.5e5
    yield "Poisson", {}, 4, 0.5, 1.0, 2.0
    yield "Poisson", {}, 0, 0.25, 30.0, 2.0
    yield "NegativeBinomial", {"dispersion": 1e8}, 20, 1, 2.0, 1.0
    yield "NegativeBinomial", {"dispersion": 0.01}, 20, 1, 2.0, 9.0
    yield "NegativeBinomial", {"dispersion": 2.5}, 4, 0.5, 1.0, 2.0
    yield "NegativeBinomial", {"dispersion": 1e4}, 1, 0.7, 0.16384, 291.98
    yield "NegativeBinomial", {"dispersion": 0.3}, 43000, 1, 10.66, 4e-11
    yield "NegativeBinomial", {"dispersion": 0.3}, 98000, 1, -137.5, 17178.0
    yield "NegativeBinomial", {"dispersion": 20.0}, 1000, 1, -5.0, 1.0
    for (y, nu, scale), (mean, v) in itertools.product(
        ((0.7, 4.0, 1.0), (-2.0, 1.0, 1e-3), (3.0, 30.0, 5.0)),
        ((0.5, 1e-12), (0.6, 0.4), (12.0, 4.0), (40.0, 2.0), (-900.0, 3.0), (1.0, 1e6)),
    ):
        yield "StudentT", {"degrees_of_freedom": nu, "scale": scale}, y, 1, mean, v
    for power, (mean, v) in itertools.product((0.25, 0.9), ((0.5, 1e-12), (2.6, 0.4), (12.0, 4.0), (1.0, 1e6))):
        yield "StudentT", {"degrees_of_freedom": 3.0, "scale": 0.5}, 0.0, power, mean, v
    wide = (0.3, 1e-12), (-2.0, 1e-4), (1.5, 1.0), (3.0, 100.0), (-40.0, 1e6), (30.0, 1.0)
    trials = (3, 10), (7, 10), (0, 40), (1, 10**6), (500_000, 10**6), (10**6, 10**6)
    for link, y, (mean, v) in itertools.product(("logit", "probit"), trials, wide):
        yield "Binomial", {"link": link}, y, 1, mean, v
    for link in ("logit", "probit"):
        yield "Binomial", {"link": link}, (7, 10), 0.4, 0.5, 2.0
        yield "Binomial", {"link": link}, (0, 5), 0.3, 1.0, 3.0
        yield "Binomial", {"link": link}, (0, 5), 1, -800.0, 1e10
    for v in (0.03, 0.3, 1.2, 5.0, 25.0):  # as met in fits: between the widths at which the nodes grow many
        yield "Poisson", {}, 2, 1, 0.4, v
        yield "Poisson", {}, 40, 0.5, 2.5, v
        yield "NegativeBinomial", {"dispersion": 50.0}, 9, 1, 1.1, v
        yield "StudentT", {"degrees_of_freedom": 4.0, "scale": 1.0}, 1.3, 1, -0.7, v
        yield "StudentT", {"degrees_of_freedom": 3.0, "scale": 0.3}, 2.0, 1, -1.0, v
        yield "Logit", {}, 1, 0.3, -1.3, v
        yield "Probit", {}, -1, 0.7, 0.8, v
        yield "Binomial", {"link": "logit"}, (4, 10), 1, 0.9, v
        yield "Binomial", {"link": "probit"}, (9, 12), 1, -0.6, v


if __name__ == "__main__":
    lines = [json.dumps(entry(*case)) for case in (*closed_cases(), *smooth_cases())]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    Path(__file__).with_name("likelihoods.json").write_text(text)
