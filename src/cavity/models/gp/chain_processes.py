"""Covariances of one column that are those of chains: Matern 1/2, 3/2 and 5/2, constants, and sums of these."""

import numpy as np

from cavity.base.arrays import error_of
from cavity.covariances import Constant, Matern, Matern12, Matern32, Matern52, Product
from cavity.covariances.base import Covariance
from cavity.covariances.slots import gather_free_gradient, get_parts
from cavity.covariances.strings import parse
from cavity.ep.chain import MAX_STATES
from cavity.models.gp.integral import MAX_AUTO_ROWS

CHAIN_METHOD, AUTO_METHOD, DENSE_METHOD = "chain", "auto", "dense"
PROCESS_METHODS = (AUTO_METHOD, DENSE_METHOD, CHAIN_METHOD)
MAX_DENSE_ROWS = 2000  # above which "auto" takes the chain where it can
STATES_OF_KINDS = {Matern12: 1, Matern32: 2, Matern52: 3}
STATES_OF_NAMES = {"matern12": 1, "matern32": 2, "matern52": 3, "constant": 0}


def _list_terms(covariance):
    """Return the terms of a sum, each a list of its factors."""
    terms = [covariance] if isinstance(covariance, Product) else get_parts(covariance) or [covariance]
    return [list(get_parts(term)) or [term] for term in terms]


def _count_states(leaf):
    """Return the states of a leaf: smoothness + 1/2, 0 for a constant, None if it has none."""
    if isinstance(leaf, Matern):
        return int(leaf.nu + 0.5) if leaf.nu <= 2.5 else None
    return 0 if isinstance(leaf, Constant) else STATES_OF_KINDS.get(type(leaf))


def find_obstacle(covariance, mean, n_features=1):
    """Return why a chain is not for a covariance (or the name of one), a mean and columns, None if it is."""
    if n_features != 1:
        return f"is for X of one column, times, got {n_features} columns"
    if isinstance(mean, str) and mean not in ("constant", "linear"):
        return f"is for a mean that is a number, coefficients, 'constant' or 'linear', got {mean!r}"
    if isinstance(covariance, Covariance):
        terms = [[_count_states(factor) for factor in factors] for factors in _list_terms(covariance)]
        shown = " + ".join(" * ".join(type(leaf).__name__ for leaf in factors) for factors in _list_terms(covariance))
    else:
        shown = covariance or "rbf"
        terms = [[STATES_OF_NAMES.get(name) for name, _ in factors] for factors in parse(shown)]
    if any(None in term or np.count_nonzero(term) > 1 for term in terms):
        return (
            f"is for the covariances Matern12, Matern32, Matern52 and Constant, multiples and sums of them, got {shown}"
        )
    if sum(max([1, *term]) for term in terms) > MAX_STATES:
        return f"is for at most {MAX_STATES} states, smoothness + 1/2 of each term, got {len(terms)} terms"
    return None


def choose_method(model, rows):
    """Return "chain" or "dense" for a fit of `Rows`; ValueError for "chain" where it cannot be."""
    method, covariance, mean, (n_rows, n_features) = model.method, model.covariance, model.mean, rows.X.shape
    if model.integrate is not False and (model.integrate != "auto" or np.count_nonzero(rows.in_use) <= MAX_AUTO_ROWS):
        method = DENSE_METHOD
    obstacle = None if method == DENSE_METHOD else find_obstacle(covariance, mean, n_features)
    if method == CHAIN_METHOD and obstacle is not None:
        raise error_of("method", f"'chain' {obstacle}")
    is_long = method == CHAIN_METHOD or n_rows > MAX_DENSE_ROWS
    return CHAIN_METHOD if method != DENSE_METHOD and obstacle is None and is_long else DENSE_METHOD


def make_blocks(covariance):
    """Return states, lam and variance of each process, (B, 3), see `ep.chain`; a constant is one of rate zero."""
    blocks = []
    for factors in _list_terms(covariance):
        states, rate, variance = 1, 0.0, 1.0
        for leaf in factors:
            variance *= leaf.variance
            if n := _count_states(leaf):
                states, rate = n, np.sqrt(2.0 * n - 1.0) / float(np.ravel(leaf.lengthscale)[0])
        blocks.append((states, rate, variance))
    return np.array(blocks, dtype=np.float64)


def gather_gradient(covariance, by_block):
    """Return the gradient in the log free parameters of that in log variances and log lengthscales (B, 2)."""
    by_kernel = []
    for factors, (by_variance, by_length) in zip(_list_terms(covariance), by_block.tolist(), strict=True):
        for leaf in factors:
            by_kernel += [by_variance, by_length] if _count_states(leaf) else [by_variance]
    return gather_free_gradient(covariance, np.array(by_kernel), 1)
