"""Labels of any two values, and ordered categories, as the numbers that likelihoods take; and what kind a target is.

A label is a text, a number, a truth value, or anything else that sorts and hashes; labels come as an array, a list, or
a column of a table, categories included. Likelihoods take classes as numbers 0, 1, ..., two also as -1 and 1.
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from cavity.base import frames
from cavity.base.arrays import error_of, is_masked
from cavity.base.errors import mark_missing

HOW_TO_ORDER = (
    "say their order: pandas.Categorical(y, categories=[lowest, ..., highest], ordered=True), a polars.Enum, or the "
    "numbers 0, 1, ... of the classes"
)
TRUTH_VALUES = False, True


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A column of labels: an array of numbers, or a list of other objects with their different values in order."""

    values: np.ndarray | list
    kinds: list | None = None  # of objects
    declared: list | None = None  # of categories, those that no row has included
    ordered: bool = False  # whether one category is more than the one before

    @classmethod
    def of(cls, y, name="y"):
        """Read a column of that name; ValueError or TypeError for a row without a label, or one that is none."""
        if type(y) is np.ndarray and y.dtype.kind in "biuf":  # nearly always
            return cls(y)
        declared, ordered = _read_categories(y)
        dtype = frames.dtype_of(y)
        if declared is None and dtype is None:
            array = np.asarray(y)
            if array.dtype.kind not in "USO" or array.ndim == 0:
                return cls(array)
        elif declared is None and str(dtype) != "object" and frames.has_numbers(y):
            return cls(np.asarray(frames.to_numbers(y, name)))
        values = _to_objects(y)
        try:
            kinds = list(dict.fromkeys(values))
        except TypeError:
            raise TypeError(f"{name} must hold one label a row, got {values[0]!r} in row 0") from None
        if any(map(_is_missing, kinds)):
            row = next(i for i, label in enumerate(values) if _is_missing(label))
            error = error_of(name, f"must hold a label in every row, got {values[row]} in row {row}")
            raise mark_missing(error, None)
        if declared is not None:
            return cls(values, [label for label in declared if label in set(kinds)], declared, ordered)
        if all(isinstance(label, Real) for label in kinds):
            return cls(np.array(values, dtype=bool if all(isinstance(label, bool) for label in kinds) else np.float64))
        try:
            return cls(values, sorted(kinds))
        except TypeError:
            raise TypeError(f"{name} must hold labels that can be sorted, got {frames.join_names(kinds)}") from None

    @property
    def are_numbers(self):
        """Whether they are a vector of real numbers."""
        return self.kinds is None and self.values.ndim == 1 and self.values.dtype.kind in "biuf"

    def codes(self, classes):
        """Return the number of the class of each row, as float64; ValueError for one that is none of them."""
        number = {label: float(k) for k, label in enumerate(classes)}
        values = self.values.tolist() if self.kinds is None else self.values
        try:
            return np.array([number[label] for label in values])
        except KeyError:
            row = next(i for i, label in enumerate(values) if label not in number)
        raise error_of("y", f"must hold the classes {frames.join_names(classes)}, got {values[row]!r} in row {row}")


def read_labels(values, argument):
    """Return the `Labels` of a column: texts or finite numbers, in every row."""
    if is_masked(values):
        raise TypeError(f"{argument} must not be a masked array; drop the masked rows first")
    column = Labels.of(frames.take_only_column(values), argument)
    if column.kinds is None and not column.are_numbers:
        raise error_of(argument, f"must hold one label a row, got shape {np.shape(column.values)}")
    if column.kinds is None and not np.isfinite(column.values).all():
        row = int(np.argmin(np.isfinite(column.values)))
        rule = "have a value in every row" if np.isnan(column.values[row]) else "be finite"
        error = error_of(argument, f"must {rule}, got {column.values[row]} in row {row}")
        raise mark_missing(error, column.values[row])
    other = next((kind for kind in column.kinds or () if not isinstance(kind, str | float | int | np.generic)), None)
    if other is not None:
        how = "give numbers for them (of dates the days since the first), or str of them as categories"
        raise TypeError(f"{argument} must hold texts or numbers, got {other!r}; {how}")
    return column


