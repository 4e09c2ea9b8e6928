"""Hyperparameters of Gaussian processes: L-BFGS on log evidence plus log priors, from deterministic starts."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.errors import ConvergenceWarning, warn, within_range
from cavity.covariances import Periodic, Sum
from cavity.covariances.slots import free_slots, leaves
from cavity.likelihoods import Gaussian, Laplace, StudentT
from cavity.models.gp.evidence import Settings

SEARCH_TOL = 1e-6  # of the last fits on the way: the evidence is stationary in the sites
ROUGH_TOL = 1e-2  # of the first ones, where gradients are large
TOL_A_NAT = 1e-4  # tolerance per nat of the largest slope met before
MOST_STEPS = 200  # of L-BFGS-B in a round
SCALE_RANGE = 1e10  # scales of likelihoods stay within this factor of where they may start
LENGTHSCALES_TRIED = (1.0, 0.25)  # lengthscales tried, in standard deviations of the columns times sqrt(columns)
NOISE_SHARE = 0.1  # of the variance of y that a start ascribes to Gaussian noise
WORSE_THAN_WORST = 10.0  # nats by which settings without a fixed point count as worse than the worst met before
DOUBLE_LOOP_STEPS = 30  # steps of the double loop on the way, until fits have failed MOST_FAILURES times
MOST_FAILURES = 3
SMALLEST_SLOPE = 1e-4  # nats per unit of a log parameter at which the search ends
SMALLEST_GAIN = 1e-11  # of the value, at which it ends
MOST_ROUNDS = 5  # of the search from one start, while each gains more than GAIN_OF_A_ROUND nats and ends on a slope
GAIN_OF_A_ROUND = 1e-3
NOT_LEARNT = "the search for hyperparameters did not come to rest"
FLAT_SLOPE = 1e-3  # nats per unit of a log parameter: a larger gradient inside the bounds means that the search gave up


class Vector:
    """The free settings as one vector: logs of covariance parameters, mean coefficients, logs of scales."""

    def __init__(self, settings, covariance, scales):
        self.settings, self.scales = settings, scales
        self.exact = isinstance(settings.likelihood, Gaussian)
        self.n_covariance = len(settings.covariance.log_parameters) if covariance else 0
        # with Gaussian noise the best coefficients of the mean are known at any setting of the others
        self.n_mean = 0 if settings.coefficients is None or self.exact else len(settings.coefficients)

    @property
    def size(self):
        """The number of free settings."""
        return self.n_covariance + self.n_mean + len(self.scales)

    def pack(self, settings):
        """The vector of some settings."""
        mean = settings.coefficients if self.n_mean else ()
        scales = [np.log(getattr(settings.likelihood, name)) for name in self.scales]
        return np.concatenate([settings.covariance.log_parameters[: self.n_covariance], mean, scales])

    def unpack(self, vector):
        """The settings of a vector."""
        covariance, mean, scales = np.split(vector, [self.n_covariance, self.n_covariance + self.n_mean])
        known, likelihood = self.settings.covariance, self.settings.likelihood
        if self.scales:
            values = {name: float(np.exp(value)) for name, value in zip(self.scales, scales, strict=True)}
            likelihood = replace(likelihood, **values)
        return replace(
            self.settings,
            covariance=known.with_log_parameters(covariance) if self.n_covariance else known,
            likelihood=likelihood,
            coefficients=mean if self.n_mean else self.settings.coefficients,
        )

    def bounds(self, noise=None):
        """(low, high) of every entry; `noise` is a log scale of the likelihood that the data suggest."""
        given = [np.log(getattr(self.settings.likelihood, name)) for name in self.scales]
        far = np.log(SCALE_RANGE)
        around = [(g, g if noise is None else noise) for g in given]
        return np.array(
            [
                *self.settings.covariance.log_bounds[: self.n_covariance],
                *[(-np.inf, np.inf)] * self.n_mean,
                *((min(pair) - far, max(pair) + far) for pair in around),
            ]
        ).reshape(-1, 2)

    def gradient(self, parts):
        """One vector of the parts of `Evidence.gradient`."""
        covariance, mean, scales = parts
        return np.concatenate([covariance[: self.n_covariance], mean[: self.n_mean], scales[: len(self.scales)]])


def search_tol(slope):
    """The tolerance of a fit on the way, where the last gradient had this largest entry."""
    return float(np.clip(TOL_A_NAT * slope, SEARCH_TOL, ROUGH_TOL))


class Objective:
    """Minus the log evidence and log prior, and its gradient, as an optimiser wants them."""

    def __init__(self, evidence, vector):
        self.evidence, self.vector = evidence, vector
        self.values = []  # log evidence plus log prior of every evaluation
        self.slope = np.inf  # the largest entry of the last gradient
        self.failures = 0

    def _point(self, x):
        """The point of a vector and minus its value; no point, and a value worse than all others, where EP fails."""
        settings = self.vector.unpack(x)
        tol = max(search_tol(self.slope), self.evidence.options.tol)
        steps = DOUBLE_LOOP_STEPS if self.failures < MOST_FAILURES else 0
        try:
            point = self.evidence.at(settings, tol=tol, double_loop=steps)
        except (ArithmeticError, np.linalg.LinAlgError):
            point = None
        if point is None or not point.converged:
            self.failures += 1
            return None, WORSE_THAN_WORST - min(self.values, default=-np.inf)
        self.values.append(point.log_evidence + settings.covariance.log_prior()[0])
        return point, -self.values[-1]

    def value(self, x):
        """Return minus the log evidence and log prior of a vector, without the gradient."""
        return self._point(x)[1]

    def __call__(self, x):
        point, value = self._point(x)
        if point is None:
            return value, np.zeros(len(x))
        gradient = self.vector.gradient(self.evidence.gradient(point))
        n = self.vector.n_covariance
        gradient[:n] += point.settings.covariance.log_prior()[1][:n]
        self.slope = float(np.max(np.abs(gradient)))
        return value, -gradient


def starts(settings, rows, vector):
    """Bounds of the vector, and where to start: at the given settings, and at some of the scale of the rows."""
    real = isinstance(settings.likelihood, Gaussian | StudentT | Laplace)
    variance = _variance(settings, rows) if real else None
    noise = (1.0 if vector.exact else 0.5) * np.log(NOISE_SHARE * variance) if real else None
    bounds = vector.bounds(noise)
    given = vector.pack(settings)
    found = [np.clip(given, *bounds.T)]
    for factor in LENGTHSCALES_TRIED:
        candidate = given.copy()
        if vector.n_covariance:
            candidate[: vector.n_covariance] = scaled_to(settings.covariance, rows.X, factor, variance)
        if real and vector.scales:
            candidate[-1] = noise
        candidate = np.clip(candidate, *bounds.T)
        if not any(np.array_equal(candidate, other) for other in found):
            found.append(candidate)
    return bounds, found


def _variance(settings, rows):
    """Variance of y about its mean function by least squares."""
    rest = rows.y - rows.offset
    if settings.basis is not None:
        rest = rest - settings.basis @ np.linalg.lstsq(settings.basis, rest)[0]
    with np.errstate(over="ignore"):
        variance = float(np.mean(rest**2))
    within_range(variance, "the squares of y")
    return variance if variance > 0 else 1.0


def scaled_to(covariance, X, factor, variance):
    """Log parameters with lengthscales of `factor` column spreads and, if given, variances that share `variance`."""
    size = np.max(np.abs(X), axis=0)
    size[size == 0] = 1.0
    spread = size * np.std(X / size, axis=0)  # the squares of X may leave the range of float64
    spread = np.where(spread > 0, spread, 1.0)
    out = covariance.log_parameters.copy()
    terms = covariance.parts if isinstance(covariance, Sum) else (covariance,)
    term_of = np.repeat(np.arange(len(terms)), [len(leaves(term)) for term in terms])
    scaled = set()  # a product takes the variance once
    for i, slot in enumerate(free_slots(covariance)):
        columns = spread if getattr(slot.leaf, "columns", None) is None else spread[list(slot.leaf.columns)]
        if slot.role == "lengthscale":
            mean = np.max(columns) * np.sqrt(np.mean((columns / np.max(columns)) ** 2))
            size = mean if slot.index is None else columns[slot.index]
            out[i] = np.log(factor * size * np.sqrt(len(columns)))
        elif slot.role == "variance" and variance is not None and not isinstance(slot.leaf, Periodic):
            term = term_of[slot.place]
            if term not in scaled or slot.index is not None:
                out[i] = np.log(variance / len(terms))
                scaled.add(term)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a search ended with."""

    settings: Settings
    values: np.ndarray  # (n,): log evidence plus log prior of every fixed point on the way
    at_rest: bool


