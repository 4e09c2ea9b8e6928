"""`cavity fit glm`: coefficients of a generalised linear model with their uncertainty, and how well it predicts."""

from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from cavity.cli import options as shared
from cavity.cli import readers, targets
from cavity.cli.options import POSITIVE, Number
from cavity.cli.targets import LIKELIHOODS, REAL, robust_spread

HELP = "regression and classification: coefficients with their uncertainty"
DATA = "a shipped data set (pima), a .csv, .npy or .parquet file"
DRAWN = "coefficients and predictions"
INTERCEPT = "intercept"
WIDER = 100.0  # variance of the intercept over that of the coefficients
ROUNDS = 20  # of weighted least squares for a robust scale, which is a default and needs two figures
SETTINGS = targets.settings(
    "that of the least-squares residuals", "that of the residuals of least absolute deviations, by their median"
)


def add_options(command):
    """Add the options to the command."""
    columns = targets.add_columns(command)
    columns.add_argument("--no-intercept", action="store_true", help="add no column of ones")
    columns.add_argument("--no-standardize", action="store_true", help="leave the columns as they are")
    model = command.add_argument_group("model")
    model.add_argument("--likelihood", choices=LIKELIHOODS, default="probit", help="default probit")
    words = "of each coefficient (default 1, for real targets the square of (1.4826 MAD)); of the intercept 100 times "
    words += "as much, around 0 or, for real targets, the median"
    shared.add(model, *SETTINGS, Number("--prior-variance", POSITIVE, "V", words))
    words = "choose it by the log evidence (one factor for all)"
    model.add_argument("--learn-prior-variance", action="store_true", help=words)
    fit = shared.iteration(command, max_iter=200, tol=1e-8)
    shared.site_updates(fit, "[1e-6, 1]", ("parallel", "sequential", "stochastic"))
    fit.add_argument("--approximation", choices=("full", "diagonal"), default="full")


def fit(options):
    """Fit a generalised linear model by expectation propagation.

    Columns are scaled to mean 0 and standard deviation 1 and an intercept with a wide prior is added, unless told
    otherwise; all settings are printed.
    """
    from cavity.models.glm.model import GLM

    problem = problem_of(readers.whole(options.data), options)
    likelihood = likelihood_of(problem, options)
    prior_mean, prior_variance = prior_of(problem, options)
    if options.learn_prior_variance and options.approximation == "full":
        prior_variance = np.diag(prior_variance)  # a matrix is learned by one factor, a vector entry by entry
    model = GLM(likelihood, prior_mean, prior_variance, options.approximation)
    learn = "prior_variance" if options.learn_prior_variance else None
    posterior, seconds = shared.timed(model.fit, **problem.data(), **shared.site_options(options), learn=learn)

    def draw(plot):
        predicted = None if problem.classes else posterior.expected(problem.X, offset=problem.offset)
        words = problem.title, problem.target, problem.classes
        intercept = not options.no_intercept
        return plot.glm_figure(posterior, problem.names, problem.y, predicted, *words, intercept=intercept)

    return described(posterior, problem, options), report(problem, posterior, options, seconds), draw


def described(posterior, problem, options):
    """Return the posterior with what was done to the columns of the table, so that it takes those of another one."""
    first = 0 if options.no_intercept else 1
    scaled = not options.no_standardize and len(problem.names) > first
    return replace(
        posterior,
        columns=tuple(problem.names[first:]),
        classes=problem.classes or None,
        centre=problem.centre[first:].copy() if scaled else None,
        spread=problem.spread[first:].copy() if scaled else None,
        intercept=not options.no_intercept,
    )


def problem_of(table, options):
    """Return the matrix and the target that the options choose from the table."""
    problem = targets.chosen(table, options, options.likelihood)
    if not options.no_standardize:
        explicit = options.features is not None
        problem = problem.without_constants(table.source, explicit, ", or say --no-standardize")
    X, names = problem.X, problem.names
    if not names and options.no_intercept:
        raise ValueError(f"{table.source}: no columns to predict {problem.target!r} from, and no intercept")
    centre, spread = np.zeros(len(names)), np.ones(len(names))
    if not options.no_standardize:
        for j in range(len(names)):
            X[:, j], centre[j], spread[j] = standardized(X[:, j].copy())
    if not options.no_intercept:
        X, names = np.column_stack([np.ones(len(X)), X]), [INTERCEPT, *names]
        centre, spread = np.append(0.0, centre), np.append(1.0, spread)
    return replace(problem, X=X, names=names, centre=centre, spread=spread)


def standardized(values):
    """Return a column with mean 0 and standard deviation 1, its mean and its standard deviation."""
    unit = np.max(np.abs(values))  # squares of the rest neither overflow nor vanish
    values = values / unit
    centre, spread = np.mean(values), np.std(values)
    return (values - centre) / spread, centre * unit, spread * unit


