"""Robust location: a Gaussian signal in Gaussian clutter."""