def learn(settings, evidence, covariance, scales, n_starts):
    """Return the settings of the largest evidence found, as `Found`.

    Free are the coefficients of the mean, the named scales of the likelihood and, if said, the covariance's parameters.
    Of the deterministic starts the `n_starts` with the largest evidence are followed by L-BFGS-B.
    """
    vector = Vector(settings, covariance, scales)
    if vector.size == 0:
        return Found(settings, np.zeros(0), True)
    objective, (bounds, found) = Objective(evidence, vector), starts(settings, evidence.rows, vector)
    ranked = sorted((objective.value(x), i, x) for i, x in enumerate(found))
    if not objective.values:
        warn_without_start(len(found))
        return Found(settings, np.zeros(0), False)
    runs = (climb(objective, start, bounds) for value, _, start in ranked[:n_starts] if np.isfinite(value))
    value, x, slope = min(runs, key=lambda run: run[0])
    at_rest = came_to_rest(objective, value, slope)
    return Found(vector.unpack(x), np.array(objective.values), at_rest)


def warn_without_start(n):
    """Warn that EP failed wherever a search could have begun."""
    warn(f"the search for hyperparameters found no fixed point at its {n} start(s)", ConvergenceWarning)


def came_to_rest(objective, value, slope):
    """Whether a search that ended with this value and slope did so at rest; if not, warn."""
    # a place where EP failed counts with a flat slope
    at_rest = -value in objective.values and is_flat(slope, value)
    if not at_rest:
        warn(
            f"the search for hyperparameters stopped with a gradient of {slope:.2g} nats "
            f"after {len(objective.values) + objective.failures} evaluations",
            ConvergenceWarning,
        )
    return at_rest


