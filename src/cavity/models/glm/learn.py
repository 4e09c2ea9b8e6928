"""What a GLM learns by the log evidence: factors on prior variances, and parameters of the likelihood."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import NumericalWarning, warn
from cavity.ep.engine import Engine
from cavity.ep.sites import Sites
from cavity.ep.stochastic import Stochastic
from cavity.ep.visits import cavities
from cavity.ep.weights import weights_of
from cavity.likelihoods.parameters import PARAMETER_RANGE, FreeParameters, open_parameters, slopes
from cavity.models.learnt import Learnt
from cavity.models.search import NOT_LEARNT, Objective, came_to_rest, climb, warn_without_start

PRIOR = "prior_variance"
LEARN_SCAN = tuple(float(np.log(10.0)) * k for k in (0, -2, 2, -4, 4, -6, 6, -8, 8))
START_ROWS = 1 << 12  # most rows of the regression that says where to start
BLOCK_ROWS = 1 << 13
FARTHER = float(np.log(100.0))  # from where a search ended, to see whether the evidence falls
FLAT = 1e-6  # nats that it must fall
CURVATURE_STEP = 1e-2  # of a free number, in differences of the gradient
MOST_ERRORS = 20  # free numbers up to which standard errors take no longer than the search
LIMITS = {  # what likelihoods are at the far end of a parameter
    ("NegativeBinomial", "dispersion"): "; as far as these data tell the counts are Poisson",
    ("StudentT", "degrees_of_freedom"): "; as far as these data tell the noise is Gaussian",
}


def names_to_learn(likelihood, learn):
    """Return the names of what is learnt: those asked for, and open parameters of the likelihood."""
    known = (PRIOR, *likelihood.parameters)
    if learn is None or isinstance(learn, bool | np.bool_):
        asked = known if learn else ()
    elif isinstance(learn, str):
        asked = (arrays.choice(learn, "learn", known),)
    elif isinstance(learn, tuple | list):
        asked = tuple(arrays.choice(name, "learn", known) for name in learn)
    else:
        raise TypeError(f"learn must be None, True, a name or a tuple of names, got {learn!r}")
    needed = open_parameters(likelihood)
    return tuple(name for name in known if name in asked or name in needed)


def check_can_learn(model, names, method, schedule):
    """Raise ValueError where parameters of a likelihood cannot be found, by their names."""
    own = [name for name in names if name != PRIOR]
    way = next(
        (
            f"{name}={value!r}"
            for name, value, unable in (
                ("method", method, "adf"),
                ("schedule", schedule, "stochastic"),
                ("approximation", model.approximation, "diagonal"),
            )
            if value == unable
        ),
        None,
    )
    if own and way is not None:
        kind = type(model.likelihood).__name__
        raise ValueError(f"{way} cannot find {own[0]} of {kind}: give a number, or use EP with approximation='full'")


def checked_groups(value, variance, n_features, names, n_added=0):
    """Return the group of each weight, of those whose prior variances share a factor; None for one factor of all.

    Weights of negative groups keep their prior variances, as do the `n_added` first ones, which are not among the
    columns. A vector of variances without groups has as many factors as columns.
    """
    if value is None:
        if variance.ndim == 1:
            return np.concatenate([np.full(n_added, -1), np.arange(n_features - n_added)])
        return None
    if PRIOR not in names:
        raise ValueError("prior_groups needs learn='prior_variance': nothing else belongs to groups")
    if variance.ndim == 2:
        raise ValueError("prior_groups needs prior_variance as a number or a vector, got a matrix")
    groups = np.asarray(value)
    if groups.shape != (n_features - n_added,) or groups.dtype.kind not in "iu":
        raise ValueError(f"prior_groups must be {n_features - n_added} integers, one for each column, got {value!r}")
    if not np.any(groups >= 0):
        raise ValueError("prior_groups must have some column in a group, got negative numbers only")
    return np.concatenate([np.full(n_added, -1), groups.astype(np.intp)])


def engine_of(geometry, sites, options, start):
    """Return the engine of a schedule."""
    if options.schedule == "stochastic":
        return Stochastic(geometry, sites, options)
    return Engine(geometry, sites, options, start)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is searched: factors on prior variances, as logs, and the likelihood."""

    log_factors: np.ndarray
    likelihood: object


