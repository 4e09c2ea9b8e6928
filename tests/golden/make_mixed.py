"""Write mixed.json: mixed models of the shipped data at given variances, what tests/models/mixed reads.

EP by tests/reference/mixed.py, and importance sampling around it with standard errors. Run from the folder tests as
python golden/make_mixed.py; it takes several minutes.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reference import mixed as reference
from support import mixed

DRAWS = 50_000


def numbers(case):
    """The golden numbers of a case."""
    log_p, A = mixed.LOG_P[type(case.likelihood).__name__](case.y), reference.rows(case.X, case.terms)
    C = reference.prior_covariance(case.known["fixed_variance"], case.terms, case.known["covariances"])
    sites, log_p_merged, index = reference.merge(log_p, A)
    mean, S, evidence, _, (cavity_mean, cavity_variance, _) = reference.ep(log_p_merged, sites, C)
    loo = reference.leave_out_of_merged(log_p, log_p_merged, index, cavity_mean, cavity_variance)
    sd = np.sqrt(np.diag(S))
    rng = np.random.default_rng(0)
    d, drawn, log_p_drawn = case.X.shape[1], np.ones(len(C), dtype=bool), log_p
    start = d
    for term, variance in zip(case.terms, case.known["covariances"], strict=True):
        stop = start + np.prod(term.shape)
        if term.shape == (len(A), 1):  # an effect of each row, whose integral is one-dimensional
            drawn[start:stop], log_p_drawn = False, mixed.integrated(log_p, variance)
        start = stop
    part = np.ix_(drawn, drawn)
    truth = reference.importance_sampling(log_p_drawn, A[:, drawn], C[part], mean[drawn], S[part], DRAWS, rng)
    log_evidence, error, size, true_mean, true_sd = truth
    return {
        "log_evidence": evidence,
        "mean": mean.tolist(),
        "sd": sd.tolist(),
        "loo": float(loo.sum()),
        "truth": {
            "log_evidence": log_evidence,
            "error": error,
            "effective": size / DRAWS,
            "fixed": true_mean[:d].tolist(),
            "fixed_sd": true_sd[:d].tolist(),
        },
    }


if __name__ == "__main__":
    found = {name: numbers(make()) for name, make in mixed.GIVEN.items()}
    target = Path(__file__).with_name("mixed.json")
    target.write_text(json.dumps(found, indent=1) + "\n")
    for name, entry in found.items():
        truth = entry["truth"]
        print(name, entry["log_evidence"], truth["log_evidence"], truth["error"], truth["effective"])
