"""Structured terms of a mixed model: smooths, random walks, autoregressions and other priors of many effects."""
