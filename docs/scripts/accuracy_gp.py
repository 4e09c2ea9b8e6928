"""Compare EP and Laplace's approximation of Gaussian process classifiers; write what accuracy_gp.rst shows.

    python docs/scripts/accuracy_gp.py > docs/accuracy_gp_table.inc

also draws accuracy_gp_exact.png, accuracy_gp_grid.png and accuracy_gp_calibration.png beside itself. Over a grid of two
hyperparameters stand the log evidence and how well new rows are predicted, as in [1]. The truth of the small problem is
importance sampling by minimax tilting [2], confirmed at some points of the grid by annealed importance sampling with
elliptical slice sampling [3]. These, Laplace's approximation [4] and their covariance are written out here and share no
code with the library. Needs scikit-learn and matplotlib.

[1] M. Kuss and C. E. Rasmussen, Assessing approximate inference for binary Gaussian process classification, Journal of
    Machine Learning Research 6 (2005) 1679-1704.
[2] Z. I. Botev, The normal law under linear restrictions: simulation and estimation via minimax tilting, Journal of the
    Royal Statistical Society B 79 (2017) 125-148.
[3] I. Murray, R. P. Adams and D. J. C. MacKay, Elliptical slice sampling, AISTATS 2010.
[4] C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, algorithms 3.1 and 3.2.
"""

import warnings
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from scipy import optimize
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr, ndtr, ndtri_exp
from scipy.stats import qmc
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from threadpoolctl import threadpool_limits

import cavity
from cavity import data

HERE = Path(__file__).parents[1]
GRID = np.linspace(-1.0, 5.0, 13)  # of both log lengthscale and log signal sd, as in the paper
REPLICATES, DRAWS = 4, 1 << 14  # of tilting
CHAINS, TEMPERATURES = 64, 4000  # of annealing
SHOWN = ((0.0, 0.0), (1.0, 1.0), (0.0, 2.0), (2.0, 2.0), (-1.0, 5.0), (0.5, 5.0), (2.0, 5.0), (5.0, 5.0))  # of the grid
ANNEALED = 4  # of them; the others, of large signal sd, need more than minutes
BELOW = -np.array([200.0, 100.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.0])  # levels of the log evidence
BINS = 8  # of the probabilities in the picture of the calibration
TINY = np.finfo(float).tiny
SEED = 1
DPI = 70
COLORS = {"EP": "#1b6ca8", "Laplace": "#c8553d", "scikit-learn": "#6b6b6b"}