def is_flat(slope, value):
    """Whether a search that ended on this slope came to rest: rounding of large values leaves larger slopes."""
    return slope <= FLAT_SLOPE * max(1.0, abs(value) ** 0.5)


def climb(objective, start, bounds, gain=SMALLEST_GAIN, most=MOST_STEPS, rounds=MOST_ROUNDS):
    """L-BFGS-B from a start: the value and the place found, and the largest slope there that no bound stops.

    The objective gives the value to be made small, and its gradient; it ends when a step gains less than `gain` of it.
    The first step is one unit of a log parameter long: the method takes the gradient itself for it, which would lead to
    the far corners of the bounds. Where it stops on a slope, it begins anew in smaller units, `rounds` times at most.
    """
    place = np.clip(start, *bounds.T)
    best = place, *objective(place)
    for _ in range(rounds):
        before = best[1]
        best = _descend(objective, best, bounds, gain, most)
        slope = free_slope(best, bounds)
        if is_flat(slope, best[1]) or not best[1] < before - GAIN_OF_A_ROUND:
            break
    return best[1], best[0], slope


def free_slope(best, bounds):
    """The largest entry of a gradient that no bound stops."""
    (x, _, slope), (low, high) = best, bounds.T
    stopped = (slope > 0) & (x <= low) | (slope < 0) & (x >= high)
    return float(np.max(np.where(stopped, 0.0, np.abs(slope))))


def _descend(objective, best, bounds, gain, most):
    """One run of L-BFGS-B from (place, value, gradient): the best such triple it saw, which need not be its end."""
    from scipy.optimize import minimize

    start = best[0]
    length = 1.0 / max(1.0, float(np.linalg.norm(best[2])))
    known = {start.tobytes(): best[1:]}

    def scaled(x):
        nonlocal best
        value, slope = known.pop(x.tobytes(), None) or objective(x)
        if value < best[1]:
            best = x.copy(), value, slope
        return length * value, length * slope

    options = {"maxiter": most, "ftol": gain, "gtol": SMALLEST_SLOPE * length}
    minimize(scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return best
