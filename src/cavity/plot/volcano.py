"""An effect in many responses: its size against how sure its sign is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.models.contrasts import list_combinations, name_combination
from cavity.plot.display import CLUTTER_COLOR, SIGNAL_COLOR, Display, add_legend, posterior_error

MIN_RATE_DRAWN = 1e-30  # of wrong signs: smaller rates are drawn there
MAX_NAMES_WRITTEN = 8  # beside points


@dataclass(eq=False, repr=False, kw_only=True)
class VolcanoDisplay(Display):
    """The posterior mean of an effect in each of many responses, over it the local false sign rate.

    Parameters
    ----------
    mean : ndarray (G,)
        Posterior means of the effect.
    rate : ndarray (G,)
        Local false sign rates.
    s_value : ndarray (G,)
        S-values, by which responses are called.
    max_s_value : float
        The largest s-value of responses that are called.
    label : str
        What the effect is called.
    names : tuple of str
        Names of the responses; those called with the smallest rates are written beside their points.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> from cavity.plot import VolcanoDisplay
    >>> rng = np.random.default_rng(0)
    >>> dose = np.repeat([0.0, 1.0], 20)
    >>> Y = rng.poisson(np.exp(1.0 + np.outer(dose, [0.0, 1.0, -1.0])))
    >>> posterior = cavity.GLM("~ dose", "poisson").fit_many({"dose": dose}, Y)
    >>> display = VolcanoDisplay.from_posterior(posterior, "dose")
    >>> int((display.s_value < display.max_s_value).sum())
    2
    """

    mean: FloatArray
    rate: FloatArray
    s_value: FloatArray
    max_s_value: float
    label: str
    names: tuple[str, ...]

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        combination: Any = None,
        *,
        max_s_value: float = 0.05,
        ax: Any = None,
        title: str | None = None,
    ) -> VolcanoDisplay:
        """Draw an effect in all responses.

        Parameters
        ----------
        posterior : ManyPosterior
            A fit of many responses.
        combination : str or dict, optional
            The effect, as `ManyPosterior.table` takes it; by default the last coefficient.
        max_s_value : float, default 0.05
            Responses with s-values up to here are called: that share of their signs is expected to be wrong.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        VolcanoDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For other posteriors, and for combinations that are not linear.
        """
        if not hasattr(posterior, "coefficient_names") or not hasattr(posterior, "table"):
            raise posterior_error(posterior, "a ManyPosterior")
        max_s_value = arrays.check_number(max_s_value, "max_s_value", low=0, high=1)
        combination = posterior.coefficient_names[-1] if combination is None else combination
        table = posterior.table(combination)
        return cls(
            mean=table.columns["mean"],
            rate=table.columns["lfsr"],
            s_value=table.columns["s-value"],
            max_s_value=max_s_value,
            label=name_combination(list_combinations(combination)[0]),
            names=table.names,
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        height = -np.log10(np.maximum(self.rate, MIN_RATE_DRAWN))
        marked = self.s_value <= self.max_s_value
        labels = f"s-value up to {self.max_s_value:g}", "others"
        for mask, color, name in ((~marked, SIGNAL_COLOR, labels[1]), (marked, CLUTTER_COLOR, labels[0])):
            mask = mask & np.isfinite(self.mean)
            look = dict(ms=4, alpha=0.6, mew=0, color=color, label=f"{name} ({np.count_nonzero(mask)})")
            axes.plot(self.mean[mask], height[mask], "o", **look)
        for number in np.argsort(np.where(marked, self.rate, np.inf), kind="stable")[:MAX_NAMES_WRITTEN]:
            if marked[number]:
                point = self.mean[number], height[number]
                axes.annotate(self.names[number], point, xytext=(3, 2), textcoords="offset points", fontsize="x-small")
        axes.axvline(0.0, color="gray", lw=0.8, ls=":")
        axes.set(xlabel=f"posterior mean of {self.label}", ylabel="-log10 of the local false sign rate")
        add_legend(axes)
