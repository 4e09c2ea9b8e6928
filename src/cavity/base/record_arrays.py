"""What an array of a saved record must be: its axes, its domain, its kind.

Axes are written as

    "N D"           two of them; a name stands for one size in all arrays of the record;
    "()"            none: a number;
    "K-1 2"         one less than K, and exactly two;
    "B? N D"        B is there in all arrays that name it, or in none;
    "S* D"          S are any number of axes, the same ones wherever they are named;
    "K 1 | K D"     either.

Sizes are at least 1, but those of names in lower case may be 0. The first array that names an axis sets its size.
"""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays

DTYPES_BY_KIND = {"f": (np.float64,), "i": (np.int64, np.int32), "b": (np.bool_,), "U": (np.str_,)}
KIND_LABELS = {"f": "float64", "i": "integers", "b": "booleans", "U": "text"}


def _finite(array):
    return arrays.find_nonfinite(array if array.ndim else array.reshape(1)) is None


def _triangle(array):
    return _finite(array) and bool(np.all(np.diagonal(array, axis1=-2, axis2=-1) > 0))


def _symmetric(array):
    scale = np.sqrt(np.abs(np.diagonal(array, axis1=-2, axis2=-1)))
    return _triangle(array) and bool(
        np.all(
            np.abs(array - np.swapaxes(array, -1, -2))
            <= arrays.MAX_RELATIVE_ASYMMETRY * np.maximum(np.abs(array), scale[..., :, None] * scale[..., None, :])
        )
    )


def _shares(array):
    sums_to_one = np.all(np.abs(np.sum(array, axis=-1) - 1.0) <= 1e-6)
    return _finite(array) and bool(np.all(array >= 0) and sums_to_one)


ARRAY_DOMAINS = {  # what the numbers of an array must be, in words, and the test
    "any": ("", lambda array: True),
    "finite": ("finite", _finite),
    "known": ("free of nan", lambda array: not np.isnan(array).any()),
    "nonnegative": ("finite and not negative", lambda array: _finite(array) and bool(np.all(array >= 0))),
    "positive": ("finite and positive", lambda array: _finite(array) and bool(np.all(array > 0))),
    "triangle": ("finite, with a positive diagonal", _triangle),
    "symmetric": ("finite and symmetric, with a positive diagonal", _symmetric),
    "log shares": ("logs of probabilities with sums of 1", lambda array: _shares(np.exp(array))),
    "shares": ("probabilities with sums of 1", _shares),
}


@dataclass(frozen=True, slots=True)
class Array:
    """What an array must be: its axes and its domain, one of DOMAINS; its kind, of which there may be several."""

    axes: str
    domain: str = "finite"
    kind: str = "f"

    def check(self, name, array, sizes):
        """Return the array in the bytes of this machine, and the sizes with those of its axes.

        Parameters
        ----------
        name : str
            Its name.
        array : ndarray
            The array.
        sizes : dict
            Known sizes by names of axes.

        Returns
        -------
        array : ndarray
            The same numbers.
        sizes : dict
            With more of them.

        Raises
        ------
        ValueError
            Naming the array, if it is not what it must be.
        """
        if not any(array.dtype.type in DTYPES_BY_KIND[kind] for kind in self.kind):
            kinds = " or ".join(KIND_LABELS[kind] for kind in self.kind)
            raise ValueError(f"array {name!r} must hold {kinds}, got {array.dtype}")
        forms = (_matched(array.shape, form.split(), sizes) for form in self.axes.split("|"))
        matched = next((form for form in forms if form is not None), None)
        if matched is None:
            axis_names = self.axes.replace("-1", "").split()
            axis_sizes = ", ".join(f"{axis} = {size}" for axis, size in sizes.items() if axis in axis_names)
            known_sizes = f", where {axis_sizes}" if axis_sizes else ""
            raise ValueError(f"array {name!r} must have axes {self.axes!r}{known_sizes}, got shape {array.shape}")
        domain_description, test = ARRAY_DOMAINS[self.domain]
        with np.errstate(all="ignore"):
            good = array.dtype.kind not in "fi" or test(array)
        if not good:
            raise ValueError(f"array {name!r} must be {domain_description}")
        dtype = np.dtype(np.intp) if array.dtype.kind == "i" else array.dtype.newbyteorder("=")
        return array.astype(dtype, copy=False), matched


def _matched(shape, form, sizes):
    """Return the sizes with those of a shape in that form, or None if it does not have that form."""
    sizes, axes = dict(sizes), [axis for axis in form if axis != "()"]
    group = next((i for i, axis in enumerate(axes) if axis[-1] in "?*"), None)
    if group is not None:
        width = len(shape) - len(axes) + 1
        if width < 0 or (axes[group][-1] == "?" and width > 1):
            return None
        if sizes.setdefault(axes[group], shape[group : group + width]) != shape[group : group + width]:
            return None
        shape, axes = shape[:group] + shape[group + width :], axes[:group] + axes[group + 1 :]
    if len(axes) != len(shape):
        return None
    for axis, size in zip(axes, shape, strict=True):
        axis, _, subtracted = axis.partition("-")
        full_size = size + int(subtracted or 0)
        expected_size = int(axis) if axis.isdigit() else sizes.setdefault(axis, full_size)
        if full_size != expected_size or (full_size == 0 and not axis.islower()):
            return None
    return sizes
