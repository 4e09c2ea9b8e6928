"""Sums and products of covariances."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from cavity.base.frozen import put
from cavity.covariances.base import BuiltIn, Covariance, wrap_number
from cavity.covariances.combined_program import CombinedProgram
from cavity.covariances.program import ADD, MULTIPLY, Program
from cavity.covariances.slots import get_parts, is_compiled


def is_number(part):
    """Return whether a covariance is what `constant` makes of a number."""
    return part == wrap_number(getattr(part, "variance", None))


def list_postfix_steps(covariance):
    """Return the steps of a program: leaves, and ADD or MULTIPLY after the two parts that they join."""
    parts = get_parts(covariance)
    if not parts:
        return [covariance]
    steps = list_postfix_steps(parts[0])
    for part in parts[1:]:
        steps += [*list_postfix_steps(part), covariance._step]
    return steps


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Composed(BuiltIn):
    """Base of sums and products of two or more covariances; parts of the same kind are taken apart."""

    parts: tuple[Covariance, ...]

    _step, _join = None, None

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if len(parts) < 2 or not all(isinstance(part, Covariance) for part in parts):
            raise TypeError(f"{type(self).__name__} must have two or more covariances as parts, got {parts!r}")
        flat = [leaf for part in parts for leaf in (part.parts if type(part) is type(self) else (part,))]
        put(self, parts=tuple(flat))

    def to_settings(self) -> dict[str, Any]:
        """Return the covariance as a JSON-able dictionary; see `Covariance.to_settings`."""
        return {"kind": type(self).__name__, "parts": [part.to_settings() for part in self.parts]}

    def _program(self, n_features):
        if is_compiled(self):
            return Program(list_postfix_steps(self), n_features)
        programs = []
        for compiled, run in groupby(self.parts, is_compiled):
            run = tuple(run)
            parts = (type(self)(run),) if compiled and len(run) > 1 else run
            programs += [part._program(n_features) for part in parts]
        return programs[0] if len(programs) == 1 else CombinedProgram(self._join, programs)

    def _key(self):
        return (type(self).__name__, *(part._key() for part in self.parts))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sum(Composed):
    """Sum of covariances, written ``a + b``: of independent functions that are added.

    Parameters
    ----------
    parts : tuple of Covariance
        Two or more.
    """

    _step, _join = ADD, np.add

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Product(Composed):
    """Product of covariances, written ``a * b``.

    Parameters
    ----------
    parts : tuple of Covariance
        Two or more.
    """

    _step, _join = MULTIPLY, np.multiply

    def __repr__(self) -> str:
        factors = [f"({part!r})" if isinstance(part, Sum) else repr(part) for part in self.parts]
        if is_number(self.parts[0]) and not is_number(self.parts[1]):  # 2.0 * 3.0 would be one number
            factors[0] = repr(self.parts[0].variance)
        return " * ".join(factors)
