"""Gaussian mixtures in scikit-learn's words."""
