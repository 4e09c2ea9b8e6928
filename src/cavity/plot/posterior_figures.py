"""Figures of `plot` for each kind of posterior, composed of Displays, and those of the command line."""

from __future__ import annotations

import inspect
from functools import partial
from os import PathLike

import numpy as np

from cavity.base import arrays
from cavity.base.persistence import open_whole_file
from cavity.plot import display
from cavity.plot.bands import order_columns_by_change
from cavity.plot.calibration import CalibrationDisplay, loo_or_none
from cavity.plot.checks import QuantileDisplay, ResidualDisplay, RootogramDisplay
from cavity.plot.classes import ClassProbabilityDisplay
from cavity.plot.densities import DensityDisplay, ResponsibilityDisplay
from cavity.plot.display import Figure, FigureCanvasBase
from cavity.plot.effects import EffectDisplay, MapDisplay
from cavity.plot.group_curves import GroupCurveDisplay, find_group_levels
from cavity.plot.intervals import MAX_NAMES, IntervalDisplay, size_of
from cavity.plot.mixtures import MixtureDisplay, count_columns
from cavity.plot.number_columns import NumberColumns
from cavity.plot.outliers import OutlierDisplay
from cavity.plot.predictions import PredictionDisplay
from cavity.plot.terms import TermDisplay, plan_terms
from cavity.plot.traces import SelectionDisplay, TraceDisplay
from cavity.plot.volcano import VolcanoDisplay

MAX_CHECK_PANELS = 4
MAX_PANELS = 6  # of a process of several columns
MAX_PANELS_ACROSS = 3
MAX_SPAN_RATIO = 5.0  # of the values of terms in two panels, up to which they share a scale
PANEL_WIDTH, PANEL_HEIGHT = 5.2, 4.2  # of a panel among others, in inches


