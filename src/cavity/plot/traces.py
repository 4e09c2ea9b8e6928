"""Traces of a fit, and the comparison of fits with different numbers of components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.base.results import format_count
from cavity.plot.display import SIGNAL_COLOR, Display, MaxNLocator, add_legend, outline_text

MAX_PASSES_AS_DOTS = 100
MAX_FITS_LABELLED = 16  # up to so many fits each is labelled with its ELBO
TRACE_KINDS = {  # in order of preference: axis label, and whether the gap to the final value is drawn
    "elbo": ("nats below the last ELBO", True),
    "learning": ("nats below the largest log evidence", True),
    "change": ("largest change of a pass", False),
    "step": ("size of a step", False),
}


@dataclass(eq=False, repr=False, kw_only=True)
class TraceDisplay(Display):
    """The trace of a fit, pass by pass, on a logarithmic scale.

    Parameters
    ----------
    kind : {"elbo", "learning", "change", "step"}
        Which trace of the posterior it is: how far each ELBO is below the last one, and each log evidence of a search
        for settings below the largest; how much a pass changed; the sizes of stochastic steps.
    passes : ndarray (n,)
        The numbers of the passes with something to draw on a logarithmic scale.
    values : ndarray (n,)
        What is drawn of them.
    total : int
        The number of all passes.
    verdict : str
        How the fit ended.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity
    >>> from cavity.plot import TraceDisplay
    >>> velocity = cavity.data.table("galaxies")[0]["velocity"]
    >>> posterior = cavity.UnitMixture(3).fit(velocity)
    >>> display = TraceDisplay.from_posterior(posterior)
    >>> display.kind, display.ax_.get_ylabel()
    ('elbo', 'nats below the last ELBO')
    """

    kind: str
    passes: Any
    values: FloatArray
    total: int
    verdict: str

    @classmethod
    def from_posterior(
        cls, posterior: Any, kind: str | None = None, *, ax: Any = None, title: str | None = None
    ) -> TraceDisplay:
        """Draw a trace of a posterior.

        Parameters
        ----------
        posterior : posterior with a trace
            Of any model.
        kind : {"elbo", "learning", "change", "step"}, optional
            Which trace; by default the first of these that it has.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        TraceDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a trace that the posterior does not have.
        """
        trace = getattr(posterior, "trace", None)
        if not isinstance(trace, dict):
            raise arrays.error_of("posterior", f"must have a trace, got {type(posterior).__name__}", TypeError)
        kinds = [name for name in TRACE_KINDS if np.size(trace.get(name, ())) and np.ndim(trace[name]) == 1]
        if not kinds:
            raise arrays.error_of("posterior", "has no trace of one fit to draw")
        kind = kinds[0] if kind is None else arrays.check_choice(kind, "kind", kinds)
        values = np.asarray(trace[kind], dtype=np.float64)
        if TRACE_KINDS[kind][1]:
            end = values[-1] if kind == "elbo" else np.nanmax(values)
            values = end - values
            values = np.where(values > 4 * np.finfo(float).eps * np.abs(end), values, 0.0)  # smaller gaps are rounding
        shown = np.isfinite(values) & (values > 0)
        return cls(
            kind=kind,
            passes=np.flatnonzero(shown) + 1,
            values=values[shown],
            total=len(values),
            verdict=describe_end(posterior),
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        line = "o-" if self.total <= MAX_PASSES_AS_DOTS else "-"
        axes.semilogy(self.passes, self.values, line, ms=4, lw=1, color=SIGNAL_COLOR)
        if not len(self.values):
            message = "nothing changed after the first pass"
            axes.text(0.5, 0.5, message, ha="center", va="center", transform=axes.transAxes, color="0.3")
            axes.set_yticks([])
        xlabel = {"learning": "step of the search", "step": "step"}.get(self.kind, "pass over the data")
        axes.set(xlabel=xlabel, ylabel=TRACE_KINDS[self.kind][0], xlim=(0.5, self.total + 0.5))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        axes.set_title(self.verdict, fontsize="medium")


def describe_end(posterior):
    """Return a description of the objective of a fit and of how it ended."""
    done = "converged" if posterior.converged else posterior.status
    ended = f"{done} after {format_count(posterior.n_iter, 'pass')}"
    if hasattr(posterior, "elbo"):
        return f"{'ELBO not known' if posterior.elbo is None else f'ELBO {posterior.elbo:.4f}'}, {ended}"
    value = getattr(posterior, "log_evidence", getattr(posterior, "log_bound", None))
    return ended if value is None else f"log evidence {value:.4f}, {ended}"


@dataclass(eq=False, repr=False, kw_only=True)
class SelectionDisplay(Display):
    """The ELBO over the number of components of a mixture.

    The best is marked, the others are labelled with their difference to it. Dots are hollow where some components have
    no points.

    Parameters
    ----------
    n_components, elbo, occupied : ndarray (n,)
        As of `cavity.Selection`.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> columns, about = cavity.data.table("faithful")
    >>> X = np.column_stack([columns["eruptions"], columns["waiting"]])
    >>> selection = cavity.select_components(cavity.GaussianMixture(1), X, range(1, 4))
    >>> selection.plot().get_xlabel()
    'number of components'
    """

    n_components: Any
    elbo: FloatArray
    occupied: Any

    @classmethod
    def from_selection(cls, selection: Any, *, ax: Any = None, title: str | None = None) -> SelectionDisplay:
        """Draw the result of `cavity.select_components`.

        Parameters
        ----------
        selection : Selection
            The fits.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        SelectionDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If `selection` is no `cavity.Selection`.
        """
        if not all(hasattr(selection, name) for name in ("n_components", "elbo", "occupied")):
            raise arrays.error_of("selection", f"must be a Selection, got {type(selection).__name__}", TypeError)
        return cls(n_components=selection.n_components, elbo=selection.elbo, occupied=selection.occupied).plot(
            ax=ax, title=title
        )

    def _draw(self, axes):
        ks, elbo, done = self.n_components, self.elbo, np.isfinite(self.elbo)
        best, order = int(np.nanargmax(elbo)), np.argsort(ks)
        line = order[done[order]]
        axes.plot(ks[line], elbo[line], "-", color=SIGNAL_COLOR, lw=1)
        full = done & (self.occupied == ks)
        for some, fill, label in (
            (full, SIGNAL_COLOR, "all components have points"),
            (done & ~full, "white", "some have none"),
        ):
            if some.any():
                axes.plot(ks[some], elbo[some], "o", ms=6, mfc=fill, mec=SIGNAL_COLOR, label=label)
        axes.plot(ks[best], elbo[best], "o", ms=13, mfc="none", mec="black", mew=1.5, label="largest ELBO")
        axes.margins(y=0.15)
        axes.set_xlim(ks.min() - 0.5, ks.max() + 0.5)
        for i in np.flatnonzero(done) if len(ks) <= MAX_FITS_LABELLED else [best]:
            text = f"{elbo[i]:.2f}" if i == best else f"-{elbo[best] - elbo[i]:.3g}"
            at = dict(xytext=(0, 10), textcoords="offset points", ha="center", fontsize="small")
            outline_text(axes.annotate(text, (ks[i], elbo[i]), weight="bold" if i == best else "normal", **at))
        for k in ks[~done]:
            at = dict(xycoords=("data", "axes fraction"), rotation=90, fontsize="small", ha="center")
            axes.annotate("failed", (k, 0.02), **at)
        axes.set(xlabel="number of components", ylabel="ELBO [nats]\n(numbers: difference to the largest)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        add_legend(axes)