def likelihood_of(problem, options):
    """Return the likelihood with the settings asked for; scales not given are those of residuals."""
    make, known = LIKELIHOODS[options.likelihood]
    given = targets.given_settings(options, options.likelihood, known, SETTINGS)
    if {"noise_variance", "scale"}.intersection(known) - set(given):
        make(**given)  # speaks up about the other settings before the work
        if options.likelihood == "gaussian":
            given["noise_variance"] = residual_size(problem, np.square, np.mean)
        elif options.likelihood == "laplace":
            given["scale"] = residual_size(problem, np.abs, np.median) / np.log(2)
        else:
            quartile = float(stdtrit(given.get("degrees_of_freedom", 4.0), 0.75))
            given["scale"] = residual_size(problem, np.abs, np.median) / quartile
    return make(**given)


def residual_size(problem, size, average):
    """Return the average size of the residuals of the regression that makes the sum of sizes small.

    For squares this is least squares. For absolute values it is done by weighted least squares, from the median of the
    target on: outliers in the target do not matter. With few rows for the columns residuals say little (they vanish
    if there are as many columns as rows); then the size is that of the target itself, as if the columns explained
    nothing of it.
    """
    X, y = problem.X, problem.y - (0.0 if problem.offset is None else problem.offset)
    n, d = X.shape
    spread = robust_spread(y)
    centred = (y - np.median(y)) / spread
    rest = centred
    if n >= 2 * d:
        for _ in range(1 if size is np.square else ROUNDS):
            weighted = X / (np.ones(n) if size is np.square else np.maximum(np.abs(rest), 1e-6))[:, None]
            rest = centred - X @ np.linalg.lstsq(weighted.T @ X, weighted.T @ centred)[0]
    least = size(1e-4)  # a target without noise still needs a likelihood with a width
    share = n / (n - d) if n >= 2 * d else 1.0
    return float(max(average(size(rest)) * share, least) * size(spread))


def prior_of(problem, options):
    """Return mean and variance of the prior, one entry for each column."""
    real = options.likelihood in REAL
    y = problem.y - (0.0 if problem.offset is None else problem.offset)
    default = robust_spread(y) ** 2 if real else 1.0
    variance = default if options.prior_variance is None else options.prior_variance
    mean = np.zeros(len(problem.names))
    variances = np.full(len(problem.names), float(variance))
    if not options.no_intercept:
        mean[0] = np.median(y) if real else 0.0
        variances[0] *= WIDER
    return mean, variances


def report(problem, posterior, options, seconds):
    """Yield the lines of the printed result."""
    yield from targets.heading(problem)
    yield "model"
    likelihood = posterior.model.likelihood
    settings = (f"{name} {getattr(likelihood, name):.6g}" for name in LIKELIHOODS[options.likelihood][1])
    yield f"  likelihood       {', '.join((options.likelihood, *settings))}"
    prior_mean, prior_variance = posterior.model.prior_mean, posterior.model.prior_variance
    spread = np.diag(prior_variance) if prior_variance.ndim == 2 else prior_variance
    learned = " (learned)" if options.learn_prior_variance else ""
    if not options.no_intercept:
        yield f"  intercept        prior mean {prior_mean[0]:.6g}, variance {spread[0]:.6g}{learned}"
    if len(problem.names) > (not options.no_intercept):
        yield f"  coefficients     prior mean 0, variance {spread[-1]:.6g}{learned}"
    if options.no_standardize:
        yield "coefficients, per unit of the column"
    else:
        yield "coefficients, per standard deviation of the column (columns were scaled to mean 0 and sd 1)"
    yield from coefficients(problem, posterior, options)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    instead = "not available: it needs --method ep and another schedule than stochastic"
    yield from targets.leave_one_out(posterior, problem, instead)
    yield "fit"
    yield shared.end_line(posterior.method.upper(), posterior, "", seconds)


def coefficients(problem, posterior, options):
    """Yield the lines of the table of coefficients."""
    width = max(len("name"), *map(len, problem.names))
    header = f"  {'name':<{width}} {'mean':>14} {'sd':>12} {'mean/sd':>9}"
    yield header if options.no_standardize else f"{header} {'column mean':>14} {'column sd':>12}"
    for j, name in enumerate(problem.names):
        mean, sd = posterior.mean[j], np.sqrt(posterior.variance[j])
        digits = max(0, 3 - int(np.floor(np.log10(sd))))  # decimals to the fourth figure of the sd
        line = f"  {name:<{width}} {mean:>z14.{digits}f} {sd:>12.{digits}f} {mean / sd:>z9.2f}"
        if not options.no_standardize and (j > 0 or options.no_intercept):
            line += f" {problem.centre[j]:>14.6g} {problem.spread[j]:>12.6g}"
        yield line