def plain_label(value):
    """Return a label as users write it: a whole number as an int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def encode_labels(y, likelihood):
    """Return the y of a fit as its likelihood takes it, and what its class numbers stand for.

    Parameters
    ----------
    y : array_like (N,), or column of a table
        Labels, if the likelihood is one of classes; else it is returned as it is.
    likelihood : Likelihood
        With `n_classes`, and the domain "increasing" among its `parameters` if their number is open.

    Returns
    -------
    y : array_like
        Numbers.
    classes : tuple or None
        The values that stand for 0, 1, ...; None where these were given, or -1 and 1. Where the number of classes is
        open, consecutive integers that begin with another number than 0 are classes, too.

    Raises
    ------
    ValueError, TypeError
        For labels that are missing, not ordered where an order is needed, or too many or too few.
    """
    if not has_classes(likelihood) or is_masked(y):  # which is refused later on
        return y, None
    labels, count = Labels.of(y), likelihood.n_classes
    binary = count == 2 and not is_ordered(likelihood)
    numbers = _find_consecutive_integers(labels) if count is None else None
    if numbers is not None:
        return labels.values - numbers[0], numbers
    if labels.kinds is None and not (binary and labels.are_numbers and not _are_binary_codes(labels.values)):
        return labels.values, TRUTH_VALUES if binary and has_truth_values(y, labels) else None
    classes = _find_two_classes(labels) if binary else _find_ordered_classes(labels, count)
    return labels.codes(classes), tuple(_to_python(label) for label in classes)


def encode_new_labels(y, likelihood, classes):
    """Return later labels as the likelihood takes them, given the `classes` of the fit; ValueError for unknown ones."""
    if classes in (None, TRUTH_VALUES) and type(y) is np.ndarray and y.dtype.kind in "biuf":  # nearly always
        return y
    if not has_classes(likelihood) or is_masked(y):
        return y
    labels = Labels.of(y)
    if labels.kinds is None and (not labels.are_numbers or classes is None or all(isinstance(c, str) for c in classes)):
        return labels.values
    if classes is None:
        raise error_of("y", f"must hold the numbers of the classes as in the fit, got {labels.values[0]!r} in row 0")
    return labels.codes(classes)


def infer_target_kind(y):
    """Return what a target is, by which a likelihood can be chosen.

    Parameters
    ----------
    y : array_like, or column of a table
        The observations.

    Returns
    -------
    str
        "binary" for two different values of any kind, and for labels or truth values that are all the same; "numbers"
        for others, "ordered" for ordered categories, and "classes" for other labels.
    """
    labels = Labels.of(y)
    if labels.kinds is None:
        values = labels.values
        two = labels.are_numbers and values.size and np.all((values == values.min()) | (values == values.max()))
        is_binary = two and (has_truth_values(y, labels) or values.min() < values.max())
        return "binary" if is_binary else "numbers"
    if 2 in (len(labels.kinds), len(labels.declared or ())):
        return "binary"
    if labels.ordered:
        return "ordered"
    return "binary" if len(labels.kinds) == 1 and labels.declared is None else "classes"


def has_truth_values(y, labels=None):
    """Whether a column, or what was read of it, is one of truth values."""
    types = frames.dtype_of(y), None if labels is None else labels.values.dtype
    return any(str(dtype).lower().startswith("bool") for dtype in types)


def has_classes(likelihood):
    """Whether observations are labels; how many there are may be open."""
    return likelihood.n_classes is not None or is_ordered(likelihood)


def is_ordered(likelihood):
    """Whether classes follow each other, as thresholds divide them."""
    return "increasing" in likelihood.parameters.values()


def _are_binary_codes(values):
    """Whether numbers are -1 and 1, or 0 and 1."""
    return bool(np.all(np.abs(values) == 1) or np.all((values == 0) | (values == 1)))


def _find_consecutive_integers(labels):
    """Return the different values of labels if they are m, m + 1, ..., M and m is not 0; else None."""
    if not labels.are_numbers or not np.size(labels.values):
        return None
    first, last = labels.values.min(), labels.values.max()
    if not (first != 0 and first < last < first + len(labels.values)):
        return None
    values = np.unique(labels.values)
    is_complete = np.array_equal(values, first + np.arange(len(values))) and first == np.floor(first)
    return tuple(map(int, values)) if is_complete else None


def _find_two_classes(labels):
    """Return the two values of binary labels, in order."""
    kinds = labels.kinds
    if kinds is None:
        if not np.isfinite(labels.values).all():
            row = int(np.argmin(np.isfinite(labels.values)))
            raise error_of("y", f"must hold a label in every row, got {labels.values[row]} in row {row}")
        kinds = np.unique(labels.values).tolist()
    kinds = labels.declared if len(kinds) != 2 == len(labels.declared or ()) else kinds
    if len(kinds) == 1:
        hint = "; where later rows hold the other one, give a categorical of both"
        raise error_of("y", f"must hold two classes, got {kinds[0]!r} in every row{hint}")
    if len(kinds) != 2:
        hint = "; counts and real numbers want another likelihood"
        if labels.kinds:
            hint = "; fit one class against the rest, as the classifiers in cavity.sklearn do"
        raise error_of(
            "y", f"must hold two classes, got {len(kinds)} different values: {frames.join_names(kinds)}{hint}"
        )
    return kinds


def _find_ordered_classes(labels, count):
    """Return the values of ordered labels, of which there are to be so many, or if that is None two or more."""
    if not labels.ordered:
        raise error_of(
            "y", f"must hold ordered classes, got {frames.join_names(labels.kinds)} without an order; {HOW_TO_ORDER}"
        )
    for kinds in (labels.kinds, labels.declared):
        if len(kinds) == count or (count is None and len(kinds) > 1):
            return kinds
    expected = "two classes or more" if count is None else f"the {count} classes of the likelihood"
    raise error_of("y", f"must hold {expected}, got {frames.join_names(labels.kinds)}")


def _read_categories(y):
    """Return the categories of a column that lists them in order, and whether the order means something; else None."""
    dtype = frames.dtype_of(y)
    if hasattr(dtype, "ordered") and hasattr(y, "to_pylist"):  # an Arrow dictionary, in the order of appearance if not
        chunk = y.unify_dictionaries().chunk(0) if hasattr(y, "unify_dictionaries") and y.num_chunks else y
        return (chunk.dictionary.to_pylist(), True) if dtype.ordered and hasattr(chunk, "dictionary") else (None, False)
    if hasattr(dtype, "ordered"):  # pandas
        return dtype.categories.tolist(), bool(dtype.ordered)
    if str(dtype).startswith("Enum"):  # polars
        return dtype.categories.to_list(), True
    return None, False


def _to_objects(y):
    """Return a column as a list of Python's objects."""
    method = next((name for name in ("to_pylist", "tolist", "to_list") if hasattr(y, name)), None)
    return list(y) if method is None else getattr(y, method)()


def _is_missing(value):
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _to_python(value):
    """Return a label as Python's own object, a whole number as an int."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
