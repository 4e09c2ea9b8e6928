"""Gaussian mixtures by coordinate ascent."""
