"""`cavity fit glm`: coefficients of a generalised linear model with their uncertainty, and how well it predicts."""

from dataclasses import replace

import numpy as np

from cavity.cli import readers
from cavity.cli import regression_data as regression
from cavity.cli.fits import end_lines, fit_command, format_numbers, site_options, summary_lines, timed
from cavity.cli.options import POSITIVE, Group, Number, Option, flag, site_updates
from cavity.likelihoods.named import NAMED

SETTINGS = regression.settings("learnt")
PRIOR_HELP = "of each coefficient, per unit of its column (default in the scale of column and target)"
TRIALS = Option("--trials", "COLUMN", "numbers of trials, of binomial successes")
MODEL = Group(
    "model",
    Option("--likelihood", NAMED, regression.LIKELIHOOD_HELP),
    *SETTINGS,
    Number("--prior-variance", POSITIVE, "V", PRIOR_HELP),
    flag("--standardize", "coefficients and their prior are per standard deviation of the column"),
    flag("--learn-prior-variance", "choose it by the log evidence (one factor for all coefficients)"),
)
COLUMNS = regression.columns(*regression.ROW_OPTIONS, others=(TRIALS, regression.NO_INTERCEPT))
APPROXIMATION = Option("--approximation", ("full", "diagonal"), default="full")
SITE_OPTIONS = (*site_updates("[1e-6, 1]", "parallel", "sequential", "stochastic"), APPROXIMATION)
READING = (COLUMNS, *readers.READING)


@fit_command("pima", "coefficients and predictions", *READING, MODEL, max_iter=200, tol=1e-8, fit=SITE_OPTIONS)
def fit(options):
    """Fit a generalised linear model by expectation propagation.

    Priors are in the scale of the columns and the target, and scales of the likelihood are learnt, unless they are
    given; all settings are printed.
    """
    from cavity.models.glm.model import GLM

    problem = problem_of(readers.whole(options), options)
    likelihood = regression.likelihood_of(options, problem.likelihood, SETTINGS)
    intercept = not options.no_intercept and problem.likelihood != regression.ORDERED
    data = problem.data()
    if not problem.names:  # an intercept alone, whose prior is that of a constant column
        data["X"] = np.ones((len(problem.y), 1))
    settings = dict(prior_variance=options.prior_variance, approximation=options.approximation)
    model = GLM(likelihood, intercept=intercept and bool(problem.names), standardize=options.standardize, **settings)
    learn = "prior_variance" if options.learn_prior_variance else None
    posterior, seconds = timed(model.fit, **data, **site_options(options), learn=learn)
    posterior = replace(problem.label(posterior), intercept=intercept)
    drawn = {"title": problem.title}
    if options.plot is not None and problem.names and problem.y.ndim == 1:
        drawn |= {"X": problem.matrix(), "y": problem.y, "offset": problem.offset, "target": problem.target}
    return posterior, report(problem, posterior, seconds), drawn


def problem_of(table, options):
    """Return the matrix and the target that the options choose from the table."""
    likelihood = options.likelihood or regression.default_likelihood(table, options)
    problem = regression.choose_columns(table, options, likelihood, stored=True)
    if options.likelihood is None and not problem.classes and np.ptp(problem.y) == 0:
        raise ValueError(f"{table.source}: column {problem.target!r} has one value only ({problem.y[0]:g})")
    if not options.no_intercept:
        problem = problem.without_constants(", or say --no-intercept")
    if not problem.names and (options.no_intercept or likelihood == regression.ORDERED):
        raise ValueError(f"{table.source}: no columns to predict {problem.target!r} from, and no intercept")
    return problem


def report(problem, posterior, seconds):
    """Yield the lines of the printed result."""
    yield from regression.heading(problem)
    yield "model"
    likelihood, hyperparameters = posterior.model.likelihood, posterior.hyperparameters
    learnt = hyperparameters.names if hyperparameters else ()
    known = {name: format_numbers(getattr(likelihood, name)) for name in likelihood.parameters}
    settings = (f"{name} {value}{' (learnt)' if name in learnt else ''}" for name, value in known.items())
    yield f"  likelihood    {', '.join((problem.likelihood, *settings))}"
    yield from prior_lines(posterior)
    yield from summary_lines(posterior)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    instead = "not available: it needs --method ep and another schedule than stochastic"
    if problem.y.ndim == 1:
        yield from regression.leave_one_out(posterior, problem, instead)
    yield from end_lines(posterior.method.upper(), posterior, seconds)


def prior_lines(posterior):
    """Yield the lines of a posterior about its priors."""
    shown = False
    for line in repr(posterior).splitlines()[1:]:
        shown = line.split()[0] in ("prior", "intercept") if line[:3].count(" ") == 2 else shown
        if shown:
            yield line
