"""Digests of observations, beside a twin in Python's integers."""

import struct

import numpy as np
import pytest

from cavity import likelihoods
from cavity.base.observation_digest import ROWS_PER_CHUNK, ObservationDigest, join_digests

RNG = np.random.default_rng(0)
WORD = (1 << 32) - 1


def digest_of_row(row):
    """The digest of a row by the definition: single precision, a polynomial of the columns, and the mix lowbias32."""
    bits = 0
    for value in row:
        with np.errstate(over="ignore"):
            single = np.float32(value) + np.float32(0.0)
        bits = (bits * 2891336453 + struct.unpack("=I", struct.pack("=f", single))[0]) & WORD
    bits ^= bits >> 16
    bits = (bits * 0x7FEB352D) & WORD
    bits ^= bits >> 15
    bits = (bits * 0x846CA68B) & WORD
    return bits ^ (bits >> 16)


def twin(rows):
    digests = [digest_of_row(np.atleast_1d(row)) for row in np.asarray(rows, dtype=float)]
    ordered = sum(digest * pow(747796405, i, 1 << 32) for i, digest in enumerate(digests))
    return ObservationDigest(len(digests), sum(digests) & WORD, ordered & WORD)


@pytest.mark.long_cases("shape4")
@pytest.mark.parametrize("shape", [(1,), (7,), (7, 1), (5, 3), (ROWS_PER_CHUNK + 3,)])
def test_it_is_that_of_the_definition(shape):
    rows = RNG.normal(size=shape) * 10.0 ** RNG.integers(-50, 50, shape)
    assert ObservationDigest.of(rows) == twin(rows)


def test_special_numbers():
    rows = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, 1e-300])
    assert ObservationDigest.of(rows) == twin([0.0, 0.0, np.nan, np.inf, -np.inf, np.inf, 0.0])
    assert ObservationDigest.of(np.zeros(0)) == ObservationDigest() == twin([])


def test_what_depends_on_the_order_and_what_does_not():
    rows = RNG.normal(size=(500, 2))
    digest, reverse = ObservationDigest.of(rows), ObservationDigest.of(rows[::-1])
    assert digest.unordered == reverse.unordered
    assert digest.ordered != reverse.ordered
    swapped = rows.copy()
    swapped[[3, 3 + 256]] = rows[[3 + 256, 3]]
    assert ObservationDigest.of(swapped).ordered != digest.ordered
    turned = ObservationDigest.of(np.ascontiguousarray(rows[:, ::-1]))
    assert turned.unordered != digest.unordered
    one = rows.copy()
    one[77, 1] += 1e-6
    assert ObservationDigest.of(one).unordered != digest.unordered


@pytest.mark.parametrize("cut", [0, 1, 300, 40_000, 70_000])
def test_parts_add_up(cut):
    rows = RNG.normal(size=70_000)
    digest = ObservationDigest.of(rows)
    first, later = ObservationDigest.of(rows[:cut]), ObservationDigest.of(rows[cut:])
    assert first + later == join_digests(first, later) == digest
    assert (later + first).unordered == digest.unordered
    assert join_digests(None, later) is None
    assert join_digests(first, None) is None


def test_equal_values_of_other_types_are_equal():
    labels = RNG.integers(0, 2, 100)
    full = ObservationDigest.of(labels)
    for dtype in (bool, np.int8, np.uint64, np.float32, np.float64, np.longdouble, ">f8"):
        assert ObservationDigest.of(labels.astype(dtype)) == full
    signs = 2.0 * labels - 1.0
    assert ObservationDigest.of(signs, likelihoods.Probit()) == full
    assert ObservationDigest.of(signs) != full
    rows = RNG.normal(size=(100, 2))
    assert ObservationDigest.of(rows.astype(np.float32)) == ObservationDigest.of(rows)
    strided = np.asfortranarray(np.repeat(rows, 2, axis=0))[::2]
    assert ObservationDigest.of(strided) == ObservationDigest.of(rows)
    assert ObservationDigest.of(rows[:, :1]) == ObservationDigest.of(rows[:, 0])


@pytest.mark.parametrize("other", [None, "text", np.array(["a", "b"]), np.zeros((2, 2, 2)), np.zeros(2, dtype=complex)])
def test_other_things_have_none(other):
    assert ObservationDigest.of(other) is None
