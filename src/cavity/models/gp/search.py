"""Hyperparameters of Gaussian processes: L-BFGS on log evidence plus log priors, from deterministic starts."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import column_words
from cavity.base.loop import CONVERGED, STOPPED
from cavity.covariances import Periodic
from cavity.covariances.kinds import Stationary
from cavity.covariances.slots import leaves
from cavity.likelihoods.parameters import unit_of
from cavity.models.learnt import Learnt
from cavity.models.process.settings import Settings, Vector
from cavity.models.process.starts import NOISE_SCALE_KINDS, starts
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

MAX_LINE_DEPARTURE_SD = 0.1  # of a standard deviation, by which f may depart from what is called a line
ROUGH_STEPS = 8  # of L-BFGS-B from a second start: by then it is within a few nats of where it ends


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
