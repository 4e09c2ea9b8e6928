"""Pictures of Gaussian processes: bands over one column, maps of two, slices along each of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity import likelihoods
from cavity.base import arrays
from cavity.base.frames import coefficient_names, taken
from cavity.base.labels import recoded
from cavity.base.types import ArrayLike
from cavity.models.latent import log_density, probabilities
from cavity.plot.common import CLUTTER, SIGNAL, Figure, MaxNLocator, colormaps, grid, target_of
from cavity.plot.glm import against_others, loo_or_none

if TYPE_CHECKING:
    from cavity.models.gp.posterior import GaussianProcessPosterior
    from cavity.models.streaming_gp.state import StreamingGPState

DENSE, CROWD = 450, 1500  # rows that are drawn as smaller dots, and below the curve
MESH = 100  # points along each side of a map
SLICES = 6  # most columns shown
ALONG = 101  # points along a slice
TAIL = 0.025  # of the predictive distribution on each side of its band
HEIGHTS = np.sinh(np.linspace(-8.0, 8.0, 401))  # at which it is summed, in spreads: close together in the middle


def gp_figure(
    posterior: GaussianProcessPosterior,
    y: ArrayLike,
    names: list[str] | None = None,
    target: str | None = None,
    title: str | None = None,
    classes: tuple[str, ...] | None = None,
) -> Figure:
    """Draw the function that a Gaussian process has found, and the data.

    One column: the function with a band of 2 sd and, for real targets, a wider one that holds 95 % of new observations.
    Two columns: a map of the probability of class 1 (or of the expected target, with another one of its sd). More: the
    function along each column, the others at their medians, and beside it how each row is predicted from the others.

    Parameters
    ----------
    posterior : GaussianProcessPosterior
        The fit.
    y : array_like (N,)
        The target, as the fit had it.
    names : list of str, optional
        Names of the D columns, with units; by default as in the fit.
    target : str, optional
        Name of the target, with its unit.
    title : str, optional
        What the data are.
    classes : tuple of str, optional
        What 0, 1, ... stand for, if the target has classes; by default the classes of the fit.

    Returns
    -------
    matplotlib.figure.Figure
        To be saved with `save`.
    """
    return process_figure(posterior, posterior.X, y, names, target, title, classes)


def process_figure(posterior, X, y, names, target, title, classes, inducing=None):
    """Draw the function of any posterior that predicts f, with rows of data X (N, D), y, and inducing points (M, D)."""
    y = arrays.real_array(recoded(y, posterior.model.likelihood, posterior.classes), "y")
    if posterior.model.likelihood.takes_trials:  # drawn are shares of successes, none where there were no trials
        y = np.where(y[:, 1] > 0, y[:, 0] / np.maximum(y[:, 1], 1.0), np.nan)
    names = coefficient_names(posterior.columns, X.shape[1]) if names is None else names
    target = target_of(posterior) if target is None else target
    classes = posterior.classes or () if classes is None else classes
    draw = {1: _line, 2: _plane}.get(len(names), _slices)
    figure = draw(posterior, X, y, names, target, tuple(map(str, classes)), inducing)
    figure.suptitle(title or "")
    return figure


def _expected_band(posterior, points):
    """Return what is expected of the target at points, and the ends of its band where f is 2 sd lower and higher."""
    return _observed(posterior.model.likelihood, *posterior.predict(points, offset=0))


def _observed(likelihood, mean, variance):
    """Return the expected target and the ends of its band of 2 sd, from moments of f."""
    reach = 2.0 * np.sqrt(variance)
    if likelihood.n_classes:
        numbers = np.arange(likelihood.n_classes)

        def expected(mean, variance):
            return probabilities(likelihood, lambda: (mean, variance)) @ numbers
    else:
        expected = likelihood.expected
    try:
        return expected(mean, variance), *(expected(end, np.zeros_like(end)) for end in (mean - reach, mean + reach))
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        return mean, mean - reach, mean + reach


def _is_real(likelihood):
    """Return whether observations are real numbers around f."""
    known = likelihoods.Gaussian, likelihoods.StudentT, likelihoods.Laplace
    return isinstance(likelihood, known) or not type(likelihood).__module__.startswith("cavity.")


def _interval(posterior, points, X, y):
    """Return the ends of the central 95 % of new observations at points, or None."""
    likelihood = posterior.model.likelihood
    if not _is_real(likelihood):
        return None
    mean, variance = posterior.predict(points, offset=0)
    if isinstance(likelihood, likelihoods.Gaussian):
        try:
            reach = 1.959964 * np.sqrt(posterior.predict(points, offset=0, noise=True)[1])
        except ValueError:  # every row had noise of its own
            return None
        return mean - reach, mean + reach
    apart = np.median(np.abs(y - posterior.predict(X, offset=0)[0])) or 1.0
    height = mean[:, None] + np.sqrt(variance + apart**2)[:, None] * HEIGHTS
    each = [np.repeat(a, len(HEIGHTS)) for a in (mean, variance)]
    density = np.exp(log_density(likelihood, likelihood.check(height.ravel()), *each)).reshape(height.shape)
    mass = np.cumsum(0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(height), axis=1)
    mass = np.hstack([np.zeros((len(mass), 1)), mass / mass[:, -1:]])
    ends = [[np.interp(p, row, at) for row, at in zip(mass, height, strict=True)] for p in (TAIL, 1.0 - TAIL)]
    return tuple(np.array(ends))


def _curve(axes, place, band, color=SIGNAL, label="expected"):
    """Draw the expected target with its band."""
    middle, low, high = band
    axes.fill_between(place, low, high, color=color, alpha=0.3, lw=0, label="± 2 sd of the function")
    axes.plot(place, middle, color=color, lw=1.6, label=label)


def _class_axis(axes, target, classes):
    """Label the axis of a target with classes: the probability of the second of two, else their names."""
    if len(classes) == 2:
        axes.set(ylim=(-0.05, 1.05), ylabel=f"probability of {target} = {classes[1]}")
    elif classes:
        axes.set_yticks(range(len(classes)), classes)
        axes.set_ylabel(f"expected {target}")
    else:
        axes.set_ylabel(target)


def _line(posterior, X, y, names, target, classes, inducing):
    """Draw one column."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes, x = figure.subplots(), X[:, 0]
    place = grid(x)
    few = place if isinstance(posterior.model.likelihood, likelihoods.Gaussian) else place[::8]
    ends = _interval(posterior, few[:, None], X, y)
    if ends is not None:
        axes.fill_between(few, *ends, color="gray", alpha=0.2, lw=0, label="95 % of new observations")
    _curve(axes, place, _expected_band(posterior, place[:, None]))
    seen = y.astype(int) if classes else np.zeros(len(y), dtype=int)
    colors, size = _colors(len(classes)) if classes else ["black"], 4.0 if len(y) < DENSE else 2.0
    order = 2.0 if len(y) < CROWD else 1.9  # of so many the curve must stay visible
    for k, color in enumerate(colors):
        label = f"{target} = {classes[k]}" if classes else "data"
        axes.plot(x[seen == k], y[seen == k], "o", ms=size, mew=0, alpha=0.6, zorder=order, color=color, label=label)
    if inducing is not None:
        foot = np.full(len(inducing), 0.015)
        look = dict(ms=8, color=CLUTTER, label=_points(inducing), transform=axes.get_xaxis_transform())
        axes.plot(inducing[:, 0], foot, "|", **look)
        axes.set_xlim(place[0], place[-1])
    if not classes:
        _show_most(axes, y, np.concatenate(ends) if ends is not None else y[np.isfinite(y)])
    _class_axis(axes, target, classes)
    axes.set_xlabel(names[0])
    _legend(figure)
    return figure


