"""Predictions of rows: observed over predicted targets, and prequential log densities of streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.plot.bands import compute_band, open_labelled_rows
from cavity.plot.calibration import check_pair, loo_or_none
from cavity.plot.display import COLOR_CYCLE, SIGNAL_COLOR, Display, MaxNLocator, add_legend, open_rows, posterior_error
from cavity.sources.dataset import Dataset


@dataclass(eq=False, repr=False, kw_only=True)
class PredictionDisplay(Display):
    """Observed over predicted targets, row by row; of classes their numbers.

    Parameters
    ----------
    predicted, y : ndarray (N,)
        Expected and observed target of each row.
    log_density : ndarray (N,) or None
        The color of each: leave-one-out log densities, if they are known.
    target : str
        Label of y.
    classes : tuple of str, default ()
        Labels of the classes, whose numbers are drawn.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> from cavity.plot import PredictionDisplay
    >>> PredictionDisplay.from_predictions([1.0, 2.0, 4.0], [1.2, 1.9, 3.5]).ax_.get_ylabel()
    'observed y'
    """

    size: ClassVar[tuple[float, float]] = (6.0, 4.8)
    predicted: FloatArray
    y: FloatArray
    log_density: FloatArray | None = None
    target: str = "y"
    classes: tuple[str, ...] = ()

    @classmethod
    def from_posterior(
        cls,
        posterior: Any,
        X: Any = None,
        y: ArrayLike | str | None = None,
        *,
        offset: ArrayLike | None = None,
        target: str | None = None,
        ax: Any = None,
        title: str | None = None,
    ) -> PredictionDisplay:
        """Draw observed over expected targets.

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
        target : str, optional
            Label of y, with its unit; by default its name in the fit.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        PredictionDisplay
            The display, drawn, colored by leave-one-out log densities if these are the rows of the fit.

        Raises
        ------
        ValueError, TypeError
            For a posterior that does not predict rows of columns alone, and for rows that do not fit.
        """
        X, y, labels = open_labelled_rows(posterior, X, y, target=target, needs=True)
        expected = compute_band(posterior._likelihood, *posterior.predict(X, offset=offset), 0.95)[0]
        density = loo_or_none(posterior)
        density = density if density is not None and len(density) == len(y) else None
        names = dict(target=labels.target, classes=labels.classes)
        return cls(predicted=expected, y=y, log_density=density, **names).plot(ax=ax, title=title)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        predicted: ArrayLike,
        log_density: ArrayLike | None = None,
        *,
        target: str = "y",
        ax: Any = None,
        title: str | None = None,
    ) -> PredictionDisplay:
        """Draw observed over predicted targets.

        Parameters
        ----------
        y, predicted : array_like (N,)
            Observed and predicted numbers.
        log_density : array_like (N,), optional
            Log density of each row, its color.
        target : str, default "y"
            Label of y.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        PredictionDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For arrays of different lengths.
        """
        y, predicted = check_pair(y, predicted, "predicted")
        if log_density is not None:
            y, log_density = check_pair(y, log_density, "log_density")
        return cls(predicted=predicted, y=y, log_density=log_density, target=target).plot(ax=ax, title=title)

    def _draw(self, axes):
        density = self.log_density
        is_finite = np.isfinite(self.predicted) & np.isfinite(self.y) & (density is None or np.isfinite(density))
        predicted, y, look = self.predicted[is_finite], self.y[is_finite], dict(color=SIGNAL_COLOR)
        if density is not None:
            order = np.argsort(-density[is_finite], kind="stable")  # the surprising ones on top
            predicted, y, look = predicted[order], y[order], dict(c=density[is_finite][order], cmap="viridis_r")
        size, alpha = (16, 0.8) if len(y) < 1500 else (6, 0.4)
        points = axes.scatter(predicted, y, s=size, alpha=alpha, linewidths=0, rasterized=len(y) > 20000, **look)
        ends = [min(predicted.min(), y.min()), max(predicted.max(), y.max())]
        axes.plot(ends, ends, color="black", lw=0.8, ls=":")
        axes.set(xlabel=f"predicted {self.target}", ylabel=f"observed {self.target}")
        if self.classes:
            axes.set_xticks(range(len(self.classes)), self.classes)
            axes.set_yticks(range(len(self.classes)), self.classes)
        if density is not None:
            axes.get_figure().colorbar(points, ax=axes, label="leave-one-out log density [nats]")


@dataclass(eq=False, repr=False, kw_only=True)
class PrequentialDisplay(Display):
    """Prequential evaluation of a stream: the mean log density of all rows so far, each predicted before it is used.

    Parameters
    ----------
    log_density : dict of ndarray (N,)
        By the names of models: log density of each row, given the rows before its batch.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the plot.

    Examples
    --------
    >>> from cavity.plot import PrequentialDisplay
    >>> display = PrequentialDisplay.from_predictions({"constant": [-1.0, -1.2, -0.8], "linear": [-1.1, -0.9, -0.6]})
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['constant', 'linear']
    """

    log_density: dict[str, FloatArray]

    @classmethod
    def from_posterior(
        cls, posterior: Any, X: Any, y: ArrayLike | str, *, batch: int = 100, ax: Any = None, title: str | None = None
    ) -> PrequentialDisplay:
        """Predict rows batch by batch, updating the posterior with each, and draw the mean log density.

        Parameters
        ----------
        posterior : posterior with log_density and update, or dict of them by names
            The state before the first row, for example a `cavity.StreamingGPState`; it is not changed.
        X : array_like (N, D) or data frame
            Rows in their order.
        y : array_like (N,) or str
            Their observations, or the name of their column of X.
        batch : int, default 100
            Rows of a batch.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        PrequentialDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            For rows that do not fit, and for a posterior that cannot be updated.
        """
        batch = arrays.check_integer(batch, "batch", low=1)
        several = posterior if isinstance(posterior, Mapping) else {"": posterior}
        densities = {name: predict_prequentially(state, X, y, batch) for name, state in several.items()}
        return cls.from_predictions(densities, ax=ax, title=title)

    @classmethod
    def from_predictions(
        cls, log_density: Mapping[str, ArrayLike], *, ax: Any = None, title: str | None = None
    ) -> PrequentialDisplay:
        """Draw the running mean of the log densities of streams.

        Parameters
        ----------
        log_density : dict of array_like (N,)
            By the names of models: log density of each row, computed before the row was used.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            Title of the plot.

        Returns
        -------
        PrequentialDisplay
            The display, drawn.

        Raises
        ------
        ValueError, TypeError
            If `log_density` is no dict of vectors of numbers.
        """
        if not isinstance(log_density, Mapping) or not log_density:
            raise arrays.error_of("log_density", "must be a dict of log densities by the names of models", TypeError)
        densities = {
            str(name): arrays.check_finite_array(values, f"log_density[{name!r}]", ndim=(1,))
            for name, values in log_density.items()
        }
        return cls(log_density=densities).plot(ax=ax, title=title)

    @property
    def running_mean(self) -> dict[str, FloatArray]:
        """The curves: means of the log densities of all rows up to each."""
        return {name: np.cumsum(values) / np.arange(1, len(values) + 1) for name, values in self.log_density.items()}

    def _draw(self, axes):
        looks = zip(COLOR_CYCLE * len(self.log_density), ("-", "--", "-.", ":") * len(self.log_density), strict=False)
        for (name, mean), (color, style) in zip(self.running_mean.items(), looks, strict=False):
            axes.plot(np.arange(1, len(mean) + 1), mean, style, color=color, lw=1.5, label=name or None)
        later = np.concatenate([mean[len(mean) // 20 :] for mean in self.running_mean.values()])
        room = 0.08 * np.ptp(later) or 1.0
        axes.set_ylim(later.min() - room, later.max() + room)  # without the first few rows, whose means vary most
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.set(xlabel="rows so far", ylabel="mean log density of rows so far [nats]")
        add_legend(axes)


def predict_prequentially(state, X, y, batch):
    """Return the log density of each row, given the state and the rows before its batch."""
    if not (hasattr(state, "update") and hasattr(state, "_likelihood")):
        raise posterior_error(state, "a posterior that predicts observations and can be updated")
    rows, _ = open_rows(state, X, y, needs=True)
    y = np.asarray(Dataset.open(X, {"y": y}, state.columns, state.roles).column("y"))
    state, densities = state.copy() if hasattr(state, "copy") else state, []
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch], y[start : start + batch]
        densities.append(state.log_density(*part))
        state = state.update(*part)
    return np.concatenate(densities)
