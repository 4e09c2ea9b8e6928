"""The solution of a fit of weights."""

from dataclasses import dataclass

from cavity.base.loop import CONVERGED
from cavity.ep.fit_result import FitResult
from cavity.models.hyperparameters import Hyperparameters


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The outcome of a fit, and the posterior of the weights, or of all effects of a mixed model."""

    problem: object  # GLMProblem or MixedProblem at the learnt hyperparameters
    fit: FitResult
    weights: object  # Weights or Effects
    hyperparameters: Hyperparameters | None = None
    searched: str = CONVERGED  # status of the search for hyperparameters
