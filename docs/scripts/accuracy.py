"""Compare EP and ADF for the clutter problem with the exact posterior, and print the table of accuracy.rst.

    python docs/scripts/accuracy.py > docs/accuracy_table.inc

The exact posterior (d = 1) is a sum over a fine grid: for analytic integrands that decay at both ends, such
sums converge faster than any power of the step. Each is computed with two steps that must agree to AGREEMENT.
"""

import warnings

import numpy as np

import cavity
from cavity import data

AGREEMENT = 1e-11  # of mean and sd in posterior sd, of the log evidence in nats
POINTS = 1 << 14  # grid points per summand of the log density
N_DRAWS = 1000
N_ORDERS = 10


def log_joint(theta, x, model):
    """log p(x, theta) on a grid of theta."""

    def log_normal(y, mean, variance):
        return -0.5 * ((y - mean) ** 2 / variance + np.log(2 * np.pi * variance))

    total = log_normal(theta, model.prior_mean, model.prior_variance)
    for point in x:
        signal = np.log1p(-model.clutter_weight) + log_normal(point, theta, model.noise_variance)
        clutter = np.log(model.clutter_weight) + log_normal(point, model.clutter_mean, model.clutter_variance)
        total += np.logaddexp(signal, clutter)
    return total


def summed(x, model, step):
    """Mean, sd and log evidence of the exact posterior from a grid with the given step."""
    reach = 12 * np.sqrt(model.prior_variance)
    low = min(model.prior_mean - reach, x.min())
    high = max(model.prior_mean + reach, x.max())
    total, first, second, top = 0.0, 0.0, 0.0, -np.inf
    centre = np.median(x)
    count = int(np.ceil((high - low) / step))
    for start in range(0, count, POINTS):  # in pieces, rescaled to the largest value so far
        theta = low + step * np.arange(start, min(start + POINTS, count))
        value = log_joint(theta, x, model)
        above = max(top, value.max())
        weight, old = np.exp(value - above), np.exp(top - above)
        top, theta = above, theta - centre
        total = total * old + weight.sum()
        first = first * old + weight @ theta
        second = second * old + weight @ theta**2
    mean = first / total
    return np.array([centre + mean, np.sqrt(second / total - mean**2), np.log(total * step) + top])


def exact(x, model):
    """Mean, sd and log evidence of the exact posterior."""
    step = np.sqrt(model.noise_variance / (len(x) + 1)) / 4
    coarse, fine = summed(x, model, step), summed(x, model, step / 2)
    worst = np.max(np.abs(coarse - fine) / [fine[1], fine[1], 1 + abs(fine[2])])
    if not worst < AGREEMENT:
        raise ArithmeticError(f"quadrature not converged: {worst}")
    return fine


def fitted(posterior):
    """Mean, sd and log evidence of an approximation."""
    if not posterior.converged:
        raise ArithmeticError(posterior.status)
    return np.array([posterior.mean, np.sqrt(posterior.variance), posterior.log_evidence])


def minka(n, seed, theta=2.0):
    """n draws from the model with its default settings (Minka's experiment): half signal around theta."""
    rng = np.random.default_rng(seed)
    clutter = rng.random(n) < 0.5
    return np.where(clutter, rng.normal(0.0, np.sqrt(10.0), n), rng.normal(theta, 1.0, n))


def cases():
    """Yield (name, data, model)."""
    default = cavity.Clutter()
    yield "two points, (0.1, 2.3)", np.array([0.1, 2.3]), default
    for seed in range(3):
        yield f"N = 20, seed {seed}", minka(20, seed), default
    yield "N = 200, seed 0", minka(200, 0), default
    newcomb, _ = data.load("newcomb")
    yield "Newcomb, N = 66", newcomb, default.with_defaults(newcomb)
    yield "two modes, (-4, -3.5, -3, 3.5, 4)", np.array([-4.0, -3.5, -3.0, 3.5, 4.0]), default


def list_table(title, header, rows):
    """Return the lines of an rst list-table."""
    lines = [f".. list-table:: {title}", "   :header-rows: 1", ""]
    for row in (header, *rows):
        lines += [f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(row)]
    return [*lines, ""]


def compared(name, x, model):
    """Yield the rows of one data set."""
    truth = exact(x, model)
    yield name, "exact", *(f"{value:.6f}" for value in truth), "", "", ""
    backwards = np.arange(len(x))[::-1]
    methods = (("EP", "ep", None), ("ADF", "adf", None), ("ADF, last row first", "adf", backwards))
    for label, method, order in methods:
        result = fitted(model.fit(x, method=method, order=order))
        shift, ratio, gap = (result[0] - truth[0]) / truth[1], result[1] / truth[1], result[2] - truth[2]
        errors = f"{shift:+.4f}", f"{ratio:.4f}", f"{gap:+.4f}"
        yield "", label, *(f"{value:.6f}" for value in result), *errors


def over_draws():
    """Yield the rows of the second table: errors over many data sets of 20 points."""
    model, errors = cavity.Clutter(), {"EP": [], f"EP, best of {N_ORDERS} orders": [], "ADF": []}
    for seed in range(N_DRAWS):
        x = minka(20, seed)
        truth = exact(x, model)
        first, filtered = model.fit(x, max_iter=1000), model.fit(x, method="adf")
        orders = [model.fit(x, order="random", rng=k, max_iter=1000) for k in range(N_ORDERS)]
        best = max((fit for fit in (first, *orders) if fit.converged), key=lambda fit: fit.log_evidence)
        for item, fit in zip(errors.values(), (first, best, filtered), strict=True):
            mean, sd, value = fitted(fit)
            item.append(np.abs([(mean - truth[0]) / truth[1], np.log(sd / truth[1]), value - truth[2]]))
    for label, item in errors.items():
        for name, level in (("median", 0.5), ("95 %", 0.95), ("largest", 1.0)):
            yield label, name, *(f"{value:.2g}" for value in np.quantile(item, level, axis=0))


def main():
    """Print both tables."""
    warnings.simplefilter("ignore", cavity.ConvergenceWarning)  # `fitted` raises where it matters
    print(".. Written by docs/scripts/accuracy.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    header = (
        "data",
        "method",
        "mean",
        "sd",
        "log evidence",
        "error of mean / sd",
        "sd / exact sd",
        "error of log evidence",
    )
    rows = [row for case in cases() for row in compared(*case)]
    print("\n".join(list_table("Single data sets", header, rows)))
    header = ("method", "over the draws", "error of mean / sd", "log of sd ratio", "error of log evidence")
    print("\n".join(list_table(f"Absolute errors, {N_DRAWS} draws of N = 20 points", header, over_draws())))


if __name__ == "__main__":
    main()
