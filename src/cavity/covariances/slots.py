"""A covariance as its leaves, and their parameters as slots: what is learnt, by what it is rather than by its name.

A covariance is a leaf with parameters, or a sum or product with `parts`. Leaves come in the order in which they are
written; one object may be there twice. Derivatives in the logs of all parameters of the kernel become those in the
free parameters here.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cavity.covariances import priors
from cavity.covariances.program import program_of

BOUNDS = (1e-300, 1e300)  # of a free parameter that has none of its own, whatever the units


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
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
        return self.leaf.bounds.get(self.name, BOUNDS)

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


def parts_of(covariance):
    """Return the terms of a sum or the factors of a product, an empty tuple for a leaf."""
    return getattr(covariance, "parts", ())


def leaves(covariance):
    """Return the parts with parameters, in order; those that a user wrote are checked."""
    if parts_of(covariance):
        return [leaf for part in parts_of(covariance) for leaf in leaves(part)]
    covariance._check()
    return [covariance]


def rebuilt(covariance, new):
    """Return a covariance of the same structure with the leaves that come next from an iterator."""
    parts = parts_of(covariance)
    return type(covariance)(tuple(rebuilt(part, new) for part in parts)) if parts else next(new)


def labelled(covariance):
    """Return (name, leaf) pairs; leaves of one name, if there are several, are numbered from 1."""
    every = leaves(covariance)
    total, seen, pairs = Counter(leaf._label for leaf in every), Counter(), []
    for leaf in every:
        label = leaf._label
        seen[label] += 1
        pairs.append((label if total[label] == 1 else f"{label}_{seen[label]}", leaf))
    return pairs


def free_names(leaf):
    """Return the names of the parameters of a leaf that are not fixed."""
    return [name for name in leaf._slots if name not in leaf.fixed]


def free_slots(covariance):
    """Return a `Slot` for every free number, in the order of `Covariance.parameter_names`."""
    found = []
    for place, (label, leaf) in enumerate(labelled(covariance)):
        for name in free_names(leaf):
            size = np.shape(getattr(leaf, name))
            role = leaf._roles.get(name, name)
            found += [Slot(leaf, place, label, name, i, role) for i in (range(size[0]) if size else (None,))]
    return found


def values(covariance):
    """Return the free numbers, (n_free,)."""
    return np.array([slot.value for slot in free_slots(covariance)], dtype=np.float64)


def bounds(covariance):
    """Return (low, high) of the free numbers, (n_free, 2)."""
    return np.array([slot.bounds for slot in free_slots(covariance)], dtype=np.float64).reshape(-1, 2)


def with_values(covariance, numbers):
    """Return the covariance with other free numbers, (n_free,)."""
    left, new = iter(np.asarray(numbers).tolist()), []
    for leaf in leaves(covariance):
        known = {name: getattr(leaf, name) for name in free_names(leaf)}
        changes = {n: [next(left) for _ in old] if np.ndim(old) else next(left) for n, old in known.items()}
        new.append(leaf._with(**changes))
    return rebuilt(covariance, iter(new))


def with_arguments(leaf, **changes):
    """Return a leaf with other parameters, bounds or priors."""
    return leaf._with(**changes)


def log_prior(leaf):
    """Return the log prior density of a leaf and its gradient in the logs of the free numbers."""
    total, slopes = 0.0, [np.zeros(0)]
    for name in free_names(leaf):
        value = np.ravel(getattr(leaf, name))
        slopes.append(np.zeros(value.size))
        if name in leaf.priors:
            density, slope = priors.log_density(leaf.priors[name], value)
            total, slopes[-1] = total + float(np.sum(density)), np.broadcast_to(slope, value.shape)
    return total, np.concatenate(slopes)


def free_gradient(covariance, by_kernel, n_features):
    """Return derivatives in the logs of the free numbers of those in the logs of the kernel's, for rows of a width."""
    targets, n_free = [], 0
    for leaf in leaves(covariance):
        for name in leaf._slots:
            value = getattr(leaf, name)
            size = leaf._slot_size(name, n_features)
            if name in leaf.fixed:
                targets += [-1] * size
                continue
            targets += range(n_free, n_free + size) if np.ndim(value) else [n_free] * size
            n_free += np.size(value)
    targets = np.array(targets, dtype=np.intp)
    return np.bincount(targets[targets >= 0], weights=by_kernel[targets >= 0], minlength=n_free).astype(np.float64)


def gradient(covariance, X, weights, Z, threads):
    """Return the gradient of <weights, K> in the logs of the free numbers, see `Program.contract`."""
    n_features = X.shape[1]
    return free_gradient(covariance, program_of(covariance, n_features).contract(X, weights, Z, threads), n_features)
