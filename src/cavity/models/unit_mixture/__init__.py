"""Mixtures of Gaussians of one variance."""
