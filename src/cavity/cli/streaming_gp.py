"""`cavity fit streaming-gp`: a Gaussian process that absorbs a table in batches, predicting each beforehand."""

import time
import warnings

import numpy as np

from cavity import likelihoods
from cavity.base.errors import SettingsWarning
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.results import format_count
from cavity.cli import data_table, gaussian_processes, input_tables, regression_data
from cavity.cli.data_table import add_categories, drop_incomplete, list_first, read_coded_columns, reorder_as_fit
from cavity.cli.fit_commands import collect_fit_options, collect_typed, fit_command, format_numbers, format_seconds
from cavity.cli.gaussian_processes import MEAN_FUNCTIONS, START_OPTIONS
from cavity.cli.options import Number, Option, OptionGroup
from cavity.cli.prequential import Scores
from cavity.cli.standard_output import print_error, show_progress
from cavity.likelihoods.names import REAL_LIKELIHOODS, make_likelihood

DEFAULT_BATCH_ROWS = 1000
MIN_ROWS_TO_LEARN = 10  # rows in a first batch to learn from
SECONDS_BETWEEN_SAVES = 60.0
MAX_ROWS_DRAWN = 4000
MEAN_HELP = (
    "zero, constant or linear (fitted to the first batch), or a number, or one and a slope for each column "
    "as in --mean=-3,0.2 (default constant, for classes zero)"
)
SPARSITY_OPTIONS = (
    Number("--inducing", "at least 1", "M", "most inducing points (default 200)"),
    Number("--tolerance", "at least 0", "T", "nats a row below which none is added (default 1e-3)"),
    Number("--jitter", "at least 0 and below 1", "J", "relative nugget of inducing points (default 1e-8)"),
    Number("--alpha", "from 0 to 1", "A", "0 is VFE, 1 is FITC (default by the likelihood)"),
)
MEAN_OPTION = Number("--mean", "finite", "M", MEAN_HELP, several=True, texts=MEAN_FUNCTIONS)
MODEL_OPTIONS = (MEAN_OPTION, *START_OPTIONS, *SPARSITY_OPTIONS)
STREAM_OPTIONS = (
    Number("--batch", "at least 1", "N", f"rows in a batch (default {DEFAULT_BATCH_ROWS})", DEFAULT_BATCH_ROWS),
    Number("--first", "at least 1", "N", "rows in the first one, which settings are learnt from (default --batch)"),
    Number("--skip", "a whole number from 0", "N", "rows at the beginning to leave out", 0),
    Number("--forget", "between 0 and 1", "F", "multiply past information by F in (0, 1) before each further batch"),
)
FIXED_BY_STATE = ("likelihood", "covariance", "first", *(number.name for number in MODEL_OPTIONS))
CLASSES_HELP = "values of a target with classes, in their order (default those of the first batch, sorted)"
CLASSES_OPTION = Option("--classes", "A,B", CLASSES_HELP)
LIKELIHOOD_HELP = "default probit for a first batch with two values of the target, else gaussian"
RESUME_OPTION = Option("--resume", "STATE", "go on with a state that --output saved; it may be replaced")
LEARN_HELP = "the covariance and the noise from the first batch, from every one, or not at all (default first)"
LEARN_OPTION = Option("--learn", ("first", "always", "never"), LEARN_HELP, "first")
COLUMN_OPTIONS = regression_data.make_column_options(others=(CLASSES_OPTION,))
COVARIANCE_OPTIONS = gaussian_processes.make_model_options(LIKELIHOOD_HELP, without=("white",))
GP_OPTIONS = OptionGroup("model", *COVARIANCE_OPTIONS, *MODEL_OPTIONS)
PLOT_CONTENT = "the function with its inducing points, of more than two columns along each of them"
STREAM_GROUP = OptionGroup("stream", *STREAM_OPTIONS, RESUME_OPTION)
FIT_OPTIONS = (COLUMN_OPTIONS, GP_OPTIONS, *input_tables.TABLE_OPTIONS, STREAM_GROUP)


