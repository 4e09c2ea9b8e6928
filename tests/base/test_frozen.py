"""Fields of frozen records: set and checked while these are put together."""

from dataclasses import dataclass

import pytest

from cavity.base.frozen import check_positive, put


@dataclass(frozen=True)
class Scale:
    """A frozen record that checks its fields."""

    sd: float
    unit: str = "m"

    def __post_init__(self):
        check_positive(self, "sd")
        put(self, unit=self.unit.lower())


def test_fields_are_set_once():
    scale = Scale(2, "KM")
    assert (type(scale.sd), scale.sd, scale.unit) == (float, 2.0, "km")
    with pytest.raises(AttributeError):
        scale.sd = 3.0


def test_a_field_that_is_not_positive_is_named():
    with pytest.raises(ValueError, match="^sd must be in "):
        Scale(-1.0)
