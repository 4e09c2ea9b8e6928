"""Cholesky factors and selected inverses of symmetric matrices, entry by entry."""

import math

import numpy as np


def filled(pattern, order):
    """The entries (i, j), i >= j, of L in the numbers of pivots: each pivot joins those after it that it touches."""
    n = len(pattern)
    near = [{k for k in range(n) if pattern[order[j], order[k]] and k != j} for j in range(n)]
    entries = []
    for j in range(n):
        later = {k for k in near[j] if k > j}
        for k in later:
            near[k] |= later - {k}
        entries += [(j, j), *((k, j) for k in sorted(later))]
    return entries


def order_by_fill(pattern):
    """An order in which each pivot is that of least fill, the first one of equals, as if elements shared no rows but
    those of the last: pairs of neighbours, less those that have an element in common.
    """
    n = len(pattern)
    others = [{k for k in range(n) if pattern[j, k] and k != j} for j in range(n)]
    score, elements, order = [len(rows) ** 2 for rows in others], {}, []
    while len(order) < n:
        pivot = min(set(range(n)) - set(order), key=lambda j: (score[j], j))
        order.append(pivot)
        touched = [e for e, rows in elements.items() if pivot in rows]
        last = set().union(others[pivot], *(elements.pop(e) for e in touched)) - {pivot}
        elements = {e: rows for e, rows in elements.items() if not rows <= last}
        for j in last:
            others[j] -= last | {pivot}
            own = [rows for rows in elements.values() if j in rows]
            degree = len(last) - 1 + len(others[j]) + sum(len(rows - last) for rows in own)
            # pairs (k, l) of neighbours, in both orders and with k = l, of which one is not in the last element
            inside = sum((len(rows) - 1) ** 2 - (len(rows & last) - 1) ** 2 for rows in own)
            score[j] = min(degree, n - len(order) - 1) ** 2 - (len(last) - 1) ** 2 - inside
        elements[pivot] = last
    return order


def factor(matrix):
    """L with L L' = matrix, and 0 or the number, from 1, of the first pivot that is not positive."""
    n = len(matrix)
    L = np.zeros((n, n))
    for j in range(n):
        for i in range(j, n):
            rest = matrix[i, j] - math.fsum(L[i, :j] * L[j, :j])
            if i == j and not rest > 0.0:
                return L, j + 1
            L[i, j] = math.sqrt(rest) if i == j else rest / L[j, j]
    return L, 0


def selected_inverse(L, entries):
    """Those entries of (L L')^-1 by the equations of Takahashi, Fagan and Chen (1973), from the last to the first."""
    Z = {}
    columns = {}
    for i, j in entries:
        columns.setdefault(j, []).append(i)
    for j in sorted(columns, reverse=True):
        for i in sorted(columns[j], reverse=True):
            rest = math.fsum(L[k, j] * Z[max(i, k), min(i, k)] for k in columns[j] if k > j)
            Z[i, j] = ((i == j) / L[j, j] - rest) / L[j, j]
    return Z
