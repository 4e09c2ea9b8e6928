"""What both Gaussian processes share: settings, and how the parameters of a kernel are learnt."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from operator import itemgetter

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels
from sklearn.utils import check_random_state

from cavity.base import arrays
from cavity.base.errors import warn
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.covariances import Covariance
from cavity.covariances.program import ReferenceRows, get_program
from cavity.jobs.job import Job
from cavity.runs.executors import single_blas
from cavity.sklearn.base import Estimator, UnfinishedWarning, is_verbose
from cavity.sklearn.gp import kernels as own_kernels


def check_settings(estimator):
    """Raise ValueError or TypeError for a setting outside its domain."""
    if estimator.kernel is not None:
        own_kernels.check_kernel(estimator.kernel)
    if estimator.optimizer is not None and not callable(estimator.optimizer):
        arrays.check_choice(estimator.optimizer, "optimizer", ("fmin_l_bfgs_b",))
    arrays.check_integer(estimator.n_restarts_optimizer, "n_restarts_optimizer", low=0)
    arrays.check_flag(estimator.copy_X_train, "copy_X_train")
    is_verbose(estimator)


class FittedRows(ReferenceRows):
    """The rows of a fit, with which others are compared, and its kernel, also as a covariance."""

    def __init__(self, kernel, linked, X):
        super().__init__(get_program(linked.covariance, X.shape[1]), X)
        self.kernel, self.linked = kernel, linked

    def __reduce__(self):
        return FittedRows, (self.kernel, self.linked, self.Z)


class Learner(Estimator):
    """An estimator with a kernel.

    A subclass has ``_evidence(covariance, eval_gradient)``, which returns the log evidence and on request its gradient
    in the log parameters, and ``_search(loss, start, bounds)``, the built-in optimizer: where it ended, the loss there,
    and why it ended early, if it did.
    """

    def _own_kernel(self, fixed):
        """Return a kernel to learn: a copy of the given one, or the default, of which the parameters may be fixed."""
        if self.kernel is None:
            bounds = "fixed" if fixed else (1e-5, 1e5)
            return kernels.ConstantKernel(1.0, bounds) * kernels.RBF(1.0, bounds)
        return self.kernel if isinstance(self.kernel, Covariance) else clone(self.kernel)

    @single_blas()
    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> tuple[float, FloatArray]:
        """Log evidence of the training data, at other parameters of the kernel too.

        Parameters
        ----------
        theta : array_like, shape (n,), optional
            Logs of what is learnt, as in ``kernel_.theta`` (of a covariance of `cavity`, ``log_parameters``); those
            of the fit if None.
        eval_gradient : bool, default False
            Whether the gradient in theta is returned, too; theta must be given then.
        clone_kernel : bool, default True
            Whether ``kernel_`` stays as it is; otherwise it gets the parameters.

        Returns
        -------
        log_likelihood : float
            The log evidence in nats; -inf where the matrix is not positive definite.
        gradient : ndarray, shape (n,)
            Only if `eval_gradient`.

        Raises
        ------
        ValueError
            If there are too few or too many entries in theta, or none where the gradient is requested.
        """
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None; pass theta, such as kernel_.theta")
            return self.log_marginal_likelihood_value_
        theta = arrays.check_finite_array(theta, "theta", ndim=(1,))
        kernel = own_kernels.with_theta(self.kernel_, theta)
        if not clone_kernel:
            self.kernel_ = kernel
        linked = own_kernels.link_kernel(kernel, self.X_train_.shape[1])
        value, gradient = self._evidence(linked.covariance, bool(eval_gradient))
        value = np.float64(value)  # which keeps its digits in arithmetic with numpy's float32
        return (value, linked.in_theta(gradient, theta.size)) if eval_gradient else value

    def _learn(self, linked):
        """Set ``kernel_`` to the parameters with the largest evidence (times prior) of all runs of the optimizer.

        `linked` are the links of the kernel as it is; those of the one found are returned.
        """
        start = own_kernels.theta_of(self.kernel_)
        if self.optimizer is None or start.size == 0:
            return linked
        bounds = own_kernels.bounds_of(self.kernel_)
        starts = [start]
        if self.n_restarts_optimizer > 0:
            if not np.isfinite(bounds).all():
                raise ValueError(
                    "Multiple optimizer restarts (n_restarts_optimizer>0) requires that all bounds are finite."
                )
            rng = check_random_state(self.random_state)
            starts += [rng.uniform(*bounds.T) for _ in range(self.n_restarts_optimizer)]
        with Job.checked(progress=is_verbose(self)) as job:
            begun = job.iterate_stages("search", starts, len(starts), "search")
            theta, _ = min((self._descend(linked, theta0, bounds, stage) for theta0, stage in begun), key=itemgetter(1))
        self.kernel_, linked = own_kernels.with_theta(self.kernel_, theta), self._moved(linked, theta)
        own_kernels.warn_at_bounds(self.kernel_)
        return linked

    def _moved(self, linked, theta):
        """Return the links of the kernel with another theta."""
        if isinstance(self.kernel_, Covariance):
            return replace(linked, covariance=linked.covariance.with_log_parameters(theta))
        return linked.at(arrays.check_shaped(theta, "theta", (linked.n_theta,)))

    def _descend(self, linked, start, bounds, job):
        """Return where a run of the optimizer from a start ended, and the loss there; the job gets the evaluations."""
        number = count(1)

        def evaluate(theta, eval_gradient=True):
            value = self._loss(linked, theta, eval_gradient)
            job.report(next(number), objective=-(value[0] if eval_gradient else value))
            return value

        if callable(self.optimizer):
            return self.optimizer(evaluate, start, bounds=bounds)
        theta, loss, message = self._search(evaluate, start, bounds)
        if message:
            warn(f"the search for the parameters of the kernel ended early: {message}", UnfinishedWarning)
        return theta, loss

    def _loss(self, linked, theta, eval_gradient):
        """Return minus the log of evidence times prior and, on request, its gradient."""
        covariance = self._moved(linked, theta).covariance
        value, slope = self._evidence(covariance, bool(eval_gradient))
        prior, prior_slope = covariance.log_prior()
        value = -np.float64(value) - prior
        return (value, -linked.in_theta(slope + prior_slope, len(theta))) if eval_gradient else value


def centre_and_scale(y, weight=None):
    """Return mean and standard deviation of targets (N,) or (N, T), which is 1 where they are all the same."""
    power = np.frexp(np.max(np.abs(y), axis=0))[1]  # squares may leave the range of float64
    scaled = np.ldexp(y, -power)
    mean = np.average(scaled, axis=0, weights=weight)
    spread = np.ldexp(np.sqrt(np.average((scaled - mean) ** 2, axis=0, weights=weight)), power)
    return np.ldexp(mean, power), np.where(np.ptp(scaled, axis=0) == 0, 1.0, spread)
