"""`cavity fit mixed`: fixed effects, and effects that differ by group, by a formula."""

from cavity.cli import input_tables
from cavity.cli.fit_commands import collect_fit_options, fit_command, time_call
from cavity.cli.formulas import add_event, check_options, collect_rows, columns_of_formula, report_mixed
from cavity.cli.options import Number, Option, OptionGroup
from cavity.cli.regression_data import (
    EVENT_OPTION,
    EXPOSURE_OPTION,
    INTEGRATE_OPTION,
    LIKELIHOOD_HELP,
    PRIOR_OPTION,
    ROW_OPTIONS,
    make_likelihood_options,
    read_priors,
)
from cavity.likelihoods.names import LIKELIHOODS_BY_NAME

FORMULA_HELP = "in the notation of lme4, as 'p(incidence, size) ~ period + (1 | herd)' (formula extra)"
PRIOR_HELP = "of each fixed effect (default in the scale of column and target)"
LIKELIHOOD_OPTIONS = make_likelihood_options("learnt")
MODEL_OPTIONS = OptionGroup(
    "model",
    Option("--formula", None, FORMULA_HELP, required=True),
    Option("--likelihood", LIKELIHOODS_BY_NAME, LIKELIHOOD_HELP.format("logit")),
    *LIKELIHOOD_OPTIONS,
    Number("--prior-variance", "positive", "V", PRIOR_HELP),
    PRIOR_OPTION,
    Number("--bins", "at least 1", "N", "round covariates of smooths to so many values, so that rows become equal"),
    INTEGRATE_OPTION,
)
COLUMN_OPTIONS = OptionGroup(
    "columns", *ROW_OPTIONS, EXPOSURE_OPTION, EVENT_OPTION, description="by name, or by number from 1"
)
PLOT_CONTENT = "fixed effects, and those of the groups"


@fit_command("cbpp", PLOT_CONTENT, MODEL_OPTIONS, COLUMN_OPTIONS, *input_tables.READING_OPTIONS, max_iter=200, tol=1e-8)
def fit(options):
    """Fit a mixed model by expectation propagation over a sparse posterior.

    Standard deviations of the groups, and scales of the likelihood, maximise the log evidence.
    """
    from cavity.models.mixed.model import MixedGLM

    table = input_tables.open_table(options)
    settings = {"prior_variance": options.prior_variance, "priors": read_priors(options)}
    settings["bins"] = options.bins
    settings["integrate"] = options.integrate or False
    formula = add_event(options.formula, options.event)
    model = MixedGLM(formula, check_options(options, (), LIKELIHOOD_OPTIONS), **settings)
    rows = collect_rows(table, options)
    posterior, seconds = time_call(
        model.fit, columns_of_formula(table, formula, rows), **rows, **collect_fit_options(options)
    )
    return posterior, report_mixed(table, posterior, seconds), {}
