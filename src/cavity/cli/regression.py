"""`cavity fit linear-regression` and `cavity fit logistic-regression`: coefficients, and which columns matter."""

from argparse import BooleanOptionalAction

from cavity.base.results import counted
from cavity.cli import fit_commands, input_tables, regression_data
from cavity.cli.fit_commands import fit_command
from cavity.cli.options import Number, Option, OptionGroup

PRIOR_OPTION = Number("--prior-variance", "positive", "V", "of each coefficient (default learnt)")
NOISE_OPTION = Number("--noise-variance", "positive", "V", "of the target around the line (default learnt)")
ARD_HELP = "learn a prior variance for each coefficient, or one for all (default each)"
ARD_OPTION = Option("--ard", help=ARD_HELP, action=BooleanOptionalAction)
COLUMN_OPTIONS = regression_data.make_column_options(rows=(), others=(regression_data.NO_INTERCEPT_OPTION,))
DATA_OPTIONS = (COLUMN_OPTIONS, *input_tables.READING_OPTIONS)
LINEAR_OPTIONS = OptionGroup("model", PRIOR_OPTION, NOISE_OPTION, ARD_OPTION)
LOGISTIC_OPTIONS = OptionGroup("model", PRIOR_OPTION, ARD_OPTION)


@fit_command("motorcycle", "coefficients", *DATA_OPTIONS, LINEAR_OPTIONS, max_iter=1000, tol=1e-10)
def linear(options):
    """Fit a linear regression by mean field: its noise and the prior variance of its coefficients are learnt.

    The table is read once.
    """
    from cavity.models.regression.linear import LinearRegression

    return fit(options, LinearRegression, "gaussian", PRIOR_OPTION, NOISE_OPTION)


@fit_command("pima", "coefficients", *DATA_OPTIONS, LOGISTIC_OPTIONS, max_iter=1000, tol=1e-10)
def logistic(options):
    """Fit a logistic regression by mean field: the prior variance of its coefficients is learnt."""
    from cavity.models.regression.logistic import LogisticRegression

    return fit(options, LogisticRegression, "logit", PRIOR_OPTION)


def fit(options, kind, likelihood, *numbers):
    """Fit a model of class `kind` with typed Numbers; return the posterior, the report and the plot arguments."""
    problem = regression_data.choose_columns(input_tables.open_table(options), options, likelihood, stored=True)
    if not options.no_intercept:
        problem = problem.without_constants(", or say --no-intercept")
    problem = problem.with_columns()
    ard = options.prior_variance is None if options.ard is None else options.ard  # columns may have any scale
    settings = {"prior_variance": None} | fit_commands.collect_typed(options, numbers)
    model = kind(**settings, ard=ard, intercept=not options.no_intercept)
    arguments = fit_commands.collect_fit_options(options)
    posterior, seconds = fit_commands.time_call(model.fit, problem.X, problem.y, **arguments)
    posterior = problem.label(posterior)
    return posterior, report(problem, posterior, seconds), {"title": problem.title}


def report(problem, posterior, seconds):
    """Yield the lines of the printed result."""
    yield from regression_data.report_heading(problem)
    yield from fit_commands.report_summary(posterior)
    elbo = f"  ELBO             {posterior.elbo:.6f} nats, of {counted(posterior.n_samples, 'row')}"
    yield from fit_commands.report_end("mean field", posterior, seconds, elbo)
