"""Values on their way into arrays and JSON and back: every bit, every type, every layout."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from cavity import distributions
from cavity.base.checkpoint_encoding import EncodedValue, collect_classes, decode, encode


@dataclass(frozen=True, slots=True)
class Pair:
    one: object
    other: object


VALUES = {
    "numbers": [0.1, -0.0, float("inf"), 2**70, True, None, "text", np.float64(0.1), np.int32(3), np.bool_(True)],
    "arrays": (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T, np.zeros((0, 2)), np.array(2.5)),
    "kinds": {"b": np.array([True, False]), "i": np.arange(3), "U": np.array(["a", "bcd"])},
    "words of the format": {"array": "0", "scalar": {"dict": "x"}, "tuple": (), "record": "Pair"},
    "records": Pair(Pair(np.ones(2), (1.0,)), distributions.Gamma([1.0, 2.0], 3.0)),
    "gaussian": distributions.MultivariateGaussian([1.0, 2.0], [[2.0, 1.0], [1.0, 2.0]]),
}


def bits(value):
    """Everything about a value that a computation could notice."""
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.shape, value.flags.c_contiguous, value.flags.writeable, value.tobytes()
    if isinstance(value, tuple | list):
        return type(value), [*map(bits, value)]
    if isinstance(value, dict):
        return {name: bits(item) for name, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return type(value), {name: bits(getattr(value, name)) for name in value.__dataclass_fields__}
    return type(value), repr(value)


@pytest.mark.parametrize("kind", VALUES)
def test_every_bit_comes_back(kind):
    value, arrays, others = VALUES[kind], {}, {"0": np.zeros(1)}
    text = json.loads(json.dumps(encode(value, arrays)))
    assert bits(decode(text, arrays, collect_classes(value))) == bits(value)
    restored = json.loads(json.dumps(encode(EncodedValue(text, arrays), others)))
    assert bits(decode(restored, others, collect_classes(value))) == bits(value)


def test_an_array_in_two_places_is_kept_once():
    array, arrays = np.arange(3.0), {}
    text = encode([array, (array, array.copy())], arrays)
    assert len(arrays) == 2
    first, (second, third) = decode(text, arrays, {})
    assert first is second
    assert first is not third


def test_what_cannot_be_kept_is_named():
    with pytest.raises(TypeError, match="a object cannot be kept"):
        encode([object()], {})
