"""`cavity fit gp`: a Gaussian process through a column of a table, with what it learnt and how well it predicts."""

from cavity import likelihoods
from cavity.cli import gaussian_processes, input_tables, regression_data
from cavity.cli.fit_commands import collect_fit_options, fit_command, format_numbers, report_end, time_call
from cavity.cli.options import Number, Option, OptionGroup, make_flag

MAX_ROWS_UNASKED = 2000  # more rows are fitted only with --rows
ROWS_OPTION = Option("--rows", "N", "fit the first N rows and predict the others", type=int)
OPTIONS_WITHOUT_FORMULA = (
    "target",
    "categorical",
    "mean",
    "rows",
    "variance",
    "lengthscale",
    "period",
    "plot",
    "method",
)
FORMULA_HELP = "target and mean function, as 'y ~ a + C(b)', in place of --target and --mean (formula extra)"
COMMAND_METHODS = ("dense", "chain")
MODEL_OPTIONS = OptionGroup(
    "model",
    Option("--formula", None, FORMULA_HELP),
    *gaussian_processes.make_model_options(regression_data.LIKELIHOOD_HELP.format("probit")),
    Option(
        "--method", COMMAND_METHODS, "matrices, or a chain for one column and Matern covariances (default by the rows)"
    ),
    Option("--mean", gaussian_processes.MEAN_FUNCTIONS, "default zero for classes, else constant (learnt)"),
    make_flag("--no-learn", "keep all hyperparameters at their first values"),
    regression_data.INTEGRATE_OPTION,
    *gaussian_processes.START_OPTIONS,
)
STARTS_OPTION = Number("--starts", "at least 1", "S", "complete searches from different starts (default 1)", 1)
COLUMN_OPTIONS = regression_data.make_column_options(others=(regression_data.EVENT_OPTION, ROWS_OPTION))
FIT_OPTIONS = (COLUMN_OPTIONS, *input_tables.TABLE_OPTIONS, MODEL_OPTIONS)
PLOT_CONTENT = "the function, of more than two columns along each of them"


@fit_command("motorcycle, banana, pima", PLOT_CONTENT, *FIT_OPTIONS, max_iter=200, tol=1e-8, fit=[STARTS_OPTION])
def fit(options):
    """Fit a Gaussian process: exactly for Gaussian noise, else by expectation propagation.

    The covariance and the noise are learnt by maximising the evidence, from starts scaled to the columns, which need
    no scaling themselves.
    """
    from cavity.models.gp.model import GaussianProcess

    if options.formula is not None:
        from cavity.cli.formulas import fit_process

        if not options.ard:
            raise ValueError("--no-ard has no meaning with --formula; leave it out")
        return fit_process(options, OPTIONS_WITHOUT_FORMULA, gaussian_processes.LIKELIHOOD_OPTIONS)
    gaussian_processes.check_plot(options)
    problem, rest = problem_of(input_tables.open_table(options), options)
    likelihood, fixed = gaussian_processes.likelihood_of(problem, options)
    covariance = gaussian_processes.covariance_of(problem, options)
    mean = options.mean or ("zero" if problem.classes else "constant")
    mean_setting, setting = 0.0 if mean == "zero" else mean, options.integrate or False
    model = GaussianProcess(covariance, likelihood, mean_setting, options.method or "auto", setting)
    learn = False if options.no_learn else ("covariance" if fixed else True)
    search = collect_fit_options(options) | {"learn": learn, "n_starts": options.starts}
    posterior, seconds = time_call(model.fit, **problem.data(), **search)
    posterior = problem.label(posterior)
    return posterior, report(problem, rest, posterior, mean, learn, seconds), problem.labels()


def problem_of(table, options):
    """Return the rows and columns to fit that the options choose from the table, and the other rows or None."""
    kind = options.likelihood or regression_data.choose_likelihood(table, options)
    problem = regression_data.choose_columns(table, options, kind)
    problem = problem.without_constants().with_columns()
    n = len(problem.y) if may_chain(problem, options) else count_fitted_rows(table, options, len(problem.y))
    problem = gaussian_processes.add_scales(problem, slice(n))
    return problem.part(slice(n)), problem.part(slice(n, None)) if n < len(problem.y) else None


def may_chain(problem, options):
    """Return whether all rows are fitted however many they are, by a chain."""
    from cavity.models.gp.chain_processes import find_obstacle

    allows_chain = options.rows is None and options.method != "dense"
    return allows_chain and find_obstacle(options.covariance, None, problem.X.shape[1]) is None


def count_fitted_rows(table, options, total):
    """Return how many of the first rows are fitted."""
    if options.rows is not None:
        if not 1 <= options.rows <= total:
            raise ValueError(f"--rows must be from 1 to {total}, the rows of {table.source}, got {options.rows}")
        return options.rows
    rows = table.about.get("rows", total)
    if rows > MAX_ROWS_UNASKED:
        raise ValueError(
            f"{table.source}: {rows} rows need {16 * rows**2 / 1e9:.3g} GB and a time that grows with their cube; "
            f"use cavity fit streaming-gp for tables of any length, or --rows {MAX_ROWS_UNASKED} (or more) to fit the "
            f"first {MAX_ROWS_UNASKED} (or more) and predict the others"
        )
    return rows


def report(problem, rest, posterior, mean, learn, seconds):
    """Yield the lines of the printed result."""
    yield from regression_data.report_heading(problem)
    learnt_mean = "" if mean == "zero" else f" {format_numbers(posterior.model.mean)} (learnt)"
    yield from gaussian_processes.report_model(problem, posterior.model, f"{mean}{learnt_mean}", learn)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    yield from regression_data.report_integral(posterior)
    yield from regression_data.report_leave_one_out(posterior, problem)
    if rest is not None:
        density = posterior.log_density(rest.X, rest.observed, offset=rest.offset)
        yield f"  {len(rest.y)} rows that were not fitted"
        yield from regression_data.report_scores("  new rows", density, rest)
    method = "exact" if isinstance(posterior.model.likelihood, likelihoods.Gaussian) else "EP"
    n_evaluations = len(posterior.trace["learning"])
    search = f", {n_evaluations} hyperparameters tried" if n_evaluations else ""
    yield from report_end(method, posterior, seconds, more=search)
