"""Covariances as programs: what the compiled kernel runs over blocks of rows.

A composed covariance is a postfix program over leaves, each with its own scaled columns of the rows. Blocks of rows
have a fixed size and what they return is added in their order, so the number of threads does not change a bit.
"""

from copy import copy
from math import isfinite

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.frames import describe_column
from cavity.runs import merge
from cavity.runs.executors import Threads

_kernel = _core.best("covariance")

(
    CONSTANT, WHITE, LINEAR, RBF, MATERN12, MATERN32, MATERN52, MATERN, RATIONAL_QUADRATIC, PERIODIC, ADD, MULTIPLY,
) = range(12)  # fmt: skip
MIN_GRAM_ROWS = 128  # rows in a block at least
MIN_GRAM_NUMBERS = 1 << 16  # entries of the matrix in a block at least, if it has more
MAX_SCALED_COLUMN = np.finfo(np.float64).max / 8  # of a scaled column: pi times the difference of two is finite
# of scaled columns that `against` tries: products of those of Linear may overflow
CANDIDATE_REACHES = MAX_SCALED_COLUMN, 1e100, 0.0


def check_rows(value, name, like=None):
    """Return rows (N, D) as float64, as wide as others if given."""
    rows = arrays.check_data_array(value, name, ndim=(2,)).astype(np.float64, copy=False)
    if like is not None and rows.shape[1] != like.shape[1]:
        raise ValueError(f"{name} must have {like.shape[1]} column(s) like X, got shape {rows.shape}")
    return rows


def split_rows(n_rows, n_columns):
    """Return the (start, stop) pairs of the blocks of rows of a matrix; they depend on its shape alone."""
    size = MIN_GRAM_ROWS
    while size < n_rows and size * n_columns < MIN_GRAM_NUMBERS:
        size *= 2
    return merge.split_rows(n_rows, size)


def get_program(covariance, n_features):
    """Return the program of a covariance for rows of a width, which is checked."""
    return covariance._checked_program(n_features)


def make_range_error():
    """Return the error of covariances that are not finite."""
    return OverflowError("the covariance of these rows leaves the range of float64; rescale X or the parameters")


class UncompiledProgram:
    """Base of what stands for a `Program` whose matrices are made in NumPy: nothing is known before rows come."""

    points = None  # as those of a kernel's `Target`

    def against(self, Z):
        """Return this: nothing is gained by knowing one side."""
        return self

    def fill(self, X, out):
        """Return how many rows are done, none: `cross` does them all."""
        return 0

    def constant_variance(self):
        """Return None: variances may be any."""
        return None


def _make_leaf_variance(left, white=1.0):
    """Return a function for `Program._run`: the variances of rows with scaled columns `left`, White's times `white`."""

    def value(op, columns, parameter):
        if op == LINEAR:
            return np.sum(left[columns] ** 2, axis=0)
        return parameter * white if op == WHITE else parameter

    return value


