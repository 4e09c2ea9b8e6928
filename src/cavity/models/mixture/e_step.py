"""The E-step of a Gaussian mixture: the door to the kernels that visit rows.

q(z_n) is never stored: given the other factors it is the softmax of E log pi_k + E log N(z_n; mu_k, 1/L_k), and what is
needed of it are sums over rows, see `RowSums`.
"""

from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.models.mixture.factors import WishartFactors
from cavity.models.mixture.scaling import Scaling

_kernel = _core.best("gaussian_mixture")

NO_WEIGHT, NO_GAIN = np.empty(0), np.empty((0, 0))  # what kernels take for None

MAX_BLOCK_ROWS, MIN_BLOCK_ROWS = 1 << 15, 1 << 10  # of a block
BLOCK_WORK = 1 << 20  # products of responsibilities and features per block, about half a millisecond
MAX_CALL_WORK = (
    1 << 27
)  # most of them in a call, unless a block has more: some ten milliseconds, fifty without wide registers


def choose_block_rows(n_components, n_features, full):
    """Return the number of rows in a block, by the work they are."""
    features = 1 + n_features + (n_features * (n_features + 1) // 2 if full else n_features)
    size = MAX_BLOCK_ROWS
    while size > MIN_BLOCK_ROWS and size * n_components * (features + 4) > BLOCK_WORK * 2:
        size //= 2
    return size


class UnreachableRow(Exception):
    """A row has no weight in any component; its number is what the kernel or the task knows of it."""

    def told(self, where):
        """Return the error for users; where(row) is the words for the row."""
        return make_unreachable_error(where(*self.args))


def make_unreachable_error(words):
    """Return the error of a row without weight in any component, given words for it."""
    return OverflowError(f"{words} is so far from every component that its density leaves float64; rescale it")


@dataclass(frozen=True, slots=True)
class EStep:
    """What the kernels need of a state to visit rows: log weights are height - |precision (z - mean)|^2/2.

    `precision` holds triangular factors (K, D, D), or precisions (K, D); with missing values `gain` (K, D) is what
    each value that was seen adds to the log weight.
    """

    scaling: Scaling
    mean: np.ndarray
    precision: np.ndarray
    height: np.ndarray
    gain: np.ndarray | None = None

    @classmethod
    def of(cls, state, scaling, *, missing=False):
        """Return the E-step of a state in the coordinates of a scaling."""
        factors, height = state.factors, state.weights.expected_logs()
        mean = np.ascontiguousarray(factors.mean)
        if isinstance(factors, WishartFactors):
            constants, precision = factors.constants()
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

    def raw_sums(self, rows, weight=None, size=0):
        """Return the sums (K, numbers) and the sum of the log densities (1,) of rows, in blocks of `size` or in one."""
        out, totals = np.empty(self.shape), np.zeros(1)
        weight = NO_WEIGHT if weight is None else weight
        place = rows, weight, self.scaling.origin, self.scaling.scale, self.mean, self.precision, self.height
        if self.full:
            bad = _kernel.full(*place, out, totals, size)
        else:
            bad = _kernel.diagonal(*place, NO_GAIN if self.gain is None else self.gain, out, totals, size)
        if bad >= 0:
            raise UnreachableRow(bad)
        return out, totals

    def log_weights(self, rows):
        """Return E log pi_k + E log N(x_n; mu_k, 1/L_k) (n, K) of rows in the units of the data."""
        out = self.distances(rows)
        np.multiply(out, -0.5, out=out)
        out += self.height
        if self.gain is not None:
            out += (~np.isnan(rows)).astype(float) @ self.gain.T
        return out

    def distances(self, rows):
        """Return the expected squared distances (n, K), without what the uncertainty of the means adds."""
        out = np.empty((len(rows), len(self.mean)))
        call = _kernel.distances if self.full else _kernel.distances_diagonal
        call(rows, self.scaling.origin, self.scaling.scale, self.mean, self.precision, out)
        return out
