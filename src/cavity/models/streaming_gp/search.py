"""Settings of streaming sparse Gaussian processes: searches batch by batch, and noise and amplitude of all rows.

A batch is judged by the increment of the log bound that it brings, with what is known of the rows before carried over
to the settings tried. What the old rows say was summed up at old settings: their factor holds on to them, the more so
the more rows it sums up. How much the new rows would gain without it is the `tension`.

The noise variance and a common factor of the covariance are free of this where alpha is 0. With K times s and the noise
times t every row keeps its part in three sums, so the bound of all rows so far is known at any s and t,

    A -> (s/t) A,    r -> (sqrt(s)/t) r,
    constant -> constant - (n log t - squares (1 - 1/t) - gap (1 - s/t))/2.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.errors import SettingsWarning, warn
from cavity.covariances.composed import Product, Sum
from cavity.models.gp.evidence import Data, Settings
from cavity.models.gp.search import FAR, Objective, Vector, came_to_rest, climb, free_slope, starts, warn_without_start
from cavity.models.streaming_gp.basis import Information, full
from cavity.models.streaming_gp.carrier import scaling_cost
from cavity.models.streaming_gp.increment import Increment
from cavity.models.streaming_gp.rows import Rows, is_exact

FIRST_ROWS = 1 << 12  # of a first batch, at equal distances, in the first search
CHOICES = 3  # searches of a first batch, each with inducing points chosen at the settings of the one before
WORTH = 1e-3  # nats a row that one of them must gain for another to follow
NEAR = np.log(10.0)  # no batch but the first moves a log parameter by more: the old factor is not valid far away
FEW_STEPS = 15  # of the search for what the new rows would gain alone
CHANCE = 1e-4  # that so large a tension comes about by chance, under the law of likelihood ratios


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """What a search found."""

    covariance: object
    likelihood: object
    Z: np.ndarray  # (M, D): inducing points that the search ended with
    values: np.ndarray  # increments plus log priors on the way
    at_rest: bool
    tension: float  # nats that the new rows would gain at settings of their own


def learn_batch(old, Z, rows, model, covariance, scales, threads, *, pooled=False, choose=None, options=None):
    """Learn the settings from a batch, given what is known of the rows before.

    Parameters
    ----------
    old : (Basis, Information) or None
        What is known; None, or a basis without inducing points, before the first rows.
    Z : ndarray, shape (M, D)
        Inducing points after the batch.
    rows : Rows
        The batch.
    model : StreamingGP
        The settings to start from.
    covariance : bool
        Whether to learn the covariance.
    scales : tuple of str
        Scales of the likelihood to learn.
    pooled : bool
        Whether all rows before have the noise variance of the model: where alpha is 0, it is then learnt from all rows,
        and what is known of those before is `rescaled` afterwards.
    threads : Threads
        Who takes blocks.
    choose : callable, optional
        For first rows, choose(model) -> Z: inducing points for other settings.
    options : dict, optional
        Of EP.

    Returns
    -------
    Learnt
        The settings of the largest increment found, log priors included.

    Warns
    -----
    ConvergenceWarning
        If the search did not come to rest.
    SettingsWarning
        If the tension is larger than chance explains.
    """
    settings = Settings(model.covariance, model.likelihood)
    vector = Vector(settings, covariance, scales)
    if vector.size == 0:
        return Learnt(*_pair(settings), Z, np.zeros(0), True, 0.0)
    pooled = pooled and is_exact(model.likelihood) and model.alpha == 0.0 and len(scales) > 0
    search = _Search(vector, model, threads, options, choose, pooled)
    if old is None or old[1].n == 0.0:
        return search.first(settings, Z, rows)
    return search.later(settings, old, Z, rows)


class _Search:
    """Searches for the settings of one batch."""

    def __init__(self, vector, model, threads, options, choose, pooled):
        self.vector, self.model, self.threads, self.options = vector, model, threads, options
        self.choose, self.pooled = choose, pooled

    def objective(self, old, Z, rows):
        """Minus the increment and log prior."""
        pooled = self.pooled and old is not None
        return Objective(Increment(old, Z, rows, self.model, self.threads, self.options, pooled), self.vector)

    def first(self, settings, Z, rows):
        """From several starts; inducing points are chosen again at what was found, as long as that gains."""
        few = sampled(rows, FIRST_ROWS)
        bounds, found = starts(settings, _data(few, self.model), self.vector)
        objectives = [self.objective(None, self.chosen(x, Z), few) for x in found]
        tried = [objective.value(x) for objective, x in zip(objectives, found, strict=True)]
        objective, x = objectives[int(np.argmin(tried))], found[int(np.argmin(tried))]
        if not objective.values:
            warn_without_start(len(found))
            return Learnt(*_pair(settings), Z, np.zeros(0), False, 0.0)
        if few is not rows:
            x = climb(objective, x, bounds)[1]
            objective = self.objective(None, self.chosen(x, Z), rows)
        return self.learnt(*self.rounds(None, objective, x, bounds, rows), 0.0)

    def rounds(self, old, objective, x, bounds, rows):
        """Climb, at inducing points chosen again while that gains: (value, place, slope, objective) of the best."""
        runs = []
        for _ in range(CHOICES):
            runs.append((*climb(objective, x, bounds), objective))
            if self.choose is None or (len(runs) > 1 and runs[-1][0] > runs[-2][0] - WORTH * rows.n):
                break
            x = runs[-1][1]
            Z = self.chosen(x, objective.evidence.Z)
            if np.array_equal(Z, objective.evidence.Z):
                break
            objective = self.objective(old, Z, rows)
        return min(runs, key=lambda run: run[0])

    def later(self, settings, old, Z, rows):
        """From the settings as they are; and the tension between old rows and new ones at what was found."""
        bounds, objective = self.vector.bounds(), self.objective(old, Z, rows)
        start = np.clip(self.vector.pack(settings), *bounds.T)
        objective.value(start)
        if not objective.values:
            warn_without_start(1)
            return Learnt(*_pair(settings), Z, np.zeros(0), False, 0.0)
        near = self.near(start, bounds)
        value, x, slope, objective = self.rounds(old, objective, start, near, rows)
        if np.any((x == near[:, 0]) | (x == near[:, 1])):
            slope = free_slope((x, *objective(x)), bounds)
        tension = self.tension(x, objective.evidence.Z, rows, bounds)
        if tension > largest_tension(self.vector.size):
            warn(
                f"the rows before hold the settings: alone, the {rows.n} new ones would gain {tension:.3g} nats at "
                "settings of their own; forget(factor) makes those before count less",
                SettingsWarning,
            )
        return self.learnt(value, x, slope, objective, tension)

    @staticmethod
    def near(x, bounds):
        """Bounds about a place."""
        return np.clip(np.column_stack([x - NEAR, x + NEAR]), *bounds.T[:, :, None])

    def tension(self, x, Z, rows, bounds):
        """Nats that the rows would gain near a place if nothing were known of those before; 0 where EP fails."""
        alone = self.objective(None, Z, rows)
        here = alone.value(x)
        if not alone.values:
            return 0.0
        return here - climb(alone, x, self.near(x, bounds), most=FEW_STEPS, rounds=1)[0]

    def chosen(self, x, Z):
        """Inducing points for the settings of a vector."""
        if self.choose is None:
            return Z
        covariance, likelihood = _pair(self.vector.unpack(x))
        return self.choose(replace(self.model, covariance=covariance, likelihood=likelihood))

    def learnt(self, value, x, slope, objective, tension):
        """What came out of a search."""
        at_rest = came_to_rest(objective, value, slope)
        values = np.array(objective.values)
        return Learnt(*_pair(self.vector.unpack(x)), objective.evidence.Z, values, at_rest, tension)


def largest_tension(n):
    """Nats that n settings of their own may gain for new rows by chance: a quantile of chi-squared over two."""
    from scipy.special import gammainccinv

    return float(gammainccinv(0.5 * n, CHANCE))


def sampled(rows, most):
    """At most that many rows, at equal distances; the same object if there are no more."""
    if rows.n <= most:
        return rows
    X, index = rows.candidates(most)
    parts = {name: getattr(rows, name) for name in ("y", "offset", "weights", "noise")}
    return Rows(X, **{name: part if part is None else part[index] for name, part in parts.items()})


def _data(rows, model):
    """Rows as searches want them to find starts."""
    X, _ = rows.candidates(rows.n)
    return Data(X, rows.y, rows.bases(model), rows.weights, rows.noise)


def _pair(settings):
    return settings.covariance, settings.likelihood


# ---------------------------------------------------------------------------------------------- all rows so far


class Rescaled:
    """The log bound of all rows so far, and log priors, at s times the covariance and t times the noise.

    As a function of (log s, log t), or of one of them; minus its value and the gradient, as an optimiser wants them.
    """

    def __init__(self, information, covariance, noise=True, amplitude=True):
        values, vectors = np.linalg.eigh(full(information.A))
        # A is a sum of squares: what is not positive is rounding
        self.values = np.maximum(values, 0.0)
        self.squared = (vectors.T @ information.r) ** 2
        self.information, self.covariance = information, covariance
        self.free = np.array([amplitude, noise])
        self.scaled = scaling_parameters(covariance) if amplitude else np.zeros(0, dtype=bool)

    def bounds(self):
        """(low, high) of the free ones of log s and log t."""
        low, high = -np.log(FAR), np.log(FAR)
        pairs = [(low, high), (low, high)]
        if self.free[0]:
            room = (self.covariance.log_bounds - self.covariance.log_parameters[:, None])[self.scaled]
            pairs[0] = max(low, room[:, 0].max()), min(high, room[:, 1].min())
        return np.array(pairs)[self.free]

    def log_bound(self, log_s, log_t):
        """The log bound without priors, and its derivatives in log s and log t."""
        known, s, t = self.information, np.exp(log_s), np.exp(log_t)
        share = s / t * self.values / (1.0 + s / t * self.values)
        fit = 0.5 * s / t**2 * self.squared / (1.0 + s / t * self.values)
        lin = float(np.sum(fit - 0.5 * np.log1p(s / t * self.values)))
        value = known.constant - scaling_cost(known, log_s, log_t) + lin
        kept = float(np.sum(fit * (1.0 - share)))
        lost = 0.5 * float(np.sum(share))
        by_s = kept - lost - 0.5 * known.gap * s / t
        by_t = lost - kept - float(np.sum(fit)) - 0.5 * known.n + 0.5 * (known.squares + known.gap * s) / t
        return value, np.array([by_s, by_t])

    def __call__(self, x):
        place = np.zeros(2)
        place[self.free] = x
        value, slope = self.log_bound(*place)
        if self.free[0]:
            prior, by_prior = multiplied(self.covariance, place[0]).log_prior()
            value, slope[0] = value + prior, slope[0] + float(np.sum(by_prior[self.scaled]))
        return -value, -slope[self.free]


def scaling_parameters(covariance):
    """Which free log parameters grow by log s where the covariance is multiplied by s, (n_free,) of bool.

    One variance of every term of a sum, the first free one of a product.
    """
    pairs = zip(_scaled_leaves(covariance), covariance._labelled(), strict=True)
    chosen = {f"{label}.variance" for scaled, (label, _) in pairs if scaled}
    return np.array([name.partition("[")[0] in chosen for name in covariance.parameter_names])


def multiplied(covariance, log_s):
    """The covariance times s."""
    if log_s == 0.0:
        return covariance
    low, high = covariance.log_bounds.T
    vector = covariance.log_parameters + log_s * scaling_parameters(covariance)
    return covariance.with_log_parameters(np.clip(vector, low, high))


def _scaled_leaves(covariance):
    """Which leaves have the variances that do that, in their order."""
    if isinstance(covariance, Sum):
        return [scaled for part in covariance.parts for scaled in _scaled_leaves(part)]
    if isinstance(covariance, Product):
        able = [_can_scale(part) for part in covariance.parts]
        if any(able):
            first = able.index(True)
            parts = [[False] * len(part._leaves()) for part in covariance.parts]
            parts[first] = _scaled_leaves(covariance.parts[first])
            return [scaled for part in parts for scaled in part]
    elif "variance" not in covariance.fixed:
        return [True]
    raise ValueError(
        f"the amplitude cannot be learnt: no variance of {covariance!r} is free; free one, or give amplitude=False"
    )


def _can_scale(covariance):
    """Whether variances that are free can multiply a covariance."""
    if isinstance(covariance, Sum):
        return all(_can_scale(part) for part in covariance.parts)
    if isinstance(covariance, Product):
        return any(_can_scale(part) for part in covariance.parts)
    return "variance" not in covariance.fixed


def relearn(information, covariance, noise=True, amplitude=True):
    """Find the noise variance and a factor of the covariance that suit all rows so far best.

    Parameters
    ----------
    information : Information
        Of rows with Gaussian noise of one variance, taken in with alpha = 0.
    covariance : Covariance
        As it is now; its priors and bounds hold.
    noise, amplitude : bool
        What to learn.

    Returns
    -------
    log_s, log_t, log_bound
        Logs of the factors of covariance and noise, and the log bound there.
    """
    objective = Rescaled(information, covariance, noise, amplitude)
    place = np.zeros(2)
    if objective.free.any():
        bounds = objective.bounds()
        place[objective.free] = climb(objective, np.zeros(len(bounds)), bounds)[1]
    return float(place[0]), float(place[1]), objective.log_bound(*place)[0]


def rescaled(information, log_s, log_t):
    """The factor of all rows so far at exp(log_s) times the covariance and exp(log_t) times the noise, factorised."""
    s, t = float(np.exp(log_s)), float(np.exp(log_t))
    out = Information(
        np.asfortranarray(s / t * information.A),
        np.sqrt(s) / t * information.r,
        information.constant - scaling_cost(information, log_s, log_t),
        information.n,
        information.squares / t,
        information.gap * s / t,
    )
    return out.factorised()
