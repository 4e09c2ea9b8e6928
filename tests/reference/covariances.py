"""Composed covariances and their derivatives as they are written down: N x M arrays in extended precision.

A program is that of the kernel: rows [op, first_column, n_columns, first_parameter] in postfix order; coordinates are
(C, N) and (C, M).
"""

from typing import NamedTuple

import numpy as np

(
    CONSTANT, WHITE, LINEAR, RBF, MATERN12, MATERN32, MATERN52, MATERN, RATIONAL_QUADRATIC, PERIODIC, ADD, MULTIPLY,
) = range(12)  # fmt: skip
MATERN_ORDER = 4  # of programs that are drawn
NAMES = ("constant", "white", "linear", "rbf", "matern12", "matern32", "matern52", "matern", "rational quadratic")
NAMES += ("periodic", "add", "multiply")
EPS = np.finfo(float).eps
TINY = 1e-300  # covariances below 2^-1022 may be 0
PI = np.longdouble("3.14159265358979323846264338327950288")


class Node(NamedTuple):
    """Values (N, M); bounds on their rounding errors; what was joined, or the derivatives of a leaf."""

    value: np.ndarray
    error: np.ndarray
    operands: tuple = ()
    slopes: tuple = ()  # by the logarithm of each slot, each (N, M)
    by_left: np.ndarray | None = None  # by each coordinate of the left point, (n_columns, N, M)


def n_slots(op, n_columns):
    """Return how many slots a leaf has."""
    return {
        CONSTANT: 1,
        WHITE: 1,
        LINEAR: n_columns,
        RATIONAL_QUADRATIC: 2 + n_columns,
        PERIODIC: 1 + 2 * n_columns,
    }.get(op, 1 + n_columns)


def n_parameters(op, n_columns):
    """Return how many parameters a leaf has."""
    return {LINEAR: 0, MATERN: 4 + 2 * MATERN_ORDER, RATIONAL_QUADRATIC: 2, PERIODIC: 1 + n_columns}.get(op, 1)


def matern(order):
    """Return P of a Matern covariance: P_(n+1) = P_n + s^2 P_(n-1)/((2 n + 1) (2 n - 1)), P_0 = 1 and P_1 = 1 + s."""
    p, q = np.polynomial.Polynomial([1]), np.polynomial.Polynomial([1, 1])
    for n in range(1, order + 1):
        p, q = q, q + p * np.polynomial.Polynomial([0, 0, 1 / ((2 * n + 1) * (2 * n - 1))])
    return p


def matern_parameters(order):
    """Return the parameters of the kernel after the variance."""
    slope = matern(order - 1) * ((2 * order + 1) / (2 * order - 1))
    return [order, -2 * np.sqrt(2 * order + 1), *matern(order).coef[::-1], *slope.coef[::-1]]


def linear(left, right):
    """sum_c left_c right_c."""
    terms = left[:, :, None] * right[:, None, :]
    size = np.abs(terms).sum(axis=0)
    return Node(
        terms.sum(axis=0), len(left) * EPS * size, (), tuple(terms), np.broadcast_to(right[:, None], terms.shape)
    )


