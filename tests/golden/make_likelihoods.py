"""Write tests/golden/likelihoods.json and new_likelihoods.json: moments of sites to 20 digits, by reference/sites.py.

Some minutes each; names of likelihoods as arguments write the entries of these alone into the second file, beside
those of the others that are there. Times are pairs of bounds, of which equal ones are an observed time.
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


MIDDLE = (0.4, 0.9), (0.3, 1e-12), (-2.0, 1e-4), (1.1, 0.04), (-1.0, 4.0), (3.0, 100.0), (-40.0, 1e6)
TAILS = (30.0, 1.0), (-30.0, 1.0), (9.0, 1e-12), (-9.0, 1e-6), (300.0, 2500.0)


def time_cases():
    """Yield the same of positive amounts and of times, observed and censored."""
    for mean, v in (*MIDDLE, *TAILS):
        yield "Gamma", {"shape": 2.0}, 1.7, 1, mean, v
    for y, shape in ((1e-6, 2.0), (1e6, 0.3), (25.0, 1e3), (0.01, 50.0)):
        yield "Gamma", {"shape": shape}, y, 1, 0.5, 2.0
        yield "Gamma", {"shape": shape}, y, 0.5, -1.0, 0.04
    times = (1.5, 1.5), (1.5, INFINITY), (0.0, 1.5), (1.5, 2.0)
    wide, some = (*MIDDLE[:2], MIDDLE[4], MIDDLE[6]), ((30.0, 1.0), (-30.0, 1.0), (9.0, 1e-6))
    for bounds, (mean, v) in itertools.product(times, (*wide, *some[:2])):
        yield "LogNormal", {"sd": 0.7}, bounds, 1, mean, v
        for effect in ("time", "hazard"):
            yield "Weibull", {"shape": 1.3, "effect": effect}, bounds, 1, mean, v
        yield "LogLogistic", {"shape": 1.3}, bounds, 1, mean, v
    for bounds, (mean, v) in itertools.product(times, (MIDDLE[0], MIDDLE[5], some[2])):
        yield "Exponential", {"effect": "time"}, bounds, 1, mean, v
        yield "Exponential", {"effect": "hazard"}, bounds, 0.5, mean, v
    rare = (1e-6, 1e-6), (0.0, 1e-6), (1e5, INFINITY), (3.0, 3.0 + 1e-9), (1e-3, 1e3)
    for bounds, (mean, v) in itertools.product(rare, ((0.4, 0.9), (-3.0, 0.01))):
        apart = bounds if bounds[0] != 3.0 else (3.0, 3.001)  # bounds are rounded logs
        yield "LogNormal", {"sd": 2.0}, apart, 1, mean, v
        yield "Weibull", {"shape": 0.4, "effect": "time"}, bounds, 0.5, mean, v
        yield "Weibull", {"shape": 6.0, "effect": "hazard"}, bounds, 1, mean, v
        yield "LogLogistic", {"shape": 5.0}, bounds, 0.5, mean, v


def share_cases():
    """Yield the same of proportions, labels, classes and quantiles."""
    for mean, v in (*MIDDLE, *TAILS):
        yield "Beta", {"precision": 4.0}, 0.8, 1, mean, v
        yield "BetaBinomial", {"precision": 2.0}, (3, 10), 1, mean, v
        yield "OrderedLogit", {"thresholds": [-1.0, 0.5, 2.0]}, 1, 1, mean, v
        yield "Cloglog", {}, 1, 1, mean, v
        yield "Cloglog", {}, -1, 1, mean, v
        yield "AsymmetricLaplace", {"quantile_level": 0.9, "scale": 0.3}, 2.0, 1, mean, v
        yield "AsymmetricLaplace", {"quantile_level": 0.25, "scale": 5.0}, -1.0, 0.5, mean, v
    for y, precision, power in ((0.999, 30.0, 1), (1e-9, 0.5, 1), (0.5, 1e4, 1), (0.03, 100.0, 0.5), (0.97, 5.0, 0.5)):
        yield "Beta", {"precision": precision}, y, power, 0.4, 0.9
        yield "Beta", {"precision": precision}, y, power, -3.0, 9.0
    trials = (0, 10), (7, 7), (1, 1), (40, 2000), (999, 1000)
    for y, precision in zip(trials, (0.5, 20.0, 3.0, 1e6, 1e-3), strict=True):
        yield "BetaBinomial", {"precision": precision}, y, 1, 0.4, 0.9
        yield "BetaBinomial", {"precision": precision}, y, 0.5, -3.0, 9.0
    for y, power in itertools.product((0, 2, 3), (1, 0.5)):
        yield "OrderedLogit", {"thresholds": [-1.0, 0.5, 2.0]}, y, power, -0.7, 2.0
        yield "OrderedLogit", {"thresholds": [-1.0, -1.0 + 1e-7, 2.0]}, max(y, 1), power, 4.0, 6.0
    for y, (mean, v) in itertools.product((1, -1), ((0.4, 0.9), (3.0, 9.0))):
        yield "Cloglog", {}, y, 0.5, mean, v
    for y, scale in ((2.0, 1e-3), (-50.0, 0.1), (1e4, 100.0)):
        yield "AsymmetricLaplace", {"quantile_level": 0.1, "scale": scale}, y, 1, 0.4, 0.9


def excess_cases():
    """Yield the same of counts with excess zeros and of amounts with zeros."""
    some = (*MIDDLE, (30.0, 1.0), (-30.0, 1.0), (9.0, 1e-6))
    for y, (mean, v) in itertools.product((0, 4), some):
        yield "ZeroInflatedPoisson", {"zero_probability": 0.3}, y, 1, mean, v
        yield "ZeroInflatedNegativeBinomial", {"dispersion": 2.0, "zero_probability": 0.3}, y, 1, mean, v
        yield "HurdlePoisson", {"zero_probability": 0.3}, y + (y == 0 and mean != 0.4), 1, mean, v
        yield "Tweedie", {"power": 1.5, "dispersion": 1.0}, y / 2, 1, mean, v
    for y, share in ((0, 1e-3), (0, 0.97), (1000, 0.4), (1, 0.01)):
        for power, mean, v in ((1, 1.5, 0.25), (0.5, -1.0, 4.0)):
            yield "ZeroInflatedPoisson", {"zero_probability": share}, y, power, mean, v
            parameters = {"dispersion": 0.3 if y else 50.0, "zero_probability": share}
            yield "ZeroInflatedNegativeBinomial", parameters, y, power, mean, v
            yield "HurdlePoisson", {"zero_probability": share}, max(y, 1), power, mean, v
    for y, p, dispersion in (
        (0.0, 1.02, 0.3),
        (1e-3, 1.9, 2.0),
        (500.0, 1.2, 3.0),
        (3.0, 1.98, 0.1),
        (40.0, 1.5, 0.01),
    ):
        for power, mean, v in ((1, 1.5, 0.25), (0.5, -1.0, 4.0)):
            yield "Tweedie", {"power": p, "dispersion": dispersion}, y, power, mean, v


def write(name, cases, others=()):
    """Write entries, one a line, those of `others` first."""
    lines = [json.dumps(row) for row in (*others, *(entry(*case) for case in cases))]
    Path(__file__).with_name(name).write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    new = *time_cases(), *share_cases(), *excess_cases()
    if len(sys.argv) > 1:
        rows = json.loads(Path(__file__).with_name("new_likelihoods.json").read_text())
        others = [row for row in rows if row["likelihood"] not in sys.argv[1:]]
        write("new_likelihoods.json", (case for case in new if case[0] in sys.argv[1:]), others)
    else:
        write("likelihoods.json", (*closed_cases(), *smooth_cases()))
        write("new_likelihoods.json", new)
