"""Checks of a model: residuals by normal quantiles and by covariates, and frequencies of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import FloatArray
from cavity.plot.display import CLUTTER_COLOR, SIGNAL_COLOR, Display, MaxNLocator, add_legend, split_into_bins

N_CURVE_BINS = 12  # of equal counts, whose mean residuals are joined
MIN_LOG_RATIO = 20.0  # of the largest and the median of positive x, from which on the axis is logarithmic
MAX_POINTS = 5000  # drawn, at equal distances in the order of the rows


@dataclass(eq=False, repr=False, kw_only=True)
class QuantileDisplay(Display):
    """Quantile residuals over the normal quantiles that are expected of them, with a band of two standard deviations.

    Points lie on the diagonal if the model is right; a steeper line means that observations vary more than predicted,
    ends that bend away from it heavy tails.

    Parameters
    ----------
    residuals : ndarray (n,)
        Quantile residuals, of `residuals` of a posterior.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> from cavity.plot import QuantileDisplay
    >>> QuantileDisplay.from_residuals([0.3, -1.2, 0.8]).residuals.tolist()
    [-1.2, 0.3, 0.8]
    """

    residuals: FloatArray

    @classmethod
    def from_residuals(cls, residuals: Any, *, ax: Any = None, title: str | None = None) -> QuantileDisplay:
        """Draw quantile residuals.

        Parameters
        ----------
        residuals : array_like (n,)
            The residuals.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        QuantileDisplay
            The display, drawn.
        """
        residuals = arrays.check_finite_array(residuals, "residuals", ndim=(1,))
        return cls(residuals=np.sort(residuals)).plot(ax=ax, title=title)

    def _draw(self, axes):
        n = len(self.residuals)
        p = (np.arange(n) + 0.5) / n
        z = special.ndtri(p)
        noise = (
            2.0 * np.sqrt(p * (1.0 - p) / n) / (np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
        )  # of an order statistic
        axes.fill_between(z, z - noise, z + noise, color="gray", alpha=0.25, lw=0, label="± 2 sd of chance")
        axes.plot(z, z, color="black", lw=0.8, ls=":")
        axes.plot(z, self.residuals, ".", color=SIGNAL_COLOR, ms=4)
        axes.set(xlabel="normal quantile", ylabel="quantile residual")
        add_legend(axes)


@dataclass(eq=False, repr=False, kw_only=True)
class ResidualDisplay(Display):
    """Quantile residuals over fitted values, or over a covariate, with the means of neighbouring rows.

    Parameters
    ----------
    x : ndarray (n,)
        The fitted values, or the covariate.
    residuals : ndarray (n,)
        Quantile residuals.
    label : str
        Label of x.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> from cavity.plot import ResidualDisplay
    >>> ResidualDisplay.from_residuals([1.0, 2.0], [0.3, -0.1], label="age").label
    'age'
    """

    x: FloatArray
    residuals: FloatArray
    label: str

    @classmethod
    def from_residuals(
        cls, x: Any, residuals: Any, *, label: str = "fitted", ax: Any = None, title: str | None = None
    ) -> ResidualDisplay:
        """Draw quantile residuals.

        Parameters
        ----------
        x : array_like (n,)
            The fitted values, or a covariate.
        residuals : array_like (n,)
            The residuals.
        label : str, default "fitted"
            Label of x.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        ResidualDisplay
            The display, drawn.
        """
        x, residuals = (
            arrays.check_finite_array(v, name, ndim=(1,)) for v, name in ((x, "x"), (residuals, "residuals"))
        )
        if len(x) != len(residuals):
            raise arrays.error_of("residuals", f"must have the {len(x)} rows of x, got {len(residuals)}")
        return cls(x=x, residuals=residuals, label=label).plot(ax=ax, title=title)

    def _draw(self, axes):
        step = -(-len(self.x) // MAX_POINTS)
        axes.axhline(0.0, color="black", lw=0.8, ls=":")
        axes.plot(self.x[::step], self.residuals[::step], ".", color=SIGNAL_COLOR, ms=4, alpha=0.6)
        values, codes = np.unique(self.x, return_inverse=True)
        if len(values) <= N_CURVE_BINS:
            bins = [np.flatnonzero(codes == k) for k in range(len(values))]
        else:
            bins = split_into_bins(self.x, min(N_CURVE_BINS, max(1, len(self.x) // 5)))
        if values[0] > 0 and values[-1] > MIN_LOG_RATIO * np.median(self.x):
            axes.set_xscale("log")
        means = [(self.x[rows].mean(), self.residuals[rows].mean(), 2.0 / np.sqrt(len(rows))) for rows in bins]
        at, mean, noise = np.array(means).T
        axes.errorbar(at, mean, noise, color=CLUTTER_COLOR, marker="o", ms=4, lw=1.2, label="mean of a bin, ± 2 sd")
        axes.set(xlabel=self.label, ylabel="quantile residual")
        add_legend(axes)


@dataclass(eq=False, repr=False, kw_only=True)
class RootogramDisplay(Display):
    """Frequencies of counts: bars of what was observed that hang from what is expected, on a scale of square roots.

    A bar that ends above 0 stands for a count that is rarer than expected, one that ends below for one more frequent.

    Parameters
    ----------
    number, observed, expected : ndarray (k,)
        Counts 0, 1, ..., and their frequencies.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    References
    ----------
    .. [KZ] C. Kleiber and A. Zeileis, "Visualizing count data regressions using rootograms", The American Statistician
       70, 2016.

    Examples
    --------
    >>> from cavity.plot import RootogramDisplay
    >>> RootogramDisplay.from_frequencies([0, 1], [5, 3], [4.2, 3.9]).observed.tolist()
    [5.0, 3.0]
    """

    number: FloatArray
    observed: FloatArray
    expected: FloatArray

    @classmethod
    def from_frequencies(
        cls, number: Any, observed: Any, expected: Any, *, ax: Any = None, title: str | None = None
    ) -> RootogramDisplay:
        """Draw frequencies, as `ModelCheck.counts` has them.

        Parameters
        ----------
        number, observed, expected : array_like (k,)
            Counts, and their frequencies.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        RootogramDisplay
            The display, drawn.
        """
        values = {"number": number, "observed": observed, "expected": expected}
        columns = {name: arrays.check_finite_array(value, name, ndim=(1,)) for name, value in values.items()}
        return cls(**columns).plot(ax=ax, title=title)

    def _draw(self, axes):
        top, height = np.sqrt(self.expected), np.sqrt(self.observed)
        axes.bar(self.number, height, 0.8, bottom=top - height, color=SIGNAL_COLOR, alpha=0.6, label="observed")
        axes.plot(self.number, top, "o-", color=CLUTTER_COLOR, ms=4, lw=1.2, label="expected")
        axes.axhline(0.0, color="black", lw=0.8)
        axes.axhspan(
            -1.0, 1.0, color="gray", alpha=0.2, lw=0, label="± 2 sd of chance"
        )  # sd of a root of a count is 1/2
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="count", ylabel="square root of frequency")
        add_legend(axes)
