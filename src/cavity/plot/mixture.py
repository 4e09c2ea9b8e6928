"""Gaussian mixtures: points coloured by responsibilities, ellipses, and the choice of the number of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh

from cavity.base.frames import coefficient_names, taken
from cavity.base.special import log_gamma_ratio
from cavity.base.types import Data
from cavity.blocks import sources
from cavity.models.mixture.moves import OCCUPIED
from cavity.plot.common import SIGNAL, Figure, MaxNLocator, beside_ascent, colormaps, outlined
from cavity.plot.line import line_figure

if TYPE_CHECKING:
    from cavity.models.mixture.posterior import GaussianMixturePosterior
    from cavity.models.mixture.selection import Selection

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1")  # told apart by the colour blind
GRAY = (0.6, 0.6, 0.6)
POINTS = 20000  # most points drawn
LEAST_WEIGHT = 1e-3  # of a component that is drawn
NAMED = 3  # columns named on the axis of a direction
LONGEST = 16  # letters of their names
TAIL, MARGIN = 0.005, 0.3  # axes go beyond the quantiles of the points by up to this share of their range
TINY = np.finfo(float).tiny
ANNOTATED = 16  # most numbers of components with their ELBO written beside


def mixture_figure(
    X: Data, posterior: GaussianMixturePosterior, names: Sequence[str] | None = None, title: str | None = None
) -> Figure:
    """Draw the data with the components of a Gaussian mixture, and the rise of its ELBO.

    Of one column: the histogram, the predictive density, the components and the responsibilities. Of two: the points in
    the mixed colours of their responsibilities and ellipses at 1 and 2 standard deviations of each component. Of more:
    the same in the two directions in which the components are farthest apart, relative to their own spread.

    Parameters
    ----------
    X : array_like (N, D), path, or list of paths
        The data; of more than 20,000 rows so many at equal distances are drawn, rows with missing values are not.
    posterior : GaussianMixturePosterior
        A fit to them.
    names : sequence of str, optional
        The columns, with their units; by default as in the fit.
    title : str, optional
        What the data are.

    Returns
    -------
    matplotlib.figure.Figure
        Components bear the numbers of their responsibilities, from 1.
    """
    rows = sources.open_source(taken(X, {}, posterior.columns, posterior.roles)[0], "X", ndim=(1, 2))
    sample = rows.sample(POINTS).reshape(-1, posterior.mean.shape[1])
    sample = sample[~np.isnan(sample).any(axis=1)]
    names = list(coefficient_names(posterior.columns, sample.shape[1]) if names is None else names)
    if sample.shape[1] == 1:
        figure = _line(posterior, sample[:, 0], names[0])
    else:
        figure, left = beside_ascent(posterior, (11.5, 6.0), (5, 3))
        _plane(left.subplots(), posterior, sample, names)
    drawn = np.count_nonzero(posterior.counts > OCCUPIED)
    what = f"{drawn} of {len(posterior.counts)} components have points" if drawn < len(posterior.counts) else ""
    what = what or f"{drawn} component{'s' if drawn > 1 else ''}"
    figure.suptitle(f"{title}: {what}" if title else what)
    return figure


def _line(posterior, sample, label):
    """Draw a mixture of one column; its predictive density is one of Student-t components, whatever the covariance."""
    mean, variance = posterior.mean[:, 0], posterior.component_covariances()[:, 0, 0]
    beta, nu = posterior.mean_precision.reshape(-1), np.ravel(posterior.degrees_of_freedom)
    spread = variance * (1.0 + 1.0 / beta)

    def density(x):
        height = log_gamma_ratio(0.5 * nu, 0.5) - 0.5 * np.log(np.pi * nu * spread)
        return np.exp(height - 0.5 * (nu + 1.0) * np.log1p((x[:, None] - mean) ** 2 / (nu * spread)))

    return line_figure(posterior, sample, label, mean, variance / beta, spread, density)


def _plane(axes, posterior, sample, names):
    axis_of, labels = _directions(posterior, names)
    place, means = sample @ axis_of, posterior.mean @ axis_of
    covariances, colors = posterior.component_covariances(), _colors(posterior)
    mixed = np.clip(posterior.responsibilities(sample) @ colors, 0.0, 1.0)
    size = float(np.clip(4000 / len(sample), 2.0, 16.0))
    axes.scatter(*place.T, s=size, c=mixed, alpha=0.8 if len(sample) < 2000 else 0.4, linewidths=0, rasterized=True)
    outer = [place.mean(axis=0)]
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for k in np.flatnonzero(_visible(posterior)):
        covariance = axis_of.T @ covariances[k] @ axis_of
        root, reach = np.linalg.cholesky(covariance), 2.0 * np.sqrt(np.diag(covariance))
        outer += [means[k] - reach, means[k] + reach]
        for sd, style in ((1, "-"), (2, "--")):
            axes.plot(*(means[k][:, None] + sd * (root @ circle)), style, color=0.75 * colors[k], lw=1.3)
        look = dict(color=0.6 * colors[k], weight="bold", ha="center", va="center", clip_on=True)
        outlined(axes.text(*means[k], str(k + 1), **look))
    limits = _limits(place, np.array(outer))
    axes.set(xlim=limits[0], ylim=limits[1])
    axes.set_xlabel(labels[0], fontsize=10 if len(names) == 2 else 8)
    axes.set_ylabel(labels[1], fontsize=10 if len(names) == 2 else 8)
    hidden = np.count_nonzero(((place < limits[:, 0]) | (place > limits[:, 1])).any(axis=1))
    beyond = f"; {hidden} point{'s' if hidden > 1 else ''} outside" if hidden else ""
    axes.set_title(f"mixed colours: responsibilities; ellipses: 1 and 2 sd of a component{beyond}", fontsize=10)


def _visible(posterior):
    """Return which components have points and weight enough to be drawn."""
    return (posterior.counts > OCCUPIED) & (posterior.weights > LEAST_WEIGHT)


def _colors(posterior):
    """Return a colour for each component (K, 3): distinct ones for those that are visible."""
    visible = _visible(posterior)
    count, colors = np.count_nonzero(visible), np.full((len(visible), 3), GRAY)
    if count <= len(COLORS):
        rgb = [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLORS[:count]]
    else:
        rgb = colormaps["turbo"](np.linspace(0.05, 0.95, count))[:, :3]
    colors[visible] = rgb
    return colors


def _limits(place, outer):
    """Return the limits of the axes (2, 2): most points, and all points and ellipses that leave them room."""
    low, high = np.quantile(place, (TAIL, 1.0 - TAIL), axis=0)
    size = np.where(high > low, high - low, 1.0)
    reach = np.concatenate([place, outer])
    low = np.clip(reach.min(axis=0), low - MARGIN * size, low)
    high = np.clip(reach.max(axis=0), high, high + MARGIN * size)
    return np.stack([low - 0.04 * size, high + 0.04 * size], axis=1)


def _directions(posterior, names):
    """Return the directions to draw as a matrix (D, 2), and the labels of the axes.

    They maximise the variance between the means of the visible components over the mean variance within (Fisher). Two
    components have one such direction; others are of the largest spread, uncorrelated with it within.
    """
    if len(names) == 2:
        return np.eye(2), names
    within, apart, sd = _scatter(posterior)
    between = apart.T @ apart
    rank = min(2, np.count_nonzero(_visible(posterior)) - 1)
    value, vector = eigh(between, within)
    chosen, total = vector[:, ::-1][:, :rank], within + between
    left = within - within @ chosen @ chosen.T @ within if rank else total  # chosen' within chosen = 1
    spread = eigh(left)[1][:, ::-1][:, : 2 - rank]
    chosen = np.hstack([chosen, spread - chosen @ (chosen.T @ (within @ spread))])
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(axis=0), range(2)])
    shares = value[::-1][:rank] / max(value.sum(), TINY)
    words = [f"discriminating direction, {share:.0%} of the separation" for share in shares]
    words += ["largest spread that is left" if rank else "principal direction"] * (2 - rank)
    labels = [f"{word}\n{_combination(axis, names)}" for word, axis in zip(words, chosen.T, strict=True)]
    return chosen / sd[:, None], labels


def _scatter(posterior):
    """Return the covariance within the visible components, what their means are apart, and the scale of the columns.

    The first two are in units of the third; rows of the second are weighted, so that its square is the covariance
    between components.
    """
    visible = np.flatnonzero(_visible(posterior))
    weights = posterior.weights[visible] / posterior.weights[visible].sum()
    within = np.tensordot(weights, posterior.component_covariances()[visible], 1)
    apart = np.sqrt(weights)[:, None] * (posterior.mean[visible] - weights @ posterior.mean[visible])
    sd = np.sqrt(np.diag(within) + np.sum(apart**2, axis=0))
    return within / np.outer(sd, sd), apart / sd, sd


def _combination(direction, names):
    """Return words for a direction: its largest coefficients, per standard deviation of a column."""
    order = np.argsort(-np.abs(direction), kind="stable")[:NAMED]
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    terms = " ".join(f"{'+' if direction[d] >= 0 else '-'} {abs(direction[d]):.2g} {short[d]}/sd" for d in order)
    return terms.removeprefix("+ ") + (" + ..." if len(direction) > NAMED else "")


def selection_figure(selection: Selection) -> Figure:
    """Draw the ELBO over the number of components, and how many of them have points.

    Parameters
    ----------
    selection : Selection
        What `select_components` returned.

    Returns
    -------
    matplotlib.figure.Figure
        The best is marked; beside the others stands how far below it they are. Fits that failed are crosses.
    """
    figure = Figure(figsize=(7.5, 6.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    ks, elbo, done = selection.n_components, selection.elbo, np.isfinite(selection.elbo)
    best = int(np.nanargmax(elbo))
    upper.plot(ks[done], elbo[done], "o-", color=SIGNAL, ms=5, lw=1)
    upper.plot(ks[best], elbo[best], "o", ms=13, mfc="none", mec="black", mew=1.5)
    upper.margins(x=0.06, y=0.15)
    for i in np.flatnonzero(done) if len(ks) <= ANNOTATED else [best]:
        text = f"{elbo[i]:.2f}" if i == best else f"-{elbo[best] - elbo[i]:.3g}"
        at = dict(xytext=(0, 10), textcoords="offset points", ha="center", fontsize=8)
        outlined(upper.annotate(text, (ks[i], elbo[i]), weight="bold" if i == best else "normal", **at))
    for k in ks[~done]:
        upper.annotate("failed", (k, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=8, ha="center")
    upper.set_ylabel("ELBO [nats] (differences to the best)")
    lower.plot(ks, ks, ":", color="gray", lw=0.8, label="all of them")
    lower.plot(ks[done], selection.occupied[done], "s-", color=SIGNAL, ms=4, lw=1, label="with half a point or more")
    lower.set(xlabel="number of components K", ylabel="components", ylim=(0, None))
    lower.legend(loc="upper left", fontsize=8)
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(f"Best of {len(ks)}: K = {ks[best]}, ELBO {elbo[best]:.4f}")
    return figure
