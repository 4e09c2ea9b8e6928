"""The method of `MixedGLM` that fits many responses of one design."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from cavity.base.public_objects import ArrayLike, Data
from cavity.jobs.job import Event, Job

if TYPE_CHECKING:
    from cavity.models.many.posterior import ManyPosterior


class ManyMixedResponses:
    """Method of mixed models that fits many responses."""

    __slots__ = ()

    def fit_many(
        self,
        X: Data,
        Y: Any = None,
        *,
        groups: Any = None,
        names: Sequence[str] | None = None,
        trials: Any = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        missing: Literal["raise", "drop"] = "raise",
        share: str | tuple[str, ...] | None = None,
        damping: float = 1.0,
        power: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-8,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> ManyPosterior:
        """Fit this model to each of many responses with the same rows X, as genes, items or sensors are.

        Parameters
        ----------
        X : array_like (N, D), data frame, dict of columns, path, or AnnData
            Rows of the design. With a formula, which begins with "~" then, a table with its columns; an object with
            ``obs``, ``var`` and ``X`` has rows and responses.
        Y : array_like (N, G), sparse matrix, data frame, path, zarr or dask array
            A column of observations for each response, read block by block.
        groups : dict of columns (N,), data frame, or one column, optional
            Labels of the groups by their names; by default columns of X, which are then no features.
        names : sequence of str, optional
            Names of the responses; by default those of the columns of Y, or y1, y2, ...
        trials : array_like (N,) or (N, G), optional
            For binomial and beta-binomial responses: the numbers of trials, of which Y has the successes.
        offset : array_like (N,) or (N, G), or str, optional
            Known part of f.
        exposure : array_like (N,) or (N, G), or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value of a response, nan: refuse that response, naming the first row in
            `status`, or leave them out of its fit only. Rows of X, offsets and weights have values in either case.
        share : str or tuple of str, optional
            What is shrunk across responses: "dispersion", or other parameters of the likelihood that are learnt, get a
            log-normal prior, named coefficients a factor on their prior standard deviations, found from all responses.
        damping : float in (0, 1], default 1.0
            Largest fraction of each site change that is made; it is adapted downwards while changes do not fall.
        power : float in [1e-6, 1], default 1.0
            Exponent of power EP; 1 is EP.
        max_iter : int, default 200
            Most sweeps.
        tol : float, default 1e-8
            Stopping rule, see `cavity.GLM.fit`.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what
            is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.
        checkpoint : str or path-like, optional
            File that keeps how far the fit is: killed, it goes on from there when it is called again with the same data
            and options, and ends in the same bits. The file stays when the fit is done.
        checkpoint_every : float, default 60.0
            Seconds from one writing of it to the next; 0 writes it after each pass or step.

        Returns
        -------
        ManyPosterior
            Means and covariances of all responses, tables of an effect, and posteriors one by one.

        Raises
        ------
        ValueError, TypeError
            For a bad design or bad options, before any work.
        MemoryError
            If the covariances of all responses do not fit into memory.

        Warns
        -----
        ConvergenceWarning
            If responses have no converged fit: not of the likelihood, constant, out of the range of float64, without a
            maximum of the evidence, or not at rest. `status` says which.
        SettingsWarning
            If the design has not full rank, naming columns.

        Notes
        -----
        Terms have one column each, as ``(1 | donor)`` and ``(0 + x | donor)`` have; levels of all terms are columns of
        a dense design, so that time grows with the cube of their number. Variances that are not given are learnt by
        response, as parameters of the likelihood are, up to slopes of 1e-9 nats. A pass is a block of
        responses. Rows that are equal in all columns, groups and offsets share a site, as in `fit`.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> donor, treated = np.repeat(np.arange(12), 5), np.repeat([0.0, 1.0], 30)
        >>> f = 1.0 + np.outer(treated, [0.0, 1.0]) + rng.normal(0, 0.5, size=(12, 2))[donor]
        >>> table = {"donor": donor, "treated": treated}
        >>> model = cavity.MixedGLM("~ treated + (1 | donor)", "poisson")
        >>> posteriors = model.fit_many(table, rng.poisson(np.exp(f)), names=["a", "b"])
        >>> posteriors.parameter_names, posteriors.converged.tolist()
        (('sd(intercept | donor)',), [True, True])
        """
        from cavity.models.mixed.many import fit_many  # takes a while to load

        columns = {"trials": trials, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        options = {"damping": damping, "power": power, "max_iter": max_iter, "tol": tol, "n_threads": n_threads}
        return fit_many(
            self,
            self._fixed_effects,
            self._settings_of,
            X,
            Y,
            groups,
            names,
            columns,
            missing,
            share,
            options | {"job": Job.checked(callback, progress, checkpoint, checkpoint_every)},
        )
