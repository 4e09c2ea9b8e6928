"""Structured terms of a mixed model: smooths, random walks, autoregressions and other priors of many effects."""

from typing import Any

from cavity.terms.base import StructuredTerm

__all__ = ["StructuredTerm"]
BUILT_TERMS: dict[str, Any] = {}  # classes of built terms by their names, which files may hold
