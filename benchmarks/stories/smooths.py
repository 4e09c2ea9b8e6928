"""Four smooths of 1e5 rows with Gaussian noise beside mgcv's bam, pyGAM, gamfit and GPBoost, everything learnt.

`python benchmarks/stories/smooths.py [--rows 100000] [--repeats 3]`
`python benchmarks/stories/smooths.py --counts 1000000 [--bins 500]`

All learn the amount of smoothness of each function and the noise, with one thread, in alternating runs; the table has
the smallest CPU time of a fit and the root mean square error of the sum of the functions. mgcv needs Rscript and the R
package mgcv, the others their Python packages; what is not installed is left out. Also: cost by rows and by knots. With
--counts: one negative binomial fit of so many rows, five smooths and a level for each 100 rows, alone in the process.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import cavity  # noqa: E402

SMOOTHS, NOISE_SD = 4, 0.5
BAM = """
library(mgcv)
d <- read.csv("{path}")
took <- system.time(fit <- bam(y ~ {terms}, data=d, method="fREML", discrete={discrete}, nthreads=1))
f <- predict(fit)
cat(took[["user.self"]] + took[["sys.self"]], sqrt(mean((f - d$f)^2)), "\\n")
"""


def make_rows(n):
    """Return covariates, the sum of functions, and observations."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, SMOOTHS))
    f = np.sin(6.0 * X[:, 0]) + 0.5 * np.cos(9.0 * X[:, 1]) + 2.0 * (X[:, 2] - 0.5) ** 2 + 0.3 * np.sin(15.0 * X[:, 3])
    return X, f, f + NOISE_SD * rng.normal(size=n)


def name_columns(X):
    """Return the covariates by their names."""
    return {f"x{i}": column for i, column in enumerate(X.T)}


