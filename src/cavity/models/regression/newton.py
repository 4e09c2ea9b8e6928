"""Newton's method in place of sweeps, for linear regressions with few columns: a compiled loop."""

from functools import partial

import numpy as np

from cavity import _core
from cavity.base.constants import LOG_2PI
from cavity.base.loop import CONVERGED_STATUS, MAX_ITER_STATUS, STOPPED_STATUS, STUCK_STATUS
from cavity.base.special import binet
from cavity.distributions import Gamma
from cavity.mean_field.engine import MeanFieldFit

MAX_COLUMNS = 200  # up to which one thread of the compiled loop is faster than tiles of LAPACK
# of the kernel's state: evaluations, status, lambda, ELBO, two gains; then theta, proposal, gradient
HEAD_SIZE, N_VECTORS = 6, 3
STATUS_TEXTS = {0.0: MAX_ITER_STATUS, 1.0: CONVERGED_STATUS, 2.0: STUCK_STATUS}
SINGULAR_STATUS, NO_MEMORY_STATUS = 4.0, 5.0
kernel = _core.best("regression")


class NewtonAscent:
    """The ELBO of a linear regression as a function of the logarithms of the precisions, at its maximum.

    Parameters
    ----------
    sweeps : LinearSweeps
        The model and its data.
    factor, target : ndarray (D + 1, D), (D + 1,)
        The triangle of X and the column of y.
    """

    def __init__(self, sweeps, factor, target):
        self._model, self._prior, self.n_samples = sweeps.model, sweeps.prior, sweeps.n_samples
        self._factor, self._target = factor, target
        model, prior, size = self._model, self._prior, factor.shape[1]
        added = prior.added.size
        self._group, self._fixed = np.full(size, -1, dtype=np.int64), np.append(prior.added, np.ones(size - added))
        n_alpha, n_weights = 0, 1.0
        if not prior.is_learnt:
            self._fixed[added:] = prior.precisions
        else:
            n_alpha, n_weights = (prior.size, 1.0) if prior.ard else (1, float(prior.size))
            self._group[added:] = np.arange(n_alpha) if prior.ard else 0
        has_noise = model.noise_variance is None
        self._n_alpha, self._has_noise = n_alpha, has_noise
        noise = ((model.noise_shape, model.noise_rate, 0.5 * self.n_samples),) * has_noise
        parameters = np.array([(prior.shape, prior.rate, 0.5 * n_weights)] * n_alpha + [*noise]).reshape(-1, 3)
        self._prior_shapes, self._rates = np.ascontiguousarray(parameters[:, :2].T)
        self._shapes = self._prior_shapes + parameters[:, 2]

    def run(self, state, options):
        """Return the `MeanFieldFit` from a state (q(alpha), q(tau)), with mean and root of q(w).

        Parameters
        ----------
        state : tuple
            Where to start.
        options : AscentOptions
            The most evaluations and the stopping rule: the gain that Newton's step predicts.
        """
        job, size = options.job, self._factor.shape[1]
        arrays = self._restore(job, state, options.max_iter, size)
        numbers, mean, root, trace = (arrays[name] for name in ("numbers", "mean", "root", "trace"))
        tau = 0.0 if self._has_noise else 1.0 / self._model.noise_variance
        problem = self._factor, self._target, self._group, self._fixed, self._shapes, self._rates, tau
        constant, stopped = self._find_constant(tau), False
        most = 1 if job.has_receivers else options.max_iter
        while not stopped and numbers[1] == 0.0 and numbers[0] < options.max_iter:
            n_steps = min(most, options.max_iter - int(numbers[0]))
            kernel.climb(*problem, numbers, mean, root, trace, n_steps, options.tol * self.n_samples)
            self._check(numbers)
            job.store(partial(_copy_arrays, arrays))
            stopped = job.report(int(numbers[0]), objective=numbers[3] + constant, change=numbers[4])
        status = STOPPED_STATUS if stopped and numbers[1] == 0.0 else STATUS_TEXTS[numbers[1]]
        n_iter, count = int(numbers[0]), len(self._shapes)
        factors = self._make_factors(numbers[HEAD_SIZE : HEAD_SIZE + count])
        columns = {"elbo": trace[:n_iter, 0] + constant, "change": trace[:n_iter, 1].copy()}
        outcome = {"elbo": float(numbers[3] + constant), "predicted_gap": float(numbers[4]), "status": status}
        return MeanFieldFit(state=factors, image=None, n_iter=n_iter, trace=columns, **outcome), mean, root

    def _restore(self, job, state, max_iter, size):
        """Return the arrays of a checkpoint, or those of the beginning."""
        arrays = job.restore()
        if arrays is not None:
            return {name: np.array(array) for name, array in arrays.items()}
        count = len(self._shapes)
        alpha, noise = state
        means = [np.ravel(factor.mean) for factor in (alpha, noise) if factor is not None]
        numbers = np.zeros(HEAD_SIZE + N_VECTORS * count + count * count)
        numbers[HEAD_SIZE + count : HEAD_SIZE + 2 * count] = np.log(np.concatenate([np.zeros(0), *means]))
        return {
            "numbers": numbers,
            "mean": np.empty(size),
            "root": np.empty((size, size)),
            "trace": np.empty((max_iter, 2)),
        }

    def _find_constant(self, tau):
        """Return what the kernel leaves out of the ELBO.

        Of each Gamma factor log Gamma(s) - s log s + s, by Binet's remainder, and the constant of its prior.
        """
        priors, count = self._prior_shapes, len(self._shapes)
        remainders, logs = (f(np.concatenate([self._shapes, priors])) for f in (binet, np.log))
        factors = remainders[:count] - remainders[count:] - 0.5 * logs[:count]
        factors += priors * (np.log(self._rates) - logs[count:] + 1.0) + 0.5 * logs[count:]
        log_determinant = np.log(self._fixed[self._group < 0]).sum()
        noise = 0.0 if self._has_noise else self.n_samples * np.log(tau)
        return float(factors.sum() + 0.5 * (log_determinant + noise - self.n_samples * LOG_2PI))

    def _check(self, numbers):
        if numbers[1] == NO_MEMORY_STATUS:
            raise MemoryError("no memory for the matrices of a linear regression")
        if numbers[1] == SINGULAR_STATUS:
            raise np.linalg.LinAlgError("the precision of the weights is singular to rounding")
        if numbers[1] not in STATUS_TEXTS:
            raise ArithmeticError(f"the ELBO of pass {int(numbers[0])} is not finite")

    def _make_factors(self, theta):
        """Return q(alpha) and q(tau) with these logarithms of their means, None for a known one."""
        rates, n_alpha = self._shapes / np.exp(theta), self._n_alpha
        alpha = noise = None
        if n_alpha:
            one = not self._prior.ard
            shape, rate = self._shapes[:n_alpha], rates[:n_alpha]
            alpha = Gamma(float(shape[0]), float(rate[0])) if one else Gamma(shape, rate)
        if self._has_noise:
            noise = Gamma(float(self._shapes[-1]), float(rates[-1]))
        return alpha, noise


def _copy_arrays(arrays):
    """Return copies, as the kernel changes the arrays."""
    return {name: array.copy() for name, array in arrays.items()}
