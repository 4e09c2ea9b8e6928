"""Gaussian mixtures of several columns: points colored by their responsibilities, and ellipses of the components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh

from cavity.base import arrays
from cavity.base.public_objects import Data, FloatArray
from cavity.models.mixture.component_moves import OCCUPIED_ROWS
from cavity.plot.display import COLOR_CYCLE, Display, Names, colormaps, outline_text, posterior_error, resolve_names
from cavity.sources import sources
from cavity.sources.dataset import Dataset

HIDDEN_COLOR = (0.6, 0.6, 0.6)
MAX_ROWS_DRAWN = 20000
MIN_WEIGHT_DRAWN = 1e-3  # weight of a component below which it is not drawn
MAX_NAMES_IN_LABEL = 3  # columns named on the axis of a direction
MAX_NAME_LETTERS = 16
TAIL_SHARE = 0.005  # axes leave out this share of the points at each end,
MARGIN_SHARE = 0.3  # but extend by up to this share of the range for those beyond
UNIT_CIRCLE = np.stack([wave(np.linspace(0.0, 2.0 * np.pi, 200)) for wave in (np.cos, np.sin)])


@dataclass(eq=False, repr=False, kw_only=True)
class MixtureDisplay(Display):
    """A Gaussian mixture of several columns: points in the mixed colors of their responsibilities, and ellipses.

    Of two columns they are the axes; of more the two directions in which the components are farthest apart, relative to
    their own spread (Fisher's).

    Parameters
    ----------
    axes : ndarray (D, 2)
        The directions that are drawn.
    labels : list of str
        Labels of the axes.
    mean : ndarray (K, 2)
        Means of the components in these directions.
    covariance : ndarray (K, 2, 2)
        Their covariances.
    shown : ndarray of bool (K,)
        Components with points and weight enough to be drawn.
    points : ndarray (N, 2) or None
        The data in these directions.
    responsibilities : ndarray (N, K) or None
        Theirs.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> from cavity.plot import MixtureDisplay
    >>> columns, about = cavity.data.table("faithful")
    >>> X = np.column_stack([columns["eruptions"], columns["waiting"]])
    >>> display = MixtureDisplay.from_posterior(cavity.GaussianMixture(2).fit(X), X)
    >>> display.shown.tolist(), display.responsibilities.shape
    ([True, True], (272, 2))
    """

    size: ClassVar[tuple[float, float]] = (6.4, 5.2)
    axes: FloatArray
    labels: list[str]
    mean: FloatArray
    covariance: FloatArray
    shown: Any
    points: FloatArray | None = None
    responsibilities: FloatArray | None = None

    @classmethod
    def from_posterior(
        cls, posterior: Any, X: Data | None = None, *, names: Names = None, ax: Any = None, title: str | None = None
    ) -> MixtureDisplay:
        """Draw the components of a Gaussian mixture of two columns or more.

        Parameters
        ----------
        posterior : GaussianMixturePosterior
            Of two columns or more.
        X : array_like (N, D), data frame, path, or list of paths, optional
            The data; of more than 20,000 rows as many at equal distances are drawn, and no rows with missing values.
        names : sequence of str, optional
            Labels of the D columns, with units; by default their names in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        MixtureDisplay
            The display, drawn. Components are numbered from 1 in the order of their responsibilities.

        Raises
        ------
        ValueError, TypeError
            For posteriors of one column or of other models, and data that do not fit.
        """
        if not hasattr(posterior, "component_covariances"):
            raise posterior_error(posterior, "a GaussianMixturePosterior")
        if count_columns(posterior) < 2:
            raise arrays.error_of("posterior", "must be of two columns or more: DensityDisplay draws one")
        names = resolve_names(posterior, count_columns(posterior), names)
        directions, labels = _choose_directions(posterior, names)
        sample = None if X is None else sample_rows(posterior, X)
        return cls(
            axes=directions,
            labels=list(labels),
            mean=posterior.mean @ directions,
            covariance=directions.T @ posterior.component_covariances() @ directions,
            shown=find_visible(posterior),
            points=None if sample is None else sample @ directions,
            responsibilities=None if sample is None else posterior.responsibilities(sample),
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        centres = self.mean[self.shown] if self.shown.any() else self.mean
        colors, outer = _choose_colors(self.shown), [centres.mean(axis=0)]
        if self.points is not None:
            mixed = np.clip(self.responsibilities @ colors, 0.0, 1.0)
            n = len(self.points)
            look = dict(s=float(np.clip(4000 / n, 2.0, 16.0)), alpha=0.8 if n < 2000 else 0.4, linewidths=0)
            axes.scatter(*self.points.T, c=mixed, rasterized=True, **look)
        for k in np.flatnonzero(self.shown):
            mean, covariance = self.mean[k], self.covariance[k]
            root, reach = np.linalg.cholesky(covariance), 2.0 * np.sqrt(np.diag(covariance))
            outer += [mean - reach, mean + reach]
            for sd, style in ((1, "-"), (2, "--")):
                axes.plot(*(mean[:, None] + sd * (root @ UNIT_CIRCLE)), style, color=0.75 * colors[k], lw=1.3)
            look = dict(color=0.6 * colors[k], weight="bold", ha="center", va="center", clip_on=True)
            outline_text(axes.text(*mean, str(k + 1), **look))
        outer = np.array(outer)
        limits = _choose_limits(outer if self.points is None else self.points, outer)
        axes.set(xlim=limits[0], ylim=limits[1])
        for set_label, label in zip((axes.set_xlabel, axes.set_ylabel), self.labels, strict=True):
            set_label(label, fontsize="medium" if "\n" not in label else "small")
        axes.set_title("; ".join(["ellipses: 1 and 2 sd of a component", *self._outside(limits)]), fontsize="small")

    def _outside(self, limits):
        """Yield the numbers of points and components that are outside of the axes or hidden."""
        if self.points is not None:
            hidden = np.count_nonzero(((self.points < limits[:, 0]) | (self.points > limits[:, 1])).any(axis=1))
            if hidden:
                yield f"{hidden} point{'s' if hidden > 1 else ''} outside"
        empty = np.count_nonzero(~self.shown)
        if empty:
            yield f"{empty} component{'s' if empty > 1 else ''} without points"


def count_columns(posterior):
    """Return the number of columns that a mixture or a clutter model is of."""
    mean = np.asarray(posterior.mean)
    if hasattr(posterior, "clutter_probability"):
        return mean.shape[-1] if mean.ndim else 1
    return mean.shape[1] if mean.ndim > 1 else 1


def sample_rows(posterior, X):
    """Return the rows to draw, (n, D): a sample of those without missing values."""
    X = Dataset.open(X, {}, posterior.columns, getattr(posterior, "roles", None)).X
    sample, count = sources.open_source(X, "X", ndim=(1, 2)).sample(MAX_ROWS_DRAWN), count_columns(posterior)
    sample = sample[:, None] if sample.ndim == 1 else sample
    if sample.shape[1] != count:
        raise arrays.error_of("X", f"must have {count} columns like the data of the fit, got {sample.shape[1]}")
    sample = sample[~np.isnan(sample).any(axis=1)]
    if not len(sample):
        raise arrays.error_of("X", "must have a row without missing values to draw")
    return sample


def find_visible(posterior):
    """Return which components have points and weight enough to be drawn."""
    return (posterior.counts > OCCUPIED_ROWS) & (posterior.weights > MIN_WEIGHT_DRAWN)


def _choose_colors(visible):
    """Return a color for each component (K, 3): distinct ones for those that are visible."""
    count, colors = np.count_nonzero(visible), np.full((len(visible), 3), HIDDEN_COLOR)
    if count <= len(COLOR_CYCLE):
        rgb = [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOR_CYCLE[:count]]
    else:
        rgb = colormaps["turbo"](np.linspace(0.05, 0.95, count))[:, :3]
    colors[visible] = np.reshape(rgb, (count, 3))
    return colors


def _choose_limits(points, outer):
    """Return the limits of the axes (2, 2): most points, and all points and ellipses that leave them room."""
    low, high = np.quantile(points, (TAIL_SHARE, 1.0 - TAIL_SHARE), axis=0)
    size = np.where(high > low, high - low, 1.0)
    reach = np.concatenate([points, outer])
    low = np.clip(reach.min(axis=0), low - MARGIN_SHARE * size, low)
    high = np.clip(reach.max(axis=0), high, high + MARGIN_SHARE * size)
    return np.stack([low - 0.04 * size, high + 0.04 * size], axis=1)


def _choose_directions(posterior, names):
    """Return the directions to draw as a matrix (D, 2), and the labels of the axes.

    They maximise the variance between the means of the visible components over the mean variance within (Fisher). Two
    components have one such direction; others are of the largest spread, uncorrelated with it within.
    """
    if len(names) == 2:
        return np.eye(2), names
    within, mean_offsets, sd = _compute_scatter(posterior)
    between = mean_offsets.T @ mean_offsets
    rank = min(2, np.count_nonzero(find_visible(posterior)) - 1)
    value, vector = eigh(between, within)
    chosen, total = vector[:, ::-1][:, :rank], within + between
    remaining = within - within @ chosen @ chosen.T @ within if rank else total  # chosen' within chosen = 1
    spread = eigh(remaining)[1][:, ::-1][:, : 2 - rank]
    chosen = np.hstack([chosen, spread - chosen @ (chosen.T @ (within @ spread))])
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(axis=0), range(2)])
    shares = value[::-1][:rank] / max(value.sum(), np.finfo(float).tiny)
    descriptions = [f"discriminating direction, {share:.0%} of the separation" for share in shares]
    descriptions += ["largest spread that is left" if rank else "principal direction"] * (2 - rank)
    labels = [f"{text}\n{_describe_direction(axis, names)}" for text, axis in zip(descriptions, chosen.T, strict=True)]
    return chosen / sd[:, None], labels


def _compute_scatter(posterior):
    """Return the covariance within the visible components, what their means are apart, and the scale of the columns.

    The first two are in units of the third; rows of the second are weighted, so that its square is the covariance
    between components.
    """
    visible = np.flatnonzero(find_visible(posterior))
    weights = posterior.weights[visible] / posterior.weights[visible].sum()
    within = np.tensordot(weights, posterior.component_covariances()[visible], 1)
    mean_offsets = np.sqrt(weights)[:, None] * (posterior.mean[visible] - weights @ posterior.mean[visible])
    sd = np.sqrt(np.diag(within) + np.sum(mean_offsets**2, axis=0))
    return within / np.outer(sd, sd), mean_offsets / sd, sd


def _describe_direction(direction, names):
    """Describe a direction by its largest coefficients, per standard deviation of a column."""
    order = np.argsort(-np.abs(direction), kind="stable")[:MAX_NAMES_IN_LABEL]
    short = [name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…" for name in names]
    terms = " ".join(f"{'+' if direction[d] >= 0 else '-'} {abs(direction[d]):.2g} {short[d]}/sd" for d in order)
    return terms.removeprefix("+ ") + (" + ..." if len(direction) > MAX_NAMES_IN_LABEL else "")
