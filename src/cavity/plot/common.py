"""What the pictures share: matplotlib, colours, the rise of the ELBO, saving."""

from __future__ import annotations

from os import PathLike

import numpy as np

from cavity.base.errors import missing_extra
from cavity.base.persistence import whole_file

try:
    from matplotlib import colormaps
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise missing_extra("matplotlib", "plot") from error

__all__ = ["Figure", "MaxNLocator", "colormaps"]  # imported here and nowhere else

SIGNAL, CLUTTER = "#1b6ca8", "#c8553d"
PEAKS = 100  # most components drawn with points of their own, most passes drawn as dots


def format_of(path: str | PathLike[str]) -> str:
    """Return the format that the suffix of a path stands for; ValueError if matplotlib cannot write it."""
    suffix = str(path).rpartition(".")[2].lower()
    supported = FigureCanvasBase.get_supported_filetypes()
    if suffix not in supported:
        raise ValueError(f"{path}: cannot draw a {suffix!r} file; use one of {', '.join(sorted(supported))}")
    return suffix


def save(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a figure to a file, whole or not at all, in the format of its suffix."""
    suffix = format_of(path)
    with whole_file(path) as file:
        figure.savefig(file, format=suffix, dpi=150)


def grid(sample):
    """Return points across the data and a little beyond."""
    margin = 0.05 * (np.ptp(sample) or 1.0)
    return np.linspace(sample.min() - margin, sample.max() + margin, 801)


def target_of(posterior):
    """Return the name of the column that y was, "y" where it was none."""
    name = (posterior.roles or {}).get("y", "y")
    return name if isinstance(name, str) else ", ".join(name)


def beside_ascent(posterior, size, ratios):
    """Return a figure and the part of it to draw a fit in; beside it stands how the ELBO rose, if it did."""
    width, height = size
    behind = _behind(posterior)
    if not np.any(behind > 0):
        figure = Figure(figsize=(width * ratios[0] / sum(ratios), height), layout="constrained")
        figure.supxlabel(_verdict(posterior), fontsize=10)
        return figure, figure.subfigures(1, 1)
    figure = Figure(figsize=size, layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=ratios)
    _ascent(right.subplots(), posterior, behind)
    return figure, left


def _behind(posterior):
    """Return how far the ELBO of each pass is below the last one; 0 where that is rounding."""
    elbo = posterior.trace.get("elbo", np.zeros(1))  # steps of minibatches have none
    behind = elbo[-1] - elbo
    return np.where(behind > 4 * np.finfo(float).eps * np.abs(elbo[-1]), behind, 0.0)


def _verdict(posterior):
    """Return the ELBO of a fit, and how it ended, in words."""
    done = "converged" if posterior.converged else posterior.status
    passes = "1 pass" if posterior.n_iter == 1 else f"{posterior.n_iter} passes"
    elbo = "ELBO not known" if posterior.elbo is None else f"ELBO {posterior.elbo:.4f}"
    return f"{elbo}, {done} after {passes}"


def _ascent(axes, posterior, behind):
    """Draw the distance of the ELBO to the last one, pass by pass, on a logarithmic scale."""
    shown, count = behind > 0, len(behind)
    line = "o-" if count <= PEAKS else "-"
    axes.semilogy(np.arange(1, count + 1)[shown], behind[shown], line, ms=4, lw=1, color=SIGNAL)
    axes.set(xlabel="pass over the data", ylabel="nats below the last ELBO", xlim=(0.5, count + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_title(_verdict(posterior), fontsize=10)


def outlined(text):
    """Give a text a white outline, so that it can be read over anything."""
    text.set_path_effects([withStroke(linewidth=4, foreground="white")])
