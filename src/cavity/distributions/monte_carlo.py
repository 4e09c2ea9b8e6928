"""Monte-Carlo estimates of divergences and evidence lower bounds, with their standard errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import Seed
from cavity.distributions.family import Distribution

MAX_SAMPLES_PER_BLOCK = 8192  # most samples held at a time; fixed, so that a seed gives the same bits
MAX_NUMBERS_PER_BLOCK = 1 << 22  # in them, where one sample of a distribution of ours is large


def monte_carlo_kl(p: Any, q: Any, n: int, rng: Seed) -> tuple[float, float]:
    """Estimate KL(p || q) from n samples of p, for any log densities.

    Parameters
    ----------
    p : distribution, frozen scipy.stats distribution, dict or pair of callables
        What is sampled: one of ours; of SciPy; independent ones by name, whose samples are a dict of arrays; or
        (sample, log_density) with ``sample(n, rng)`` an array of n samples and ``log_density(samples)`` of shape (n,).
    q : distribution, frozen scipy.stats distribution, dict or callable
        The other density: as for p, or only its ``log_density(samples)``.
    n : int
        Number of samples, at least 2.
    rng : seed or numpy.random.Generator
        Source of randomness; a seed gives the same bits again.

    Returns
    -------
    estimate : float
        The mean of log p(x) - log q(x), x drawn from p; for batches of ours the divergences of all elements together.
    standard_error : float
        Its standard deviation over the samples, divided by the square root of n.

    Raises
    ------
    ValueError
        If n < 2, or a log density is nan, infinite, or not of shape (n,); the message names the sample.
    TypeError
        If p cannot be sampled, or q is not a density.

    Notes
    -----
    The mean over the draws z_i, i = 1..n. Samples are drawn and dropped in blocks of at most 8192. The standard
    error is finite only if log p - log q has a variance under p, and means little where a rare region of p dominates
    the sum.

    Examples
    --------
    >>> import cavity
    >>> p, q = cavity.Gaussian.from_moments(0.0, 1.0), cavity.Gaussian.from_moments(1.0, 4.0)
    >>> estimate, standard_error = cavity.monte_carlo_kl(p, q, 100_000, rng=0)
    >>> abs(estimate - cavity.kl(p, q)) < 4 * standard_error < 0.02
    True
    """
    log_p, log_q = _find_density(p, "p"), _find_density(q, "q")
    _check_names(p, q)
    return _average_in_blocks(p, "p", (("p", log_p, 1.0), ("q", log_q, -1.0)), n, rng)


def monte_carlo_elbo(log_joint: Callable[..., object], q: Any, n: int, rng: Seed) -> tuple[float, float]:
    """Estimate the evidence lower bound E_q[log p(y, z) - log q(z)] from n samples of q.

    Parameters
    ----------
    log_joint : callable
        ``log_joint(samples)`` returns log p(y, z), all constants included, of shape (n,).
    q : distribution, frozen scipy.stats distribution, dict or pair of callables
        The approximate posterior, as p of `monte_carlo_kl`.
    n : int
        Number of samples, at least 2.
    rng : seed or numpy.random.Generator
        Source of randomness; a seed gives the same bits again.

    Returns
    -------
    estimate : float
        The mean of log p(y, z) - log q(z): at most log p(y), up to the error of the estimate.
    standard_error : float
        Its standard deviation over the samples, divided by the square root of n; zero (up to rounding) if and only if q
        is the exact posterior.

    Raises
    ------
    ValueError
        If n < 2, or a log density is nan, infinite, or not of shape (n,); the message names the sample.
    TypeError
        If q cannot be sampled, or log_joint is not callable.

    Notes
    -----
    log p(y) = ELBO + KL(q || p(z | y)), see (10.2) to (10.4) of [B]_. Samples are drawn in blocks of at most 8192.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern Recognition and Machine Learning", Springer, 2006.

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.Gaussian.from_moments(0.0, 4.0)
    >>> posterior, log_evidence = prior.observe(1.5, variance=1.0)
    >>> def log_joint(z):
    ...     return prior.log_density(z) + cavity.Gaussian.from_moments(1.5, 1.0).log_density(z)
    >>> estimate, standard_error = cavity.monte_carlo_elbo(log_joint, posterior, 1000, rng=0)
    >>> abs(estimate - log_evidence) < 1e-12, standard_error < 1e-12
    (True, True)
    """
    if not callable(log_joint):
        raise TypeError(f"log_joint must be a callable, got {log_joint!r}")
    return _average_in_blocks(q, "q", (("log_joint", log_joint, 1.0), ("q", _find_density(q, "q"), -1.0)), n, rng)


# SciPy's densities over simplices and matrices take the points along the last axis
_POINTS_LAST = ("dirichlet_frozen", "wishart_frozen", "invwishart_frozen")


def _find_sampler(law, name):
    """Return sample(n, rng) of anything that `monte_carlo_kl` can sample."""
    if isinstance(law, dict):
        parts = {key: _find_sampler(part, f"{name}[{key!r}]") for key, part in law.items()}
        return lambda n, rng: {key: part(n, rng) for key, part in parts.items()}
    if isinstance(law, tuple) and len(law) == 2 and all(map(callable, law)):
        return law[0]
    if hasattr(law, "rvs"):
        return lambda n, rng: law.rvs(size=n, random_state=rng)
    if isinstance(law, Distribution) or (hasattr(law, "sample") and hasattr(law, "log_density")):
        return law.sample
    raise TypeError(
        f"{name} must be a distribution, a dict of them or a pair (sample, log_density), got {type(law).__name__}"
    )


def _find_density(law, name):
    """Return log_density(samples) of anything that `monte_carlo_kl` takes."""
    if isinstance(law, dict):
        parts = {key: _find_density(part, f"{name}[{key!r}]") for key, part in law.items()}
        return lambda x: sum(part(x[key]) for key, part in parts.items())
    if isinstance(law, tuple) and len(law) == 2 and all(map(callable, law)):
        return law[1]
    for method in ("log_density", "logpdf", "logpmf"):
        if hasattr(law, method):
            log_density = getattr(law, method)
            if type(law).__name__ in _POINTS_LAST:
                return lambda x: log_density(np.moveaxis(x, 0, -1))
            return log_density
    if callable(law):
        return law
    raise TypeError(
        f"{name} must be a distribution, a dict of them, a pair (sample, log_density) or a log density, "
        f"got {type(law).__name__}"
    )


def _check_names(p, q):
    """Raise unless p and q are about the same variables; a log density alone may be about any."""
    if isinstance(p, dict) != isinstance(q, dict) and (isinstance(q, dict) or not callable(q)):
        raise TypeError(f"p and q must both be dicts or neither, got {type(p).__name__} and {type(q).__name__}")
    if isinstance(p, dict) and isinstance(q, dict) and p.keys() != q.keys():
        raise ValueError(f"p and q must have the same variables, got {list(p)} and {list(q)}")


def _count_numbers(law):
    """Return how many numbers a sample holds, as far as it is known."""
    if isinstance(law, dict):
        return sum(map(_count_numbers, law.values()))
    return prod(law.event_shape) if isinstance(law, Distribution) else 1


def _split_samples(n, size):
    """Return (start, rows) of blocks of n samples; never a single one, for which SciPy drops the axis."""
    most = max(2, min(MAX_SAMPLES_PER_BLOCK, MAX_NUMBERS_PER_BLOCK // max(size, 1)))
    starts = [*range(0, n - 1, most), n]
    return [(start, stop - start) for start, stop in pairwise(starts)]


def _average_in_blocks(law, name, terms, n, rng):
    """Mean and standard error over samples of a signed sum of log densities, in blocks merged in their order."""
    draw = _find_sampler(law, name)
    n, rng = arrays.check_integer(n, "n", low=2), arrays.make_generator(rng)
    mean, squares = 0.0, 0.0
    for start, rows in _split_samples(n, _count_numbers(law)):
        samples = draw(rows, rng)
        values = sum(sign * _check_log_densities(name, density(samples), start, rows) for name, density, sign in terms)
        block_mean = float(np.mean(values))
        step, total = block_mean - mean, start + rows
        squares += float(np.sum((values - block_mean) ** 2)) + step * step * (start * rows / total)
        mean += step * (rows / total)
    return mean, float(np.sqrt(squares / (n - 1) / n))


def _check_log_densities(name, values, start, rows):
    """Check what a log density returned for `rows` samples, the first of which is number `start`."""
    description = "log_joint" if name == "log_joint" else f"the log density of {name}"
    values = arrays.check_real_array(values, description)
    if values.shape != (rows,):
        raise ValueError(f"{description} must have one value per sample, shape ({rows},), got {values.shape}")
    bad = ~np.isfinite(values)
    if bad.any():
        index = int(np.argmax(bad))
        value, sample = values[index], f"sample {start + index}"
        if value == -np.inf and name == "log_joint":
            raise ValueError(f"log_joint is -inf at {sample}, where q has mass: the ELBO is minus infinity")
        if value == -np.inf and name == "q":
            raise ValueError(f"the log density of q is -inf at {sample} of p: KL(p || q) is infinite")
        raise ValueError(f"{description} must be finite, got {value} at {sample}")
    return values
