"""Mixtures: components over the data, and whose the points are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh

from cavity.base import arrays
from cavity.base.special import log_gamma_ratio
from cavity.base.types import Data, FloatArray
from cavity.models.mixture.component_moves import OCCUPIED_ROWS
from cavity.plot.display import (
    COLOR_CYCLE,
    SMALLEST_FLOAT,
    Display,
    Names,
    add_legend,
    colormaps,
    outline_text,
    posterior_error,
    resolve_names,
)
from cavity.sources import sources
from cavity.sources.dataset import Dataset

HIDDEN_COLOR = (0.6, 0.6, 0.6)
MAX_ROWS_DRAWN = 20000  # most points drawn
MIN_WEIGHT_DRAWN = 1e-3  # of a component that is drawn
MAX_NAMES_IN_LABEL = 3  # columns named on the axis of a direction
MAX_NAME_LETTERS = 16  # letters of their names
TAIL_SHARE, MARGIN_SHARE = 0.005, 0.3  # axes go beyond the quantiles of the points by up to this share of their range
MAX_PEAKS = 100  # most components drawn with points of their own
UNIT_CIRCLE = np.stack([wave(np.linspace(0.0, 2.0 * np.pi, 200)) for wave in (np.cos, np.sin)])


@dataclass(eq=False, repr=False, kw_only=True)
class DensityDisplay(Display):
    """A density of one column over the histogram of the data, with its components and how sure their means are.

    Parameters
    ----------
    place : ndarray (n,)
        Points along the column.
    density : ndarray (n,)
        The predictive density there.
    parts : ndarray (n, K)
        That of every component times its weight; of a `cavity.Clutter` there are none.
    mean, sd : ndarray (K,)
        Means of the components (of the signal), and how sure they are.
    shown : ndarray of bool (K,)
        Components with points, whose means are drawn.
    sample : ndarray (N,) or None
        The data.
    name : str
        What the column is called.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import DensityDisplay
    >>> velocity = cavity.data.table("galaxies")[0]["velocity"]
    >>> posterior = cavity.UnitMixture(3).fit(velocity)
    >>> DensityDisplay.from_posterior(posterior, velocity, names=["velocity"]).ax_.get_xlabel()
    'velocity'
    """

    place: FloatArray
    density: FloatArray
    parts: FloatArray
    mean: FloatArray
    sd: FloatArray
    shown: Any
    sample: FloatArray | None
    name: str

    @classmethod
    def from_posterior(
        cls, posterior: Any, X: Any = None, *, names: Names = None, ax: Any = None, title: str | None = None
    ) -> DensityDisplay:
        """Draw the predictive density of a posterior of one column.

        Parameters
        ----------
        posterior : UnitMixturePosterior, GaussianMixturePosterior or ClutterPosterior
            Of one column.
        X : array_like (N,) or (N, 1), data frame, or path, optional
            The data: of more than 20,000 rows so many at equal distances are drawn, missing values are not.
        names : sequence of str, optional
            What the column is called, one; by default as in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            What stands above it.

        Returns
        -------
        DensityDisplay
            What was drawn.

        Raises
        ------
        ValueError, TypeError
            For posteriors of more columns, and data that do not fit.
        """
        if count_columns(posterior) != 1:
            words = (
                f"must be of one column, got {count_columns(posterior)}: MixtureDisplay and OutlierDisplay draw several"
            )
            raise arrays.wrong("posterior", words)
        mean, variance, weights, spread, density = describe_components(posterior)
        sample, place, points, name = sample_along(posterior, X, mean, spread, names)
        return cls(
            place=place,
            density=np.exp(posterior.log_density(points)),
            parts=weights * density(place),
            mean=mean,
            sd=np.sqrt(variance),
            shown=counts_of(posterior) >= OCCUPIED_ROWS,  # else the mean is that of the prior
            sample=sample,
            name=name,
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        if self.sample is not None:
            bins = _choose_bins(self.sample, self.place, len(self.mean))
            axes.hist(self.sample, bins=bins, density=True, color="gray", alpha=0.35, label="data")
        axes.plot(self.place, self.density, color="black", lw=1.4, label="predictive density")
        for k, color in enumerate(choose_line_colors(self.mean)):
            label = f"mean{'s' if len(self.mean) > 1 else ''} ± 2 sd" if k == np.argmax(self.shown) else None
            if self.parts.size:
                axes.plot(self.place, self.parts[:, k], color=color, lw=1.2)
            if self.shown[k]:
                ends = self.mean[k] - 2 * self.sd[k], self.mean[k] + 2 * self.sd[k]
                axes.axvspan(*ends, color=color, alpha=0.3, lw=0, label=label)
        axes.set(xlabel=self.name, ylabel="density", xlim=self.place[[0, -1]])
        add_legend(axes)


@dataclass(eq=False, repr=False, kw_only=True)
class ResponsibilityDisplay(Display):
    """Of a mixture of one column: the probability of every component along it.

    Parameters
    ----------
    place : ndarray (n,)
        Points along the column.
    responsibilities : ndarray (n, K)
        The probabilities of the components there.
    mean : ndarray (K,)
        Their means, by which they are colored.
    name : str
        What the column is called.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import ResponsibilityDisplay
    >>> posterior = cavity.UnitMixture(2).fit([-3.2, -2.7, 2.4, 2.2])
    >>> display = ResponsibilityDisplay.from_posterior(posterior)
    >>> display.responsibilities.shape[1]
    2
    """

    size: ClassVar[tuple[float, float]] = (6.4, 2.8)
    place: FloatArray
    responsibilities: FloatArray
    mean: FloatArray
    name: str

    @classmethod
    def from_posterior(
        cls, posterior: Any, X: Any = None, *, names: Names = None, ax: Any = None, title: str | None = None
    ) -> ResponsibilityDisplay:
        """Draw the responsibilities of a mixture of one column.

        Parameters
        ----------
        posterior : UnitMixturePosterior or GaussianMixturePosterior
            Of one column.
        X : array_like (N,) or (N, 1), data frame, or path, optional
            The data, as far as which the picture reaches.
        names : sequence of str, optional
            What the column is called, one; by default as in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            What stands above it.

        Returns
        -------
        ResponsibilityDisplay
            What was drawn.

        Raises
        ------
        ValueError, TypeError
            For posteriors of more columns or other models, and data that do not fit.
        """
        if not hasattr(posterior, "responsibilities") or count_columns(posterior) != 1:
            raise arrays.wrong("posterior", "must be of a mixture of one column; MixtureDisplay draws several")
        mean, _, _, spread, _ = describe_components(posterior)
        _, place, points, name = sample_along(posterior, X, mean, spread, names)
        shares = posterior.responsibilities(points)
        return cls(place=place, responsibilities=shares, mean=mean, name=name).plot(ax=ax, title=title)

    def _draw(self, axes):
        order, colors = np.argsort(self.mean), choose_line_colors(self.mean)
        shares = self.responsibilities[:, order].T
        axes.stackplot(self.place, shares, colors=[colors[k] for k in order], alpha=0.8)
        axes.set(ylim=(0, 1), xlim=self.place[[0, -1]], ylabel="responsibilities", xlabel=self.name)


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
        What they are called.
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
        Where it was drawn.

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
            The data; of more than 20,000 rows so many at equal distances are drawn, rows with missing values are not.
        names : sequence of str, optional
            What the D columns are called, with units; by default as in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            What stands above it.

        Returns
        -------
        MixtureDisplay
            What was drawn. Components bear the numbers of their responsibilities, from 1.

        Raises
        ------
        ValueError, TypeError
            For posteriors of one column or of other models, and data that do not fit.
        """
        if not hasattr(posterior, "component_covariances"):
            raise posterior_error(posterior, "a GaussianMixturePosterior")
        if count_columns(posterior) < 2:
            raise arrays.wrong("posterior", "must be of two columns or more: DensityDisplay draws one")
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
        around = self.mean[self.shown] if self.shown.any() else self.mean
        colors, outer = _choose_colors(self.shown), [around.mean(axis=0)]
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
        """Yield how many points and components are not seen."""
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
    """Return the rows to draw, (n, D): those without missing values, of many some."""
    X = Dataset.open(X, {}, posterior.columns, getattr(posterior, "roles", None)).X
    sample, count = sources.open_source(X, "X", ndim=(1, 2)).sample(MAX_ROWS_DRAWN), count_columns(posterior)
    sample = sample[:, None] if sample.ndim == 1 else sample
    if sample.shape[1] != count:
        raise arrays.wrong("X", f"must have {count} columns like the data of the fit, got {sample.shape[1]}")
    sample = sample[~np.isnan(sample).any(axis=1)]
    if not len(sample):
        raise arrays.wrong("X", "must have a row without missing values to draw")
    return sample


