"""How fast iterations settle: `python benchmarks/convergence.py`.

EP on Minka's clutter problem: 1000 random data sets for each N: theta = 2, half clutter, prior variance 100, clutter
variance 10. Prints how many fits converged, in how many iterations (sweeps and Newton steps), and how many used the
double loop.

Mean field on unit mixtures of overlapping components, one noise sd apart, 2000 points: passes until the ELBO is within
1e-6 nats a point of its optimum, by plain coordinate ascent, SQUAREM and Anderson's method.
"""

import warnings

import numpy as np

import cavity

DRAWS = 1000


def draw(rng, n):
    """Return DRAWS data sets of n points, shape (DRAWS, n, 1)."""
    shape = (DRAWS, n, 1)
    clutter, signal = rng.normal(0.0, np.sqrt(10.0), shape), rng.normal(2.0, 1.0, shape)
    return np.where(rng.random(shape) < 0.5, clutter, signal)


def row(n):
    """Fit data sets of n points; return the cells of the table."""
    model = cavity.Clutter(clutter_weight=0.5, clutter_variance=10.0, prior_variance=100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)  # counted instead
        posterior = model.fit(draw(np.random.default_rng(n), n))
    double_loop, n_iter = np.count_nonzero(posterior.trace["double_loop"]), posterior.n_iter
    return n, f"{posterior.converged.mean():.1%}", np.median(n_iter), n_iter.max(), double_loop


def passes(k, seed):
    """Return the passes that plain ascent, SQUAREM and Anderson's method need on a mixture of k components."""
    rng = np.random.default_rng(seed)
    y, model = rng.normal(rng.integers(0, k, 2000), 1.0), cavity.UnitMixture(k)
    fits = [model.fit(y, accelerate=a, tol=1e-9, max_iter=20_000) for a in (False, "squarem", "anderson")]
    close = max(fit.elbo for fit in fits) - 1e-6 * len(y)
    return [int(np.argmax(fit.trace["elbo"] >= close)) + 1 for fit in fits]


def main():
    """Print the tables."""
    print("| N | converged | median iterations | most iterations | used the double loop |")
    print("|---|---|---|---|---|")
    for n in (20, 50, 100, 200):
        print("| " + " | ".join(map(str, row(n))) + " |")

    print("\n| components | passes: plain | SQUAREM | Anderson |\n|---|---|---|---|")
    for k in (4, 6, 8):
        plain, squarem, anderson = np.median([passes(k, seed) for seed in range(10)], axis=0)
        print(f"| {k} | {plain:g} | {squarem:g} | {anderson:g} |")


if __name__ == "__main__":
    main()
