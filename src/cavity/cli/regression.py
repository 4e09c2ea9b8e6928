"""`cavity fit linear-regression` and `cavity fit logistic-regression`: coefficients, and which columns matter."""

from argparse import BooleanOptionalAction

from cavity.base.results import format_count
from cavity.cli import readers, regression_data
from cavity.cli.fits import collect_typed, end_lines, fit_command, fit_options, summary_lines, timed
from cavity.cli.options import POSITIVE, Group, Number, Option

PRIOR = Number("--prior-variance", POSITIVE, "V", "of each coefficient (default learnt)")
NOISE = Number("--noise-variance", POSITIVE, "V", "of the target around the line (default learnt)")
ARD_HELP = "learn a prior variance for each coefficient, or one for all (default each)"
ARD = Option("--ard", help=ARD_HELP, action=BooleanOptionalAction)
STOPPING = {"max_iter": 1000, "tol": 1e-10}
COLUMNS = regression_data.columns(others=(regression_data.NO_INTERCEPT,))


@fit_command("motorcycle", "coefficients", COLUMNS, *readers.READING, Group("model", PRIOR, NOISE, ARD), **STOPPING)
def linear(options):
    """Fit a linear regression by mean field: its noise and the prior variance of its coefficients are learnt.

    The table is read once.
    """
    from cavity.models.regression.linear import LinearRegression

    return fit(options, LinearRegression, "gaussian", PRIOR, NOISE)


@fit_command("pima", "coefficients", COLUMNS, *readers.READING, Group("model", PRIOR, ARD), **STOPPING)
def logistic(options):
    """Fit a logistic regression by mean field: the prior variance of its coefficients is learnt."""
    from cavity.models.regression.logistic import LogisticRegression

    return fit(options, LogisticRegression, "logit", PRIOR)


def fit(options, kind, likelihood, *numbers):
    """Fit a model of a class, with those of some numbers that were typed; return what commands return."""
    problem = regression_data.choose_columns(readers.whole(options), options, likelihood, stored=True)
    if not options.no_intercept:
        problem = problem.without_constants(", or say --no-intercept")
    problem = problem.with_columns()
    ard = options.prior_variance is None if options.ard is None else options.ard  # columns may have any scale
    settings = {"prior_variance": None} | collect_typed(options, numbers)
    model = kind(**settings, ard=ard, intercept=not options.no_intercept)
    posterior, seconds = timed(model.fit, problem.X, problem.y, **fit_options(options))
    posterior = problem.label(posterior)
    return posterior, report(problem, posterior, seconds), {"title": problem.title}


def report(problem, posterior, seconds):
    """Yield the lines of the printed result."""
    yield from regression_data.heading(problem)
    yield from summary_lines(posterior)
    reached = f"  ELBO             {posterior.elbo:.6f} nats, of {format_count(posterior.n_samples, 'row')}"
    yield from end_lines("mean field", posterior, seconds, reached)