def counts_of(posterior):
    """Return how many points the components have; the signal of a clutter model is one."""
    return getattr(posterior, "counts", np.ones(1))


def describe_components(posterior):
    """Return of components on a line: means, how sure they are, weights, spreads of data, and density(x), (n, K)."""
    if hasattr(posterior, "clutter_probability"):
        mean, variance = np.ravel(posterior.mean), np.ravel(posterior.variance)
        spread = posterior.model.noise_variance + np.zeros(1)
        return mean, variance, np.ones(0), spread, lambda x: np.ones((len(x), 0))
    if posterior.mean.ndim == 1:
        spread = posterior.noise_variance + posterior.variance

        def normal(x):
            return np.exp(-0.5 * (x[:, None] - posterior.mean) ** 2 / spread) / np.sqrt(2 * np.pi * spread)

        return posterior.mean, posterior.variance, posterior.weights, spread, normal
    mean, variance = posterior.mean[:, 0], posterior.component_covariances()[:, 0, 0]
    beta, nu = posterior.mean_precision.reshape(-1), np.ravel(posterior.degrees_of_freedom)
    spread = variance * (1.0 + 1.0 / beta)

    def student(x):  # the predictive density is a mixture of these, whatever the covariance
        height = log_gamma_ratio(0.5 * nu, 0.5) - 0.5 * np.log(np.pi * nu * spread)
        return np.exp(height - 0.5 * (nu + 1.0) * np.log1p((x[:, None] - mean) ** 2 / (nu * spread)))

    return mean, variance / beta, posterior.weights, spread, student


