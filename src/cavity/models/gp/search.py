"""Hyperparameters of Gaussian processes: L-BFGS on log evidence plus log priors, from deterministic starts."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cavity.base.errors import NumericalWarning, warn, within_range
from cavity.base.frames import column_words
from cavity.base.labels import has_classes
from cavity.base.loop import CONVERGED, STOPPED
from cavity.base.scales import column_scales
from cavity.covariances import Periodic, Sum
from cavity.covariances.kinds import Stationary
from cavity.covariances.named import NOISE
from cavity.covariances.slots import free_slots, leaves
from cavity.likelihoods import Gaussian, Laplace, StudentT
from cavity.likelihoods.parameters import FreeParameters, unit_of
from cavity.models.gp.evidence import Settings
from cavity.models.learnt import Learnt
from cavity.models.search import (
    NO_FIXED_POINT,
    NOT_LEARNT,
    STARTS,
    Objective,
    climb,
    curvature,
    ended,
    errors_of,
    leave_plateaus,
    status_at_bounds,
    values_of,
    warn_without_start,
)

NOISE_SCALE_KINDS = Gaussian | StudentT | Laplace  # likelihoods with a scale of noise in units of y
MAX_LINE_DEPARTURE_SD = 0.1  # of a standard deviation, by which f may depart from what is called a line
LENGTHSCALES_TRIED = (1.0, 0.25)  # lengthscales tried, in standard deviations of the columns times sqrt(columns)
NOISE_SHARES_TRIED = (NOISE, 0.01)  # shares of the variance of y that are noise, with short lengthscales
SEARCHED_FACTOR = 1e10  # from the starts to the ends of the range of a free number that has no bounds of its own
ROUGH_STEPS = 8  # of L-BFGS-B from a second start: by then it is within a few nats of where it ends


class Vector:
    """The free settings as one vector: logs of covariance parameters, mean coefficients, those of the likelihood."""

    def __init__(self, settings, covariance, names, unit=1.0):
        self.settings, self.free = settings, FreeParameters(settings.likelihood, names, unit)
        self.exact = isinstance(settings.likelihood, Gaussian)
        self.n_covariance = len(settings.covariance.log_parameters) if covariance else 0
        # with Gaussian noise the best coefficients of the mean are known at any setting of the others
        self.n_mean = 0 if settings.coefficients is None or self.exact else len(settings.coefficients)

    @property
    def size(self):
        """The number of free settings."""
        return self.n_covariance + self.n_mean + self.free.size

    def pack(self, settings):
        """The vector of some settings."""
        mean = settings.coefficients if self.n_mean else ()
        of_likelihood = self.free.pack(settings.likelihood)
        return np.concatenate([settings.covariance.log_parameters[: self.n_covariance], mean, of_likelihood])

    def unpack(self, vector):
        """The settings of a vector."""
        covariance, mean, rest = np.split(vector, [self.n_covariance, self.n_covariance + self.n_mean])
        known = self.settings.covariance
        return replace(
            self.settings,
            covariance=known.with_log_parameters(covariance) if self.n_covariance else known,
            likelihood=self.free.unpack(rest, self.settings.likelihood),
            coefficients=mean if self.n_mean else self.settings.coefficients,
        )

    def bounds(self, *others):
        """(low, high) of every entry, for a start at the given settings, or at other vectors of the likelihood."""
        return np.array(
            [
                *self.settings.covariance.log_bounds[: self.n_covariance],
                *[(-np.inf, np.inf)] * self.n_mean,
                *self.free.bounds(self.settings.likelihood, *others),
            ]
        ).reshape(-1, 2)

    def gradient(self, evidence, point):
        """One vector of the parts of `Evidence.gradient`."""
        covariance, mean, likelihood = evidence.gradient(point, self.free)
        return np.concatenate([covariance[: self.n_covariance], mean[: self.n_mean], likelihood[: self.free.size]])

    def log_prior(self, settings):
        """The log prior of some settings, and its slopes in those of the covariance, if they are free."""
        value, slopes = settings.covariance.log_prior()
        return value, slopes[: self.n_covariance]

    def learnt(self, settings):
        """The record of what was found of the covariance and the likelihood, or None; a mean is in the model."""
        covariance = settings.covariance
        names = (*covariance.parameter_names[: self.n_covariance], *self.free.labels())
        if not names:
            return None
        logs = covariance.log_parameters[: self.n_covariance]
        values = (*np.exp(logs).tolist(), *self.free.values(settings.likelihood))
        return Learnt(names, values, (None,) * len(names), "standard errors: see the method standard_errors")


def starts(settings, rows, vector):
    """Return where a search may begin.

    Parameters
    ----------
    settings : Settings
        As the model has them.
    rows : Rows
        To whose scale some starts are adapted.
    vector : Vector
        The free numbers.

    Returns
    -------
    bounds : ndarray (n, 2)
        Of the free numbers: their own, or else SEARCHED_FACTOR times beyond the starts.
    places : list of ndarray (n,)
        The given settings, and lengthscales that are fractions of the spread of the columns; then lengthscales of about
        two distances between neighbouring rows, where these are shorter, with much noise and, if it is Gaussian, with
        little: series that rise and fall every few rows have a maximum of the evidence there. Labels, which say little
        of f in a row, are not taken for such series.
    n_long : int
        How many of them come before those with short lengthscales.
    """
    variance = _variance(settings, rows) if isinstance(settings.likelihood, NOISE_SCALE_KINDS) else None
    given, n = vector.pack(settings), vector.n_covariance
    noise = slice(len(given) - vector.free.size, None)

    def scaled(lengths, share=NOISE):
        start = given.copy()
        if n:
            start[:n] = scaled_to(settings.covariance, rows.X.shape[1], lengths, variance)
        if variance is not None:
            size = (1.0 if vector.exact else 0.5) * np.log(share * variance)
            start[noise] = np.where(vector.free.are_scales(), size, start[noise])
        return start

    spread = column_scales(rows.X)[1]
    spread = np.where(spread > 0, spread, 1.0)
    distances = cache(lambda index: neighbour_distances(rows.X[:, index]))
    places = [given, *(scaled(lambda index, f=f: f * spread[list(index)]) for f in LENGTHSCALES_TRIED)]
    shares = () if has_classes(settings.likelihood) else NOISE_SHARES_TRIED[: 1 + vector.exact]
    short = [scaled(distances, share) for share in shares]
    long, places = places, places + (short if short and np.any(short[0][:n] < places[-1][:n]) else [])
    bounds = vector.bounds(long[-1][noise])
    if n:
        open_ends = [slot.name not in slot.leaf.bounds for slot in free_slots(settings.covariance)]
        low, high = np.min(places, axis=0)[:n, None], np.max(places, axis=0)[:n, None]
        reach = np.clip(bounds[:n], low - np.log(SEARCHED_FACTOR), high + np.log(SEARCHED_FACTOR))
        bounds[:n][open_ends] = reach[open_ends]
    places = [np.clip(place, *bounds.T) for place in places]
    first = sorted({place.tobytes(): i for i, place in reversed([*enumerate(places)])}.values())
    return bounds, [places[i] for i in first], sum(i < len(long) for i in first)


def neighbour_distances(X):
    """Return twice the distance of neighbouring rows in each column of X, (D,): the mean one if they fill a box evenly.

    It is the median step between different values u of a column, times their number, over the D-th root of the number
    of rows: the step of a grid in D columns, and (range)/N^(1/D) of N scattered rows.
    """
    n_rows = len(np.unique(X, axis=0))
    values = [np.unique(column) for column in X.T]
    steps = [np.median(np.diff(u)) * len(u) if len(u) > 1 else 1.0 for u in values]
    return 2.0 * np.array(steps) / n_rows ** (1.0 / X.shape[1])


def _variance(settings, rows):
    """Variance of y about its mean function by least squares."""
    rest = rows.y - rows.offset
    if settings.basis is not None:
        rest = rest - settings.basis @ np.linalg.lstsq(settings.basis, rest)[0]
    with np.errstate(over="ignore"):
        variance = float(np.mean(rest**2))
    within_range(variance, "the squares of y")
    return variance if variance > 0 else 1.0


def scaled_to(covariance, n_features, lengths, variance):
    """Return log parameters with other lengthscales and, if given, variances that share `variance`.

    The lengthscales of a leaf are lengths(index), (d,), of its d columns, times the root of d.
    """
    out = covariance.log_parameters.copy()
    terms = covariance.parts if isinstance(covariance, Sum) else (covariance,)
    term_of = np.repeat(np.arange(len(terms)), [len(leaves(term)) for term in terms])
    scaled = set()  # a product takes the variance once
    for i, slot in enumerate(free_slots(covariance)):
        if slot.role == "lengthscale":
            columns = lengths(tuple(slot.leaf._chosen(n_features)))
            mean = np.max(columns) * np.sqrt(np.mean((columns / np.max(columns)) ** 2))
            size = mean if slot.index is None else columns[slot.index]
            out[i] = np.log(size * np.sqrt(len(columns)))
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
    trace: dict  # "learning" and "seconds" of every fixed point on the way
    status: str  # of the search
    learnt: Learnt | None = None


def learn(settings, evidence, covariance, names, n_starts, job):
    """Return the settings of the largest evidence found, as `Found`.

    Free are the coefficients of the mean, named parameters of the likelihood and, if said, those of the covariance. Of
    the deterministic starts the `n_starts` with the largest evidence are followed by L-BFGS-B. If all of these have
    long lengthscales, or all short ones, the best start of the other kind is followed for ROUGH_STEPS steps, and to
    the end where its evidence is then the largest.
    """
    vector = Vector(settings, covariance, names, unit_of(evidence.rows.y))
    if vector.size == 0:
        return Found(settings, {"learning": np.zeros(0)}, CONVERGED)
    objective, (bounds, places, n_long) = Objective(evidence, vector), starts(settings, evidence.rows, vector)
    tried = values_of(objective, places, job.stage(STARTS))
    ranked = [i for i in np.argsort(tried, kind="stable") if np.isfinite(tried[i])]
    if not objective.values:
        warn_without_start(len(places))
        return Found(settings, objective.trace, STOPPED if job.stopped else NOT_LEARNT)
    begun = ranked[:n_starts]
    searches = job.through("search", begun, len(begun), "search")
    runs = [climb(objective, places[i], bounds, job=stage) for i, stage in searches]
    others = [i for i in ranked if all((i < n_long) != (j < n_long) for j in begun)][: 1 - job.stopped]
    stage = job.stage("search from another start")
    runs += [_challenge(objective, places[i], bounds, min(run[0] for run in runs), stage) for i in others]
    highest = min(runs, key=lambda run: run[0])
    value, x, slope = leave_plateaus(objective, highest, bounds, job.stage("plateaus"))
    status = ended(objective, value, slope, job)
    # elsewhere noise is at its bound where functions without noise are interpolated
    if vector.free.are_scales().any() and np.ptp(evidence.rows.y - evidence.rows.offset) == 0:
        status = status_at_bounds(status, objective, x, bounds)
    settings = vector.unpack(x)
    return Found(settings, objective.trace, status, vector.learnt(settings))


def _challenge(objective, start, bounds, best, job):
    """Follow a start for some steps, and to the end if the value is then better than the best: what `climb` returns."""
    objective.slope = np.inf  # the first fits are rough, as they are from any start
    run = climb(objective, start, bounds, most=ROUGH_STEPS, rounds=1, job=job)
    if not run[0] < best or job.stopped:
        return run
    return climb(objective, run[1], bounds, job=job.going_on(len(objective.values), -run[0]))


def warn_if_line(point, rows, columns=None):
    """Warn if every lengthscale exceeds the range of its column, and f is a constant or a line in the rows.

    So it ends where all that y shows is taken for noise. One long lengthscale among others only says that its column is
    irrelevant; and a long lengthscale with a large variance may give a curve: f is a line if it departs from the best
    one by less than a tenth of its own standard deviation, or of that of the noise, which is 1 for labels and counts.
    """
    ranges, longest = np.ptp(rows.X, axis=0), []
    for leaf in leaves(point.settings.covariance):
        if isinstance(leaf, Stationary) and not isinstance(leaf, Periodic):
            lengths = zip(leaf._chosen(len(ranges)), leaf._each("lengthscale", len(ranges)), strict=True)
            longest += [(ranges[j] / length, length, j) for j, length in lengths if ranges[j] > 0]
    if not longest or max(longest)[0] >= 1.0 or np.ptp(rows.y) == 0:  # the best f of a constant y is a constant
        return
    f, line = point.belief.mean, np.column_stack([np.ones(rows.n), rows.X])
    line = line / np.max(np.abs(line), axis=0, initial=np.finfo(float).tiny)
    apart = np.std(f - line @ np.linalg.lstsq(line, f)[0])
    noise = np.std(rows.y - rows.offset - f) if isinstance(point.settings.likelihood, NOISE_SCALE_KINDS) else 1.0
    if apart > MAX_LINE_DEPARTURE_SD * max(np.std(f), noise):
        return
    _, length, j = max(longest)
    warn(
        f"the learnt lengthscale {length:.3g} of {column_words(j, columns)} exceeds the range of its values, "
        f"{ranges[j]:.3g}{', as do the others' if len(longest) > 1 else ''}: f is a constant or a line in these rows, "
        "and the rest counts as noise. If y changes over shorter distances, start there, with first values of variance "
        'and lengthscale as in covariance="rbf(1, 0.5)"',
        NumericalWarning,
    )


def with_errors(learnt, model, evidence):
    """Return the record of what a fit of a model has learnt with standard errors; a mean counts as known."""
    likelihood, covariance = model.likelihood, model.covariance
    own = [name for name in likelihood.parameters if any(name == label.partition("[")[0] for label in learnt.names)]
    unit = unit_of(evidence.rows.y)
    vector = Vector(Settings(covariance, likelihood), learnt.names[0] in covariance.parameter_names, own, unit)
    x, (low, high) = vector.pack(vector.settings), vector.bounds().T
    jacobian = np.diag(np.append(np.exp(x[: vector.n_covariance]), np.ones(vector.free.size)))
    jacobian[vector.n_covariance :, vector.n_covariance :] = vector.free.jacobian(likelihood)
    free = np.flatnonzero((x > low) & (x < high))
    bent = curvature(evidence, vector, x, free)
    sd, note = ([None] * len(x), NO_FIXED_POINT) if bent is None else errors_of(bent, free, jacobian, learnt.names)
    return replace(learnt, sd=tuple(sd), note=note)
