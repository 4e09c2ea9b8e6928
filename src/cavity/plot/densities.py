"""Mixtures and clutter models of one column: predictive densities with their components, and responsibilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.base.special import log_gamma_ratio
from cavity.models.mixture.component_moves import OCCUPIED_ROWS
from cavity.plot.display import Display, Names, add_legend, colormaps, resolve_names
from cavity.plot.mixtures import count_columns, sample_rows

MAX_PEAKS = 100  # components, those with the most points, near whose means the density is evaluated on a finer grid


@dataclass(eq=False, repr=False, kw_only=True)
class DensityDisplay(Display):
    """The predictive density of one column over the histogram of the data, with the components and the uncertainty of
    their means.

    Parameters
    ----------
    grid : ndarray (n,)
        Points along the column.
    density : ndarray (n,)
        The predictive density there.
    parts : ndarray (n, K)
        That of every component times its weight; of a `cavity.Clutter` there are none.
    mean, sd : ndarray (K,)
        Posterior means and standard deviations of the means of the components (of the signal).
    shown : ndarray of bool (K,)
        Components with points, whose means are drawn.
    sample : ndarray (N,) or None
        The data.
    name : str
        Name of the column.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import DensityDisplay
    >>> velocity = cavity.data.table("galaxies")[0]["velocity"]
    >>> posterior = cavity.UnitMixture(3).fit(velocity)
    >>> DensityDisplay.from_posterior(posterior, velocity, names=["velocity"]).ax_.get_xlabel()
    'velocity'
    """

    grid: FloatArray
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
            The data; of more than 20,000 rows as many at equal distances are drawn, and no rows with missing values.
        names : sequence of str, optional
            Name of the column, one; by default as in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        DensityDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For posteriors of more columns, and data that do not fit.
        """
        if count_columns(posterior) != 1:
            hint = "MixtureDisplay and OutlierDisplay draw several"
            raise arrays.error_of("posterior", f"must be of one column, got {count_columns(posterior)}: {hint}")
        mean, variance, weights, spread, density = describe_components(posterior)
        sample, grid, points, name = sample_along(posterior, X, mean, spread, names)
        return cls(
            grid=grid,
            density=np.exp(posterior.log_density(points)),
            parts=weights * density(grid),
            mean=mean,
            sd=np.sqrt(variance),
            shown=counts_of(posterior) >= OCCUPIED_ROWS,  # without data a mean is that of the prior
            sample=sample,
            name=name,
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        if self.sample is not None:
            bins = _choose_bins(self.sample, self.grid, len(self.mean))
            axes.hist(self.sample, bins=bins, density=True, color="gray", alpha=0.35, label="data")
        axes.plot(self.grid, self.density, color="black", lw=1.4, label="predictive density")
        for k, color in enumerate(choose_line_colors(self.mean)):
            label = f"mean{'s' if len(self.mean) > 1 else ''} ± 2 sd" if k == np.argmax(self.shown) else None
            if self.parts.size:
                axes.plot(self.grid, self.parts[:, k], color=color, lw=1.2)
            if self.shown[k]:
                ends = self.mean[k] - 2 * self.sd[k], self.mean[k] + 2 * self.sd[k]
                axes.axvspan(*ends, color=color, alpha=0.3, lw=0, label=label)
        axes.set(xlabel=self.name, ylabel="density", xlim=self.grid[[0, -1]])
        add_legend(axes)


@dataclass(eq=False, repr=False, kw_only=True)
class ResponsibilityDisplay(Display):
    """Of a mixture of one column: the probability of every component along it.

    Parameters
    ----------
    grid : ndarray (n,)
        Points along the column.
    responsibilities : ndarray (n, K)
        The probabilities of the components there.
    mean : ndarray (K,)
        Their means, by which they are colored.
    name : str
        Name of the column.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

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
    grid: FloatArray
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
            The data; the plot spans their range.
        names : sequence of str, optional
            Name of the column, one; by default as in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        ResponsibilityDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For posteriors of more columns or other models, and data that do not fit.
        """
        if not hasattr(posterior, "responsibilities") or count_columns(posterior) != 1:
            raise arrays.error_of("posterior", "must be of a mixture of one column; MixtureDisplay draws several")
        mean, _, _, spread, _ = describe_components(posterior)
        _, grid, points, name = sample_along(posterior, X, mean, spread, names)
        shares = posterior.responsibilities(points)
        return cls(grid=grid, responsibilities=shares, mean=mean, name=name).plot(ax=ax, title=title)

    def _draw(self, axes):
        order, colors = np.argsort(self.mean), choose_line_colors(self.mean)
        shares = self.responsibilities[:, order].T
        axes.stackplot(self.grid, shares, colors=[colors[k] for k in order], alpha=0.8)
        axes.set(ylim=(0, 1), xlim=self.grid[[0, -1]], ylabel="responsibilities", xlabel=self.name)


def describe_components(posterior):
    """Return means and their variances, weights and data variances of components, and density(x), (n, K)."""
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
    """Return the data of the column or None, the grid, the grid as rows of X, and the column's name."""
    (name,) = resolve_names(posterior, 1, names)
    sample = None if X is None else sample_rows(posterior, X)[:, 0]
    grid = _choose_grid(sample, counts_of(posterior), mean, np.sqrt(spread))
    return sample, grid, grid if np.ndim(posterior.mean) < 2 else grid[:, None], name


def _choose_grid(sample, counts, mean, sd):
    """Return points across the data, or the components, and a little beyond; closer where components are narrow."""
    occupied = counts >= OCCUPIED_ROWS
    if sample is None:
        sample = np.concatenate([mean[occupied] - 3 * sd[occupied], mean[occupied] + 3 * sd[occupied]])
    margin = 0.05 * np.ptp(sample) or 4.0 * np.max(sd)
    ends = sample.min() - margin, sample.max() + margin
    centers = np.argsort(-counts)[:MAX_PEAKS]
    near = mean[centers, None] + sd[centers, None] * np.linspace(-4.0, 4.0, 41)
    return np.unique(np.concatenate([np.linspace(*ends, 801), near[(near > ends[0]) & (near < ends[1])]]))


def _choose_bins(sample, grid, n_components):
    """Return the edges of the bins of the histogram, more of them for more components."""
    most = min(max(80, 6 * n_components), 6 * MAX_PEAKS)
    return np.linspace(grid[0], grid[-1], min(most, max(20, len(sample) // 4)) + 1)


def counts_of(posterior):
    """Return the expected number of points of each component; the signal of a clutter model counts as one."""
    return getattr(posterior, "counts", np.ones(1))
