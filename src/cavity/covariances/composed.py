"""Sums and products of covariances; matrices of parts that are not compiled are joined in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np

from cavity.base.public_objects import set_fields
from cavity.base.triangles import fill_symmetric
from cavity.covariances.base import BuiltIn, Covariance, wrap_number
from cavity.covariances.program import ADD, MULTIPLY, Program, UncompiledProgram, make_range_error
from cavity.covariances.slots import get_parts, is_compiled


class CombinedProgram(UncompiledProgram):
    """The sum or product of programs, joined by np.add or np.multiply; it is called like a `Program`."""

    def __init__(self, join, programs):
        self._join, self._programs = join, programs
        self.n_slots = sum(program.n_slots for program in programs)

    def gram(self, X, out, threads):
        """Write the covariance matrix of rows X (N, D) into out (N, N)."""
        self._write(out, lambda program, part_out: program.gram(X, part_out, threads))

    def cross(self, X, Z, out, threads):
        """Write the covariances of rows X (N, D) with rows Z (M, D) into out (N, M)."""
        self._write(out, lambda program, part_out: program.cross(X, Z, part_out, threads))

    def columns_of(self, X):
        """Return a function of indices of n rows: the covariances (n, N) of these with all rows X."""
        functions = [program.columns_of(X) for program in self._programs]
        return lambda rows: self._finite(reduce(self._join, (columns(rows) for columns in functions)))

    def contract(self, X, weights, Z, threads):
        """Return the derivatives of <weights, K> in the logs of the slots; Z=None: K is the Gram matrix."""
        weights = fill_symmetric(weights) if Z is None else weights
        pairs = self._weighted(weights, lambda program: self._matrix(program, X, Z, threads))
        return np.concatenate([program.contract(X, weight, Z, threads) for program, weight in pairs])

    def contract_inputs(self, X, weights, Z, threads):
        """There are no derivatives in rows: a part that a user wrote raises the error."""
        pairs = self._weighted(weights, lambda program: self._matrix(program, X, Z, threads))
        return sum(program.contract_inputs(X, weight, Z, threads) for program, weight in pairs)

    def diagonal(self, X):
        """Return the variance of every row, (N,)."""
        with np.errstate(over="ignore"):
            return self._finite(reduce(self._join, (program.diagonal(X) for program in self._programs)))

    def diagonal_contract(self, X, weights):
        """Return the derivatives of weights (N,) times the variances of the rows in the logs of the slots."""
        pairs = self._weighted(weights, lambda program: program.diagonal(X))
        return np.concatenate([program.diagonal_contract(X, weight) for program, weight in pairs])

    def _write(self, out, write):
        """Join what write(program, place) writes for every program."""
        write(self._programs[0], out)
        other = np.empty_like(out)
        with np.errstate(over="ignore", invalid="ignore"):
            for program in self._programs[1:]:
                write(program, other)
                self._join(out, other, out=out)
        self._finite(out)

    def _finite(self, value):
        if not np.all(np.isfinite(value)):
            raise make_range_error()
        return value

    @staticmethod
    def _matrix(program, X, Z, threads):
        out = np.empty((len(X), len(X if Z is None else Z)))
        if Z is None:
            program.gram(X, out, threads)
        else:
            program.cross(X, Z, out, threads)
        return out

    def _weighted(self, weights, value_of):
        """Yield every program with the weights of its values: those of the sum, or times all other factors."""
        values = [] if self._join is np.add else [value_of(program) for program in self._programs]
        for i, program in enumerate(self._programs):
            yield program, reduce(np.multiply, values[:i] + values[i + 1 :], weights)


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
        set_fields(self, parts=tuple(flat))

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
