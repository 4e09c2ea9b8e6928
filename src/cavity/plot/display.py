"""What all displays share: matplotlib, colours, Axes, labels, and the rows to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.errors import missing_extra_error
from cavity.base.frames import name_coefficients, names_of
from cavity.base.labels import encode_new_labels
from cavity.base.public_objects import Public
from cavity.sources.dataset import Dataset

try:
    from matplotlib import colormaps
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise missing_extra_error("matplotlib", "plot") from error

__all__ = ["Axes", "Figure", "FigureCanvasBase", "MaxNLocator", "colormaps"]  # imported here and nowhere else

# colours that remain distinct with common colour-vision deficiencies
COLOR_CYCLE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1")
SIGNAL_COLOR, CLUTTER_COLOR = COLOR_CYCLE[0], COLOR_CYCLE[5]


class Display(Public):
    """Base of plots of one panel: a subclass has ``_draw(axes)``, and the numbers it draws as attributes."""

    size: ClassVar[tuple[float, float]] = (6.4, 4.4)
    ax_: Any
    figure_: Any

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Draw the plot again, possibly into other Axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        Display
            This one, with `ax_` and `figure_`.
        """
        (self.ax_,) = make_panels(ax, 1, size=self.size)
        self.figure_ = self.ax_.get_figure()
        self._draw(self.ax_)
        if title is not None:
            add_title(self.ax_, title)
        return self

    def _draw(self, axes):
        raise NotImplementedError


def make_panels(ax, count, across=1, size=(6.4, 4.4), figure=None):
    """Return `count` Axes: the checked argument `ax`, or those of a figure, by default a new one of pyplot."""
    if ax is None:
        down = -(-count // across)
        if figure is None:
            from matplotlib import pyplot  # opens a window where there is a display

            figure = pyplot.figure(layout="constrained")
        figure.set_size_inches(size)
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for spare in axes[count:]:
            spare.remove()
        return axes[:count]
    axes, expected = np.asarray(ax, dtype=object).ravel(), "one Axes" if count == 1 else f"an array of {count} Axes"
    for panel in axes:
        if not isinstance(panel, Axes):
            hint = "; give one of its axes" if isinstance(panel, Figure) else ""
            message = f"must be {expected} of matplotlib, got {type(panel).__name__}{hint}"
            raise arrays.error_of("ax", message, TypeError)
        if panel.get_figure() is None or panel not in panel.get_figure().axes:
            raise arrays.error_of("ax", "was removed from its figure; give Axes that belong to a figure")
    if len(axes) != count:
        raise arrays.error_of("ax", f"must be {expected}, one for each panel of this plot, got {len(axes)}")
    return axes


def posterior_error(posterior, expected):
    """Return the TypeError for a posterior of another kind than the expected one."""
    return arrays.error_of("posterior", f"must be {expected}, got {type(posterior).__name__}", TypeError)


def resolve_names(posterior, count, names=None):
    """Return the names of the columns: `names`, by default those of the fit."""
    names = name_coefficients(posterior.columns, count) if names is None else tuple(map(str, names))
    if len(names) != count:
        raise arrays.error_of("names", f"must hold one name for each of the {count} columns, got {len(names)}")
    return names


@dataclass(frozen=True)
class AxisLabels:
    """Labels of the columns, the target and its classes."""

    names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]

    @classmethod
    def of(cls, posterior, count, names=None, target=None, classes=None):
        """Return the labels of a posterior with `count` columns; arguments override those of the fit."""
        names = resolve_names(posterior, count, names)
        if target is None:
            column = (getattr(posterior, "roles", None) or {}).get("y", "y")
            target = column if isinstance(column, str) else ", ".join(column)
        classes = getattr(posterior, "classes", None) if classes is None else classes
        if not classes and (posterior._likelihood.n_classes or 0):
            classes = range(posterior._likelihood.n_classes)
        return cls(names, target, tuple(map(str, classes or ())))

    def prediction_label(self):
        """Return the label of a prediction: the probability of the second of two classes, or the expected target."""
        two = len(self.classes) == 2
        return f"probability of {self.target} = {self.classes[1]}" if two else f"expected {self.target}"

    def set_ylabel(self, axes):
        """Label the vertical axis of predictions."""
        if len(self.classes) == 2:
            axes.set(ylim=(-0.05, 1.05), ylabel=self.prediction_label())
        elif self.classes:
            axes.set_yticks(range(len(self.classes)), self.classes)
            axes.set_ylabel(self.prediction_label())
        else:
            axes.set_ylabel(self.target)


