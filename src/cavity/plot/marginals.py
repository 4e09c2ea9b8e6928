"""Densities of single numbers: coefficients, random effects, hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.plot.display import COLOR_CYCLE, Display, add_legend

N_POINTS = 301  # of each density
TAIL_PROBABILITY = 1e-3  # probability on either side of what is drawn


@dataclass(eq=False, repr=False, kw_only=True)
class MarginalDisplay(Display):
    """Densities of marginals, with their medians and intervals.

    Parameters
    ----------
    names : tuple of str
        Of the numbers.
    points, densities : ndarray (K, n)
        Values of each of them, and its densities there.
    medians : ndarray (K,)
        Their medians.
    intervals : ndarray (K, 2)
        Ends of the central intervals.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import MarginalDisplay
    >>> herds = cavity.data.table("cbpp", as_frame=True)[0]
    >>> posterior = cavity.MixedGLM("p(incidence, size) ~ period + (1 | herd)", integrate="auto").fit(herds)
    >>> MarginalDisplay.from_marginals(posterior.marginal("sd(intercept | herd)")).ax_.get_xlabel()
    'sd(intercept | herd)'
    """

    names: tuple[str, ...]
    points: FloatArray
    densities: FloatArray
    medians: FloatArray
    intervals: FloatArray

    @classmethod
    def from_marginals(
        cls, marginals: Any, *, level: float = 0.95, ax: Any = None, title: str | None = None
    ) -> MarginalDisplay:
        """Plot the marginals that posteriors have.

        Parameters
        ----------
        marginals : Marginal, TabulatedMarginal, or sequence of these
            As `marginal` of a posterior returns them.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        MarginalDisplay
            The plot.
        """
        several = list(marginals) if isinstance(marginals, Sequence) else [marginals]
        if not several or not all(hasattr(item, "density") and hasattr(item, "quantile") for item in several):
            raise arrays.error_of("marginals", f"must be marginals of a posterior, got {marginals!r}", TypeError)
        points = np.stack(
            [np.linspace(*item.quantile([TAIL_PROBABILITY, 1.0 - TAIL_PROBABILITY]), N_POINTS) for item in several]
        )
        densities = np.stack([item.density(x) for item, x in zip(several, points, strict=True)])
        medians = np.array([item.quantile(0.5) for item in several])
        intervals = np.stack([item.interval(level) for item in several])
        names = tuple(item.name for item in several)
        display = cls(names=names, points=points, densities=densities, medians=medians, intervals=intervals)
        return display.plot(ax=ax, title=title)

    def _draw(self, axes):
        for k, (x, density) in enumerate(zip(self.points, self.densities, strict=True)):
            color = COLOR_CYCLE[k % len(COLOR_CYCLE)]
            axes.plot(x, density, color=color, label=self.names[k])
            low, high = self.intervals[k]
            axes.fill_between(x, density, where=(x >= low) & (x <= high), color=color, alpha=0.2, linewidth=0)
            height = np.interp(self.medians[k], x, density)
            axes.plot([self.medians[k]] * 2, [0.0, height], color=color, linestyle="--", linewidth=1)
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel("density")
        if len(self.names) == 1:
            axes.set_xlabel(self.names[0])
        else:
            add_legend(axes)
