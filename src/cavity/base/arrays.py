"""The one boundary check: every array, number and option of a public call comes through here.

Messages name the argument, what was expected and what came. Nothing is checked again further in.
"""

import numbers
import sys
from functools import reduce
from operator import add

import numpy as np

from cavity.base.argument_names import suggest_names
from cavity.base.errors import NotPositiveDefiniteError, mark_missing, name_arguments
from cavity.base.frames import describe_column, names_of
from cavity.base.frames import to_numbers as frame_numbers
from cavity.base.lazy_scipy import lapack
from cavity.base.memory import get_allowed_bytes as _memory

NUMBERS_PER_FINITE_CHECK = 1 << 20  # per finiteness check, so that no mask of the size of the data is built
SYMMETRY_TILE_ROWS = 512  # rows and columns of a matrix looked at together with their mirror image
MAX_RELATIVE_ASYMMETRY = 1e-10  # of a matrix, relative to its diagonal, that passes for rounding


def error_of(name, message, kind=ValueError):
    """Return the error about an argument, whose name begins the message."""
    return name_arguments(kind(f"{name} {message}"), name)


def is_masked(value):
    """Whether a value is a masked array of NumPy's, of which there is none before their module is loaded."""
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


def check_real(value, name):
    """Return `value` as an ndarray in its own dtype, which has to be one of real numbers; tables column by column.

    What would have to be read as a whole from somewhere else is refused: whether it fits into memory is left to users.
    """
    _check_in_memory(value, name)
    value = frame_numbers(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise error_of(name, f"must be an array of real numbers ({error})") from error
    if array.dtype.kind == "O" and array.ndim and None in array:
        message = (
            f"must hold real numbers, got dtype object with None in row {np.argwhere(np.equal(array, None))[0][0]}"
        )
        raise mark_missing(error_of(name, message, TypeError), None)
    if array.dtype.kind == "O" and array.ndim == 0:
        hint = "; a formula, as in cavity.GLM('y ~ 1'), needs no columns" if value is None and name == "X" else ""
        raise error_of(name, f"must be an array or data frame of numbers, got {type(value).__name__}{hint}", TypeError)
    check_dtype(array.dtype, name)
    return array


def _check_in_memory(value, name):
    """Raise TypeError for what is no dense array in memory, with what makes one of it."""
    if isinstance(value, np.ndarray | list | tuple | float | int):  # nearly always
        return
    if hasattr(value, "block_rows"):  # a source
        form, cure = "in memory here, got a Source", f"{name}.rows()"
    elif hasattr(value, "tocsr"):
        form, cure = "dense here, got a sparse matrix", f"{name}.toarray()"
    elif is_sliced(value):
        kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        form, cure = f"in memory here, got a {kind}", f"numpy.asarray({name})"
    else:
        return
    raise error_of(name, f"must be {form} of shape {value.shape}; give {cure} if that fits into memory", TypeError)


def is_sliced(value):
    """Whether a value is an array that is no memory, but gives slices of rows: of zarr, h5py, dask and others."""
    if isinstance(value, np.ndarray | np.generic | list | tuple | str | float | int) or hasattr(value, "tocsr"):
        return False
    if not all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__")) or hasattr(value, "block_rows"):
        return False
    memory = ("__dlpack__", "__array_interface__", "__array_struct__", "iloc", "get_columns")
    if any(hasattr(value, name) for name in memory) or (hasattr(value, "to_numpy") and not hasattr(value, "dims")):
        return False
    try:
        np.dtype(value.dtype)
    except TypeError:  # a tensor of another library
        return False
    shape = value.shape
    return isinstance(shape, tuple) and len(shape) > 0 and all(isinstance(n, numbers.Integral) for n in shape)


def check_dtype(dtype, name):
    """Raise TypeError unless the dtype is one of real numbers."""
    if dtype.kind not in "biuf":
        raise error_of(name, f"must hold real numbers, got dtype {dtype}", TypeError)


def hint_one_column(value, name="X"):
    """Return a hint that names what makes one column of a vector, which may be one of a data frame."""
    column = f"{name}.to_frame()" if hasattr(value, "to_frame") else f"{name}[:, None]"
    row = f"{name}.to_frame().T" if hasattr(value, "iloc") else f"numpy.reshape({name}, (1, -1))"
    return f"{column} makes numbers one column, {row} one row"


def check_ndim(array, name, ndim, value=None):
    """Raise ValueError unless the array of a `value` has one of the numbers of dimensions in `ndim`."""
    if array.ndim not in ndim:
        numbers = " or ".join(str(n) for n in ndim)
        hint = f"; {hint_one_column(value, name)}" if array.ndim == 1 and ndim == (2,) else ""
        hint = hint if name.isidentifier() else ""
        raise error_of(name, f"must have {numbers} dimension(s), got shape {array.shape}{hint}")


def check_real_array(value, name):
    """Return `value` as an aligned float64 ndarray (no copy if it is one); numbers of any real type are accepted."""
    array = check_real(value, name).astype(np.float64, copy=False)
    return array if array.flags.aligned else array.copy()


def check_finite_array(value, name, ndim=None):
    """Return `value` as float64, free of nan and infinity and, if given, of a number of dimensions in `ndim`."""
    array = check_real_array(value, name)
    if ndim is not None:
        check_ndim(array, name, ndim)
    check_finite(array, name, names_of(value))
    return array


def check_positive_array(value, name):
    """Return `value` as float64, all of it positive and finite."""
    array = check_finite_array(value, name)
    if not np.all(array > 0):
        raise error_of(name, f"must be positive, got {array[~(array > 0)][0]}")
    return array


def check_finite(array, name, columns=None):
    """Raise ValueError naming the first entry of `array` that is nan or infinite, by the name of its column if any."""
    rows = array.reshape(1) if array.ndim == 0 else array
    index = find_nonfinite(rows)
    if index is not None:
        entry = describe_bad_entry(rows[index], name, index if array.ndim else (), columns)
        raise mark_missing(error_of(name, f"must be finite, got {entry}"), rows[index])


def describe_entry(name, index, columns=None):
    """Return what an entry of an array is called: X[3, 1], or row 3, column 'height' of X if the columns have names."""
    if columns is None:
        return f"{name}[{', '.join(map(str, index))}]" if index else name
    row, *rest = index
    return f"{', '.join([f'row {row}', *(describe_column(j, columns) for j in rest)])} of {name}"


def describe_bad_entry(value, name, index, columns=None):
    """Return the description of an entry that should not be there."""
    entry = describe_entry(name, index, columns)
    return f"{entry} = {value}" if columns is None else f"{value} in {entry}"


def find_nonfinite(rows):
    """Return the index of the first entry of rows (N, ...) that is nan or infinite, as a tuple, or None."""
    step = max(1, NUMBERS_PER_FINITE_CHECK * len(rows) // max(rows.size, 1))
    for start in range(0, len(rows), step):
        bad = ~np.isfinite(rows[start : start + step])
        if bad.any():
            row, *rest = map(int, np.argwhere(bad)[0])
            return (start + row, *rest)
    return None


def check_data_array(value, name, ndim):
    """Return data as an array of real numbers in its own dtype: finite, not empty, `ndim` one of the given.

    float64 data are not copied, float32 and integers are converted block by block where they are used.
    """
    array = check_data_shape(value, name, ndim)
    check_finite(array, name, names_of(value))
    return array


def check_data_shape(value, name, ndim):
    """Return data as `check_data_array` does, without having looked at the numbers."""
    if is_masked(value):
        raise error_of(
            name, "must not be a masked array; drop the masked points first, for example x.compressed()", TypeError
        )
    array = check_real(value, name)
    check_ndim(array, name, ndim, value)
    check_not_empty(array.shape, name)
    return array


def check_not_empty(shape, name):
    """Raise ValueError for the shape of an empty array."""
    if 0 in shape:
        raise error_of(name, f"must not be empty, got shape {shape}")


def copy_real(array, out):
    """Write an array of real numbers of any dtype into a float64 one; what float64 cannot hold becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(out, array, casting="same_kind")


def check_number(value, name, *, low=-np.inf, high=np.inf, closed_low=False, closed_high=False):
    """Return `value` as a float inside the interval (low, high), ends included where closed."""
    if not isinstance(value, numbers.Real | np.ndarray) or np.ndim(value) != 0:
        shown = type(value).__name__ if hasattr(value, "columns") or np.ndim(value) else repr(value)
        raise error_of(name, f"must be a number, got {shown}", TypeError)
    result = float(value)
    above = result >= low if closed_low else result > low
    below = result <= high if closed_high else result < high
    if not (above and below):
        left, right = "[" if closed_low else "(", "]" if closed_high else ")"
        raise error_of(name, f"must be in {left}{low:g}, {high:g}{right}, got {result!r}")
    return result


def check_integer(value, name, *, low):
    """Return `value` as an int, at least `low`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise error_of(name, f"must be an integer, got {value!r}", TypeError)
    if value < low:
        raise error_of(name, f"must be at least {low}, got {value}")
    return int(value)


def check_flag(value, name):
    """Return `value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise error_of(name, f"must be True or False, got {value!r}", TypeError)
    return bool(value)


def check_choice(value, name, options):
    """Return `value` if it is one of `options`: strings, and False."""
    if not (isinstance(value, str) or value is False) or value not in options:
        choices = ", ".join(repr(option) for option in options)
        raise error_of(name, f"must be one of {choices}, got {value!r}{suggest_names(value, filter(None, options))}")
    return value


def check_vector(value, name, size):
    """Return a number or `size` numbers as a float64 vector of length `size`, finite."""
    array = check_finite_array(value, name, ndim=(0, 1))
    if array.ndim == 1 and array.shape != (size,):
        raise error_of(name, f"must be a number or have shape ({size},) like a data point, got {array.shape}")
    return np.ascontiguousarray(np.broadcast_to(array, (size,)))


def check_shaped(value, name, shape):
    """Return `value` as a finite float64 array in C order, of exactly that shape."""
    array = check_finite_array(value, name)
    if array.shape != shape:
        raise error_of(name, f"must have shape {shape}, got {array.shape}")
    return np.ascontiguousarray(array)


def allocate_matrix(shape, description, way_out=""):
    """Return a float64 matrix to be filled, or raise MemoryError with the bytes it needs.

    `description` begins the message, `way_out` ends it.
    """
    return allocate_matrices(1, shape, description, way_out)[0]


def allocate_matrices(count, shape, description, way_out="", argument=""):
    """Return several such matrices, or raise MemoryError with the bytes they need together, by that argument."""
    needed = 8 * count * shape[0] * shape[1]
    try:
        if needed > _memory():
            raise MemoryError
        return [np.empty(shape) for _ in range(count)]
    except (MemoryError, ValueError):  # numpy counts the bytes in 63 bits
        message = f"{description} of shape {shape} needs {needed} bytes, more than there are{way_out}"
        raise name_arguments(MemoryError(message), argument) from None


def check_output_array(value, name, shape):
    """Return `value`, which has to be a writeable float64 array of that shape in C order."""
    if not isinstance(value, np.ndarray):
        raise error_of(name, f"must be an array, got {type(value).__name__}", TypeError)
    good = value.shape == shape and value.dtype == np.float64 and value.flags.carray
    if not good:
        raise error_of(
            name,
            f"must be a writeable float64 array of shape {shape} in C order, got shape {value.shape}, "
            f"dtype {value.dtype}, writeable={value.flags.writeable}, C order={value.flags.c_contiguous}",
        )
    return value


def check_symmetric(value, name, size=None, *, copy=True):
    """Return `value` as a finite symmetric float64 matrix in C order, of `size` rows if given.

    One that is symmetric up to rounding is replaced by its symmetric part. With copy=False an aligned float64 matrix in
    C or Fortran order that is symmetric to the last bit is returned as it is, or as its transpose.
    """
    if len(shape := getattr(value, "shape", ())) == 2:  # MemoryError before the numbers are looked at
        allocate_matrices(1, shape, f"{name} as a float64 matrix", argument=name)
    matrix = check_data_array(value, name, ndim=(2,)).astype(np.float64, copy=False)
    expected_shape = matrix.shape[:1] * 2 if size is None else (size, size)
    if matrix.shape != expected_shape:
        rows = "n >= 1" if size is None else f"n = {size}"
        raise error_of(name, f"must have shape (n, n) with {rows}, got {matrix.shape}")
    tiles = [slice(start, start + SYMMETRY_TILE_ROWS) for start in range(0, len(matrix), SYMMETRY_TILE_ROWS)]
    pairs = [(a, b) for i, a in enumerate(tiles) for b in tiles[i:]]
    if all(np.array_equal(matrix[a, b], matrix[b, a].T) for a, b in pairs):
        ordered = matrix.T if matrix.flags.f_contiguous else matrix
        return np.array(ordered, order="C") if copy else np.require(ordered, requirements=["C", "ALIGNED"])
    scale, mean = np.sqrt(np.abs(np.diag(matrix))), np.empty(matrix.shape)
    for a, b in pairs:
        upper, lower = matrix[a, b], matrix[b, a].T
        with np.errstate(over="ignore"):
            bad = np.abs(upper - lower) > MAX_RELATIVE_ASYMMETRY * np.maximum(
                np.abs(upper), np.outer(scale[a], scale[b])
            )
        if bad.any():
            i, j = np.argwhere(bad)[0] + (a.start, b.start)
            raise error_of(name, f"must be symmetric, got {name}[{i}, {j}] = {matrix[i, j]} and {matrix[j, i]}")
        mean[a, b] = 0.5 * upper + 0.5 * lower
        mean[b, a] = mean[a, b].T
    return mean


def cholesky(matrix, name):
    """Return the lower Cholesky factor of a symmetric matrix."""
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1)
    if info > 0:
        raise NotPositiveDefiniteError(
            f"{name} must be positive definite; its Cholesky factorisation fails at pivot {info}"
        )
    return factor


def check_partition(value, name, size):
    """Return lists of indices as a tuple of index arrays that hold each of 0..size-1 once, none of them empty."""
    try:
        parts = [np.asarray(part) for part in value]
    except (TypeError, ValueError):
        raise error_of(name, f"must be a sequence of lists of coordinates, got {value!r}", TypeError) from None
    owner = np.full(size, -1)
    for k, part in enumerate(parts):
        if part.ndim != 1 or part.size == 0 or part.dtype.kind not in "iu":
            raise ValueError(f"{name}[{k}] must be a list of one or more coordinates, got {part.tolist()!r}")
        for index in part.tolist():
            if not 0 <= index < size:
                raise ValueError(f"{name}[{k}] must hold coordinates in 0..{size - 1}, got {index}")
            if owner[index] >= 0:
                raise error_of(
                    name, f"must not overlap: coordinate {index} is in {name}[{owner[index]}] and {name}[{k}]"
                )
            owner[index] = k
    if np.any(owner < 0):
        raise error_of(name, f"must cover every coordinate: {np.argmin(owner >= 0)} is missing")
    return tuple(part.astype(np.intp) for part in parts)


def check_permutation(value, name, size):
    """Return `value` as an index array that holds each of 0..size-1 once."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.shape != (size,):
        raise error_of(name, f"must be a permutation of range({size}), got dtype {array.dtype} and shape {array.shape}")
    if size and not np.array_equal(np.sort(array), np.arange(size)):
        raise error_of(name, f"must hold each of 0..{size - 1} once")
    return np.ascontiguousarray(array, dtype=np.intp)


def make_generator(rng, name="rng"):
    """Return a numpy Generator from a seed or a Generator; randomness is never implicit."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise error_of(name, f"must be a seed (a non-negative integer) or a numpy.random.Generator, got {rng!r}", TypeError)


def add_in_order(values):
    """Return the sum of numbers, from left to right; the built-in sum compensates for rounding from Python 3.12 on."""
    return reduce(add, values, 0.0)


def to_tuple(array):
    """Return an array as nested tuples of floats, which compare and hash; one without axes as the float."""
    return _as_tuples(np.asarray(array, dtype=float).tolist())


def _as_tuples(value):
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def copy_read_only(array):
    """Return a read-only copy of an array; one without axes as the float."""
    return make_read_only(array.copy()) if array.ndim else float(array)


def make_read_only(array):
    """Return `array` with its writeable flag cleared."""
    array = np.asarray(array)
    array.flags.writeable = False
    return array
