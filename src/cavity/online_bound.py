"""Public name of `cavity.models.streaming_gp.online_bound`, whose description it takes over."""

from cavity.models.streaming_gp import online_bound as formulas
from cavity.models.streaming_gp.online_bound import (
    bound,
    expected_log_likelihood,
    expected_log_ratio,
    free_energy,
    optimal,
)

__all__ = ["bound", "expected_log_likelihood", "expected_log_ratio", "free_energy", "optimal"]
__doc__ = formulas.__doc__


def __dir__() -> list[str]:
    return sorted(__all__)
