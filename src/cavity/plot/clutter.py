"""Pictures of clutter fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.base.frames import coefficient_names
from cavity.base.types import FloatArray
from cavity.plot.common import CLUTTER, SIGNAL, Figure, grid

if TYPE_CHECKING:
    from cavity.models.clutter.posterior import ClutterPosterior


def clutter_figure(
    posterior: ClutterPosterior,
    values: FloatArray,
    probability: FloatArray,
    title: str,
    columns: list[str] | None = None,
    unit: str | None = None,
) -> Figure:
    """Draw data, posterior and clutter probabilities of a clutter fit.

    Parameters
    ----------
    posterior : ClutterPosterior
        A fit of one problem.
    values : ndarray (N, d)
        The data; of more than two dimensions the first two are drawn.
    probability : ndarray (N,)
        Clutter probability of each point.
    title : str
        What the data are.
    columns : list of str, optional
        Names of the columns; by default as in the fit.
    unit : str, optional
        Unit of the data, for the axis.

    Returns
    -------
    Figure
        To be saved with `save`.
    """
    columns = coefficient_names(posterior.columns, values.shape[1]) if columns is None else columns
    figure = Figure(figsize=(7.5, 6.0 if values.shape[1] == 1 else 6.5), layout="constrained")
    draw = _one_dimension if values.shape[1] == 1 else _plane
    draw(figure, posterior, values, probability, [f"{c} [{unit}]" if unit else c for c in columns])
    figure.suptitle(f"{title}: mean and sd of the signal, and what looks like clutter")
    return figure


def _one_dimension(figure, posterior, values, probability, labels):
    x = values[:, 0]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    places = grid(x)
    clutter = probability > 0.5
    bins = np.linspace(x.min(), x.max(), min(60, max(10, len(x) // 2))) if np.ptp(x) > 0 else 10
    parts, names = [x[~clutter], x[clutter]], ["signal", "clutter (probability > 1/2)"]
    upper.hist(parts, bins=bins, stacked=True, density=True, color=[SIGNAL, CLUTTER], alpha=0.5, label=names)
    upper.plot(places, np.exp(posterior.log_density(places)), color="black", lw=1.2, label="predictive density")
    mean, sd = posterior.mean, float(np.sqrt(posterior.variance))
    upper.axvline(mean, color=SIGNAL, lw=1)
    band = f"mean {mean:.4g} ± 2 sd ({sd:.2g})"
    upper.axvspan(mean - 2 * sd, mean + 2 * sd, color=SIGNAL, alpha=0.25, lw=0, label=band)
    upper.set_ylabel("density")
    upper.legend(loc="best", fontsize=8)
    lower.scatter(x, probability, s=14, c=np.where(clutter, CLUTTER, SIGNAL), alpha=0.8, linewidths=0)
    lower.axhline(0.5, color="gray", lw=0.8, ls=":")
    lower.set(ylim=(-0.04, 1.04), ylabel="clutter probability", xlabel=labels[0])


def _plane(figure, posterior, values, probability, labels):
    axes = figure.subplots()
    points = axes.scatter(*values.T[:2], s=14, c=probability, cmap="coolwarm", vmin=0, vmax=1, linewidths=0)
    angle, mean = np.linspace(0, 2 * np.pi, 200), posterior.mean[:2]
    circle = mean[:, None] + 2 * np.sqrt(posterior.variance) * np.array([np.cos(angle), np.sin(angle)])
    axes.plot(*circle, color="black", lw=1.2, label="mean ± 2 sd")
    axes.plot(*mean, "k+")
    axes.set(xlabel=labels[0], ylabel=labels[1], aspect="equal")
    if len(labels) > 2:
        axes.set_title(f"the first two of {len(labels)} columns; all were fitted", fontsize=9)
    axes.legend(loc="best", fontsize=8)
    figure.colorbar(points, ax=axes, label="clutter probability")