@dataclass(frozen=True)
class Case:
    """A classification problem: rows to learn from and rows to predict, labels -1 and 1."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray

    def information(self, probability):
        """Bits per new row that the probabilities of class 1 have beyond the share of the classes."""
        share, one = np.mean(self.y_new > 0), self.y_new > 0
        entropy = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
        return entropy + np.mean(np.log2(np.maximum(np.where(one, probability, 1 - probability), TINY)))

    def errors(self, probability):
        """Percentage of the new rows that get the wrong class."""
        return 100 * np.mean((probability > 0.5) != (self.y_new > 0))

    def right(self, probability):
        """Percentage of the new rows that the probabilities expect to get the right class."""
        return 100 * np.mean(np.maximum(probability, 1 - probability))


def cases():
    """Yield the problems, the small one first."""
    table, _ = data.table("banana")
    X, y = np.column_stack([table["x"], table["y"]]), table["class"]
    yield Case("banana", X[:40], y[:40], X[400:800], y[400:800])
    table, about = data.table("pima")
    X, train = np.column_stack([table[c] for c in list(about["columns"])[:7]]), table["set"] == "train"
    yield standardized("Pima", X, np.where(table["type"] == "Yes", 1.0, -1.0), train)
    cancer = load_breast_cancer()
    yield standardized("breast cancer", cancer.data, 2.0 * cancer.target - 1.0, np.arange(569) % 2 == 0)
    digits = load_digits()
    stored = np.isin(digits.target, (3, 5))
    pixels, y = digits.data[stored] / 16.0, np.where(digits.target[stored] == 3, 1.0, -1.0)
    train = np.arange(len(y)) % 2 == 0
    yield Case("digits 3 and 5", pixels[train], y[train], pixels[~train], y[~train])


def standardized(name, X, y, train):
    """Return a case with columns in units of their spread among the rows to learn from."""
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return Case(name, X[train], y[train], X[~train], y[~train])


def gram(X, Z, lengthscale, sd):
    """Covariance of f at the rows of X and Z."""
    return sd**2 * np.exp(-0.5 * cdist(X, Z, "sqeuclidean") / lengthscale**2)


def ep(case, lengthscale, sd, likelihood=None):
    """EP: log evidence and probabilities of the new rows."""
    covariance = cavity.covariances.RBF(sd**2, lengthscale, fixed=("variance", "lengthscale"))
    model = cavity.GaussianProcess(covariance, likelihood or cavity.likelihoods.Probit())
    posterior = model.fit(case.X, case.y, learn=False)
    return posterior.log_evidence, posterior.predict_proba(case.X_new)[:, 1]


def laplace(case, lengthscale, sd):
    """Laplace's approximation of the probit model: log evidence and probabilities of the new rows."""
    K, y, a, value = gram(case.X, case.X, lengthscale, sd), case.y, np.zeros(len(case.y)), -np.inf
    for _ in range(200):
        f = K @ a
        slope = y * hazard(y * f)
        weight = slope * (slope + f)
        root = np.sqrt(weight)
        L = cholesky(np.eye(len(y)) + root[:, None] * K * root, lower=True)
        b = weight * f + slope
        step, before = b - root * cho_solve((L, True), root * (K @ b)) - a, value
        for fraction in 0.5 ** np.arange(50):  # of Newton's step, until it goes up
            moved = a + fraction * step
            value = -0.5 * moved @ (K @ moved) + np.sum(log_ndtr(y * (K @ moved)))
            if value >= before:
                break
        a = moved
        if value - before < 1e-10 * max(1.0, abs(value)):
            break
    else:
        raise ArithmeticError("Newton's method did not converge")
    cross = gram(case.X, case.X_new, lengthscale, sd)
    spread = 1 + sd**2 - np.sum(solve_triangular(L, root[:, None] * cross, lower=True) ** 2, axis=0)
    return value - np.sum(np.log(np.diag(L))), ndtr(cross.T @ a / np.sqrt(spread))


def hazard(t):
    """Derivative of log Phi."""
    return np.exp(-0.5 * t**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(t))


def exact(case, lengthscale, sd):
    """Minimax tilting: log evidence, its standard error, and probabilities of the new rows.

    The labels are the signs of f plus standard normal noise, so that the posterior is a normal distribution on an
    orthant. Its coordinates are drawn one after the other from truncated normal distributions with shifted means.
    """
    n = len(case.y)
    covariance = gram(case.X, case.X, lengthscale, sd) + np.eye(n)
    order, root = ordered_root(case.y[:, None] * covariance * case.y)
    tilt = saddle(np.tril(root, -1) / np.diag(root)[:, None])
    gain = np.linalg.solve(covariance, gram(case.X, case.X_new, lengthscale, sd))
    spread = 1 + sd**2 - np.sum(gain * gram(case.X, case.X_new, lengthscale, sd), axis=0)
    estimates, total = [], 0.0
    for replicate in range(REPLICATES):
        u = qmc.Sobol(n, rng=np.random.default_rng([SEED, replicate])).random(DRAWS)
        x, log_weight = np.zeros((DRAWS, n)), np.zeros(DRAWS)
        for i in range(n):
            log_inside = log_ndtr(x[:, :i] @ root[i, :i] / root[i, i] + tilt[i])
            x[:, i] = tilt[i] - ndtri_exp(np.log1p(-u[:, i]) + log_inside)
            log_weight += log_inside + tilt[i] * (0.5 * tilt[i] - x[:, i])
        z = np.empty((DRAWS, n))
        z[:, order] = x @ root.T
        estimates.append(np.mean(np.exp(log_weight - log_weight.max())) * np.exp(log_weight.max()))
        total = total + np.exp(log_weight) @ ndtr((z * case.y) @ gain / np.sqrt(spread))
    value = np.mean(estimates)
    error = np.std(estimates, ddof=1) / np.sqrt(REPLICATES) / value
    return np.log(value), error, total / (REPLICATES * DRAWS * value)


