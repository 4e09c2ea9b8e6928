"""Shared parts of the commands of Gaussian processes: options, the model scaled to the data, and its report."""

from argparse import BooleanOptionalAction
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from cavity.base.column_statistics import robust_spread
from cavity.cli import regression_data
from cavity.cli.data_table import list_first
from cavity.cli.fit_commands import collect_typed, format_numbers
from cavity.cli.options import Number, Option
from cavity.cli.regression_data import ORDERED_PROBIT
from cavity.covariances.strings import COVARIANCES_BY_NAME, INITIAL_NOISE_SHARE, make_covariance
from cavity.likelihoods.names import REAL_LIKELIHOODS
from cavity.likelihoods.parameters import list_scales
from cavity.models.defaults import LOGITS_PER_PROBIT, choose_for_times
from cavity.models.process.defaults import find_strongest_periods

MEAN_FUNCTIONS = ("zero", "constant", "linear")
LIKELIHOOD_OPTIONS = (
    *regression_data.make_likelihood_options("learnt, by streaming-gp 1"),
    Number("--thresholds", "finite", "A,B", f"of {ORDERED_PROBIT} (default by the shares)", several=True),
)
START_OPTIONS = (  # of the search for hyperparameters
    Number("--variance", "positive", "V", "of the function at first (default that of the target, or 1)"),
    Number("--lengthscale", "positive", "L,M", "at first, one or one for each column (default its sd)", several=True),
    Number("--period", "positive", "P", "of periodic, at first (default that of the periodogram; sd with --no-ard)"),
    *LIKELIHOOD_OPTIONS,
)


def make_model_options(default, without=()):
    """Return the options of likelihood and covariance; `default` describes the default likelihood."""
    leaves = ", ".join(name for name in COVARIANCES_BY_NAME if name not in without)
    covariance = f"sums and products, like rbf+linear*periodic, of {leaves}; numbers in brackets are the first "
    covariance += "variance, lengthscale and period or shape, as in rbf(2,0.5) (default rbf)"
    ard = "a lengthscale for each column, or one for columns of one unit (default --ard)"
    return (
        Option("--likelihood", regression_data.LIKELIHOOD_NAMES, default),
        Option("--covariance", "SUM", covariance),
        Option("--ard", None, ard, True, action=BooleanOptionalAction),
    )


def add_scales(problem, first=slice(None)):
    """Return the problem with the spread of columns and target in the slice `first` of its rows."""
    spread = problem.X[first].std(axis=0)
    size = robust_spread(problem.y[first]) ** 2 if problem.likelihood in REAL_LIKELIHOODS else 1.0
    if size == 0.0:
        raise OverflowError(f"squares of column {problem.target!r} are below the range of float64; rescale it")
    return replace(problem, spread=np.where(spread > 0, spread, 1.0), size=size)


def check_plot(options):
    """Raise ValueError for --plot together with --offset."""
    if options.plot is not None and options.offset is not None:
        raise ValueError("--plot draws expectations of rows without offset; leave out --plot or --offset")


def likelihood_of(problem, options, **defaults):
    """Return the likelihood, and whether its scale is fixed by options; `defaults` are settings that are not learnt."""
    likelihood = regression_data.likelihood_of(options, problem.likelihood, LIKELIHOOD_OPTIONS)
    if problem.event is not None:
        return choose_for_times(likelihood), False
    kind = type(likelihood)
    parameters, scales = kind.parameters, list_scales(kind)
    settings = {name: value for name, value in defaults.items() if name in parameters}
    settings |= collect_typed(options, LIKELIHOOD_OPTIONS)
    fixed = any(name in settings for name in scales)
    if "thresholds" in parameters and "thresholds" not in settings:
        below = np.cumsum(np.bincount(problem.y.astype(int), minlength=len(problem.classes)))[:-1] / len(problem.y)
        # with an f of variance 1 and the noise of the likelihood these thresholds give the shares of the classes
        noise = 1.0 if problem.likelihood == ORDERED_PROBIT else LOGITS_PER_PROBIT
        settings["thresholds"] = np.sqrt(1.0 + noise**2) * ndtri(below)
    for name in () if fixed else scales:
        variance = INITIAL_NOISE_SHARE * problem.size
        settings[name] = variance if name == "noise_variance" else np.sqrt(variance)
    return kind(**settings), fixed


def covariance_of(problem, options):
    """Return the covariance that --covariance describes, at the start of the search."""
    size = problem.size if options.variance is None else options.variance
    start = None if options.lengthscale is None else resolve_lengthscales(options, problem)
    period = options.period
    if period is None and options.ard and problem.y.ndim == 1:
        period = find_strongest_periods(problem.X, problem.y, problem.spread)
    first = dict(ard=options.ard, lengthscale=start, period=period)
    return make_covariance(options.covariance or "rbf", problem.spread, size, **first)


def resolve_lengthscales(options, problem):
    """Return the typed lengthscales: one, or with ARD one for each column."""
    scales, count = options.lengthscale, len(problem.names) if options.ard else 1
    if len(scales) not in (1, count):
        raise ValueError(f"--lengthscale takes one number{f' or {count}' if count > 1 else ''}, got {len(scales)}")
    return np.full(count, scales[0]) if len(scales) < count else np.array(scales) if options.ard else scales[0]


def report_model(problem, model, mean, learn):
    """Yield the lines of columns and model: likelihood, mean function, covariance by the names of its parameters.

    `mean` is a description; `learn` is that of `fit`.
    """
    yield f"  columns          {list_first(problem.names, 12)}"
    yield "model"
    settings = [f"{name} {format_numbers(getattr(model.likelihood, name))}" for name in model.likelihood.parameters]
    suffix = " (learnt)" if learn is True and list_scales(model.likelihood) else ""
    yield f"  likelihood       {', '.join((problem.likelihood, *settings))}{suffix}"
    yield f"  mean             {mean}"
    yield f"  covariance{'' if learn is False else ' (learnt)'}"
    covariance = model.covariance
    logs, bounds = covariance.log_parameters, covariance.log_bounds
    edges = dict(zip(covariance.parameter_names, np.any(logs[:, None] == bounds, axis=1), strict=True))
    for name, value in covariance.parameters.items():
        for d, single in enumerate(np.atleast_1d(value)):
            entry = f"{name}[{d}]" if np.ndim(value) else name
            column = f"  {problem.names[d]}" if np.ndim(value) else ""
            edge = "  (at its bound)" if learn is not False and edges.get(entry) else ""
            yield f"    {entry:<24} {single:>12.6g}{column}{edge}"
