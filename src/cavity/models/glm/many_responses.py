"""The method of `GLM` that fits many responses of one design."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from cavity.base.public_objects import ArrayLike, Data
from cavity.jobs.job import Event, Job

if TYPE_CHECKING:
    from cavity.models.many.posterior import ManyPosterior


class ManyResponses:
    """Method of linear models that fit many responses."""

    __slots__ = ()

    def fit_many(
        self,
        X: Data,
        Y: Any = None,
        *,
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
        Each response has the posterior that `fit` gives it, in the same bits whatever the other responses are, unless
        something is shared. Open parameters of the likelihood are learnt by response, up to slopes of the log
        evidence of 1e-9 nats. A pass is a block of responses; what EP in blocks does
        not solve is fitted as `fit` does.

        `share` maximises the product of the evidences of all responses, which count as Gaussian in what is shared, in a
        few passes over some 2000 of them at most. The median of dispersions of counts depends on the mean count m of a
        response per unit of exposure, d/(1 + h/m), as in DESeq2 [L]_. Offsets and exposures may differ by response,
        (N, G).

        References
        ----------
        .. [L] M. I. Love, W. Huber and S. Anders, "Moderated estimation of fold change and dispersion for RNA-seq data
           with DESeq2", Genome Biology 15, 2014.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> dose = np.repeat([0.0, 1.0], 20)
        >>> Y = rng.poisson(np.exp(1.0 + np.outer(dose, [0.0, 1.0, -0.5])))
        >>> posteriors = cavity.GLM("~ dose", "poisson").fit_many({"dose": dose}, Y, names=["a", "b", "c"])
        >>> posteriors.converged.tolist(), posteriors.mean[:, 1].round(1).tolist()
        ([True, True, True], [0.3, 1.1, -0.5])
        """
        from cavity.models.glm.many import fit_many  # takes a while to load

        columns = {"trials": trials, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        options = {"damping": damping, "power": power, "max_iter": max_iter, "tol": tol, "n_threads": n_threads}
        return fit_many(
            self,
            X,
            Y,
            names,
            columns,
            missing,
            share,
            options | {"job": Job.checked(callback, progress, checkpoint, checkpoint_every)},
        )
