"""How a fit of weights ended."""

from dataclasses import dataclass

from cavity.base.loop import CONVERGED
from cavity.ep.fit_result import FitResult
from cavity.models.hyperparameters import Hyperparameters


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """How a fit ended, and what it knows of the weights, or of all effects of a mixed model."""

    problem: object  # GLMProblem or MixedProblem, with what was learnt, if anything was
    fit: FitResult
    weights: object  # Weights or Effects
    hyperparameters: Hyperparameters | None = None
    searched: str = CONVERGED  # how the search for what was learnt ended
