"""Probabilities that points are clutter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.plot.display import CLUTTER_COLOR, SIGNAL_COLOR, Display, Names, add_legend, posterior_error, resolve_names
from cavity.plot.mixtures import UNIT_CIRCLE, sample_rows


@dataclass(eq=False, repr=False, kw_only=True)
class OutlierDisplay(Display):
    """The probability of each point to be clutter: over its value or, for two columns and more, as a color.

    Parameters
    ----------
    points : ndarray (N, d)
        The points.
    probability : ndarray (N,)
        Probability of each point to be clutter.
    mean : ndarray (d,)
        Posterior mean of the signal.
    sd : float
        Posterior standard deviation of the signal, in each coordinate.
    names : tuple of str
        Names of the columns.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import OutlierDisplay
    >>> time = cavity.data.table("newcomb")[0]["time"]
    >>> posterior = cavity.Clutter().with_defaults(time).fit(time)
    >>> display = OutlierDisplay.from_posterior(posterior, time, names=["time"])
    >>> int((display.probability > 0.5).sum())
    2
    """

    points: FloatArray
    probability: FloatArray
    mean: FloatArray
    sd: float
    names: tuple[str, ...]

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        x: ArrayLike,
        *,
        fitted: bool | None = None,
        names: Names = None,
        ax: Any = None,
        title: str | None = None,
    ) -> OutlierDisplay:
        """Draw the clutter probabilities of points.

        Parameters
        ----------
        posterior : ClutterPosterior
            A fit of one problem.
        x : array_like (N,) or (N, d)
            The points; of more than two columns the first two are drawn.
        fitted : bool, optional
            Whether these are the points of the fit, each then judged given all others; by default where their number is
            that of the fit, which was by EP.
        names : sequence of str, optional
            Labels of the D columns, with units; by default their names in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        OutlierDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For other posteriors, a batch of problems, and points that do not fit.
        """
        if not hasattr(posterior, "clutter_probability") or np.ndim(posterior.variance):
            raise posterior_error(posterior, "a ClutterPosterior of one problem")
        if x is None:
            raise arrays.error_of("x", "must be given: the posterior keeps no points")
        points = sample_rows(posterior, x)
        if fitted is None:
            fitted = posterior.method == "ep" and len(points) == posterior.n_samples
        rows = points if np.ndim(posterior.mean) else points[:, 0]
        return cls(
            points=points,
            probability=posterior.clutter_probability(rows, fitted=arrays.check_flag(fitted, "fitted")),
            mean=np.atleast_1d(posterior.mean),
            sd=float(np.sqrt(posterior.variance)),
            names=resolve_names(posterior, points.shape[1], names),
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        if self.points.shape[1] > 1:
            self._plane(axes)
            return
        clutter = self.probability > 0.5
        ends = self.mean[0] - 2 * self.sd, self.mean[0] + 2 * self.sd
        label = f"mean {self.mean[0]:.4g} ± 2 sd ({self.sd:.2g})"
        axes.axvspan(*ends, color=SIGNAL_COLOR, alpha=0.25, lw=0, label=label)
        for mask, color, marker, name in (
            (~clutter, SIGNAL_COLOR, "o", "signal"),
            (clutter, CLUTTER_COLOR, "s", "clutter"),
        ):
            look = dict(ms=5, alpha=0.7, mew=0, color=color, label=f"{name} ({np.count_nonzero(mask)})")
            axes.plot(self.points[mask, 0], self.probability[mask], marker, **look)
        axes.axhline(0.5, color="gray", lw=0.8, ls=":")
        axes.set(ylim=(-0.04, 1.04), ylabel="probability of clutter", xlabel=self.names[0])
        add_legend(axes)

    def _plane(self, axes):
        look = dict(cmap="viridis", vmin=0, vmax=1, linewidths=0.3, edgecolors="black", s=18)
        points = axes.scatter(*self.points.T[:2], c=self.probability, **look)
        axes.plot(*(self.mean[:2, None] + 2 * self.sd * UNIT_CIRCLE), color=CLUTTER_COLOR, lw=1.5, label="mean ± 2 sd")
        axes.plot(*self.mean[:2], "+", color=CLUTTER_COLOR, ms=8)
        axes.set(xlabel=self.names[0], ylabel=self.names[1])
        axes.set_aspect("equal", adjustable="datalim")
        if len(self.names) > 2:
            axes.set_title(f"the first two of {len(self.names)} columns; all were fitted", fontsize="small")
        add_legend(axes)
        axes.get_figure().colorbar(points, ax=axes, label="probability of clutter")
