"""Sparse Gaussian processes that take in rows without an end."""
