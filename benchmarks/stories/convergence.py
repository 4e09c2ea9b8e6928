"""How fast iterations settle: `python benchmarks/stories/convergence.py`.

EP on Minka's clutter problem: 1000 random data sets for each N: theta = 2, half clutter, prior variance 100, clutter
variance 10. Prints how many fits converged, in how many iterations (sweeps and steps of the double loop), and how many
used the double loop.

Mean field on unit mixtures of overlapping components, one noise sd apart, 2000 points: passes until the ELBO is within
1e-6 nats a point of its optimum, by plain coordinate ascent, SQUAREM and Anderson's method. The same for Gaussian
mixtures: on a line with components 1.5 sd apart, and on Old Faithful with more components than it has groups.
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
    return passes_of(lambda accelerate: model.fit(y, accelerate=accelerate, tol=1e-9, max_iter=20_000), len(y))


def passes_of(fit, n):
    """Return the passes of fit(accelerate) to the best ELBO by plain ascent, SQUAREM and Anderson's method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        traces = [fit(accelerate).trace["elbo"] for accelerate in (False, "squarem", "anderson")]
    close = max(trace[-1] for trace in traces) - 1e-6 * n
    return [int(np.argmax(trace >= close)) + 1 if trace[-1] >= close else np.inf for trace in traces]


def gaussian_passes(X, model, seed):
    """Return the same for a Gaussian mixture that starts from rows drawn at random."""
    rng = np.random.default_rng(seed)
    means = rng.choice(X, model.n_components, replace=False)

    def fit(accelerate):
        return model.fit(X, initial_means=means, accelerate=accelerate, tol=1e-9, max_iter=20_000)

    return passes_of(fit, len(X))


def overlapping(seed):
    """Return 2000 points of three Gaussians on a line, one and a half sd apart."""
    rng = np.random.default_rng(seed)
    return rng.normal(1.5 * rng.integers(0, 3, 2000), 1.0)[:, None]


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

    columns, _ = cavity.data.table("faithful")
    faithful = np.column_stack([columns["eruptions"], columns["waiting"]])
    print("\n| Gaussian mixture | passes: plain | SQUAREM | Anderson |\n|---|---|---|---|")
    cases = {
        "line, K = 3": lambda seed: gaussian_passes(overlapping(seed), cavity.GaussianMixture(3), seed),
        "faithful, K = 3": lambda seed: gaussian_passes(faithful, cavity.GaussianMixture(3), seed),
        "faithful, K = 6": lambda seed: gaussian_passes(faithful, cavity.GaussianMixture(6), seed),
        "faithful, K = 6 that all stay": lambda seed: gaussian_passes(
            faithful, cavity.GaussianMixture(6, weight_concentration_prior=10.0), seed
        ),
    }
    for label, run in cases.items():
        plain, squarem, anderson = np.median([run(seed) for seed in range(10)], axis=0)
        print(f"| {label} | {plain:g} | {squarem:g} | {anderson:g} |")


if __name__ == "__main__":
    main()