def ordered_root(covariance):
    """Return an order of the coordinates, the least probable to be positive first, and the Cholesky factor in it."""
    left, n = covariance.copy(), len(covariance)
    order, root, x = np.arange(n), np.zeros((n, n)), np.zeros(n)
    for i in range(n):
        sd = np.sqrt(np.diag(left)[i:] - np.sum(root[i:, :i] ** 2, axis=1))
        k = i + np.argmin(root[i:, :i] @ x[:i] / sd)
        for array in (left, root, order, left.T):
            array[[i, k]] = array[[k, i]]
        root[i, i] = sd[k - i]
        root[i + 1 :, i] = (left[i + 1 :, i] - root[i + 1 :, :i] @ root[i, :i]) / root[i, i]
        x[i] = hazard(root[i, :i] @ x[:i] / root[i, i])
    return order, root


def saddle(below):
    """Return the means of the tilted coordinates: the saddle point of the log weight of a draw."""
    n = len(below)

    def slope(point):
        x, tilt = np.split(point, 2)
        t = below @ x + tilt
        h = hazard(t)
        curved = -(h * (h + t))[:, None] * below
        corner = curved - np.eye(n)
        jacobian = np.block([[below.T @ curved, corner.T], [corner, np.diag(1 - h * (h + t))]])
        return np.append(below.T @ h - tilt, tilt - x + h), jacobian

    result = optimize.root(slope, np.zeros(2 * n), jac=True)
    if not result.success:
        raise ArithmeticError(result.message)
    return result.x[n:]


def annealed(case, lengthscale, sd):
    """Annealed importance sampling: log evidence and its standard error.

    CHAINS go from the prior to the posterior, the likelihood raised to powers that grow from 0 to 1. Each step is
    one of elliptical slice sampling.
    """
    n, rng = len(case.y), np.random.default_rng(SEED)
    root = np.linalg.cholesky(gram(case.X, case.X, lengthscale, sd) + 1e-10 * sd**2 * np.eye(n))
    powers = np.linspace(0.0, 1.0, TEMPERATURES + 1) ** 4
    f, log_weight = rng.normal(size=(CHAINS, n)) @ root.T, np.zeros(CHAINS)
    value = np.sum(log_ndtr(case.y * f), axis=1)
    for low, high in pairwise(powers):
        log_weight += (high - low) * value
        f, value = slice_step(f, value, high, case.y, rng.normal(size=f.shape) @ root.T, rng)
    weight = np.exp(log_weight - (top := log_weight.max()))
    return top + np.log(np.mean(weight)), np.std(weight) / np.mean(weight) / np.sqrt(CHAINS)


def slice_step(f, value, power, y, other, rng):
    """Move every chain along the ellipse through f and a draw of the prior, under the likelihood to a power."""
    bar = power * value + np.log(rng.random(len(f)))
    angle = rng.uniform(0.0, 2 * np.pi, len(f))
    low, high = angle - 2 * np.pi, angle.copy()
    moved, result, left = f.copy(), value.copy(), np.arange(len(f))
    while len(left):
        a = angle[left, None]
        moved[left] = f[left] * np.cos(a) + other[left] * np.sin(a)
        result[left] = np.sum(log_ndtr(y * moved[left]), axis=1)
        left = left[power * result[left] < bar[left]]  # the others are where they may stay
        low[left] = np.where(angle[left] < 0, angle[left], low[left])
        high[left] = np.where(angle[left] < 0, high[left], angle[left])
        angle[left] = rng.uniform(low[left], high[left])
    return moved, result


@dataclass(frozen=True)
class Surface:
    """What a method says over the grid: first axis log lengthscale, second log signal sd."""

    method: str
    evidence: np.ndarray
    error: np.ndarray  # standard error of the log evidence; 0 for methods without one
    information: np.ndarray
    probability: np.ndarray

    def best(self):
        """Index of the largest log evidence."""
        return np.unravel_index(np.argmax(self.evidence), self.evidence.shape)


def over_grid(name, method, case):
    """Return the surface of a method."""
    shape = len(GRID), len(GRID)
    evidence, error, information, probability = (np.zeros(shape + more) for more in ((), (), (), (len(case.y_new),)))
    for at in np.ndindex(shape):
        evidence[at], *margin, probability[at] = method(case, *np.exp(GRID[list(at)]))
        error[at], information[at] = sum(margin), case.information(probability[at])
    return Surface(name, evidence, error, information, probability)