def draw(posterior, X=None, y=None, *, ax=None, title=None, figure=None, trace=False, **options):
    """Draw the picture of a posterior or a selection, see `cavity.base.results.Posterior.plot`.

    Parameters
    ----------
    posterior : posterior or Selection
        What is drawn.
    X, y, ax, title, **options
        As of `plot`.
    figure : matplotlib.figure.Figure, optional
        Where to draw; by default in a new figure of pyplot.
    trace : bool, default False
        Whether to add a TraceDisplay.

    Returns
    -------
    Axes or ndarray of Axes
        One if the picture has one panel.
    """
    makers, across, size = _plan(posterior, X, y, options)
    if trace:
        makers.append(partial(TraceDisplay.from_posterior, posterior))
        across, size = (len(makers), (11.5, 5.4)) if len(makers) == 2 else (across, (7.0, 9.0))
    _check_options(makers, options)
    down = -(-len(makers) // across)
    size = size or ((1.25 if len(makers) == 1 else across) * PANEL_WIDTH, (1.1 if down == 1 else down) * PANEL_HEIGHT)
    panels = display.make_panels(ax, len(makers), across, size, figure)
    for make, axes in zip(makers, panels, strict=True):
        parameters = inspect.signature(make).parameters
        make(ax=axes, **{name: value for name, value in options.items() if name in parameters})
    _align([(axes, make.func.__self__) for make, axes in zip(makers, panels, strict=True)])
    if title is not None and ax is None and len(panels) > 1:
        panels[0].get_figure().suptitle(title)
    elif title is not None:
        display.add_title(panels[0], title)
    return panels[0] if len(panels) == 1 else panels.view(AxesArray)


class AxesArray(np.ndarray):
    """An array of Axes, of which a notebook shows the number only."""

    def __repr__(self) -> str:
        return f"<{self.size} Axes>"


def make_figure(posterior, X=None, y=None, *, title=None, trace=False, **options):
    """Return a figure for the command line, made without pyplot and its windows."""
    figure = Figure(layout="constrained")
    draw(posterior, X, y, title=title, figure=figure, trace=trace, **options)
    return figure


def _align(panels):
    """Give panels of one kind one legend for the same entries and, if they are effects or terms, one scale."""
    kinds = {}
    for axes, kind in panels:
        kinds.setdefault(kind, []).append(axes)
    for kind, several in kinds.items():
        ends, texts = np.array([axes.get_ylim() for axes in several]), []
        spans = ends[:, 1] - ends[:, 0]
        share = kind is EffectDisplay or (kind is TermDisplay and spans.max() <= MAX_SPAN_RATIO * spans.min())
        for axes in several:
            if share:
                axes.set_ylim(ends[:, 0].min(), ends[:, 1].max())
            legend = axes.get_legend()
            own = [] if legend is None else [text.get_text() for text in legend.get_texts()]
            if own and all(text in texts for text in own):
                legend.remove()
            texts += own


def _check_options(makers, options):
    """Raise TypeError for options that no panel takes."""
    names = {name for make in makers for name in inspect.signature(make).parameters} - {"ax", "title", "X", "y", "x"}
    for name in options:
        if name not in names:
            raise TypeError(f"plot: this picture has no option {name!r}; it has {', '.join(sorted(names)) or 'none'}")


def _plan(posterior, X, y, options):
    """Return the functions that draw the panels, the number side by side, and the size of the figure, or None."""
    if hasattr(posterior, "posteriors"):
        _check_no_rows(posterior, X, y)
        return [partial(SelectionDisplay.from_selection, posterior)], 1, None
    if hasattr(posterior, "findings"):
        return _plan_check(posterior)
    if "columns" in options or ("column" in options and "term" not in options):
        return [_along(posterior, X, y, options)], 1, None
    return PLAN_BY_KIND[posterior.kind](posterior, X, y, options)


def _along(posterior, X, y, options):
    """Return the function that draws what is expected along a column, or over two."""
    curve = NumberColumns.of(posterior, X, y)
    if curve is not None:
        posterior, X, y = curve, curve.rows, curve.observed
        _check_numbers(curve, options)
    elif getattr(posterior, "_coding", None) is not None and X is not None:
        raise arrays.error_of("formula", "must have a column of numbers, along which a curve is drawn")
    if "columns" in options:
        return partial(MapDisplay.from_posterior, posterior, options.pop("columns"), X, y)
    return _effect(posterior, options.pop("column"), X, y)


def _check_numbers(curve, options):
    """Raise ValueError for columns of categories."""
    argument = "columns" if "columns" in options else "column"
    chosen = options[argument]
    for name in chosen if isinstance(chosen, tuple | list) else (chosen,):
        if isinstance(name, str) and name in curve.fixed:
            numbers = ", ".join(map(repr, curve.columns))
            message = f"must be of numbers ({numbers}); {name!r} has levels, which average_predictions compares"
            raise arrays.error_of(argument, message)


def _effect(posterior, column, X, y):
    """Return the function that draws what is expected along a column: probabilities of several classes, stacked."""
    several = (posterior._likelihood.n_classes or 0) > 2
    return partial((ClassProbabilityDisplay if several else EffectDisplay).from_posterior, posterior, column, X, y)


def _plan_check(check):
    """Return the panels of a `ModelCheck`, two side by side."""
    makers = [] if check.counts is None else [partial(RootogramDisplay.from_frequencies, *check.counts)]
    makers.append(partial(QuantileDisplay.from_residuals, check.residuals))
    panels = {"fitted": check.predicted_mean} | check.covariates
    names = [*panels][: MAX_CHECK_PANELS - len(makers)]
    makers += [partial(ResidualDisplay.from_residuals, panels[name], check.residuals, label=name) for name in names]
    return makers, 2, (2 * PANEL_WIDTH, PANEL_HEIGHT * -(-len(makers) // 2))


def _check_no_rows(posterior, X, y):
    if X is not None or y is not None:
        raise arrays.error_of("X", f"and y are not drawn of a {type(posterior).__name__}: leave them out")


def _intervals(posterior, X=None, y=None, options=None):
    _check_no_rows(posterior, X, y)
    return [partial(IntervalDisplay.from_posterior, posterior)], 1, size_of(np.size(posterior.mean))


def _coefficients(posterior, X, y, options):
    makers, across, (width, height) = _intervals(posterior)
    if X is None and y is None:
        return makers, across, (width, height)
    curve = NumberColumns.of(posterior, X, y)
    if curve is not None and not curve.has_other_columns and posterior._likelihood.n_classes != 2:
        return [*makers, _effect(curve, 0, curve.rows, curve.observed)], 2, (2 * PANEL_WIDTH, PANEL_HEIGHT)
    return [*makers, _predictions(posterior, X, y)], 2, (2 * PANEL_WIDTH + 0.8, max(PANEL_HEIGHT + 0.4, height))


def _predictions(posterior, X, y):
    """Return the function that draws predictions of rows: leave-one-out for the rows of the fit.

    But for several classes: f of a row given all others orders rows of equal columns by their classes, and so would be
    bins.
    """
    coding = getattr(posterior, "_coding", None)
    if coding is not None or hasattr(posterior, "terms"):
        has_several_classes = (posterior._likelihood.n_classes or 0) > 2
        rows = posterior._predicted_rows(X, y, None, None, leave_out=not has_several_classes)
        target = "y" if coding is None else coding.parts.y
        if has_several_classes:
            values = rows.mean, rows.class_probabilities(), rows.class_numbers
            labels = {"class_names": posterior.classes, "xlabel": "predicted mean of f", "target": target}
            return partial(ClassProbabilityDisplay.from_predictions, *values, **labels)
        observed, predicted, _ = rows.without_censored().moments()
        if posterior._likelihood.n_classes != 2:
            return partial(PredictionDisplay.from_predictions, observed, predicted, target=target)
        label = f"{target} = {(posterior.classes or (0, 1))[1]}"
        return partial(CalibrationDisplay.from_predictions, observed, predicted, label=label)
    if posterior._likelihood.n_classes != 2:
        return partial(PredictionDisplay.from_posterior, posterior, X, y)
    if X is not None:
        X, y = display.open_rows(posterior, X, y, needs=True)
        density = loo_or_none(posterior)
        X = None if density is not None and len(density) == len(X) else X
    return partial(CalibrationDisplay.from_posterior, posterior, X, y)


def _mixed(posterior, X, y, options):
    term, all_terms = options.get("term"), (*posterior.terms, *posterior.structured_terms)
    if isinstance(term, str) and term in posterior.terms:
        count = len(posterior.effect_names(term)[1])
        return [partial(IntervalDisplay.from_posterior, posterior)], 1, size_of(count)
    if term is not None:
        names = [term] if isinstance(term, str) else list(options["term"])
        for name in names:
            arrays.check_choice(name, "term", all_terms)
        del options["term"]
        return _place_panels(*plan_terms(posterior, names, X, y))
    makers, most = [partial(IntervalDisplay.from_posterior, posterior)], len(posterior.mean)
    components = posterior.variance_components()
    if any(name.endswith("%") for name in components.columns):
        makers.append(partial(IntervalDisplay.from_table, components))
    panels, count = plan_terms(posterior, all_terms, X, y)
    makers, most = makers + panels, max(most, count)
    if X is not None:
        if find_group_levels(posterior):
            makers.append(partial(GroupCurveDisplay.from_posterior, posterior, X))
        makers.append(_predictions(posterior, X, y))
    return _place_panels(makers, most)


def _place_panels(makers, most):
    """Return panels with the number side by side, and the size of the figure, by the most numbers in a panel."""
    if len(makers) == 1:
        kind = makers[0].func.__self__
        return makers, 1, size_of(most) if kind is IntervalDisplay else kind.size
    across = 2 if len(makers) == 4 else min(len(makers), MAX_PANELS_ACROSS)
    down = -(-len(makers) // across)
    return makers, across, (4.2 * across, down * max(3.2, 1.2 + 0.2 * min(most, MAX_NAMES)))


def _process(posterior, X, y, options):
    count = posterior.n_features
    if count == 1:
        return [_effect(posterior, None, X, y)], 1, None
    if count == 2:
        numbers = posterior._likelihood.n_classes is None
        kinds = [options["kind"]] if "kind" in options else ["expected", "sd"] if numbers else ["expected"]
        options.pop("kind", None)
        makers = [partial(MapDisplay.from_posterior, posterior, None, X, y, kind=kind) for kind in kinds]
        return makers, len(kinds), (1.15 * PANEL_WIDTH * len(kinds), 1.05 * PANEL_HEIGHT)
    rows, targets = display.open_rows(posterior, X, y)
    unknown = targets is None or (posterior.has_offset and "offset" not in options)
    predictions = [] if unknown else [_predictions(posterior, X, y)]
    order = order_columns_by_change(posterior, rows)[: MAX_PANELS - len(predictions)]
    makers = [_effect(posterior, int(d), X, y) for d in order] + predictions
    across = 2 if len(makers) in (3, 4) else MAX_PANELS_ACROSS
    return makers, across, (4.2 * across, 3.6 * -(-len(makers) // across))


def _clutter(posterior, X, y, options):
    if np.ndim(posterior.variance) or (X is None and count_columns(posterior) > 1):
        return _intervals(posterior)
    makers = [] if X is None else [partial(OutlierDisplay.from_posterior, posterior, X)]
    if count_columns(posterior) == 1:
        makers.insert(0, partial(DensityDisplay.from_posterior, posterior, X))
    return makers, 1, (6.8, 3.4 * len(makers)) if len(makers) > 1 else None


def _mixture(posterior, X, y, options):
    if count_columns(posterior) > 1:
        return [partial(MixtureDisplay.from_posterior, posterior, X)], 1, MixtureDisplay.size
    kinds = DensityDisplay, ResponsibilityDisplay
    return [partial(kind.from_posterior, posterior, X) for kind in kinds], 1, (6.8, 6.4)


def _mean_field(posterior, X, y, options):
    _check_no_rows(posterior, X, y)
    return [partial(TraceDisplay.from_posterior, posterior)], 1, None


def _many(posterior, X, y, options):
    _check_no_rows(posterior, X, y)
    return [partial(VolcanoDisplay.from_posterior, posterior)], 1, None


PLAN_BY_KIND = {  # functions that plan a figure, by the kind of posterior in saved files
    "clutter": _clutter,
    "factorized": _intervals,
    "gaussian_mixture": _mixture,
    "gaussian_process": _process,
    "gaussian_process_chain": _process,
    "gaussian_process_end": _process,
    "glm": _coefficients,
    "linear_regression": _coefficients,
    "logistic_regression": _coefficients,
    "many": _many,
    "mean_field": _mean_field,
    "mixed": _mixed,
    "streaming_gp": _process,
    "unit_mixture": _mixture,
}


def format_of(path: str | PathLike[str]) -> str:
    """Return the format that the suffix of a path stands for; ValueError if matplotlib cannot write it."""
    suffix = str(path).rpartition(".")[2].lower()
    supported = FigureCanvasBase.get_supported_filetypes()
    if suffix not in supported:
        raise ValueError(f"{path}: cannot draw a {suffix!r} file; use one of {', '.join(sorted(supported))}")
    return suffix


def save_figure(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a figure to a file, whole or not at all, in the format of its suffix."""
    suffix = format_of(path)
    with open_whole_file(path) as file:
        figure.savefig(file, format=suffix, dpi=150)
