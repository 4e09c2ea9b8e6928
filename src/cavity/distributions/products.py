"""Products and quotients of scaled Gaussians given as raw arrays, without temporaries.

References
----------
.. [H] Ralf Herbrich, "Efficient Operations on Gaussian Distributions and Factors", 2023: Theorems 1 (product) and
   2 (quotient), with absolute values, so that improper factors are right.
"""

from __future__ import annotations

import os

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.errors import raise_status
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray
from cavity.runs.executors import THREADS_VARIABLE, Threads, resolve_n_threads, split_range

_kernel = _core.best("gaussian")

MIN_THREADED_SIZE = 1 << 17  # elements from which threads are worth their start
# looked up once: a product of two numbers takes less time than the look-up
SERIAL_BY_DEFAULT = THREADS_VARIABLE not in os.environ


def multiply(
    tau1: ArrayLike,
    rho1: ArrayLike,
    gamma1: ArrayLike,
    tau2: ArrayLike,
    rho2: ArrayLike,
    gamma2: ArrayLike,
    out: tuple[FloatArray, FloatArray, FloatArray] | None = None,
    n_threads: int | None = None,
) -> FloatOrArray:
    """Multiply scaled Gaussians given as raw arrays, log scale included.

    Parameters
    ----------
    tau1, rho1, gamma1, tau2, rho2, gamma2 : array_like
        Precision times mean, precision and log scale of the factors; any real dtype, broadcast against each other.
        Precisions may be negative, zero (``gamma`` is then the log value at 0) or infinite (point mass at ``tau``).
    out : tuple of three ndarrays, optional
        Where to write tau, rho and log scale. They may be the inputs themselves (in place).
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default the environment variable
        CAVITY_NUM_THREADS counts, else 1, as memory is the limit.

    Returns
    -------
    tau, rho, gamma : ndarray or float
        ``out`` if it was given; floats if all inputs are scalars.

    Raises
    ------
    OverflowError
        If tau or rho of a product of finite factors leaves the range of float64 (``out`` is then partly written).

    Notes
    -----
    gamma = gamma1 + gamma2 + log|rho1 rho2/(2 pi rho)|/2 - (tau1 rho2 - tau2 rho1)^2/(2 rho1 rho2 rho) [H]_, Theorem 1,
    in one fused pass without temporaries. nan in an operand gives nan; the product of two point masses at one place
    has no log scale and gives nan, at different places -inf.

    Examples
    --------
    >>> import cavity
    >>> tau, rho, gamma = cavity.multiply(1.0, 2.0, 0.0, 3.0, 2.0, 0.0)
    >>> tau, rho, round(gamma, 6)
    (4.0, 4.0, -1.418939)
    """
    if n_threads == 1 or (n_threads is None and (SERIAL_BY_DEFAULT or getattr(tau1, "size", 1) < MIN_THREADED_SIZE)):
        done = _kernel.multiply(tau1, rho1, gamma1, tau2, rho2, gamma2, out)
        if done is not None:
            if done[0]:
                raise_status(done[0], done[1], "multiply")
            return done[2]
    return _combine_raw(_kernel.multiply, "multiply", (tau1, rho1, gamma1, tau2, rho2, gamma2), out, n_threads)


def divide(
    tau1: ArrayLike,
    rho1: ArrayLike,
    gamma1: ArrayLike,
    tau2: ArrayLike,
    rho2: ArrayLike,
    gamma2: ArrayLike,
    out: tuple[FloatArray, FloatArray, FloatArray] | None = None,
    n_threads: int | None = None,
) -> FloatOrArray:
    """Divide scaled Gaussians given as raw arrays, log scale included; the result may be improper.

    Parameters
    ----------
    tau1, rho1, gamma1, tau2, rho2, gamma2 : array_like
        Dividend and divisor, as for `multiply`.
    out : tuple of three ndarrays, optional
        Where to write tau, rho and log scale. They may be the inputs themselves (in place).
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default the environment variable
        CAVITY_NUM_THREADS counts, else 1, as memory is the limit.

    Returns
    -------
    tau, rho, gamma : ndarray or float
        ``out`` if it was given; floats if all inputs are scalars.

    Raises
    ------
    OverflowError
        If tau or rho of a quotient of finite factors leaves the range of float64 (``out`` is then partly written).
    ZeroDivisionError
        If a divisor is a point mass.

    Notes
    -----
    gamma = gamma1 - gamma2 - log|rho rho2/(2 pi rho1)|/2 + (tau1 rho2 - tau2 rho1)^2/(2 rho rho1 rho2):
    [H]_, Theorem 2.

    Examples
    --------
    >>> import cavity
    >>> tau, rho, gamma = cavity.divide(4.0, 4.0, -1.4189385332046727, 3.0, 2.0, 0.0)
    >>> tau, rho, round(abs(gamma), 12)
    (1.0, 2.0, 0.0)
    """
    if n_threads == 1 or (n_threads is None and (SERIAL_BY_DEFAULT or getattr(tau1, "size", 1) < MIN_THREADED_SIZE)):
        done = _kernel.divide(tau1, rho1, gamma1, tau2, rho2, gamma2, out)
        if done is not None:
            if done[0]:
                raise_status(done[0], done[1], "divide")
            return done[2]
    return _combine_raw(_kernel.divide, "divide", (tau1, rho1, gamma1, tau2, rho2, gamma2), out, n_threads)


