"""`cavity fit glm`: coefficients of a generalised linear model with their uncertainty, and how well it predicts."""

from dataclasses import replace

import numpy as np

from cavity.base.scales import robust_spread, weighted_median
from cavity.cli import options as shared
from cavity.cli import readers, targets
from cavity.cli.options import POSITIVE, Number
from cavity.cli.targets import LIKELIHOODS, REAL
from cavity.likelihoods.named import named

HELP = "regression and classification: coefficients with their uncertainty"
DATA = "a shipped data set (pima), a .csv, .npy or .parquet file"
DRAWN = "coefficients and predictions"
SETTINGS = targets.settings("learnt")


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
    words = "choose it by the log evidence (one factor for all coefficients)"
    model.add_argument("--learn-prior-variance", action="store_true", help=words)
    fit = shared.iteration(command, max_iter=200, tol=1e-8)
    shared.site_updates(fit, "[1e-6, 1]", ("parallel", "sequential", "stochastic"))
    fit.add_argument("--approximation", choices=("full", "diagonal"), default="full")


def fit(options):
    """Fit a generalised linear model by expectation propagation.

    Columns are scaled to mean 0 and standard deviation 1 and an intercept with a wide prior is added, unless told
    otherwise; scales of the likelihood that are not given are learnt; all settings are printed.
    """
    problem = problem_of(readers.whole(options.data), options)
    learn = "prior_variance" if options.learn_prior_variance else None
    model, data = model_of(problem, options)
    posterior, seconds = shared.timed(model.fit, **data, **shared.site_options(options), learn=learn)
    intercept = not options.no_intercept
    posterior = replace(posterior, columns=tuple(problem.names), classes=problem.classes or None, intercept=intercept)

    def draw(plot):
        predicted = None if problem.classes else posterior.expected(problem.X, offset=problem.offset)
        words = problem.title, problem.target, problem.classes
        names = list(posterior.coefficient_names)
        return plot.glm_figure(posterior, names, problem.y, predicted, *words, intercept=intercept)

    return posterior, report(problem, posterior, options, seconds), draw


def problem_of(table, options):
    """Return the matrix and the target that the options choose from the table."""
    problem = targets.chosen(table, options, options.likelihood)
    if not options.no_standardize:
        explicit = options.features is not None
        problem = problem.without_constants(table.source, explicit, ", or say --no-standardize")
    if not problem.names and options.no_intercept:
        raise ValueError(f"{table.source}: no columns to predict {problem.target!r} from, and no intercept")
    return problem


def model_of(problem, options):
    """Return the model, and the rows as the keyword arguments of its `fit`."""
    from cavity.models.glm.defaults import WIDER
    from cavity.models.glm.model import GLM

    given = targets.given_settings(options, options.likelihood, LIKELIHOODS[options.likelihood], SETTINGS)
    likelihood = replace(named(options.likelihood), **given)
    y, variance = problem.y - (0.0 if problem.offset is None else problem.offset), options.prior_variance
    real = options.likelihood in REAL
    if variance is None:
        variance = robust_spread(y, problem.weights) ** 2 if real else 1.0
    if not problem.names:  # an intercept alone
        middle = weighted_median(y, problem.weights) if real else 0.0
        model = GLM(likelihood, middle, WIDER * variance, options.approximation, intercept=False)
        return model, problem.data() | {"X": np.ones((len(y), 1))}
    intercept = False if options.no_intercept else WIDER * variance
    settings = dict(prior_variance=variance, approximation=options.approximation, intercept=intercept)
    return GLM(likelihood, standardize=not options.no_standardize, **settings), problem.data()


def report(problem, posterior, options, seconds):
    """Yield the lines of the printed result."""
    yield from targets.heading(problem)
    yield "model"
    likelihood, learnt = posterior.model.likelihood, posterior.learnt.names if posterior.learnt else ()
    settings = (
        f"{name} {getattr(likelihood, name):.6g}{' (learnt)' if name in learnt else ''}"
        for name in likelihood.parameters
    )
    yield f"  likelihood       {', '.join((options.likelihood, *settings))}"
    prior_mean, prior_variance = posterior.model.prior_mean, posterior.model.prior_variance
    learned = " (learnt)" if options.learn_prior_variance else ""
    if not options.no_intercept:
        first, variance = np.ravel(prior_mean)[0], np.ravel(prior_variance)[0]
        yield f"  intercept        prior mean {first:.6g}, variance {variance:.6g}{'' if problem.names else learned}"
    if problem.names:
        yield f"  coefficients     prior mean 0, variance {np.ravel(prior_variance)[-1]:.6g}{learned}"
    if options.no_standardize:
        yield "coefficients, per unit of the column"
    else:
        how = "divided by their sd" if options.no_intercept else "scaled to mean 0 and sd 1"
        yield f"coefficients, per standard deviation of the column (columns were {how})"
    yield from coefficients(problem, posterior, options)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    instead = "not available: it needs --method ep and another schedule than stochastic"
    yield from targets.leave_one_out(posterior, problem, instead)
    yield "fit"
    yield shared.end_line(posterior.method.upper(), posterior, "", seconds)


def coefficients(problem, posterior, options):
    """Yield the lines of the table of coefficients."""
    names, first = posterior.coefficient_names, int(not options.no_intercept)
    width = max(len("name"), *map(len, names))
    header = f"  {'name':<{width}} {'mean':>14} {'sd':>12} {'mean/sd':>9}"
    yield header if options.no_standardize else f"{header} {'column mean':>14} {'column sd':>12}"
    centres = problem.X.mean(axis=0) if posterior.centre is None or options.no_intercept else posterior.centre
    for j, name in enumerate(names):
        mean, sd = posterior.mean[j], np.sqrt(posterior.variance[j])
        digits = max(0, 3 - int(np.floor(np.log10(sd))))  # decimals to the fourth figure of the sd
        line = f"  {name:<{width}} {mean:>z14.{digits}f} {sd:>12.{digits}f} {mean / sd:>z9.2f}"
        if not options.no_standardize and j >= first:
            line += f" {centres[j - first]:>14.6g} {posterior.spread[j - first]:>12.6g}"
        yield line
