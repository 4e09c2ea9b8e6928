"""Fields of frozen records: set and checked while these are put together."""

from dataclasses import dataclass

import pytest

from cavity.base.public_objects import check_positive, replace_unchecked, set_fields


@dataclass(frozen=True)
class Scale:
    """A frozen record that checks its fields."""

    sd: float
    unit: str = "m"

    def __post_init__(self):
        check_positive(self, "sd")
        set_fields(self, unit=self.unit.lower())


def test_fields_are_set_once():
    scale = Scale(2, "KM")
    assert (type(scale.sd), scale.sd, scale.unit) == (float, 2.0, "km")
    with pytest.raises(AttributeError):
        scale.sd = 3.0


def test_a_field_that_is_not_positive_is_named():
    with pytest.raises(ValueError, match="^sd must be in "):
        Scale(-1.0)


def test_a_record_with_other_values_is_a_new_one_and_not_checked():
    first = Scale(2.0, "KM")
    second = replace_unchecked(first, unit="MILE")
    assert (second.sd, second.unit, first.unit) == (2.0, "MILE", "km")
    assert type(second) is Scale