class Program:
    """A covariance on rows of a given width, flattened for the kernel.

    Parameters
    ----------
    postfix : list
        Leaves, and ADD or MULTIPLY for the two values before them. A leaf has a class name, `_op`, and gives
        `_operand(n_features)`: its columns, their divisors, and the parameters the kernel reads.
    n_features : int
        Width of the rows.
    """

    def __init__(self, postfix, n_features):
        rows, columns, divisors, parameters, self._names = [], [], [], [], []
        for step in postfix:
            if isinstance(step, int):
                rows.append((step, 0, 0, 0))
                continue
            index, scale, values = step._operand(n_features)
            rows.append((step._op, len(columns), len(index), len(parameters)))
            columns += index
            divisors += list(scale)
            parameters += list(values)
            self._names += [type(step).__name__] * len(index)
        self.code = np.array(rows, dtype=np.int32)
        self.parameters = np.array(parameters, dtype=np.float64)
        self._columns, self._divisors = columns, np.array(divisors, dtype=np.float64)
        first = {c: op for op, start, count, _ in rows for c in range(start, start + count)}
        self._centred = np.array([float(first[c] != LINEAR) for c in range(len(columns))])
        self.n_slots = sum(self._slot_count(op, count) for op, _, count, _ in rows)
        self._n_features = n_features
        self._own = None  # of copies by `of`: the last rows whose own matrix was needed, and their coordinates

    def of(self, leaves):
        """Return the program of other leaves, which differ in their numbers alone."""
        new, divisors, parameters = copy(self), [], []
        for leaf in leaves:
            _, scale, values = leaf._operand(self._n_features)
            divisors += list(scale)
            parameters += values
        new.parameters = np.array(parameters, dtype=np.float64)
        new._divisors = np.array(divisors, dtype=np.float64)
        new._own = None, None
        return new

    @staticmethod
    def _slot_count(op, count):
        if op in (ADD, MULTIPLY):
            return 0
        return {LINEAR: count, RATIONAL_QUADRATIC: 2 + count, PERIODIC: 1 + 2 * count}.get(op, 1 + count)

    def gram(self, X, out, threads):
        """Write the covariance matrix of rows X (N, D) into out (N, N)."""
        left = self._pair(X, None)[0]
        self._fill(left, left, True, out, threads)

    def cross(self, X, Z, out, threads):
        """Write the covariances of rows X (N, D) with rows Z (M, D) into out (N, M)."""
        left, right = self._pair(X, Z)
        self._fill(left, right, False, out, threads)

    def against(self, Z):
        """Return the kernel's `Target` of rows Z (M, D), M > 0, with which few rows are compared in little time.

        Its `fill(X, out)` gives the bits of `cross(Z, X)`, since both subtract the origin of Z.
        """
        right, origin, size = self._coordinates(Z, "Z")
        self._check_range(size, size)
        reach = next(r for r in CANDIDATE_REACHES if self._finite(np.full(len(right), r), size))
        columns = np.array(self._columns, dtype=np.int32)
        return _kernel.Target(
            self.code, self.parameters, right, columns, origin.ravel(), self._divisors, reach, self._n_features
        )

    def columns_of(self, X):
        """Return a function of indices of n rows: the covariances (n, N) of these with all rows X."""
        scaled = self._pair(X, None)[0]

        def columns(rows):
            out = np.empty((len(rows), len(X)))
            own = np.ascontiguousarray(scaled[:, rows])
            _kernel.fill(self.code, self.parameters, own, scaled, False, 0, len(rows), out)
            return out

        return columns

    def constant_variance(self):
        """Return the variance of every row, or None if it is not the same for all."""
        if LINEAR in self.code[:, 0]:
            return None
        return float(self._run(_make_leaf_variance(None))[0][-1])

    def contract(self, X, weights, Z, threads):
        """Return the derivatives of <weights, K> in the logs of the slots, (n_slots,); Z=None: K is the Gram matrix."""
        left, right = self._pair(X, Z)

        def task(start, stop):
            out = np.empty(self.n_slots)
            _kernel.contract(self.code, self.parameters, left, right, Z is None, start, stop, weights, out)
            return out

        return merge.merge(threads.imap(task, split_rows(*weights.shape)))

    def contract_inputs(self, X, weights, Z, threads):
        """Return the derivatives of <weights, K> in the rows X (N, D), those in the other argument not included."""
        left, right = self._pair(X, Z)
        scaled, out = np.zeros(left.shape), np.zeros(X.shape)

        def task(start, stop):
            _kernel.contract_inputs(self.code, self.parameters, left, right, start, stop, weights, scaled)

        threads.run(task, split_rows(*weights.shape))
        for c, column in enumerate(self._columns):
            out[:, column] += scaled[c] / self._divisors[c]
        return out

    def diagonal(self, X):
        """Return the variance of every row, (N,)."""
        values, _ = self._run(_make_leaf_variance(self._of_diagonal(X)))
        return np.array(np.broadcast_to(values[-1], len(X)))

    def diagonal_contract(self, X, weights):
        """Return the derivatives of weights (N,) times the variances of the rows in the logs of the slots."""
        left = self._of_diagonal(X)
        steps = zip(self.code, self._diagonal_slopes(left, weights), strict=True)
        return np.concatenate([self._leaf_slots(row, slope, left) for row, slope in steps])

    def white_inputs(self, X, weights):
        """Return what `White` adds to the derivatives in the rows of weights (N,) times their variances, (N, D).

        The kernel leaves it out. Alone it does not depend on the rows, but a product with `Linear` does.
        """
        out = np.zeros(X.shape)
        if not {WHITE, LINEAR, MULTIPLY} <= set(self.code[:, 0].tolist()):
            return out
        left = self._pair(X, None)[0]
        slopes = zip(self._diagonal_slopes(left, weights), self._diagonal_slopes(left, weights, 0.0), strict=True)
        for (op, first, count, _), (slope, without) in zip(self.code.tolist(), slopes, strict=True):
            for c in range(first, first + count) if op == LINEAR else ():
                out[:, self._columns[c]] += 2.0 * (slope - without) * left[c] / self._divisors[c]
        return out

    def _diagonal_slopes(self, left, weights, white=1.0):
        """Return the derivatives of weights (N,) times the variances of the rows in the values of every step."""
        values, sources = self._run(_make_leaf_variance(left, white))
        slopes = [0.0] * len(values)
        slopes[-1] = weights
        for step in reversed(range(len(values))):
            if sources[step] is not None:
                a, b = sources[step]
                multiply = self.code[step, 0] == MULTIPLY
                slopes[a] = slopes[step] * values[b] if multiply else slopes[step]
                slopes[b] = slopes[step] * values[a] if multiply else slopes[step]
        return slopes

    def _leaf_slots(self, row, slope, left):
        """Return the derivatives in the slots of a step of the diagonal, whose own value has the given slopes."""
        op, first, count, parameter = row.tolist()
        slots = np.zeros(self._slot_count(op, count))
        if op == LINEAR:
            slots[:] = np.sum(slope * left[first : first + count] ** 2, axis=1)
        elif slots.size:
            slots[0] = np.sum(slope) * self.parameters[parameter]
        return slots

    def _fill(self, left, right, symmetric, out, threads):
        def task(start, stop):
            _kernel.fill(self.code, self.parameters, left, right, symmetric, start, stop, out)

        threads.run(task, reversed(split_rows(*out.shape)))  # those with the longest rows first

    def _of_diagonal(self, X):
        """Return the coordinates of X if variances depend on them."""
        return self._pair(X, None)[0] if LINEAR in self.code[:, 0] else None

    def _pair(self, X, Z):
        """Return the coordinates of X and of Z, or twice those of X, on which every covariance is finite."""
        if Z is None and self._own is not None and X is self._own[0]:
            return self._own[1:] * 2
        left, origin, size = self._coordinates(X, "X")
        right, other = (left, size) if Z is None else self._coordinates(Z, "Z", origin)[::2]
        self._check_range(size, other)
        if Z is None and self._own is not None:
            self._own = X, left
        return left, right

    def _coordinates(self, X, name, origin=None):
        """Return the scaled columns (C, N) of rows X, what was subtracted, (C, 1), and their largest sizes, (C,).

        What is subtracted of a column is, of the numbers that it spans, the one nearest zero. Differences of what is
        left then have the digits that the data have, wherever these are.
        """
        out = np.ascontiguousarray(X.T[self._columns])
        low, high = out.min(axis=1, initial=np.inf), out.max(axis=1, initial=-np.inf)
        if origin is None:
            origin = (np.minimum(np.maximum(low, 0.0), high) * self._centred)[:, None]
        with np.errstate(over="ignore"):
            out -= origin
            out /= self._divisors[:, None]
            size = np.maximum(high - origin[:, 0], origin[:, 0] - low) / self._divisors  # rounding keeps the order
        if len(size) and not size.max() <= MAX_SCALED_COLUMN:
            c = int(np.argmax(size > MAX_SCALED_COLUMN))
            raise OverflowError(
                f"{describe_column(self._columns[c])} of {name} leaves the range of float64 when it is scaled for "
                f"{self._names[c]}; rescale it"
            )
        return out, origin, size

    def _check_range(self, left, right):
        """Raise OverflowError unless every covariance of rows with coordinates of such sizes, (C,), is finite."""
        if not self._finite(left, right):
            raise make_range_error()

    def _finite(self, left, right):
        """Return whether every value on the way to such a covariance is finite."""

        def ceiling(op, columns, value):
            if op != LINEAR:
                return value
            with np.errstate(over="ignore"):
                return float(np.sum(left[columns] * right[columns]))

        values, _ = self._run(ceiling)
        return all(map(isfinite, self.parameters.tolist())) and all(map(isfinite, values))

    def _run(self, leaf):
        """Run the program: return the value of every step, and the two steps it was made of, None for leaves.

        leaf(op, slice of the scaled columns, first parameter) gives the value of a leaf.
        """
        values, sources, stack = [], [], []
        for op, first, count, parameter in self.code.tolist():
            if op in (ADD, MULTIPLY):
                b, a = stack.pop(), stack.pop()
                values.append(values[a] + values[b] if op == ADD else values[a] * values[b])
                sources.append((a, b))
            else:
                value = float(self.parameters[parameter]) if op != LINEAR else None  # which has none
                values.append(leaf(op, slice(first, first + count), value))
                sources.append(None)
            stack.append(len(values) - 1)
        return values, sources


class ReferenceRows:
    """Rows Z (M, D), M > 0, with which others are compared; they are scaled once, and again in copies."""

    def __init__(self, program, Z):
        self.program, self.Z = program, Z
        self._target = program.against(Z)

    def __reduce__(self):
        return ReferenceRows, (self.program, self.Z)

    def cross(self, X, out):
        """Write the covariances of rows X (n, D) with Z into out (n, M)."""
        if self._target.fill(np.ascontiguousarray(X), out) < len(X):
            with Threads(1) as threads:
                self.program.cross(X, self.Z, out, threads)  # or raise the error
