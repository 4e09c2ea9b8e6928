"""How many components: fits over a range of K, compared by their absolute ELBO.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.4.
.. [CB] Adrian Corduneanu and Christopher M. Bishop, "Variational Bayesian model selection for mixture distributions",
   Artificial Intelligence and Statistics, 2001.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.base import arrays
from cavity.base.errors import NotPositiveDefiniteError
from cavity.base.public_objects import Data, FloatArray, Frozen
from cavity.base.results import draw, freeze_arrays
from cavity.jobs.job import Event, Job, Run
from cavity.models.mixture.component_moves import OCCUPIED_ROWS
from cavity.models.mixture.model import GaussianMixture
from cavity.sources.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cavity.models.mixture.posterior import GaussianMixturePosterior

COMPONENTS_TRIED = tuple(range(1, 11))


def select_components(
    model: GaussianMixture,
    X: Data,
    n_components: Iterable[int] = COMPONENTS_TRIED,
    *,
    callback: Callable[[Event], object] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    **fit_options: Any,
) -> Selection:
    """Fit a Gaussian mixture for several numbers of components and compare their ELBOs.

    Parameters
    ----------
    model : GaussianMixture
        The model; its own `n_components` does not matter.
    X : array_like (N, D), data frame, path, list of paths, or Source
        The data, as for `GaussianMixture.fit`.
    n_components : iterable of int, default range(1, 11)
        The numbers K to try, each once.
    callback : callable, optional
        Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what is
        known.
    progress : bool, default False
        Whether to show progress on stderr: a bar where tqdm is installed, else lines.
    checkpoint : str or path-like, optional
        File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data and
        options, and ends in the same bits. The file stays when the fit is done.
    checkpoint_every : float, default 60.0
        Seconds from one writing of it to the next; 0 writes it after each pass or step.
    **fit_options
        As for `GaussianMixture.fit`, the same for all K; not `initial_means`.

    Returns
    -------
    Selection
        The posteriors with their ELBOs; `best` is the one with the largest.

    Raises
    ------
    ValueError, TypeError
        For bad data, options or numbers of components, before the first fit.
    ArithmeticError, NotPositiveDefiniteError
        If all fits fail; one that fails among others is reported in the `Selection`.

    Warns
    -----
    ConvergenceWarning
        For each fit that does not meet its stopping rule; it takes part all the same.

    Notes
    -----
    The ELBO is a lower bound on log p(X | K) with all constants, so it compares K, and covariance types and priors as
    well. A component has to explain its points better than the others could by more than its own parameters cost: the
    prior probability of the region in which the data leave them [CB]_.

    * All K see the same priors: those that default to the data (`GaussianMixture.with_defaults`) are computed once.
      Only `weight_concentration_prior` is 1/K for each K unless it is given.
    * A posterior of K different components has K! equal modes, one for each labelling, of which q describes one. A
      bound on log p(X | K) that takes all of them into account is larger by log K! if they are well apart ([B]_,
      section 10.2.4). It is not added here: components that are empty, or cover each other, cannot be distinguished.
    * Each ELBO is that of a local optimum. ``n_init`` tries more starts.

    References
    ----------
    .. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.4.
    .. [CB] Adrian Corduneanu and Christopher M. Bishop, "Variational Bayesian model selection for mixture
       distributions", Artificial Intelligence and Statistics, 2001.

    Examples
    --------
    >>> import cavity
    >>> import numpy as np
    >>> columns, about = cavity.data.table("faithful")
    >>> X = np.column_stack([columns["eruptions"], columns["waiting"]])
    >>> selection = cavity.select_components(cavity.GaussianMixture(1), X, range(1, 5))
    >>> len(selection.best.weights), selection.occupied.tolist()
    (2, [1, 2, 2, 2])
    """
    if not isinstance(model, GaussianMixture):
        raise TypeError(f"model must be a GaussianMixture, got {type(model).__name__}")
    candidates = _check_candidates(n_components)
    if fit_options.get("initial_means") is not None:
        raise ValueError("initial_means would fit one number of components only; leave them out")
    job = Job.checked(callback, progress, checkpoint, checkpoint_every)
    run = Run(n_threads=fit_options.pop("n_threads", None), job=job)
    dataset = Dataset.open(X, remote=True)  # once for all
    posteriors, seconds, failures = [], [], []
    with run.open(model, dataset.sources(), n_components=candidates, **fit_options):
        options = fit_options | {"n_threads": run.n_threads}
        full_model = model.with_defaults(dataset.X, sample_weight=options.get("sample_weight"), n_threads=run.n_threads)
        for k in candidates:
            started = time.perf_counter()
            try:
                one = replace(full_model, n_components=k, weight_concentration_prior=model.weight_concentration_prior)
                posterior, failure = one.fit(dataset.X, **options, callback=run.job.stage(f"K = {k}")), None
            except (ArithmeticError, NotPositiveDefiniteError) as error:
                posterior, failure = None, error
            posteriors.append(posterior)
            failures.append(failure)
            seconds.append(time.perf_counter() - started)
            if run.job.stopped:
                break
    if all(posterior is None for posterior in posteriors):
        raise failures[0]
    return Selection(
        n_components=np.array(candidates[: len(posteriors)]),
        elbo=np.array([np.nan if posterior is None else posterior.elbo for posterior in posteriors]),
        occupied=np.array([0 if fit is None else np.count_nonzero(fit.counts > OCCUPIED_ROWS) for fit in posteriors]),
        posteriors=tuple(posteriors),
        seconds=np.array(seconds),
        failures=tuple("" if error is None else str(error) for error in failures),
    )


def _check_candidates(n_components):
    """Return the numbers of components to try, as a list."""
    try:
        candidates = list(n_components)
    except TypeError:
        raise TypeError(
            f"n_components must be several numbers, for example range(1, 11), got {n_components!r}"
        ) from None
    candidates = [arrays.check_integer(k, "n_components", low=1) for k in candidates]
    if not candidates or len(set(candidates)) < len(candidates):
        raise ValueError(f"n_components must hold at least one number, and each once, got {candidates}")
    return candidates


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Selection(Frozen):
    """Fits of several numbers of components, see `select_components`.

    Attributes
    ----------
    n_components : ndarray of int (n,)
        The numbers K that were tried.
    elbo : ndarray (n,)
        Their evidence lower bounds, in nats, with all constants; nan where the fit failed.
    occupied : ndarray of int (n,)
        How many of the components have more than half a point, 0 where the fit failed.
    posteriors : tuple of GaussianMixturePosterior or None
        The fits.
    seconds : ndarray (n,)
        How long they took.
    failures : tuple of str
        Why a fit failed, "" for those that did not.
    """

    n_components: FloatArray
    elbo: FloatArray
    occupied: FloatArray
    posteriors: tuple[Any, ...]
    seconds: FloatArray
    failures: tuple[Any, ...]

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def best(self) -> GaussianMixturePosterior:
        """The posterior with the largest ELBO."""
        return self.posteriors[int(np.nanargmax(self.elbo))]

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Draw the ELBO over the number of components; needs the plot extra.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure of pyplot.
        title : str, optional
            What the data are.

        Returns
        -------
        matplotlib.axes.Axes
            The panel; ``ax.figure.savefig(path)`` writes it.
        """
        return draw(self, ax=ax, title=title)

    def figure(self) -> Figure:
        """Return the figure of `plot`.

        Returns
        -------
        matplotlib.figure.Figure
            A new one.
        """
        return self.plot().get_figure()

    def rows(self) -> list[str]:
        """Return the lines of a table: a header, then one for each number of components, the best marked.

        Returns
        -------
        list of str
            K, ELBO, occupied components, passes over the data, seconds, and what went wrong.
        """
        lines = [f"{'K':>4} {'ELBO':>16} {'occupied':>9} {'passes':>7} {'seconds':>8}"]
        for i, posterior in enumerate(self.posteriors):
            if posterior is None:
                lines.append(f"{self.n_components[i]:>4} failed: {self.failures[i]}")
                continue
            note = "  <- largest ELBO" if posterior is self.best else ""
            note += "" if posterior.converged else f"  ({posterior.status})"
            size = f"{self.n_components[i]:>4} {posterior.elbo:>16.6f} {self.occupied[i]:>9}"
            lines.append(f"{size} {posterior.n_iter:>7} {self.seconds[i]:>8.3g}{note}")
        return lines

    def __repr__(self) -> str:
        return "\n".join([f"Selection: {self.best.n_samples:.15g} points", *self.rows()])
