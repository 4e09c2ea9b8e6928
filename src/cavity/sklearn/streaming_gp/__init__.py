"""Streaming Gaussian processes in scikit-learn's words."""
