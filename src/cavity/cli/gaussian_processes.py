"""What the commands with Gaussian processes share: the model that options describe, scaled to data, and its words."""

import re
from argparse import BooleanOptionalAction
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from cavity import likelihoods
from cavity.cli import targets
from cavity.cli.options import FINITE, POSITIVE, Number
from cavity.cli.table import some
from cavity.cli.targets import ORDERED

MEANS = ("zero", "constant", "linear")
NOISE = 0.1  # share of the variance of a real target that the noise has at first
SHORTEST, LONGEST = 1e-3, 1e4  # lengthscales learnt lie between these multiples of the spread of a column
SMALLEST, LARGEST = 1e-6, 1e6  # variances learnt, of what they are at first
LIKELIHOODS = targets.LIKELIHOODS | {ORDERED: (likelihoods.OrderedProbit, ("thresholds",))}
OUTSIDE = {sign: re.compile(rf"\{sign}(?![^(]*\))") for sign in "+*"}  # signs outside of brackets
SCALES = ("noise_variance", "scale")  # settings that are learnt if they are not given
LEAVES = {
    "rbf": "RBF",
    "matern12": "Matern12",
    "matern32": "Matern32",
    "matern52": "Matern52",
    "rational-quadratic": "RationalQuadratic",
    "periodic": "Periodic",
    "linear": "Linear",
    "constant": "Constant",
    "white": "White",
}


SETTINGS = (
    *targets.settings("learnt", "learnt"),
    Number("--thresholds", FINITE, "A,B", f"of {ORDERED} (default by the shares)", several=True),
)
STARTS = (  # of the search for hyperparameters
    Number("--variance", POSITIVE, "V", "of the function at first (default that of the target, or 1)"),
    Number("--lengthscale", POSITIVE, "L,M", "at first, one or one for each column (default its sd)", several=True),
    Number("--period", POSITIVE, "P", "of periodic, at first (default sd of the column)"),
    *SETTINGS,
)


def add_model(model, default, without=()):
    """Add the options of likelihood and covariance; `default` says what likelihood it is by default."""
    model.add_argument("--likelihood", choices=LIKELIHOODS, help=default)
    leaves = ", ".join(name for name in LEAVES if name not in without)
    words = f"sums and products, like rbf+linear*periodic, of {leaves}; numbers in brackets are the first variance, "
    words += "lengthscale and period or shape, as in rbf(2,0.5) (default rbf)"
    model.add_argument("--covariance", metavar="SUM", help=words)
    words = "a lengthscale for each column, or one for columns of one unit (default --ard)"
    model.add_argument("--ard", action=BooleanOptionalAction, default=True, help=words)


def default_likelihood(table, options, classes=None):
    """Return probit for a target of two values (or classes, if they are known), else gaussian.

    Two rows of numbers, as a small first batch of a stream may have, are no classes.
    """
    if classes is not None:
        return "probit" if len(classes) == 2 else ORDERED
    target = targets.target_of(table, options)
    table.check_complete([target])
    kinds, y = targets.kinds_of(table, target)
    if len(kinds) != 2 and table.is_text(target):
        raise ValueError(f"{table.source}: column {target!r} has {len(kinds)} classes; say --likelihood {ORDERED}")
    return "probit" if len(kinds) == 2 and (len(y) > 2 or table.is_text(target)) else "gaussian"


def scaled(problem, first=slice(None)):
    """Return the problem with how much columns and target vary in the slice `first` of its rows."""
    spread = problem.X[first].std(axis=0)
    size = targets.robust_spread(problem.y[first]) ** 2 if problem.likelihood in targets.REAL else 1.0
    return replace(problem, spread=np.where(spread > 0, spread, 1.0), size=size)


def check_plot(options):
    """Raise ValueError if a picture was asked for that cannot be drawn."""
    if options.plot is not None and options.offset is not None:
        raise ValueError("--plot draws expectations of rows without offset; leave out --plot or --offset")


def likelihood_of(problem, options):
    """Return the likelihood, and whether its scale was given."""
    make, known = LIKELIHOODS[problem.likelihood]
    given = targets.given_settings(options, problem.likelihood, known, SETTINGS)
    fixed = any(name in given for name in SCALES)
    if "thresholds" in known and "thresholds" not in given:
        below = np.cumsum(np.bincount(problem.y.astype(int), minlength=len(problem.classes)))[:-1] / len(problem.y)
        given["thresholds"] = np.sqrt(2.0) * ndtri(below)  # f of variance 1 and noise of variance 1 give these shares
    for name in SCALES:
        if name in known and not fixed:
            given[name] = NOISE * problem.size if name == "noise_variance" else np.sqrt(NOISE * problem.size)
    return make(**given), fixed


