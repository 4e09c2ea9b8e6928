"""Pictures of mixed models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.plot.common import SIGNAL, Figure

if TYPE_CHECKING:
    from cavity.models.mixed.posterior import MixedGLMPosterior

INTERCEPT = "intercept"  # what formulas and added columns of ones call it
NAMED = 40  # most effects that have their names beside them
COLUMNS = 4  # most panels side by side


def mixed_figure(posterior: MixedGLMPosterior, title: str | None = None) -> Figure:
    """Draw the fixed effects of a mixed model, and the effects of each term from the smallest to the largest.

    Parameters
    ----------
    posterior : MixedGLMPosterior
        The fit.
    title : str, optional
        What the data are.

    Returns
    -------
    Figure
        To be saved with `save`.
    """
    panels = [_fixed(posterior)]
    for term in posterior.terms:
        columns, names = posterior.effect_names(term)
        mean, variance = posterior.effect_moments(term)
        for k, column in enumerate(columns):
            order = np.argsort(mean[:, k], kind="stable")
            group = term.rpartition("| ")[2]
            ordered = [names[i] for i in order]
            panels.append((f"{column} of {group}", ordered, mean[order, k], np.sqrt(variance[order, k])))
    tallest = max(min(len(names), NAMED) for _, names, *_ in panels)
    across = min(len(panels), COLUMNS)
    down = -(-len(panels) // across)
    size = (3.6 * across, down * max(3.5, 1.2 + 0.2 * tallest))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for panel, each in zip(panels, axes, strict=False):
        _effects(each, *panel)
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    figure.suptitle(title or "")
    return figure


def _fixed(posterior):
    """The panel of the fixed effects; an intercept, which is on a scale of its own, is told in the title."""
    names, mean, sd = list(posterior.coefficient_names), posterior.mean, posterior.sd
    if INTERCEPT not in names or len(names) == 1:
        return "fixed effects", names, mean, sd
    at = names.index(INTERCEPT)
    title = f"fixed effects ({INTERCEPT} {mean[at]:.4g} ± {2 * sd[at]:.2g})"
    rest = np.arange(len(names)) != at
    return title, [name for name in names if name != INTERCEPT], mean[rest], sd[rest]


def _effects(axes, title, names, mean, sd):
    """Draw effects one above the other, with intervals of two standard deviations."""
    place, clear = np.arange(len(mean)), np.abs(mean) > 2 * sd
    axes.axvline(0.0, color="gray", lw=0.8, ls=":")
    many = len(mean) > NAMED
    for group, color in ((clear, SIGNAL), (~clear, "gray")):
        if many:
            axes.hlines(place[group], mean[group] - 2 * sd[group], mean[group] + 2 * sd[group], color=color, lw=0.3)
            axes.plot(mean[group], place[group], ".", ms=2, color=color)
        else:
            axes.errorbar(mean[group], place[group], xerr=2 * sd[group], fmt="o", ms=4, capsize=2, color=color)
    axes.set_yticks([] if many else place, [] if many else names)
    if many:
        axes.set_ylabel(f"{len(mean)} levels, from the smallest to the largest")
    axes.set_ylim(-0.7, len(mean) - 0.3)
    axes.set_xlabel("mean ± 2 sd (gray: 0 is inside)")
    axes.set_title(title, fontsize=10)
