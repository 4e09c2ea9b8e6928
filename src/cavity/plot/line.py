"""Mixtures on a line: histogram, densities, responsibilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.base.types import FloatArray
from cavity.models.mixture.moves import OCCUPIED
from cavity.plot.common import PEAKS, beside_ascent, colormaps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cavity.models.unit_mixture.posterior import UnitMixturePosterior


def unit_mixture_figure(posterior: UnitMixturePosterior, sample: FloatArray, title: str, label: str) -> Figure:
    """Draw the data with the components of a unit mixture, its responsibilities and the rise of the ELBO.

    Parameters
    ----------
    posterior : UnitMixturePosterior
        The fit.
    sample : ndarray (n,)
        The data, or some of them.
    title : str
        What the data are.
    label : str
        What is on the axis, with its unit.

    Returns
    -------
    Figure
        To be saved with `save`.
    """
    spread = posterior.noise_variance + posterior.variance

    def density(x):
        return np.exp(-0.5 * (x[:, None] - posterior.mean) ** 2 / spread) / np.sqrt(2 * np.pi * spread)

    figure = line_figure(posterior, sample, label, posterior.mean, posterior.variance, spread, density)
    figure.suptitle(f"{title}: {len(posterior.mean)} component(s) of one variance")
    return figure


def line_figure(posterior, sample, label, mean, variance, spread, density):
    """Draw a mixture on a line and the rise of its ELBO.

    Parameters
    ----------
    posterior : UnitMixturePosterior or GaussianMixturePosterior
        The fit.
    sample : ndarray (n,)
        The data, or some of them.
    label : str
        What is on the axis, with its unit.
    mean, variance : ndarray (K,)
        Means of the components, and how sure they are.
    spread : ndarray (K,)
        Variances of the data of a component.
    density : callable
        density(x) returns the densities (n, K) of the components at points (n,).

    Returns
    -------
    Figure
        Without a title.
    """
    figure, left = beside_ascent(posterior, (11.0, 6.0), (3, 2))
    upper, lower = left.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    places = _places(sample, posterior.counts, mean, np.sqrt(spread))
    points = places if posterior.mean.ndim == 1 else places[:, None]
    order = np.argsort(mean)
    colors = colormaps["viridis"](np.linspace(0.0, 0.9, len(order)))
    upper.hist(sample, bins=_bins(sample, places, len(order)), density=True, color="gray", alpha=0.35, label="data")
    upper.plot(places, np.exp(posterior.log_density(points)), color="black", lw=1.4, label="predictive density")
    heights = posterior.weights * density(places)
    for k, color in zip(order, colors, strict=True):
        upper.plot(places, heights[:, k], color=color, lw=1.2)
        if posterior.counts[k] < OCCUPIED:  # the mean of a component without data is where the prior says, anywhere
            continue
        sd = 2 * np.sqrt(variance[k])
        upper.axvspan(mean[k] - sd, mean[k] + sd, color=color, alpha=0.25, lw=0)
    upper.set_ylabel("density (bands: component means ± 2 sd)")
    upper.legend(loc="best", fontsize=8)
    shares = posterior.responsibilities(points)[:, order]
    lower.stackplot(places, shares.T, colors=colors, alpha=0.8)
    lower.set(ylim=(0, 1), xlim=(places[0], places[-1]), ylabel="responsibilities", xlabel=label)
    return figure


def _places(sample, counts, mean, sd):
    """Return points across the data and a little beyond, closer where components are narrow."""
    margin = 0.05 * np.ptp(sample) or 4.0 * np.max(sd)
    ends = sample.min() - margin, sample.max() + margin
    centers = np.argsort(-counts)[:PEAKS]
    near = mean[centers, None] + sd[centers, None] * np.linspace(-4.0, 4.0, 41)
    return np.unique(np.concatenate([np.linspace(*ends, 801), near[(near > ends[0]) & (near < ends[1])]]))


def _bins(sample, places, n_components):
    """Return the edges of the bins of the histogram, more of them for more components."""
    most = min(max(80, 6 * n_components), 6 * PEAKS)
    return np.linspace(places[0], places[-1], min(most, max(20, len(sample) // 4)) + 1)
