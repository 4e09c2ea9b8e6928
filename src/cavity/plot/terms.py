"""Structured terms of a mixed model: curves with bands and partial residuals, states of chains, surfaces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.spatial import cKDTree

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.plot import display
from cavity.plot.intervals import IntervalDisplay
from cavity.plot.number_columns import split_columns

TERM_POINTS = 201  # points of a curve, for each level
SURFACE_SIDE_POINTS = 60  # points along each side of a surface
MAX_BARS, MAX_DOTS = 40, 120  # up to so many states have bars in place of a band, and dots
MAX_NAMED_LEVELS = len(display.COLOR_CYCLE)  # up to so many levels have colours, names and bands
MAX_ROWS_DRAWN = 5000  # of more rows some at equal distances are drawn
SHOWN_SHARE = 0.98  # of residuals within the axis; others stand at its edge
SLOPE_STEP = 1e-3  # of f, by which the slope of the mean of an observation is found


@dataclass(eq=False, repr=False, kw_only=True)
class TermDisplay(display.Display):
    """A structured term of a mixed model along one variable: a smooth, or the states of a walk, with bands.

    Values are those of `curve <cavity.MixedGLMPosterior.curve>`, in units of the link; of a factor or group there is a
    curve for each level. Dots are partial residuals: the value of the term in a row, and how far its observation is
    from its mean in units of the link, (y - mean)/(d mean/d f).

    Parameters
    ----------
    term, column : str
        Names of the term, and of the variable.
    x, mean, low, high : ndarray (n,)
        The variable, the values of the term, and the ends of their intervals.
    codes : ndarray of int (n,)
        The number of the level of each point.
    group : str or None
        Name of the column of the levels.
    names : tuple of str
        Names of the levels, none where there is one curve.
    are_states : bool
        Whether points are all there are, and not some of a curve.
    level : float
        Probability of the intervals; as much is left out on either side.
    rows : ndarray (N,) or None
        The variable in rows that are drawn; None where several levels act in a row.
    row_codes : ndarray of int (N,) or None
        The number of the level of each row.
    residuals : ndarray (N,) or None
        Partial residuals of the rows; None for classes, and for functions that are multiplied by numbers. The rows are
        then marks at the axis.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import TermDisplay
    >>> table, about = cavity.data.table("motorcycle", as_frame=True)
    >>> posterior = cavity.GLM("acceleration ~ s(time)").fit(table)
    >>> drawn = TermDisplay.from_posterior(posterior, "s(time)", table)
    >>> drawn.mean.shape, drawn.residuals.shape
    ((201,), (133,))
    """

    term: str
    column: str
    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    codes: Any
    group: str | None = None
    names: tuple[str, ...] = ()
    are_states: bool = False
    level: float = 0.95
    rows: FloatArray | None = None
    row_codes: Any = None
    residuals: FloatArray | None = None

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        term: str,
        X: Any = None,
        y: ArrayLike | str | None = None,
        *,
        level: float = 0.95,
        ax: Any = None,
        title: str | None = None,
    ) -> TermDisplay:
        """Draw a structured term of a mixed model along its variable.

        Parameters
        ----------
        posterior : MixedGLMPosterior
            With structured terms.
        term : str
            Its name, one of `structured_terms`.
        X : data frame, array_like (N, D) or NewRows, optional
            Rows, as `predict` takes them, which are drawn beside it.
        y : array_like (N,) or str, optional
            Their observations, or the name of their column of X.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        TermDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a term that is not there, or is no function of one variable.
        """
        numbers, labels, constants = describe_grid(posterior, term)
        if len(numbers) != 1:
            raise arrays.error_of("term", f"must be a function of one variable, got {term!r}: plot(term=...) draws it")
        table = posterior.curve(term, level=level, n_points=TERM_POINTS).columns
        *_, mean, _, low, high = table.values()
        column, names = numbers[0], ()
        codes = np.zeros(len(mean), dtype=np.intp)
        if labels:
            names, codes = np.unique(list(map(str, table[labels[0]])), return_inverse=True)
        rows, row_codes, residuals = None, None, None
        built = find_built(posterior, term)
        if X is not None and built.point_variables == built.variables:
            columns = read_term_columns(posterior, X)
            rows = fold(posterior, term, column, columns[column])
            row_codes = np.zeros(len(rows), dtype=np.intp)
            if labels:
                row_codes = np.searchsorted(names, list(map(str, columns[labels[0]])))
            residuals = None if constants else find_partial_residuals(posterior, term, X, y, columns)
        return cls(
            term=f"{term} at {', '.join(f'{name} = 1' for name in constants)}" if constants else term,
            column=str(column),
            x=np.asarray(table[str(column)], dtype=np.float64),
            mean=mean,
            low=low,
            high=high,
            codes=codes,
            group=str(labels[0]) if labels else None,
            names=tuple(map(str, names)),
            are_states=not built.has_knots,
            level=arrays.check_number(level, "level", low=0.0, high=1.0),
            rows=rows,
            row_codes=row_codes,
            residuals=residuals,
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        axes.axhline(0.0, color="gray", lw=0.6, zorder=0.5)
        if self.rows is not None:
            self._draw_rows(axes)
        for k in range(max(1, len(self.names))):
            self._draw_level(axes, np.flatnonzero(self.codes == k), k)
        if len(self.names) <= MAX_NAMED_LEVELS:
            color = display.SIGNAL_COLOR if not self.names else "gray"
            look = dict(color=color, alpha=0.25, lw=6.0, label=f"{100 * self.level:.3g} % interval")
            axes.plot([], [], "-", **look)
        axes.set(xlabel=self.column, ylabel=self.term)
        room = (0.02 if self.are_states else 0.0) * np.ptp(self.x)
        axes.set_xlim(self.x.min() - room, self.x.max() + room)
        if self.are_states and np.all(self.x == np.round(self.x)):
            axes.xaxis.set_major_locator(display.MaxNLocator(integer=True))
        display.add_legend(axes)

    def _color(self, k):
        """The colour of a level."""
        if not self.names:
            return display.SIGNAL_COLOR
        return display.COLOR_CYCLE[k] if len(self.names) <= MAX_NAMED_LEVELS else "gray"

    def _draw_level(self, axes, points, k):
        """Draw the curve of a level, and its band."""
        x, mean, color, label = self.x[points], self.mean[points], self._color(k), None
        line = ".-" if self.are_states and len(points) <= MAX_DOTS else "-"
        if len(self.names) > MAX_NAMED_LEVELS:
            label = None if k else f"levels of {self.group}"
            axes.plot(x, mean, line, ms=3, lw=0.6, color=color, alpha=0.8, label=label)
            return
        label = f"{self.group} {self.names[k]}" if self.names else None
        if self.are_states and len(self.x) <= MAX_BARS:
            ends = np.abs(np.stack([self.low[points], self.high[points]]) - mean)
            axes.errorbar(x, mean, ends, fmt="o-", ms=3.5, lw=0.6, elinewidth=1.4, color=color, label=label)
            return
        axes.fill_between(x, self.low[points], self.high[points], color=color, alpha=0.15 if self.names else 0.25, lw=0)
        axes.plot(x, mean, line, ms=3, lw=1.6, color=color, label=label)

    def _draw_rows(self, axes):
        """Draw partial residuals, at the edge where they are far from all others, or marks at the axis."""
        shown = slice(None, None, max(1, -(-len(self.rows) // MAX_ROWS_DRAWN)))
        x, codes = self.rows[shown], self.row_codes[shown]
        colors = np.array([self._color(k) for k in range(max(1, len(self.names)))] if self.names else ["black"])
        if self.residuals is None:
            foot = np.full(len(x), 0.015)
            axes.plot(x, foot, "|", ms=5, mew=0.5, color="black", alpha=0.4, transform=axes.get_xaxis_transform())
            return
        values = self.residuals[shown]
        tail = 50.0 * (1.0 - SHOWN_SHARE)
        low, high = np.nanpercentile(values, [tail, 100.0 - tail])
        low, high = min(low, self.low.min()), max(high, self.high.max())
        room = 0.1 * (high - low) or 1.0
        low, high = (max(np.nanmin(values), low - room), min(np.nanmax(values), high + room))
        low, high = min(low, self.low.min()), max(high, self.high.max())
        markers = ((values < low, "v"), (values > high, "^"), ((values >= low) & (values <= high), "o"))
        label = "partial residuals"
        for points, marker in markers:
            look = dict(s=9 if marker == "o" else 16, lw=0, alpha=0.5 if len(x) < 500 else 0.25, zorder=0.9)
            axes.scatter(
                x[points],
                np.clip(values[points], low, high),
                marker=marker,
                c=colors[codes[points] % len(colors)],
                label=label if marker == "o" and not self.names else None,
                rasterized=len(x) > 1500,
                **look,
            )
        room = 0.03 * (high - low)
        axes.set_ylim(low - room, high + room)


@dataclass(eq=False, repr=False, kw_only=True)
class SurfaceDisplay(display.Display):
    """A structured term of two variables, as filled contours with the rows.

    Parameters
    ----------
    term : str
        Name of the term.
    columns : tuple of str
        The variables, that of the horizontal axis first.
    sides : tuple of ndarray
        Where the surface was computed along each.
    values : ndarray (n, n)
        The mean or the sd; rows along the vertical axis.
    kind : {"mean", "sd"}
        Which of them.
    points : ndarray (N, 2) or None
        Rows that are drawn.
    reach : float or None
        Where no row is nearer than this, in units of the ranges, nothing is drawn.
    cycles : pair of bool
        Which variables are periodic, so that rows at one end are near to the other.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> from cavity.plot import SurfaceDisplay
    >>> x, z = np.random.default_rng(0).uniform(size=(2, 200))
    >>> rows = {"x": x, "z": z, "y": np.sin(4.0 * x * z) + 0.1 * np.random.default_rng(1).normal(size=200)}
    >>> posterior = cavity.GLM("y ~ te(x, z)").fit(rows)
    >>> SurfaceDisplay.from_posterior(posterior, "te(x, z)", rows).values.shape
    (60, 60)
    """

    size: ClassVar[tuple[float, float]] = (6.4, 5.0)
    term: str
    columns: tuple[str, str]
    sides: tuple[FloatArray, FloatArray]
    values: FloatArray
    kind: str = "mean"
    points: FloatArray | None = None
    reach: float | None = 0.1
    cycles: tuple[bool, bool] = (False, False)

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        term: str,
        X: Any = None,
        *,
        kind: Literal["mean", "sd"] = "mean",
        reach: float | None = 0.1,
        ax: Any = None,
        title: str | None = None,
    ) -> SurfaceDisplay:
        """Draw a structured term of a mixed model over its two variables.

        Parameters
        ----------
        posterior : MixedGLMPosterior
            With structured terms.
        term : str
            Its name, one of `structured_terms`.
        X : data frame, array_like (N, D) or NewRows, optional
            Rows, as `predict` takes them, which are drawn beside it.
        kind : {"mean", "sd"}, default "mean"
            What is drawn: the mean of the term or its sd.
        reach : float, optional
            With rows, nothing is drawn where none is nearer than this, in units of the ranges of the variables. None
            draws all.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        SurfaceDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a term that is not there, or is no function of two variables.
        """
        arrays.check_choice(kind, "kind", ("mean", "sd"))
        numbers, labels, _ = describe_grid(posterior, term)
        if len(numbers) != 2 or labels:
            raise arrays.error_of("term", f"must be a function of two variables, got {term!r}: plot(term=...) draws it")
        table = posterior.curve(term, n_points=SURFACE_SIDE_POINTS**2).columns
        x, z = (np.asarray(table[str(column)], dtype=np.float64) for column in numbers)
        sides = np.unique(x), np.unique(z)
        values = np.empty((len(sides[1]), len(sides[0])))
        values[np.searchsorted(sides[1], z), np.searchsorted(sides[0], x)] = table[kind]
        points = None
        if X is not None:
            columns = read_term_columns(posterior, X)
            points = np.stack([fold(posterior, term, name, columns[name]) for name in numbers], axis=1)
        reach = None if reach is None else arrays.check_number(reach, "reach", low=0.0)
        names = tuple(map(str, numbers))
        cycles = getattr(find_built(posterior, term), "cycles", (False, False))
        settings = {"kind": kind, "points": points, "reach": reach, "cycles": cycles}
        display = cls(term=term, columns=names, sides=sides, values=values, **settings)
        return display.plot(ax=ax, title=title)

    def _near_rows(self):
        """The values, not numbers where no row is near."""
        if self.points is None or self.reach is None:
            return self.values
        low, high = np.array([side[[0, -1]] for side in self.sides]).T
        nodes = np.stack(np.meshgrid(*self.sides), axis=-1).reshape(-1, 2)
        tree = cKDTree((self.points - low) / (high - low), boxsize=np.asarray(self.cycles, dtype=float))
        distance, _ = tree.query((nodes - low) / (high - low))
        return np.where(distance.reshape(self.values.shape) > self.reach, np.nan, self.values)

    def _draw(self, axes):
        values, look = self._near_rows(), {"levels": 14, "cmap": "magma"}
        if self.kind == "mean":
            end = float(np.nanmax(np.abs(values))) or 1.0
            look = {"levels": 14, "cmap": "RdBu_r", "vmin": -end, "vmax": end}
        contours = axes.contourf(*self.sides, values, **look)
        lines = axes.contour(*self.sides, values, contours.levels[::2], colors="black", linewidths=0.5)
        if self.kind == "mean":
            axes.clabel(lines, fontsize="x-small")
        if self.points is not None:
            shown = self.points[:: max(1, -(-len(self.points) // MAX_ROWS_DRAWN))]
            edge = dict(ms=2.5 if len(shown) < 500 else 1.2, mew=0, alpha=0.6, rasterized=len(shown) > 1500)
            axes.plot(*shown.T, "o", color="black" if self.kind == "mean" else "white", **edge)
        axes.get_figure().colorbar(contours, ax=axes, label=self.term if self.kind == "mean" else f"sd of {self.term}")
        axes.set(xlim=self.sides[0][[0, -1]], ylim=self.sides[1][[0, -1]])
        axes.set(xlabel=self.columns[0], ylabel=self.columns[1])


# ------------------------------------------------------------------------------------------ terms of a posterior


def find_built(posterior, term):
    """Return the built term of a name; ValueError or TypeError if there is none."""
    if not hasattr(posterior, "structured_terms"):
        raise display.posterior_error(posterior, "of a mixed model with structured terms")
    arrays.check_choice(term, "term", posterior.structured_terms)
    return posterior._reader.structured[posterior.structured_terms.index(term)]


def describe_grid(posterior, term):
    """Return the columns of numbers of the grid of a term, those of labels, and those of the number 1."""
    return split_columns(find_built(posterior, term))


def fold(posterior, term, column, values):
    """Return a column of rows as numbers, within its cycle if the term is periodic in it."""
    built, x = find_built(posterior, term), arrays.check_finite_array(values, column, ndim=(1,))
    if hasattr(built, "cycles"):
        d = built.columns.index(column)
        return np.mod(x, built.ranges[d][1]) if built.cycles[d] else x
    return np.mod(x, built.high) if getattr(built, "periodic", False) else x


def read_term_columns(posterior, X):
    """Return the columns of all structured terms in rows, by their names."""
    rows = posterior.rows(X)
    return posterior._reader.read(rows.X, rows.groups, rows.levels, {"offset": None, "exposure": None})[2]


def find_partial_residuals(posterior, term, X, y, columns):
    """Return the partial residuals (N,) of a term, not a number for censored times; None for classes."""
    likelihood = posterior._likelihood
    if likelihood.n_classes is not None:
        return None
    rows = posterior._predicted_rows(X, y, None, None, leave_out=False)
    exact = slice(None)
    if likelihood.takes_event:
        exact, rows = rows.y[:, 0] == rows.y[:, 1], rows.without_censored()
    out = np.full(len(exact) if likelihood.takes_event else len(rows.mean), np.nan)
    try:
        value, mean, _ = rows.moments()
        up, down = (
            likelihood.moments(rows.mean + sign * SLOPE_STEP, rows.variance, **rows.trials)[0] for sign in (1.0, -1.0)
        )
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        return None
    built = find_built(posterior, term)
    means = posterior.curve(term, {name: columns[name] for name in built.variables}).columns["mean"]
    out[exact] = means[exact] + 2.0 * SLOPE_STEP * (value - mean) / (up - down)
    return out


def plan_terms(posterior, names, X=None, y=None):
    """Return the functions that draw terms of a mixed model, one for each panel, and the most numbers in one."""
    makers, most = [], 1
    for name in names:
        if name in posterior.terms:
            columns, levels = posterior.effect_names(name)
            makers += [partial(IntervalDisplay.from_posterior, posterior, term=name, column=c) for c in columns]
            most = max(most, len(levels))
            continue
        numbers, labels, _ = describe_grid(posterior, name)
        if len(numbers) == 1:
            makers.append(partial(TermDisplay.from_posterior, posterior, name, X, y))
        elif len(numbers) == 2 and not labels:
            makers.append(partial(SurfaceDisplay.from_posterior, posterior, name, X))
        else:
            makers.append(partial(IntervalDisplay.from_posterior, posterior, term=name))
            most = max(most, find_built(posterior, name).size)
    return makers, most
