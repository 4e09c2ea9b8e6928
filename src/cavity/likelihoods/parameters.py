"""Parameters that likelihoods declare: what they may be, and how a search sees them.

A likelihood says which of its fields are parameters, `parameters = {name: domain}`. One that is None is open: a fit
finds it. A search works on numbers without bounds: a `FreeParameters` turns values into logs, logits and the like.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import replace_unchecked, set_fields

PARAMETER_RANGE = 1e10  # parameters stay within this factor of where a search may start
LINK_CHOICES = ("identity", "log", "logit")
DIFFERENCE_STEP = 1e-3  # of a free number, in differences of fourth order
SHORT_DIFFERENCE_STEP = 1e-4  # in those of second order


@dataclass(frozen=True, slots=True)
class ParameterDomain:
    """What the values of a parameter are, and the free numbers that stand for them."""

    checked: Callable  # (value, name) -> value
    pack: Callable  # (value, unit) -> (n,)
    unpack: Callable  # (vector, unit) -> value
    slopes: Callable  # (value, unit) -> (n, n): derivatives of the values in the free numbers


def _check_increasing(value, name):
    values = arrays.check_finite_array(value, name, ndim=(1,))
    if values.size == 0 or not np.all(np.diff(values) > 0):
        raise arrays.error_of(name, f"must be increasing and at least one, got {values.tolist()}")
    return arrays.to_tuple(values)


def _pack_increasing(values, unit):
    """The first value in units, and the logs of the differences."""
    return np.append(values[0] / unit, np.log(np.diff(values)))


def _unpack_increasing(vector, unit):
    return arrays.to_tuple(np.cumsum(np.append(vector[0] * unit, np.exp(vector[1:]))))


def _differentiate_increasing(values, unit):
    return np.tril(np.ones((len(values), len(values)))) * np.append(unit, np.diff(values))


_POSITIVE_DOMAIN = ParameterDomain(
    partial(arrays.check_number, low=0),
    lambda value, unit: np.log([value]),
    lambda vector, unit: float(np.exp(vector[0])),
    lambda value, unit: np.array([[value]]),
)
PARAMETER_DOMAINS = {
    "scale": _POSITIVE_DOMAIN,  # in the scale of the observations: Gaussian processes learn it without being asked
    "positive": _POSITIVE_DOMAIN,
    "real": ParameterDomain(
        arrays.check_number,
        lambda value, unit: np.array([value / unit]),
        lambda vector, unit: float(vector[0] * unit),
        lambda value, unit: np.array([[unit]]),
    ),
    "share": ParameterDomain(
        partial(arrays.check_number, low=0, high=1),
        lambda value, unit: np.array([np.log(value) - np.log1p(-value)]),
        lambda vector, unit: float(1.0 / (1.0 + np.exp(-vector[0]))),
        lambda value, unit: np.array([[value * (1.0 - value)]]),
    ),
    "between 1 and 2": ParameterDomain(
        partial(arrays.check_number, low=1, high=2),
        lambda value, unit: np.array([np.log(value - 1.0) - np.log(2.0 - value)]),
        lambda vector, unit: float(1.0 + 1.0 / (1.0 + np.exp(-vector[0]))),
        lambda value, unit: np.array([[(value - 1.0) * (2.0 - value)]]),
    ),
    "increasing": ParameterDomain(_check_increasing, _pack_increasing, _unpack_increasing, _differentiate_increasing),
}


def list_open_parameters(likelihood):
    """Return the names of the parameters that are None."""
    return tuple(name for name in likelihood.parameters if getattr(likelihood, name) is None)


def choose_parameters(learn, names, by_default):
    """Return the parameters among `names` that the argument `learn` selects; True selects those `by_default`."""
    if isinstance(learn, bool | np.bool_):
        return by_default if learn else ()
    if isinstance(learn, str):
        learn = (learn,)
    if not isinstance(learn, tuple | list):
        raise TypeError(f"learn must be True, a name or a tuple of names, got {learn!r}")
    return tuple(arrays.check_choice(name, "learn", names) for name in learn)


def list_scales(likelihood):
    """Return the names of the parameters in the scale of the observations."""
    return tuple(name for name, domain in likelihood.parameters.items() if domain == "scale")


def check_closed(likelihood):
    """Raise ValueError if a parameter is open."""
    for name in likelihood.parameters:
        if getattr(likelihood, name) is None:
            raise ValueError(
                f"{name} of {type(likelihood).__name__} is open (None): give a number, or fit a model, which finds it"
            )


def check_fields(likelihood):
    """Check the parameters of a built-in likelihood that is being made, and put the checked values."""
    for name, domain in likelihood.parameters.items():
        value = getattr(likelihood, name)
        if value is not None:
            set_fields(likelihood, **{name: PARAMETER_DOMAINS[domain].checked(value, name)})


def is_built_in(likelihood):
    """Whether a likelihood is one of this package."""
    return type(likelihood).__module__.startswith("cavity.")


def check_declared(likelihood):
    """Check what a likelihood declares: TypeError or ValueError naming the parameter."""
    kind, declared = type(likelihood).__name__, likelihood.parameters
    if hasattr(likelihood, "scales"):
        raise TypeError(f"scales of {kind} has no meaning: declare parameters = {{name: 'scale'}}")
    if likelihood.link is not None and not is_built_in(likelihood):
        arrays.check_choice(likelihood.link, f"link of {kind}", LINK_CHOICES)
    if not isinstance(declared, Mapping):
        raise TypeError(f"parameters of {kind} must be a dict of names and domains, got {declared!r}")
    for name, domain in declared.items():
        arrays.check_choice(domain, f"domain of {name} in parameters of {kind}", tuple(PARAMETER_DOMAINS))
        if not is_dataclass(likelihood) or not hasattr(likelihood, name):
            raise TypeError(
                f"likelihood {kind} must be a dataclass with the fields in its parameters, {name!r} among them"
            )
        value = getattr(likelihood, name)
        if value is not None and not is_built_in(likelihood):
            PARAMETER_DOMAINS[domain].checked(value, f"{name} of {kind}")


def find_unit(y):
    """Return a unit for real parameters: half of the range of observations, or 1 where there is none."""
    finite = y[np.isfinite(y)]
    return (0.5 * float(np.max(finite)) - 0.5 * float(np.min(finite)) if finite.size else 0.0) or 1.0


class FreeParameters:
    """Some parameters of a likelihood as one vector of free numbers; `unit` is that of the real ones.

    Parameters
    ----------
    likelihood : Likelihood
        With a value of each of them.
    names : sequence of str
        Those that are free.
    unit : float, default 1.0
        What real ones are counted in.
    """

    def __init__(self, likelihood, names, unit=1.0):
        self.names, self.unit = tuple(names), unit
        self.domains = [likelihood.parameters[name] for name in self.names]
        self.sizes = [np.size(getattr(likelihood, name)) for name in self.names]
        self.size = sum(self.sizes)

    @classmethod
    def scales(cls, likelihood):
        """Those in the scale of the observations."""
        return cls(likelihood, list_scales(likelihood))

    def pack(self, likelihood):
        """The vector of a likelihood."""
        pairs = zip(self.names, self.domains, strict=True)
        packed = (PARAMETER_DOMAINS[domain].pack(getattr(likelihood, name), self.unit) for name, domain in pairs)
        return np.concatenate([np.zeros(0), *packed])

    def parts(self, vector):
        """The entries of a vector, (n,), parameter by parameter."""
        return np.split(vector, np.cumsum(self.sizes)[:-1]) if self.names else []

    def unpack(self, vector, likelihood):
        """The likelihood with the values of a vector."""
        if not self.names:
            return likelihood
        triples = zip(self.names, self.domains, self.parts(vector), strict=True)
        return replace(
            likelihood, **{name: PARAMETER_DOMAINS[domain].unpack(part, self.unit) for name, domain, part in triples}
        )

    def unpack_columns(self, vectors, likelihood):
        """The likelihood with the values of several vectors (A, n) of single numbers as columns, (A, 1)."""
        pairs = zip(self.names, self.domains, strict=True)
        values = {
            name: np.array([[PARAMETER_DOMAINS[domain].unpack(row[j : j + 1], self.unit)] for row in vectors])
            for j, (name, domain) in enumerate(pairs)
        }
        return replace_unchecked(likelihood, **values)

    def step(self, likelihood, i, step):
        """The likelihood with entry i of its vector moved by a step."""
        owners = np.repeat(np.arange(len(self.names)), self.sizes)[i]
        if PARAMETER_DOMAINS[self.domains[owners]] is _POSITIVE_DOMAIN:  # to the last digit whatever the value
            name = self.names[owners]
            return replace(likelihood, **{name: getattr(likelihood, name) * np.exp(step)})
        vector = self.pack(likelihood)
        vector[i] += step
        return self.unpack(vector, likelihood)

    def mark_scales(self):
        """Which entries are logs of scales of the observations."""
        return np.repeat([domain == "scale" for domain in self.domains], self.sizes).astype(bool)

    def bounds(self, likelihood, *others):
        """(low, high) of every entry: a factor away from some vectors; real ones have none."""
        vectors = np.array([self.pack(likelihood), *others])
        far = np.log(PARAMETER_RANGE)
        pairs = np.column_stack([vectors.min(axis=0) - far, vectors.max(axis=0) + far])
        first = np.cumsum([0, *self.sizes])[:-1]
        unbounded = [i for i, domain in zip(first, self.domains, strict=True) if domain in ("real", "increasing")]
        pairs[unbounded] = -np.inf, np.inf
        return pairs

    def jacobian(self, likelihood):
        """The derivatives of the values in the vector, (n, n)."""
        out, first = np.zeros((self.size, self.size)), 0
        for name, domain, size in zip(self.names, self.domains, self.sizes, strict=True):
            part = slice(first, first + size)
            out[part, part] = PARAMETER_DOMAINS[domain].slopes(getattr(likelihood, name), self.unit)
            first += size
        return out

    def labels(self):
        """Names of the entries: those of parameters with several values are numbered."""
        pairs = zip(self.names, self.sizes, self.domains, strict=True)
        parts = ([name] if domain != "increasing" else [f"{name}[{i}]" for i in range(n)] for name, n, domain in pairs)
        return [label for labels in parts for label in labels]

    def values(self, likelihood):
        """The values of all entries, as a list."""
        return [float(value) for name in self.names for value in np.ravel(getattr(likelihood, name))]


def differentiate(free, likelihood, total, slopes=MappingProxyType({})):
    """Derivatives of total(likelihood) in the free numbers, by differences: good to 1e-9 of it or better.

    Those in parameters of one number whose `slopes` are given, by name, are these.

    Those of built-in likelihoods, whose totals are right to rounding, are of second order; those of others, by
    quadrature to 1e-10, of fourth order with a step that is ten times as long.
    """

    def slope(i):
        def difference(step):
            return total(free.step(likelihood, i, step)) - total(free.step(likelihood, i, -step))

        if is_built_in(likelihood):
            return difference(SHORT_DIFFERENCE_STEP) / (2.0 * SHORT_DIFFERENCE_STEP)
        return (8.0 * difference(DIFFERENCE_STEP) - difference(2.0 * DIFFERENCE_STEP)) / (12.0 * DIFFERENCE_STEP)

    labels = free.labels()
    return np.array([slopes[labels[i]] if labels[i] in slopes else slope(i) for i in range(free.size)])