def covariance_of(problem, options):
    """Return the covariance that --covariance describes, at the start of the search."""
    size = problem.size if options.variance is None else options.variance
    described = options.covariance or "rbf"
    terms = [[parsed(factor) for factor in OUTSIDE["*"].split(term)] for term in OUTSIDE["+"].split(described)]
    total = None
    for first, *others in terms:
        share = NOISE * size if first[0] == "white" else size / len(terms)
        product = leaf_of(*first, share, problem, options)
        for factor in others:
            product = product * leaf_of(*factor, 1.0, problem, options, scaled=False)
        total = product if total is None else total + product
    return total


def parsed(factor):
    """Return the name of a factor like rbf(2,0.5), and its numbers."""
    name, bracket, rest = (part.strip() for part in factor.partition("("))
    if name not in LEAVES:
        raise ValueError(f"--covariance: {name!r} is none of {', '.join(LEAVES)}")
    if not bracket:
        return name, []
    try:
        return name, [float(part) for part in rest.removesuffix(")").split(",")]
    except ValueError:
        raise ValueError(f"--covariance: expected numbers in brackets, like {name}(2,0.5), got {factor!r}") from None


def leaf_of(name, given, variance, problem, options, scaled=True):
    """Return a part of the covariance; further factors of a product are not scaled, the first one is."""
    from cavity import covariances

    settings, bounds = starts_of(name, variance, problem, options)
    if len(given) > len(settings):
        raise ValueError(f"--covariance: {name} has {', '.join(settings)}, got {len(given)} numbers")
    for setting, value in zip(settings, given, strict=False):
        if not 0.0 < value < np.inf:
            raise ValueError(f"--covariance: the {setting} of {name} must be positive, got {value:g}")
        settings[setting] = value + np.zeros(np.shape(settings[setting]))
        low, high = (SMALLEST, LARGEST) if setting == "variance" else (SHORTEST, LONGEST)
        bounds[setting] = low * value, high * value
    fixed = () if scaled or name == "linear" else ("variance",)
    return getattr(covariances, LEAVES[name])(**settings, fixed=fixed, bounds=bounds)


def starts_of(name, variance, problem, options):
    """Return the settings of a part of the covariance, scaled to the columns, and bounds of some of them."""
    spread = problem.spread
    bounds = {"variance": (SMALLEST * variance, LARGEST * variance)}
    if name in ("constant", "white"):
        return {"variance": variance}, bounds
    if not options.ard:
        spread = np.exp(np.mean(np.log(spread)))
    if name == "linear":
        slope = variance / spread**2
        return {"variance": slope}, {"variance": (SMALLEST * np.min(slope), LARGEST * np.max(slope))}
    start = spread if options.lengthscale is None else lengthscales(options, problem)
    reach = SHORTEST * np.min([np.min(spread), np.min(start)]), LONGEST * np.max([np.max(spread), np.max(start)])
    if name == "periodic":
        period = spread if options.period is None else options.period
        return {"variance": variance, "lengthscale": 1.0, "period": period}, bounds | {"period": reach}
    further = {"shape": 1.0} if name == "rational-quadratic" else {}
    return {"variance": variance, "lengthscale": start} | further, bounds | {"lengthscale": reach}


def lengthscales(options, problem):
    """Return the lengthscales that were given: one, or with ARD one for each column."""
    given, wanted = options.lengthscale, len(problem.names) if options.ard else 1
    if len(given) not in (1, wanted):
        raise ValueError(f"--lengthscale takes one number{f' or {wanted}' if wanted > 1 else ''}, got {len(given)}")
    return np.full(wanted, given[0]) if len(given) < wanted else np.array(given) if options.ard else given[0]


def model_lines(problem, model, mean, learn):
    """Yield the lines about columns and model: likelihood, mean function, covariance by the names of its parameters.

    `mean` is in words; `learn` says what was learnt, as in `fit`.
    """
    known = LIKELIHOODS[problem.likelihood][1]
    yield f"  columns          {some(problem.names, 12)}"
    yield "model"
    settings = [f"{name} {shown(getattr(model.likelihood, name))}" for name in known]
    learnt = " (learnt)" if learn is True and any(name in SCALES for name in known) else ""
    yield f"  likelihood       {', '.join((problem.likelihood, *settings))}{learnt}"
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


def shown(value):
    """Return words for a number or several."""
    return ", ".join(f"{each:.6g}" for each in np.ravel(value))
