"""Compare EP's leave-one-out densities with fits without the row, and print the table of reading.rst.

    python docs/scripts/leave_one_out.py > docs/leave_one_out_table.inc

Needs scikit-learn, for its breast cancer and diabetes data.
"""

import warnings
from itertools import pairwise

import numpy as np
from sklearn import datasets

import cavity
from cavity import covariances, data, likelihoods

EDGES = [0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, np.inf]  # of influence, in nats
VARIANCES = (1.0, 25.0, 1e4)  # of the prior of the weights
MOST_ROWS = 40  # of a fit that are left out: those of the largest influence
DISCOVERIES = [  # great inventions and scientific discoveries a year, 1860 to 1891 (The World Almanac 1975)
    *(5, 3, 0, 2, 0, 3, 2, 3, 6, 1, 2, 1, 2, 1, 3, 3, 3, 5, 2, 4, 4, 0, 2, 3, 7, 12, 3, 10, 9, 2, 3, 7),
]
SEED = 0


def scaled(X):
    """Columns of mean 0 and standard deviation 1."""
    return (X - X.mean(axis=0)) / X.std(axis=0)


def tables():
    """Yield columns, observations, and the likelihoods that fit these."""
    rng = np.random.default_rng(SEED)
    classes = likelihoods.Probit(), likelihoods.Logit()
    numbers = likelihoods.StudentT(4.0, 0.6), likelihoods.Laplace(0.6)
    counts = likelihoods.Poisson(), likelihoods.NegativeBinomial(1.0)
    cancer, sugar = datasets.load_breast_cancer(), datasets.load_diabetes()
    some = rng.permutation(len(cancer.data))[:30]
    for columns in ([0, 1], [0, 1, 4, 7, 9]):
        yield scaled(cancer.data[some][:, columns]), 2 * cancer.target[some] - 1, classes
    some = rng.permutation(len(sugar.data))[:30]
    for columns in ([2, 8], [0, 1, 2, 3, 8, 9]):
        X, y = scaled(sugar.data[some][:, columns]), scaled(sugar.target[some])
        yield X, y, numbers
        yield X, np.where(y > 0, 1, -1), classes
        yield X, np.digitize(y, [-1.0, 0.0, 1.0]), (likelihoods.OrderedProbit([-1.0, 0.0, 1.0]),)
    pima = data.table("pima")[0]
    X = scaled(np.column_stack([pima[name] for name in list(pima)[:7]]))
    y = np.where(np.array(pima["type"]) == "Yes", 1, -1)
    for n in (40, 100, 200, 532):
        yield X[:n], y[:n], classes
    times, shocks = (scaled(np.asarray(column)) for column in data.table("motorcycle")[0].values())
    for step in (1, 2, 4):
        yield scaled(np.vander(times[::step], 6)[:, :-1]), shocks[::step], numbers
    years = np.linspace(-1.0, 1.0, len(DISCOVERIES))
    yield scaled(np.vander(years, 5)[:, :-1]), np.array(DISCOVERIES), counts


def fits():
    """Yield functions that fit rows (X, y), and the rows."""
    for X, y, kinds in tables():
        with_ones = np.column_stack([np.ones(len(X)), X])
        for kind in kinds:
            for variance in VARIANCES:
                yield cavity.GLM(kind, prior_variance=variance).fit, {"tol": 1e-10}, with_ones, y
            if len(X) <= 40:
                for variance in (0.25, 1.0, 9.0):
                    for lengthscale in (0.15, 0.5, 2.0):
                        model = cavity.GaussianProcess(covariances.RBF(variance, lengthscale), kind)
                        yield model.fit, {"tol": 1e-10, "learn": False}, X[:, :2], y


def errors(fit, options, X, y):
    """Influences of some rows of a fit, and how far off their leave-one-out densities are."""
    posterior = fit(X, y, **options)
    if not posterior.converged:
        return
    record = posterior.loo()
    for i in np.argsort(-record.influence)[:MOST_ROWS]:
        without = fit(np.delete(X, i, axis=0), np.delete(y, i), **options)
        if without.converged:
            yield record.influence[i], abs(without.log_density(X[[i]], y[[i]])[0] - record.log_density[i])


def main():
    """Print the table."""
    warnings.simplefilter("ignore")
    influence, error = np.array([pair for fit in fits() for pair in errors(*fit)]).T
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(".. list-table:: Error of leave-one-out log densities, in nats\n   :header-rows: 1\n")
    rows = [("influence of the row", "rows", "median", "95 %", "largest")]
    for low, high in pairwise(EDGES):
        e = error[(influence >= low) & (influence < high)]
        message = f"below {high:g}" if low == 0 else f"{low:g} to {high:g}" if np.isfinite(high) else f"above {low:g}"
        figures = (f"{value:.2g}" for value in (np.median(e), np.quantile(e, 0.95), e.max()))
        rows.append((message, str(len(e)), *figures))
    for first, *others in rows:
        print(f"   * - {first}")
        print("".join(f"     - {cell}\n" for cell in others), end="")


if __name__ == "__main__":
    main()
