"""Beliefs of a GLM from sums over its sites, by matrices written out."""

import numpy as np


def posterior(h, g, root):
    """L with L L' = I + C h C, u = (I + C h C)^-1 C g, and L^-1 C, for C = diag(root)."""
    C = np.diag(root)
    precision = np.eye(len(g)) + C @ h @ C
    factor = np.linalg.cholesky(precision)
    return factor, np.linalg.solve(precision, C @ g), np.linalg.inv(factor) @ C


def change(factor, u, old_factor, old_u):
    """|L'(u - u_old)| and |L^-1 L_old L_old' L^-T - I|."""
    inverse = np.linalg.inv(factor)
    ratio = inverse @ old_factor @ old_factor.T @ inverse.T
    return np.linalg.norm(factor.T @ (u - old_u)), np.linalg.norm(ratio - np.eye(len(u)))
