"""What many responses have learnt of a parameter, over an effect such as their level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import FloatArray
from cavity.models.contrasts import list_combinations, name_combination
from cavity.plot.display import SIGNAL_COLOR, Display, add_legend, posterior_error

MAX_BINS, MIN_BIN_RESPONSES = 20, 10  # of equally many responses, whose medians are the trend


@dataclass(eq=False, repr=False, kw_only=True)
class ParameterTrendDisplay(Display):
    """A parameter that each of many responses has learnt, such as its dispersion, over the mean of an effect.

    Parameters
    ----------
    effect : ndarray (G,)
        Posterior means of the effect.
    value : ndarray (G,)
        Values of the parameter, drawn as logs.
    trend : ndarray (2, b)
        Medians of effect and value in bins of equally many responses.
    shared : float or None
        Median of the prior that responses share; of dispersions of counts its limit at high levels.
    labels : tuple of str
        What effect and parameter are called.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> from cavity.plot import ParameterTrendDisplay
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.poisson(rng.gamma(3.0, np.exp(rng.normal(2.0, 1.0, 40)) / 3.0, size=(30, 40)))
    >>> posterior = cavity.GLM("negative-binomial", intercept=True).fit_many(rng.normal(size=(30, 1)), Y)
    >>> display = ParameterTrendDisplay.from_posterior(posterior)
    >>> display.labels, display.trend.shape
    (('intercept', 'dispersion'), (2, 4))
    """

    effect: FloatArray
    value: FloatArray
    trend: FloatArray
    shared: float | None
    labels: tuple[str, str]

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        parameter: str | None = None,
        over: Any = None,
        *,
        ax: Any = None,
        title: str | None = None,
    ) -> ParameterTrendDisplay:
        """Draw a parameter of all responses.

        Parameters
        ----------
        posterior : ManyPosterior
            A fit of many responses.
        parameter : str, optional
            One of `ManyPosterior.parameter_names`; by default the first.
        over : str or dict, optional
            The effect, as `ManyPosterior.table` takes it; by default the first coefficient, which is the intercept if
            there is one.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        ParameterTrendDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For other posteriors, those that have learnt nothing, and combinations that are not linear.
        """
        if not hasattr(posterior, "parameter_names") or not hasattr(posterior, "table"):
            raise posterior_error(posterior, "a ManyPosterior")
        if not posterior.parameter_names:
            raise arrays.error_of("posterior", "must have parameters that were learnt by response, got none")
        first = posterior.parameter_names[0]
        parameter = arrays.check_choice(
            first if parameter is None else parameter, "parameter", posterior.parameter_names
        )
        over = posterior.coefficient_names[0] if over is None else over
        columns, shared = posterior.table(over).columns, posterior.shared.get(f"median({parameter})")
        good = np.isfinite(columns["mean"]) & (columns[parameter] > 0)
        effect, value = columns["mean"][good], columns[parameter][good]
        return cls(
            effect=effect,
            value=value,
            trend=find_trend(effect, value),
            shared=None if shared is None else float(shared),
            labels=(name_combination(list_combinations(over)[0]), parameter),
        ).plot(ax=ax, title=title)

    def _draw(self, axes):
        axes.plot(self.effect, self.value, "o", ms=3, alpha=0.4, mew=0, color=SIGNAL_COLOR, label="responses")
        axes.plot(*self.trend, color="black", lw=1.5, label="medians")
        if self.shared is not None:
            axes.axhline(self.shared, color="gray", lw=1.0, ls="--", label="shared median, or its limit")
        axes.set(yscale="log", xlabel=f"posterior mean of {self.labels[0]}", ylabel=self.labels[1])
        add_legend(axes)


def find_trend(effect, value):
    """Return medians of effects and values in bins of equally many responses, (2, b), in the order of effects."""
    order = np.argsort(effect, kind="stable")
    bins = np.array_split(order, int(np.clip(len(order) // MIN_BIN_RESPONSES, 1, MAX_BINS)))
    return np.array([[np.median(numbers[part]) for part in bins if part.size] for numbers in (effect, value)])
