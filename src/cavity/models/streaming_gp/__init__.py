"""Sparse Gaussian processes that take in rows for as long as they come."""
