"""The clutter problem: where is the signal, when some points are background noise?

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001, section 3.2.1.
"""

from dataclasses import asdict, dataclass, fields, replace
from functools import partial

import numpy as np

from . import _arrays, _clutter_cavities, _clutter_fit, _clutter_settings, _records
from ._frames import in_order, names_of
from ._loop import CONVERGED, warn_unconverged
from ._power import PowerSweeper
from ._records import NUMBERS, POSITIVE, Array, Made, Nullable, Record, integer, names, one_of, together
from .gaussian import Gaussian, SphericalGaussian
from .results import Posterior, table, to_list, to_tuple

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clutter:
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

    def __post_init__(self):
        def keep(name, value):
            object.__setattr__(self, name, value)

        keep("clutter_weight", _arrays.number(self.clutter_weight, "clutter_weight", low=0, high=1))
        for name in ("noise_variance", "clutter_variance", "prior_variance"):
            keep(name, _arrays.number(getattr(self, name), name, low=0))
        for name in ("prior_mean", "clutter_mean"):
            array = _arrays.finite_array(getattr(self, name), name, ndim=(0, 1))
            keep(name, tuple(array.tolist()) if array.ndim else float(array))  # tuples compare and hash

    def settle(self, x, *, keep=()):
        """Return the model with settings scaled to data, those of ``cavity fit clutter``; only those in `keep` stay.

        The defaults are those of Minka's example, not of any data. The signal is taken to lie around the median, with
        the spread of the median absolute deviation; the prior and the clutter around the median too, with at least 100
        noise variances, the clutter out to the farthest point. `clutter_weight` becomes 0.1.

        Parameters
        ----------
        x : array_like, shape (N,) or (N, d)
            The data.
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
        >>> posterior = cavity.Clutter().settle(x).fit(x)
        >>> round(posterior.mean, 2), round(posterior.variance**0.5, 2)
        (27.73, 0.59)
        """
        data = _arrays.data_array(x, "x", ndim=(1, 2))
        names = [field.name for field in fields(self)]
        for name in keep:
            _arrays.choice(name, "keep", names)
        points = np.asarray(data[:, None] if data.ndim == 1 else data, dtype=np.float64)
        given = {name: getattr(self, name) for name in keep}
        return replace(self, **_clutter_settings.scaled(points, given))

    def fit(
        self,
        x,
        *,
        method="ep",
        schedule="sequential",
        order=None,
        damping=1.0,
        power=1.0,
        max_iter=100,
        tol=1e-10,
        rng=None,
        n_threads=1,
        callback=None,
    ):
        """Approximate the posterior of theta by a spherical Gaussian.

        Parameters
        ----------
        x : array_like, shape (N,), (N, d) or (B, N, d)
            The data: N numbers, N points, or B independent problems of N points each (d may be 1), fitted together.
            Any real dtype, layout or writeability; contiguous float64 is not copied.
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
            The fraction of each site change that is made; 1 is no damping.
        power : float in (0, 1], default 1.0
            For EP: the exponent alpha of power EP [P]_, 1 for EP itself. Each site then minimises an alpha-divergence;
            as alpha falls to 0 the posterior becomes that of variational Bayes: narrower, and on one mode of several.
        max_iter : int, default 100
            Most sweeps. Newton steps of the double loop, at most 100, come on top.
        tol : float, default 1e-10
            Stopping rule: a sweep moves the posterior mean by at most tol posterior standard deviations and the
            variance by at most the relative amount tol (both divided by `damping`).
        rng : seed or numpy.random.Generator, optional
            For order="random".
        n_threads : int, default 1
            Threads for batches and for the parallel schedule; the result has the same bits for any number.
        callback : callable, optional
            Called as callback(n_iter, change) after each sweep (not for Newton steps); a true result stops the fit.

        Returns
        -------
        ClutterPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.
        SettingsWarning
            If many points (5 or more, and 5 % of all) are far from both the signal and the clutter: then the settings
            are those of other data; see `settle`.

        Notes
        -----
        A site whose cavity is improper is left alone in that sweep and counted in ``trace["improper"]``; a sweep that
        counts any does not pass for converged. When the change has not halved in 3/damping sweeps, the fixed point is
        found by minimising EP's free energy over the posterior's moments, a double loop in which every cavity is proper
        and a solution always exists; ``trace["double_loop"]`` counts its Newton steps. Memory: d + 2 doubles a point
        beyond the data.

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
        data = _arrays.data_array(x, "x", ndim=(1, 2, 3))
        points = data[:, None] if data.ndim == 1 else data
        n = points.shape[-2]
        _arrays.choice(method, "method", ("ep", "adf"))
        _arrays.choice(schedule, "schedule", ("sequential", "parallel"))
        power = _arrays.number(power, "power", low=0, high=1, closed_high=True)
        options = dict(
            order=_check_order(order, rng, n),
            rng=None if rng is None else _arrays.generator(rng),
            damping=_arrays.number(damping, "damping", low=0.01, high=1, closed_low=True, closed_high=True),
            max_iter=_arrays.integer(max_iter, "max_iter", low=1),
            tol=_arrays.number(tol, "tol", low=0, closed_low=True),
            n_threads=_arrays.integer(n_threads, "n_threads", low=1),
            callback=callback,
        )
        _check_combination(method, schedule, order, options["damping"], power)
        if power != 1:
            options["kind"] = partial(PowerSweeper, power=power)
        units = self._units(points)
        posterior = replace(self._run(data, points, units, method, schedule, options), columns=names_of(x))
        _clutter_settings.warn_strangers(points, self, posterior)
        return posterior

    def _run(self, data, points, units, method, schedule, options):
        if method == "adf":
            return self._filter(data, points, units, options)
        if data.ndim == 3:
            return self._fit_batch(data, units, schedule, options)
        state, status, trace = _clutter_fit.fit_one(points, units, schedule=schedule, **options)
        change = trace["change"]
        warn_unconverged(status, change[-1], options["tol"], options["max_iter"])
        return _posterior(self, data.ndim == 1, units, state, status, len(change), trace, method)

    def _units(self, points):
        d = points.shape[-1]
        return _clutter_fit.working_units(
            points,
            self.clutter_weight,
            self.clutter_variance,
            self.noise_variance,
            _arrays.vector(self.clutter_mean, "clutter_mean", d),
            _arrays.vector(self.prior_mean, "prior_mean", d),
            self.prior_variance,
        )

    def _filter(self, data, points, units, options):
        """ADF on one problem or each of a batch."""
        order = _clutter_fit.visiting_order(options["order"], options["rng"], points.shape[-2])
        state = _clutter_fit.assimilate_all(points, units, order, options["n_threads"])
        batch = points.shape[:-2]
        return _posterior(
            self,
            data.ndim == 1,
            units,
            state,
            np.full(batch, CONVERGED, dtype=object)[()],
            np.ones(batch, dtype=int)[()],
            {},
            "adf",
        )

    def _fit_batch(self, data, units, schedule, options):
        """EP on a batch: side by side in SIMD lanes if that applies, else one problem after the other on threads."""
        if data.shape[2] == 1 and schedule == "sequential" and "kind" not in options:
            state, status, n_iter, trace = _clutter_fit.fit_lanes(data, units, **options)
        else:
            state, status, n_iter, trace = _clutter_fit.fit_each(data, units, schedule=schedule, **options)
        last = trace["change"][n_iter - 1, np.arange(len(data))]
        warn_unconverged(status, last, options["tol"], options["max_iter"])
        return _posterior(self, False, units, state, status, n_iter, trace, "ep")


def _check_combination(method, schedule, order, damping, power):
    if order is not None and schedule == "parallel":
        raise ValueError("order has no meaning for schedule='parallel', which renews all sites at once")
    if method == "adf" and power != 1:
        raise ValueError(f"power must be 1 for method='adf', which has no power EP, got {power!r}")
    if method == "adf" and (schedule == "parallel" or damping != 1):
        raise ValueError("method='adf' sees each point once: schedule='parallel' and damping have no meaning")


def _check_order(order, rng, n):
    if order is None:
        return None
    if isinstance(order, str):
        _arrays.choice(order, "order", ("random",))
        if rng is None:
            raise ValueError("order='random' needs rng, a seed or a numpy.random.Generator")
        return order
    return _arrays.permutation(order, "order", n)


def _posterior(model, scalar, units, state, status, n_iter, trace, method, before=None):
    """Turn the state in working units into a posterior in the units of the data."""
    scale = units.scale
    mean = units.origin + state.tau / np.asarray(state.rho)[..., None] / scale
    log_evidence = state.log_evidence + state.site_rho.shape[-1] * units.log_jacobian
    n_samples = state.site_rho.shape[-1]
    if before is not None:
        log_evidence, n_samples = log_evidence + before.log_evidence, n_samples + before.n_samples
    variance = 1.0 / np.asarray(state.rho) / scale / scale
    single = state.site_rho.ndim == 1
    return ClutterPosterior(
        model=model,
        mean=float(mean[0]) if scalar else mean,
        variance=float(variance) if single else variance,
        log_evidence=float(log_evidence) if single else log_evidence,
        converged=status == CONVERGED,
        n_iter=int(n_iter) if single else n_iter,
        status=status if single else status.astype(str),
        n_samples=n_samples,
        method=method,
        trace=trace,
        before=None if before is None else (before.mean, before.variance, before.log_evidence),
        _state=state,
        _units=units,
    )


OUTCOME = {
    "mean": Array("B? D | ()"),
    "variance": Array("B?", "positive"),
    "log_evidence": Array("B?"),
    "converged": Array("B?", kind="b"),
    "n_iter": Array("B?", "nonnegative", kind="i"),
    "status": Array("B?", kind="U"),
}
BEFORE = {f"before_{name}": OUTCOME[name] for name in ("mean", "variance", "log_evidence")}
ARRAYS = {  # a batch has the axis B
    "state_site_tau": Array("B? N D"),
    "state_site_rho": Array("B? N"),
    "state_tau": Array("B? D"),
    "state_rho": Array("B?", "positive"),
    "state_site_value": Array("B? N"),
    "state_log_evidence": Array("B?"),
    "state_loo?": Array("B? N", "any"),
    "units_origin": Array("B? D"),
    "units_scale": Array("()", "positive"),
    "units_model": Array("5"),
    "units_centre": Array("B? D"),
    "units_prior_tau": Array("B? D"),
    "units_prior_rho": Array("() | B?", "positive"),
    "trace_change?": Array("c B?", "any"),
    "trace_improper?": Array("i B?", "nonnegative", kind="i"),
    "trace_double_loop?": Array("B?", "nonnegative", kind="i"),
    **OUTCOME,
    **{f"{name}?": array for name, array in BEFORE.items()},
}
SETTINGS = {
    "model": Made(
        lambda given: Clutter(**given),
        {
            "clutter_weight": POSITIVE,
            "clutter_variance": POSITIVE,
            "noise_variance": POSITIVE,
            "prior_mean": NUMBERS,
            "prior_variance": POSITIVE,
            "clutter_mean": NUMBERS,
        },
    ),
    "method": one_of("ep", "adf"),
    "n_samples": integer(1),
    "columns?": Nullable(names()),
}


def _fits(arrays, settings, sizes):
    """Whether what is known of a posterior fits together, as a rule of its record."""
    tau, mean, model = arrays["state_site_tau"], arrays["mean"], settings["model"]
    d, n = tau.shape[-1], tau.shape[-2]
    for name in ("clutter_mean", "prior_mean"):
        _arrays.vector(getattr(model, name), name, d)
    if mean.ndim == 0 and tau.shape[1:] != (1,):
        return f"array 'mean' must not be a number where array 'state_site_tau' has shape {tau.shape}"
    if arrays.get("before_mean", mean).shape != mean.shape:
        return f"array 'before_mean' must have shape {mean.shape} like 'mean', got {arrays['before_mean'].shape}"
    many = settings["n_samples"]
    if many < n or (many > n and "before_mean" not in arrays):
        return f"setting 'n_samples' must be {n}, the number of sites, or more after updates, got {many}"
    return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClutterPosterior(Posterior):
    """The approximate posterior N(theta; mean, variance I) of a `Clutter` fit.

    For a batch of B problems the fields have a leading axis of length B.

    Attributes
    ----------
    model : Clutter
        The settings.
    mean : float or ndarray (d,)
        Posterior mean, in units of the data.
    variance : float
        Posterior variance per coordinate.
    log_evidence : float
        EP's (or ADF's) estimate of log p(x), all constants included.
    converged : bool
        Whether the stopping rule of `Clutter.fit` was met.
    n_iter : int
        Sweeps and Newton steps taken.
    status : str
        Why the iteration ended.
    n_samples : int
        Points seen, those of earlier updates included.
    method : {"ep", "adf"}
        How the last points were taken in.
    trace : dict of ndarray
        "change" and "improper" for every sweep, "double_loop" the number of Newton steps.
    before : None or tuple
        Mean, variance and log evidence of the posterior that `update` started from.
    columns : tuple of str or None
        Names of the columns of x, if it was a data frame: those of later data frames are put in their order.
    """

    model: Clutter
    mean: float | np.ndarray
    variance: float | np.ndarray
    log_evidence: float | np.ndarray
    converged: bool | np.ndarray
    n_iter: int | np.ndarray
    status: str | np.ndarray
    n_samples: int
    method: str
    trace: dict
    before: tuple | None
    _state: _clutter_fit.State
    _units: _clutter_fit.Units
    columns: tuple | None = None

    kind = "clutter"
    record = Record(ARRAYS, SETTINGS, (together(*BEFORE), _fits))

    def __post_init__(self):
        self._freeze()

    @property
    def prior(self):
        """The Gaussian(s) these points were combined with: the model's prior, or the posterior before `update`."""
        mean, variance, log_evidence = self.before or (self.model.prior_mean, self.model.prior_variance, 0.0)
        if isinstance(self.mean, float):
            return Gaussian.from_moments(mean, variance, log_evidence)
        return SphericalGaussian.from_moments(np.broadcast_to(mean, self.mean.shape), variance, log_evidence)

    @property
    def posterior(self):
        """The posterior as a Gaussian or SphericalGaussian whose log scale is the log evidence."""
        kind = Gaussian if isinstance(self.mean, float) else SphericalGaussian
        return kind.from_moments(self.mean, self.variance, self.log_evidence)

    @property
    def sites(self):
        """The approximate factors: Gaussian (N,), or SphericalGaussian (N,) or (B, N), in the order of the rows.

        ``(prior * sites.prod()).log_scale`` is the log evidence. A log scale is the log of an integral, which grows
        without bound as a site's precision passes through zero; `log_evidence` and `loo_log_density` do not use it.
        """
        state, units = self._state, self._units
        d = state.tau.shape[-1]
        rho = state.site_rho
        origin = np.expand_dims(units.origin, -2) if units.origin.ndim > 1 else units.origin
        mean = np.expand_dims(state.tau / np.asarray(state.rho)[..., None], -2)
        safe = np.where(rho == 0, 1.0, rho)
        miss = state.site_tau - rho[..., None] * mean
        log_scale = (
            state.site_value - 0.5 * d * (np.log(np.abs(safe)) - LOG_2PI) + 0.5 * np.sum(miss * miss, axis=-1) / safe
        )
        tau = units.scale * state.site_tau + (units.scale * (units.scale * rho))[..., None] * origin
        at_zero = state.site_value + units.log_jacobian - np.sum(tau * (origin + mean / units.scale), axis=-1)
        log_scale = np.where(rho == 0, at_zero, log_scale)
        if isinstance(self.mean, float):
            return Gaussian(tau[..., 0], units.scale * (units.scale * rho), log_scale)
        return SphericalGaussian(tau, units.scale * (units.scale * rho), log_scale)

    @property
    def loo_log_density(self):
        """Log density of each point under the posterior of all others, shape (N,) or (B, N); free with EP.

        After ADF it is an approximation from the sites as they were when each point came by.
        """
        self._check_cavities("loo_log_density")
        state = self._state
        if state.loo is not None:
            return state.loo + self._units.log_jacobian
        rho, d = np.asarray(state.rho)[..., None], state.tau.shape[-1]
        cavity_tau, cavity_rho = _clutter_cavities.cavities(self._units, state)
        mean = np.expand_dims(state.tau, -2) / rho[..., None]
        shift = mean - cavity_tau / cavity_rho[..., None]
        log_z = state.site_value + 0.5 * (d * np.log(cavity_rho / rho) - cavity_rho * np.sum(shift * shift, axis=-1))
        return log_z + self._units.log_jacobian

    def clutter_probability(self, x, *, fitted=True):
        """Return the probability that each point is clutter.

        Parameters
        ----------
        x : array_like
            The fitted data, in the same order (``fitted=True``), or any other points of the same dimension
            (``fitted=False``).
        fitted : bool, default True
            Fitted points are judged by the posterior of all others (their cavity), new ones by the posterior.

        Returns
        -------
        ndarray, shape (N,) or (B, N)
            One probability a point.
        """
        from scipy.special import expit

        if fitted:
            self._check_cavities("clutter_probability")
        return expit(self._evaluate(x, fitted)[1])

    def log_density(self, x):
        """Return the predictive log density of new points, the log of E p(x | theta) under the posterior.

        Parameters
        ----------
        x : array_like
            Points of the fitted dimension, any number of them.

        Returns
        -------
        ndarray, shape (N,) or (B, N)
            One log density a point.
        """
        return self._evaluate(x, False)[0] + self._units.log_jacobian

    def _check_cavities(self, name):
        """ADF does not look back: a site may be more precise than the posterior ends up.

        Power EP may allow it too, and EP that has not converged may end so.
        """
        if not np.all(_clutter_cavities.cavities(self._units, self._state)[1] > 0):
            if self._state.loo is not None:
                raise ValueError(f"{name}: at this power some points have no proper cavity; use power=1")
            if self.method == "ep":
                raise ValueError(f"{name}: EP has left some points without a proper cavity; see status")
            raise ValueError(f"{name}: after ADF some points have no proper cavity; use method='ep'")

    def _points(self, x):
        """Return x as points (N, d) or (B, N, d), and whether they are like the fitted ones but for N."""
        wanted = self._state.site_tau.shape
        ndim = (1,) if isinstance(self.mean, float) else (len(wanted),)
        data = _arrays.data_array(in_order(x, self.columns, "x"), "x", ndim=ndim)
        points = data[:, None] if data.ndim == 1 else data
        return points, points.shape[-1] == wanted[-1] and points.shape[:-2] == wanted[:-2]

    def _evaluate(self, x, fitted):
        points, alike = self._points(x)
        wanted = self._state.site_tau.shape
        if not (points.shape == wanted if fitted else alike):
            what = f"the fitted data, shape {wanted}" if fitted else f"points of dimension {wanted[-1]}"
            raise ValueError(f"x must be {what}, got shape {np.shape(x)}")
        _clutter_fit.check_reach(points, self._units)
        return _clutter_fit.densities(points, self._units, self._state, fitted)

    def update(self, x, *, n_threads=1):
        """Assimilate more points by ADF, on top of what is known.

        Parameters
        ----------
        x : array_like
            New points, shaped like the fitted data but for N.
        n_threads : int, default 1
            Threads for batches.

        Returns
        -------
        ClutterPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all points so far, its sites and
            leave-one-out densities are those of the new points.
        """
        points, alike = self._points(x)
        if not alike:
            wanted = self._state.site_tau.shape
            raise ValueError(f"x must hold points like the fitted ones, shape {wanted} but for N, got {np.shape(x)}")
        _arrays.integer(n_threads, "n_threads", low=1)
        _clutter_fit.check_reach(points, self._units)
        state, units = _clutter_fit.update(points, self._units, self._state, n_threads)
        n_iter = np.ones(np.shape(self.variance), dtype=int)[()]
        # an update of what had not converged is no better
        status = np.where(self.converged, CONVERGED, self.status).astype(object)[()]
        scalar, columns = isinstance(self.mean, float), names_of(x) if self.columns is None else self.columns
        posterior = _posterior(self.model, scalar, units, state, status, n_iter, {}, "adf", before=self)
        return replace(posterior, columns=columns)

    def to_arrays(self):
        """Return named arrays and JSON-able settings that hold all of the posterior."""
        state, units = self._state, self._units
        arrays = {f"state_{name}": np.asarray(value) for name, value in _clutter_fit.present(state).items()}
        arrays |= {f"units_{name}": np.asarray(getattr(units, name)) for name in _clutter_fit.Units.__slots__}
        arrays |= {f"trace_{name}": value for name, value in self.trace.items()}
        for name in OUTCOME:
            arrays[name] = np.asarray(getattr(self, name))
        for name, value in zip(("mean", "variance", "log_evidence"), self.before or (), strict=False):
            arrays[f"before_{name}"] = np.asarray(value)
        settings = {name: np.asarray(value).tolist() for name, value in asdict(self.model).items()}
        settings = {"model": settings, "method": self.method, "n_samples": self.n_samples}
        return arrays, settings | {"columns": to_list(self.columns)}

    @classmethod
    def _from_arrays(cls, arrays, settings):
        plain = {name: array if array.ndim else array.item() for name, array in arrays.items()}
        return cls(
            **{name: plain[name] for name in OUTCOME},
            model=settings["model"],
            n_samples=settings["n_samples"],
            method=settings["method"],
            columns=to_tuple(settings.get("columns")),
            trace=_records.part(arrays, "trace_"),
            before=tuple(_records.part(plain, "before_").values()) or None,
            _state=_clutter_fit.State(**_records.part(plain, "state_")),
            _units=_clutter_fit.Units(**_records.part(plain, "units_")),
        )

    def __repr__(self):
        shape = self._state.site_tau.shape
        batch = len(shape) == 3
        problems = f"{shape[0]} problems of " if batch else ""
        kept = f"{np.sum(self.converged)} of {shape[0]}" if batch else self.converged
        with np.printoptions(precision=6, threshold=6, edgeitems=2):
            return table(
                f"ClutterPosterior: {problems}{self.n_samples} points in {shape[-1]} dimension(s)",
                [
                    ("mean", np.array2string(np.asarray(self.mean))),
                    ("variance", np.array2string(np.asarray(self.variance))),
                    ("log_evidence", np.array2string(np.asarray(self.log_evidence))),
                    ("converged", f"{kept} ({self.method}, {np.max(self.n_iter)} iterations)"),
                ],
            )
