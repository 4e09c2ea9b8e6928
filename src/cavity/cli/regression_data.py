"""Data of the regression commands: target, features, offset and weights; the likelihood; scores."""

import ast
import inspect
import re
from dataclasses import dataclass, replace

import numpy as np

from cavity.base.censoring import make_bounds, read_real_column
from cavity.base.frames import LEVELS_ROLE, find_repeated
from cavity.cli import data_table
from cavity.cli.data_table import MAX_LEVELS_UNASKED, DataTable, add_categories, encode_text, list_first, split_names
from cavity.cli.fit_commands import collect_typed
from cavity.cli.options import KEYWORD_OF_OPTION, Number, Option, OptionGroup, format_option, make_flag
from cavity.cli.standard_output import print_error
from cavity.likelihoods.names import (
    BINARY_LIKELIHOODS,
    COUNT_LIKELIHOODS,
    LIKELIHOODS_BY_NAME,
    ORDERED_LIKELIHOODS,
    SHARE_LIKELIHOODS,
    make_likelihood,
)

ORDERED_PROBIT = "ordered-probit"
CLASS_LIKELIHOODS = (*BINARY_LIKELIHOODS, *ORDERED_LIKELIHOODS)
DEFAULT_OF_TIMES = "weibull"
LIKELIHOOD_NAMES = tuple(name for name in LIKELIHOODS_BY_NAME if name not in SHARE_LIKELIHOODS)
LIKELIHOOD_HELP = "default {} for a target of two values, weibull with --event, else gaussian"
DEFAULT_MARK = " (default for a target of two values)"  # of a likelihood
TARGET_OPTION = Option("--target", "COLUMN", "what to predict (of a shipped table its own)", alias=["--y"])
FEATURES_HELP = "what to predict it from (default all columns but an index)"
FEATURES_OPTION = Option("--features", "A,B,C", FEATURES_HELP, alias=["--x"])
ROW_OPTIONS = (
    Option("--offset", "COLUMN", "added to the linear predictor, for example a log exposure"),
    Option("--weights", "COLUMN", "how often each row counts"),
)
EXPOSURE_HELP = "for counts: what their mean is proportional to, as time or area"
EXPOSURE_OPTION = Option("--exposure", "COLUMN", EXPOSURE_HELP)
EVENT_HELP = "of times: 1 or True where the event was observed, else 0 (default all were)"
EVENT_OPTION = Option("--event", "COLUMN", EVENT_HELP)
EVENT_REQUIREMENT = (
    "--event needs 1 (observed) and 0 (censored); --formula 'surv(time, status == 2) ~ x' recodes a column"
)
REPORTED_ROLES = (("event", "event"), ("offset", "offset"), ("exposure", "exposure"), ("sample_weight", "weights"))
TYPED_ROLES = ("offset", "exposure", "weights", "trials", "event")
CATEGORICAL_HELP = (
    "columns to turn into columns of 0 and 1, one for each value but the first "
    f"(default text of up to {MAX_LEVELS_UNASKED} values, by streaming-gp if --features names it)"
)
CATEGORICAL_OPTION = Option("--categorical", "A,B", CATEGORICAL_HELP)
NO_INTERCEPT_OPTION = make_flag("--no-intercept", "add no column of ones")
AVOID_ZERO = "avoid-zero"
INTEGRATE_HELP = "over what is learnt beside the effects, with proper priors, and correct what EP misses"
INTEGRATE_OPTION = Option("--integrate", ("auto", "grid", "ccd", "mode"), INTEGRATE_HELP)
PRIOR_TEXT = re.compile(r"(.+?)\s*=\s*(\w+\([^()]*\))")  # a name, which may have brackets, and a call
PRIOR_OPTION = Option(
    "--prior",
    "NAME=PRIOR",
    "of a hyperparameter, a term or a kind, as 'sd=PC(1, 0.05)' (may be repeated); avoid-zero is for few groups",
    action="append",
)


def make_column_options(rows=ROW_OPTIONS, others=()):
    """Return the group of options that name the columns."""
    options = (TARGET_OPTION, FEATURES_OPTION, *rows, CATEGORICAL_OPTION, *others)
    return OptionGroup("columns", *options, description="by name, or by number from 1")


