"""`cavity fit gp`: a Gaussian process through a column of a table, with what it learnt and how well it predicts."""

from cavity import likelihoods
from cavity.cli import gaussian_processes, readers, regression_data
from cavity.cli.fits import end_lines, fit_command, fit_options, format_numbers, timed
from cavity.cli.options import COUNT, Group, Number, Option, flag

MANY = 2000  # most rows fitted without being asked to
FITTED_ROWS = Option("--rows", "N", "fit the first N rows and predict the others", type=int)
MODEL = Group(
    "model",
    *gaussian_processes.model_options(regression_data.LIKELIHOOD_HELP),
    Option("--mean", gaussian_processes.MEANS, "default zero for classes, else constant (learnt)"),
    flag("--no-learn", "keep all hyperparameters at their first values"),
    *gaussian_processes.STARTS,
)
N_SEARCHES = Number("--starts", COUNT, "S", "starts of the search that are followed to the end (default 1)", 1)
COLUMNS = regression_data.columns(*regression_data.ROW_OPTIONS, others=(FITTED_ROWS,))
FIT_OPTIONS = (COLUMNS, *readers.TABLE, MODEL)
PLOT_CONTENT = "the function, of more than two columns along each of them"


@fit_command("motorcycle, banana, pima", PLOT_CONTENT, *FIT_OPTIONS, max_iter=200, tol=1e-8, fit=[N_SEARCHES])
def fit(options):
    """Fit a Gaussian process: exactly for Gaussian noise, else by expectation propagation.

    The covariance and the noise are learnt by maximising the evidence, from starts scaled to the columns, which need
    no scaling themselves.
    """
    from cavity.models.gp.model import GaussianProcess

    gaussian_processes.check_plot(options)
    problem, rest = problem_of(readers.whole(options), options)
    likelihood, fixed = gaussian_processes.likelihood_of(problem, options)
    covariance = gaussian_processes.covariance_of(problem, options)
    mean = options.mean or ("zero" if problem.classes else "constant")
    model = GaussianProcess(covariance, likelihood, 0.0 if mean == "zero" else mean)
    learn = False if options.no_learn else ("covariance" if fixed else True)
    search = fit_options(options) | {"learn": learn, "n_starts": options.starts}
    posterior, seconds = timed(model.fit, **problem.data(), **search)
    posterior = problem.label(posterior)
    return posterior, report(problem, rest, posterior, mean, learn, seconds), problem.labels()


def problem_of(table, options):
    """Return the rows and columns to fit that the options choose from the table, and the other rows or None."""
    kind = options.likelihood or regression_data.default_likelihood(table, options)
    problem = regression_data.choose_columns(table, options, kind)
    problem = problem.without_constants().with_columns()
    n = fitted_rows(table, options, len(problem.y))
    problem = gaussian_processes.scaled(problem, slice(n))
    return problem.part(slice(n)), problem.part(slice(n, None)) if n < len(problem.y) else None


def fitted_rows(table, options, total):
    """Return how many of the first rows are fitted."""
    if options.rows is not None:
        if not 1 <= options.rows <= total:
            raise ValueError(f"--rows must be from 1 to {total}, the rows of {table.source}, got {options.rows}")
        return options.rows
    rows = table.about.get("rows", total)
    if rows > MANY:
        raise ValueError(
            f"{table.source}: {rows} rows need {16 * rows**2 / 1e9:.3g} GB and a time that grows with their cube; "
            f"cavity fit streaming-gp takes tables of any length. Or say --rows {MANY} to fit the first {MANY} and "
            "predict the others, or a larger number of them"
        )
    return rows


def report(problem, rest, posterior, mean, learn, seconds):
    """Yield the lines of the printed result."""
    yield from regression_data.heading(problem)
    found = "" if mean == "zero" else f" {format_numbers(posterior.model.mean)} (learnt)"
    yield from gaussian_processes.model_lines(problem, posterior.model, f"{mean}{found}", learn)
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    yield from regression_data.leave_one_out(posterior, problem)
    if rest is not None:
        density = posterior.log_density(rest.X, rest.y, offset=rest.offset)
        yield f"  {len(rest.y)} rows that were not fitted"
        yield from regression_data.score_lines("  new rows", density, rest)
    method = "exact" if isinstance(posterior.model.likelihood, likelihoods.Gaussian) else "EP"
    tried = len(posterior.trace["learning"])
    search = f", {tried} hyperparameters tried" if tried else ""
    yield from end_lines(method, posterior, seconds, more=search)
