"""Factorised approximation of a Gaussian by coordinate ascent: what mean field does to a posterior that is known.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.argument_names import explain_arguments
from cavity.base.constants import LOG_2PI
from cavity.base.loop import CONVERGED_STATUS, STUCK_STATUS, estimate_passes_left
from cavity.base.public_objects import ArrayLike, FloatOrArray, Frozen, set_fields
from cavity.base.results import format_table
from cavity.jobs.job import Event, Job
from cavity.mean_field import engine
from cavity.mean_field.options import AscentOptions
from cavity.models.factorized.posterior import FactorizedGaussianPosterior, Marginals, check_points
from cavity.models.factorized.target import (
    WhitenedTarget,
    compute_contraction_rate,
    compute_true_marginals,
    prepare_target,
)
from cavity.runs.executors import single_blas

_kernel = _core.best("factorized")

FARTHEST_START = 1e140  # standard deviations from the mean: the square of it, times D^2, is within float64


@dataclass(frozen=True, eq=False, repr=False)
class FactorizedGaussian(Frozen):
    """A Gaussian p(z) = N(mean, precision^-1) to be approximated by q(z) = prod_B q_B(z_B) over blocks of coordinates.

    Minimising KL(q || p) over all such q gives Gaussian factors [B]_: ``q_B = N(m_B, Lambda_BB^-1)`` with the precision
    Lambda of p and means that solve the re-estimation equations of `fit`. Their only solution is the mean of p.

    Parameters
    ----------
    mean : float or array_like (D,)
        Mean of p.
    precision : array_like, shape (D, D)
        Lambda, the inverse covariance of p: symmetric (up to rounding) and positive definite. A float64 matrix in C or
        Fortran order is not copied, so it must not be changed as long as this object is in use.
    blocks : sequence of lists of int, optional
        Every coordinate in one block; blocks are renewed in this order. If None, each coordinate is a block.

    Attributes
    ----------
    mean : ndarray (D,)
        Mean of p.
    precision : ndarray (D, D)
        Lambda.
    blocks : None or tuple of tuple of int
        The blocks.

    Raises
    ------
    ValueError, TypeError
        For wrong shapes, values that are not finite, a matrix that is not symmetric (naming the entry), or blocks that
        overlap, are empty, or miss a coordinate (naming it).
    MemoryError
        If the precision does not fit into the memory of the machine; the message says how many bytes it needs.
    NotPositiveDefiniteError
        If the precision is not positive definite, naming the coordinate where its Cholesky factorisation fails.
    OverflowError
        If a variance is beyond float64.

    Notes
    -----
    Symmetry is checked tile by tile. Positive definiteness is checked, and `kl_minimum` found, by a Cholesky
    factorisation of the matrix scaled to a unit diagonal: D^3/3 operations on one copy that is then freed, shared by as
    many threads as the process may use, at most CAVITY_NUM_THREADS. With blocks, one more copy stays, in coordinates in
    which the diagonal blocks are identities.

    References
    ----------
    .. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.2.

    Examples
    --------
    >>> import cavity
    >>> model = cavity.FactorizedGaussian([1.0, 2.0], [[1.0, 0.9], [0.9, 1.0]])
    >>> posterior = model.fit()
    >>> posterior.mean.round(6).tolist(), posterior.variance.tolist()
    ([1.0, 2.0], [1.0, 1.0])
    >>> round(posterior.contraction, 6), round(posterior.theoretical_contraction, 6), round(posterior.kl, 6)
    (0.81, 0.81, 0.830366)
    >>> model.marginals.variance.round(6).tolist()  # q is too narrow
    [5.263158, 5.263158]
    """

    mean: FloatOrArray
    precision: FloatOrArray
    blocks: Sequence[Any] | None = None
    _target: WhitenedTarget = field(init=False, compare=False)

    def __post_init__(self) -> None:
        precision = arrays.check_symmetric(self.precision, "precision", copy=False)
        size = len(precision)
        blocks = None if self.blocks is None else arrays.check_partition(self.blocks, "blocks", size)
        mean, precision = (
            arrays.copy_read_only(arrays.check_vector(self.mean, "mean", size)),
            arrays.make_read_only(precision.view()),
        )
        with single_blas():
            target = prepare_target(precision, blocks)
        blocks = None if blocks is None else tuple(tuple(block.tolist()) for block in blocks)
        set_fields(self, mean=mean, precision=precision, blocks=blocks, _target=target)

    def __repr__(self) -> str:
        return format_table(
            "FactorizedGaussian",
            [("coordinates", len(self.mean)), ("blocks", self.n_blocks), ("kl_minimum", f"{self.kl_minimum:.6f}")],
        )

    @property
    def n_blocks(self) -> int:
        """The number of factors of q."""
        return len(self.mean if self.blocks is None else self.blocks)

    @property
    def kl_minimum(self) -> float:
        """KL(q || p) of the best q, (sum_B log|Lambda_BB| - log|Lambda|)/2, in nats."""
        return self._target.kl_minimum

    @cached_property
    def theoretical_contraction(self) -> float:
        """The factor by which errors of the means shrink per sweep in the long run, a number below 1.

        It is the spectral radius of the block Gauss-Seidel iteration; for two coordinates
        ``Lambda_12^2/(Lambda_11 Lambda_22)``. Computed when first read: up to 512 coordinates from all
        eigenvalues, beyond by Arnoldi's method, which takes the time of some hundreds of sweeps and more.

        Raises
        ------
        ArithmeticError
            If Arnoldi's method does not converge.
        """
        with single_blas():
            return compute_contraction_rate(self._target, lambda z: _kernel.sweep(self._target.matrix, z))

    @cached_property
    def marginals(self) -> Any:
        """`Marginals`, the factors that minimise KL(p || q) instead: the true marginals of p (eq. 10.17 of the book).

        Computed when first read, in D^3 operations on a copy of the matrix.
        """
        with single_blas():
            variance, covariances, divergence, reverse = compute_true_marginals(self._target)
        return Marginals(self.mean, arrays.make_read_only(variance), divergence, reverse, covariances)

    def log_density(self, z: ArrayLike) -> FloatOrArray:
        """Return log p(z), normalised.

        Parameters
        ----------
        z : array_like, shape (D,) or (n, D)
            Points.

        Returns
        -------
        float or ndarray (n,)
            One log density a point.
        """
        deviation = check_points(z, len(self.mean)) - self.mean
        constant = self._target.log_root - self.kl_minimum - 0.5 * len(self.mean) * LOG_2PI
        return constant - 0.5 * np.sum(deviation * (deviation @ self.precision), axis=-1)

    def fit(
        self,
        *,
        initial_mean: ArrayLike | None = None,
        accelerate: bool | Literal["anderson", "squarem"] = False,
        max_iter: int = 1000,
        tol: float = 1e-20,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
    ) -> FactorizedGaussianPosterior:
        """Approximate p by coordinate ascent, block by block.

        A sweep renews all blocks in their order [B]_, eqs. (10.13) and (10.15)::

            m_B = mean_B - Lambda_BB^-1 sum_{C != B} Lambda_BC (m_C - mean_C)

        Parameters
        ----------
        initial_mean : float or array_like (D,), optional
            Means to start from. If None, one standard deviation of q above the mean of p, in every coordinate.
        accelerate : bool or {"anderson", "squarem"}, default False
            Whether and how to extrapolate from the last sweeps (`cavity.mean_field.fit`); False is the textbook's
            algorithm.
        max_iter : int, default 1000
            Most sweeps.
        tol : float, default 1e-20
            Stopping rule: KL(q || p) is at most tol nats above its minimum, which is known. With the default, the error
            of the means is some 1e-10 standard deviations of p.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what
            is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.

        Returns
        -------
        FactorizedGaussianPosterior
            The frozen approximation.

        Raises
        ------
        ValueError, TypeError
            For bad options, or a start more than 1e140 standard deviations away.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; the posterior is returned all the same, with ``converged=False``.

        Notes
        -----
        The iteration is on deviations from the mean of p, which keep all digits however small they get. The energy
        ``e' Lambda e/2`` of deviations e is what KL(q || p) exceeds its minimum by; a sweep computes it from the same
        products as the new means, and reads half of the matrix. It never rises, since a block moved by d lowers it by
        exactly ``d' Lambda_BB d/2``.

        References
        ----------
        .. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.2.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> n = 200
        >>> precision = 2.1 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        >>> model = cavity.FactorizedGaussian(0.0, precision)
        >>> plain, fast = model.fit(), model.fit(accelerate=True)
        >>> plain.converged, fast.converged, plain.n_iter > 3 * fast.n_iter
        (True, True, True)
        >>> whole = cavity.FactorizedGaussian(0.0, precision, blocks=[range(n)]).fit()
        >>> whole.kl, whole.mean.tolist() == [0.0] * n
        (0.0, True)
        """
        job = Job.checked(callback, progress)
        options = AscentOptions(accelerate=accelerate, max_iter=max_iter, tol=tol, job=job)
        start = self._start(initial_mean)
        sweeps = FactorizedSweeps(self._target)

        with single_blas(), options.job:
            done = engine.ascend(sweeps, start, replace(options, tol=0.0, job=_MinimumJob(options, self.kl_minimum)))
            mean = self.mean + self._target.deviations(done.state * sweeps.unit)
        outcome = engine.report_outcome(_compare_with_minimum(done, self.kl_minimum, options), 1, options)
        return FactorizedGaussianPosterior(model=self, mean=mean, **outcome)

    def _start(self, initial_mean):
        """Where the iteration starts, in the coordinates of `FactorizedSweeps`."""
        scale = self._target.scale
        if initial_mean is None:
            deviation = 1.0 / scale
        else:
            initial = arrays.check_vector(initial_mean, "initial_mean", len(scale))
            with np.errstate(over="ignore"):
                deviation = initial - self.mean
                far = ~(np.abs(deviation * scale) <= FARTHEST_START)
            if far.any():
                i = int(np.argmax(far))
                raise ValueError(
                    f"initial_mean must be within {FARTHEST_START:g} standard deviations 1/sqrt(precision[i, i]) of "
                    f"mean, got initial_mean[{i}] = {initial[i]}"
                )
        return self._target.standard(deviation) / np.sqrt(self._target.diagonal)


explain_arguments(FactorizedGaussian)  # with the constructor that dataclass has made


class _MinimumJob(Job):
    """The job of a fit whose largest ELBO is known: it also stops where that is near enough."""

    __slots__ = ("_gap", "_options", "_smallest")

    def __init__(self, options, kl_minimum):
        super().__init__()
        self._options, self._smallest, self._gap = options, kl_minimum, np.inf

    def report(self, n_iter, *, objective, **figures):
        """As of any job, where `objective` is the ELBO less its maximum."""
        options, (before, self._gap) = self._options, (self._gap, -objective)

        def left():
            return estimate_passes_left(self._gap, options.tol, self._gap / before, options.max_iter - n_iter)

        figures |= {"objective": objective - self._smallest, "left": left}
        return options.job.report(n_iter, **figures) or self._gap <= options.tol


def _compare_with_minimum(done, kl_minimum, options):
    """Return the engine's `MeanFieldFit` of `FactorizedSweeps` in terms of KL(q || p), whose minimum is known.

    How far the ELBO is below its maximum needs no prediction here. Rates are the last ones measured, where sweeps were
    plain; the engine's is the largest of several, which the first steps still shape.
    """
    excess = 0.0 - done.trace["elbo"]
    kl = kl_minimum + excess
    gap, status = float(excess[-1]), done.status
    if gap <= options.tol or done.converged:
        status = CONVERGED_STATUS if gap <= options.tol else STUCK_STATUS
    rates = done.trace["contraction"]
    measured_rates = rates[~np.isnan(rates)]
    rate = done.contraction if options.accelerate or not measured_rates.size else float(measured_rates[-1])
    trace = done.trace | {"elbo": -kl, "kl": kl, "excess": excess}
    return replace(done, elbo=-float(kl[-1]), status=status, trace=trace, contraction=rate, predicted_gap=gap)


class FactorizedSweeps:
    """The fit as the engine sees it: deviations in the units of the matrix, and the ELBO less its maximum."""

    n_samples, n_rows = 1, None

    def __init__(self, target):
        self._matrix = target.matrix
        self.unit = np.sqrt(target.diagonal)

    def sweep(self, z):
        image = z.copy()
        energy = _kernel.sweep(self._matrix, image)
        return image, -energy

    def coordinates(self, z):
        """In standard deviations natural parameters and means are the same."""
        u = z * self.unit
        return u, u

    def at(self, natural, z):
        return natural / self.unit