def _points(inducing):
    """Return what the inducing points are called in the legend."""
    return f"{len(inducing)} inducing points"


def _legend(figure):
    """Draw the legend below everything, where it hides nothing."""
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)


def _show_most(axes, y, ends):
    """Limit the axis to the data and the band; gross outliers of the band's own tails do not stretch it."""
    low, high = min(np.nanmin(y), ends.min()), max(np.nanmax(y), ends.max())
    axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _colors(count):
    """Return a colour for each class."""
    return [SIGNAL, CLUTTER] if count == 2 else list(colormaps["viridis"](np.linspace(0.0, 0.9, count)))


def _plane(posterior, X, y, names, target, classes, inducing):
    """Draw two columns: one map for classes, else a second one of the sd of f."""
    panels = 1 if classes else 2
    figure = Figure(figsize=(6.6 * panels, 5.4), layout="constrained")
    sides = [grid(X[:, d])[np.linspace(0, 800, MESH).astype(int)] for d in range(2)]
    points = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    middle = _expected_band(posterior, points)[0].reshape(MESH, MESH)
    left, *right = figure.subplots(1, panels, sharex=True, sharey=True, squeeze=False)[0]
    if classes:
        _class_map(figure, left, sides, middle, target, classes)
        _scatter_classes(left, X, y, target, classes)
    else:
        ends = min(middle.min(), np.nanmin(y)), max(middle.max(), np.nanmax(y))
        look = dict(cmap="viridis", vmin=ends[0], vmax=ends[1])
        drawn = left.contourf(*sides, middle, 15, **look)
        dense = len(y) >= DENSE
        left.scatter(*X.T, c=y, s=8 if dense else 18, edgecolors="white", linewidths=0.3 if dense else 0.5, **look)
        figure.colorbar(drawn, ax=left, label=f"expected {target} (points: observed)")
        sd = np.sqrt(posterior.predict(points, offset=0)[1]).reshape(MESH, MESH)
        shown = right[0].contourf(*sides, sd, 12, cmap="magma")
        right[0].plot(*X.T, "o", ms=1.5 if dense else 3, mfc="none", mec="white", mew=0.3 if dense else 0.6)
        figure.colorbar(shown, ax=right[0], label="sd of the function")
    for axes in (left, *right):
        if inducing is not None:
            label = _points(inducing) if axes is left else None
            axes.plot(*inducing.T, "X", ms=7, mew=0.7, color="black", mec="white", label=label)
        axes.set(xlabel=names[0], xlim=sides[0][[0, -1]], ylim=sides[1][[0, -1]])
    if classes or inducing is not None:
        _legend(figure)
    left.set_ylabel(names[1])
    return figure


