"""Parameters that likelihoods declare: what they may be, and how a search sees them.

A likelihood says which of its fields are parameters, `parameters = {name: domain}`. One that is None is open: a fit
finds it. A search wants numbers without bounds: a `FreeParameters` turns values into logs, logits and the like.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.frozen import put


@dataclass(frozen=True, slots=True)
class Domain:
    """What the values of a parameter are, and the free numbers that stand for them."""

    checked: Callable  # (value, name) -> value
    pack: Callable  # (value, unit) -> (n,)
    unpack: Callable  # (vector, unit) -> value
    slopes: Callable  # (value, unit) -> (n, n): derivatives of the values in the free numbers


def _positive(value, name):
    return arrays.number(value, name, low=0)


def _share(value, name):
    return arrays.number(value, name, low=0, high=1)


def _increasing(value, name):
    values = arrays.finite_array(value, name, ndim=(1,))
    if values.size == 0 or not np.all(np.diff(values) > 0):
        raise arrays.wrong(name, f"must be increasing and at least one, got {values.tolist()}")
    return arrays.as_tuple(values)


def _steps_of(values, unit):
    """The first value in units, and the logs of the differences."""
    return np.append(values[0] / unit, np.log(np.diff(values)))


def _sums_of(vector, unit):
    return arrays.as_tuple(np.cumsum(np.append(vector[0] * unit, np.exp(vector[1:]))))


def _sum_slopes(values, unit):
    return np.tril(np.ones((len(values), len(values)))) * np.append(unit, np.diff(values))


_POSITIVE = Domain(
    _positive,
    lambda value, unit: np.log([value]),
    lambda vector, unit: float(np.exp(vector[0])),
    lambda value, unit: np.array([[value]]),
)
DOMAINS = {
    "scale": _POSITIVE,  # in the scale of the observations: Gaussian processes learn it without being asked
    "positive": _POSITIVE,
    "real": Domain(
        arrays.number,
        lambda value, unit: np.array([value / unit]),
        lambda vector, unit: float(vector[0] * unit),
        lambda value, unit: np.array([[unit]]),
    ),
    "share": Domain(
        _share,
        lambda value, unit: np.array([np.log(value) - np.log1p(-value)]),
        lambda vector, unit: float(1.0 / (1.0 + np.exp(-vector[0]))),
        lambda value, unit: np.array([[value * (1.0 - value)]]),
    ),
    "increasing": Domain(_increasing, _steps_of, _sums_of, _sum_slopes),
}


def open_parameters(likelihood):
    """Return the names of the parameters that are None."""
    return tuple(name for name in likelihood.parameters if getattr(likelihood, name) is None)


def scales_of(likelihood):
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
            put(likelihood, **{name: DOMAINS[domain].checked(value, name)})


def check_declared(likelihood):
    """Check what a likelihood declares: TypeError or ValueError naming the parameter."""
    kind, declared = type(likelihood).__name__, likelihood.parameters
    if hasattr(likelihood, "scales"):
        raise TypeError(f"scales of {kind} has no meaning: declare parameters = {{name: 'scale'}}")
    if not isinstance(declared, Mapping):
        raise TypeError(f"parameters of {kind} must be a dict of names and domains, got {declared!r}")
    for name, domain in declared.items():
        arrays.choice(domain, f"domain of {name} in parameters of {kind}", tuple(DOMAINS))
        if not is_dataclass(likelihood) or not hasattr(likelihood, name):
            raise TypeError(
                f"likelihood {kind} must be a dataclass with the fields in its parameters, {name!r} among them"
            )
        value = getattr(likelihood, name)
        if value is not None and not type(likelihood).__module__.startswith("cavity."):
            DOMAINS[domain].checked(value, f"{name} of {kind}")


class FreeParameters:
    """Some parameters of a likelihood as one vector of free numbers; `unit` is that of the real ones."""

    def __init__(self, likelihood, names, unit=1.0):
        self.names, self.unit = tuple(names), unit
        self.domains = [DOMAINS[likelihood.parameters[name]] for name in self.names]

    def pack(self, likelihood):
        """The vector of a likelihood."""
        pairs = zip(self.names, self.domains, strict=True)
        return np.concatenate(
            [np.zeros(0), *(domain.pack(getattr(likelihood, name), self.unit) for name, domain in pairs)]
        )

    def unpack(self, vector, likelihood):
        """The likelihood with the values of a vector."""
        if not self.names:
            return likelihood
        sizes = [np.size(getattr(likelihood, name)) for name in self.names]
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        values = [domain.unpack(part, self.unit) for domain, part in zip(self.domains, parts, strict=True)]
        return replace(likelihood, **dict(zip(self.names, values, strict=True)))
