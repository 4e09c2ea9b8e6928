"""Structured terms of a mixed model: smooths, random walks, autoregressions and other priors of many effects."""

from cavity.terms.base import StructuredTerm

__all__ = ["StructuredTerm"]
