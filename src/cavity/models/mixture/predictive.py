"""The posterior predictive distribution of a Gaussian mixture: Student-t components, weighted by E[pi].

References
----------
Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, (10.81) and (10.82).
"""

import numpy as np

from cavity.base.constants import LOG_PI
from cavity.base.errors import check_within_range
from cavity.base.special import log_gamma_ratio
from cavity.models.mixture.e_step import EStep, make_unreachable_error
from cavity.models.mixture.rows import check_rows, open_blocks
from cavity.runs.executors import Threads


def evaluate_by_blocks(X, state, scaling, logs_of, finish, shape, dtype):
    """Return finish(logs_of(state, scaling, rows)) of all rows, (N, *shape); one at least of each row's logs is finite.

    The logs of rows are (n, K) or (n,).
    """
    k, dim = state.factors.mean.shape
    source = open_blocks(X, k, state.full, dim)
    out = np.empty((source.n_rows, *shape), dtype=dtype)
    has_checked = False
    for index in range(source.block_count):
        start, stop = source.span(index)
        rows = source.read(index)
        if not (has_checked or np.isfinite(rows).all()):
            with Threads(1) as thread:
                check_rows(source, thread, not state.full)
            has_checked, rows = True, source.read(index)
        logs = logs_of(state, scaling, rows)
        if not np.isfinite(logs).all():
            reached = np.isfinite(logs if logs.ndim == 1 else np.max(logs, axis=1))
            if not reached.all():
                raise make_unreachable_error(source.describe_row(start + int(np.argmin(reached))))
        out[start:stop] = finish(logs)
    return out


def compute_log_weights(state, scaling, rows):
    """Return the logs (n, K) of which the softmax are the responsibilities."""
    return EStep.of(state, scaling, missing=bool(np.isnan(rows).any())).compute_log_weights(rows)


def compute_log_density(state, scaling, rows):
    """Return the log predictive density (n,) of rows in the units of the data; nan in a row is integrated over."""
    terms = _compute_wishart_terms(state, scaling, rows) if state.full else _compute_gamma_terms(state, scaling, rows)
    with np.errstate(divide="ignore"):  # an expected weight may underflow to zero
        terms += np.log(state.weights.mean())
    units = np.where(np.isnan(rows), 0.0, np.log(scaling.scale))
    return compute_log_sum(terms) + np.sum(units, axis=1)


def compute_log_sum(logs):
    """Return the logs (n,) of the sums over the components of what has the logs (n, K); -inf where all are."""
    columns, top = _subtract_largest(logs)
    largest = columns == 0.0
    np.exp(columns, out=columns)
    columns[largest] = 0.0  # apart, for the digits of what is next to nothing beside it
    ties = largest.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.log1p(columns.sum(axis=0) / ties) + np.log(ties) + top
    return np.where(ties > 0, total, -np.inf)


def compute_shares(logs):
    """Return the shares (n, K), which sum to one, of what has the logs (n, K)."""
    columns, _ = _subtract_largest(logs)
    np.exp(columns, out=columns)
    columns /= columns.sum(axis=0)
    return columns.T


def _subtract_largest(logs):
    """Return logs less the largest of their row, (K, n): few columns are slow to reduce; and the largest, if finite."""
    columns = logs.T.copy()
    top = columns.max(axis=0)
    top[~np.isfinite(top)] = 0.0
    columns -= top
    return columns, top


def _compute_wishart_terms(state, scaling, rows):
    """The log t densities (n, K) of nu + 1 - D degrees of freedom."""
    factors, dim = state.factors, state.factors.mean.shape[1]
    beta, nu = factors.beta[:, 0], np.broadcast_to(factors.nu, len(factors.mean))
    logs = 2.0 * np.sum(np.log(np.diagonal(factors.factor, axis1=1, axis2=2)), axis=1)
    constant = log_gamma_ratio(0.5 * (nu + 1 - dim), 0.5 * dim)
    constant = constant - 0.5 * (dim * (LOG_PI + np.log1p(1.0 / beta)) + logs)
    terms = EStep.of(state, scaling).compute_distances(rows)
    terms *= beta / (beta + 1.0) / nu
    np.log1p(terms, out=terms)
    terms *= -0.5 * (nu + 1)
    terms += constant
    return terms


def _compute_gamma_terms(state, scaling, rows):
    """The log t densities (n, K): of all columns that share a precision together, of each seen column alone if not."""
    factors = state.factors
    z, is_observed = scaling.rows(rows), ~np.isnan(rows)
    is_observed = is_observed[:1] if is_observed.all() else is_observed  # all rows are alike
    terms = np.empty((len(rows), len(factors.mean)))
    beta = np.broadcast_to(factors.beta, factors.mean.shape)
    for k in range(len(factors.mean)):
        widening, nu, scatter = 1.0 + 1.0 / beta[k], factors.nu[k], factors.scatter[k]
        with np.errstate(over="ignore"):  # the callers refuse rows that are out of reach of all components
            square = np.where(is_observed, (z - factors.mean[k]) ** 2, 0.0) / widening / scatter
        logs = np.where(is_observed, LOG_PI + np.log(widening * scatter), 0.0)
        count = is_observed.astype(float)
        if len(nu) < z.shape[1]:
            square, count = np.sum(square, axis=1, keepdims=True), np.sum(count, axis=1, keepdims=True)
        ratio, power = log_gamma_ratio(0.5 * nu, 0.5 * count), 0.5 * (nu + count)
        logs = np.sum(logs, axis=1)
        terms[:, k] = np.sum(ratio - power * np.log1p(square), axis=1) - 0.5 * logs
    return terms


def sample(state, scaling, n, rng):
    """Return n draws (n, D) from the predictive distribution, in the units of the data, and their components (n,)."""
    factors, weights = state.factors, state.weights.mean()
    component = rng.choice(len(weights), size=n, p=weights / np.sum(weights))
    normal = rng.standard_normal((n, factors.mean.shape[1]))
    widening = np.sqrt(1.0 + 1.0 / factors.beta)[component]
    if state.full:
        factor_index = component if len(factors.nu) > 1 else np.zeros_like(component)
        degrees = (factors.nu + 1 - normal.shape[1])[factor_index]
        normal = np.matmul(factors.factor[factor_index], normal[:, :, None])[:, :, 0]
        spread = np.sqrt(rng.chisquare(degrees))[:, None]
    else:
        normal = normal * np.sqrt(factors.scatter[component])
        spread = np.sqrt(rng.chisquare(factors.nu[component]))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        draws = scaling.to_user_rows(factors.mean[component] + widening * normal / spread)
    return check_within_range(draws, "sample: with so few degrees of freedom the draws"), component
