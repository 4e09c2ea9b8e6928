"""Sums and products of which a part is not compiled: matrices of the parts, joined in NumPy."""

from functools import reduce

import numpy as np

from cavity.base.triangles import full
from cavity.covariances.program import UncompiledProgram, make_range_error


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
        weights = full(weights) if Z is None else weights
        pairs = self._weighted(weights, lambda program: self._matrix(program, X, Z, threads))
        return np.concatenate([program.contract(X, weight, Z, threads) for program, weight in pairs])

    def contract_inputs(self, X, weights, Z, threads):
        """There are no derivatives in rows: a part that a user wrote says so."""
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
