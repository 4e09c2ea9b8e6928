"""Gaussian processes, exact and by EP."""
