"""Calibration: whether predicted probabilities agree with observed frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.models.predicted_rows import PredictedRows, find_loo_moments
from cavity.plot.display import SIGNAL_COLOR, AxisLabels, Display, Names, add_legend, encode_observed, open_rows

COUNT_STRIP_HEIGHT = 0.2  # height of the strip below a reliability diagram that shows how many rows there are


@dataclass(eq=False, repr=False, kw_only=True)
class CalibrationDisplay(Display):
    """A reliability diagram: how often a class was true among rows of similar probability.

    Parameters
    ----------
    probability, share : ndarray (n,)
        Of every bin with rows: the mean predicted probability, and the share of rows for which it was true.
    count : ndarray (n,)
        The rows in it.
    low, high : ndarray (n,)
        Ends of two standard deviations of chance around `probability`, if the probabilities are right.
    label : str
        Label of the predicted event.
    method : str
        How the rows were predicted: "leave-one-out" or "predicted".

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> from cavity.plot import CalibrationDisplay
    >>> display = CalibrationDisplay.from_predictions([0, 1, 1, 0], [0.1, 0.8, 0.85, 0.3], n_bins=2)
    >>> display.count.tolist(), display.share.tolist()
    ([2, 2], [0.0, 1.0])
    """

    probability: FloatArray
    share: FloatArray
    count: Any
    low: FloatArray
    high: FloatArray
    label: str = "the event"
    method: str = ""

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        X: Any = None,
        y: ArrayLike | str | None = None,
        *,
        offset: ArrayLike | None = None,
        n_bins: int = 10,
        target: str | None = None,
        classes: Names = None,
        ax: Any = None,
        title: str | None = None,
    ) -> CalibrationDisplay:
        """Compare predicted probabilities with observed classes: the second of two classes, or all of several together.

        Parameters
        ----------
        posterior : posterior of a classification
            Of two classes, or more in an order.
        X : array_like (N, D) or data frame, optional
            New rows. Without them each row of the fit is predicted from all others (leave-one-out, two classes only).
        y : array_like (N,) or str, optional
            The classes of the rows, as in the fit, or the name of their column of X. A Gaussian process has those of
            its own rows.
        offset : float or array_like (N,), optional
            Known part of f; required where the fit had some, 0 for none.
        n_bins : int, default 10
            Bins of the probability.
        target : str, optional
            Label of y, with its unit; by default its name in the fit.
        classes : sequence of str, optional
            Labels of the classes; by default those of the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        CalibrationDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a posterior without classes, rows that do not fit, or a fit without leave-one-out.
        """
        if getattr(posterior, "_likelihood", None) is None or not posterior._likelihood.n_classes:
            raise arrays.error_of("posterior", "must be of a target with classes; PITDisplay is for numbers", TypeError)
        labels = AxisLabels.of(posterior, 0, (), target, classes)
        count, method = len(labels.classes), "predicted"
        if X is None:
            if count > 2:
                raise arrays.error_of("X", "must be given: leave-one-out probabilities are drawn of two classes only")
            if y is None and not hasattr(posterior, "_rows"):
                raise arrays.error_of("y", "must be given: the posterior keeps no observations")
            y = posterior._rows.y if y is None else y
            y, density, method = encode_observed(posterior, y), posterior.loo_log_density, "leave-one-out"
            if len(y) != len(density):
                raise arrays.error_of("y", f"must be of the {len(density)} rows of the fit, got {len(y)}")
            probability = np.where(y == 1, np.exp(density), -np.expm1(density))
        else:
            X, y = open_rows(posterior, X, y, needs=True)
            probability = posterior.predict_proba(X, offset=offset)
            if count == 2:
                probability = probability[:, 1]
            else:
                y, probability = (y[:, None] == np.arange(count)).ravel(), probability.ravel()
        label = f"{labels.target} = {labels.classes[1]}" if count == 2 else f"a class of {labels.target}"
        return cls._of(y, probability, n_bins, label, method).plot(ax=ax, title=title)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        probability: ArrayLike,
        *,
        n_bins: int = 10,
        label: str = "y = 1",
        ax: Any = None,
        title: str | None = None,
    ) -> CalibrationDisplay:
        """Compare predicted probabilities with observed events.

        Parameters
        ----------
        y : array_like (N,)
            1 where the event was observed, else 0; or booleans.
        probability : array_like (N,)
            The probabilities that were predicted of it; rows where they are nan are left out.
        n_bins : int, default 10
            Bins of the probability.
        label : str, default "y = 1"
            Label of the predicted event.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        CalibrationDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For numbers that are no probabilities, and for y other than 0 and 1.
        """
        y, probability = check_pair(y, probability, "probability")
        if not np.all((y == 0) | (y == 1)):
            raise arrays.error_of("y", "must be 1 where the event was observed and 0 elsewhere")
        if np.nanmin(probability) < 0 or np.nanmax(probability) > 1:
            raise arrays.error_of("probability", "must be between 0 and 1")
        return cls._of(y, probability, n_bins, label, "predicted").plot(ax=ax, title=title)

    @classmethod
    def _of(cls, y, probability, n_bins, label, method):
        n_bins, is_finite = arrays.check_integer(n_bins, "n_bins", low=1), np.isfinite(probability)
        probability, y = probability[is_finite], y[is_finite]
        index = np.minimum((probability * n_bins).astype(int), n_bins - 1)
        count = np.bincount(index, minlength=n_bins)
        full = count > 0
        if not full.any():
            raise arrays.error_of("probability", "must hold at least one number")

        def mean(values):
            return np.bincount(index, values, n_bins)[full] / count[full]

        expected, noise = mean(probability), np.sqrt(mean(probability * (1 - probability)) / count[full])
        ends = np.clip([expected - 2 * noise, expected + 2 * noise], 0, 1)
        bins = dict(probability=expected, share=mean(y), count=count[full], low=ends[0], high=ends[1])
        return cls(**bins, label=label, method=method)

    def _draw(self, axes):
        axes.plot([0, 1], [0, 1], color="gray", lw=0.8, ls=":")
        bars, foot = COUNT_STRIP_HEIGHT / 2 * self.count / self.count.max(), -0.04 - COUNT_STRIP_HEIGHT
        axes.bar(self.probability, bars, 0.03, bottom=foot, color="gray", alpha=0.45, label="number of rows")
        for position, height, count in zip(self.probability, bars, self.count, strict=True):
            axes.text(position, foot + height, str(count), fontsize="x-small", color="0.3", ha="center", va="bottom")
        label = "± 2 sd of chance"
        axes.vlines(self.probability, self.low, self.high, color=SIGNAL_COLOR, alpha=0.3, lw=6, label=label)
        axes.plot(self.probability, self.share, "o-", color=SIGNAL_COLOR, lw=0.8, label="share of rows")
        axes.set(xlim=(-0.03, 1.03), ylim=(foot, 1.04), yticks=np.linspace(0, 1, 6))
        axes.set(xlabel=f"{self.method} probability of {self.label}", ylabel="observed share of rows")
        add_legend(axes)


@dataclass(eq=False, repr=False, kw_only=True)
class PITDisplay(Display):
    """A histogram of probability integral transforms: the predicted probability of values up to each observation.

    It is flat for calibrated predictions, high at both ends for too narrow ones, high in the middle for too wide ones,
    and high on one side for biased ones.

    Parameters
    ----------
    edges : ndarray (n + 1,)
        Of the bins, from 0 to 1.
    density : ndarray (n,)
        Shares of the rows over the width of the bins; 1 is expected.
    n_rows : int
        How many rows.
    method : str
        How the rows were predicted.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Notes
    -----
    The transform of a count is spread out evenly over an interval of probabilities [CGH]_.

    References
    ----------
    .. [CGH] Claudia Czado, Tilmann Gneiting and Leonhard Held, "Predictive model assessment for count data",
       Biometrics 65, 2009, eq. (2).

    Examples
    --------
    >>> from cavity.plot import PITDisplay
    >>> PITDisplay.from_predictions([0.1, 0.35, 0.6, 0.9], n_bins=2).density.tolist()
    [1.0, 1.0]
    """

    edges: FloatArray
    density: FloatArray
    n_rows: int
    method: str = "predicted"

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        X: Any = None,
        y: ArrayLike | str | None = None,
        *,
        offset: ArrayLike | None = None,
        loo: bool | None = None,
        n_bins: int = 10,
        ax: Any = None,
        title: str | None = None,
    ) -> PITDisplay:
        """Draw the predicted probability of values up to each observation.

        Parameters
        ----------
        posterior : posterior of numbers with predict
            Of a `cavity.GLM`, a regression, a process or a stream.
        X : array_like (N, D) or data frame, optional
            Rows; a Gaussian process has those of its fit.
        y : array_like (N,) or str, optional
            Their observations, or the name of their column of X.
        offset : float or array_like (N,), optional
            Known part of f; required where the fit had some, 0 for none.
        loo : bool, optional
            Whether these are the rows of the fit, each to be predicted from all others; by default where X is left out.
        n_bins : int, default 10
            Bins of the histogram.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        PITDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For a posterior of classes, rows that do not fit, or a fit without leave-one-out.
        """
        likelihood = getattr(posterior, "_likelihood", None)
        if likelihood is None or likelihood.n_classes or likelihood.takes_trials or not hasattr(posterior, "predict"):
            raise arrays.error_of("posterior", "must be of numbers; CalibrationDisplay is for classes", TypeError)
        loo = X is None if loo is None else arrays.check_flag(loo, "loo")
        X, y = open_rows(posterior, X, y, needs=True, encode=lambda posterior, y: likelihood.check(y))
        moments = compute_loo_moments(posterior, y, X, offset) if loo else posterior.predict(X, offset=offset)
        lower, upper = compute_pit(likelihood, y, *moments)
        method = "leave-one-out" if loo else "predicted"
        return cls._of(lower, upper, n_bins, method).plot(ax=ax, title=title)

    @classmethod
    def from_predictions(
        cls, pit: ArrayLike, *, n_bins: int = 10, ax: Any = None, title: str | None = None
    ) -> PITDisplay:
        """Draw the histogram of given transforms.

        Parameters
        ----------
        pit : array_like (N,)
            Probabilities that were predicted for values up to each observation.
        n_bins : int, default 10
            Bins of the histogram.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        PITDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For numbers that are no probabilities.
        """
        pit = arrays.check_finite_array(pit, "pit", ndim=(1,))
        if not len(pit) or pit.min() < 0 or pit.max() > 1:
            raise arrays.error_of("pit", "must hold numbers between 0 and 1")
        return cls._of(pit, pit, n_bins, "predicted").plot(ax=ax, title=title)

    @classmethod
    def _of(cls, lower, upper, n_bins, method):
        edges = np.linspace(0.0, 1.0, arrays.check_integer(n_bins, "n_bins", low=1) + 1)
        width = upper - lower
        with np.errstate(divide="ignore", invalid="ignore"):
            below = np.clip((edges[:, None] - lower) / width, 0.0, 1.0)
        below = np.where(width > 0, below, (edges[:, None] >= lower) & (edges[:, None] > 0))
        share = np.diff(below.mean(axis=1))
        return cls(edges=edges, density=share * (len(edges) - 1), n_rows=len(lower), method=method)

    def _draw(self, axes):
        width = np.diff(self.edges)
        axes.bar(self.edges[:-1], self.density, width, align="edge", color=SIGNAL_COLOR, alpha=0.6, edgecolor="white")
        noise = 2.0 * np.sqrt((1.0 - width[0]) / (width[0] * self.n_rows))
        axes.axhline(1.0, color="black", lw=1.0, ls=":")
        axes.axhspan(max(0.0, 1.0 - noise), 1.0 + noise, color="gray", alpha=0.25, lw=0, label="± 2 sd of chance")
        axes.set(xlim=(0, 1), ylim=(0, 1.15 * max(self.density.max(), 1.0 + noise)), ylabel="density (1: calibrated)")
        axes.set_xlabel(f"{self.method} probability of values up to the observed one")
        add_legend(axes)


def check_pair(y, other, name):
    """Return two arrays of real numbers; ValueError unless they are vectors of one length."""
    y, other = arrays.check_real_array(y, "y"), arrays.check_real_array(other, name)
    if y.ndim != 1 or y.shape != other.shape:
        raise arrays.error_of(name, f"must be a vector like y, of shape {y.shape}, got {other.shape}")
    if not len(y):
        raise arrays.error_of("y", "must hold at least one row")
    return y, other


def loo_or_none(posterior):
    """Return leave-one-out log densities, or None where the fit has none."""
    try:
        return getattr(posterior, "loo_log_density", None)
    except ValueError:  # ADF, stochastic schedule
        return None


def compute_loo_moments(posterior, y, X=None, offset=None):
    """Return the moments of f for each row given all others: the marginal divided by the row's site.

    Raises ValueError where they disagree with the leave-one-out densities of the fit, as with weights of rows.
    """
    density = posterior.loo_log_density
    of_fit = (posterior.mean, posterior.variance) if hasattr(posterior, "X") else None
    mean, variance = of_fit or posterior.predict(X, offset=offset)
    if len(mean) != len(density):
        raise arrays.error_of("X", f"must be the {len(density)} rows of the fit for leave-one-out, got {len(mean)}")
    moments = find_loo_moments(posterior, y, mean, variance)
    if moments is None:
        message = (
            "leave-one-out predictions are drawn for the rows as they were fitted, without weights, offsets or noise"
        )
        raise ValueError(f"{message} of their own; use loo_log_density for others")
    return moments


def compute_pit(likelihood, y, mean, variance):
    """Return the probabilities of values below, and of values up to, each observation; they differ for counts only."""
    return PredictedRows(likelihood, y, mean, variance, True).probabilities_below()


def find_surprising(posterior, level):
    """Return a mask of rows of the fit outside of the central interval predicted from all others; None for classes."""
    likelihood = posterior._likelihood
    if likelihood.n_classes or likelihood.takes_trials or loo_or_none(posterior) is None:
        return None
    try:
        y = posterior._rows.y
        lower, upper = compute_pit(likelihood, y, *compute_loo_moments(posterior, y))
    except (NotImplementedError, ValueError):  # a likelihood without cdf; rows with weights, or noise of their own
        return None
    return (upper < 0.5 - 0.5 * level) | (lower > 0.5 + 0.5 * level)