def encode_observed(posterior, y):
    """Return observations as numbers: 0, 1, ... for classes, shares of successes for trials, NaN for censored times."""
    likelihood = posterior._likelihood
    y = arrays.check_real_array(encode_new_labels(y, likelihood, getattr(posterior, "classes", None)), "y")
    if likelihood.takes_trials and y.ndim == 2:
        return np.where(y[:, 1] > 0, y[:, 0] / np.maximum(y[:, 1], 1.0), np.nan)
    if likelihood.takes_event and y.ndim == 2:
        return np.where(y[:, 0] == y[:, 1], y[:, 0], np.nan)
    return np.maximum(y, 0.0) if likelihood.n_classes == 2 else y  # -1 is class 0


def open_rows(posterior, X, y, needs=False, encode=encode_observed):
    """Return rows as an array (n, D) and y as numbers, or None.

    Without X they are the rows of the fit of a process, or the inducing points of a stream (without y).
    """
    if X is None:
        X, rows = getattr(posterior, "X", getattr(posterior, "inducing", None)), getattr(posterior, "_rows", None)
        if X is None:
            raise arrays.error_of("X", "must be given: the posterior keeps no rows, and the plot spans their range")
        y = y if y is not None else None if rows is None else rows.y
    else:
        has_y = y is not None or (posterior.roles or {}).get("y") in (names_of(X) or ())
        X = posterior._with_mean_columns(X) if hasattr(posterior, "_with_mean_columns") else X
        dataset = Dataset.open(X, {"y": y} if has_y else {}, posterior.columns, posterior.roles)
        X, y = dataset.X, dataset.column("y") if has_y else None
    X = arrays.check_finite_array(X, "X", ndim=(2,))
    if needs and y is None:
        raise arrays.error_of("y", "must be given: the posterior keeps no observations")
    if y is not None:
        y = encode(posterior, y)
        if len(y) != len(X):
            raise arrays.error_of("y", f"must have one observation for each of the {len(X)} rows of X, got {len(y)}")
    return X, y


def find_column(column, names, posterior):
    """Return the index of a column, given by its index or by its name in the plot or in the fit."""
    if isinstance(column, str):
        choices = names if column in names else name_coefficients(posterior.columns, len(names))
        return choices.index(arrays.check_choice(column, "column", choices))
    index = arrays.check_integer(column, "column", low=0)
    if index >= len(names):
        raise arrays.error_of("column", f"must be a name or a number below {len(names)}, got {index}")
    return index


def make_grid(sample, count=801):
    """Return points across the data and a little beyond."""
    margin = 0.05 * (np.ptp(sample) or 1.0)
    return np.linspace(sample.min() - margin, sample.max() + margin, count)


def split_into_bins(x, n_bins):
    """Return the numbers of the rows of each bin, of about as many rows; those of one value of x are in one bin."""
    _, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - 0.5 * counts
    number = (n_bins * middle / len(x)).astype(int)[codes]
    return [np.flatnonzero(number == k) for k in np.unique(number)]


def choose_class_colors(count):
    """Return a colour for each class."""
    return [SIGNAL_COLOR, CLUTTER_COLOR] if count == 2 else list(colormaps["viridis"](np.linspace(0.0, 0.9, count)))


def outline_text(text):
    """Give a text a white outline, so that it is readable over any background."""
    text.set_path_effects([withStroke(linewidth=4, foreground="white")])


def add_title(axes, title):
    """Put a title above a panel, and above its present title."""
    axes.set_title("\n".join(filter(None, [title, axes.get_title()])), fontsize="medium")


def add_legend(axes):
    """Draw the legend of a panel below it, where it covers no data."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        ncols = min(len(labels), 2 if max(map(len, labels)) > 20 else 3)
        look = dict(loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=4.4, ncols=ncols, frameon=False)
        axes.legend(handles, labels, fontsize="small", **look)


Names = Sequence[str] | None
