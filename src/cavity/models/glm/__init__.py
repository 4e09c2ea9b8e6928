"""Generalised linear models by EP and ADF."""
