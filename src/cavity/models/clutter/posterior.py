"""The posterior of a clutter model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays, records
from cavity.base.constants import LOG_2PI
from cavity.base.frames import name_coefficients
from cavity.base.lazy_scipy import special
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.missing_values import DroppedRows
from cavity.base.observation_digest import ObservationDigest, join_digests
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray
from cavity.base.records import Array, Part, Record, declare, one_of
from cavity.base.results import Posterior, SummaryMixin, declare_common, format_table, list_name_rows
from cavity.base.summary import make_gaussian_marginals
from cavity.distributions.gaussian import Gaussian, SphericalGaussian
from cavity.ep.evidence import measure_influence
from cavity.models.clutter.cavities import find_cavities, find_densities
from cavity.models.clutter.problem import ClutterSites, DataPoints, Points, WorkingUnits
from cavity.models.clutter.solution import filter_points
from cavity.models.clutter.sweeps import Visits
from cavity.models.leave_one_out import LeavesOneOut
from cavity.models.row_predictions import complete_dataset, predict_rows
from cavity.runs.executors import Threads, resolve_n_threads
from cavity.sources.dataset import Dataset

if TYPE_CHECKING:
    from cavity.models.clutter.model import Clutter


MODEL_SETTINGS = {  # settings
    "clutter_weight": records.POSITIVE_REAL,
    "clutter_variance": records.POSITIVE_REAL,
    "noise_variance": records.POSITIVE_REAL,
    "prior_mean": records.REAL_LISTS,
    "prior_variance": records.POSITIVE_REAL,
    "clutter_mean": records.REAL_LISTS,
}
TRACE_ARRAYS = {  # a batch has the axis B
    "change?": Array("c B?", "any"),
    "improper?": Array("i B?", "nonnegative", kind="i"),
    "double_loop?": Array("B?", "nonnegative", kind="i"),
}
BEFORE_ARRAYS = {
    "before_mean": Array("B? D | ()"),
    "before_variance": Array("B?", "positive"),
    "before_log_evidence": Array("B?"),
}


def _find_misfit(stored, settings, sizes):
    """Whether what is known of a posterior fits together, as a rule of its record."""
    tau, mean, model = stored["state_site_tau"], stored["mean"], settings["model"]
    d, n = tau.shape[-1], tau.shape[-2]
    for name in ("clutter_mean", "prior_mean"):
        arrays.check_vector(model[name], name, d)
    if mean.ndim == 0 and tau.shape[1:] != (1,):
        return f"array 'mean' must not be a number where array 'state_site_tau' has shape {tau.shape}"
    if stored.get("before_mean", mean).shape != mean.shape:
        return f"array 'before_mean' must have shape {mean.shape} like 'mean', got {stored['before_mean'].shape}"
    many = settings["n_samples"]
    if many < n or (many > n and "before_mean" not in stored):
        return f"setting 'n_samples' must be {n}, the number of sites, or more after updates, got {many}"
    return None


CLUTTER_RECORD = Record(
    {f"{name}?": array for name, array in BEFORE_ARRAYS.items()},
    {},
    (records.together(*BEFORE_ARRAYS), _find_misfit),
    {name: f"before.{number}" for number, name in enumerate(BEFORE_ARRAYS)},
)


def make_posterior(model, points, sites, outcome, method, before=None):
    """Turn sites in working units and what became of each problem into a posterior in units of the data.

    `before` is the posterior that an update started from.
    """
    units, data, digest, columns = points.units, points.data, points.digest, points.data.columns
    scale, (mean, variance) = units.scale, sites.moments
    mean, variance = units.origin + mean / scale, variance / scale / scale
    n_samples = sites.site_rho.shape[-1]
    log_evidence = sites.log_evidence + n_samples * units.log_jacobian
    n_iter, status, trace = outcome.n_iter, outcome.status.astype(str), outcome.trace
    if not points.is_batch:
        variance, log_evidence, n_iter, status = float(variance), float(log_evidence), int(n_iter[0]), str(status[0])
        trace = {name: np.asarray(values[..., 0]) for name, values in trace.items()}
    if before is not None:
        digest = join_digests(before.observation_digest, digest)
        log_evidence, n_samples = log_evidence + before.log_evidence, n_samples + before.n_samples
        columns = columns if before.columns is None else before.columns
    return ClutterPosterior(
        model=model,
        mean=float(mean[0]) if data.is_scalar else mean,
        variance=variance,
        log_evidence=log_evidence,
        converged=status == CONVERGED_STATUS,
        n_iter=n_iter,
        status=status,
        n_samples=n_samples,
        method=method,
        trace=trace,
        before=None if before is None else (before.mean, before.variance, before.log_evidence),
        columns=columns,
        dropped=data.dropped if before is None else before.dropped,
        observation_digest=digest,
        _sites=sites,
        _units=units,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClutterPosterior(LeavesOneOut, SummaryMixin, Posterior):
    """The approximate posterior N(theta; mean, variance I) of a `Clutter` fit.

    For a batch of B problems the fields have a leading axis of length B.
    """

    model: Clutter = declare(MODEL_SETTINGS, "The settings.")
    mean: FloatOrArray = declare(Array("B? D | ()"), "Posterior mean, in units of the data.")
    variance: FloatOrArray = declare(Array("B?", "positive"), "Posterior variance per coordinate.")
    log_evidence: FloatOrArray = declare_common("log_evidence", Array("B?"))
    converged: Any = declare_common("converged", Array("B?", kind="b"))
    n_iter: Any = declare_common("n_iter", Array("B?", "nonnegative", kind="i"))
    status: Any = declare_common("status", Array("B?", kind="U"))
    method: str = declare(one_of("ep", "adf"), 'How the last points were assimilated: "ep" or "adf".')
    n_samples: int = declare_common("n_samples")
    trace: dict[str, Any] = declare_common("trace", Part(TRACE_ARRAYS, "trace_"))
    before: tuple[Any, ...] | None = declare(None, "Mean, variance and log evidence before the `update`, if any.")
    _sites: ClutterSites = declare(Part(ClutterSites, "state_"))
    _units: WorkingUnits = declare(Part(WorkingUnits, "units_"))
    columns: tuple[str, ...] | None = declare_common("columns")
    dropped: DroppedRows | None = declare_common("dropped")
    observation_digest: ObservationDigest | None = declare_common("observation_digest")

    kind: ClassVar[str] = "clutter"
    record: ClassVar[Any] = CLUTTER_RECORD

    @property
    def prior(self) -> Any:
        """The Gaussian(s) these points were combined with: the model's prior, or the posterior before `update`."""
        return self._gaussian(*(self.before or (self.model.prior_mean, self.model.prior_variance, 0.0)))

    @property
    def posterior(self) -> Any:
        """The posterior as a Gaussian or SphericalGaussian whose log scale is the log evidence."""
        return self._gaussian(self.mean, self.variance, self.log_evidence)

    def _gaussian(self, mean, variance, log_scale):
        """The Gaussian, or Gaussians, of these moments, of as many dimensions as the posterior has."""
        if isinstance(self.mean, float):
            return Gaussian.from_moments(mean, variance, log_scale)
        return SphericalGaussian.from_moments(np.broadcast_to(mean, self.mean.shape), variance, log_scale)

    @property
    def sites(self) -> Any:
        """The approximate factors: Gaussian (N,), or SphericalGaussian (N,) or (B, N), in the order of the rows.

        ``(prior * sites.prod()).log_scale`` is the log evidence. A log scale is the log of an integral, which grows
        without bound as a site's precision passes through zero; `log_evidence` and `loo_log_density` do not use it.
        """
        sites, units = self._sites, self._units
        d, rho, scale = sites.tau.shape[-1], sites.site_rho, units.scale
        origin, mean = np.expand_dims(units.origin, -2), np.expand_dims(sites.moments[0], -2)
        safe = np.where(rho == 0, 1.0, rho)
        miss = sites.site_tau - rho[..., None] * mean
        height = 0.5 * d * (np.log(np.abs(safe)) - LOG_2PI)
        log_scale = sites.site_value - height + 0.5 * np.sum(miss * miss, axis=-1) / safe
        tau, rho = scale * sites.site_tau + (scale * (scale * rho))[..., None] * origin, scale * (scale * rho)
        at_zero = sites.site_value + units.log_jacobian - np.sum(tau * (origin + mean / scale), axis=-1)
        log_scale = np.where(rho == 0, at_zero, log_scale)
        if isinstance(self.mean, float):
            return Gaussian(tau[..., 0], rho, log_scale)
        return SphericalGaussian(tau, rho, log_scale)

    @property
    def loo_log_density(self) -> FloatArray:
        """Log density of each point under the posterior of all others, shape (N,) or (B, N); free with EP.

        After ADF it is an approximation from the sites as they were when each point came by.
        """
        cavity_tau, cavity_rho = self._cavities("loo_log_density")
        sites, log_jacobian = self._sites, self._units.log_jacobian
        if sites.loo is not None:
            return sites.loo + log_jacobian
        rho, d = np.asarray(sites.rho)[..., None], sites.tau.shape[-1]
        shift = np.expand_dims(sites.tau, -2) / rho[..., None] - cavity_tau / cavity_rho[..., None]
        distance2 = np.sum(shift * shift, axis=-1)
        return sites.site_value + 0.5 * (d * np.log(cavity_rho / rho) - cavity_rho * distance2) + log_jacobian

    def _influences(self):
        """The influences of the points, and the effective number of parameters."""
        tau, rho = self._cavities("loo")
        mean, variance = self._sites.moments
        moments = np.expand_dims(mean, -2), np.asarray(variance)[..., None, None]
        influences = measure_influence(*moments, tau / rho[..., None], 1.0 / rho[..., None])  # (..., N, d)
        determined = np.sum(self._sites.site_rho, axis=-1) * variance
        return np.sum(influences, axis=-1), influences.shape[-1] * determined

    @predict_rows(on_collections=False)
    def clutter_probability(
        self, x: ArrayLike, *, fitted: bool = True, missing: Literal["raise", "nan"] = "raise"
    ) -> FloatArray:
        """Return the probability that each point is clutter.

        Parameters
        ----------
        x : array_like
            The fitted data, in the same order (``fitted=True``), or any other points of the same dimension
            (``fitted=False``).
        fitted : bool, default True
            Fitted points are judged by the posterior of all others (their cavity), new ones by the posterior.
        missing : {"raise", "nan"}, default "raise"
            What is done about points of one problem without a value: refuse them, or return NaN in their places.

        Returns
        -------
        ndarray, shape (N,) or (B, N)
            One probability a point.
        """
        if fitted:
            self._cavities("clutter_probability")
        return special.expit(self._evaluate(x, fitted)[1])

    @predict_rows(on_collections=False)
    def log_density(self, x: ArrayLike, *, missing: Literal["raise", "nan"] = "raise") -> FloatArray:
        """Return the predictive log density of new points, the log of E p(x | theta) under the posterior.

        Parameters
        ----------
        x : array_like
            Points of the fitted dimension, any number of them.
        missing : {"raise", "nan"}, default "raise"
            What is done about points of one problem without a value: refuse them, or return NaN in their places.

        Returns
        -------
        ndarray, shape (N,) or (B, N)
            One log density a point.
        """
        return self._evaluate(x, False)[0] + self._units.log_jacobian

    def _cavities(self, name):
        """Return tau and rho of all cavities, or raise ValueError if any is improper.

        ADF does not look back: a site may be more precise than the posterior ends up. Power EP may allow it too, and EP
        that has not converged may end so.
        """
        tau, rho = find_cavities(self._sites, self._units)
        if np.all(rho > 0):
            return tau, rho
        if self._sites.loo is not None:
            raise ValueError(f"{name}: at this power some points have no proper cavity; use power=1")
        if self.method == "ep":
            raise ValueError(f"{name}: EP has left some points without a proper cavity; see status")
        raise ValueError(f"{name}: after ADF some points have no proper cavity; use method='ep'")

    def _points(self, x, expectation, fitted=False):
        """Return x as Points in the units of the fit; ValueError for other shapes, where N counts for `fitted` ones."""
        shape = self._sites.site_tau.shape
        data = DataPoints.open(x, (1,) if isinstance(self.mean, float) else (len(shape),), self.columns)
        if not (data.shape == shape if fitted else data.shape[:-2] + data.shape[-1:] == shape[:-2] + shape[-1:]):
            raise ValueError(f"x must {expectation.format(shape=shape, d=shape[-1])}, got shape {np.shape(x)}")
        ends, digest = data.summarize()
        self._units.check_distance(ends, "the fitted data")
        return Points(data, self._units, ends, digest)

    def _complete_rows(self, x, arguments):
        return complete_dataset(Dataset.open(x, name="x"))

    def _evaluate(self, x, fitted):
        expectation = "be the fitted data, shape {shape}" if fitted else "be points of dimension {d}"
        return find_densities(self._points(x, expectation, fitted), self._sites, fitted)

    def update(self, x: ArrayLike, *, n_threads: int | None = None) -> ClutterPosterior:
        """Assimilate more points by ADF, on top of what is known.

        Parameters
        ----------
        x : array_like
            New points, shaped like the fitted data but for N.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        ClutterPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all points so far, on whose order it
            depends; its sites and leave-one-out densities are those of the new points.
        """
        points = self._points(x, "hold points like the fitted ones, shape {shape} but for N")
        points = replace(points, units=replace(self._units, prior_tau=self._sites.tau, prior_rho=self._sites.rho))
        with Threads(resolve_n_threads(n_threads)) as threads:
            sites, outcome = filter_points(points, Visits(), threads)
        # an update of what had not converged is no better
        outcome = replace(outcome, status=np.where(self.converged, outcome.status, self.status))
        return make_posterior(self.model, points, sites, outcome, "adf", before=self)

    def _marginals(self):
        """Those of the signal's location, of a batch those of each problem in turn."""
        mean = np.atleast_1d(self.mean)
        coordinates = ("mean",) if isinstance(self.mean, float) else name_coefficients(self.columns, mean.shape[-1])
        batch = range(len(mean)) if mean.ndim > 1 else ()
        names = tuple(f"problem {b}: {name}" for b in batch for name in coordinates) if batch else coordinates
        sd = np.broadcast_to(np.expand_dims(np.sqrt(self.variance), -1), mean.shape)
        return make_gaussian_marginals(names, mean.ravel(), sd.ravel())

    def __repr__(self) -> str:
        shape, problems, converged = self._sites.site_tau.shape, "", self.converged
        if len(shape) == 3:
            problems, converged = f"{shape[0]} problems of ", f"{np.sum(self.converged)} of {shape[0]}"
        with np.printoptions(precision=6, threshold=6, edgeitems=2):
            values = {name: np.asarray(getattr(self, name)) for name in ("mean", "variance", "log_evidence")}
            rows = [(name, np.array2string(value)) for name, value in values.items()]
        title = f"ClutterPosterior: {problems}{self.n_samples} points in {shape[-1]} dimension(s)"
        end = f"{converged} ({self.method}, {np.max(self.n_iter)} iterations)"
        return format_table(title, [*list_name_rows(self), *rows, ("converged", end)])