def rounding(value, variance, n_columns):
    """Return a bound for a leaf that is variance e^-x: that of e^-x, and what the error of x leads to."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.where(value > 0, -np.log(value / variance), 0)
    return EPS * value * (6 + (n_columns + 4) * np.abs(exponent)) + TINY


def stationary(op, p, left, right):
    """Functions of r^2 = sum_c (left_c - right_c)^2; t = -dk/d(r^2/2)."""
    delta = left[:, :, None] - right[:, None, :]
    r2 = np.sum(delta**2, axis=0)
    r, s, slopes = np.sqrt(r2), 0, ()
    if op == RBF:
        k = t = p[0] * np.exp(-r2 / 2)
    elif op == MATERN12:
        k = p[0] * np.exp(-r)
        t = np.where(r > 0, k / np.where(r > 0, r, 1), 0)
    elif op == MATERN32:
        s = np.sqrt(np.longdouble(3)) * r
        k, t = p[0] * (1 + s) * np.exp(-s), 3 * p[0] * np.exp(-s)
    elif op == MATERN52:
        s = np.sqrt(np.longdouble(5)) * r
        k, t = p[0] * (1 + s + s**2 / 3) * np.exp(-s), p[0] * 5 * (1 + s) * np.exp(-s) / 3
    elif op == MATERN:
        s, n = np.sqrt(2 * p[1] + 1) * r, int(p[1])
        k = p[0] * matern(n)(s) * np.exp(-s)
        t = p[0] * matern(n - 1)(s) * np.exp(-s) * (2 * p[1] + 1) / (2 * p[1] - 1)
    else:
        u = r2 / (2 * p[1])
        k = p[0] * np.exp(-p[1] * np.log1p(u))
        t = k / (1 + u)
        excess = np.where(u < 1e-4, u**2 / 2 - 2 * u**3 / 3 + 3 * u**4 / 4 - 4 * u**5 / 5, np.log1p(u) - u / (1 + u))
        slopes = (-k * p[1] * excess,)
    error = rounding(k, p[0], len(left)) + (op == MATERN) * EPS * k * (2 * MATERN_ORDER + s)
    return Node(k, error, (), (k, *slopes, *(t * delta**2)), -t * delta)


def periodic(p, left, right):
    """p0 exp(-2 sum_c p_{1+c} sin^2(pi (left_c - right_c)))."""
    # rounded to double: far from 0 that moves it by more than an ulp of its fraction
    delta = (left[:, :, None] - right[:, None, :]).astype(float).astype(np.longdouble)
    rest = delta - np.round(delta)
    q, sine, cosine = p[1:, None, None], np.sin(PI * rest), np.cos(PI * rest)
    k = p[0] * np.exp(-2 * np.sum(q * sine**2, axis=0))
    by_left = -4 * PI * k * q * sine * cosine
    return Node(k, rounding(k, p[0], len(left)), (), (k, *(4 * k * q * sine**2), *(-delta * by_left)), by_left)


def leaf(row, parameters, left, right, symmetric, magnitude):
    """Return the node of one leaf; if `magnitude`, with absolute values of terms that may cancel."""
    op, columns = row[0], slice(row[1], row[1] + row[2])
    p = parameters[row[3] : row[3] + n_parameters(op, row[2])]
    left, right, shape = left[columns], right[columns], (left.shape[1], right.shape[1])
    if op in (CONSTANT, WHITE):
        k = np.full(shape, p[0]) if op == CONSTANT else p[0] * np.eye(*shape) * symmetric
        return Node(k, 0 * k, (), (k,), np.zeros((0, *shape)))
    if op == LINEAR:
        return linear(np.abs(left), np.abs(right)) if magnitude else linear(left, right)
    return periodic(p, left, right) if op == PERIODIC else stationary(op, p, left, right)


def nodes(code, parameters, left, right, symmetric, magnitude=False):
    """Return a node for each operation of the program; the last is the covariance."""
    parameters, left, right = (np.asarray(x, dtype=np.longdouble) for x in (parameters, left, right))
    result, stack = [], []
    for row in np.asarray(code):
        if row[0] in (ADD, MULTIPLY):
            second, first = stack.pop(), stack.pop()
            a, b = result[first], result[second]
            if row[0] == ADD:
                value, error = a.value + b.value, a.error + b.error
            else:
                value, error = a.value * b.value, np.abs(a.value) * b.error + np.abs(b.value) * a.error
            result.append(Node(value, error + EPS * np.abs(value), (first, second)))
        else:
            result.append(leaf(row, parameters, left, right, symmetric, magnitude))
        stack.append(len(result) - 1)
    return result


def adjoints(code, result, weights):
    """Return the derivative of the weighted sum by the value of each operation, (N, M) each."""
    adjoint = [np.zeros_like(node.value) for node in result]
    adjoint[-1] = np.asarray(weights, dtype=np.longdouble)
    for i in range(len(result) - 1, -1, -1):
        for one, other in zip(result[i].operands, reversed(result[i].operands), strict=True):
            adjoint[one] = adjoint[i] * (result[other].value if code[i][0] == MULTIPLY else 1)
    return adjoint


def gram(code, parameters, left, right, symmetric):
    """Return the covariances (N, M) and bounds on their errors."""
    last = nodes(code, parameters, left, right, symmetric)[-1]
    return last.value, last.error


def relative_error(result):
    """Return the largest relative error of values where no terms cancel."""
    errors = [np.max(np.where(x.value > TINY, (x.error - TINY) / (x.value + TINY), 0)) for x in result]
    return float(max(errors)) + 8 * EPS


def slot_terms(code, result, weights):
    """Return weights_ij dk_ij/dlog(slot), (G, N, M)."""
    pairs = zip(result, adjoints(code, result, weights), strict=True)
    return np.array([adjoint * slope for node, adjoint in pairs for slope in node.slopes])


def slot_sums(code, parameters, left, right, symmetric, weights):
    """Return the sums (G,) of weights dk/dlog(slot) and bounds on their errors."""
    value = slot_terms(code, nodes(code, parameters, left, right, symmetric), weights).sum(axis=(1, 2))
    largest = nodes(code, parameters, left, right, symmetric, magnitude=True)
    size = np.abs(slot_terms(code, largest, np.abs(weights))).sum(axis=(1, 2))
    return value, len(code) * relative_error(largest) * size + TINY


def input_terms(code, result, weights, n_coordinates):
    """Return weights_ij dk_ij/dleft_ci (C, N, M)."""
    terms = np.zeros((n_coordinates, *result[-1].value.shape), dtype=np.longdouble)
    for row, node, adjoint in zip(code, result, adjoints(code, result, weights), strict=True):
        if node.by_left is not None:
            terms[row[1] : row[1] + row[2]] += adjoint * node.by_left
    return terms


def input_sums(code, parameters, left, right, weights):
    """Return the sums (C, N) over j of weights_ij dk_ij/dleft_ci and bounds on their errors."""
    result = nodes(code, parameters, left, right, False)
    largest = nodes(code, parameters, left, right, False, magnitude=True)
    size = np.abs(input_terms(code, largest, np.abs(weights), len(left))).sum(axis=2)
    value = input_terms(code, result, weights, len(left)).sum(axis=2)
    return value, len(code) * relative_error(largest) * size + TINY