def choose_line_colors(mean):
    """Return a color for each component on a line, by the order of the means."""
    shades = colormaps["viridis"](np.linspace(0.0, 0.9, len(mean)))
    return [shades[k] for k in np.argsort(np.argsort(mean))]


def sample_along(posterior, X, mean, spread, names):
    """Return the data along the column or None, places to draw at, these as rows of X, and the column's name."""
    (name,) = resolve_names(posterior, 1, names)
    sample = None if X is None else sample_rows(posterior, X)[:, 0]
    place = _choose_grid(sample, counts_of(posterior), mean, np.sqrt(spread))
    return sample, place, place if np.ndim(posterior.mean) < 2 else place[:, None], name


def _choose_grid(sample, counts, mean, sd):
    """Return points across the data, or the components, and a little beyond; closer where components are narrow."""
    seen = counts >= OCCUPIED_ROWS
    if sample is None:
        sample = np.concatenate([mean[seen] - 3 * sd[seen], mean[seen] + 3 * sd[seen]])
    margin = 0.05 * np.ptp(sample) or 4.0 * np.max(sd)
    ends = sample.min() - margin, sample.max() + margin
    centers = np.argsort(-counts)[:MAX_PEAKS]
    near = mean[centers, None] + sd[centers, None] * np.linspace(-4.0, 4.0, 41)
    return np.unique(np.concatenate([np.linspace(*ends, 801), near[(near > ends[0]) & (near < ends[1])]]))


def _choose_bins(sample, places, n_components):
    """Return the edges of the bins of the histogram, more of them for more components."""
    most = min(max(80, 6 * n_components), 6 * MAX_PEAKS)
    return np.linspace(places[0], places[-1], min(most, max(20, len(sample) // 4)) + 1)


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


def _choose_limits(place, outer):
    """Return the limits of the axes (2, 2): most points, and all points and ellipses that leave them room."""
    low, high = np.quantile(place, (TAIL_SHARE, 1.0 - TAIL_SHARE), axis=0)
    size = np.where(high > low, high - low, 1.0)
    reach = np.concatenate([place, outer])
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
    within, apart, sd = _compute_scatter(posterior)
    between = apart.T @ apart
    rank = min(2, np.count_nonzero(find_visible(posterior)) - 1)
    value, vector = eigh(between, within)
    chosen, total = vector[:, ::-1][:, :rank], within + between
    left = within - within @ chosen @ chosen.T @ within if rank else total  # chosen' within chosen = 1
    spread = eigh(left)[1][:, ::-1][:, : 2 - rank]
    chosen = np.hstack([chosen, spread - chosen @ (chosen.T @ (within @ spread))])
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(axis=0), range(2)])
    shares = value[::-1][:rank] / max(value.sum(), SMALLEST_FLOAT)
    words = [f"discriminating direction, {share:.0%} of the separation" for share in shares]
    words += ["largest spread that is left" if rank else "principal direction"] * (2 - rank)
    labels = [f"{word}\n{_describe_direction(axis, names)}" for word, axis in zip(words, chosen.T, strict=True)]
    return chosen / sd[:, None], labels


def _compute_scatter(posterior):
    """Return the covariance within the visible components, what their means are apart, and the scale of the columns.

    The first two are in units of the third; rows of the second are weighted, so that its square is the covariance
    between components.
    """
    visible = np.flatnonzero(find_visible(posterior))
    weights = posterior.weights[visible] / posterior.weights[visible].sum()
    within = np.tensordot(weights, posterior.component_covariances()[visible], 1)
    apart = np.sqrt(weights)[:, None] * (posterior.mean[visible] - weights @ posterior.mean[visible])
    sd = np.sqrt(np.diag(within) + np.sum(apart**2, axis=0))
    return within / np.outer(sd, sd), apart / sd, sd


def _describe_direction(direction, names):
    """Return words for a direction: its largest coefficients, per standard deviation of a column."""
    order = np.argsort(-np.abs(direction), kind="stable")[:MAX_NAMES_IN_LABEL]
    short = [name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…" for name in names]
    terms = " ".join(f"{'+' if direction[d] >= 0 else '-'} {abs(direction[d]):.2g} {short[d]}/sd" for d in order)
    return terms.removeprefix("+ ") + (" + ..." if len(direction) > MAX_NAMES_IN_LABEL else "")
