"""Long chains in time, beside celerite2 where it is installed: `python benchmarks/stories/chains.py [N]`.

Prints the table of docs/chains.rst: seconds of one thread, the shortest of several calls that alternate. Times are
irregular, 20 in a lengthscale; celerite2 has an approximation of the Matern 3/2 covariance with eps = 0.01, and times
that are sorted beforehand, as here.
"""

import argparse
import importlib.util
from time import process_time

import numpy as np

import cavity
from cavity import covariances, likelihoods
from cavity.base.rows import Rows
from cavity.ep.options import Options
from cavity.models.gp.chain_evidence import ChainEvidence
from cavity.models.process.settings import FreeHyperparameters, Settings
from cavity.runs.executors import Threads

ROUNDS = 7  # of calls that alternate
VARIANCE, LENGTHSCALE, NOISE = 0.5, 3.0, 0.25


def make_rows(n):
    """Return irregular times and a smooth function of them."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 0.05 * n * LENGTHSCALE, n))
    return t, np.sin(t / LENGTHSCALE), rng


def list_gaussian_calls(n):
    """Return the evidence of Gaussian noise, with its gradient and by celerite2, as functions by name."""
    t, f, rng = make_rows(n)
    y = f + np.sqrt(NOISE) * rng.normal(size=n)
    rows = Rows(t[:, None], y, np.zeros(n))
    evidence = ChainEvidence(likelihoods.Gaussian(NOISE), rows, Threads(1), Options())
    settings = Settings(covariances.Matern32(VARIANCE, LENGTHSCALE), likelihoods.Gaussian(NOISE))
    vector = FreeHyperparameters(settings, True, ["noise_variance"])
    calls = {
        "evidence": lambda: evidence.at(settings).log_evidence,
        "evidence and gradient": lambda: vector.gradient(evidence, evidence.at(settings)),
    }
    if importlib.util.find_spec("celerite2") is not None:
        import celerite2

        process = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=VARIANCE**0.5, rho=LENGTHSCALE))

        def evaluate():
            process.compute(t, diag=np.full(n, NOISE), check_sorted=False)
            return process.log_likelihood(y)

        calls["evidence, celerite2"] = evaluate
    return calls


def list_poisson_calls(n):
    """Return fits of counts at given settings and with a search, as functions by name."""
    t, f, rng = make_rows(n)
    X, y = t[:, None], rng.poisson(np.exp(1.0 + f))
    model = cavity.GaussianProcess(covariances.Matern32(1.0, 10.0), "poisson", "constant", "chain")
    return {
        "counts, settings given": lambda: model.fit(X, y, learn=False),
        "counts, settings learnt": lambda: model.fit(X, y),
    }


def time_calls(calls, rounds):
    """Return the shortest seconds of each call by name, of rounds in which all of them are called."""
    seconds = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = process_time()
            call()
            seconds[name].append(process_time() - start)
    return {name: min(values) for name, values in seconds.items()}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=1_000_000)
    n = parser.parse_args().n
    sizes = (n // 10, n)
    columns = [
        time_calls(list_gaussian_calls(size), ROUNDS) | time_calls(list_poisson_calls(size), 1) for size in sizes
    ]
    width = max(map(len, columns[0]))
    rule = "=" * width + "  ============  ============"
    print(rule, f"{'seconds, one thread':{width}}  {sizes[0]:>12,}  {sizes[1]:>12,}", rule, sep="\n")
    for name in columns[0]:
        print(f"{name:{width}}  " + "  ".join(f"{column[name]:12.3g}" for column in columns))
    print(rule)


if __name__ == "__main__":
    main()
