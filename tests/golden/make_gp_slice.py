"""Write gp_slice.json: Gaussian processes of 20 rows by Monte Carlo, what tests/test_gaussian_process.py reads.

Posterior moments by elliptical slice sampling, the evidence by annealed importance sampling, with standard errors:
long chains from tests/reference/gaussian_process.py. Run from the folder tests as python golden/make_gp_slice.py; it
takes several minutes.
"""

import json
import sys
from pathlib import Path

import numpy as np
from scipy.special import gammaln, log_ndtr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reference import gaussian_process as reference

ROWS, CHAINS, TEMPERATURES, STEPS = 20, 10_000, 800, 400
LENGTHSCALE, VARIANCE = 0.8, 4.0
NU, SCALE = 5.0, 0.4


def log_probit(y, f):
    """Sum of log Phi(y f) of every chain."""
    return log_ndtr(y * f).sum(axis=1)


def log_poisson(y, f):
    """Sum of log Poisson(y; exp f)."""
    return (y * f - np.exp(f) - gammaln(y + 1)).sum(axis=1)


def log_student(y, f):
    """Sum of log densities of Student's t of NU degrees of freedom and scale SCALE."""
    constant = gammaln((NU + 1) / 2) - gammaln(NU / 2) - 0.5 * np.log(NU * np.pi) - np.log(SCALE)
    return (constant - 0.5 * (NU + 1) * np.log1p(((y - f) / SCALE) ** 2 / NU)).sum(axis=1)


def problems():
    """(name, X, y, log likelihood) of data drawn from the models."""
    rng = np.random.default_rng(28)
    X = np.sort(rng.uniform(-2, 2, (ROWS, 1)), axis=0).round(6)
    K = reference.rbf(VARIANCE, LENGTHSCALE)(X, X) + 1e-10 * np.eye(ROWS)
    f = np.linalg.cholesky(K) @ rng.standard_normal(ROWS)
    yield "Probit", X, np.where(rng.random(ROWS) < np.exp(log_ndtr(f)), 1.0, -1.0), log_probit
    yield "Poisson", X, rng.poisson(np.exp(f)).astype(float), log_poisson
    yield "StudentT", X, (f + SCALE * rng.standard_t(NU, ROWS)).round(6), log_student


def main():
    """Write the file."""
    out = {}
    temperatures = np.linspace(0, 1, TEMPERATURES + 1) ** 3
    for seed, (name, X, y, log_p) in enumerate(problems()):
        K = reference.rbf(VARIANCE, LENGTHSCALE)(X, X) + 1e-10 * np.eye(ROWS)
        rng = np.random.default_rng(seed)
        result = reference.annealed(K, lambda f, y=y, p=log_p: p(y, f), CHAINS, temperatures, STEPS, rng)
        out[name] = {"X": X.ravel().tolist(), "y": y.tolist()}
        out[name] |= {key: np.round(value, 7).tolist() for key, value in result.items()}
        print(name, out[name]["log_evidence"], out[name]["log_evidence_error"], max(out[name]["mean_error"]))
    out["model"] = {"lengthscale": LENGTHSCALE, "variance": VARIANCE, "degrees_of_freedom": NU, "scale": SCALE}
    path = Path(__file__).with_name("gp_slice.json")
    path.write_text(json.dumps(out, indent=None).replace('], "', '],\n"').replace("}, ", "},\n") + "\n")


if __name__ == "__main__":
    main()
