"""The E-step of a Gaussian mixture: responsibilities r_nk and their sums over rows, by compiled kernels.

r_nk is the softmax over k [B]_ (10.49) of ::

    log rho_nk = E log pi_k + E log|L_k|/2 - D log(2 pi)/2 - E (x_n - mu_k)'L_k (x_n - mu_k)/2     (10.46)

It is never stored: the M-step needs sums over rows, see `RowSums`.

References
----------
.. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.2.
"""

from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.models.mixture.factors import WishartFactors
from cavity.models.mixture.scaling import Scaling

_kernel = _core.best("gaussian_mixture")

NO_WEIGHT, NO_GAIN = np.empty(0), np.empty((0, 0))  # None, for kernels

MAX_BLOCK_ROWS, MIN_BLOCK_ROWS = 1 << 15, 1 << 10  # of a block
BLOCK_WORK = 1 << 20  # products of responsibilities and features in a block, about half a millisecond
MAX_CALL_WORK = 1 << 27  # of a call with several blocks: some ten milliseconds, fifty without wide registers


def choose_block_rows(n_components, n_features, full):
    """Return the number of rows in a block, by the work they are."""
    features = 1 + n_features + (n_features * (n_features + 1) // 2 if full else n_features)
    size = MAX_BLOCK_ROWS
    while size > MIN_BLOCK_ROWS and size * n_components * (features + 4) > BLOCK_WORK * 2:
        size //= 2
    return size


class UnreachableRow(Exception):
    """A row has no weight in any component. The argument is its index in the array or run of rows."""

    def to_error(self, location):
        """Return the error for users; where(index) describes the row."""
        return make_unreachable_error(location(*self.args))


def make_unreachable_error(row):
    """Return the error of a row, described by a string, without weight in any component."""
    return OverflowError(f"{row} is so far from every component that its density leaves float64; rescale it")


@dataclass(frozen=True, slots=True)
class EStep:
    """A state as the kernels use it: log rho_nk = height_k - |precision_k (z_n - mean_k)|^2/2 [B]_ (10.46).

    `precision` holds triangular factors (K, D, D), or precisions (K, D); with missing values each observed value adds
    its `gain` (K, D) to log rho_nk.
    """

    scaling: Scaling
    mean: np.ndarray
    precision: np.ndarray
    height: np.ndarray
    gain: np.ndarray | None = None

    @classmethod
    def of(cls, state, scaling, *, missing=False):
        """Return the E-step of a state in the coordinates of a scaling."""
        factors, height = state.factors, state.weights.expected_logs()  # E log pi_k (10.66)
        mean = np.ascontiguousarray(factors.mean)
        if isinstance(factors, WishartFactors):
            constants, precision = factors.constants()  # (10.64), (10.65)
            return cls(scaling, mean, precision, height + constants)
        gain, precision = factors.constants()
        if missing:
            return cls(scaling, mean, precision, height, gain)
        return cls(scaling, mean, precision, height + gain.sum(axis=1))

    @classmethod
    def flat(cls, scaling, full, missing=False):
        """Return the E-step of one component at the origin, of equal weight everywhere, whose sums are moments."""
        dim = len(scaling.scale)
        precision = np.zeros((1, dim, dim) if full else (1, dim))
        gain = np.zeros((1, dim)) if missing else None
        return cls(scaling, np.zeros((1, dim)), precision, np.zeros(1), gain)

    @property
    def full(self):
        """Whether precisions are matrices."""
        return self.precision.ndim == 3

    @property
    def shape(self):
        """The shape (K, numbers) of a block's sums."""
        k, dim = self.mean.shape
        return k, 1 + dim + dim * (dim + 1) // 2 if self.full else 1 + (2 if self.gain is None else 3) * dim

    def most_blocks(self, size):
        """Return how many blocks of `size` rows may go through the kernels in one call."""
        return max(1, MAX_CALL_WORK // (size * self.shape[0] * (self.shape[1] + 4)))

    def compute_sums(self, rows, weight=None, size=0):
        """Return sums (K, numbers) (10.51) to (10.53) and the log densities' sum (1,) of rows, in blocks of `size`."""
        out, totals = np.empty(self.shape), np.zeros(1)
        weight = NO_WEIGHT if weight is None else weight
        arguments = rows, weight, self.scaling.origin, self.scaling.scale, self.mean, self.precision, self.height
        if self.full:
            bad_row = _kernel.full(*arguments, out, totals, size)
        else:
            bad_row = _kernel.diagonal(*arguments, NO_GAIN if self.gain is None else self.gain, out, totals, size)
        if bad_row >= 0:
            raise UnreachableRow(bad_row)
        return out, totals

    def compute_log_weights(self, rows):
        """Return log rho_nk (n, K) (10.46) of rows in the units of the data."""
        out = self.compute_distances(rows)
        np.multiply(out, -0.5, out=out)
        out += self.height
        if self.gain is not None:
            out += (~np.isnan(rows)).astype(float) @ self.gain.T
        return out

    def compute_distances(self, rows):
        """Return nu_k (x_n - m_k)'W_k (x_n - m_k) (n, K), the second term of (10.64)."""
        out = np.empty((len(rows), len(self.mean)))
        call = _kernel.distances if self.full else _kernel.distances_diagonal
        call(rows, self.scaling.origin, self.scaling.scale, self.mean, self.precision, out)
        return out
