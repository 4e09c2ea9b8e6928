"""Fits and predictions by a formula: the columns of a table as the library reads them, and the printed result."""

from collections.abc import Mapping
from functools import partial

from cavity.base.frames import ROLES_NEEDED_AGAIN
from cavity.base.missing_values import complete_rows, take_rows
from cavity.base.results import format_count
from cavity.cli.fit_commands import collect_fit_options, collect_site_options, collect_typed, report_end, time_call
from cavity.cli.input_tables import open_table
from cavity.cli.options import KEYWORD_OF_OPTION, format_option
from cavity.cli.regression_data import DEFAULT_MARK, likelihood_of, read_priors
from cavity.cli.standard_output import print_error
from cavity.likelihoods import Gaussian
from cavity.likelihoods.names import LIKELIHOODS_BY_NAME
from cavity.likelihoods.parameters import list_scales

ROW_ARGUMENTS = ("offset", "exposure", "weights")
PROCESS_ARGUMENTS = ("event", *ROW_ARGUMENTS)
OPTIONS_WITHOUT_FORMULA = ("target", "features", "categorical", "trials", "no_intercept")  # a formula says these


class TableColumns(Mapping):
    """The columns of a table by their names, each read when it is used; those without a name are left out.

    `hidden` are further columns that are left out.
    """

    def __init__(self, table, hidden=()):
        self.table = table
        self._names = [name for name in table.names if name not in table.unnamed and name not in hidden]

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def __getitem__(self, name):
        """Return numbers, nan for what is missing, or a list of texts, None for what is missing."""
        if name not in self._names:
            raise KeyError(name)
        if self.table.is_text(name) or name in self.table.about.get("categories", ()):
            return [value or None for value in self.table.text(name).tolist()]
        return self.table.matrix([name])[:, 0]


def add_event(formula, event):
    """Return a formula whose y are times with a column of events, if one is named."""
    times, _, effects = formula.partition("~")
    return formula if event is None else f"surv({times.strip()}, {event}) ~ {effects.strip()}"


def columns_of_formula(table, formula, rows):
    """Return the columns of a table for the arguments `rows` of a fit; a dot of the formula stands for no index."""
    from cavity.models.formula.design import formula_variables
    from cavity.models.formula.notation import FormulaParts

    parts = FormulaParts.of(formula)
    if not parts.has_all_others:
        return TableColumns(table)
    variables = formula_variables(parts.expand(())) | {*rows.values()}
    hidden = [name for name in TableColumns(table) if name not in variables and table.explain_omission(name)]
    for name in hidden:
        print_error(f"column {name!r} {table.explain_omission(name)} and is left out; name it in --formula to keep it")
    return TableColumns(table, hidden)


def collect_rows(table, options, arguments=ROW_ARGUMENTS):
    """Return the arguments of a fit about rows: names of columns, and what is done about missing values."""
    typed = {name: getattr(options, name, None) for name in arguments}
    typed = {name: column for name, column in typed.items() if column is not None}
    names = {KEYWORD_OF_OPTION.get(name, name): table.select([column])[0] for name, column in typed.items()}
    return names | {"missing": options.missing}


def check_options(options, without, likelihood_options):
    """Return the likelihood of the options, an object if it has settings; ValueError for an option of `without`."""
    for name in without:
        if getattr(options, name):
            raise ValueError(f"{format_option(name)} has no meaning with --formula; leave it out")
    if not collect_typed(options, likelihood_options):
        return options.likelihood
    if options.likelihood is None:
        raise ValueError("settings of a likelihood need --likelihood, its name, where there is a formula")
    return likelihood_of(options, options.likelihood, likelihood_options)


def fit_process(options, without, likelihood_options):
    """Fit a Gaussian process whose mean is the right side of a formula; return what `fit_formula` returns."""
    from cavity.models.formula.design import formula_variables
    from cavity.models.formula.notation import FormulaParts
    from cavity.models.gp.model import GaussianProcess

    likelihood = check_options(options, without, likelihood_options)
    table, parts = open_table(options), FormulaParts.of(options.formula)
    target = parts.y.strip("`")
    rows = {"y": table.select([target])[0]} | collect_rows(table, options, PROCESS_ARGUMENTS)
    roles = [name for argument, name in rows.items() if argument != "missing"]
    features, _ = table.choose(options.features, "--features", roles)
    columns, names = TableColumns(table), dict.fromkeys([*features, *sorted(formula_variables(parts)), *roles])
    names = [table.select([name])[0] for name in names]
    mean, setting = options.formula.partition("~")[2].strip(), options.integrate or False
    model = GaussianProcess(options.covariance or "rbf", likelihood, mean, integrate=setting)
    typed = collect_typed(options, likelihood_options)
    fixed = typed and typed.keys() & {*list_scales(likelihood)}
    learn = not options.no_learn and ("covariance" if fixed else True)
    settings = collect_fit_options(options) | {"learn": learn, "n_starts": options.starts}
    posterior, seconds = time_call(model.fit, {name: columns[name] for name in names}, **rows, **settings)
    return posterior, report_process(table, options.formula, posterior, seconds), {}


