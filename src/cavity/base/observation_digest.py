"""Digests of observations, by which two posteriors are known to be of the same ones, in the same order.

Each row has a digest, and all arithmetic is modulo 2^32. The sum of the digests is the same in any order of the rows.
The polynomial sum_i digest_i B^i is not; that of n rows and then others is the sum of both, that of the others times
B^n. So digests of blocks and updates add up to that of all rows. The digest of a row mixes its numbers by
multiplication and shift [W]_; the sum and the polynomial of different observations are both equal with a probability
near 2^-64, unless they were made to be. NumPy is fastest with integers of 32 bits: a million numbers take 2 ms.

Numbers are compared in single precision: a table in float32 has the digest of its original in float64.

References
----------
.. [W] C. Wellons, "Prospecting for hash functions", 2018, https://nullprogram.com/blog/2018/07/31/ (lowbias32).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np

from cavity.base.records import Made, integer

HASH_MODULUS = 1 << 32
MIX_ROUNDS = np.array([(1, 16), (0x7FEB352D, 15), (0x846CA68B, 16)], dtype=np.uint32)  # multipliers, shifts [W]_
ROW_BASE, COLUMN_BASE = 747796405, np.uint32(2891336453)  # of rows, B, and columns: 5 mod 8, for powers of period 2^30
NO_SIGN = np.float32(0.0)
ROWS_PER_CHUNK = 1 << 14  # 64 kB of digests stay in the cache


@dataclass(frozen=True, slots=True)
class ObservationDigest:
    """What a posterior keeps of its observations, for `cavity.compare`.

    Parameters
    ----------
    n_rows : int
        How many there are.
    unordered : int
        Sum of the digests of the rows.
    ordered : int
        The polynomial of the digests of the rows, which depends on their order.
    """

    n_rows: int = 0
    unordered: int = 0
    ordered: int = 0

    @classmethod
    def of(cls, rows: Any, likelihood: Any = None) -> ObservationDigest | None:
        """Return that of an array (N,) or (N, C) of numbers, as a likelihood has them; None for anything else.

        Labels -1 and 1 are those of the classes 0 and 1.
        """
        if not isinstance(rows, np.ndarray) or rows.ndim > 2 or rows.dtype.kind not in "biuf":
            return None
        rows = rows > 0 if getattr(likelihood, "n_classes", None) == 2 else rows
        out = cls._of_chunk(rows[:ROWS_PER_CHUNK])
        for start in range(ROWS_PER_CHUNK, len(rows), ROWS_PER_CHUNK):
            out += cls._of_chunk(rows[start : start + ROWS_PER_CHUNK])
        return out

    @classmethod
    def _of_chunk(cls, rows):
        """Return that of at most ROWS_PER_CHUNK rows, (n,) or (n, C)."""
        digests = np.zeros(len(rows), dtype=np.uint32) if rows.ndim == 2 else np.uint32(0)
        with np.errstate(over="ignore", under="ignore"):
            for column in rows.T if rows.ndim == 2 else (rows,):
                single = column.astype(np.float32)
                single += NO_SIGN  # -0 becomes 0
                single = single.view(np.uint32)
                digests = digests * COLUMN_BASE + single
        for multiplier, shift in MIX_ROUNDS:
            digests = digests * multiplier
            digests ^= digests >> shift
        products = digests * _row_powers()[: len(rows)]
        return cls(len(rows), *(int(np.add.reduce(numbers, dtype=np.uint32)) for numbers in (digests, products)))

    def __add__(self, later: ObservationDigest) -> ObservationDigest:
        """The digest of these rows followed by others."""
        ordered = self.ordered + later.ordered * pow(ROW_BASE, self.n_rows, HASH_MODULUS)
        sums = self.unordered + later.unordered, ordered
        return ObservationDigest(self.n_rows + later.n_rows, *(number % HASH_MODULUS for number in sums))


def join_digests(first: ObservationDigest | None, later: ObservationDigest | None) -> ObservationDigest | None:
    """Return the digest of rows followed by others, None where one of the two is not known."""
    return None if first is None or later is None else first + later


@cache
def _row_powers():
    """Return B^0, B^1, ... modulo 2^32."""
    factors = np.full(ROWS_PER_CHUNK, ROW_BASE, dtype=np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors)


# the setting of files
DIGEST_SETTING = Made(lambda parts: ObservationDigest(*parts), [integer()] * 3, lambda digest: list(astuple(digest)))
