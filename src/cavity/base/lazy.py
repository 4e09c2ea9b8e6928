"""Special functions, imported when the first one is asked for: that takes a tenth of the time of a first fit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


class Special:
    """What stands for scipy.special until it is used."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(import_module("scipy.special"), name)
        setattr(self, name, function)
        return function


if TYPE_CHECKING:
    from scipy import special as special
else:
    special = Special()
