"""`cavity fit mixed`: fixed effects, and effects that differ by group, by a formula."""

from cavity.cli import input_tables
from cavity.cli.fit_commands import collect_fit_options, fit_command, report_end, time_call
from cavity.cli.options import CHECKPOINT_OPTIONS, Number, Option, OptionGroup
from cavity.cli.regression_data import LIKELIHOOD_HELP
from cavity.likelihoods.names import LIKELIHOODS_BY_NAME

FORMULA_HELP = "in the notation of lme4, as 'p(incidence, size) ~ period + (1 | herd)' (formula extra)"
PRIOR_HELP = "of each fixed effect (default in the scale of column and target)"
EFFECTS_HELP = "of the standard deviations of the groups (default flat); avoid-zero is for few groups"
MODEL_OPTIONS = OptionGroup(
    "model",
    Option("--formula", None, FORMULA_HELP, required=True),
    Option("--likelihood", LIKELIHOODS_BY_NAME, LIKELIHOOD_HELP),
    Number("--prior-variance", "positive", "V", PRIOR_HELP),
    Option("--effects-prior", ("flat", "avoid-zero"), EFFECTS_HELP, "flat"),
)
DATA_OPTIONS = (MODEL_OPTIONS, input_tables.TEXT_FILE_OPTIONS, CHECKPOINT_OPTIONS)
PLOT_CONTENT = "fixed effects, and those of the groups"


@fit_command("cbpp", PLOT_CONTENT, *DATA_OPTIONS, max_iter=200, tol=1e-8)
def fit(options):
    """Fit a mixed model by expectation propagation over a sparse posterior.

    Standard deviations of the groups, and scales of the likelihood, maximise the log evidence.
    """
    from cavity.models.mixed.model import MixedGLM

    table = input_tables.open_table(options)
    columns = {name: _read_column(table, name) for name in table.names if name not in table.unnamed}
    settings = {"prior_variance": options.prior_variance, "effects_prior": options.effects_prior}
    model = MixedGLM(options.formula, options.likelihood, **settings)
    posterior, seconds = time_call(model.fit, columns, **collect_fit_options(options))
    return posterior, report(table, posterior, seconds), {}


def _read_column(table, name):
    """Return a column of numbers, or of text (also for numbers that are labels); nan or None for missing values."""
    if not (table.is_text(name) or name in table.about.get("categories", ())):
        return table.matrix([name])[:, 0]
    return [value or None for value in table.text(name).tolist()]


def report(table, posterior, seconds):
    """Yield the lines of the printed result."""
    yield f"{table.source}: {posterior.n_samples} rows"
    yield "effects"
    yield from repr(posterior.summary()).splitlines()[1:]
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    yield f"  leave-one-out    log score {posterior.loo_log_density.mean():.6f} nats per row"
    yield from report_end("EP", posterior, seconds)