@fit_command("co2, banana", PLOT_CONTENT, *FIT_OPTIONS, max_iter=200, tol=1e-8, fit=[LEARN_OPTION])
def fit(options):
    """Fit a sparse Gaussian process to a table in batches, in the order of its rows and in constant memory.

    Each batch is predicted before it is absorbed, and the scores are printed. The covariance and the noise are
    learnt from starts scaled to the first batch.
    """
    gaussian_processes.check_plot(options)
    fixed = next((name for name in FIXED_BY_STATE if getattr(options, name) is not None), None)
    if options.resume is not None and fixed is not None:
        raise ValueError(f"--resume continues the saved model; leave out --{fixed.replace('_', '-')}")
    stream = Stream(options)
    started = time.perf_counter()
    try:
        with show_progress(options) as show:
            for table, share in input_tables.read_batches(options, options.batch, options.skip, options.first):
                stream.absorb(table)
                stream.save_sometimes()
                show(share, stream.describe())
    except BaseException as error:  # what was absorbed before is saved
        stream.rescue(error)
        raise
    if stream.state is None or not stream.n_batches:
        raise ValueError(f"{options.data}: there are no rows after the first {options.skip}")
    plot_arguments = {} if options.plot is None else stream.plot_arguments()
    return stream.state, report(stream, time.perf_counter() - started), plot_arguments


