"""`cavity fit gp`: a Gaussian process through a column of a table, with what it learnt and how well it predicts."""

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np

from .. import likelihoods
from . import options as shared
from . import tables, targets

MANY = 2000  # most rows fitted without being asked to
NOISE = 0.1  # share of the variance of a real target that the noise has at first
SHORTEST, LONGEST = 1e-3, 1e4  # lengthscales learnt lie between these multiples of the spread of a column
SMALLEST, LARGEST = 1e-6, 1e6  # variances learnt, of what they are at first
ORDERED = "ordered-probit"
LIKELIHOODS = targets.LIKELIHOODS | {ORDERED: (likelihoods.OrderedProbit, ("thresholds",))}
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
MEANS = ("zero", "constant", "linear")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted, and the rows that are not."""

    X: np.ndarray
    names: list
    y: np.ndarray
    target: str
    classes: tuple
    offset: np.ndarray | None
    weights: np.ndarray | None
    spread: np.ndarray  # standard deviation of each column
    size: float  # variance of the target; 1 where that is not a real number
    likelihood: str
    notes: list
    rest: object  # the same of the rows that are left out, or None


def add(models):
    """Add the subcommand to the parser."""
    command = models.add_parser(
        "gp",
        help="regression and classification by smooth functions of the columns",
        description="Fit a Gaussian process: exactly for Gaussian noise, else by expectation propagation. The "
        "covariance and the noise are learnt by maximising the evidence, from starts scaled to the columns, which need "
        "no scaling themselves.",
    )
    command.add_argument("data", help="a shipped data set (motorcycle, banana, pima), a .csv or a .npy file")
    columns = targets.add_columns(command)
    columns.add_argument("--rows", type=int, metavar="N", help="fit the first N rows and predict the others")
    model = command.add_argument_group("model")
    model.add_argument(
        "--likelihood", choices=LIKELIHOODS, help="default probit for a target of two values, else gaussian"
    )
    model.add_argument(
        "--covariance",
        default="rbf",
        metavar="SUM",
        help=f"sums and products, like rbf+linear*periodic, of {', '.join(LEAVES)} (default rbf)",
    )
    model.add_argument(
        "--ard",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a lengthscale for each column, or one for columns of one unit (default --ard)",
    )
    model.add_argument("--mean", choices=MEANS, help="default zero for classes, else constant (learnt)")
    add_starts(model)
    targets.add_settings(model, "learnt", "learnt")
    model.add_argument("--thresholds", type=numbers, metavar="A,B", help=f"of {ORDERED} (default by the shares)")
    fit = shared.iteration(command, max_iter=200, tol=1e-8)
    shared.steps(fit, "[1e-6, 1]")
    fit.add_argument("--schedule", choices=("auto", "sequential", "parallel"), default="auto")
    fit.add_argument("--starts", type=int, default=1, metavar="S", help="starts of the search (default 1)")
    shared.output(command, "the function, of more than two columns along each of them")
    command.set_defaults(run=run)


def add_starts(model):
    """Add where the search for hyperparameters begins."""
    model.add_argument("--no-learn", action="store_true", help="keep all hyperparameters at their first values")
    model.add_argument(
        "--variance", type=float, metavar="V", help="of the function at first (default that of the target, or 1)"
    )
    model.add_argument(
        "--lengthscale", type=numbers, metavar="L,M", help="at first, one or one for each column (default its sd)"
    )
    model.add_argument("--period", type=float, metavar="P", help="of periodic, at first (default sd of the column)")


def numbers(text):
    """Return the numbers in a list separated by commas."""
    return [float(part) for part in text.split(",")]


numbers.__name__ = "numbers, one or several separated by commas,"


def run(options):
    """Fit, print, save, plot."""
    from ..gp import GaussianProcess

    table = tables.read_columns(options.data)
    shared.check_output(options)
    if options.plot is not None and options.offset is not None:
        raise ValueError("--plot draws expectations of rows without offset; leave out --plot or --offset")
    problem = problem_of(table, options)
    likelihood, given = likelihood_of(problem, options)
    covariance = covariance_of(problem, options)
    mean = options.mean or ("zero" if problem.classes else "constant")
    model = GaussianProcess(covariance, likelihood, 0.0 if mean == "zero" else mean)
    learn = False if options.no_learn else ("covariance" if given else True)
    started = time.perf_counter()
    posterior = model.fit(
        problem.X,
        problem.y,
        offset=problem.offset,
        sample_weight=problem.weights,
        learn=learn,
        n_starts=options.starts,
        schedule=options.schedule,
        damping=options.damping,
        power=options.power,
        max_iter=options.max_iter,
        tol=options.tol,
        n_threads=options.threads,
    )
    seconds = time.perf_counter() - started
    posterior = replace(posterior, columns=tuple(problem.names))
    title = table.about.get("title", table.source)

    def draw():
        from ..plot import gp_figure

        labels = [label(name, table.about) for name in (*problem.names, problem.target)]
        return gp_figure(posterior, problem.y, labels[:-1], labels[-1], title, problem.classes)

    return shared.deliver(options, posterior, report(title, problem, posterior, mean, learn, seconds), draw)


def label(name, about):
    """Return a name with its unit, if that is known."""
    unit = about.get("units", {}).get(name)
    return f"{name} [{unit}]" if unit else name


def problem_of(table, options):
    """Return the matrix and the target that the options choose from the table."""
    kind = options.likelihood or default_likelihood(table, options)
    rows = targets.chosen(table, options, kind, (ORDERED,))
    names, values, notes = rows.without_constants(table.source, options.features is not None)
    if not values:
        raise ValueError(f"{table.source}: no columns to predict {rows.target!r} from")
    n = fitted_rows(table, options, len(rows.y))
    X = np.ascontiguousarray(np.column_stack(values))
    spread = X[:n].std(axis=0)
    problem = Problem(
        X=X,
        names=names,
        y=rows.y,
        target=rows.target,
        classes=rows.classes,
        offset=rows.offset,
        weights=rows.weights,
        spread=np.where(spread > 0, spread, 1.0),
        size=targets.robust_spread(rows.y[:n]) ** 2 if kind in targets.REAL else 1.0,
        likelihood=kind,
        notes=notes,
        rest=None,
    )
    rest = part(problem, slice(n, None)) if n < len(X) else None
    return replace(part(problem, slice(n)), rest=rest)


def part(problem, rows):
    """Return the problem of some of the rows."""
    several = {name: getattr(problem, name) for name in ("X", "y", "offset", "weights")}
    return replace(problem, **{name: None if value is None else value[rows] for name, value in several.items()})


def default_likelihood(table, options):
    """Return probit for a target of two values, else gaussian."""
    target = targets.target_of(table, options)
    table.check_complete([target])
    kinds, _ = targets.kinds_of(table, target)
    if len(kinds) != 2 and table.is_text(target):
        raise ValueError(f"{table.source}: column {target!r} has {len(kinds)} classes; say --likelihood {ORDERED}")
    return "probit" if len(kinds) == 2 else "gaussian"


def fitted_rows(table, options, total):
    """Return how many of the first rows are fitted."""
    if options.rows is not None:
        if not 1 <= options.rows <= total:
            raise ValueError(f"--rows must be from 1 to {total}, the rows of {table.source}, got {options.rows}")
        return options.rows
    rows = table.about.get("rows", total)
    if rows > MANY:
        raise ValueError(
            f"{table.source}: {rows} rows need {16 * rows**2 / 1e9:.3g} GB and a time that grows with their cube; say "
            f"--rows {MANY} to fit the first {MANY} and predict the others, or --rows {rows} to fit all"
        )
    return rows


def likelihood_of(problem, options):
    """Return the likelihood, and whether its scale was given."""
    make, known = LIKELIHOODS[problem.likelihood]
    given = targets.given_settings(options, problem.likelihood, known, (*targets.SETTINGS, "thresholds"))
    fixed = any(name in given for name in SCALES)
    if "thresholds" in known and "thresholds" not in given:
        below = np.cumsum(np.bincount(problem.y.astype(int), minlength=len(problem.classes)))[:-1] / len(problem.y)
        from scipy.special import ndtri

        given["thresholds"] = np.sqrt(2.0) * ndtri(below)  # f of variance 1 and noise of variance 1 give these shares
    for name in SCALES:
        if name in known and not fixed:
            given[name] = NOISE * problem.size if name == "noise_variance" else np.sqrt(NOISE * problem.size)
    return make(**given), fixed


def covariance_of(problem, options):
    """Return the covariance that --covariance describes, at the start of the search."""
    size = problem.size if options.variance is None else options.variance
    terms = [[factor.strip() for factor in term.split("*")] for term in options.covariance.split("+")]
    unknown = [name for term in terms for name in term if name not in LEAVES]
    if unknown:
        raise ValueError(f"--covariance: {unknown[0]!r} is none of {', '.join(LEAVES)}")
    total = None
    for first, *others in terms:
        share = NOISE * size if first == "white" else size / len(terms)
        product = leaf_of(first, share, problem, options)
        for name in others:
            product = product * leaf_of(name, 1.0, problem, options, scaled=False)
        total = product if total is None else total + product
    return total


def leaf_of(name, variance, problem, options, scaled=True):
    """Return a part of the covariance; further factors of a product are not scaled, the first one is."""
    from .. import covariances

    make, spread = getattr(covariances, LEAVES[name]), problem.spread
    bounds = {"variance": (SMALLEST * variance, LARGEST * variance)}
    fixed = () if scaled else ("variance",)
    if name in ("constant", "white"):
        return make(variance, fixed=fixed, bounds=bounds)
    if not options.ard:
        spread = np.exp(np.mean(np.log(spread)))
    if name == "linear":
        slope = variance / spread**2
        bounds["variance"] = SMALLEST * np.min(slope), LARGEST * np.max(slope)
        return make(slope, bounds=bounds)
    start = spread if options.lengthscale is None else lengthscales(options, problem)
    reach = SHORTEST * np.min([np.min(spread), np.min(start)]), LONGEST * np.max([np.max(spread), np.max(start)])
    if name == "periodic":
        start, bounds["period"] = spread if options.period is None else options.period, reach
        return make(variance, 1.0, start, fixed=fixed, bounds=bounds)
    return make(variance, start, fixed=fixed, bounds=bounds | {"lengthscale": reach})


def lengthscales(options, problem):
    """Return the lengthscales that were given: one, or with ARD one for each column."""
    given, wanted = options.lengthscale, len(problem.names) if options.ard else 1
    if len(given) not in (1, wanted):
        raise ValueError(f"--lengthscale takes one number{f' or {wanted}' if wanted > 1 else ''}, got {len(given)}")
    return np.full(wanted, given[0]) if len(given) < wanted else np.array(given) if options.ard else given[0]


def report(title, problem, posterior, mean, learn, seconds):
    """Yield the lines of the printed result."""
    yield from targets.heading(title, problem.y, problem.target, problem.classes, problem.notes)
    yield f"  columns          {tables.some(problem.names, 12)}"
    yield "model"
    yield from model_lines(problem, posterior.model, mean, learn)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    try:
        loo = posterior.loo_log_density
    except ValueError as error:  # a cavity without a row is improper
        yield f"  leave-one-out    {error}"
    else:
        yield from targets.score_lines("leave-one-out", loo, problem.y, problem.classes, problem.weights)
    if problem.rest is not None:
        rest = problem.rest
        density = posterior.log_density(rest.X, rest.y, offset=rest.offset)
        yield f"  {len(rest.y)} rows that were not fitted"
        yield from targets.score_lines("  new rows", density, rest.y, problem.classes, rest.weights)
    yield "fit"
    done = "converged" if posterior.converged else f"NOT CONVERGED: {posterior.status}"
    method = "exact" if isinstance(posterior.model.likelihood, likelihoods.Gaussian) else "EP"
    tried = len(posterior.trace["learning"])
    search = f", {tried} hyperparameters tried" if tried else ""
    yield f"  {method:<16} {done}, {posterior.n_iter} pass(es){search}, {1e3 * seconds:.3g} ms"


def model_lines(problem, model, mean, learn):
    """Yield the lines about the model: likelihood, mean function, covariance by the names of its parameters."""
    known = LIKELIHOODS[problem.likelihood][1]
    settings = [f"{name} {shown(getattr(model.likelihood, name))}" for name in known]
    learnt = " (learnt)" if learn is True and any(name in SCALES for name in known) else ""
    yield f"  likelihood       {', '.join((problem.likelihood, *settings))}{learnt}"
    found = "" if mean == "zero" else f" {shown(model.mean)} (learnt)"
    yield f"  mean             {mean}{found}"
    yield f"  covariance{'' if learn is False else ' (learnt)'}"
    covariance = model.covariance
    logs, bounds = covariance.log_parameters, covariance.log_bounds
    edges = dict(zip(covariance.parameter_names, np.any(logs[:, None] == bounds, axis=1), strict=True))
    for name, value in covariance.parameters.items():
        for d, number in enumerate(np.atleast_1d(value)):
            entry = f"{name}[{d}]" if np.ndim(value) else name
            column = f"  {problem.names[d]}" if np.ndim(value) else ""
            edge = "  (at its bound)" if learn is not False and edges.get(entry) else ""
            yield f"    {entry:<24} {number:>12.6g}{column}{edge}"


def shown(value):
    """Return words for a number or several."""
    return ", ".join(f"{number:.6g}" for number in np.ravel(value))
