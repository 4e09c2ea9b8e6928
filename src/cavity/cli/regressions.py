"""What `cavity fit linear-regression` and `cavity fit logistic-regression` share: all but their noise."""

from argparse import BooleanOptionalAction
from dataclasses import replace

from cavity.base.results import counted
from cavity.cli import options as shared
from cavity.cli import readers, targets
from cavity.cli.options import POSITIVE, Number

PRIOR = Number("--prior-variance", POSITIVE, "V", "of each coefficient (default learnt)")


def add_options(command, *numbers):
    """Add the options to the command; `numbers` are those of one model."""
    columns = targets.add_columns(command, others=False)
    columns.add_argument("--no-intercept", action="store_true", help="add no column of ones")
    model = readers.model_group(command)
    shared.add(model, PRIOR, *numbers)
    words = "learn a prior variance for each coefficient, or one for all (default each)"
    model.add_argument("--ard", action=BooleanOptionalAction, help=words)
    shared.iteration(command, max_iter=1000, tol=1e-10)


def fitted(options, kind, likelihood, numbers=()):
    """Fit a model of a class; return what commands return."""
    table, explicit = readers.whole(options), options.features is not None
    problem = targets.chosen(table, options, likelihood, stored=True)
    if not options.no_intercept:
        problem = problem.without_constants(table.source, explicit, ", or say --no-intercept")
    problem = problem.with_columns(table.source)
    ard = options.prior_variance is None if options.ard is None else options.ard  # columns may have any scale
    given = {"prior_variance": None} | shared.given(options, [PRIOR, *numbers])
    model = kind(**given, ard=ard, intercept=not options.no_intercept)
    posterior, seconds = shared.timed(model.fit, problem.X, problem.y, **shared.fit_options(options))
    known = {"classes": problem.classes} if problem.classes else {}
    posterior = replace(posterior, columns=tuple(problem.names), roles=problem.roles, **known)

    def draw(plot):
        return plot.picture(posterior, title=problem.title)

    return posterior, report(problem, posterior, seconds), draw


def report(problem, posterior, seconds):
    """Yield the lines of the printed result."""
    yield from targets.heading(problem)
    yield from shared.summary_lines(posterior)
    reached = f"  ELBO             {posterior.elbo:.6f} nats, of {counted(posterior.n_samples, 'row')}"
    yield from shared.end_lines("mean field", posterior, seconds, reached)
