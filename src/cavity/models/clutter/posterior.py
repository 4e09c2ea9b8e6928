"""The posterior of a clutter model."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.frames import in_order, names_of
from cavity.base.loop import CONVERGED
from cavity.base.results import Posterior, table
from cavity.distributions.gaussian import Gaussian, SphericalGaussian
from cavity.models.clutter import cavities, sweeps
from cavity.models.clutter import units as clutter_units
from cavity.models.clutter.saved import RECORD


def posterior_of(model, scalar, units, state, status, n_iter, trace, method, before=None):
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

    model: object
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
    _state: clutter_units.State
    _units: clutter_units.Units
    columns: tuple | None = None

    kind = "clutter"
    record = RECORD

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
        cavity_tau, cavity_rho = cavities.cavities(self._units, state)
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
        if not np.all(cavities.cavities(self._units, self._state)[1] > 0):
            if self._state.loo is not None:
                raise ValueError(f"{name}: at this power some points have no proper cavity; use power=1")
            if self.method == "ep":
                raise ValueError(f"{name}: EP has left some points without a proper cavity; see status")
            raise ValueError(f"{name}: after ADF some points have no proper cavity; use method='ep'")

    def _points(self, x):
        """Return x as points (N, d) or (B, N, d), and whether they are like the fitted ones but for N."""
        wanted = self._state.site_tau.shape
        ndim = (1,) if isinstance(self.mean, float) else (len(wanted),)
        data = arrays.data_array(in_order(x, self.columns, "x"), "x", ndim=ndim)
        points = data[:, None] if data.ndim == 1 else data
        return points, points.shape[-1] == wanted[-1] and points.shape[:-2] == wanted[:-2]

    def _evaluate(self, x, fitted):
        points, alike = self._points(x)
        wanted = self._state.site_tau.shape
        if not (points.shape == wanted if fitted else alike):
            what = f"the fitted data, shape {wanted}" if fitted else f"points of dimension {wanted[-1]}"
            raise ValueError(f"x must be {what}, got shape {np.shape(x)}")
        clutter_units.check_reach(points, self._units)
        return sweeps.densities(points, self._units, self._state, fitted)

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
        arrays.integer(n_threads, "n_threads", low=1)
        clutter_units.check_reach(points, self._units)
        state, units = sweeps.update(points, self._units, self._state, n_threads)
        n_iter = np.ones(np.shape(self.variance), dtype=int)[()]
        # an update of what had not converged is no better
        status = np.where(self.converged, CONVERGED, self.status).astype(object)[()]
        scalar, columns = isinstance(self.mean, float), names_of(x) if self.columns is None else self.columns
        posterior = posterior_of(self.model, scalar, units, state, status, n_iter, {}, "adf", before=self)
        return replace(posterior, columns=columns)

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
