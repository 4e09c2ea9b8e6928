"""One CAVI iteration of a Gaussian mixture in NumPy: as in a textbook, and in blocks by matrix products of features.

Each function takes the data X (N, D) and, for K components, the constants c (K,) of the expected log densities,
means m (K, D) and expected precisions P: (K, D, D), or (K, D) for diagonal ones. It returns N_k (K,), sums of r x
(K, D), sums of r x x' (K, D, D) or of r x^2 (K, D), and the sum of the log densities.
"""

import numpy as np

BLOCK = 2048  # rows: log densities and features of a block stay in the second-level cache


def textbook(X, c, m, P):
    """Every formula on whole arrays."""
    d = X[:, None, :] - m
    q = np.einsum("nkd,kde,nke->nk", d, P, d) if P.ndim == 3 else np.einsum("nkd,kd,nkd->nk", d, P, d)
    log_r = c - 0.5 * q
    top = log_r.max(axis=1, keepdims=True)
    r = np.exp(log_r - top)
    total = r.sum(axis=1, keepdims=True)
    r = r / total
    second = np.einsum("nk,nd,ne->kde", r, X, X, optimize=True) if P.ndim == 3 else r.T @ X**2
    return r.sum(axis=0), r.T @ X, second, np.sum(top + np.log(total))


class Blocked:
    """Log densities of a block as one matrix product with its features [1, x, x x'], sums as another."""

    def __init__(self, dim, full):
        self.rows, self.columns = np.triu_indices(dim) if full else (np.arange(dim), np.arange(dim))
        self.full, self.dim = full, dim

    def __call__(self, X, c, m, P):
        pull = np.einsum("kde,ke->kd", P, m) if self.full else P * m
        square = (
            P[:, self.rows, self.columns] * np.where(self.rows == self.columns, -0.5, -1.0) if self.full else -0.5 * P
        )
        eta = np.concatenate([(c - 0.5 * np.sum(pull * m, axis=1))[:, None], pull, square], axis=1).T.copy()
        features = np.ones((BLOCK, eta.shape[0]))
        log_r, sums, bound = np.empty((BLOCK, len(c))), np.zeros((len(c), eta.shape[0])), 0.0
        for start in range(0, len(X), BLOCK):
            x = X[start : start + BLOCK]
            t, r = features[: len(x)], log_r[: len(x)]
            t[:, 1 : 1 + self.dim] = x
            np.multiply(x[:, self.rows], x[:, self.columns], out=t[:, 1 + self.dim :])
            np.matmul(t, eta, out=r)
            top = r.max(axis=1, keepdims=True)
            np.subtract(r, top, out=r)
            np.exp(r, out=r)
            total = r.sum(axis=1, keepdims=True)
            np.divide(r, total, out=r)
            sums += r.T @ t
            bound += top.sum() + np.log(total).sum()
        second = sums[:, 1 + self.dim :]
        if self.full:
            matrix = np.empty((len(c), self.dim, self.dim))
            matrix[:, self.rows, self.columns] = matrix[:, self.columns, self.rows] = second
            second = matrix
        return sums[:, 0], sums[:, 1 : 1 + self.dim], second, bound
