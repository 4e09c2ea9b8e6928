"""Matern processes in time as chains of states.

A process f of smoothness nu = p - 1/2 and lengthscale l has p - 1 derivatives. With lam = sqrt(2 nu)/l, its states
x = (f, f'/lam, ..., f^(p-1)/lam^(p-1)) are a Markov chain [HS]_: over a time dt, with d = lam dt,

    x(t + dt) = A(d) x(t) + N(0, sd^2 Q(d)),  A(d) = exp(F d) = exp(-d) sum_(k < p) (F + I)^k d^k/k!,                (1)
    Q(d) = q int_0^d a(s) a(s)' ds,                                                                                 (2)

F the companion matrix of (1 + z)^p, whose eigenvalues are -1, so that (F + I)^p = 0, and a the last column of A. In (2)
stand exp(-2 s) times powers of s, whose integrals are incomplete gamma functions: for short times no digits are lost,
as they are in Q = P - A P A', P = Q(inf) the covariance of a state. The precision of a chain is block tridiagonal,

    blocks (k, k): Q_(k-1)^-1 + A_k' Q_k^-1 A_k, the first one P^-1 + A_1' Q_1^-1 A_1;  (k+1, k): -Q_k^-1 A_k,       (3)

and its log determinant the sum of those of P^-1 and all Q_k^-1. Entries of (3) grow like d^(-2 nu) and cancel in its
factor, which loses about 1e-16 sum_k d_k^(-2 nu) of a log evidence.

References
----------
.. [HS] J. Hartikainen and S. Sarkka, "Kalman filtering and smoothing solutions to temporal Gaussian process regression
   models", IEEE International Workshop on Machine Learning for Signal Processing, 2010.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.base.lazy_scipy import special
from cavity.base.public_objects import FloatArray


class Steps(NamedTuple):
    """What (1) and (2) are for steps d (M,): A, Q^-1 and log|Q|."""

    A: FloatArray  # (M, p, p)
    inverse: FloatArray  # (M, p, p)
    log_determinant: FloatArray  # (M,)


class Transition:
    """The matrices of (1) and (2) for states of p numbers."""

    def __init__(self, p):
        self.p = p
        self.F = np.diag(np.ones(p - 1), 1)
        self.F[-1] = [-math.comb(p, i) for i in range(p)]
        powers = [np.eye(p)]
        for k in range(1, p):
            powers.append(powers[-1] @ (self.F + np.eye(p)) / k)
        self._powers = np.stack(powers)  # (F + I)^k/k!
        last = self._powers[:, :, -1]
        products = np.zeros((2 * p - 1, p, p))
        for k in range(p):
            for m in range(p):
                products[k + m] += np.outer(last[k], last[m])
        self._products = products  # of a a', by powers of s, without exp(-2 s)
        self.q = 1.0 / self._integrate(np.array([np.inf]))[0, 0, 0]
        self.P = self.q * self._integrate(np.array([np.inf]))[0]

    def _integrate(self, d):
        """The integrals in (2)."""
        n = np.arange(2 * self.p - 1)
        integrals = special.gamma(n + 1) / 2.0 ** (n + 1) * special.gammainc(n + 1, 2.0 * d[:, None])
        return np.tensordot(integrals, self._products, 1)

    def step(self, d):
        """Return the `Steps` of positive numbers d (M,); they are infinite where there is no state before."""
        finite = np.where(np.isinf(d), 0.0, d)
        terms = finite[:, None] ** np.arange(self.p) * np.exp(-d)[:, None]
        A = np.tensordot(terms, self._powers, 1)
        Q = self.q * self._integrate(d)
        size = np.sqrt(np.diagonal(Q, axis1=1, axis2=2))
        units = size[:, :, None] * size[:, None, :]
        log_determinant = np.linalg.slogdet(Q / units)[1] + 2.0 * np.sum(np.log(size), axis=1)
        return Steps(A, np.linalg.inv(Q / units) / units, log_determinant)

    def interpolate(self, before, after):
        """Return weights (M, 2 p) of the states before and after in the mean of f between them, and its variance (M,).

        The precision of the state between steps of lengths `before` and `after` (M,) is Q_1^-1 + A_2' Q_2^-1 A_2.
        """
        one, two = self.step(before), self.step(after)
        right = two.A.transpose(0, 2, 1) @ two.inverse
        precision = one.inverse + right @ two.A
        size = 1.0 / np.sqrt(np.diagonal(precision, axis1=1, axis2=2))
        units = size[:, :, None] * size[:, None, :]
        row = (np.linalg.inv(precision * units) * units)[:, :1]
        return np.concatenate([row @ one.inverse @ one.A, row @ right], axis=2)[:, 0], row[:, 0, 0]


def find_rate(p, log_length):
    """Return lam of a lengthscale by its log."""
    return np.sqrt(2.0 * p - 1.0) * np.exp(-log_length)


def weigh_hermite(share, p):
    """Return the weights (M, 2 p) of f and p - 1 derivatives at 0 and 1 in the polynomial through them, at shares."""
    degrees = np.arange(2 * p)
    ends = [
        [special.poch(k - i + 1, i) * x ** np.maximum(k - i, 0) for k in degrees] for x in (0.0, 1.0) for i in range(p)
    ]
    return share[:, None] ** degrees @ np.linalg.inv(np.array(ends))


def find_knots(level, times, origin, h):
    """Return levels and times (K, 2) of the knots of a grid before and after each time, or at it."""
    number = np.floor((times - origin) / h)
    number -= origin + h * number > times
    number += origin + h * (number + 1.0) <= times
    between = origin + h * number < times
    pairs = np.stack([np.append(level, level[between]), np.append(number, number[between] + 1.0)], axis=1)
    level, number = np.unique(pairs, axis=0).T
    return np.stack([level, origin + h * number], axis=1)
