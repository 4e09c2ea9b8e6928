"""Arrays of numbers whose exponents have no limits, for formulas whose terms leave float64 and whose result does not.

Scaling by powers of two is exact: where float64 does not overflow or underflow, the bits are the same.
"""

import numpy as np

MAX_PLAIN_NUMBER = 2.0**100  # products and quotients of ten numbers within it stay in float64
EXPONENT_OF_ZERO = -(1 << 20)  # the exponent of zero: below that of any other number


class WideRangeArray:
    """An array m 2^e with 1/2 <= |m| < 1, or m = 0."""

    __array_ufunc__ = None  # NumPy arrays leave operators to this class
    __slots__ = ("e", "m")

    def __init__(self, m, e=0):
        self.m, shift = np.frexp(m)
        self.e = np.where(self.m == 0, EXPONENT_OF_ZERO, np.add(e, shift))

    def __mul__(self, other):
        return WideRangeArray(self.m * other.m, self.e + other.e)

    def __truediv__(self, other):
        return WideRangeArray(self.m / other.m, self.e - other.e)

    def __add__(self, other):
        top = np.maximum(self.e, other.e)
        return WideRangeArray(np.ldexp(self.m, self.e - top) + np.ldexp(other.m, other.e - top), top)

    def __neg__(self):
        return WideRangeArray(-self.m, self.e)

    def __sub__(self, other):
        return self + -other

    def __getitem__(self, index):
        return WideRangeArray(self.m[index], self.e[index])


def widen_range(*arrays):
    """Return finite arrays as they are if short formulas of them stay in range, else as Scaled ones."""
    sizes = [np.abs(a) for a in arrays]
    if all(np.all(((size > 1 / MAX_PLAIN_NUMBER) & (size < MAX_PLAIN_NUMBER)) | (size == 0)) for size in sizes):
        return arrays
    return tuple(WideRangeArray(a) for a in arrays)


def to_float64(x):
    """Return the float64 array of a result, infinite where it is beyond their range."""
    if not isinstance(x, WideRangeArray):
        return x
    with np.errstate(over="ignore"):
        return np.ldexp(x.m, np.clip(x.e, -3000, 3000))


def invert(x):
    """1/x."""
    return WideRangeArray(1.0 / x.m, -x.e) if isinstance(x, WideRangeArray) else 1.0 / x


def log_abs(x):
    """log |x|, x not 0."""
    return np.log(np.abs(x.m)) + x.e * np.log(2.0) if isinstance(x, WideRangeArray) else np.log(np.abs(x))


def sum_last_axis(x):
    """Sum of an array over its last axis."""
    if not isinstance(x, WideRangeArray):
        return np.sum(x, axis=-1)
    top = np.max(x.e, axis=-1)
    return WideRangeArray(np.sum(np.ldexp(x.m, x.e - top[..., None]), axis=-1), top)
