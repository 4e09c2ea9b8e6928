"""Probabilities of several classes, stacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.models.predictive_densities import predict_class_probabilities
from cavity.plot import display
from cavity.plot.bands import CURVE_POINTS, choose_column, differ_in_one_column, make_points, open_labelled_rows

N_SHARE_BINS = 10  # of equal counts, whose observed shares are drawn
MIN_BIN_ROWS = 10


@dataclass(eq=False, repr=False, kw_only=True)
class ClassProbabilityDisplay(display.Display):
    """Probabilities of several classes, stacked along one column or along f, and the shares of rows up to each class.

    Shares that lie on the borders of the areas agree with the probabilities.

    Parameters
    ----------
    x : ndarray (n,)
        Where the probabilities are, in order.
    probability : ndarray (n, n_classes)
        The probabilities of the classes.
    classes : tuple of str
        Names of the classes.
    xlabel, target : str
        Labels of x and of the classes.
    at : ndarray (m,) or None
        The mean of x in each bin of observed rows.
    share, noise : ndarray (m, n_classes - 1) or None
        The share of its rows that are in the classes up to each, and two standard deviations of chance.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> from cavity.plot import ClassProbabilityDisplay
    >>> shares = [[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]]
    >>> display = ClassProbabilityDisplay.from_predictions([0.0, 1.0], shares, [0, 2], class_names=["a", "b", "c"])
    >>> display.share.tolist()
    [[0.5, 0.5]]
    """

    x: FloatArray
    probability: FloatArray
    classes: tuple[str, ...]
    xlabel: str = "f"
    target: str = "y"
    at: FloatArray | None = None
    share: FloatArray | None = None
    noise: FloatArray | None = None

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        column: int | str | None = None,
        X: Any = None,
        y: Any = None,
        *,
        names: display.Names = None,
        target: str | None = None,
        classes: display.Names = None,
        ax: Any = None,
        title: str | None = None,
    ) -> ClassProbabilityDisplay:
        """Draw the probabilities of classes along a column; the other columns stay at their medians.

        Parameters
        ----------
        posterior : posterior with predict
            Of a `cavity.GLM`, a regression, a process or a stream.
        column : int or str, optional
            Its number, from 0, or its name; needed where there are several.
        X : array_like (N, D) or data frame, optional
            Rows: the curve spans their range, and the other columns stay at their medians. By default the rows of the
            fit of a Gaussian process, or the inducing points of a stream.
        y : array_like (N,) or str, optional
            Their observations, or the name of their column of X. They are drawn where there is one column only, and no
            offset: otherwise rows also differ in values that are not on the axis.
        names : sequence of str, optional
            Labels of the D columns, with units; by default their names in the fit.
        target : str, optional
            Label of y, with its unit; by default its name in the fit.
        classes : sequence of str, optional
            Labels of the classes; by default those of the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        ClassProbabilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a column that is not there, and rows that do not fit.
        """
        X, y, labels = open_labelled_rows(posterior, X, y, names, target, classes)
        d = choose_column(column, X, labels, posterior)
        grid = display.make_grid(X[:, d], CURVE_POINTS)
        moments = posterior.predict(make_points(np.median(X, axis=0), d, grid), offset=0)
        bins = compute_shares(X[:, 0], y, len(labels.classes)) if differ_in_one_column(posterior, X, y) else {}
        probability = predict_class_probabilities(posterior._likelihood, lambda: moments)
        texts = {"classes": labels.classes, "xlabel": labels.names[d], "target": labels.target}
        return cls(x=grid, probability=probability, **texts, **bins).plot(ax=ax, title=title)

    @classmethod
    def from_predictions(
        cls,
        x: Any,
        class_probabilities: Any,
        class_numbers: Any = None,
        *,
        class_names: display.Names = None,
        xlabel: str = "f",
        target: str = "y",
        ax: Any = None,
        title: str | None = None,
    ) -> ClassProbabilityDisplay:
        """Draw predicted probabilities of rows, and the shares of the observed classes.

        Parameters
        ----------
        x : array_like (n,)
            The fitted values, or a covariate.
        class_probabilities : array_like (n, n_classes)
            The probabilities of the classes at x.
        class_numbers : array_like (n,), optional
            The numbers 0, 1, ... of the observed classes.
        class_names : sequence of str, optional
            Names of the classes; by default their numbers.
        xlabel : str, default "f"
            Label of x.
        target : str, default "y"
            Label of y.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        ClassProbabilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For arrays of different lengths.
        """
        x = arrays.check_finite_array(x, "x", ndim=(1,))
        class_probabilities = arrays.check_finite_array(class_probabilities, "class_probabilities", ndim=(2,))
        count, bins = class_probabilities.shape[1], {}
        names = tuple(map(str, range(count) if class_names is None else class_names))
        lengths = {"class_probabilities": (class_probabilities, len(x)), "class_names": (names, count)}
        if class_numbers is not None:
            class_numbers = arrays.check_finite_array(class_numbers, "class_numbers", ndim=(1,))
            lengths["class_numbers"] = class_numbers, len(x)
        for name, (value, length) in lengths.items():
            if len(value) != length:
                raise arrays.error_of(name, f"must have length {length}, got {len(value)}")
        if class_numbers is not None:
            bins = compute_shares(x, class_numbers, count)
        order = np.argsort(x, kind="stable")
        texts = {"classes": names, "xlabel": xlabel, "target": target}
        return cls(x=x[order], probability=class_probabilities[order], **texts, **bins).plot(ax=ax, title=title)

    def _draw(self, axes):
        border = np.column_stack([np.zeros(len(self.x)), np.cumsum(self.probability, axis=1)])
        for k, color in enumerate(display.choose_class_colors(len(self.classes))):
            look = dict(color=color, alpha=0.75, lw=0, label=f"{self.target} = {self.classes[k]}")
            axes.fill_between(self.x, border[:, k], border[:, k + 1], **look)
        for k in range(0 if self.at is None else self.share.shape[1]):
            label = None if k else "observed shares up to each class, ± 2 sd"
            look = dict(fmt="o", ms=4, lw=1.0, color="black", mec="white", mew=0.5, label=label)
            axes.errorbar(self.at, self.share[:, k], self.noise[:, k], **look)
        axes.set(xlim=self.x[[0, -1]], ylim=(0.0, 1.0), xlabel=self.xlabel, ylabel="probability")
        display.add_legend(axes)


def compute_shares(x, observed, count):
    """Return the bins of rows of a ClassProbabilityDisplay: the mean of x, shares up to each class, and their noise."""
    n_bins = min(N_SHARE_BINS, max(1, len(x) // MIN_BIN_ROWS))
    bins = display.split_into_bins(x, n_bins)
    share = np.array([[np.mean(observed[rows] <= k) for k in range(count - 1)] for rows in bins])
    sizes = np.array([len(rows) for rows in bins])[:, None]
    noise = 2.0 * np.sqrt((share * sizes + 1.0) * ((1.0 - share) * sizes + 1.0) / (sizes + 2.0) ** 2 / (sizes + 3.0))
    return {"at": np.array([x[rows].mean() for rows in bins]), "share": share, "noise": noise}
