"""What all pictures share: matplotlib, colours, the Axes they are drawn into, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.errors import missing_extra
from cavity.base.frames import coefficient_names, names_of
from cavity.base.labels import recoded
from cavity.base.names import Public
from cavity.sources.dataset import Dataset

try:
    from matplotlib import colormaps
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise missing_extra("matplotlib", "plot") from error

__all__ = ["Axes", "Figure", "FigureCanvasBase", "MaxNLocator", "colormaps"]  # imported here and nowhere else

COLOR_CYCLE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8c6bb1",
)  # told apart by the colour blind
SIGNAL_COLOR, CLUTTER_COLOR = COLOR_CYCLE[0], COLOR_CYCLE[5]
SMALLEST_FLOAT = np.finfo(float).tiny


class Display(Public):
    """Base of pictures of one panel: a subclass has ``_draw(axes)``, and in its attributes the numbers it draws."""

    size: ClassVar[tuple[float, float]] = (6.4, 4.4)
    ax_: Any
    figure_: Any

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Draw the picture, again or elsewhere.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            What stands above it.

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
    """Return `count` Axes: those that are given, checked, or those of a figure, by default a new one of pyplot."""
    if ax is None:
        down = -(-count // across)
        if figure is None:
            from matplotlib import pyplot  # asks for a window where there is one

            figure = pyplot.figure(layout="constrained")
        figure.set_size_inches(size)
        found = figure.subplots(down, across, squeeze=False).ravel()
        for spare in found[count:]:
            spare.remove()
        return found[:count]
    given, wanted = np.asarray(ax, dtype=object).ravel(), "one Axes" if count == 1 else f"an array of {count} Axes"
    for each in given:
        if not isinstance(each, Axes):
            hint = "; give one of its axes" if isinstance(each, Figure) else ""
            raise arrays.wrong("ax", f"must be {wanted} of matplotlib, got {type(each).__name__}{hint}", TypeError)
        if each.get_figure() is None or each not in each.get_figure().axes:
            raise arrays.wrong("ax", "was removed from its figure, so nobody would see what is drawn there")
    if len(given) != count:
        raise arrays.wrong("ax", f"must be {wanted}, one for each panel of this picture, got {len(given)}")
    return given


def posterior_error(posterior, wanted):
    """Return the TypeError of a posterior that a picture cannot draw, which says what is wanted in its place."""
    return arrays.wrong("posterior", f"must be {wanted}, got {type(posterior).__name__}", TypeError)


def resolve_names(posterior, count, names=None):
    """Return what the columns are called, with `names` by these."""
    names = coefficient_names(posterior.columns, count) if names is None else tuple(map(str, names))
    if len(names) != count:
        raise arrays.wrong("names", f"must be of the {count} columns, got {len(names)}")
    return names


@dataclass(frozen=True)
class Labels:
    """What columns, the target and its classes are called in a picture."""

    names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]

    @classmethod
    def of(cls, posterior, count, names=None, target=None, classes=None):
        """Return those of a posterior of so many columns, or others that are given."""
        names = resolve_names(posterior, count, names)
        if target is None:
            known = (getattr(posterior, "roles", None) or {}).get("y", "y")
            target = known if isinstance(known, str) else ", ".join(known)
        classes = getattr(posterior, "classes", None) if classes is None else classes
        if not classes and (posterior._likelihood.n_classes or 0):
            classes = range(posterior._likelihood.n_classes)
        return cls(names, target, tuple(map(str, classes or ())))

    def expected(self):
        """What a prediction is called: the probability of the second of two classes, or what is expected."""
        two = len(self.classes) == 2
        return f"probability of {self.target} = {self.classes[1]}" if two else f"expected {self.target}"

    def label(self, axes):
        """Label the vertical axis of predictions."""
        if len(self.classes) == 2:
            axes.set(ylim=(-0.05, 1.05), ylabel=self.expected())
        elif self.classes:
            axes.set_yticks(range(len(self.classes)), self.classes)
            axes.set_ylabel(self.expected())
        else:
            axes.set_ylabel(self.target)


def open_rows(posterior, X, y, needs=False):
    """Return rows as an array (n, D) and their y in numbers, each None where there is none.

    A process has those of its fit; a state its inducing points, without y.
    """
    if X is None:
        X, known = getattr(posterior, "X", getattr(posterior, "inducing", None)), getattr(posterior, "_rows", None)
        if X is None:
            raise arrays.wrong("X", "must be given: the posterior keeps no rows, and pictures reach as far as they do")
        y = y if y is not None else None if known is None else known.y
    else:
        has_y = y is not None or (posterior.roles or {}).get("y") in (names_of(X) or ())
        dataset = Dataset.open(X, {"y": y} if has_y else {}, posterior.columns, posterior.roles)
        X, y = dataset.X, dataset.column("y") if has_y else None
    X = arrays.finite_array(X, "X", ndim=(2,))
    if needs and y is None:
        raise arrays.wrong("y", "must be given: the posterior keeps no observations")
    if y is not None:
        y = encode_observed(posterior, y)
        if len(y) != len(X):
            raise arrays.wrong("y", f"must have one observation for each of the {len(X)} rows of X, got {len(y)}")
    return X, y


def encode_observed(posterior, y):
    """Return observations as numbers that can be drawn: 0, 1, ... of classes, shares of successes in trials."""
    likelihood = posterior._likelihood
    y = arrays.real_array(recoded(y, likelihood, getattr(posterior, "classes", None)), "y")
    if likelihood.takes_trials and y.ndim == 2:
        return np.where(y[:, 1] > 0, y[:, 0] / np.maximum(y[:, 1], 1.0), np.nan)
    return np.maximum(y, 0.0) if likelihood.n_classes == 2 else y  # -1 is class 0


def find_column(column, names, posterior):
    """Return the number of a column by its name in the picture or in the fit, or by its number."""
    if isinstance(column, str):
        known = names if column in names else coefficient_names(posterior.columns, len(names))
        return known.index(arrays.choice(column, "column", known))
    index = arrays.integer(column, "column", low=0)
    if index >= len(names):
        raise arrays.wrong("column", f"must be a name or a number below {len(names)}, got {index}")
    return index


def make_grid(sample, count=801):
    """Return points across the data and a little beyond."""
    margin = 0.05 * (np.ptp(sample) or 1.0)
    return np.linspace(sample.min() - margin, sample.max() + margin, count)


def choose_class_colors(count):
    """Return a colour for each class."""
    return [SIGNAL_COLOR, CLUTTER_COLOR] if count == 2 else list(colormaps["viridis"](np.linspace(0.0, 0.9, count)))


def outline_text(text):
    """Give a text a white outline, so that it can be read over anything."""
    text.set_path_effects([withStroke(linewidth=4, foreground="white")])


def add_title(axes, title):
    """Put a title above a panel, and above what is said there already."""
    axes.set_title("\n".join(filter(None, [title, axes.get_title()])), fontsize="medium")


def add_legend(axes):
    """Draw the legend of a panel below it, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        ncols = min(len(labels), 2 if max(map(len, labels)) > 20 else 3)
        look = dict(loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=4.4, ncols=ncols, frameon=False)
        axes.legend(handles, labels, fontsize="small", **look)


Names = Sequence[str] | None
