"""Numbers with their intervals: coefficients, and effects of the levels of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays, summary
from cavity.base.public_objects import FloatArray
from cavity.models.defaults import find_prior_scale, is_real
from cavity.plot.display import SIGNAL_COLOR, Display, MaxNLocator, posterior_error

SCALED_LABEL = "coefficient times scale of its column"
STANDARD_LABEL = "coefficient times scale of its column over spread of y"
INTERCEPT_NAME = "intercept"  # name of the constant column in formulas and in added columns
MAX_SCALE_RATIO = 10.0  # of scales of columns, above which coefficients are drawn per scale
MAX_LENGTH_RATIO = 8.0  # of an interval and the median one, above which the axis ends before it
MAX_NAMES = 40  # up to so many numbers are named on the axis


def size_of(count):
    """Return width and height of a figure of `count` intervals, in inches."""
    return 6.0, max(2.4, 1.4 + 0.24 * min(count, MAX_NAMES))


@dataclass(eq=False, repr=False, kw_only=True)
class IntervalDisplay(Display):
    """Numbers one above the other, with intervals; those whose interval holds 0 are gray.

    Parameters
    ----------
    names : tuple of str
        Names of the numbers, from bottom to top.
    mean, low, high : ndarray (n,)
        Means, and the ends of the intervals.
    level : float
        Probability of an interval.
    xlabel, heading : str
        Label of the axis, and the title.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import IntervalDisplay
    >>> posterior = cavity.LinearRegression(intercept=False).fit([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]], [1.0, 2.1, 2.9])
    >>> IntervalDisplay.from_posterior(posterior).names
    ('x2', 'x1')
    """

    names: tuple[str, ...]
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    level: float = 0.95
    xlabel: str = "coefficient"
    heading: str = ""

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        *,
        term: str | None = None,
        column: str | None = None,
        level: float = 0.95,
        most: int = MAX_NAMES,
        intercept: bool = True,
        per_scale: bool | None = None,
        ax: Any = None,
        title: str | None = None,
    ) -> IntervalDisplay:
        """Draw the numbers of a posterior's summary, as coefficients; of a mixed model also effects of groups.

        Parameters
        ----------
        posterior : posterior with a summary
            Of any model.
        term : str, optional
            Of a `cavity.MixedGLM`: the term whose effects are drawn, from the smallest to the largest.
        column : str, optional
            Of a term with several columns: the one whose effects are drawn.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        most : int, default 40
            Most coefficients; of more those are drawn whose intervals are farthest from 0.
        intercept : bool, default True
            Whether to draw the intercept as well, beyond the end of the axis where it is far from the coefficients;
            otherwise, and where coefficients are in spreads of y, it stands above the plot.
        per_scale : bool, optional
            Whether to multiply coefficients by the scales of their columns, by which the default prior was chosen:
            standard deviations, or half the distance of two values; of real y they are then in spreads of y. By default
            where scales differ by more than ten times, and the prior is the default, or columns were standardised.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        IntervalDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a posterior without a summary of numbers, and for terms and columns that are not there.
        """
        if term is not None:
            return cls._of_term(posterior, term, column, level).plot(ax=ax, title=title)
        if column is not None:
            raise arrays.error_of("column", "needs term, whose effects are drawn")
        marginals = getattr(posterior, "_marginals", None)
        if marginals is None:
            raise posterior_error(posterior, "a posterior with a summary of numbers")
        table = summary.tabulate_marginals("", marginals(), level)
        names, (mean, sd, low, high, *_) = table.names, table.columns.values()
        scales, label = (None, "coefficient") if per_scale is False else find_column_scales(posterior)
        if per_scale and scales is None:
            raise arrays.error_of("per_scale", "needs a posterior with standardize=True or the default prior")
        columns = np.array([name != INTERCEPT_NAME for name in names])
        scales = scales if columns.any() else None
        if scales is not None and (per_scale or np.ptp(np.log(scales[columns])) > np.log(MAX_SCALE_RATIO)):
            mean, sd, low, high = (values * np.where(columns, scales, 1.0) for values in (mean, sd, low, high))
            intercept = intercept and label != STANDARD_LABEL
        else:
            label = "coefficient"
        shown, heading = np.arange(len(names)), ""
        if not intercept and INTERCEPT_NAME in names and len(names) > 1:
            at = names.index(INTERCEPT_NAME)
            numbers = [summary.format_number(values[at], sd[at]) for values in (mean, low, high)]
            shown = np.delete(shown, at)
            heading = f"{INTERCEPT_NAME} {numbers[0]}, from {numbers[1]} to {numbers[2]}"
        most, total = arrays.check_integer(most, "most", low=1), len(shown)
        if total > most:
            with np.errstate(divide="ignore", invalid="ignore"):
                clarity = np.nan_to_num(np.abs(mean[shown]) / sd[shown], posinf=np.inf)
            shown = shown[np.argsort(-clarity, kind="stable")[:most]]
            heading = f"the {most} clearest of {total}" + (f" ({heading})" if heading else "")
        shown = shown[::-1]
        return cls(
            names=tuple(names[j] for j in shown),
            mean=mean[shown],
            low=low[shown],
            high=high[shown],
            level=level,
            xlabel="value" if not hasattr(posterior, "coefficient_names") else label,
            heading=heading,
        ).plot(ax=ax, title=title)

    @classmethod
    def _of_term(cls, posterior, term, column, level):
        if not hasattr(posterior, "effect_names"):
            raise arrays.error_of("term", f"is for mixed models, got a {type(posterior).__name__}")
        if term in posterior.structured_terms:
            table = posterior.effects(term)
            levels, heading = table.names, term
            mean, variance = table.columns["mean"], table.columns["sd"] ** 2
        else:
            columns, levels = posterior.effect_names(term)
            if column is None and len(columns) > 1:
                raise arrays.error_of("column", f"must be one of {', '.join(map(repr, columns))}, got None")
            k = 0 if column is None else columns.index(arrays.check_choice(column, "column", columns))
            mean, variance = (moments[:, k] for moments in posterior.effect_moments(term))
            heading = f"{columns[k]} of {term.rpartition('| ')[2]}"
        order = np.argsort(mean, kind="stable")
        marginals = summary.make_gaussian_marginals(
            tuple(levels[i] for i in order), mean[order], np.sqrt(variance[order])
        )
        low, high = marginals.interval(level).T
        intervals = {"mean": marginals.mean, "low": low, "high": high, "level": level}
        return cls(names=marginals.names, **intervals, xlabel="effect", heading=heading)

    @classmethod
    def from_table(cls, estimates: Any, *, ax: Any = None, title: str | None = None) -> IntervalDisplay:
        """Draw the rows of a table of estimates that have intervals, as `variance_components` of mixed models.

        Correlations, which have no unit, are left out.

        Parameters
        ----------
        estimates : Table
            With the columns value and, last, the ends of the intervals.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        IntervalDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            For a table without intervals.
        """
        *_, low_name, high_name = ("", "", *estimates.columns)
        if not high_name.endswith("%"):
            raise arrays.error_of("estimates", "must have intervals as its last columns")
        value, low, high = (estimates.columns[name][::-1] for name in ("value", low_name, high_name))
        are_correlations = [name.startswith("corr(") for name in estimates.names[::-1]]
        has_interval = np.isfinite(low) & ~np.array(are_correlations)
        names = tuple(name for name, is_shown in zip(estimates.names[::-1], has_interval, strict=True) if is_shown)
        ends = {"mean": value[has_interval], "low": low[has_interval], "high": high[has_interval]}
        level = (float(high_name[:-1]) - float(low_name[:-1])) / 100.0
        return cls(names=names, **ends, level=level, xlabel="estimate", heading=estimates.title).plot(
            ax=ax, title=title
        )

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a figure of its own, in inches."""
        return size_of(len(self.mean))

    def _draw(self, axes):
        position, many = np.arange(len(self.mean)), len(self.mean) > MAX_NAMES
        holds_zero = (self.low <= 0) & (self.high >= 0)
        axes.axvline(0.0, color="gray", lw=0.8, ls=":")
        for group, color in ((~holds_zero, SIGNAL_COLOR), (holds_zero, "gray")):
            ends = position[group], self.low[group], self.high[group]
            axes.hlines(*ends, color=color, lw=0.4 if many else 1.5)
            axes.plot(self.mean[group], position[group], ".", ms=2 if many else 9, color=color)
        axes.set_yticks([] if many else position, [] if many else self.names)
        if many:
            axes.set_ylabel(f"{len(self.mean)} levels, from the smallest to the largest")
        axes.set_ylim(-0.7, len(self.mean) - 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        heading = self._cut_intervals(axes)
        share = f"{100 * self.level:.3g} %"
        axes.set_xlabel(f"{self.xlabel}\nmean and {share} interval (gray: 0 is inside)", fontsize="small")
        axes.set_title(heading, fontsize="medium")

    def _cut_intervals(self, axes):
        """End the axis before long intervals and a far intercept, write their numbers; return the heading."""
        names, length = np.array(self.names), self.high - self.low
        others = names != INTERCEPT_NAME
        if others.sum() < 1 or len(names) > MAX_NAMES:
            return self.heading
        is_long = others & (length > MAX_LENGTH_RATIO * np.median(length[others])) & (others.sum() > 2)
        inside = others & ~is_long
        ends = min(0.0, self.low[inside].min()), max(0.0, self.high[inside].max())
        room = 0.5 * (ends[1] - ends[0])
        cut = is_long | (~others & ((self.low < ends[0] - 2.0 * room) | (self.high > ends[1] + 2.0 * room)))
        if not cut.any() or not room:
            return self.heading
        axes.set_xlim(ends[0] - room, ends[1] + room)
        labels = list(self.names)
        for k in np.flatnonzero(cut):
            end, marker = (ends[1] + 0.9 * room, ">") if self.mean[k] > 0 else (ends[0] - 0.9 * room, "<")
            axes.plot(end, k, marker, color="gray" if self.low[k] <= 0.0 <= self.high[k] else SIGNAL_COLOR)
            numbers = [summary.format_number(v[k], length[k] / 4.0) for v in (self.mean, self.low, self.high)]
            labels[k] = f"{labels[k]}: {numbers[0]}\n({numbers[1]}, {numbers[2]})"
        axes.set_yticks(np.arange(len(names)), labels)
        texts = self.heading, f"{', '.join(names[is_long][:3])} cut" if is_long.any() else ""
        return "; ".join(filter(None, texts))


def find_column_scales(posterior):
    """Return the scales of the columns of weights, or None, and the label of coefficients that are multiplied by them.

    Scales are those of standardised columns, or those by which the default prior was chosen.
    """
    likelihood, model = getattr(posterior, "_likelihood", None), getattr(posterior, "model", None)
    spread = getattr(posterior, "spread", None)
    if spread is not None and np.any(spread != 1.0):
        return np.append(np.ones(int(posterior.intercept)), spread), SCALED_LABEL
    chosen = getattr(posterior, "chosen", None) or ()
    names = getattr(getattr(posterior, "hyperparameters", None), "names", ())
    variance = np.asarray(getattr(model, "prior_variance", 1.0))
    if "prior_variance" not in chosen or variance.ndim != 1 or any(name.startswith("prior") for name in names):
        return None, "coefficient"
    # (c / s)^2 is the prior variance
    scales = find_prior_scale(likelihood) / np.sqrt(variance)
    return scales, STANDARD_LABEL if is_real(likelihood) else SCALED_LABEL
