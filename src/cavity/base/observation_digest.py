"""Digests of observations, by which two posteriors are known to be of the same ones, in the same order.

Each row has a digest, and all arithmetic is modulo 2^63. The sum of the digests is the same in any order of the rows.
The polynomial sum_i digest_i B^i is not; that of n rows and then others is the sum of both, that of the others times
B^n. So digests of blocks and updates add up to that of all rows. The digest of a row mixes its numbers by two rounds of
multiplication and shift, as splitmix64 does [SLF]_: different observations have equal digests with a probability near
2^-63, unless they were made to have them.

Numbers are compared in single precision: a table in float32 has the digest of its original in float64.

References
----------
.. [SLF] G. L. Steele, D. Lea and C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np

from cavity.base.records import Made, integer

MODULUS = 1 << 63
ROUNDS = ((np.uint64(0xBF58476D1CE4E5B9), np.uint64(32)), (np.uint64(0x94D049BB133111EB), np.uint64(29)))  # of a mix
ROW_BASE = 6364136223846793005  # B: 5 modulo 8, so that powers repeat after 2^62
COLUMN_BASE = np.uint64(2862933555777941757)  # the same for the columns of a row
ROWS_PER_CHUNK = 1 << 13  # 64 kB of digests stay in the cache


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
        out, least = cls(), 0.0 if getattr(likelihood, "n_classes", None) == 2 else -np.inf
        for start in range(0, len(rows), ROWS_PER_CHUNK):
            digests = _row_digests(rows[start : start + ROWS_PER_CHUNK], least)
            ordered = np.sum(digests * _row_powers()[: len(digests)])
            out += cls(len(digests), int(np.sum(digests)), int(ordered))
        return out

    def __add__(self, later: ObservationDigest) -> ObservationDigest:
        """The digest of these rows followed by others."""
        ordered = self.ordered + later.ordered * pow(ROW_BASE, self.n_rows, MODULUS)
        sums = self.n_rows + later.n_rows, self.unordered + later.unordered, ordered
        return ObservationDigest(*(each % MODULUS for each in sums))


def join_digests(first: ObservationDigest | None, later: ObservationDigest | None) -> ObservationDigest | None:
    """Return the digest of rows followed by others, None where one of the two is not known."""
    return None if first is None or later is None else first + later


def _row_digests(rows, least):
    """Return the digests of rows (n,) or (n, C), of which smaller numbers count as `least`: uint64 (n,)."""
    single, bits = np.empty(len(rows), dtype=np.float32), np.zeros(len(rows), dtype=np.uint64)
    for column in rows.reshape(len(rows), -1).T:
        with np.errstate(over="ignore"):
            np.maximum(column, least, out=single, casting="same_kind")
        single += np.float32(0.0)  # -0 becomes 0
        single[np.isnan(single)] = np.nan  # which has many forms
        bits = bits * COLUMN_BASE + single.view(np.uint32)
    for multiplier, shift in ROUNDS:
        bits *= multiplier
        bits ^= bits >> shift
    return bits


@cache
def _row_powers():
    """Return B^0, B^1, ... modulo 2^64."""
    factors = np.full(ROWS_PER_CHUNK, ROW_BASE, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


DIGEST = Made(
    lambda parts: ObservationDigest(*parts), [integer()] * 3, lambda digest: list(astuple(digest))
)  # in files
