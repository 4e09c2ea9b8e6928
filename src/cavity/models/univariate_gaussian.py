"""A Gaussian sample of unknown mean and precision by mean field, beside the exact posterior.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.3. In (10.29) the
   shape is a_0 + (N + 1)/2; early printings have N/2.
"""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.base.loop import warn_unconverged
from cavity.base.records import NUMBER, POSITIVE, Made, Record, integer
from cavity.base.results import OUTCOME, TRACE, VariationalPosterior, table
from cavity.base.special import log_gamma_ratio
from cavity.distributions import Gamma
from cavity.distributions.divergence import kl
from cavity.distributions.factors import coordinates, towards
from cavity.distributions.gaussian import Gaussian
from cavity.mean_field import engine

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnivariateGaussian:
    """Gaussian data whose mean mu and precision tau are both unknown [B]_.

    The model is::

        x_n ~ N(mu, 1/tau),   mu | tau ~ N(prior_mean, 1/(prior_count tau)),   tau ~ Gamma(prior_shape, prior_rate)

    and the approximation q(mu) q(tau). The prior is conjugate, so the exact posterior and evidence are known too.

    Parameters
    ----------
    prior_mean : float, default 0.0
        mu_0.
    prior_count : float, default 1e-3
        lambda_0: how many observations the prior mean is worth.
    prior_shape, prior_rate : float, default 1e-3
        a_0 and b_0 of the Gamma prior of tau.

    Raises
    ------
    ValueError, TypeError
        For a setting outside its domain, naming it.

    References
    ----------
    .. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.3.

    Examples
    --------
    >>> import cavity
    >>> model = cavity.UnivariateGaussian(prior_count=1.0, prior_shape=1.0, prior_rate=1.0)
    >>> posterior = model.fit([0.5, 1.5, 1.0, 2.2])
    >>> round(posterior.mean.mean, 6), round(posterior.precision.mean, 6)
    (1.04, 1.216545)
    >>> round(posterior.elbo, 6), round(posterior.log_evidence - posterior.elbo, 6)
    (-6.576125, 0.081007)
    """

    prior_mean: float = 0.0
    prior_count: float = 1e-3
    prior_shape: float = 1e-3
    prior_rate: float = 1e-3

    def __post_init__(self):
        object.__setattr__(self, "prior_mean", arrays.number(self.prior_mean, "prior_mean"))
        for name in ("prior_count", "prior_shape", "prior_rate"):
            object.__setattr__(self, name, arrays.number(getattr(self, name), name, low=0))

    def fit(self, x, *, accelerate=True, max_iter=1000, tol=1e-14, callback=None):
        """Approximate the posterior of mean and precision by coordinate ascent.

        Parameters
        ----------
        x : array_like (N,)
            The sample.
        accelerate : bool or {"anderson", "squarem"}, default True
            How to extrapolate from the last sweeps (`cavity.mean_field.fit`).
        max_iter : int, default 1000
            Most sweeps.
        tol : float, default 1e-14
            Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per observation.
        callback : callable, optional
            Called as callback(n_iter, elbo) after each sweep; a true result stops the fit.

        Returns
        -------
        UnivariateGaussianPosterior
            The frozen posterior.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work.
        OverflowError
            If the data are so large or small that sums of squares leave the range of float64.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met.

        Examples
        --------
        See `UnivariateGaussian`.
        """
        x = arrays.data_array(x, "x", ndim=(1,)).astype(np.float64)
        options = engine.check_options(accelerate, max_iter, tol)
        sweeps = _Sweeps(self, x)
        done = engine.fit(sweeps, sweeps.start(), **options, callback=callback)
        warn_unconverged(done.status, done.predicted_gap / len(x), tol, max_iter)
        return UnivariateGaussianPosterior(
            model=self,
            mean=sweeps.mean(done.state),
            precision=done.state,
            log_evidence=sweeps.log_evidence(),
            n_samples=len(x),
            **VariationalPosterior.outcome(done),
        )


