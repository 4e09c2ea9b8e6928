"""Prequential scores of a stream: each batch is predicted before it is absorbed."""

import numpy as np
from scipy import special

from cavity import likelihoods
from cavity.base.rows import check_observations
from cavity.models.predictive_densities import integrate_log_density, predict_class_probabilities

MAX_STRETCHES_HELD = 256  # sums in memory; more are merged in pairs of neighbours
MIN_WEIGHT_TO_JUDGE = 50  # rows to judge by
MAX_STRETCHES_SHOWN = 6  # stretches of the stream in the table
INTERVAL_LEVELS = (0.5, 0.9, 0.95)
NODE_COUNT = 200  # parts of equal probability that a distribution is cut into
NODE_PROBABILITIES = (np.arange(NODE_COUNT) + 0.5) / NODE_COUNT


def _format_percent(share):
    return f"{100 * share:.1f} %"


REAL_SCORES = (
    ("RMSE", lambda square: f"{np.sqrt(square):.6g}"),
    ("log density", lambda mean: f"{mean:.4f}"),
    *((f"in {100 * p:.0f} %", _format_percent) for p in INTERVAL_LEVELS),
)
CLASS_SCORES = (("wrong", _format_percent), ("expected", _format_percent), ("log density", lambda mean: f"{mean:.4f}"))


class Scores:
    """Weighted sums of the scores of batches.

    Real targets and counts: squared errors, log densities, and whether the target is in the central intervals that
    should hold 50, 90 and 95 % of them. Classes: whether the most probable one was wrong, the probability of that, and
    log densities.
    """

    def __init__(self, likelihood):
        self.likelihood = likelihood
        self.columns = CLASS_SCORES if likelihood.n_classes else REAL_SCORES
        self._stretches = []  # of batches: first row, last row, weight, sums, inducing points
        self._batches_per_stretch = 1  # batches in a stretch, the last one may have fewer
        self._free_batches = 0  # batches that the last stretch can take in

    def add(self, first, y, moments, weights, n_inducing):
        """Add rows from number `first` on, with the moments of f that were predicted for them."""
        weight = np.ones(len(y)) if weights is None else weights
        counted = weight > 0
        y = check_observations(self.likelihood, y, len(y))[counted]
        scores = _compute_scores(self.likelihood, y, *(m[counted] for m in moments))
        new = [first, first + len(weight) - 1, weight.sum(), weight[counted] @ scores, n_inducing]
        if self._free_batches:
            new = _add_stretches(self._stretches.pop(), new)
            self._free_batches -= 1
        else:
            self._free_batches = self._batches_per_stretch - 1
        self._stretches.append(new)
        if len(self._stretches) == MAX_STRETCHES_HELD and not self._free_batches:
            self._stretches = [_add_stretches(*pair) for pair in zip(*[iter(self._stretches)] * 2, strict=True)]
            self._batches_per_stretch *= 2

    def means(self):
        """Return the mean of each column over all rows, or None without any."""
        total = _add_stretches(*self._stretches) if self._stretches else [0, 0, 0.0]
        return total[3] / total[2] if total[2] > 0 else None

    def is_surprised(self):
        """Whether predictions are miscalibrated: too few targets in 95 % intervals, or too many wrong classes."""
        means = self.means()
        if means is None or sum(s[2] for s in self._stretches) < MIN_WEIGHT_TO_JUDGE:
            return False
        return bool(means[0] > 1.25 * means[1] + 0.02 if self.likelihood.n_classes else means[-1] < 0.85)

    def describe(self):
        """Return the means of the first two columns as text, for the progress display."""
        means = self.means()
        if means is None:
            return ""
        return ", ".join(f"{name} {show(m)}" for (name, show), m in zip(self.columns[:2], means, strict=False))

    def report(self):
        """Yield the lines of the table: some stretches of the stream, then the whole stream."""
        stretches = self._stretches
        if self.means() is None:
            yield "  none: there was one batch; --batch makes them smaller"
            return
        parts = np.array_split(np.arange(len(stretches)), min(MAX_STRETCHES_SHOWN, len(stretches)))
        rows = [_add_stretches(*(stretches[i] for i in part)) for part in parts]
        rows = [(f"{row[0]}-{row[1]}", row) for row in rows if row[2] > 0]
        rows = [*rows, ("all", _add_stretches(*stretches))] if len(rows) > 1 else rows
        width = max(len("rows"), *(len(name) for name, _ in rows))
        yield f"  {'rows':<{width}}{''.join(f' {name:>12}' for name, _ in self.columns)} {'inducing':>9}"
        for name, (*_, weight, sums, n_inducing) in rows:
            cells = (f" {show(m):>12}" for (_, show), m in zip(self.columns, sums / weight, strict=True))
            yield f"  {name:<{width}}{''.join(cells)} {n_inducing:>9}"


def _add_stretches(*stretches):
    """Return the sum of neighbouring stretches."""
    weight, sums = sum(s[2] for s in stretches), sum(s[3] for s in stretches)
    return [stretches[0][0], stretches[-1][1], weight, sums, stretches[-1][4]]


def _compute_scores(likelihood, y, mean, variance):
    """Return the scores (n, columns) of observations, given the moments of f."""
    density = integrate_log_density(likelihood, y, mean, variance)
    if likelihood.n_classes:
        class_probabilities = predict_class_probabilities(likelihood, lambda: (mean, variance))
        label = y.astype(int) if likelihood.n_classes > 2 else (y > 0).astype(int)
        best = class_probabilities.argmax(axis=1)
        return np.column_stack([best != label, 1.0 - class_probabilities.max(axis=1), density])
    try:
        expected = likelihood.expected(mean, variance)
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        expected = mean
    distance = np.abs(compute_pit(likelihood, y, mean, variance) - 0.5)
    error = y.reshape(len(y), -1)[:, -1] - expected  # of times there are two equal bounds
    return np.column_stack([error**2, density, *(distance <= 0.5 * p for p in INTERVAL_LEVELS)])


def compute_pit(likelihood, y, mean, variance):
    """Return the probability that a new observation is below y, half of that of y itself counted in.

    Gaussian noise is exact. Other noise of real numbers, and else f, is replaced by the middles of 200 parts of equal
    probability, which leaves errors of the order of 1/400.
    """
    if isinstance(likelihood, likelihoods.Gaussian):
        return special.ndtr((y - mean) / np.sqrt(variance + likelihood.noise_variance))
    sd = np.sqrt(variance)[:, None]
    if not isinstance(likelihood, likelihoods.StudentT | likelihoods.Laplace):
        f, y = mean[:, None] + sd * special.ndtri(NODE_PROBABILITIES), y.reshape(len(y), -1)[:, -1]
        return np.mean([likelihood.cdf(k[:, None], f) for k in (y, y - 1.0)[: 1 + likelihood.discrete]], axis=(0, 2))
    if isinstance(likelihood, likelihoods.StudentT):
        noise = likelihood.scale * special.stdtrit(likelihood.degrees_of_freedom, NODE_PROBABILITIES)
    else:
        centred = NODE_PROBABILITIES - 0.5
        noise = -likelihood.scale * np.sign(centred) * np.log1p(-2.0 * np.abs(centred))
    difference = (y - mean)[:, None] - noise
    with np.errstate(over="ignore"):  # the variance of f may be 0
        return np.mean(special.ndtr(difference / np.maximum(sd, np.finfo(float).tiny)), axis=1)