def sklearn_row(case):
    """scikit-learn's classifier, which learns by itself: its row of the table, and what EP says of the same model."""
    start = ConstantKernel(1.0, (1e-4, 1e6)) * RBF(1.0, (1e-2, 1e4))
    posterior = GaussianProcessClassifier(start, n_restarts_optimizer=4, random_state=SEED).fit(case.X, case.y)
    variance, lengthscale = np.exp(posterior.kernel_.theta)
    at = np.log(lengthscale), 0.5 * np.log(variance)
    probability = posterior.predict_proba(case.X_new)[:, 1]
    evidence, same = ep(case, lengthscale, np.sqrt(variance), cavity.likelihoods.Logit())
    return probability, [
        row(case, "scikit-learn: logit, Laplace", at, posterior.log_marginal_likelihood_value_, probability),
        row(case, "EP: logit, the same hyperparameters", at, evidence, same),
    ]


def row(case, method, at, evidence, probability):
    """Cells of the table about one method at one pair of hyperparameters."""
    yield from ("", method, f"{at[0]:.2f}, {at[1]:.2f}", f"{evidence:.2f}", f"{case.information(probability):.3f}")
    yield from (f"{case.errors(probability):.1f}", f"{100 - case.right(probability):.1f}")


def learned(case, surfaces):
    """Return the rows of the table of a case, and the probabilities where each method's log evidence is largest."""
    rows, chosen = [], {}
    for surface in surfaces:
        at, method = surface.best(), f"{surface.method}: probit"
        chosen[surface.method] = surface.probability[at]
        rows.append(row(case, method, GRID[list(at)], surface.evidence[at], surface.probability[at]))
    chosen["scikit-learn"], more = sklearn_row(case)
    rows = [list(cells) for cells in rows + more]
    rows[0][0] = f"{case.name}, {len(case.y)} rows"
    return rows, chosen


def against_exact(case, surfaces):
    """Yield the rows of the table of the small problem."""
    truth, *others = surfaces
    for k, at in enumerate(SHOWN):
        index = tuple(int(np.argmin(np.abs(GRID - value))) for value in at)
        sampled = "{:.2f} ± {:.1g}".format(*annealed(case, *np.exp(at))) if k < ANNEALED else ""
        yield [f"{at[0]:g}, {at[1]:g}", f"{truth.evidence[index]:.3f} ± {truth.error[index]:.1g}", sampled] + [
            f"{surface.evidence[index] - truth.evidence[index]:+.3f}" for surface in others
        ]
    for label, of in (("log evidence", "evidence"), ("probability", "probability"), ("information", "information")):
        errors = [np.abs(getattr(surface, of) - getattr(truth, of)) for surface in others]
        yield [f"largest error of {label}", "", "", *(f"{error.max():.3f}" for error in errors)]
        yield [f"mean error of {label}", "", "", *(f"{error.mean():.4f}" for error in errors)]


def contours(axes, values, levels, spots, title, cmap):
    """Draw one surface and the places of the largest log evidences; return the drawing, for the bar of colours."""
    colors = colormaps[cmap](np.linspace(0.0, 1.0, len(levels) + 1))
    drawn = axes.contourf(GRID, GRID, values.T, levels, colors=colors, extend="both")
    for k, (method, (i, j)) in enumerate(spots.items()):
        look = dict(ms=18 - 4 * k, mfc=COLORS.get(method, "black"), mec="white", clip_on=False)
        axes.plot(GRID[i], GRID[j], "*", label=f"best of {method}", **look)
    axes.set(xlabel="log lengthscale", ylabel="log signal sd")
    axes.set_title(title, fontsize=10, pad=10)
    axes.label_outer()
    return drawn


