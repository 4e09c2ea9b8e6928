"""Write banana.json: a dense Gaussian process of 400 rows by the EP of GPy, what tests/test_streaming_gp.py reads.

Probit likelihood, squared exponential covariance, the first 400 rows of the banana data. Needs GPy (1.15) beside NumPy,
not cavity; run from the folder tests as python golden/make_banana.py; it takes half a minute.
"""

import json
from pathlib import Path

import GPy
import numpy as np
from GPy.inference.latent_function_inference.expectation_propagation import EP

ROWS, VARIANCE, LENGTHSCALE = 400, 4.0, 0.7
DATA = Path(__file__).resolve().parents[2] / "src" / "cavity" / "data" / "banana.csv"


def main():
    """Write the file."""
    table = np.loadtxt(DATA, delimiter=",", skiprows=1, max_rows=ROWS)
    X, y = table[:, :2], table[:, 2:]
    kernel = GPy.kern.RBF(2, variance=VARIANCE, lengthscale=LENGTHSCALE)
    np.random.seed(0)  # noqa: NPY002  the order of its sites
    method = EP(epsilon=1e-16)
    method.max_iters = 1000
    likelihood = GPy.likelihoods.Bernoulli()  # Phi(f), labels 0 and 1
    _, evidence, _ = method.inference(kernel, X, likelihood, GPy.core.gp.ObsAr((y + 1) / 2))
    out = {
        "rows": ROWS,
        "variance": VARIANCE,
        "lengthscale": LENGTHSCALE,
        "log_evidence": float(evidence),
        "mean": [round(float(value), 8) for value in method._ep_approximation[0].mu[:20]],
        "variances": [round(float(value), 8) for value in method._ep_approximation[0].Sigma_diag[:20]],
    }
    Path(__file__).with_name("banana.json").write_text(json.dumps(out, indent=1) + "\n")
    print(out["log_evidence"])


if __name__ == "__main__":
    main()
