"""Curves of the levels of a group of a mixed model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.plot import display
from cavity.plot.bands import compute_band, differ_in_one_column, make_points, order_columns_by_change
from cavity.plot.number_columns import NumberColumns, list_number_columns

GROUP_CURVE_POINTS = 101  # points along the column
LINE_STYLES = "-", "--", "-.", ":"  # some colours are alike with colour-vision deficiencies
MAX_NAMED_LEVELS = len(display.COLOR_CYCLE)  # up to so many levels have colours and names


@dataclass(eq=False, repr=False, kw_only=True)
class GroupCurveDisplay(display.Display):
    """What is expected along one column: a curve for each level of a group, and one with its effects at zero.

    Other columns of numbers stay at their medians, those of categories at their most frequent level, and effects of
    other groups at zero.

    Parameters
    ----------
    column, group, target : str
        Names of the column, the group, and the observations.
    grid : ndarray (n,)
        Values of the column.
    expected, low, high : ndarray (n,)
        With the effects at zero: the mean of an observation, and the ends of its band.
    by_level : ndarray (L, n)
        The mean of an observation at each level.
    names : tuple of str
        Names of the levels.
    level : float
        Probability of the band.
    x, y : ndarray (N,) or None
        Rows that are drawn; None where they differ in other columns, too.
    codes : ndarray of int (N,) or None
        The number of the level of each row.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import GroupCurveDisplay
    >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
    >>> posterior = cavity.GLM("Reaction ~ Days + (Days | Subject)").fit(table)
    >>> GroupCurveDisplay.from_posterior(posterior, table).by_level.shape
    (18, 101)
    """

    column: str
    group: str
    target: str
    grid: FloatArray
    expected: FloatArray
    low: FloatArray
    high: FloatArray
    by_level: FloatArray
    names: tuple[str, ...]
    level: float = 0.95
    x: FloatArray | None = None
    y: FloatArray | None = None
    codes: Any = None

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        frame: Any,
        *,
        along: str | None = None,
        levels_of: str | None = None,
        level: float = 0.95,
        ax: Any = None,
        title: str | None = None,
    ) -> GroupCurveDisplay:
        """Draw the curves of a mixed model that was fitted by a formula.

        Parameters
        ----------
        posterior : MixedGLMPosterior
            By a formula with a column of numbers and a group of one column.
        frame : data frame or dict of columns
            Rows with the columns of the formula.
        along : str, optional
            A column of numbers; by default that along which the expected observation changes most.
        levels_of : str, optional
            The group; by default the first that has a slope of the column, or the first.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        GroupCurveDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a posterior without random effects or without a formula, and for columns and groups that are not there.
        """
        level = arrays.check_number(level, "level", low=0, high=1)
        levels_by_group, curve = find_group_levels(posterior), NumberColumns.of(posterior, frame)
        if not levels_by_group or curve is None:
            raise display.posterior_error(posterior, "of a mixed model by a formula with a column of numbers")
        rows, y = curve.rows, curve.observed
        if along is None:
            along = curve.columns[int(order_columns_by_change(curve, rows)[0])]
        d = curve.columns.index(arrays.check_choice(along, "along", curve.columns))
        if levels_of is None:
            with_slope = (term.group for term in posterior._reader.terms if along in term.columns)
            levels_of = next((group for group in with_slope if group in levels_by_group), next(iter(levels_by_group)))
        levels = levels_by_group[arrays.check_choice(levels_of, "levels_of", tuple(levels_by_group))]
        grid = display.make_grid(rows[:, d], GROUP_CURVE_POINTS)
        points = make_points(np.median(rows, axis=0), d, grid)
        likelihood, band = posterior._likelihood, compute_band(curve._likelihood, *curve.predict(points), level)
        tables = (curve.table(points, **{levels_of: label}) for label in levels.labels[0])
        means = [posterior.predict(table, levels="new", missing="nan")[0] for table in tables]
        drawn_rows = {}
        if differ_in_one_column(curve, rows, y):
            drawn_rows = {"x": rows[:, d], "y": y, "codes": levels.codes({levels_of: curve.frame[levels_of]})}
        return cls(
            column=along,
            group=levels_of,
            target=curve.roles["y"],
            grid=grid,
            **dict(zip(("expected", "low", "high"), band, strict=True)),
            by_level=np.stack([compute_band(likelihood, mean, np.zeros_like(mean), level)[0] for mean in means]),
            names=tuple(levels.names),
            level=level,
            **drawn_rows,
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        has_names = len(self.names) <= MAX_NAMED_LEVELS
        for k, curve in enumerate(self.by_level):
            color = display.COLOR_CYCLE[k] if has_names else "gray"
            label = f"{self.group} {self.names[k]}" if has_names else None if k else f"levels of {self.group}"
            look = dict(lw=1.0, ls=LINE_STYLES[k % len(LINE_STYLES)]) if has_names else dict(lw=0.6)
            axes.plot(self.grid, curve, color=color, alpha=0.8, label=label, **look)
            if self.x is not None:
                rows = self.codes == k
                axes.plot(self.x[rows], self.y[rows], ".", ms=4, mew=0, color=color, alpha=0.7)
        share = f"{100 * self.level:.3g} %"
        look = dict(color="black", alpha=0.15, lw=0, label=f"{share} interval", zorder=1.5)
        axes.plot(self.grid, self.expected, color="black", lw=2.0, label="effects of groups at zero")
        axes.fill_between(self.grid, self.low, self.high, **look)
        axes.set(xlim=self.grid[[0, -1]], xlabel=self.column, ylabel=self.target)
        display.add_legend(axes)


def find_group_levels(posterior):
    """Return the `Levels` of the groups of one column by their names; none unless curves of them can be drawn."""
    terms = posterior._reader.terms if hasattr(posterior, "effect_names") and list_number_columns(posterior) else ()
    return {term.group: term.levels for term in terms if len(term.levels.columns) == 1}