def draw_surfaces(figure, case, surfaces, rows):
    """Draw log evidence and information of some methods in panels of so many rows."""
    spots = {surface.method: surface.best() for surface in surfaces}
    axes = figure.subplots(rows, 2 * len(surfaces) // rows, sharex=True, sharey=True).ravel()
    top = surfaces[0].evidence.max()
    most = np.ceil(10 * max(surface.information.max() for surface in surfaces)) / 10
    kinds = (
        ("log evidence", [surface.evidence - top for surface in surfaces], BELOW, "viridis"),
        ("information", [surface.information for surface in surfaces], np.linspace(0.0, most, 11), "magma"),
    )
    message = f"log evidence, nats from the best of {surfaces[0].method}", "information, bits per new row"
    for k, (kind, values, levels, cmap) in enumerate(kinds):
        part = axes[k * len(surfaces) : (k + 1) * len(surfaces)]
        for panel, surface, value in zip(part, surfaces, values, strict=True):
            drawn = contours(panel, value, levels, spots, f"{surface.method}: {kind}", cmap)
        figure.colorbar(drawn, ax=part, label=message[k], shrink=0.95, ticks=levels)
    axes[0].legend(loc="upper right", fontsize=7)
    figure.suptitle(f"{case.name}, {len(case.y)} rows to learn from, {len(case.y_new)} new", fontsize=11)


def draw_calibration(panels):
    """Draw how often class 1 is true among new rows of similar probability; panels maps titles to (label, p, one)."""
    figure = Figure(figsize=(5.2 * len(panels), 5.0), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="gray", lw=0.8, ls=":")
        for shift, (label, (p, one)) in enumerate(curves.items()):
            index = np.minimum((p * BINS).astype(int), BINS - 1)
            count = np.bincount(index, minlength=BINS)
            full = count > 0
            expected, true = (np.bincount(index, description, BINS)[full] / count[full] for description in (p, one))
            noise = 2 * np.sqrt(expected * (1 - expected) / count[full])
            place = expected + 0.008 * (shift - 1)
            axes.errorbar(place, true, yerr=noise, fmt="o-", ms=5, lw=1, capsize=2, color=COLORS[label], label=label)
        axes.set(xlabel="probability of class 1", ylabel="true share of class 1", xlim=(-0.03, 1.03), ylim=(-0.1, 1.1))
        axes.set_title(title, fontsize=10)
        axes.legend(loc="upper left", fontsize=8, title="bars: ± 2 sd of chance", title_fontsize=8)
    return figure


def print_table(title, header, rows):
    """Print a reStructuredText table."""
    print(f".. list-table:: {title}\n   :header-rows: 1\n")
    for cells in (header, *rows):
        print("\n".join(f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(cells)))
    print()


def pooled(parts):
    """Join the probabilities and the labels of several cases, method by method."""
    return {method: tuple(np.concatenate(several) for several in zip(*p, strict=True)) for method, p in parts.items()}


def main():
    """Print the tables, draw the pictures."""
    warnings.simplefilter("error", cavity.ConvergenceWarning)
    rows, own, shared = [], defaultdict(list), defaultdict(list)
    print(".. Written by docs/scripts/accuracy_gp.py.\n")
    print(f"Measured with cavity {cavity.__version__}.\n")
    small, *others = cases()
    surfaces = [over_grid(name, method, small) for name, method in (("exact", exact), ("EP", ep), ("Laplace", laplace))]
    header = "log lengthscale, log sd", "exact log evidence", "the same, annealed", "error of EP", "of Laplace"
    print_table("40 rows of the banana", header, against_exact(small, surfaces))
    figure = Figure(figsize=(10.5, 7.0), layout="constrained")
    draw_surfaces(figure, small, surfaces, 2)
    figure.savefig(HERE / "accuracy_gp_exact.png", dpi=DPI)
    rows += learned(small, surfaces)[0]
    figure = Figure(figsize=(14.0, 12.0), layout="constrained")
    for case, part in zip(others, figure.subfigures(len(others), 1), strict=True):
        surfaces = [over_grid(name, method, case) for name, method in (("EP", ep), ("Laplace", laplace))]
        draw_surfaces(part, case, surfaces, 1)
        more, chosen = learned(case, surfaces)
        rows += more
        at, one = surfaces[0].best(), case.y_new > 0
        for method, probability in chosen.items():
            own[method].append((probability, one))
        for surface in surfaces:
            shared[surface.method].append((surface.probability[at], one))
    figure.savefig(HERE / "accuracy_gp_grid.png", dpi=DPI)
    panels = {"each where its log evidence is largest": own, "both where that of EP is largest": shared}
    figure = draw_calibration({title: pooled(parts) for title, parts in panels.items()})
    figure.savefig(HERE / "accuracy_gp_calibration.png", dpi=DPI)
    print(".. The second table.\n")
    header = "data", "method", "log lengthscale, log sd", "log evidence", "bits", "errors %", "errors it expects %"
    print_table("Where the log evidence is largest", header, rows)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
