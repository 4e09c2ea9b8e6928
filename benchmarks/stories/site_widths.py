"""What a site costs by the width of its cavity: `python benchmarks/stories/site_widths.py`.

Processor time in ns a site, the least of 40 runs over 5000 sites, at every level of instructions that the processor
has. Latent values are standard normal, means of cavities as many of their sds away, and observations are drawn.
"""

import time

import numpy as np

from cavity import _core, likelihoods
from cavity.likelihoods.base import encode_observations, kernel_settings

SIZE = 5000
REPEATS = 40
SDS = (0.01, 0.1, 1.0)


def draw_sites(rng, f):
    """Return likelihoods with observations of f, by name."""
    mean, share = np.exp(f), 1 / (1 + np.exp(-f))
    amount, times = rng.gamma(2.0, mean / 2), rng.weibull(1.3, SIZE) * mean
    ends = np.where(rng.random(SIZE) < 0.5, times, np.inf)
    trials, threes = np.full(SIZE, 10.0), rng.integers(1, 3, SIZE)
    successes = rng.binomial(10, share)
    return {
        "Poisson": (likelihoods.Poisson(), rng.poisson(mean)),
        "NegativeBinomial": (likelihoods.NegativeBinomial(2.0), rng.poisson(amount)),
        "Gamma": (likelihoods.Gamma(2.0), amount),
        "Weibull": (likelihoods.Weibull(1.3), np.column_stack([times, ends])),
        "StudentT": (likelihoods.StudentT(4.0, 1.0), f + rng.standard_t(4.0, SIZE)),
        "Binomial (10)": (likelihoods.Binomial(), np.column_stack([successes, trials])),
        "Beta": (likelihoods.Beta(20.0), rng.beta(20 * share, 20 * (1 - share)).clip(1e-12, 1 - 1e-12)),
        "BetaBinomial (10)": (likelihoods.BetaBinomial(5.0), np.column_stack([successes, trials])),
        "zeros of ZeroInflatedPoisson": (likelihoods.ZeroInflatedPoisson(0.3), np.zeros(SIZE)),
        "HurdlePoisson": (likelihoods.HurdlePoisson(0.3), 1 + rng.poisson(mean)),
        "Cloglog": (likelihoods.Cloglog(), np.ones(SIZE)),
        "Weibull, interval": (likelihoods.Weibull(1.3), np.column_stack([times, 2 * times])),
        "OrderedLogit": (likelihoods.OrderedLogit((-1.0, 0.5, 2.0)), threes),
        "Tweedie": (likelihoods.Tweedie(1.5, 1.0), amount),
    }


def measure(level, likelihood, y, mean, sd):
    """Return processor time in ns a site."""
    evaluate, read = _core.load("sites", level).evaluate, encode_observations(likelihood, likelihood.check(y))
    out, best = [np.empty(SIZE) for _ in range(3)], np.inf
    for _ in range(REPEATS):
        start = time.process_time()
        evaluate(*kernel_settings(likelihood), np.ones(1), *read, mean, np.full(SIZE, sd**2), False, *out)
        best = min(best, time.process_time() - start)
    return best / SIZE * 1e9


def main():
    """Print a row of each likelihood and level."""
    rng = np.random.default_rng(0)
    f = rng.normal(size=SIZE)
    print(f"{'cavity sd':38}", *(f"{sd:8g}" for sd in SDS))
    for name, (likelihood, y) in draw_sites(rng, f).items():
        for level in _core.variants("sites"):
            means = [f + sd * rng.normal(size=SIZE) for sd in SDS]
            costs = [measure(level, likelihood, y.astype(float), m, sd) for m, sd in zip(means, SDS, strict=True)]
            print(f"{name:29} {level:8}", *(f"{cost:8.0f}" for cost in costs))


if __name__ == "__main__":
    main()
