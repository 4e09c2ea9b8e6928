"""Predictions along one column and over two columns; the other columns stay at their medians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity import likelihoods
from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.plot import bands, display
from cavity.plot.calibration import find_surprising

MIN_ROWS_SMALL_DOTS = 450  # from here on rows are drawn as smaller dots
MIN_ROWS_BEHIND = 1500  # above it rows are drawn below the curve and its bands
MAX_ROWS_DRAWN = 20000
MAP_SIDE_POINTS = 100  # points along each side of a map


@dataclass(eq=False, repr=False, kw_only=True)
class EffectDisplay(display.Display):
    """The expected target along one column, with bands; the other columns stay at their medians.

    Parameters
    ----------
    labels : Labels
        Labels of the columns, the target and its classes.
    column : int
        The number of the column.
    grid : ndarray (n,)
        Values of the column along the curve.
    expected, low, high : ndarray (n,)
        The mean of an observation (of two classes the probability of the second, of more their mean number), and the
        ends of its band where f is at the ends of its interval.
    others : ndarray (D,)
        Where the other columns stay.
    level : float
        Probability of the intervals; as much is left out on either side.
    grid_new : ndarray (m,)
        The points of `grid` at which the interval of a new observation is computed.
    low_new, high_new : ndarray (m,) or None
        The ends of the interval of a new observation there; None where that is no band, as with classes.
    x, y : ndarray (N,) or None
        Rows that are drawn: the column, and the observations.
    surprising : ndarray of bool (N,) or None
        Rows outside the interval that all other rows predict for them.
    inducing : ndarray (M,) or None
        The inducing points of a stream along the column.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import EffectDisplay
    >>> columns, about = cavity.data.table("motorcycle")
    >>> X, y = columns["time"][:, None], columns["acceleration"]
    >>> covariance, noise = cavity.covariances.RBF(2000.0, 5.0), cavity.likelihoods.Gaussian(500.0)
    >>> posterior = cavity.GaussianProcess(covariance, noise).fit(X, y, learn=False)
    >>> display = EffectDisplay.from_posterior(posterior, names=["time [ms]"], target="acceleration [g]")
    >>> display.ax_.get_xlabel(), int(display.surprising.sum())
    ('time [ms]', 8)
    """

    labels: display.AxisLabels
    column: int
    grid: FloatArray
    expected: FloatArray
    low: FloatArray
    high: FloatArray
    others: FloatArray
    level: float = 0.95
    grid_new: FloatArray | None = None
    low_new: FloatArray | None = None
    high_new: FloatArray | None = None
    x: FloatArray | None = None
    y: FloatArray | None = None
    surprising: Any = None
    inducing: FloatArray | None = None

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        column: int | str | None = None,
        X: Any = None,
        y: ArrayLike | str | None = None,
        *,
        level: float = 0.95,
        names: display.Names = None,
        target: str | None = None,
        classes: display.Names = None,
        ax: Any = None,
        title: str | None = None,
    ) -> EffectDisplay:
        """Draw what a posterior predicts along a column.

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
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
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
        EffectDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a column that is not there, rows that do not fit, or a posterior that keeps none.
        """
        level = arrays.check_number(level, "level", low=0, high=1)
        own = X is None
        X, y, labels = bands.open_labelled_rows(posterior, X, y, names, target, classes)
        d = bands.choose_column(column, X, labels, posterior)
        others = np.median(X, axis=0)
        grid = np.maximum(display.make_grid(X[:, d], bands.CURVE_POINTS), posterior._earliest)
        points = bands.make_points(others, d, grid)
        expected, low, high = bands.predict_band(posterior, points, level)
        sparse = slice(
            None, None, 1 if isinstance(posterior._likelihood, likelihoods.Gaussian) else bands.QUANTILE_STRIDE
        )
        ends = bands.predict_interval(posterior, points[sparse], level) or (None, None)
        has_one_column = bands.differ_in_one_column(posterior, X, y)
        inducing = getattr(posterior, "inducing", None)
        return cls(
            labels=labels,
            column=d,
            grid=grid,
            expected=expected,
            low=low,
            high=high,
            grid_new=grid[sparse],
            low_new=ends[0],
            high_new=ends[1],
            others=others,
            level=level,
            x=X[:, 0] if has_one_column else None,
            y=y if has_one_column else None,
            surprising=find_surprising(posterior, level) if has_one_column and own else None,
            inducing=None if inducing is None else inducing[:, d],
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        share = f"{100 * self.level:.3g} %"
        if self.low_new is not None:
            look = dict(color="gray", alpha=0.2, lw=0, label=f"{share} of new observations")
            axes.fill_between(self.grid_new, self.low_new, self.high_new, **look)
        look = dict(color=display.SIGNAL_COLOR, alpha=0.3, lw=0, label=f"{share} interval of the function")
        axes.fill_between(self.grid, self.low, self.high, **look)
        axes.plot(self.grid, self.expected, color=display.SIGNAL_COLOR, lw=1.6, label="expected")
        if self.y is not None:
            self._points(axes)
        if self.inducing is not None:
            foot = np.full(len(self.inducing), 0.015)
            label = f"{len(self.inducing)} inducing points"
            look = dict(ms=8, color=display.CLUTTER_COLOR, label=label, transform=axes.get_xaxis_transform())
            axes.plot(self.inducing, foot, "|", **look)
        axes.set_xlim(self.grid[0], self.grid[-1])
        self.labels.set_ylabel(axes)
        axes.set_xlabel(self.labels.names[self.column])
        display.add_legend(axes)

    def _points(self, axes):
        x, y, classes = self.x, self.y, self.labels.classes
        class_index = y.astype(int) if classes else np.zeros(len(y), dtype=int)
        colors = display.choose_class_colors(len(classes)) if classes else ["black"]
        look = dict(ms=4.0 if len(y) < MIN_ROWS_SMALL_DOTS else 2.0, mew=0, alpha=0.6)
        if len(y) > MIN_ROWS_BEHIND:  # so many rows are drawn below the curve and its bands
            step = -(-len(y) // MAX_ROWS_DRAWN)
            x, y, class_index = x[::step], y[::step], class_index[::step]
            look |= dict(alpha=max(0.15, MIN_ROWS_BEHIND / len(y) / 2), zorder=0.9, rasterized=True)
        for k, color in enumerate(colors):
            label = f"{self.labels.target} = {classes[k]}" if classes else "data"
            axes.plot(x[class_index == k], y[class_index == k], "o", color=color, label=label, **look)
        if self.surprising is not None and self.surprising.any():
            label = f"outside the {100 * self.level:.3g} % that the others predict"
            look = dict(ms=9, mew=1.1, mfc="none", mec=display.CLUTTER_COLOR, label=label)
            axes.plot(self.x[self.surprising], self.y[self.surprising], "o", **look)
        if not classes:  # gross outliers of the band's own tails do not stretch it
            ends = y[np.isfinite(y)] if self.low_new is None else np.concatenate([self.low_new, self.high_new])
            low, high = min(np.nanmin(y), np.nanmin(ends)), max(np.nanmax(y), np.nanmax(ends))
            room = 0.05 * (high - low) or 1.0
            axes.set_ylim(low - room, high + room)


@dataclass(eq=False, repr=False, kw_only=True)
class MapDisplay(display.Display):
    """A map over two columns; the others stay at their medians.

    Parameters
    ----------
    labels : Labels
        Labels of the columns, the target and its classes.
    columns : tuple of int
        The numbers of the two columns, that of the horizontal axis first.
    sides : tuple of ndarray
        Where the map was computed along each.
    values : ndarray (n, n)
        The probability of the second of two classes, the expected target (of more classes their mean number), or the
        sd of the function; rows along the vertical axis.
    kind : {"expected", "sd"}
        Which of them.
    others : ndarray (D,)
        Where the other columns stay.
    points : ndarray (N, 2)
        Rows that are drawn.
    y : ndarray (N,) or None
        Their observations.
    inducing : ndarray (M, 2) or None
        The inducing points of a stream.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import MapDisplay
    >>> frame = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    >>> posterior = cavity.GLM("probit", prior_variance=9.0, intercept=True).fit(frame, ["no", "yes", "no", "yes"])
    >>> display = MapDisplay.from_posterior(posterior, X=frame)
    >>> display.ax_.get_xlabel(), display.values.shape
    ('x1', (100, 100))
    """

    size: ClassVar[tuple[float, float]] = (6.4, 5.0)
    labels: display.AxisLabels
    columns: tuple[int, int]
    sides: tuple[FloatArray, FloatArray]
    values: FloatArray
    kind: str
    others: FloatArray
    points: FloatArray
    y: FloatArray | None = None
    inducing: FloatArray | None = None

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        columns: Any = None,
        X: Any = None,
        y: ArrayLike | str | None = None,
        *,
        kind: str = "expected",
        names: display.Names = None,
        target: str | None = None,
        classes: display.Names = None,
        ax: Any = None,
        title: str | None = None,
    ) -> MapDisplay:
        """Draw what a posterior predicts over two columns.

        Parameters
        ----------
        posterior : posterior with predict
            Of a `cavity.GLM`, a regression, a process or a stream.
        columns : pair of int or str, optional
            Their numbers, from 0, or names; needed where there are more than two.
        X : array_like (N, D) or data frame, optional
            Rows: the map spans their range, and the other columns stay at their medians. By default the rows of the fit
            of a Gaussian process, or the inducing points of a stream.
        y : array_like (N,) or str, optional
            Their observations, or the name of their column of X. They are not drawn where the fit had offsets.
        kind : {"expected", "sd"}, default "expected"
            What is drawn: the probability of the second of two classes or the expected target; or the sd of the
            function.
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
        MapDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            Unless there are two columns, and for rows that do not fit, or a posterior that keeps none.
        """
        arrays.check_choice(kind, "kind", ("expected", "sd"))
        X, y, labels = bands.open_labelled_rows(posterior, X, y, names, target, classes)
        a, b = choose_two_columns(columns, labels.names, posterior)
        others = np.median(X, axis=0)
        sides = display.make_grid(X[:, a], MAP_SIDE_POINTS), display.make_grid(X[:, b], MAP_SIDE_POINTS)
        points = bands.make_points(others, [a, b], np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2))
        if kind == "sd":
            values = np.sqrt(posterior.predict(points, offset=0)[1])
        else:
            values = bands.predict_band(posterior, points, 0.95)[0]
        inducing = getattr(posterior, "inducing", None)
        return cls(
            labels=labels,
            columns=(a, b),
            sides=sides,
            values=values.reshape(MAP_SIDE_POINTS, MAP_SIDE_POINTS),
            kind=kind,
            others=others,
            points=X[:, [a, b]],
            y=None if posterior.has_offset else y,
            inducing=None if inducing is None else inducing[:, [a, b]],
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        dense, classes = len(self.points) >= MIN_ROWS_SMALL_DOTS, self.labels.classes
        if self.kind == "sd":
            contours, label = axes.contourf(*self.sides, self.values, 12, cmap="magma"), "sd of the function"
            look = dict(ms=1.5 if dense else 3, mfc="none", mec="white", mew=0.3 if dense else 0.6)
            axes.plot(*self.points.T, "o", rasterized=len(self.points) > MAX_ROWS_DRAWN, **look)
        elif classes:
            contours, label = self._classes(axes), self.labels.prediction_label()
        else:
            shown = self.values if self.y is None else np.append(self.values.ravel(), self.y[np.isfinite(self.y)])
            look = dict(cmap="viridis", vmin=np.nanmin(shown), vmax=np.nanmax(shown))
            contours, label = axes.contourf(*self.sides, self.values, 15, **look), self.labels.prediction_label()
            if self.y is not None:
                edge = dict(s=8 if dense else 18, edgecolors="white", linewidths=0.3 if dense else 0.5)
                axes.scatter(*self.points.T, c=self.y, rasterized=len(self.points) > MAX_ROWS_DRAWN, **edge, **look)
                label += " (points: observed)"
        bar = axes.get_figure().colorbar(contours, ax=axes, label=label)
        if classes and len(classes) > 2 and self.kind == "expected":
            bar.set_ticks(range(len(classes)), labels=classes)
        if self.inducing is not None:
            label = f"{len(self.inducing)} inducing points"
            axes.plot(*self.inducing.T, "X", ms=7, mew=0.7, color="black", mec="white", label=label)
        xlabel, ylabel = (self.labels.names[d] for d in self.columns)
        axes.set(xlim=self.sides[0][[0, -1]], ylim=self.sides[1][[0, -1]], xlabel=xlabel, ylabel=ylabel)
        display.add_legend(axes)

    def _classes(self, axes):
        """Draw the probability of the second of two classes, or the expected one of several, and the rows of each."""
        classes, two = self.labels.classes, len(self.labels.classes) == 2
        levels = np.linspace(0.0, len(classes) - 1.0, 11 if two else 4 * len(classes) - 3)
        values = np.clip(self.values, 0.0, levels[-1])
        contours = axes.contourf(*self.sides, values, levels, cmap="RdBu_r" if two else "viridis")
        if two:
            shown = [level for level in (0.1, 0.5, 0.9) if np.nanmin(values) < level < np.nanmax(values)]
            lines = axes.contour(*self.sides, values, shown, colors="black", linewidths=1.2) if shown else None
            if lines:
                axes.clabel(lines, fmt="%.1f", fontsize="x-small")
        size, edge = (5.0, 0.5) if len(self.points) < MIN_ROWS_SMALL_DOTS else (3.5, 0.3)
        for k, color in enumerate(display.choose_class_colors(len(classes)) if self.y is not None else ()):
            look = dict(ms=size, mec="white" if two else "black", mew=edge, alpha=0.9, color=color)
            label = f"{self.labels.target} = {classes[k]}"
            axes.plot(*self.points[self.y == k].T, "so^Dv"[k % 5], label=label, ls="none", **look)
        return contours


def choose_two_columns(columns, names, posterior):
    """Return the numbers of two different columns."""
    if len(names) < 2:
        raise ValueError(f"a map needs two columns, but X has one ({names[0]}): EffectDisplay draws along it")
    if columns is None and len(names) > 2:
        raise arrays.error_of("columns", f"must say which two of the {len(names)} columns to draw over, got None")
    try:
        chosen = (0, 1) if columns is None else () if isinstance(columns, str) else tuple(columns)
    except TypeError:
        chosen = ()
    indices = [display.find_column(column, names, posterior) for column in chosen]
    if len(indices) != 2 or indices[0] == indices[1]:
        raise arrays.error_of("columns", f"must be two different columns, got {columns!r}")
    return indices