class _Sweeps:
    """The engine's view: the state is q(tau); q(mu) is the best one for it, eqs. (10.26) and (10.27)."""

    def __init__(self, model, x):
        self._model, self.n_samples = model, len(x)
        self._count = model.prior_count + len(x)
        centre = np.mean(x)
        # the mean as a step from the sample's centre, and the squares around the best mean
        self._best = centre + (model.prior_mean - centre) * (model.prior_count / self._count)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.sum((x - centre) ** 2)
            squares += model.prior_count * len(x) / self._count * (centre - model.prior_mean) ** 2
        self._squares = float(within_range(squares, "x: the squares"))
        self._prior = Gamma(model.prior_shape, model.prior_rate)

    def start(self):
        return self._renewed(0.0)

    def _renewed(self, spread):
        """Return the best q(tau) if the mean has E[(mu - best)^2] = spread, eqs. (10.29) and (10.30)."""
        shape = self._model.prior_shape + 0.5 * (self.n_samples + 1)
        return Gamma(shape, self._model.prior_rate + 0.5 * (self._squares + self._count * spread))

    def mean(self, precision):
        return Gaussian.from_moments(self._best, 1.0 / (self._count * precision.mean))

    def sweep(self, precision):
        spread = 1.0 / (self._count * precision.mean)
        log_tau = precision.statistics[0]
        misfit = self._squares + self._count * spread
        elbo = 0.5 * ((self.n_samples + 1) * (log_tau - LOG_2PI) + np.log(self._model.prior_count))
        elbo += 0.5 * (1.0 + LOG_2PI + np.log(spread)) - 0.5 * precision.mean * misfit
        return self._renewed(spread), float(elbo - kl(precision, self._prior))

    def coordinates(self, precision):
        return coordinates([precision])

    def at(self, natural, precision):
        found = towards([precision], natural)
        return found and found[0]

    def log_evidence(self):
        """log p(x), the Normal-Gamma evidence."""
        model, half, rise = self._model, 0.5 * self.n_samples, 0.5 * self._squares
        small, log_rate = rise < model.prior_rate, np.log(model.prior_rate + rise)
        growth = np.log1p(rise / model.prior_rate) if small else log_rate - np.log(model.prior_rate)
        return float(
            log_gamma_ratio(model.prior_shape, half)
            - model.prior_shape * growth
            - half * (log_rate + LOG_2PI)
            + 0.5 * np.log(model.prior_count / self._count)
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class UnivariateGaussianPosterior(VariationalPosterior):
    """The approximate posterior of a `UnivariateGaussian` fit.

    Attributes
    ----------
    model : UnivariateGaussian
        The settings.
    mean : Gaussian
        q(mu).
    precision : Gamma
        q(tau).
    log_evidence : float
        log p(x) exactly, in nats; `elbo` is below it by KL(q || posterior).
    n_samples : int
        N.
    elbo : float
        The evidence lower bound, in nats.
    converged : bool
        Whether the stopping rule was met.
    status : str
        Why the iteration ended.
    n_iter : int
        Sweeps.
    trace : dict of ndarray
        Per sweep: "elbo", "change" (nats), "contraction".
    contraction : float or None
        The measured rate at which errors shrink per sweep; None if nothing was there to shrink.
    predicted_gap : float
        How far the ELBO is below its optimum by that rate, in nats.
    """

    model: UnivariateGaussian
    mean: Gaussian
    precision: Gamma
    log_evidence: float
    n_samples: int

    kind = "univariate_gaussian"
    record = Record(
        TRACE,
        OUTCOME
        | {
            "model": {"prior_mean": NUMBER, "prior_count": POSITIVE, "prior_shape": POSITIVE, "prior_rate": POSITIVE},
            "mean": Made(lambda given: Gaussian(*given), [NUMBER, POSITIVE], lambda q: [q.tau, q.rho]),
            "precision": Made(lambda given: Gamma(*given), [POSITIVE, POSITIVE], lambda q: [q.shape, q.rate]),
            "log_evidence": NUMBER,
            "n_samples": integer(1),
        },
    )

    def __repr__(self):
        rows = [
            ("mean", f"{self.mean.mean:.6g} +- {np.sqrt(self.mean.variance):.3g}"),
            ("precision", f"{self.precision.mean:.6g} +- {np.sqrt(self.precision.variance):.3g}"),
        ]
        return table(f"UnivariateGaussianPosterior: {self.n_samples} points", [*rows, *self.outcome_rows()])