def _class_map(figure, axes, sides, middle, target, classes):
    """Draw a map of the probability of the second of two classes, or of the expected one of several."""
    two = len(classes) == 2
    levels = np.linspace(0.0, len(classes) - 1.0, 11 if two else 4 * len(classes) - 3)
    drawn = axes.contourf(*sides, np.clip(middle, 0.0, levels[-1]), levels, cmap="RdBu_r" if two else "viridis")
    label = f"probability of {target} = {classes[1]}" if two else f"expected {target}"
    bar = figure.colorbar(drawn, ax=axes, label=label)
    if two:
        lines = axes.contour(*sides, middle, [0.1, 0.5, 0.9], colors="black", linewidths=[0.7, 1.6, 0.7])
        lines.set_linestyle(["--", "-", "--"])
        axes.set_title("lines: probability 0.1, 0.5 and 0.9", fontsize=10)
    else:
        bar.set_ticks(range(len(classes)), labels=classes)


def _scatter_classes(axes, X, y, target, classes):
    """Draw the rows of each class."""
    size, edge = (5.0, 0.5) if len(y) < DENSE else (2.5, 0.2)
    for k, color in enumerate(_colors(len(classes))):
        mine = y == k
        look = dict(ms=size, mec="white" if len(classes) == 2 else "black", mew=edge, alpha=0.9, color=color)
        axes.plot(*X[mine].T, "so^Dv"[k % 5], label=f"{target} = {classes[k]}", **look)


def _slices(posterior, X, y, names, target, classes, inducing):
    """Draw the columns along which the function changes most, and how the rows are predicted from the others."""
    density = loo_or_none(posterior) if hasattr(posterior, "loo_log_density") else None
    ratios = [3, 2] if density is not None else [1]
    figure = Figure(figsize=(13.0 if len(ratios) > 1 else 7.5, 6.5), layout="constrained")
    left, *right = figure.subfigures(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    middle = np.median(X, axis=0)
    found = []
    for d in range(len(names)):
        points = np.tile(middle, (ALONG, 1))
        points[:, d] = np.linspace(*np.quantile(X[:, d], (0.01, 0.99)), ALONG)
        found.append((points[:, d], _expected_band(posterior, points)))
    order = sorted(range(len(names)), key=lambda d: -np.ptp(found[d][1][0]))[:SLICES]
    across = 2 if len(order) <= 4 else 3
    axes = left.subplots(-(-len(order) // across), across, sharey=True, squeeze=False)
    for panel, d in zip(axes.ravel(), order, strict=False):
        _curve(panel, *found[d])
        panel.set_xlabel(names[d])
        panel.xaxis.set_major_locator(MaxNLocator(nbins=4))
    for panel in axes.ravel()[len(order) :]:
        panel.remove()
    for panel in axes[:, 0]:
        _class_axis(panel, target, classes)
    axes[0, 0].legend(loc="best", fontsize=7)
    more = f"the {len(order)} of {len(names)} columns that matter most" if len(order) < len(names) else "each column"
    left.suptitle(f"along {more}, the others at their medians", fontsize=10)
    if right:
        fitted = _observed(posterior.model.likelihood, posterior.mean, posterior.variance)[0]
        against_others(right[0], density, fitted, y, target, classes)
    return figure


def streaming_gp_figure(
    state: StreamingGPState,
    X: ArrayLike,
    y: ArrayLike,
    names: list[str] | None = None,
    target: str | None = None,
    title: str | None = None,
    classes: tuple[str, ...] | None = None,
) -> Figure:
    """Draw the function that a streaming Gaussian process knows, some of the data, and its inducing points.

    One column: the function with a band of 2 sd and, for real targets, a wider one that holds 95 % of new observations;
    a stroke at the foot for each inducing point. Two columns: a map of the probability of class 1 (or of the expected
    target, with another one of its sd), a cross for each inducing point. More: the function along each column, the
    others at their medians.

    Parameters
    ----------
    state : StreamingGPState
        What is known.
    X : array_like (N, D)
        Rows to draw, for example those of the last batch; the picture reaches as far as they do.
    y : array_like (N,)
        Their targets, as the fit had them, or the name of a column of X.
    names : list of str, optional
        Names of the D columns, with units; by default as in the fit.
    target : str, optional
        Name of the target, with its unit.
    title : str, optional
        What the data are.
    classes : tuple of str, optional
        What 0, 1, ... stand for, if the target has classes; by default the classes of the fit.

    Returns
    -------
    matplotlib.figure.Figure
        To be saved with `save`.
    """
    X, (y,), _ = taken(X, {"y": y}, state.columns, state.roles)
    X = arrays.real_array(X, "X")
    return process_figure(state, X, y, names, target, title, classes, state.inducing)