def report_process(table, formula, posterior, seconds):
    """Yield the lines of the printed result of a Gaussian process."""
    yield from report_rows(table, posterior)
    yield f"  formula          {formula}"
    yield f"  likelihood       {describe_likelihood(posterior)}"
    yield from repr(posterior.summary()).splitlines()
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    yield from report_leave_one_out(posterior)
    yield from report_end("exact" if isinstance(posterior.model.likelihood, Gaussian) else "EP", posterior, seconds)


def fit_formula(options, likelihood_options, report_fit):
    """Fit a GLM by formula; return the posterior, the lines of the printed result, and the arguments of a picture.

    `report_fit` yields the lines of a GLM about its model and its coefficients.
    """
    from cavity.models.formula.notation import has_random_effects
    from cavity.models.glm.model import GLM

    likelihood = check_options(options, OPTIONS_WITHOUT_FORMULA, likelihood_options)
    is_mixed = has_random_effects(options.formula)
    if options.learn_prior_variance and is_mixed:
        raise ValueError("--learn-prior-variance has no meaning for a formula with random effects; leave it out")
    table = open_table(options)
    settings = {"approximation": options.approximation, "priors": read_priors(options)}
    settings |= {"prior_variance": options.prior_variance, "integrate": options.integrate or False}
    formula = add_event(options.formula, options.event)
    model = GLM(formula, likelihood, standardize=options.standardize, **settings)
    rows = collect_rows(table, options)
    columns = columns_of_formula(table, formula, rows)
    learn = "prior_variance" if options.learn_prior_variance else None
    posterior, seconds = time_call(model.fit, columns, **rows, **collect_site_options(options), learn=learn)
    report = report_mixed if is_mixed else partial(report_glm, report_fit)
    return posterior, report(table, posterior, seconds), {}


def report_glm(report_fit, table, posterior, seconds):
    """Yield the lines of the printed result of a GLM."""
    yield from report_rows(table, posterior)
    yield f"  formula          {posterior.coding.formula}"
    yield from report_fit(posterior, describe_likelihood(posterior))
    yield from report_leave_one_out(posterior)
    yield from report_end(posterior.method.upper(), posterior, seconds)


def describe_likelihood(posterior):
    """Return the name of the likelihood of a posterior, and whether it is the default for two values."""
    likelihood = posterior.model.likelihood
    names = {kind: name for name, kind in LIKELIHOODS_BY_NAME.items()}
    is_default = "likelihood" in (getattr(posterior, "chosen", None) or ()) and likelihood.n_classes == 2
    return names.get(type(likelihood), type(likelihood).__name__) + (DEFAULT_MARK if is_default else "")


def report_mixed(table, posterior, seconds):
    """Yield the lines of the printed result of a mixed model."""
    yield from report_rows(table, posterior)
    yield f"  likelihood       {describe_likelihood(posterior)}"
    yield "effects"
    yield from repr(posterior.summary()).splitlines()[1:]
    yield "posterior"
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    yield from report_leave_one_out(posterior)
    yield from report_end("EP", posterior, seconds)


def read_new_columns(posterior, coding, options):
    """Return the columns of new rows, the arguments of `predict`, texts of --id or None, and notes on dropped rows."""
    from cavity.models.formula.design import random_blocks
    from cavity.models.process.mean_formula import MEAN_PREFIX, list_mean_columns

    table = open_table(options)
    columns = TableColumns(table)
    groups = {name for group, _ in random_blocks(coding.parts) for name in group}
    role_columns = {name: getattr(options, name) or (posterior.roles or {}).get(name) for name in ROLES_NEEDED_AGAIN}
    arguments = {name: table.select([column])[0] for name, column in role_columns.items() if column is not None}
    names = coding.variables | groups | set(arguments.values())
    if list_mean_columns(posterior.columns):  # of a Gaussian process, whose covariance has columns of its own
        names |= {name for name in posterior.columns if not name.startswith(MEAN_PREFIX)}
        columns = {table.select([name])[0]: columns[name] for name in sorted(names)}
    ids = None if options.id is None else table.text(table.select([options.id])[0])
    if options.missing != "drop":
        return columns, arguments, ids, []
    needed = {name: columns[name] for name in sorted(names) if name in columns}
    index, dropped = complete_rows(needed, "drop")
    if index is None:
        return columns, arguments, ids, []
    needed = {name: take_rows(column, index) for name, column in needed.items()}
    ids = None if ids is None else ids[index]
    return needed, arguments, ids, [f"{format_count(dropped.n_rows, 'row')} with missing values"]


def report_rows(table, posterior):
    """Yield how many rows were fitted, and how many were left out."""
    yield f"{table.source}: {posterior.n_samples} rows"
    if posterior.dropped is not None:
        columns = ", ".join(f"{name} {count}" for name, count in posterior.dropped.columns.items())
        yield f"  left out         {format_count(posterior.dropped.n_rows, 'row')} with missing values ({columns})"


def report_leave_one_out(posterior):
    """Yield how well each row is predicted from the others, or why that is not available."""
    try:
        yield f"  leave-one-out    log score {posterior.loo_log_density.mean():.6f} nats per row"
    except ValueError as error:
        yield f"  leave-one-out    not available: {error}"