class Vector:
    """The free settings as one vector: logs of factors on prior variances, then free numbers of the likelihood."""

    def __init__(self, names, groups, likelihood, unit):
        self.groups = groups
        self.labels = () if PRIOR not in names else (None,) if groups is None else np.unique(groups[groups >= 0])
        self.n_prior = len(self.labels)
        self.free = FreeParameters(likelihood, [name for name in names if name != PRIOR], unit)
        self.likelihood = likelihood

    @property
    def size(self):
        """The number of free settings."""
        return self.n_prior + self.free.size

    def pack(self, log_factor, likelihood):
        """The vector of a common factor and a likelihood."""
        return np.append(np.full(self.n_prior, log_factor), self.free.pack(likelihood))

    def unpack(self, x):
        """The settings of a vector."""
        return Settings(x[: self.n_prior], self.free.unpack(x[self.n_prior :], self.likelihood))

    def bounds(self, *others):
        """(low, high) of every entry."""
        far = np.log(PARAMETER_RANGE)
        prior = np.full((self.n_prior, 2), far) * [-1.0, 1.0]
        return np.concatenate([prior, self.free.bounds(self.likelihood, *map(self.free.pack, others))])

    def factors(self, log_factors, n):
        """A factor on each of n prior variances, or one on all."""
        if self.groups is None:
            return float(np.exp(log_factors[0]))
        out = np.ones(n)
        for label, value in zip(self.labels, log_factors, strict=True):
            out[self.groups == label] = np.exp(value)
        return out

    def gradient(self, evidence, point):
        """That of the log evidence at a point."""
        by_prior = evidence.prior_gradient(point, self) if self.n_prior else np.zeros(0)
        return np.append(by_prior, evidence.likelihood_gradient(point, self.free))

    def log_prior(self, _):
        """No settings are more likely than others."""
        return 0.0, np.zeros(0)


@dataclass(slots=True)
class EvidencePoint:
    """A fit at some settings."""

    settings: Settings
    problem: object
    geometry: object
    fit: object
    log_evidence: float

    @property
    def converged(self):
        """Whether it is a fixed point of EP."""
        return self.fit.converged


class Evidence:
    """The log evidence of a problem at given settings by EP; each fit starts from the sites of the last.

    Where that leads nowhere, as from settings that are far away, it starts without sites.
    """

    def __init__(self, problem, vector, threads, options):
        self.problem, self.vector, self.threads = problem, vector, threads
        self.options, self.start = replace(options, callback=None), None

    def problem_at(self, settings):
        """The problem with a prior."""
        prior, problem = self.problem.prior, self.problem
        if not len(settings.log_factors):
            return problem
        return problem.with_prior(
            prior.mean, prior.variance * self.vector.factors(settings.log_factors, len(prior.mean))
        )

    def sites(self, likelihood):
        """The sites of the rows."""
        rows = self.problem.used
        return Sites(likelihood, rows.y, rows.weights, self.options.power)

    def at(self, settings, **options):
        """The `EvidencePoint` of some settings; `options` replace those of EP."""
        problem = self.problem_at(settings)
        geometry = problem.geometry(self.threads)
        options = replace(self.options, **options)
        fit = self._fit(geometry, settings.likelihood, options)
        if self.start is not None and (fit is None or not fit.converged):
            self.start = None
            fit = self._fit(geometry, settings.likelihood, options)
        if fit.converged and fit.tau is not None:
            self.start = fit.tau, fit.rho
        value = fit.log_evidence + self.problem.rows.log_p_known(settings.likelihood)[1]
        return EvidencePoint(settings, problem, geometry, fit, value)

    def _fit(self, geometry, likelihood, options):
        """Run the engine; None where arithmetic fails."""
        try:
            return engine_of(geometry, self.sites(likelihood), options, self.start).run()
        except (ArithmeticError, np.linalg.LinAlgError):
            if self.start is None:
                raise
            return None

    def prior_gradient(self, point, vector):
        """Derivatives in the logs of factors: of the expected log prior, as sites are constants at a fixed point.

        [M]_ and math of GPML section 5.5.
        """
        if vector.groups is None:
            return np.array([point.fit.belief.prior_slope()])
        prior = point.problem.prior
        mean, covariance = weights_of(prior.moments, point.geometry, point.fit.belief)
        slopes_of = weight_gradient(prior.variance, mean - prior.mean, covariance.variances())
        return np.array([np.sum(slopes_of[vector.groups == label]) for label in vector.labels])

    def likelihood_gradient(self, point, free):
        """Derivatives in the free numbers of the likelihood, at constant cavities."""
        if not free.size:
            return np.zeros(0)
        likelihood, geometry, fit = point.settings.likelihood, point.geometry, point.fit
        sites, m, v = self.sites(likelihood), np.empty(geometry.n_rows), np.empty(geometry.n_rows)
        for part in geometry.blocks(0, geometry.n_rows):
            _, mean, variance = geometry.values(fit.belief, part)
            m[part], v[part], _ = cavities(
                mean, variance, fit.tau[part], fit.rho[part], sites.part(sites.fraction, part)
            )

        def total(likelihood):
            return self.sites(likelihood).total(m, v) + self.problem.rows.log_p_known(likelihood)[1]

        return slopes(free, likelihood, total)


