"""Hyperparameters of Gaussian processes: L-BFGS on log evidence plus log priors, from deterministic starts."""

from dataclasses import replace

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import describe_column
from cavity.covariances import Periodic
from cavity.covariances.kinds import Stationary
from cavity.covariances.slots import list_leaves
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods import Gaussian
from cavity.likelihoods.parameters import find_unit
from cavity.models.evaluations import Evaluations
from cavity.models.gp.evidence import Evidence
from cavity.models.gp.integral import MAX_AUTO_ROWS, IntegralEvidence, make_default_priors
from cavity.models.integral import choose_integration, find_integral
from cavity.models.process.settings import FreeHyperparameters, Settings
from cavity.models.process.starts import NOISE_SCALE_KINDS, choose_starts
from cavity.models.search import (
    STARTING_STAGE,
    Objective,
    SearchResult,
    challenge,
    climb,
    evaluate_starts,
    is_constant_with_open_noise,
    maximise,
    newton_root,
)
from cavity.models.standard_errors import find_covariance, find_standard_errors

MIN_ROWS_OF_SAMPLED_SEARCH = 1000  # from which a search begins on some of the rows
SAMPLE_SHARE = 3  # one of so many rows
SAMPLE_GAIN = 1e-7  # of the value, at which the search on these ends
MAX_SAMPLE_VARIANCE = 0.8  # of a free number given these, up to which the first step on all rows is Newton's
LEAST_SLOPE = 1e-3  # nats per standard error at which the search on all rows ends
MAX_LINE_DEPARTURE_SD = 0.1  # of a standard deviation, by which f may depart from what is called a line


def learn(settings, evidence, covariance, names, n_starts, job, integrate=False):
    """Return the settings of the largest evidence found, a `SearchResult`, and how they are integrated, or None.

    Free are the coefficients of the mean, named parameters of the likelihood and, if said, those of the covariance. Of
    the deterministic starts the `n_starts` with the largest evidence are followed by L-BFGS-B. If all of these have
    long lengthscales, or all short ones, the best start of the other kind is followed for some steps, and to the end
    where its evidence is then the largest. What is integrated has priors, which the evidence is multiplied by.
    """
    evidence.vector = vector = FreeHyperparameters(settings, covariance, names, find_unit(evidence.rows.y))
    is_small = evidence.rows.n <= MAX_AUTO_ROWS
    method = choose_integration(integrate, len(vector.places), is_small, evidence.options.power)
    if vector.size == 0:
        return SearchResult(settings, trace={"learning": np.zeros(0)}), method
    if method in ("grid", "ccd"):
        if covariance:
            vector.priors |= make_default_priors(settings.covariance, settings.likelihood, evidence.rows)
        vector.add_default_priors()
    objective = Objective(evidence, vector, job=job.substage("search"))
    bounds, points, n_long = choose_starts(settings, evidence.rows, vector)
    x, newton = _search_sample(settings, evidence, objective, points, n_long, bounds, n_starts)
    if x is None:
        values = evaluate_starts(objective, points, job.stage(STARTING_STAGE))
        begun, others = _rank_starts(values, points, n_long, n_starts)
    else:
        evaluate_starts(objective, [x], job.stage(STARTING_STAGE))
        begun, others = [x], []
    # elsewhere noise is at its bound where functions without noise are interpolated
    is_constant = is_constant_with_open_noise(vector.free, evidence.rows)
    _, x, status = maximise(objective, begun, bounds, job, len(points), others, is_constant, **newton)
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
    *integral, _, status = find_integral(evidence, search, job, method, evidence.start)
    return replace(search, status=status, integral=tuple(integral))


def _rank_starts(values, points, n_long, n_starts):
    """Return the best starts, and those of the other kind if all of these have long lengthscales, or all short ones."""
    ranked = [i for i in np.argsort(values, kind="stable") if np.isfinite(values[i])]
    begun = ranked[:n_starts]
    others = [points[i] for i in ranked if all((i < n_long) != (j < n_long) for j in begun)]
    return [points[i] for i in begun], others


def _search_sample(settings, evidence, objective, points, n_long, bounds, n_starts):
    """Return where the search on some of many rows ends, and what `maximise` takes to begin there with Newton's step.

    Nothing of the latter where these rows hardly determine a number, as the lengthscale of an idle column. None and
    nothing where there are few rows, or the noise is not Gaussian, or the sample may not show what repeats itself.
    """
    n, vector, leaves = evidence.rows.n, objective.vector, list_leaves(settings.covariance)
    is_regression = isinstance(settings.likelihood, Gaussian) and isinstance(evidence, IntegralEvidence)
    if n <= MIN_ROWS_OF_SAMPLED_SEARCH or not is_regression or any(isinstance(leaf, Periodic) for leaf in leaves):
        return None, {}
    index = np.sort(np.random.default_rng(0).permutation(n)[: max(MIN_ROWS_OF_SAMPLED_SEARCH // 2, n // SAMPLE_SHARE)])
    few = Evidence(settings.likelihood, evidence.rows.part(index), evidence.threads, evidence.options)
    sample = Objective(few, vector.part(index))
    begun, others = _rank_starts(evaluate_starts(sample, points, SILENT_JOB), points, n_long, n_starts)
    if not begun:
        return None, {}
    runs = [climb(sample, x, bounds, SAMPLE_GAIN, rounds=1) for x in begun]
    runs += [challenge(sample, x, bounds, min(run[0] for run in runs), SILENT_JOB) for x in others[:1]]
    x = min(runs, key=lambda run: run[0])[1]
    root = newton_root(sample, x, bounds)
    objective.steepness, objective.points = sample.steepness, list(sample.points)
    if root is None or np.max(np.sum(root**2, axis=1)) > MAX_SAMPLE_VARIANCE:
        return x, {}
    return x, {"root": root * (len(index) / n) ** 0.5, "least": LEAST_SLOPE}


def warn_if_line(point, rows, columns=None):
    """Warn if every lengthscale exceeds the range of its column, and f is a constant or a line in the rows.

    So it ends where all that y shows is taken for noise. One long lengthscale among others only says that its column is
    irrelevant; and a long lengthscale with a large variance may give a curve: f is a line if it departs from the best
    one by less than a tenth of its own standard deviation, or of that of the noise, which is 1 for labels and counts.
    """
    ranges, longest = np.ptp(rows.X, axis=0), []
    for leaf in list_leaves(point.settings.covariance):
        if isinstance(leaf, Stationary) and not isinstance(leaf, Periodic):
            lengths = zip(leaf._chosen(len(ranges)), leaf._repeat_parameter("lengthscale", len(ranges)), strict=True)
            longest += [(ranges[j] / length, length, j) for j, length in lengths if ranges[j] > 0]
    if not longest or max(longest)[0] >= 1.0 or np.ptp(rows.y) == 0:  # the best f of a constant y is a constant
        return
    f, line = point.belief.mean, np.column_stack([np.ones(rows.n), rows.X])
    line = line / np.max(np.abs(line), axis=0, initial=np.finfo(float).tiny)
    spread = np.std(f - line @ np.linalg.lstsq(line, f)[0])
    noise = np.std(rows.y - rows.offset - f) if isinstance(point.settings.likelihood, NOISE_SCALE_KINDS) else 1.0
    if spread > MAX_LINE_DEPARTURE_SD * max(np.std(f), noise):
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