class Stream:
    """The fit of a stream: the state so far, the scores of its batches, and some rows for the plot."""

    def __init__(self, options):
        self.options = options
        self.state = None if options.resume is None else load_state(options.resume)
        self.kind = options.likelihood if self.state is None else name_of(self.state.model.likelihood)
        self.classes = classes_of(options, self.state)
        self.learn = True  # the argument `learn` of `fit` and `update`
        self.scores = None if self.state is None else Scores(self.state.model.likelihood)
        self.problem = None  # of the last batch
        self.mean = "as saved"
        self.counts = 0
        self.learnt = False  # as the argument `learn` of `fit`
        self.n_rows = self.n_batches = self.unconverged = 0
        self.n_contradicted = 0  # batches that contradicted the settings
        self.drawn, self._stride = [], 1
        self._saved = time.monotonic()

    def absorb(self, table):
        """Predict and absorb a batch; after an error the state is unchanged."""
        self.problem = gaussian_processes.add_scales(self._rows(table))
        state = self._begin() if self.state is None else self._next(self.state.copy())
        self._record()
        unconverged = self.unconverged + (state.status != CONVERGED_STATUS)
        counts = self.n_rows + len(self.problem.y), self.n_batches + 1, unconverged
        # assigned together without a call between, so that Ctrl-C cannot separate the state from its counts
        self.state, (self.n_rows, self.n_batches, self.unconverged) = state, counts

    def _rows(self, table):
        """Return the columns chosen by the options, which the first batch fixes."""
        options, fitted, levels = self.options, None, None
        if self.state is not None:
            fitted, levels = read_coded_columns(self.state.columns, self.state.roles)
            options.categorical = options.categorical or [*levels]
        if self.problem is None:
            options.target = regression_data.target_of(table, options)
            if fitted is not None:
                with_made, _ = add_categories(table, options.categorical, levels)
                names = fitted if options.features is None else with_made.choose(options.features, "--features")[0]
                options.features = reorder_as_fit(fitted, names)
            self.kind = self.kind or regression_data.choose_likelihood(table, options, self.classes)
        if self.classes is None and self.kind in regression_data.CLASS_LIKELIHOODS:
            kinds, _ = regression_data.list_classes(
                drop_incomplete(table, [options.target], options)[0], options.target
            )
            if len(kinds) < 2:
                raise ValueError(
                    f"{table.source}: the target {options.target!r} has one class only in the first batch, {kinds[0]}; "
                    "list the classes, as in --classes=no,yes"
                )
        rows = regression_data.choose_columns(table, options, self.kind, self.classes, levels, in_memory=False)
        rows = rows.with_columns()
        if self.state is not None and len(rows.names) != self.state.n_features:
            raise ValueError(
                f"--resume: {options.resume} is of {format_count(self.state.n_features, 'column')}, got "
                f"{len(rows.names)} ({list_first(rows.names)}); choose with --features"
            )
        options.features, self.classes = rows.names, rows.classes or None
        return rows

    def _begin(self):
        """Return the state after the first batch."""
        from cavity.models.streaming_gp.model import StreamingGP
        from cavity.models.streaming_gp.state import rename_columns

        options, problem = self.options, self.problem
        if options.learn != "never" and len(problem.y) < MIN_ROWS_TO_LEARN:
            raise ValueError(
                f"{options.data}: the first batch has {format_count(len(problem.y), 'row')}, too few to learn from; "
                "say --first 200, for example, or --learn never"
            )
        likelihood, fixed = gaussian_processes.likelihood_of(problem, options, dispersion=1.0)
        mean, self.mean = mean_of(problem, options, likelihood)
        covariance = gaussian_processes.covariance_of(problem, options)
        model = StreamingGP(covariance, likelihood, mean=mean, **collect_typed(options, SPARSITY_OPTIONS))
        self.learn = "covariance" if fixed else True
        self.learnt = options.learn != "never" and self.learn
        state = model.fit(**problem.data(), learn=self.learnt, **collect_fit_options(options) | {"progress": False})
        rename_columns(state, tuple(problem.names), self.classes, problem.roles)
        self.scores = Scores(state.model.likelihood)
        return state

    def _next(self, state):
        """Return the state after a further batch, which is scored first."""
        options, problem = self.options, self.problem
        if options.forget is not None:
            state.forget(options.forget)
        moments = state.predict(problem.X, offset=problem.offset, n_threads=options.threads)
        self.scores.likelihood = state.model.likelihood
        self.scores.add(options.skip + self.n_rows + 1, problem.y, moments, problem.weights, state.n_inducing)
        learn = options.learn == "always" and self.learn
        self.learnt = learn or self.learnt
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always", SettingsWarning)
            state.update(**problem.data(), learn=learn, n_threads=options.threads)
        self.n_contradicted += any(issubclass(warning.category, SettingsWarning) for warning in recorded)
        return state

    def _record(self):
        """Count the classes, and store some of the rows for the plot."""
        y = self.problem.y
        if self.classes is not None:
            self.counts = self.counts + np.bincount(y.astype(int), minlength=len(self.classes))
        if self.options.plot is None:
            return
        is_drawn = (self.n_rows + np.arange(len(y))) % self._stride == 0
        self.drawn.append(np.column_stack([self.problem.X[is_drawn], y[is_drawn]]))
        while sum(map(len, self.drawn)) > MAX_ROWS_DRAWN:
            self.drawn = [np.concatenate(self.drawn)[::2]]
            self._stride *= 2

    def describe(self):
        """Return the progress message."""
        return f"{self.n_rows} rows, {self.state.n_inducing} inducing points, {self.scores.describe()}".rstrip(", ")

    def save_sometimes(self):
        """Save the state if the last time was SECONDS_BETWEEN_SAVES ago."""
        if self.options.output is not None and time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self.state.save(self.options.output)
            self._saved = time.monotonic()

    def rescue(self, error):
        """Save the state before an error or Ctrl-C, and add to the message how to resume."""
        output = self.options.output
        if output is None or not self.n_batches:
            return
        self.state.save(output)
        skip = self.options.skip + self.n_rows
        hint = f"the state before is saved in {output}; resume with --resume {output} --skip {skip}"
        if error.args and isinstance(error.args[0], str):
            error.args = (f"{error}; {hint}",)
        else:
            print_error(hint)

    def plot_arguments(self):
        """Return the arguments of the plot."""
        *columns, y = np.concatenate(self.drawn).T
        return self.problem.labels() | {"X": np.column_stack(columns), "y": y, "classes": self.classes}


def classes_of(options, state):
    """Return the classes of the target in their order, from --classes or the saved state, or None."""
    typed = None if options.classes is None else tuple(c.strip() for c in options.classes.split(","))
    saved = None if state is None else state.classes
    if typed is not None and saved is not None and typed != saved:
        raise ValueError(f"--classes: {options.resume} has {', '.join(saved)}, in this order, got {', '.join(typed)}")
    return typed if saved is None else saved


def load_state(path):
    """Return the state saved in a file."""
    from cavity.models.saved import load
    from cavity.models.streaming_gp.state import StreamingGPState, rename_columns

    state = load(path)
    if not isinstance(state, StreamingGPState):
        raise ValueError(f"--resume: {path} holds a {type(state).__name__}, not a state of cavity fit streaming-gp")
    if state.classes is not None:  # numbers in the format of cells of a table
        classes = (label if isinstance(label, str) else data_table.format_number(label) for label in state.classes)
        rename_columns(state, state.columns, tuple(classes))
    return state


