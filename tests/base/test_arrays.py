"""The one boundary check: what it says of an argument, and that it says which one."""

import pickle

import numpy as np
import pytest

from cavity.base import arrays


def test_checks_say_what_they_are_about():
    for check in (
        lambda: arrays.check_number("a", "x"),
        lambda: arrays.check_integer(0, "x", low=1),
        lambda: arrays.check_choice("a", "x", ("b",)),
        lambda: arrays.check_finite_array(np.nan, "x"),
        lambda: arrays.make_generator(None, "x"),
    ):
        with pytest.raises((ValueError, TypeError), match="^x must") as caught:
            check()
        assert caught.value.arguments == ("x",)
        assert pickle.loads(pickle.dumps(caught.value)).arguments == ("x",)


def test_settings_are_kept_as_what_compares_or_cannot_change():
    assert arrays.to_tuple(np.array(2.0)) == 2.0
    assert arrays.to_tuple(np.array([[1.0, 2.0]])) == ((1.0, 2.0),)
    assert type(arrays.copy_read_only(np.array(2.0))) is float
    values = np.ones(2)
    stored = arrays.copy_read_only(values)
    values[0] = 5.0
    assert stored.tolist() == [1.0, 1.0]
    assert not stored.flags.writeable
