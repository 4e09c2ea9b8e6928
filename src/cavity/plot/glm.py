"""Pictures of generalised linear models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.base.labels import recoded
from cavity.base.types import ArrayLike, FloatArray
from cavity.plot.common import SIGNAL, Figure, target_of

if TYPE_CHECKING:
    from cavity.models.glm.posterior import GLMPosterior

COEFFICIENTS_DRAWN = 40  # most coefficients drawn
BINS = 10  # of the probability


def glm_figure(
    posterior: GLMPosterior,
    names: list[str] | None,
    y: ArrayLike,
    predicted: FloatArray | None,
    title: str | None = None,
    target: str | None = None,
    classes: tuple[str, ...] | None = None,
    intercept: bool = False,
) -> Figure:
    """Draw the coefficients of a GLM and how it predicts the rows it was fitted to.

    Beside the coefficients stands, for two classes, how often class 1 is true among rows of similar leave-one-out
    probability; else each observation over its prediction. Fits without leave-one-out densities show coefficients only.

    Parameters
    ----------
    posterior : GLMPosterior
        The fit.
    names : list of str or None
        Names of the D columns of the matrix that was fitted; None for those of the fit.
    y : array_like (N,)
        The target, as the fit had it.
    predicted : ndarray (N,) or None
        Expected target of each row; not used for two classes.
    title : str, optional
        What the data are.
    target : str, optional
        Name of the target.
    classes : tuple of str, optional
        What 0 and 1 stand for, if the target has two classes; by default the classes of the fit.
    intercept : bool, default False
        Whether the first coefficient is an intercept: it is told in the title, on a scale of its own.

    Returns
    -------
    Figure
        To be saved with `save`.
    """
    names = posterior.coefficient_names if names is None else names
    target = target_of(posterior) if target is None else target
    classes = tuple(map(str, posterior.classes or () if classes is None else classes))
    y = np.asarray(recoded(y, posterior.model.likelihood, posterior.classes), dtype=np.float64)
    drawn = np.arange(1 if intercept and len(names) > 1 else 0, len(names))
    clarity = np.abs(posterior.mean[drawn]) / np.sqrt(posterior.variance[drawn])
    shown = drawn[np.argsort(-clarity, kind="stable")[:COEFFICIENTS_DRAWN]]
    density = loo_or_none(posterior)
    panels = 1 if density is None else 2
    figure = Figure(figsize=(5.5 * panels, max(4.5, 1.5 + 0.22 * len(shown))), layout="constrained")
    left, *right = figure.subfigures(1, panels, squeeze=False)[0]
    _coefficients(left.subplots(), posterior, names, shown, len(drawn) - len(shown))
    if right:
        against_others(right[0], density, predicted, y, target, classes)
    figure.suptitle(title or "")
    return figure


def loo_or_none(posterior):
    """Return leave-one-out log densities, or None where the fit has none."""
    try:
        return posterior.loo_log_density
    except ValueError:  # ADF, stochastic schedule
        return None


def against_others(figure, density, predicted, y, target, classes):
    """Draw how rows are predicted from the others: the calibration of two classes, else observed over predicted."""
    if len(classes) == 2:
        _calibration(figure, np.where(y == 1, np.exp(density), -np.expm1(density)), y, target, classes)
    else:
        _observed(figure.subplots(), predicted, y, density, target)


def _coefficients(axes, posterior, names, shown, more):
    shown = shown[::-1]  # the clearest at the top
    mean, sd = posterior.mean[shown], np.sqrt(posterior.variance[shown])
    clear = np.abs(mean) > 2 * sd
    place = np.arange(len(shown))
    axes.axvline(0.0, color="gray", lw=0.8, ls=":")
    for group, color in ((clear, SIGNAL), (~clear, "gray")):
        axes.errorbar(mean[group], place[group], xerr=2 * sd[group], fmt="o", ms=5, capsize=3, color=color)
    axes.set_yticks(place, [names[j] for j in shown])
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel("coefficient, mean ± 2 sd (gray: 0 is inside)")
    title = f"the {len(shown)} clearest of {len(shown) + more} coefficients" if more else "coefficients"
    if 0 not in shown and not more:
        title += f" ({names[0]} {posterior.mean[0]:.4g} ± {2 * np.sqrt(posterior.variance[0]):.2g})"
    axes.set_title(title, fontsize=10)


def _calibration(figure, probability, y, target, classes):
    used = np.isfinite(probability)  # rows of weight zero have none
    probability, y = probability[used], y[used]
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    edges = np.linspace(0.0, 1.0, BINS + 1)
    index = np.minimum((probability * BINS).astype(int), BINS - 1)
    count = np.bincount(index, minlength=BINS)
    full = count > 0
    count, place = count[full], (edges[:-1] + 0.5 / BINS)[full]
    total = np.bincount(index, probability, BINS)[full]
    expected, true = total / count, np.bincount(index, y, BINS)[full] / count
    noise = np.sqrt(np.bincount(index, probability * (1 - probability), BINS)[full]) / count
    upper.plot([0, 1], [0, 1], color="gray", lw=0.8, ls=":")
    ends = np.clip([expected - 2 * noise, expected + 2 * noise], 0, 1)
    label = "± 2 sd of chance if the probabilities are right"
    upper.vlines(expected, *ends, color="gray", alpha=0.35, lw=6, label=label)
    upper.plot(expected, true, "o", color=SIGNAL, label="share of the rows in a bin")
    upper.set(ylabel=f"true share of {target} = {classes[1]}", ylim=(-0.04, 1.04), xlim=(-0.02, 1.02))
    upper.legend(loc="upper left", fontsize=8)
    upper.set_title("calibration: each row predicted from the others", fontsize=10)
    bars = lower.bar(place, count, width=0.9 / BINS, color=SIGNAL, alpha=0.5)
    lower.bar_label(bars, fontsize=8)
    lower.margins(y=0.25)
    lower.set(xlabel=f"leave-one-out probability of {target} = {classes[1]}", ylabel="rows")


def _observed(axes, predicted, y, density, target):
    used = np.isfinite(density) & np.isfinite(y)
    predicted, y, density = predicted[used], y[used], density[used]
    order = np.argsort(-density, kind="stable")  # the surprising ones on top
    points = axes.scatter(predicted[order], y[order], s=14, c=density[order], cmap="plasma", linewidths=0)
    ends = [min(predicted.min(), y.min()), max(predicted.max(), y.max())]
    axes.plot(ends, ends, color="gray", lw=0.8, ls=":")
    axes.set(xlabel=f"predicted {target}", ylabel=f"observed {target}")
    axes.set_title("each row: observed over predicted", fontsize=10)
    axes.figure.colorbar(points, ax=axes, label="leave-one-out log density")