def name_of(likelihood):
    """Return the name of a likelihood on the command line."""
    names = (name for name in regression_data.LIKELIHOOD_NAMES if type(make_likelihood(name)) is type(likelihood))
    name = next(names, None)
    if name is None:
        raise ValueError(f"--resume: the command line has no likelihood {type(likelihood).__name__}")
    return name


def mean_of(problem, options, likelihood):
    """Return the mean of f and its description."""
    mean = options.mean or ("zero" if problem.classes else "constant")
    if not isinstance(mean, str):
        return (mean[0] if len(mean) == 1 else mean), format_numbers(mean)
    if mean == "zero":
        return 0.0, mean
    y = problem.y - (
        0.0 if problem.offset is None or problem.likelihood in regression_data.COUNT_LIKELIHOODS else problem.offset
    )
    weights = np.ones(len(y)) if problem.weights is None else problem.weights
    if problem.likelihood in regression_data.COUNT_LIKELIHOODS and mean == "constant":
        exposure = np.ones(len(y)) if problem.offset is None else np.exp(problem.offset)
        coefficients = float(np.log(max(weights @ y, 0.5) / (weights @ exposure)))
    elif mean == "constant" and not problem.classes and problem.likelihood not in REAL_LIKELIHOODS:
        start = likelihood.start(likelihood.check(problem.y)) - (problem.y - y)
        coefficients = float(np.average(start, weights=weights))
    elif problem.likelihood not in REAL_LIKELIHOODS:
        raise ValueError(f"--mean {mean} has no meaning for --likelihood {problem.likelihood}; give numbers")
    elif mean == "constant":
        coefficients = float(np.average(y, weights=weights))
    else:
        half, middle = np.sqrt(weights), np.average(problem.X, axis=0, weights=weights)
        columns = np.column_stack([np.ones(len(y)), problem.X - middle])
        coefficients = np.linalg.lstsq(columns * half[:, None], y * half)[0]
        coefficients[0] -= coefficients[1:] @ middle
    return coefficients, f"{mean} {format_numbers(coefficients)} (of the first batch)"


def report(stream, seconds):
    """Yield the lines of the printed result."""
    state, problem, options = stream.state, stream.problem, stream.options
    rows = f"{stream.n_rows} rows in {format_count(stream.n_batches, 'batch')}"
    yield from regression_data.report_heading(problem, rows, stream.counts)
    yield from gaussian_processes.report_model(problem, state.model, stream.mean, stream.learnt)
    yield "state"
    if state.n_samples != stream.n_rows:
        yield f"  rows             {state.n_samples} in all"
    yield f"  inducing points  {state.n_inducing} of at most {state.model.n_inducing}"
    yield f"  log bound        {state.log_bound:.6f} nats"
    bound = state.information_lost_bound
    changed = f", with changed settings {bound:.3g} at most" if bound > state.information_lost else ""
    yield f"  information lost {state.information_lost:.3g} nats{changed}"
    if not (state.converged or stream.unconverged):
        yield f"  before           NOT CONVERGED: {state.worst_update}"
    if stream.n_contradicted:
        against = format_count(stream.n_contradicted, "batch")
        yield f"  settings         {against} contradicted the settings that older rows fix; see --forget"
    yield "predictions of each batch before it was absorbed"
    yield from stream.scores.report()
    if stream.scores.is_surprised():
        way_out = "" if options.learn == "always" else "; --learn always, or another covariance, may help"
        yield f"  more errors than predicted: the settings do not fit{way_out}"
    yield "fit"
    done = "converged" if not stream.unconverged else f"NOT CONVERGED in {format_count(stream.unconverged, 'batch')}"
    exact = isinstance(state.model.likelihood, likelihoods.Gaussian)
    method = ("VFE" if state.model.alpha == 0 else f"power {state.model.alpha:g}") if exact else "EP"
    yield f"  {method:<16} {done}, {format_seconds(seconds)}, {stream.n_rows / seconds:.0f} rows a second"
