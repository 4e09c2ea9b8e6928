"""`cavity fit glm`: coefficients of a generalised linear model with their uncertainty, and how well it predicts."""

from dataclasses import replace

import numpy as np

from cavity.cli import fit_commands, input_tables
from cavity.cli import regression_data as regression
from cavity.cli.fit_commands import fit_command, format_numbers
from cavity.cli.options import Number, Option, OptionGroup, make_flag, make_site_options
from cavity.likelihoods.names import LIKELIHOODS_BY_NAME, ORDERED_LIKELIHOODS

LIKELIHOOD_OPTIONS = regression.make_likelihood_options("learnt")
PRIOR_HELP = "of each coefficient, per unit of its column (default in the scale of column and target)"
TRIALS_OPTION = Option("--trials", "COLUMN", "numbers of trials, of binomial successes")
FORMULA_HELP = "target and effects, as 'y ~ a + C(b) + (1 | g)', in place of --target and --features (formula extra)"
MODEL_OPTIONS = OptionGroup(
    "model",
    Option("--formula", None, FORMULA_HELP),
    Option("--likelihood", LIKELIHOODS_BY_NAME, regression.LIKELIHOOD_HELP.format("logit")),
    *LIKELIHOOD_OPTIONS,
    Number("--prior-variance", "positive", "V", PRIOR_HELP),
    regression.PRIOR_OPTION,
    regression.INTEGRATE_OPTION,
    make_flag("--standardize", "coefficients and their prior are per standard deviation of the column"),
    make_flag("--learn-prior-variance", "choose it by the log evidence (one factor for all coefficients)"),
)
COLUMN_OPTIONS = regression.make_column_options(
    others=(regression.EXPOSURE_OPTION, TRIALS_OPTION, regression.EVENT_OPTION, regression.NO_INTERCEPT_OPTION)
)
APPROXIMATION_OPTION = Option("--approximation", ("full", "diagonal"), default="full")
SITE_OPTIONS = (*make_site_options("[1e-6, 1]", "parallel", "sequential", "stochastic"), APPROXIMATION_OPTION)
DATA_OPTIONS = (COLUMN_OPTIONS, *input_tables.READING_OPTIONS, MODEL_OPTIONS)
PLOT_CONTENT = "coefficients and predictions"


@fit_command("pima", PLOT_CONTENT, *DATA_OPTIONS, max_iter=200, tol=1e-8, fit=SITE_OPTIONS)
def fit(options):
    """Fit a generalised linear model by expectation propagation.

    Priors are in the scale of the columns and the target, and scales of the likelihood are learnt, unless they are
    given; all settings are printed. A formula with random effects is fitted as a mixed model, as by cavity fit mixed.
    """
    if options.formula is not None:
        from cavity.cli.formulas import fit_formula

        return fit_formula(options, LIKELIHOOD_OPTIONS, report_fit)
    from cavity.models.glm.model import GLM

    problem = problem_of(input_tables.open_table(options), options)
    likelihood = regression.likelihood_of(options, problem.likelihood, LIKELIHOOD_OPTIONS)
    intercept = not options.no_intercept and problem.likelihood not in ORDERED_LIKELIHOODS
    data = problem.data()
    if not problem.names:  # an intercept alone, whose prior is that of a constant column
        data["X"] = np.ones((len(problem.y), 1))
    settings = {"approximation": options.approximation, "priors": regression.read_priors(options)}
    settings |= {"prior_variance": options.prior_variance, "integrate": options.integrate or False}
    model = GLM(likelihood, intercept=intercept and bool(problem.names), standardize=options.standardize, **settings)
    learn = "prior_variance" if options.learn_prior_variance else None
    arguments = data | fit_commands.collect_site_options(options) | {"learn": learn}
    posterior, seconds = fit_commands.time_call(model.fit, **arguments)
    posterior = replace(problem.label(posterior), intercept=intercept)
    plot_arguments = {"title": problem.title}
    if options.plot is not None and problem.names and problem.y.ndim == 1 and problem.event is None:
        plot_arguments |= {
            "X": problem.matrix(),
            "y": problem.y,
            "offset": problem.total_offset,
            "target": problem.target,
        }
    is_default = options.likelihood is None and bool(problem.classes)
    return posterior, report(problem, posterior, seconds, is_default), plot_arguments


def problem_of(table, options):
    """Return the matrix and the target that the options choose from the table."""
    likelihood = options.likelihood or regression.choose_likelihood(table, options, binary="logit")
    problem = regression.choose_columns(table, options, likelihood, stored=True)
    if options.likelihood is None and not problem.classes and np.ptp(problem.y) == 0:
        raise ValueError(f"{table.source}: column {problem.target!r} has one value only ({problem.y[0]:g})")
    if not options.no_intercept:
        problem = problem.without_constants(", or say --no-intercept")
    if not problem.names and (options.no_intercept or likelihood in ORDERED_LIKELIHOODS):
        raise ValueError(f"{table.source}: no columns to predict {problem.target!r} from, and no intercept")
    return problem


def report(problem, posterior, seconds, is_default):
    """Yield the lines of the printed result; `is_default` says that the likelihood is the default for two values."""
    yield from regression.report_heading(problem)
    yield from report_fit(posterior, problem.likelihood + (regression.DEFAULT_MARK if is_default else ""))
    instead = "not available: it needs --method ep and another schedule than stochastic"
    if problem.y.ndim == 1:
        yield from regression.report_leave_one_out(posterior, problem, instead)
    yield from fit_commands.report_end(posterior.method.upper(), posterior, seconds)


def report_fit(posterior, likelihood_name):
    """Yield the lines of a posterior about its model and its coefficients, and the log evidence."""
    yield "model"
    likelihood, hyperparameters = posterior.model.likelihood, posterior.hyperparameters
    names = hyperparameters.names if hyperparameters else ()
    parts = {name: format_numbers(getattr(likelihood, name)) for name in likelihood.parameters}
    parts = (f"{name} {value}{' (learnt)' if name in names else ''}" for name, value in parts.items())
    yield f"  likelihood    {', '.join((likelihood_name, *parts))}"
    yield from report_priors(posterior)
    yield from fit_commands.report_summary(posterior)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    yield from regression.report_integral(posterior)


def report_priors(posterior):
    """Yield the lines of a posterior about its priors."""
    shown = False
    for line in repr(posterior).splitlines()[1:]:
        shown = line.split()[0] in ("prior", "intercept") if line[:3].count(" ") == 2 else shown
        if shown:
            yield line
