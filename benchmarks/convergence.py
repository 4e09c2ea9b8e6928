"""How often EP's sweeps settle on Minka's clutter problem: `python benchmarks/convergence.py`.

1000 random data sets for each N: theta = 2, half clutter, prior variance 100, clutter variance 10. Prints how
many fits converged, in how many iterations (sweeps and Newton steps), and how many used the double loop.
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


def main():
    """Print the table."""
    print("| N | converged | median iterations | most iterations | used the double loop |")
    print("|---|---|---|---|---|")
    for n in (20, 50, 100, 200):
        print("| " + " | ".join(map(str, row(n))) + " |")


if __name__ == "__main__":
    main()