def make_likelihood_options(dispersion):
    """Return the settings of the likelihoods; `dispersion` describes the default of --dispersion."""
    return (
        Number("--noise-variance", "positive", "V", "of gaussian (default learnt)"),
        Number("--scale", "positive", "S", "of student-t and laplace (default learnt)"),
        Number("--degrees-of-freedom", "positive", "NU", "of student-t (default 4)"),
        Number("--dispersion", "positive", "R", f"of negative-binomial and tweedie (default {dispersion})"),
        Number("--shape", "positive", "A", "of gamma, weibull and loglogistic (default learnt)"),
        Number("--sd", "positive", "SD", "of the log of lognormal times (default learnt)"),
        Number("--tweedie-power", "between 1 and 2", "P", "of the mean in the variance of tweedie (default learnt)"),
        Number("--zero-probability", "between 0 and 1", "P", "of zero-inflated-* and hurdle-poisson (default learnt)"),
        Number("--precision", "positive", "PHI", "of beta and beta-binomial (default learnt)"),
        Number("--quantile-level", "between 0 and 1", "Q", "of asymmetric-laplace (default 0.5)"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionTable:
    """The columns chosen by the options, as `fit` takes them."""

    table: DataTable
    explicit: list  # features that were named
    X: object  # an array, or a Source where rows stay in a file
    names: list
    y: np.ndarray
    target: str
    classes: tuple  # labels of the classes 0, 1, ..., else ()
    offset: np.ndarray | None
    weights: np.ndarray | None
    notes: list  # what was left out, with the reason
    roles: dict  # columns by their role, as posteriors store them
    likelihood: str
    varied: np.ndarray  # which columns have more than one value
    spread: np.ndarray | None = None  # standard deviation of each column
    exposure: np.ndarray | None = None
    event: np.ndarray | None = None
    size: float = 1.0  # variance of a target of real numbers

    @property
    def title(self):
        """Title of the table."""
        return self.table.about.get("title", self.table.source)

    def without_constants(self, way_out=""):
        """Leave out columns of one value; ValueError if they were named."""
        constant = [name for name, varies in zip(self.names, self.varied, strict=True) if not varies]
        if not constant:
            return self
        explicit = [name for name in constant if name in self.explicit]
        if explicit:
            raise ValueError(
                f"{self.table.source}: column {explicit[0]!r} is constant, like the intercept; leave "
                f"it out of --features{way_out}"
            )
        names = [name for name in self.names if name not in constant]
        index = np.flatnonzero(self.varied)
        X = np.ascontiguousarray(self.X[:, index]) if isinstance(self.X, np.ndarray) else self.X.columns(index)
        return replace(self, X=X, names=names, notes=[*self.notes, *(f"{column} (constant)" for column in constant)])

    def with_columns(self):
        """Return the problem; ValueError if there are no columns."""
        if not self.names:
            raise ValueError(f"{self.table.source}: no columns to predict {self.target!r} from")
        return self

    def label(self, posterior):
        """Return the posterior with the names of columns and classes, and the roles of columns."""
        classes = {"classes": self.classes} if self.classes else {}
        return replace(posterior, columns=tuple(self.names), roles=self.roles, **classes)

    def labels(self):
        """Return the labels of columns and target, with their units, and the title, as arguments of a plot."""
        units = self.table.about.get("units", {})
        *names, target = (f"{name} [{units[name]}]" if name in units else name for name in (*self.names, self.target))
        return {"names": names, "target": target, "title": self.title}

    def data(self):
        """Return the rows as the keyword arguments of `fit`."""
        others = {name: getattr(self, name) for name in ("exposure", "event") if getattr(self, name) is not None}
        return {"X": self.X, "y": self.y, "offset": self.offset, "sample_weight": self.weights} | others

    @property
    def observed(self):
        """The target as posteriors take it: bounds where there are events."""
        return self.y if self.event is None else make_bounds(self.y, self.event)

    @property
    def total_offset(self):
        """The offset and the log of the exposure, None where there is neither."""
        if self.exposure is None:
            return self.offset
        return np.log(self.exposure) + (0.0 if self.offset is None else self.offset)

    def matrix(self):
        """Return X as an array."""
        return self.X if isinstance(self.X, np.ndarray) else self.X.rows()

    def part(self, rows):
        """Return the problem of some of the rows."""
        several = {name: getattr(self, name) for name in ("X", "y", "offset", "weights", "event")}
        return replace(self, **{name: None if value is None else value[rows] for name, value in several.items()})


def likelihood_of(options, likelihood, numbers):
    """Return the likelihood of a name with the typed settings; ValueError for a setting that it does not have."""
    settings, kind = collect_typed(options, numbers), make_likelihood(likelihood)
    for name in settings:
        if name not in kind.__dataclass_fields__:
            option = "tweedie_power" if name == "power" else name
            raise ValueError(f"{format_option(option)} has no meaning for --likelihood {likelihood}")
    return replace(kind, **settings)


def choose_likelihood(table, options, classes=None, binary="probit"):
    """Return the likelihood `binary` for a target of two values or classes, that of times with events, else gaussian.

    Two rows of different numbers are not taken for classes.
    """
    if classes is not None:
        return binary if len(classes) == 2 else ORDERED_PROBIT
    if getattr(options, "event", None) is not None:
        return DEFAULT_OF_TIMES
    target = target_of(table, options)
    if table.is_text(target):
        kinds = [value for value in encode_text(table.text(target))[0].tolist() if value]
    else:
        values = table.matrix([target])[:, 0]
        kinds = np.unique(values[~np.isnan(values)]).tolist()
    if len(kinds) != 2 and table.is_text(target):
        raise ValueError(
            f"{table.source}: column {target!r} has {len(kinds)} classes ({list_first(kinds)}); if they have an "
            f"order, say --likelihood {ORDERED_PROBIT}"
        )
    return binary if len(kinds) == 2 and (len(table) > 2 or table.is_text(target)) else "gaussian"


def list_categories(table, options, reserved, in_memory):
    """Return the columns to code as categories: those of --categorical, and features of text with few levels.

    `reserved` are columns with another role. Unless the table is whole, as the first batch of a stream, features of
    text are coded only if they are named. A sentence on standard error says which ones are left out.
    """
    names = [table.select([name])[0] for name in split_names(options.categorical or [])]
    if options.features is None:
        features = [name for name in table.names if not table.explain_omission(name)]
    else:
        features = [table.find(name) for name in split_names(options.features)]
    for name in features:
        if name not in table.names or name in (*reserved, *names) or not table.is_text(name):
            continue
        n_levels = table.count_levels(name)
        if 1 < n_levels <= MAX_LEVELS_UNASKED and (in_memory or options.features is not None):
            names.append(name)
        elif n_levels > 1 and options.features is None:
            many = f"text of more than {MAX_LEVELS_UNASKED} values" if np.isfinite(n_levels) else "text in a long table"
            reason = many if n_levels > MAX_LEVELS_UNASKED else "text"
            print_error(f"column {name!r} ({reason}) is left out; --categorical {name} codes it as categories")
    return names


def read_target(table, target, likelihood, classes, trials):
    """Return the target in the form of the likelihood, and the labels of its classes; `trials` is a column or None."""
    if likelihood in CLASS_LIKELIHOODS:
        y, classes = classes_of(table, target, likelihood in BINARY_LIKELIHOODS, classes)
    else:
        y, classes = table.numbers(target), ()
    if likelihood in COUNT_LIKELIHOODS:
        check_column(table, target, (y >= 0) & (y == np.floor(y)), f"--likelihood {likelihood} needs whole numbers")
    if likelihood in SHARE_LIKELIHOODS:
        if trials is None:
            raise ValueError(f"--likelihood {likelihood} needs --trials, the column of the numbers of trials")
        y = np.column_stack([y, table.numbers(trials)])
        possible = (y[:, 0] >= 0) & (y[:, 0] <= y[:, 1])
        check_column(table, target, possible, "successes are from 0 to the number of trials")
    elif trials is not None:
        raise ValueError(f"--trials has no meaning for --likelihood {likelihood}")
    return y, classes


def read_event(table, column):
    """Return a column of events as 1 and 0."""
    values = table.text(column).tolist() if table.is_text(column) else table.numbers(column)
    events = read_real_column(values, f"{table.source}: column {column!r}")
    check_column(table, column, (events == 0) | (events == 1), EVENT_REQUIREMENT)
    return events


def choose_columns(table, options, likelihood, classes=None, levels=None, *, stored=False, in_memory=True):
    """Return the columns chosen by the options, with the target in the form of the likelihood.

    `classes` are those of the target, by default its values in sorted order. `levels` are those of columns of text of a
    resumed fit. With `stored`, X of more than one block is not read into memory. `in_memory` is False for a batch.
    """
    target = target_of(table, options)
    typed_names = {role: getattr(options, role, None) for role in TYPED_ROLES}
    names = {role: table.select([name])[0] for role, name in typed_names.items() if name is not None}
    others = [target, *names.values()]
    categories = options.categorical if levels is not None else list_categories(table, options, others, in_memory)
    table, base_levels = add_categories(table, categories, levels)
    for name in {*others} & {origin for origin, _ in table.made.values()}:
        raise ValueError(
            f"{table.source}: --categorical: column {name!r} is no feature but target, offset, weights, trials or event"
        )
    features, notes = table.choose(options.features, "--features", {*others})
    indicator_columns = {name: [column for column in table.made_of(name) if column in features] for name in base_levels}
    base_levels = {name: level for name, level in base_levels.items() if indicator_columns[name]}
    explicit = [] if options.features is None else [name for name in features if name not in table.made]
    table, dropped = data_table.drop_incomplete(table, [target, *features, *names.values()], options)
    y, classes = read_target(table, target, likelihood, classes, names.get("trials"))
    offset, exposure, weights = (
        table.numbers(names[role]) if role in names else None for role in ("offset", "exposure", "weights")
    )
    if weights is not None:
        check_column(table, names["weights"], weights >= 0, "--weights needs numbers that are not negative")
    low, high = table.ranges(features)
    X = table.of(features) if stored and len(table) > table.of(features).block_rows else table.matrix(features)
    return RegressionTable(
        table=table,
        explicit=explicit,
        X=X,
        names=features,
        y=y,
        target=target,
        classes=classes,
        offset=offset,
        weights=weights,
        exposure=exposure,
        event=read_event(table, names["event"]) if "event" in names else None,
        notes=[*notes, *(f"{name} {level} (base level)" for name, level in base_levels.items()), *dropped],
        roles={"y": target}
        | {KEYWORD_OF_OPTION.get(role, role): name for role, name in names.items() if role != "trials"}
        | {LEVELS_ROLE + name: (f"{name}[{base}]", *indicator_columns[name]) for name, base in base_levels.items()},
        likelihood=likelihood,
        varied=low < high,
    )


def target_of(table, options):
    """Return the name of the target."""
    if options.target is not None:
        return table.select([options.target])[0]
    if "target" in table.about:
        return table.about["target"]
    if len(table.names) == 1:
        return table.names[0]
    raise ValueError(f"{table.source}: choose the column to predict with --target; there is {table.shown_names}")


def list_classes(table, target):
    """Return the distinct values of a target, numbers or text, sorted, and the index of each row's value."""
    if table.is_text(target):
        kinds, y = encode_text(table.text(target))
        return kinds.tolist(), y
    kinds, y = np.unique(table.numbers(target), return_inverse=True)
    return [data_table.format_number(kind) for kind in kinds], y


def classes_of(table, target, binary, stream_classes=None):
    """Return a target as 0, 1, ... in sorted order (or that of `stream_classes`), and the labels of the classes."""
    kinds, y = list_classes(table, target)
    if stream_classes is not None:
        if not table.is_text(target):
            stream_classes = [*map(data_table.rewrite_number, stream_classes)]
        for k, kind in enumerate(kinds):
            if kind not in stream_classes:
                line = table.describe_row(int(np.argmax(y == k)))
                expected = ", ".join(stream_classes)
                raise ValueError(f"{table.source}, {line}: column {target!r} is {kind}, not one of {expected}")
        return np.array([stream_classes.index(kind) for kind in kinds], dtype=np.float64)[y], tuple(stream_classes)
    if binary and len(kinds) != 2:
        raise ValueError(
            f"{table.source}: --likelihood probit and logit need a target of two different values, column {target!r} "
            f"has {len(kinds)} ({list_first(kinds)}); for counts and real numbers choose another --likelihood"
        )
    return y.astype(np.float64), tuple(kinds)


def check_column(table, column, valid, requirement):
    """Raise ValueError at the first row of the column that is not valid."""
    if not valid.all():
        row = int(np.argmin(valid))
        value = table.numbers(column)[row]
        location = f"{table.source}, {table.describe_row(row)}"
        raise ValueError(f"{location}: column {column!r} is {value:g}, but {requirement}")


def report_heading(problem, rows=None, counts=None):
    """Yield the first lines of a report: the number of rows, by classes (default: counted here), and the roles."""
    yield f"{problem.title}: {rows or f'{len(problem.y)} rows'}, target {problem.target}"
    counts = [int(np.sum(problem.y == label)) for label in range(len(problem.classes))] if counts is None else counts
    for label, class_name in enumerate(problem.classes):
        yield f"  class {label}          {class_name}, {counts[label]} rows"
    for role, role_label in REPORTED_ROLES:
        if role in (problem.roles or {}):
            yield f"  {role_label:<16} {problem.roles[role]}"
    if problem.notes:
        yield f"  left out         {', '.join(problem.notes)}"


def report_leave_one_out(posterior, problem, instead=None):
    """Yield the leave-one-out scores; where there are none, `instead` or the reason."""
    try:
        loo = posterior.loo_log_density
    except ValueError as error:  # a cavity without a row is improper, for example
        yield f"  leave-one-out    {instead or error}"
    else:
        yield from report_scores("leave-one-out", loo, problem)


def report_scores(heading, density, problem):
    """Yield the scores of predictions with log densities (N,)."""
    y, classes, weights = problem.y, problem.classes, problem.weights
    weight = np.ones(len(y)) if weights is None else weights
    counted = weight > 0
    density, weight, y = density[counted], weight[counted], y[counted]
    score = np.average(density, weights=weight)
    yield f"  {heading:<16} log score {score:.6f} nats per row"
    if not classes:
        return
    share = np.bincount(y.astype(int), weights=weight, minlength=len(classes)) / weight.sum()
    if len(classes) == 2:
        right = np.average(density > np.log(0.5), weights=weight)
        most = f"{100 * share.max():.1f} % by always saying {classes[int(share[1] > 0.5)]}"
        yield f"                   {100 * right:.1f} % of the rows in the right class ({most})"
    entropy = -np.sum(share[share > 0] * np.log(share[share > 0]))
    yield f"                   {(score + entropy) / np.log(2):z.4f} bits per row beyond the shares of the classes"


def read_priors(options):
    """Return the setting `priors` of a model, None where the option was not given.

    Raises
    ------
    ValueError
        Naming the text that is not understood.
    """
    texts = options.prior or []
    if AVOID_ZERO in texts:
        if len(texts) > 1:
            raise ValueError(f"--prior {AVOID_ZERO} must be the only one, got {len(texts) - 1} more")
        return AVOID_ZERO
    pairs = list(map(_read_prior, texts))
    repeated = find_repeated([name for name, _ in pairs])
    if repeated is not None:
        raise ValueError(f"--prior must name each hyperparameter once, got {repeated!r} twice")
    return dict(pairs) or None


def _read_prior(text):
    """Return the name and the prior of a text."""
    from cavity import priors

    match = PRIOR_TEXT.fullmatch(text)
    name, call = match.groups() if match else (text, "")
    kinds = ", ".join(
        f"{kind}({', '.join(inspect.signature(getattr(priors, kind)).parameters)})" for kind in priors.__all__
    )
    try:
        tree = ast.parse(call.strip(), mode="eval").body
        arguments = [ast.literal_eval(argument) for argument in tree.args]
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in tree.keywords}
        kind = getattr(priors, tree.func.id)
    except (SyntaxError, AttributeError, ValueError):
        raise ValueError(f"--prior must be like 'sd=PC(1, 0.05)', one of {kinds}; got {text!r}") from None
    try:
        return name.strip(), kind(*arguments, **keywords)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--prior {text!r}: {error}") from error


def report_integral(posterior):
    """Yield the integral over hyperparameters and their posterior, if there is one."""
    integration = getattr(posterior, "integration", None)
    if integration is not None:
        lines = repr(integration).splitlines()
        yield f"  integral         {integration.describe()}"
        yield from (f"  {line}" for line in lines[1:])
