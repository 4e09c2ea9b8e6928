"""Hyperparameters of Gaussian processes: L-BFGS on log evidence plus log priors, from deterministic starts."""

from dataclasses import replace

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import describe_column
from cavity.covariances import Periodic
from cavity.covariances.kinds import Stationary
from cavity.covariances.slots import list_leaves
from cavity.likelihoods.parameters import find_unit
from cavity.models.evaluations import Evaluations
from cavity.models.gp.integral import MAX_AUTO_ROWS, make_default_priors
from cavity.models.integral import choose_integration, find_integral
from cavity.models.process.settings import FreeHyperparameters, Settings
from cavity.models.process.starts import NOISE_SCALE_KINDS, choose_starts
from cavity.models.search import STARTING_STAGE, Objective, SearchResult, evaluate_starts, maximise
from cavity.models.standard_errors import find_covariance, find_standard_errors

MAX_LINE_DEPARTURE_SD = 0.1  # of a standard deviation, by which f may depart from what is called a line


def learn(settings, evidence, covariance, names, n_starts, job, integrate=False):
    """Return the settings of the largest evidence found, a `SearchResult`, and how they are integrated, or None.

    Free are the coefficients of the mean, named parameters of the likelihood and, if said, those of the covariance. Of
    the deterministic starts the `n_starts` with the largest evidence are followed by L-BFGS-B. If all of these have
    long lengthscales, or all short ones, the best start of the other kind is followed for some steps, and to the end
    where its evidence is then the largest. What is integrated has priors, which the evidence is multiplied by.
    """
    evidence.vector = vector = FreeHyperparameters(settings, covariance, names, find_unit(evidence.rows.y))
    method = choose_integration(integrate, len(vector.places), evidence.rows.n <= MAX_AUTO_ROWS)
    if vector.size == 0:
        return SearchResult(settings, trace={"learning": np.zeros(0)}), method
    if method in ("grid", "ccd"):
        if covariance:
            vector.priors |= make_default_priors(settings.covariance, settings.likelihood, evidence.rows)
        vector.add_default_priors()
    objective = Objective(evidence, vector, job=job.substage("search"))
    bounds, places, n_long = choose_starts(settings, evidence.rows, vector)
    tried = evaluate_starts(objective, places, job.stage(STARTING_STAGE))
    ranked = [i for i in np.argsort(tried, kind="stable") if np.isfinite(tried[i])]
    begun = ranked[:n_starts]
    others = [places[i] for i in ranked if all((i < n_long) != (j < n_long) for j in begun)]
    # elsewhere noise is at its bound where functions without noise are interpolated
    is_constant = bool(vector.free.mark_scales().any()) and np.ptp(evidence.rows.y - evidence.rows.offset) == 0
    _, x, status = maximise(objective, [places[i] for i in begun], bounds, job, len(places), others, is_constant)
    objective.evaluations.keep()
    if x is None:
        return SearchResult(settings, status, objective.trace), None
    settings = vector.unpack(x)
    return SearchResult(settings, status, objective.trace, vector.hyperparameters(settings), x=x), method


def integrate(settings, evidence, covariance, names, n_starts, job, setting):
    """Return the `SearchResult` of `learn`; its `integral` is the `Integration`, its log evidence, and leave-one-out
    log densities, or None.
    """
    search, method = learn(settings, evidence, covariance, names, n_starts, job, setting)
    if method is None:
        return search
    *integral, status = find_integral(evidence, search, job, method, evidence.start)
    return replace(search, status=status, integral=tuple(integral))


def warn_if_line(point, rows, columns=None):
    """Warn if every lengthscale exceeds the range of its column, and f is a constant or a line in the rows.

    So it ends where all that y shows is taken for noise. One long lengthscale among others only says that its column is
    irrelevant; and a long lengthscale with a large variance may give a curve: f is a line if it departs from the best
    one by less than a tenth of its own standard deviation, or of that of the noise, which is 1 for labels and counts.
    """
    ranges, longest = np.ptp(rows.X, axis=0), []
    for leaf in list_leaves(point.settings.covariance):
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
        f"the learnt lengthscale {length:.3g} of {describe_column(j, columns)} exceeds the range of its values, "
        f"{ranges[j]:.3g}{', as do the others' if len(longest) > 1 else ''}: f is a constant or a line in these rows, "
        "and the rest counts as noise. If y changes over shorter distances, start there, with first values of variance "
        'and lengthscale as in covariance="rbf(1, 0.5)"',
        NumericalWarning,
    )


def add_standard_errors(learnt, model, evidence):
    """Return the record of what a fit of a model has learnt with standard errors; a mean counts as known."""
    likelihood, covariance = model.likelihood, model.covariance
    own = [name for name in likelihood.parameters if any(name == label.partition("[")[0] for label in learnt.names)]
    settings, covariance_is_free = Settings(covariance, likelihood), learnt.names[0] in covariance.parameter_names
    vector = FreeHyperparameters(settings, covariance_is_free, own, find_unit(evidence.rows.y))
    _, _, jacobian = vector.describe(settings)
    evaluations = Evaluations(evidence, vector)
    covariance, has_error, note = find_covariance(evaluations, vector.pack(settings), vector.bounds(), learnt.names)
    sd = find_standard_errors(covariance, has_error, jacobian)
    return replace(learnt, sd=tuple(sd), note=note)
