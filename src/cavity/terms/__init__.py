"""Structured terms of a mixed model: smooths, random walks, autoregressions and other priors of many effects."""

from cavity.terms.base import StructuredTerm
from cavity.terms.chains import Autoregressive, BuiltAutoregression, BuiltSeasonal, Seasonal
from cavity.terms.graphs import BuiltMarkovField, MarkovField
from cavity.terms.group_terms import BuiltMembers, BuiltPrecision, GivenPrecision, MultiMembership
from cavity.terms.matern import BuiltMatern, MaternChain
from cavity.terms.smooth import BuiltSmooth, Smooth
from cavity.terms.tensor import BuiltTensorSmooth, TensorSmooth
from cavity.terms.walks import BuiltWalk, RandomWalk

__all__ = [
    "Autoregressive",
    "GivenPrecision",
    "MarkovField",
    "MaternChain",
    "MultiMembership",
    "RandomWalk",
    "Seasonal",
    "Smooth",
    "StructuredTerm",
    "TensorSmooth",
]
BUILT_TERMS = {  # which files may hold
    built.__name__: built
    for built in (
        BuiltSmooth,
        BuiltTensorSmooth,
        BuiltWalk,
        BuiltAutoregression,
        BuiltSeasonal,
        BuiltPrecision,
        BuiltMembers,
        BuiltMarkovField,
        BuiltMatern,
    )
}


def __dir__() -> list[str]:
    return sorted(__all__)
