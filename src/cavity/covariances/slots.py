"""A covariance as its leaves, and their parameters as slots: what is learnt, by what it is rather than by its name.

A covariance is a leaf with parameters, or a sum or product with `parts`. Leaves come in the order in which they are
written; one object may be there twice. Derivatives in the logs of all parameters of the kernel become those in the
free parameters here.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import islice

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import set_fields
from cavity.covariances.program import get_program
from cavity.priors import densities as priors

DEFAULT_BOUNDS = (1e-300, 1e300)  # of a free parameter that has none of its own, whatever the units


@dataclass(frozen=True, slots=True, eq=False)
class ParameterSlot:
    """One free number of a covariance: where it is, and what it does.

    Attributes
    ----------
    leaf : Leaf
        The covariance that has it.
    place : int
        Of the leaf among all leaves.
    label : str
        Name of the leaf in the names of parameters.
    name : str
        Of the parameter.
    index : int or None
        Of the entry, if the parameter is an array.
    role : str
        "variance", "lengthscale", "shape", "period", or "smoothness" for a lengthscale without units.
    """

    leaf: object
    place: int
    label: str
    name: str
    index: int | None
    role: str

    @property
    def value(self):
        """The number."""
        value = getattr(self.leaf, self.name)
        return value if self.index is None else value[self.index]

    @property
    def bounds(self):
        """Between which numbers it may be learnt."""
        return self.leaf.bounds.get(self.name, DEFAULT_BOUNDS)

    @property
    def full_name(self):
        """As in `Covariance.parameter_names`."""
        entry = self.name if self.index is None else f"{self.name}[{self.index}]"
        return f"{self.label}.{entry}"

    def name_with(self, columns):
        """The full name, with the name of a column in place of its number if that is known."""
        if self.index is None or columns is None or self.role == "own":  # arrays of a user are about anything
            return self.full_name
        chosen = self.leaf.columns
        return f"{self.label}.{self.name}[{columns[self.index if chosen is None else chosen[self.index]]}]"


def get_parts(covariance):
    """Return the terms of a sum or the factors of a product, an empty tuple for a leaf."""
    return getattr(covariance, "parts", ())


def list_leaves(covariance):
    """Return the parts with parameters, in order; those that a user wrote are checked."""
    if get_parts(covariance):
        return [leaf for part in get_parts(covariance) for leaf in list_leaves(part)]
    covariance._check()
    return [covariance]


def is_compiled(covariance):
    """Return whether all leaves are compiled, none written by a user."""
    return all(getattr(leaf, "_op", None) is not None for leaf in list_leaves(covariance))


def rebuild(covariance, new):
    """Return a covariance of the same structure with the leaves that come next from an iterator."""
    parts = get_parts(covariance)
    return type(covariance)(tuple(rebuild(part, new) for part in parts)) if parts else next(new)


def label_leaves(covariance):
    """Return (name, leaf) pairs; leaves of one name, if there are several, are numbered from 1."""
    every = list_leaves(covariance)
    total, numbers, pairs = Counter(leaf._label for leaf in every), Counter(), []
    for leaf in every:
        label = leaf._label
        numbers[label] += 1
        pairs.append((label if total[label] == 1 else f"{label}_{numbers[label]}", leaf))
    return pairs


def list_free_names(leaf):
    """Return the names of the parameters of a leaf that are not fixed."""
    return [name for name in leaf._slots if name not in leaf.fixed]


def list_free_slots(covariance):
    """Return a `Slot` for every free number, in the order of `Covariance.parameter_names`."""
    slots = []
    for index, (label, leaf) in enumerate(label_leaves(covariance)):
        for name in list_free_names(leaf):
            size = np.shape(getattr(leaf, name))
            role = leaf._roles.get(name, name)
            slots += [ParameterSlot(leaf, index, label, name, i, role) for i in (range(size[0]) if size else (None,))]
    return slots


class ParameterLayout:
    """What covariances share that differ in their free numbers alone: a search by the evidence works it out once.

    Attributes
    ----------
    names : tuple of str
        As in `Covariance.parameter_names`.
    bounds, log_bounds : ndarray (n_free, 2)
        Between which numbers they may be learnt.
    fields : list of list
        For every leaf the names of its free parameters, each with its length, or None for a number.
    has_priors : bool
        Whether any free number has one.
    programs : dict
        By the width of rows, the program of one of these covariances.
    """

    __slots__ = ("_targets", "bounds", "fields", "has_priors", "log_bounds", "names", "programs")

    def __init__(self, covariance):
        every, slots = list_leaves(covariance), list_free_slots(covariance)
        self.names = tuple(slot.full_name for slot in slots)
        self.bounds = np.array([slot.bounds for slot in slots], dtype=np.float64).reshape(-1, 2)
        self.log_bounds = np.log(self.bounds)
        sizes = [[(name, np.shape(getattr(leaf, name))) for name in list_free_names(leaf)] for leaf in every]
        self.fields = [[(name, size[0] if size else None) for name, size in fields] for fields in sizes]
        self.has_priors = any(name in leaf.priors for leaf in every for name in list_free_names(leaf))
        self.programs, self._targets = {}, {}

    def targets(self, covariance, n_features):
        """Return which derivatives of the kernel count for rows of a width, and in which free number each of them."""
        if n_features not in self._targets:
            targets, n_free = [], 0
            for leaf, free in zip(list_leaves(covariance), map(dict, self.fields), strict=True):
                for name in leaf._slots:
                    size = leaf._slot_size(name, n_features)
                    if name not in free:
                        targets += [-1] * size
                        continue
                    n = free[name]
                    targets += [n_free] * size if n is None else range(n_free, n_free + size)
                    n_free += 1 if n is None else n
            targets = np.array(targets, dtype=np.intp)
            self._targets[n_features] = targets >= 0, targets[targets >= 0]
        return self._targets[n_features]


def get_layout(covariance):
    """Return the `Layout` of a covariance, which those of this library keep: nothing in them changes."""
    layout = getattr(covariance, "_layout", None)
    if layout is None:
        layout = ParameterLayout(covariance)
        if is_compiled(covariance):
            set_fields(covariance, _layout=layout)
    return layout


def get_values(covariance):
    """Return the free numbers, (n_free,)."""
    numbers = []
    for leaf, fields in zip(list_leaves(covariance), get_layout(covariance).fields, strict=True):
        for name, size in fields:
            value = getattr(leaf, name)
            numbers += [value] if size is None else value.tolist()
    return np.array(numbers, dtype=np.float64)


def get_bounds(covariance):
    """Return (low, high) of the free numbers, (n_free, 2)."""
    return get_layout(covariance).bounds.copy()


def _take_entries(numbers, size):
    return arrays.make_read_only(np.array(list(islice(numbers, size))))


def replace_values(covariance, numbers):
    """Return the covariance with other free numbers, (n_free,), within their bounds: that is not checked."""
    iterator, new, layout = iter(np.asarray(numbers).tolist()), [], get_layout(covariance)
    for leaf, fields in zip(list_leaves(covariance), layout.fields, strict=True):
        changes = {name: next(iterator) if size is None else _take_entries(iterator, size) for name, size in fields}
        new.append(leaf._moved(**changes) if changes else leaf)
    other = rebuild(covariance, iter(new))
    if hasattr(covariance, "_layout"):
        set_fields(other, _layout=layout)
    return other


def replace_arguments(leaf, **changes):
    """Return a leaf with other parameters, bounds or priors."""
    return leaf._with(**changes)


def evaluate_log_prior(leaf):
    """Return the log prior density of a leaf and its gradient in the logs of the free numbers."""
    total, slopes = 0.0, [np.zeros(0)]
    for name in list_free_names(leaf):
        value = np.ravel(getattr(leaf, name))
        slopes.append(np.zeros(value.size))
        if name in leaf.priors:
            density, slope = priors.evaluate_log_density(leaf.priors[name], value)
            total, slopes[-1] = total + float(np.sum(density)), np.broadcast_to(slope, value.shape)
    return total, np.concatenate(slopes)


def gather_free_gradient(covariance, by_kernel, n_features):
    """Return derivatives in the logs of the free numbers of those in the logs of the kernel's, for rows of a width."""
    layout = get_layout(covariance)
    counted, targets = layout.targets(covariance, n_features)
    gradient = np.bincount(targets, weights=by_kernel[counted], minlength=len(layout.names))
    return gradient.astype(np.float64, copy=False)


def compute_gradient(covariance, X, weights, Z, threads):
    """Return the gradient of <weights, K> in the logs of the free numbers, see `Program.contract`."""
    n_features = X.shape[1]
    return gather_free_gradient(
        covariance, get_program(covariance, n_features).contract(X, weights, Z, threads), n_features
    )
