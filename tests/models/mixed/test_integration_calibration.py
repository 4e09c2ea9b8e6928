"""Coverage of intervals on simulated data whose truths are drawn from the priors."""

import numpy as np
import pytest

import cavity
from cavity.priors import PC

N_LEVELS, N_DATASETS = 6, 120


@pytest.mark.long
def test_intervals_of_crossed_groups_hold_the_truth():
    """Standard deviations and fixed effects of two crossed groups, within 3 standard errors of 95 %."""
    rng, prior = np.random.default_rng(5), PC(1.0)
    held = {"sd": [], "fixed": []}
    for _ in range(N_DATASETS):
        sds, coefficients = rng.exponential(1.0 / prior.rate, 2), rng.normal(size=2)
        a, b = (np.repeat(item.ravel(), 3) for item in np.meshgrid(np.arange(N_LEVELS), np.arange(N_LEVELS)))
        X = np.column_stack([np.ones(len(a)), rng.normal(size=len(a))])
        f = X @ coefficients + (sds[:, None] * rng.normal(size=(2, N_LEVELS)))[[[0], [1]], [a, b]].sum(axis=0)
        y = rng.random(len(a)) < 1.0 / (1.0 + np.exp(-f))
        if y.all() or not y.any():
            continue
        model = cavity.MixedGLM(["a", "b"], "logit", prior_variance=1.0, priors={"sd": prior}, integrate="grid")
        posterior = model.fit(X, y.astype(int), groups={"a": a, "b": b})
        low, high = posterior.interval().T
        held["fixed"] += ((low < coefficients) & (coefficients < high)).tolist()
        table = posterior.integration.table()
        held["sd"] += ((table.columns["2.5%"] < sds) & (sds < table.columns["97.5%"])).tolist()
    for value in held.values():
        assert abs(np.mean(value) - 0.95) < 3.0 * (0.05 * 0.95 / len(value)) ** 0.5
