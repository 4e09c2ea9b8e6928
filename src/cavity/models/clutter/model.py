"""The clutter problem: where is the signal, when some points are background noise?

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001, section 3.2.1.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from cavity.base import arrays
from cavity.base.errors import name_arguments, suggest_dropping
from cavity.base.public_objects import ArrayLike, Public, Seed, check_positive, set_fields
from cavity.ep.options import Options
from cavity.jobs.job import Event, Job
from cavity.models.clutter import defaults
from cavity.models.clutter.posterior import ClutterPosterior, make_posterior
from cavity.models.clutter.problem import DataPoints, Points
from cavity.models.clutter.solution import solve, warn_of_outcome
from cavity.models.clutter.sweeps import Visits
from cavity.sources.dataset import IN_MEMORY

OPTION_LIMITS = dict(schedules=("sequential", "parallel"), lowest_damping=0.01, lowest_power=0.0)  # of the options


@dataclass(frozen=True, slots=True, kw_only=True)
class Clutter(Public):
    """Robust location of a spherical Gaussian signal in background clutter, by ADF or EP [M]_.

    Each point is signal with probability 1 - w and clutter with probability w::

        p(x | theta) = (1 - w) N(x; theta, noise_variance I) + w N(x; clutter_mean, clutter_variance I)
        p(theta) = N(theta; prior_mean, prior_variance I)

    Parameters
    ----------
    clutter_weight : float, default 0.5
        w, the prior probability that a point is clutter, in (0, 1).
    clutter_variance : float, default 10.0
        Variance of the clutter per coordinate, in squared units of the data.
    noise_variance : float, default 1.0
        Variance of the signal around theta per coordinate.
    prior_mean : float or array_like (d,), default 0.0
        Mean of the prior.
    prior_variance : float, default 100.0
        Variance of the prior per coordinate.
    clutter_mean : float or array_like (d,), default 0.0
        Mean of the clutter.

    Raises
    ------
    ValueError, TypeError
        For a setting outside its domain, naming it.

    Examples
    --------
    >>> import cavity
    >>> posterior = cavity.Clutter().fit([0.1, 2.3])
    >>> round(posterior.mean, 7), round(posterior.variance, 7), round(posterior.log_evidence, 7)
    (0.7899597, 40.126282, -5.1294154)
    """

    clutter_weight: float = 0.5
    clutter_variance: float = 10.0
    noise_variance: float = 1.0
    prior_mean: float = 0.0
    prior_variance: float = 100.0
    clutter_mean: float = 0.0

    def __post_init__(self) -> None:
        set_fields(self, clutter_weight=arrays.check_number(self.clutter_weight, "clutter_weight", low=0, high=1))
        check_positive(self, "noise_variance", "clutter_variance", "prior_variance")
        for name in ("prior_mean", "clutter_mean"):
            set_fields(
                self, **{name: arrays.to_tuple(arrays.check_finite_array(getattr(self, name), name, ndim=(0, 1)))}
            )

    def with_defaults(self, x: ArrayLike, *, keep: Sequence[str] = ()) -> Clutter:
        """Return the model with settings scaled to data, those of ``cavity fit clutter``; only those in `keep` stay.

        The defaults are those of Minka's example, not of any data. The signal is taken to lie around the median, with
        the spread of the median absolute deviation; the prior and the clutter around the median too, with at least 100
        noise variances, the clutter out to the farthest point. `clutter_weight` becomes 0.1.

        Parameters
        ----------
        x : array_like, shape (N,) or (N, d), path, list of paths, or Source
            The data; those of files are read into memory, which the medians need.
        keep : sequence of str, default ()
            Settings to leave as they are: "noise_variance", from which the other variances follow, "clutter_weight",
            "clutter_variance", "clutter_mean", "prior_variance", "prior_mean".

        Returns
        -------
        Clutter
            Another model; this one stays as it is.

        Raises
        ------
        ValueError, TypeError
            For bad data, or a name in `keep` that is no setting.
        OverflowError
            If squares of the data leave the range of float64.

        Examples
        --------
        >>> import cavity
        >>> from cavity import data
        >>> x, _ = data.load("newcomb")
        >>> posterior = cavity.Clutter().with_defaults(x).fit(x)
        >>> round(posterior.mean, 2), round(posterior.variance**0.5, 2)
        (27.73, 0.59)
        """
        data, names = DataPoints.open(x, (1, 2)), [setting.name for setting in fields(self)]
        for name in keep:
            arrays.check_choice(name, "keep", names)
        points = data.rows(slice(0, data.shape[0]))
        arrays.check_finite(points, "x")
        fixed_settings = {name: getattr(self, name) for name in keep}
        return replace(self, **defaults.scale_settings(points, fixed_settings))

    @suggest_dropping
    def fit(
        self,
        x: ArrayLike,
        *,
        missing: Literal["raise", "drop"] = "raise",
        method: Literal["ep", "adf"] = "ep",
        schedule: Literal["sequential", "parallel"] = "sequential",
        order: Literal["random"] | ArrayLike | None = None,
        damping: float = 1.0,
        power: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-10,
        rng: Seed | None = None,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> ClutterPosterior:
        """Approximate the posterior of theta by a spherical Gaussian.

        Parameters
        ----------
        x : array_like, shape (N,), (N, d) or (B, N, d), path, list of paths, or Source
            The data: N numbers, N points, or B independent problems of N points each (d may be 1), fitted together.
            Any real dtype, layout or writeability; contiguous float64 is not copied. Points in files are read block by
            block in each sweep; `order` and ``power < 1`` need an array.
        missing : {"raise", "drop"}, default "raise"
            What is done about points of one problem without a value: refuse them, naming the first, or leave them out;
            `ClutterPosterior.dropped` then counts them.
        method : {"ep", "adf"}, default "ep"
            "adf" sees each point once, in the order of the rows (or `order`); max_iter, tol and callback are EP's.
        schedule : {"sequential", "parallel"}, default "sequential"
            For EP: renew one site after the other, or all from the same posterior (after the first 8192 rows have
            been visited one by one, in the first sweep). For one-dimensional data a parallel sweep is about ten times
            faster (and uses `n_threads`). Small or ambiguous data can have several fixed points, of which schedules
            and orders may find different ones; the largest log evidence is then the best.
        order : None, "random" or array_like (N,), default None
            Order of the visits: that of the rows, a new random one in each sweep (needs `rng`), or a permutation.
        damping : float in [0.01, 1], default 1.0
            Largest fraction of each site change that is made; it is adapted downwards while changes do not fall.
        power : float in (0, 1], default 1.0
            For EP: the exponent alpha of power EP [P]_, 1 for EP itself. Each site then minimises an alpha-divergence;
            as alpha falls to 0 the posterior becomes that of variational Bayes: narrower, and on one mode of several.
        max_iter : int, default 100
            Most sweeps; of the steps of the double loop, where sweeps do not converge, three times as many.
        tol : float, default 1e-10
            Stopping rule: a sweep moves no posterior mean by more than tol posterior standard deviations, and no
            variance by more than the relative amount tol (divided by the damping in use).
        rng : seed or numpy.random.Generator, optional
            For order="random".
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
        ClutterPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.
        MemoryError
            If the sites of the points do not fit into the memory of the machine; the message says how many bytes they
            need.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.
        SettingsWarning
            If many points (5 or more, and 5 % of all) are far from both the signal and the clutter: then the settings
            are those of other data; see `with_defaults`.

        Notes
        -----
        A site whose cavity is improper is left alone in that sweep and counted in ``trace["improper"]``; a sweep that
        counts any does not pass for converged. When the change has not halved in 3/damping sweeps, the fixed point is
        found by minimising EP's free energy over the posterior's moments, a double loop in which every cavity is proper
        and a solution always exists; ``trace["double_loop"]`` counts its steps. Memory: d + 2 doubles a point beyond
        the data, three times that in the double loop.

        With ``power < 1`` a site takes one-dimensional integrals by quadrature, in any dimension: about 200 to 500
        microseconds in the sequential schedule, 20 to 60 in the parallel one (ordinary EP takes less than one for small
        d). There is no double loop then: a fit whose change has not halved in 20/damping sweeps ends unconverged; a
        smaller `damping` often helps. The cavity that `ClutterPosterior.loo_log_density` needs is that of ordinary EP;
        where power EP leaves it improper, asking for it raises ValueError.

        References
        ----------
        .. [P] Thomas Minka, "Power EP", Microsoft Research, MSR-TR-2004-149, 2004.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = np.where(rng.random((50, 1)) < 0.5, rng.normal(0, 10**0.5, (50, 2)), rng.normal(2, 1, (50, 2)))
        >>> posterior = cavity.Clutter().fit(x)
        >>> posterior.converged, posterior.mean.round(2).tolist()
        (True, [1.97, 2.21])
        """
        remote = (method, schedule) == ("ep", "parallel")
        data = DataPoints.open(x, (1, 2, 3), remote=remote, missing=missing)
        iteration = {"schedule": schedule, "damping": damping, "power": power, "max_iter": max_iter, "tol": tol}
        job = Job.checked(callback, progress, checkpoint, checkpoint_every)
        run = Options.checked(**OPTION_LIMITS, **iteration, n_threads=n_threads, job=job)
        visits = Visits.checked(order, rng, data.shape[-2])
        check_method(method, run, order, data.kind)
        arrays.allocate_matrix((math.prod(data.shape[:-1]), data.shape[-1] + 1), "x has so many points: their sites,")
        points = Points.of(data, self)
        with run.open(self, {"x": data.values}, uses_blas=False, order=order, rng=visits.rng) as threads:
            sites, outcome = solve(points, method, run, visits, threads)
        warn_of_outcome(outcome, run)
        posterior = make_posterior(self, points, sites, outcome, method)
        defaults.warn_of_far_data(points, self, posterior)
        return posterior


def check_method(method, run, order, kind):
    """Raise ValueError for methods, schedules and orders that cannot be had together, or not with that kind of points.

    Parameters
    ----------
    method : str
        As `Clutter.fit` takes it.
    run : Options
        With the schedule, the damping and the power.
    order : str, array_like or None
        As `Clutter.fit` takes it.
    kind : str
        That of the `Dataset`.
    """
    arrays.check_choice(method, "method", ("ep", "adf"))
    if order is not None and run.schedule == "parallel":
        message = "order has no meaning for schedule='parallel', which renews all sites at once"
        raise name_arguments(ValueError(message), "schedule")
    if method == "adf" and run.power != 1:
        message = f"power must be 1 for method='adf', which has no power EP, got {run.power!r}"
        raise name_arguments(ValueError(message), "power", "method")
    if method == "adf" and (run.schedule == "parallel" or run.damping != 1):
        message = "method='adf' sees each point once: schedule='parallel' and damping have no meaning"
        raise name_arguments(ValueError(message), "method", "schedule")
    if order is not None and kind != IN_MEMORY:
        message = "order needs all points in memory, as an array: those of files are visited in the order of their rows"
        raise name_arguments(ValueError(message), "order")
    if run.power != 1 and kind != IN_MEMORY:
        message = f"power must be 1 for points in files, got {run.power!r}; others need an array"
        raise name_arguments(ValueError(message), "power")
