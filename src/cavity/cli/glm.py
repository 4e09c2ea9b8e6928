"""`cavity fit glm`: coefficients of a generalised linear model with their uncertainty, and how well it predicts."""

from dataclasses import replace

import numpy as np

from cavity.cli import options as shared
from cavity.cli import readers, targets
from cavity.cli.options import POSITIVE, Number
from cavity.likelihoods.named import NAMED

HELP = "regression and classification: coefficients with their uncertainty"
DATA = readers.DATA.format("pima")
DRAWN = "coefficients and predictions"
SETTINGS = targets.settings("learnt")


def add_options(command):
    """Add the options to the command."""
    columns = targets.add_columns(command)
    columns.add_argument("--trials", metavar="COLUMN", help="numbers of trials, of binomial successes")
    columns.add_argument("--no-intercept", action="store_true", help="add no column of ones")
    model = readers.model_group(command)
    words = "default probit for a target of two values, else gaussian"
    model.add_argument("--likelihood", choices=NAMED, help=words)
    words = "of each coefficient, per unit of its column (default in the scale of column and target)"
    shared.add(model, *SETTINGS, Number("--prior-variance", POSITIVE, "V", words))
    words = "coefficients and their prior are per standard deviation of the column"
    model.add_argument("--standardize", action="store_true", help=words)
    words = "choose it by the log evidence (one factor for all coefficients)"
    model.add_argument("--learn-prior-variance", action="store_true", help=words)
    fit = shared.iteration(command, max_iter=200, tol=1e-8)
    shared.site_updates(fit, "[1e-6, 1]", ("parallel", "sequential", "stochastic"))
    fit.add_argument("--approximation", choices=("full", "diagonal"), default="full")


def fit(options):
    """Fit a generalised linear model by expectation propagation.

    Priors are in the scale of the columns and the target, and scales of the likelihood are learnt, unless they are
    given; all settings are printed.
    """
    from cavity.models.glm.model import GLM

    problem = problem_of(readers.whole(options), options)
    likelihood = targets.likelihood_of(options, problem.likelihood, SETTINGS)
    intercept = not options.no_intercept and problem.likelihood != targets.ORDERED
    data = problem.data()
    if not problem.names:  # an intercept alone, whose prior is that of a constant column
        data["X"] = np.ones((len(problem.y), 1))
    settings = dict(prior_variance=options.prior_variance, approximation=options.approximation)
    model = GLM(likelihood, intercept=intercept and bool(problem.names), standardize=options.standardize, **settings)
    learn = "prior_variance" if options.learn_prior_variance else None
    posterior, seconds = shared.timed(model.fit, **data, **shared.site_options(options), learn=learn)
    known = {"classes": problem.classes or None, "intercept": intercept, "roles": problem.roles}
    posterior = replace(posterior, columns=tuple(problem.names), **known)

    def draw(plot):
        if not problem.names or problem.y.ndim > 1:
            return plot.picture(posterior, title=problem.title)
        rows = {"X": problem.matrix(), "y": problem.y, "offset": problem.offset}
        return plot.picture(posterior, **rows, title=problem.title, target=problem.target)

    return posterior, report(problem, posterior, seconds), draw


def problem_of(table, options):
    """Return the matrix and the target that the options choose from the table."""
    likelihood = options.likelihood or targets.default_likelihood(table, options)
    problem = targets.chosen(table, options, likelihood, stored=True)
    if options.likelihood is None and not problem.classes and np.ptp(problem.y) == 0:
        raise ValueError(f"{table.source}: column {problem.target!r} has one value only ({problem.y[0]:g})")
    if not options.no_intercept:
        explicit = options.features is not None
        problem = problem.without_constants(table.source, explicit, ", or say --no-intercept")
    if not problem.names and (options.no_intercept or likelihood == targets.ORDERED):
        raise ValueError(f"{table.source}: no columns to predict {problem.target!r} from, and no intercept")
    return problem


def report(problem, posterior, seconds):
    """Yield the lines of the printed result."""
    yield from targets.heading(problem)
    yield "model"
    likelihood, learnt = posterior.model.likelihood, posterior.learnt.names if posterior.learnt else ()
    known = {name: shared.shown(getattr(likelihood, name)) for name in likelihood.parameters}
    settings = (f"{name} {value}{' (learnt)' if name in learnt else ''}" for name, value in known.items())
    yield f"  likelihood    {', '.join((problem.likelihood, *settings))}"
    yield from shared.prior_lines(posterior)
    yield from shared.summary_lines(posterior)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    instead = "not available: it needs --method ep and another schedule than stochastic"
    if problem.y.ndim == 1:
        yield from targets.leave_one_out(posterior, problem, instead)
    yield from shared.end_lines(posterior.method.upper(), posterior, seconds)
