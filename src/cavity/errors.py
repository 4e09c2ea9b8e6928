"""The errors and warnings of the library, see `cavity.base.errors`."""

from cavity.base.errors import ConvergenceWarning, NotPositiveDefiniteError, NumericalWarning, SettingsWarning

__all__ = ["ConvergenceWarning", "NotPositiveDefiniteError", "NumericalWarning", "SettingsWarning"]


def __dir__() -> list[str]:
    return sorted(__all__)
