"""How long Ctrl-C waits: long fits, interrupted at random moments, and the time until KeyboardInterrupt is out.

`python benchmarks/stories/interrupts.py [CASE ...] [--signals 20] [--seed 0]`

A process fits one model again and again; it gets SIGINT within two seconds of the beginning of a fit, and says when
it has caught KeyboardInterrupt. Prints a table for docs/stopping.rst with the median and the longest wait of each case,
and after it the cases above LONGEST.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

import numpy as np

import cavity
from cavity import covariances, likelihoods

LONGEST = 0.2  # seconds that a wait should take
WITHIN = 2.0  # seconds from the beginning of a fit
rng = np.random.default_rng(0)


def table(n, d):
    """Rows, and a real answer."""
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=n)


def linear():
    X, y = table(4000, 3000)
    return lambda: cavity.LinearRegression(intercept=False, ard=True).fit(X, y)


def logistic():
    X, y = table(4000, 2000)
    return lambda: cavity.LogisticRegression(intercept=False).fit(X, y > 0)


def glm():
    X, y = table(4000, 3000)
    return lambda: cavity.GLM("probit").fit(X, y > 0)


def diagonal():
    X, y = table(300_000, 20)
    return lambda: cavity.GLM("probit", approximation="diagonal").fit(X, y > 0)


def process():
    X, y = table(8000, 3)
    return lambda: cavity.GaussianProcess(covariances.RBF(), likelihoods.Gaussian(1.0)).fit(X, y)


def process_ep():
    X, y = table(4000, 3)
    return lambda: cavity.GaussianProcess(covariances.RBF(), likelihoods.Probit()).fit(X, y > 0, learn=False)


def process_learnt():
    X, y = table(2000, 3)
    return lambda: cavity.GaussianProcess("rbf", likelihoods.Gaussian(1.0)).fit(X, y)


def glm_learnt():
    X, y = table(200_000, 20)
    return lambda: cavity.GLM("student-t").fit(X, y, learn=True)


def mixed():
    X, y = table(200_000, 3)
    groups = {"user": rng.integers(0, 20_000, len(y)), "item": rng.integers(0, 2000, len(y))}
    return lambda: cavity.MixedGLM(["user", "item"], "probit").fit(X, y > 0, groups=groups)


def collection():
    from dask import array

    X, y = table(1_000_000, 20)
    X, y = array.from_array(X, chunks=(100_000, 20)), array.from_array(y > 0, chunks=100_000)
    return lambda: cavity.GLM("probit").fit(X, y)


def stream():
    X, y = table(200_000, 3)
    model = cavity.StreamingGP(covariances.RBF(), likelihoods.Gaussian(1.0), n_inducing=500)
    return lambda: model.fit(X, y)


def mixture():
    X, _ = table(1_000_000, 8)
    return lambda: cavity.GaussianMixture(20).fit(X, tol=1e-14)


def unit_mixture():
    y = rng.normal(size=5_000_000)
    return lambda: cavity.UnitMixture(20).fit(y, tol=1e-14)


def clutter():
    X, _ = table(500_000, 5)
    return lambda: cavity.Clutter().fit(X)


def factorized():
    root = rng.normal(size=(3000, 3000))
    precision = root @ root.T + np.eye(3000)
    return lambda: cavity.FactorizedGaussian(np.zeros(3000), precision).fit(max_iter=100_000, tol=0.0)


CASES = {
    "linear": ("`LinearRegression` with ``ard=True``, D = 3000 columns", linear),
    "logistic": ("`LogisticRegression` with D = 2000 columns", logistic),
    "glm": ("`GLM` with D = 3000 columns", glm),
    "diagonal": ("`GLM` with ``approximation='diagonal'``, N = 300,000 rows", diagonal),
    "process": ("`GaussianProcess` of N = 8000 rows", process),
    "process_ep": ("`GaussianProcess` of N = 4000 labels", process_ep),
    "process_learnt": ("`GaussianProcess` of N = 2000 rows, with its search", process_learnt),
    "glm_learnt": ("`GLM` with ``learn=True``, N = 200,000 rows", glm_learnt),
    "mixed": ("`MixedGLM` of 20,000 users and 2000 items, N = 200,000", mixed),
    "collection": ("`GLM` of a dask array of a million rows", collection),
    "stream": ("`StreamingGP` of 500 inducing points, N = 200,000", stream),
    "mixture": ("`GaussianMixture` of N = 1,000,000 rows", mixture),
    "unit_mixture": ("`UnitMixture` of N = 5,000,000 numbers", unit_mixture),
    "clutter": ("`Clutter` of N = 500,000 points", clutter),
    "factorized": ("`FactorizedGaussian` of D = 3000 coordinates", factorized),
}


def fit_again_and_again(name):
    """Be the process that is interrupted: a line when a fit begins, and one with the time of KeyboardInterrupt."""
    fit = CASES[name][1]()
    while True:
        try:
            print("begun", flush=True)
            while True:
                fit()
        except KeyboardInterrupt:
            print(time.monotonic(), flush=True)


def waits(name, signals, moments):
    """Return the seconds from SIGINT to KeyboardInterrupt, (signals,)."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", name]
    results = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            for _ in range(signals):
                if child.stdout.readline() != "begun\n":
                    raise RuntimeError(f"{name}: the fit has failed")
                time.sleep(moments.uniform(0.0, WITHIN))
                sent = time.monotonic()
                os.kill(child.pid, signal.SIGINT)
                results.append(float(child.stdout.readline()) - sent)
        finally:
            child.kill()
    return np.array(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        fit_again_and_again(options.child)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    moments, late = np.random.default_rng(options.seed), []
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table::\n   :header-rows: 1\n   :widths: 60 20 20\n")
    print("   * - fit\n     - median wait\n     - longest wait")
    for name in options.cases or CASES:
        result = waits(name, options.signals, moments)
        print(f"   * - {CASES[name][0]}\n     - {np.median(result):.3f} s\n     - {result.max():.2f} s", flush=True)
        late += [f"{name} ({result.max():.2f} s)"] if result.max() > LONGEST else []
    print(f"above {LONGEST} s: {', '.join(late) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
