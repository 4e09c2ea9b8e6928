"""`cavity fit many`: one model of many columns of a table, and a table of an effect in all of them."""

from fnmatch import fnmatchcase

import numpy as np

from cavity.base.frames import join_names
from cavity.base.missing_values import complete_rows, take_rows
from cavity.base.results import format_count
from cavity.base.summary import Table
from cavity.cli import input_tables
from cavity.cli.data_table import split_names
from cavity.cli.fit_commands import collect_fit_options, fit_command, format_seconds, time_call
from cavity.cli.formulas import TableColumns
from cavity.cli.options import KEYWORD_OF_OPTION, Number, Option, OptionGroup
from cavity.cli.regression_data import EXPOSURE_OPTION, LIKELIHOOD_NAMES, ROW_OPTIONS
from cavity.likelihoods.names import SHARE_LIKELIHOODS

FORMULA_HELP = "effects, as '~ treated + (1 | donor)' (formula extra)"
TARGET_HELP = "the responses: names of columns, or patterns such as 'gene_*'"
MODEL_OPTIONS = OptionGroup(
    "model",
    Option("--formula", None, FORMULA_HELP),
    Option("--likelihood", (*LIKELIHOOD_NAMES, *SHARE_LIKELIHOODS), "of every response", required=True),
    Number("--prior-variance", "positive", "V", "of each coefficient (default in the scale of column and target)"),
    Option("--share", "A,B", "what is shrunk across responses: dispersion, names of coefficients"),
    Option("--effect", "EFFECT", "a coefficient, or an expression of several, to print (default the last one)"),
)
COLUMN_OPTIONS = OptionGroup(
    "columns",
    Option("--target", "A,B", TARGET_HELP, required=True),
    *ROW_OPTIONS,
    EXPOSURE_OPTION,
    Option("--trials", "A,B", "of binomial successes: one column, or one for each response in their order"),
)
ROW_ROLES = ("offset", "exposure", "weights")
MOST_ROWS_PRINTED = 20
PLOT_CONTENT = "the effect against the rate of wrong signs"


DATA_OPTIONS = (MODEL_OPTIONS, COLUMN_OPTIONS, *input_tables.READING_OPTIONS)


@fit_command("pima", PLOT_CONTENT, *DATA_OPTIONS, max_iter=200, tol=1e-8)
def fit(options):
    """Fit one model to each of many columns by expectation propagation.

    Parameters of the likelihood, and standard deviations of groups, are learnt by response; the clearest effects are
    printed, with local false sign rates and s-values.
    """
    from cavity.models.formula.design import formula_variables
    from cavity.models.formula.notation import FormulaParts, has_random_effects
    from cavity.models.glm.model import GLM
    from cavity.models.mixed.model import MixedGLM

    table, y = input_tables.open_table(options), "response"
    while y in table.names:
        y += "_"
    names, columns = find_targets(table, options.target), TableColumns(table)
    if options.formula is None:
        others = join_names([name for name in table.names if name not in names])
        message = "is needed for several targets, as '~ treated', or '~ treated + (1 | donor)' for groups"
        raise ValueError(f"--formula {message}; other columns are {others or 'none'}")
    formula = options.formula if options.formula.lstrip().startswith("~") else f"~ {options.formula}"
    data = {name: columns[name] for name in sorted(formula_variables(FormulaParts.of(f"{y} {formula}")) - {y})}
    typed = {name: getattr(options, name) for name in ROW_ROLES if getattr(options, name) is not None}
    rows = {KEYWORD_OF_OPTION.get(name, name): table.numbers(table.select([c])[0]) for name, c in typed.items()}
    kind = MixedGLM if has_random_effects(f"{y} {formula}") else GLM
    model = kind(formula, options.likelihood, prior_variance=options.prior_variance)
    share = None if options.share is None else tuple(split_names(options.share))
    Y = table.matrix(names)
    if options.trials is not None:
        trials = table.matrix(find_targets(table, options.trials))
        rows["trials"] = trials[:, 0] if trials.shape[1] == 1 else trials
    if options.missing == "drop":
        data, rows, Y = drop_rows(data, rows, Y)
    arguments = {"names": names, "share": share, "missing": options.missing} | rows | collect_fit_options(options)
    posterior, seconds = time_call(model.fit_many, data, Y, **arguments)
    effect = options.effect or posterior.coefficient_names[-1]
    return posterior, report(table, posterior, effect, seconds), {"combination": effect}


def drop_rows(data, rows, Y):
    """Return columns, arguments of rows and responses without the rows in which a column has no value."""
    index, _ = complete_rows(data | {name: value for name, value in rows.items() if name != "trials"}, "drop")
    return (data, rows, Y) if index is None else (take_rows(data, index), take_rows(rows, index), Y[index])


def find_targets(table, typed):
    """Return the names of the columns that names and patterns stand for; ValueError for those of none."""
    targets = []
    for pattern in split_names(typed):
        names = [name for name in table.names if fnmatchcase(name, pattern)] or table.select([pattern])
        targets += [name for name in names if name not in targets]
    return targets


def report(table, posterior, effect, seconds):
    """Yield the lines of the printed result."""
    yield f"{table.source}: {posterior.n_samples} rows, {format_count(len(posterior), 'response')}"
    yield from repr(posterior).splitlines()[1:]
    effects = posterior.table(effect)
    order = np.argsort(effects.columns["lfsr"], kind="stable")[:MOST_ROWS_PRINTED]
    columns = {name: [values[i] for i in order] for name, values in effects.columns.items()}
    shown = Table(effects.title, tuple(effects.names[i] for i in order), columns, effects.formats)
    yield from repr(shown).splitlines()
    yield f"  the clearest {len(order)} of {len(posterior)}" if len(order) < len(posterior) else "  all of them"
    yield "fit"
    done = int(np.sum(posterior.converged))
    yield f"  EP               {done} of {len(posterior)} converged, {format_seconds(seconds)}"