def weight_gradient(prior_variance, apart, variances):
    """The derivatives for each weight, from its posterior mean less that of the prior and its posterior variance."""
    return 0.5 * ((apart**2 + variances) / prior_variance - 1.0)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search ended with: the problem with what was learnt, sites to start from, and how it ended."""

    problem: object
    start: tuple | None = None
    learnt: Learnt | None = None
    at_rest: bool = True


def learned(problem, names, groups, threads, options):
    """Maximise the log evidence over what is named; return what was `Found`."""
    starts = _likelihoods(problem, names)
    if groups is not None and problem.prior.variance.ndim == 0:
        problem = problem.with_prior(problem.prior.mean, np.full(len(groups), problem.prior.variance))
    y = problem.used.y
    vector = Vector(names, groups, starts[0], float(np.std(y[np.isfinite(y)])) or 1.0)
    evidence = Evidence(problem, vector, threads, options)
    objective, bounds = Objective(evidence, vector), vector.bounds(*starts)
    start = _start(objective, vector, starts, bounds)
    x, value, at_rest = start, np.inf, False
    if objective.values:
        value, x, slope = climb(objective, start, bounds)
        at_rest = came_to_rest(objective, value, slope)
    else:
        warn_without_start(len(starts))
    settings = vector.unpack(x)
    names, units = _labels(vector, problem.prior.variance)
    sd, note = [None] * len(x), f"no standard errors: {NOT_LEARNT}"
    if at_rest:
        flat = _without_maximum(objective, vector, x, bounds, value)
        sd, note = _standard_errors(evidence, vector, x, bounds, flat, names)
    factors = np.exp(settings.log_factors) * units
    values = [*factors.tolist(), *vector.free.values(settings.likelihood)]
    scale = [*factors.tolist(), *np.ones(vector.free.size)]
    errors = tuple(None if each is None else each * times for each, times in zip(sd, scale, strict=True))
    learnt = Learnt(tuple(names), tuple(values), errors, note)
    best = evidence.problem_at(settings)
    model = replace(problem.model, prior_variance=best.prior.variance, likelihood=settings.likelihood)
    return Found(replace(best, model=model), evidence.start, learnt, at_rest)


# ------------------------------------------------------------------------------------------ starts


def _likelihoods(problem, names):
    """Return the likelihoods to start from: open parameters as the data suggest, and then all that are learnt."""
    likelihood, rows = problem.model.likelihood, problem.used
    wanted = [name for name in names if name != PRIOR]
    if not wanted:
        return [likelihood]
    for name in wanted:
        if likelihood.parameters[name] in ("scale", "positive") and getattr(likelihood, name) == 0:
            raise ValueError(f"{name} of {type(likelihood).__name__} is 0, from where no search leads on; give None")
    suggested = likelihood.starting_values(rows.y, _fitted(problem))
    given = replace(likelihood, **{name: suggested[name] for name in open_parameters(likelihood)})
    other = {name: suggested[name] for name in wanted if np.size(suggested[name]) == np.size(getattr(given, name))}
    if all(getattr(given, name) == value for name, value in other.items()):
        return [given]
    return [given, replace(given, **other)]


def _fitted(problem):
    """Return rough values of f: of the least-squares regression, or of the offset alone where there are few rows."""
    rows, likelihood = problem.used, problem.model.likelihood
    offset = np.zeros(rows.n) if rows.offset is None else rows.offset
    guess = likelihood._guess(rows.y)
    if guess is None:
        return offset
    rest, d = guess - offset, rows.X.shape[1]
    few = np.linspace(0, rows.n - 1, min(rows.n, START_ROWS)).astype(np.intp)
    centre = float(np.median(rest))
    if len(few) < 2 * d:
        return offset + centre
    X = np.asarray(rows.X[few], dtype=np.float64)
    size = np.max(np.abs(X), axis=0)
    size[size == 0] = 1.0
    X, target = X / size, rest[few]
    unit = float(np.max(np.abs(target))) or 1.0
    weights = np.linalg.lstsq(X.T @ X, X.T @ (target / unit))[0] / size * unit
    blocks = (slice(low, low + BLOCK_ROWS) for low in range(0, rows.n, BLOCK_ROWS))
    return offset + np.concatenate([np.asarray(rows.X[part], dtype=np.float64) @ weights for part in blocks])


def _start(objective, vector, likelihoods, bounds):
    """Return where to begin: the likelihood, and then the common factor, of the largest evidence.

    Far from the maximum the evidence is flat.
    """

    def cold_value(x):
        objective.evidence.start = None
        return objective.value(x)

    tried = [np.clip(vector.pack(0.0, likelihood), *bounds.T) for likelihood in likelihoods]
    best = min((cold_value(x), i) for i, x in enumerate(tried))[1] if len(tried) > 1 or not vector.n_prior else 0
    if not vector.n_prior:
        return tried[best]
    scan = [np.clip(vector.pack(factor, likelihoods[best]), *bounds.T) for factor in LEARN_SCAN]
    return scan[min((cold_value(x), i) for i, x in enumerate(scan))[1]]


# ------------------------------------------------------------------------------------------ the end of a search


def _labels(vector, variance):
    """Return names of the free numbers, and what a factor on the prior variance of each group is to be times."""
    names, units = [], []
    for label in vector.labels:
        own = np.unique(variance if label is None else variance[vector.groups == label])
        same = own.size == 1 and variance.ndim < 2
        name = PRIOR if same else f"{PRIOR} factor"
        names.append(name if vector.n_prior == 1 else f"{name}[{label}]")
        units.append(float(own[0]) if same else 1.0)
    return [*names, *vector.free.labels()], np.array(units)


def _without_maximum(objective, vector, x, bounds, value):
    """Return which free numbers have no maximum of the evidence: farther out it does not fall.

    One warning for each, but for prior variances of several groups: that some vanish is what is asked for.
    """
    flat = np.zeros(len(x), dtype=bool)
    bounded = np.isfinite(bounds[:, 0])
    for i in np.flatnonzero(bounded)[: None if len(x) <= MOST_ERRORS else 0]:
        for way in (-1.0, 1.0):
            further = x.copy()
            further[i] = np.clip(x[i] + way * FARTHER, *bounds[i])
            if not flat[i] and objective.value(further) <= value + FLAT:
                flat[i] = True
                if i >= vector.n_prior or vector.n_prior == 1:
                    _warn_flat(vector, x, i, way)
    return flat


def _warn_flat(vector, x, i, way):
    if i < vector.n_prior:
        name, place, limit = PRIOR.replace("_", " "), f"{np.exp(x[i]):.1g} times the given one", ""
    else:
        likelihood = vector.unpack(x).likelihood
        name = vector.free.labels()[i - vector.n_prior]
        place = f"{vector.free.values(likelihood)[i - vector.n_prior]:.2g}"
        limit = LIMITS.get((type(likelihood).__name__, name), "") if way > 0 else ""
    words = f"the log evidence has no maximum in the {name}: it does not fall beyond {place}; the search ended there"
    warn(words + limit, NumericalWarning)


def _standard_errors(evidence, vector, x, bounds, flat, names):
    """Return the standard errors of the free numbers, None where there are none, and why.

    From the curvature of the log evidence, by differences of its gradient.
    """
    stopped = flat | (x <= bounds[:, 0]) | (x >= bounds[:, 1])
    free, none = np.flatnonzero(~stopped), [None] * len(x)
    if len(free) > MOST_ERRORS:
        return none, f"no standard errors of more than {MOST_ERRORS} numbers"
    tol = min(evidence.options.tol, 1e-8)

    def gradient(i, step):
        point = evidence.at(vector.unpack(x + step * (np.arange(len(x)) == i)), tol=tol)
        return vector.gradient(evidence, point)[free] if point.converged else np.full(len(free), np.nan)

    try:
        rows = [(gradient(i, CURVATURE_STEP) - gradient(i, -CURVATURE_STEP)) / (-2 * CURVATURE_STEP) for i in free]
    except (ArithmeticError, np.linalg.LinAlgError):
        return none, "no standard errors: EP fails near the maximum"
    curvature = np.array(rows).reshape(len(free), len(free))
    if np.isnan(curvature).any():
        return none, "no standard errors: EP fails near the maximum"
    curvature = 0.5 * (curvature + curvature.T)
    if len(free) and not np.linalg.eigvalsh(curvature)[0] > 0:
        return none, "no standard errors: the log evidence is not curved downwards in every direction"
    covariance = np.zeros((len(x), len(x)))
    covariance[np.ix_(free, free)] = np.linalg.inv(curvature)
    slopes_of = np.eye(len(x))
    slopes_of[vector.n_prior :, vector.n_prior :] = vector.free.jacobian(vector.unpack(x).likelihood)
    spread = np.sqrt(np.einsum("ij,jk,ik->i", slopes_of, covariance, slopes_of))
    names = ", ".join(name for name, none in zip(names, stopped, strict=True) if none)
    note = f"no standard error of {names}: the log evidence has no maximum there" if stopped.any() else ""
    return [None if stopped[i] else float(value) for i, value in enumerate(spread)], note
