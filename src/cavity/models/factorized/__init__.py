"""Fully factorised approximations of Gaussians."""