OPERAND_NAMES = ("tau1", "rho1", "gamma1", "tau2", "rho2", "gamma2")


def _combine_raw(kernel, action, operands, out, n_threads):
    """Multiply or divide what the kernel did not do at once: threads, broadcasting, casting, errors."""
    n_threads = resolve_n_threads(n_threads)
    raw = [arrays.check_real(operand, name) for name, operand in zip(OPERAND_NAMES, operands, strict=True)]
    if out is not None:
        out = _check_out(out, raw)
    if n_threads > 1 and raw[0].size >= MIN_THREADED_SIZE and len({a.shape for a in raw}) == 1:
        done = _combine_in_threads(kernel, action, raw, out, n_threads)
        if done is not None:
            return done
    return _combine_in_blocks(kernel, action, raw, out)


def _check_out(out, raw):
    """Return `out` as a tuple of three writeable arrays of the broadcast shape that do not overlap each other."""
    if not isinstance(out, tuple) or len(out) != 3 or not all(isinstance(a, np.ndarray) for a in out):
        raise TypeError(f"out must be a tuple of three arrays (tau, rho, gamma), got {type(out).__name__}")
    shape = np.broadcast_shapes(*(a.shape for a in raw))
    for name, a in zip(("tau", "rho", "gamma"), out, strict=True):
        if a.shape != shape or not a.flags.writeable or a.dtype.kind != "f":
            raise ValueError(
                f"out: {name} must be a writeable float array of shape {shape}, "
                f"got shape {a.shape}, dtype {a.dtype}, writeable={a.flags.writeable}"
            )
    if any(np.may_share_memory(out[i], out[j]) for i, j in ((0, 1), (0, 2), (1, 2))):
        raise ValueError("out: the three arrays must not share memory")
    return out


def _combine_in_threads(kernel, action, raw, out, n_threads):
    """Split equal-shaped contiguous float64 arrays among threads; None if they are not that."""
    shape, size = raw[0].shape, raw[0].size
    if out is None:
        out = tuple(np.empty(shape) for _ in range(3))
    arrays = (*raw, *out)
    if not all(a.dtype == np.float64 and a.flags.c_contiguous and a.flags.aligned for a in arrays):
        return None
    flat = [a.reshape(-1) for a in arrays]
    if any(np.may_share_memory(o, a) and o.ctypes.data != a.ctypes.data for o in flat[6:] for a in flat[:6]):
        return None
    parts = split_range(size, n_threads, multiple=1 << 12)

    def task(start, stop):
        part = [a[start:stop] for a in flat]
        return kernel(*part[:6], tuple(part[6:]), size)

    with Threads(n_threads) as threads:
        results = threads.run(task, parts)
    for (start, _), (status, row, _) in zip(parts, results, strict=True):
        raise_status(status, start + row, action)
    return out


def _combine_in_blocks(kernel, action, raw, out):
    """Let numpy's iterator broadcast and cast in cache-sized buffers and feed them to the kernel."""
    # a number that must be cast is garbage in the iterator of NumPy before 2.3
    raw = [a if a.ndim else a.astype(np.float64) for a in raw]
    inputs, outputs = ["readonly", "contig", "aligned"], ["writeonly", "contig", "aligned", "allocate", "no_broadcast"]
    iterator = np.nditer(
        [*raw, *(out or (None, None, None))],
        flags=["external_loop", "buffered", "delay_bufalloc", "copy_if_overlap", "zerosize_ok"],
        op_flags=[inputs] * 6 + [outputs] * 3,
        op_dtypes=[np.float64] * 9,
        casting="same_kind",
        order="C",
    )
    with iterator:
        iterator.reset()
        done = 0
        for part in iterator:
            status, row, _ = kernel(*part[:6], tuple(part[6:]))
            raise_status(status, done + row, action)
            done += part[0].size
        results = iterator.operands[6:] if out is None else out
    return tuple(a[()] for a in results) if out is None else out
