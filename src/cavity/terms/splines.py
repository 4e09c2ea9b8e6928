"""Cubic B-splines: rows of values and derivatives, the integrated squared second derivative, integrals; and circles.

The variable t has the range [0, 1] and knots anywhere on it, which are continued beyond the ends by the last spacings.
"""

from __future__ import annotations

import numpy as np

from cavity.base.lazy_scipy import interpolate, sparse

SPLINE_DEGREE = 3
GAUSS_POINTS = 4  # for each interval: exact for products of two cubics
GAUSS_NODES, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(GAUSS_POINTS)


def extend_knots(breaks):
    """Return the knots of B-splines on intervals between breaks, from 0 to 1."""
    before, after = breaks[1] - breaks[0], breaks[-1] - breaks[-2]
    steps = np.arange(1, SPLINE_DEGREE + 1)
    return np.concatenate([breaks[0] - before * steps[::-1], breaks, breaks[-1] + after * steps])


def evaluate(t, knots, derivative=0):
    """Return the rows of k B-splines at points of [0, 1], or of their derivatives of some order, a CSR array."""
    degree = SPLINE_DEGREE - derivative
    if not len(t):  # which SciPy refuses
        return sparse.csr_array((0, len(knots) - SPLINE_DEGREE - 1))
    # extrapolate=True: SciPy compares the ends by loops of Python otherwise; points are inside all the same
    rows = sparse.csr_array(interpolate.BSpline.design_matrix(t, knots, degree, extrapolate=True))
    for p in range(degree + 1, SPLINE_DEGREE + 1):  # from B-splines of degree p - 1 to derivatives of those of degree p
        n = len(knots) - p - 1
        slopes = p / (knots[p : p + n + 1] - knots[: n + 1])
        rows = rows @ sparse.csr_array(sparse.diags_array([slopes[:n], -slopes[1:]], offsets=[0, -1], shape=(n + 1, n)))
    return rows


def evaluate_beyond(t, knots):
    """Return the rows of B-splines, continued as straight lines beyond 0 and 1, and how far each point is beyond."""
    inside = np.clip(t, 0.0, 1.0)
    beyond, rows = t - inside, evaluate(inside, knots)
    if beyond.any():
        rows = rows + sparse.csr_array(sparse.diags_array(beyond)) @ evaluate(inside, knots, 1)
    return sparse.csr_array(rows), np.abs(beyond)


def gauss_rule(breaks):
    """Return points and weights of integrals over [0, 1], exact for products of two splines."""
    half = 0.5 * np.diff(breaks)[:, None]
    points = 0.5 * (breaks[1:] + breaks[:-1])[:, None] + half * GAUSS_NODES
    return points.ravel(), (half * GAUSS_WEIGHTS).ravel()


def roughness(knots):
    """Return S (k, k) with b'S b the integral of the squared second derivative over [0, 1]."""
    t, w = gauss_rule(knots[SPLINE_DEGREE:-SPLINE_DEGREE])
    second = interpolate.BSpline(knots, np.eye(len(knots) - SPLINE_DEGREE - 1), SPLINE_DEGREE)(t, 2)
    return second.T @ (w[:, None] * second)


def moments(knots):
    """Return the integrals (2, k) of 1 and t - 1/2 times each B-spline over [0, 1]."""
    t, w = gauss_rule(knots[SPLINE_DEGREE:-SPLINE_DEGREE])
    return np.stack([w, w * (t - 0.5)]) @ evaluate(t, knots).toarray()


def gram(knots):
    """Return the integrals (k, k) of products of two B-splines over [0, 1]."""
    t, w = gauss_rule(knots[SPLINE_DEGREE:-SPLINE_DEGREE])
    values = evaluate(t, knots).toarray()
    return values.T @ (w[:, None] * values)


def lines(knots):
    """Return the coefficients (k, 2) of the functions 1 and t - 1/2: Greville's abscissae [dB]_.

    .. [dB] C. de Boor, "A Practical Guide to Splines", 2001, chapter IX.
    """
    k = len(knots) - SPLINE_DEGREE - 1
    abscissae = np.mean([knots[i : i + k] for i in range(1, SPLINE_DEGREE + 1)], axis=0)
    return np.stack([np.ones(k), abscissae - 0.5], axis=1)


def log_determinants(S, N, A):
    """Return log|S|* - log|N'N| for a matrix S with the null space N, and (2) of the contract for constraints A.

    By the generalised matrix-tree theorem, log|S|* - log|N'N| = log|S_(-J,-J)| - 2 log|det N_J| for any r rows J of N
    that are independent.
    """
    k, r = N.shape
    J = np.linspace(0, k - 1, r).astype(np.intp)
    rest = np.setdiff1d(np.arange(k), J)
    value = np.linalg.slogdet(S[np.ix_(rest, rest)])[1] - 2.0 * np.linalg.slogdet(N[J])[1]
    return value, value + 2.0 * np.linalg.slogdet(A @ N)[1]


# ------------------------------------------------------------------------------------------ periodic ones


def evaluate_periodic(t, k, derivative=0):
    """Return the rows of k periodic cubic B-splines with equal spacings, or of their derivatives, a CSR array."""
    position = (t - np.floor(t)) * k
    first = np.minimum(position.astype(np.intp), k - 1)
    u = position - first
    v = 1.0 - u
    values = (
        (v**3, 3.0 * u**3 - 6.0 * u**2 + 4.0, 3.0 * v**3 - 6.0 * v**2 + 4.0, u**3),
        (-3.0 * v**2, 9.0 * u**2 - 12.0 * u, -9.0 * v**2 + 12.0 * v, 3.0 * u**2),
        (6.0 * v, 18.0 * u - 12.0, 18.0 * v - 12.0, 6.0 * u),
    )[derivative]
    data = np.stack(values, axis=1) * (k**derivative / 6.0)
    indices = (first[:, None] + np.arange(4)) % k
    return sparse.csr_array((data.ravel(), indices.ravel(), 4 * np.arange(len(t) + 1)), (len(t), k))


def integrate_periodic(k, derivative):
    """Return the integrals (k, k) of products of two periodic splines, or of their derivatives, over [0, 1]."""
    t, w = gauss_rule(np.linspace(0.0, 1.0, k + 1))
    values = evaluate_periodic(t, k, derivative).toarray()
    return values.T @ (w[:, None] * values)