def time_fit(fit):
    """Return the CPU seconds of fit(), which returns a function of fitted values, and these values."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict = fit()
    seconds = time.process_time() - start
    return seconds, predict()


def fit_cavity(X, y, k=40, bins=None):
    """Return what fits our model."""
    formula = "y ~ " + " + ".join(f"s(x{i}, k={k})" for i in range(X.shape[1]))
    table = name_columns(X) | {"y": y}

    def fit():
        posterior = cavity.MixedGLM(formula, "gaussian", bins=bins).fit(table, n_threads=1)
        return lambda: posterior.predict(table)[0]

    return fit


def fit_pygam(X, y, search):
    """Return what fits pyGAM, at its default penalty or over its default grid."""
    from pygam import LinearGAM

    def fit():
        gam = LinearGAM(n_splines=40)
        gam = gam.gridsearch(X, y, progress=False) if search else gam.fit(X, y)
        return lambda: gam.predict(X)

    return fit


def fit_gamfit(X, y, k=40):
    """Return what fits gamfit."""
    import gamfit
    import pandas as pd

    table = pd.DataFrame(name_columns(X) | {"y": y})
    formula = "y ~ " + " + ".join(f"s(x{i}, k={k})" for i in range(X.shape[1]))

    def fit():
        model = gamfit.fit(table, formula)
        return lambda: np.asarray(model.predict(table)).reshape(len(y), -1)[:, 0]

    return fit


def fit_gpboost(X, y, bins=500):
    """Return what fits GPBoost: it has no smooth functions, so each covariate is a factor of bins, its effects iid."""
    import gpboost

    groups = np.floor(bins * X).astype(int)

    def fit():
        model = gpboost.GPModel(group_data=groups, likelihood="gaussian", num_parallel_threads=1)
        model.fit(y=y, X=np.ones((len(y), 1)))
        ones = np.ones((len(y), 1))
        return lambda: model.predict(group_data_pred=groups, X_pred=ones, predict_var=False)["mu"]

    return fit


def run_bam(X, f, y, discrete, k=40):
    """Return CPU seconds and error of mgcv's bam."""
    terms = " + ".join(f"s(x{i}, k={k}, bs='cr')" for i in range(X.shape[1]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        names = ",".join([*name_columns(X), "f", "y"])
        np.savetxt(path, np.column_stack([X, f, y]), delimiter=",", header=names, comments="")
        script = BAM.format(path=path, terms=terms, discrete="TRUE" if discrete else "FALSE")
        done = subprocess.run(["Rscript", "-e", script], capture_output=True, text=True, check=True)
    seconds, error = map(float, done.stdout.split()[-2:])
    return seconds, error


def list_rivals(X, f, y):
    """Return functions that return CPU seconds and the error, by names."""

    def timed(fit):
        def run():
            seconds, values = time_fit(fit)
            return seconds, float(np.sqrt(np.mean((values - f) ** 2)))

        return run

    rivals = {
        "cavity": timed(fit_cavity(X, y)),
        "cavity, bins=500": timed(fit_cavity(X, y, bins=500)),
        "mgcv bam, discrete": lambda: run_bam(X, f, y, True),
        "mgcv bam": lambda: run_bam(X, f, y, False),
    }
    for name, make in {
        "pyGAM, default grid": lambda: fit_pygam(X, y, True),
        "pyGAM, one penalty": lambda: fit_pygam(X, y, False),
        "gamfit": lambda: fit_gamfit(X, y),
        "GPBoost, factors of 500 bins": lambda: fit_gpboost(X, y),
    }.items():
        try:
            rivals[name] = timed(make())
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
    return rivals


def compare(n, repeats, only=None):
    """Print the table, of some names or of all."""
    X, f, y = make_rows(n)
    rivals, best = list_rivals(X, f, y), {}
    rivals = {name: run for name, run in rivals.items() if only is None or name in only}
    for _ in range(repeats):
        for name, run in list(rivals.items()):
            try:
                seconds, error = run()
            except Exception as problem:  # of another library
                print(f"{name}: {type(problem).__name__}: {problem}", file=sys.stderr)
                del rivals[name]
                continue
            best[name] = min(best.get(name, (np.inf, 0.0)), (seconds, error))
            print(f"{name}: {seconds:.3f} s", file=sys.stderr)
            if seconds > 60.0:
                del rivals[name]
    for name, (seconds, error) in best.items():
        print(f"{name:30s} {seconds:8.3f} s  {seconds / best['cavity'][0]:7.1f}  error {error:.4f}")


def scale():
    """Print CPU seconds by rows and by knots."""
    for n, k in [(25_000, 20), (50_000, 20), (100_000, 20), (200_000, 20), (100_000, 40), (100_000, 80)]:
        X, _, y = make_rows(n)
        seconds = min(time_fit(fit_cavity(X, y, k))[0] for _ in range(4))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{n} rows, k={k}: {seconds:.3f} s, {1e6 * seconds / n:.1f} us a row, at most {peak:.2f} GB so far")


def fit_counts(n, bins):
    """Print CPU seconds and memory of a negative binomial fit, everything learnt."""
    rng = np.random.default_rng(0)
    X, g = rng.uniform(size=(n, 5)), rng.integers(n // 100, size=n)
    f = np.sin(6.0 * X[:, 0]) + 0.5 * np.cos(9.0 * X[:, 1]) + 2.0 * (X[:, 2] - 0.5) ** 2 + 0.3 * np.sin(15.0 * X[:, 3])
    mean = np.exp(0.5 * (f + 0.4 * X[:, 4] + 0.5 * rng.normal(size=n // 100)[g]))
    table = name_columns(X) | {"g": g, "y": rng.negative_binomial(2.0, 2.0 / (2.0 + mean))}
    formula = "y ~ " + " + ".join(f"s(x{i}, k=40)" for i in range(5)) + " + (1 | g)"
    start = time.process_time()
    posterior = cavity.MixedGLM(formula, "negative-binomial", bins=bins).fit(table, n_threads=1)
    seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{n} rows, bins={bins}: {seconds:.1f} s, {peak:.2f} GB, log evidence {posterior.log_evidence:.6f}")


def main():
    """Run what the options say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="names of the libraries")
    parser.add_argument("--counts", type=int, help="rows of a negative binomial fit, in place of the comparison")
    parser.add_argument("--bins", type=int)
    options = parser.parse_args()
    if options.counts:
        fit_counts(options.counts, options.bins)
        return
    compare(options.rows, options.repeats, options.only)
    scale()


if __name__ == "__main__":
    main()
