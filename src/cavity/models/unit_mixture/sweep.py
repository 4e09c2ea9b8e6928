"""Sweeps of a unit mixture for the mean-field engine: one fused pass over the blocks of the data each.

q(theta_k) = N(m_k, 1/rho_k); q(z_n) is the softmax over k [B]_ (26) of ::

    log w_k - log(2 pi s)/2 - ((y_n - m_k)^2 + 1/rho_k)/(2 s),      s the noise variance.

It is never stored: a sweep needs N_k = sum_n r_nk, D_k = sum_n r_nk (y_n - m_k) and, to learn s,
Q = sum_nk r_nk (y_n - m_k)^2. Differences to m_k keep all digits wherever the data lie.

References
----------
.. [B] David Blei, Alp Kucukelbir and Jon McAuliffe, "Variational inference: a review for statisticians", Journal of the
   American Statistical Association 112, 2017, section 3.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity import _core
from cavity.base.observation_digest import ObservationDigest
from cavity.runs.passes import reduce_runs

_kernel = _core.best("unit_mixture")

LEARNABLE_SETTINGS = ("prior_variance", "weights", "noise_variance")
MIN_NOISE_SD_SHARE = 1e-13  # of the range of the data: below, the data are the component means but for rounding
EPSILON_64 = 2.0**-52
MIN_NOISE_SD = 1e-148  # a variance below its square has no inverse to compute with, even of data that are all zero
MAX_CALL_WORK = 1 << 26  # most weights of points in a call, unless a block has more: some 30 ms
MIN_WEIGHT = 1e-300  # a weight of zero has no finite logarithm to extrapolate


@dataclass(frozen=True, slots=True)
class UnitMixtureState:
    """q(theta) and the point estimates of the settings; `counts` are the N_k that led here."""

    mean: np.ndarray
    precision: np.ndarray
    prior_mean: np.ndarray
    prior_variance: np.ndarray
    weights: np.ndarray
    noise_variance: float
    counts: np.ndarray

    def constants(self):
        """Return the constants (c_k, h) of the log weights of points, see `constants`."""
        return compute_constants(self.precision, self.weights, self.noise_variance)

    def divergence(self):
        """KL(q(theta) || p(theta)), summed over the components."""
        with np.errstate(over="ignore"):
            gain = self.precision * self.prior_variance
        ratio = 1.0 / gain
        fine = np.isfinite(gain)  # else the product leaves float64, its log does not
        log_ratio = np.log(np.where(fine, ratio, 1.0))
        log_ratio = np.where(fine, log_ratio, -np.log(self.precision) - np.log(self.prior_variance))
        distance = (self.mean - self.prior_mean) ** 2 / self.prior_variance
        return 0.5 * float(np.sum(distance + (ratio - 1.0 - log_ratio)))


def compute_constants(precision, weights, noise_variance):
    """Return (c_k, h): the log weight of a point under a component is c_k - h (y - m_k)^2."""
    h = 0.5 / noise_variance
    with np.errstate(divide="ignore"):  # a weight may be zero
        log_weights = np.log(weights)
    return log_weights - 0.5 * np.log(2 * np.pi * noise_variance) - h / precision, h


@dataclass(frozen=True, slots=True)
class DataExtent:
    """Where the data lie."""

    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    digest: ObservationDigest | None = None

    def finest(self):
        """Return the smallest noise variance that differs from zero in the digits of the data."""
        return (
            max(MIN_NOISE_SD_SHARE * (self.high - self.low), EPSILON_64 * max(-self.low, self.high), MIN_NOISE_SD) ** 2
        )


class UnitMixtureSweeps:
    """The model of `mean_field.engine`: whole sweeps over a source of blocks, and steps on minibatches."""

    def __init__(self, n_samples, learn, source=None, threads=None, extent=DataExtent()):
        self.n_samples, self.n_rows, self._learn = n_samples, n_samples, learn
        self._source, self._threads = source, threads  # not needed for minibatches
        self._origin = extent.mean  # coordinates are measured from here: far from zero they would lose digits
        self._finest = extent.finest()

    def sweep(self, state):
        """Return the state after one sweep, and the ELBO of the state before it."""
        arguments = (state.mean, *state.constants(), "noise_variance" in self._learn)
        grain = max(1, MAX_CALL_WORK // (self._source.block_rows * len(state.mean)))
        sums = reduce_runs(sum_run, arguments, [self._source], self._threads, grain=grain)
        # ELBO = sum_n log sum_k exp(log weight of n under k) - sum_k KL(q(theta_k) || p(theta_k))
        return self.update(state, sums), float(sums[-2]) - state.divergence()

    def update(self, state, sums):
        """Return the state that maximises the ELBO given statistics of the responsibilities."""
        new, deviations = self._update_means(state, sums[: 2 * len(state.mean)])
        changes = self._update_settings(new, new.mean - state.mean, deviations, sums[-1])
        if "noise_variance" in changes:
            self._check_noise(changes["noise_variance"])
        return replace(new, **changes)

    def _update_means(self, state, sums):
        """Return the state with the best q(theta) given N_k and D_k, and these D_k."""
        counts, deviations = np.split(sums, 2)
        precision = 1.0 / state.prior_variance + counts / state.noise_variance  # rho_k = 1/s2 + N_k/s, [B]_ (34)
        pull = (state.prior_mean - state.mean) / state.prior_variance + deviations / state.noise_variance
        shift = pull / precision  # m_k = (m_0/s2 + sum_n r_nk y_n/s)/rho_k (34), as a step from the old m_k
        # as a step from the prior mean where that has the larger precision: the step is then the shorter
        step = (deviations + counts * (state.mean - state.prior_mean)) / state.noise_variance / precision
        from_prior = 1.0 / state.prior_variance > counts / state.noise_variance
        mean = np.where(from_prior, state.prior_mean + step, state.mean + shift)
        return replace(state, mean=mean, precision=precision, counts=counts), deviations

    def _update_settings(self, state, shift, deviations, squares):
        """Return the settings to learn that are best given q(theta), `shift` away from where D_k and Q are measured."""
        changes, counts = {}, state.counts
        if "prior_variance" in self._learn:
            spread = np.mean((state.mean - state.prior_mean) ** 2 + 1.0 / state.precision)  # mean_k E (theta_k - m_0)^2
            changes["prior_variance"] = np.full(len(counts), spread)
        if "weights" in self._learn:
            changes["weights"] = counts / np.sum(counts)  # N_k/N
        if "noise_variance" in self._learn:
            # the mean of r_nk E (y_n - theta_k)^2, with Q about the old means
            squares = squares + np.sum(shift * (counts * shift - 2 * deviations) + counts / state.precision)
            changes["noise_variance"] = float(squares / np.sum(counts))
        return changes

    def _check_noise(self, variance):
        """Raise ArithmeticError if a learnt noise variance has gone to zero."""
        if not variance > self._finest:
            raise ArithmeticError(
                "the learnt noise_variance has fallen to zero but for rounding: the data have no more different values "
                "than there are components; give noise_variance, or fit fewer components"
            )

    def estimate(self, state, y):
        """Return the optimal state if all data were like the batch `y`.

        Its settings are optimal for the old q(theta): the new means, of few rows, are too close to these rows.
        """
        c, h = state.constants()
        sums = self.n_samples / len(y) * compute_row_sums(y, state.mean, c, h, "noise_variance" in self._learn)
        new, deviations = self._update_means(state, sums[: 2 * len(state.mean)])
        return replace(new, **self._update_settings(replace(state, counts=new.counts), 0.0, deviations, sums[-1]))

    def blend(self, state, estimate, step):
        """Return the state part of the way to an estimate: averages of statistics, so that they stay unbiased."""

        def between(name):
            return (1.0 - step) * getattr(state, name) + step * getattr(estimate, name)

        precision = between("precision")
        # the natural parameters of q(theta), measured from the old mean
        shift = step * estimate.precision * (estimate.mean - state.mean) / precision
        settings = {name: between(name) for name in (*LEARNABLE_SETTINGS, "counts")}
        if "noise_variance" in self._learn:
            self._check_noise(settings["noise_variance"])
        return replace(estimate, mean=state.mean + shift, precision=precision, **settings)

    def coordinates(self, state):
        """Return natural parameters and expected statistics, flat.

        A point estimate counts as a factor too: that of the observations it is estimated from, K of theta for the
        prior variance, N of y for the noise variance and the weights.
        """
        mean, variance = state.mean - self._origin, 1.0 / state.precision
        natural = [state.precision * mean, state.precision]
        statistics = [mean, -0.5 * (mean**2 + variance)]
        for name in self._learn:
            value = state.weights if name == "weights" else np.atleast_1d(getattr(state, name))[:1]
            natural.append(np.log(np.maximum(value, MIN_WEIGHT)) if name == "weights" else -0.5 / value)
            statistics.append((len(mean) if name == "prior_variance" else self.n_samples) * value)
        return np.concatenate(natural), np.concatenate(statistics)

    def at(self, natural, state):
        """Return the state with the given natural parameters, or None where one is out of its domain."""
        k = len(state.mean)
        tau, precision, rest = natural[:k], natural[k : 2 * k], natural[2 * k :]
        with np.errstate(divide="ignore", over="ignore"):  # variances that are infinite are outside of the domain
            variances, changes = -0.5 / rest, {}
        if "prior_variance" in self._learn:
            changes["prior_variance"], rest = np.full(k, variances[0]), rest[1:]
        if "weights" in self._learn:
            weights, rest = np.exp(rest[:k] - np.max(rest[:k])), rest[k:]
            changes["weights"] = weights / np.sum(weights)
        if "noise_variance" in self._learn:
            changes["noise_variance"] = float(variances[-1])
        positive = [precision, *(changes[name] for name in ("prior_variance", "noise_variance") if name in changes)]
        if not all(np.all((part > 0) & np.isfinite(part)) for part in positive):
            return None
        return replace(state, mean=self._origin + tau / precision, precision=precision, **changes)


def sum_run(run, arguments):
    """A task: `compute_row_sums` of a run of blocks."""
    return compute_row_sums(*run.arrays, *arguments, run.block_rows)


def compute_row_sums(y, mean, c, h, squares, block_rows=0):
    """Return N_k, D_k, the sum of the log densities and Q (0 unless `squares`) of points, in blocks, in one array."""
    out, totals = np.empty((len(mean), 2)), np.zeros(2)
    far = _kernel.statistics(y, mean, c, h, squares, out, totals, block_rows)
    if far >= 0:
        raise OverflowError(f"the value {y[far]:g} is so far from every component that its density leaves float64")
    return np.concatenate([out.T.ravel(), totals])


def compute_responsibilities(y, mean, precision, weights, noise_variance):
    """Return the responsibilities (N, K) of points, given q(theta) and the settings."""
    c, h = compute_constants(precision, weights, noise_variance)
    result, log_density = np.empty((len(y), len(mean))), np.empty(len(y))
    far = _kernel.responsibilities(y, mean, c, h, result, log_density)
    if far >= 0:
        raise OverflowError(f"y[{far}] = {y[far]:g} is so far from every component that its density leaves float64")
    return result
