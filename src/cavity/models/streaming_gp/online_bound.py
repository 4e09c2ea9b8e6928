"""The formulas of streaming sparse Gaussian processes as they stand in the literature: dense, and one function each.

A Gaussian process f ~ GP(0, k) was observed through the values a = f(Z_a) at old inducing points. What is left of the
old data is q(a) = N(m_a, S_a), found under the prior p'(a) = N(0, K'_aa) of the old kernel. Now there are new
observations y = f + noise, values b = f(Z_b) at new inducing points, and possibly another kernel, that of K_aa, K_ab,
K_bb, K_fb and K_ff. With q(f, b) = p(f | b) q(b), the best q(b) is ::

    q_opt(b) proportional to p(b) exp(E_1(b) + E_2(b)),
    E_1(b) = E[log q(a) - log p'(a) | b],   E_2(b) = E[log p(y | f) | b],

and the log of its normaliser is the collapsed online bound on log p(y | old data) [B]_, for the first batch the bound
of [T]_. `StreamingGP` does the same computation in a form that is stable over many batches and costs less; these
functions are for reading, for checking, and for building something else.

Notes
-----
In terms of beta = K_ab K_bb^-1 b, Q_a = K_aa - K_ab K_bb^-1 K_ba and D_a^-1 = S_a^-1 - K'_aa^-1, ::

    E_1(b) = log N(D_a S_a^-1 m_a; beta, D_a) + [log(|K'_aa| |D_a| / |S_a|) + M_a log(2 pi)
             - m_a' S_a^-1 m_a + m_a' S_a^-1 D_a S_a^-1 m_a - tr(D_a^-1 Q_a)]/2
           = log q(beta) - log p'(beta) - tr(D_a^-1 Q_a)/2,
    E_2(b) = log N(y; K_fb K_bb^-1 b, noise) - tr(noise^-1 Q_f)/2.

The second form of E_1 is the one computed: it needs D_a^-1 only, which is singular where the data are uninformative,
and there D_a does not exist. In the tutorial [J]_ three things differ: the definition of D_a in the box lacks the
inverse (it has D_a for what is D_a^-1); K_aa stands for two matrices, of which the one in D_a, and in the determinant,
is that of the old kernel (K'_aa) and the one in Q_a that of the new; and n in the derivation of E_1 is M_a.

With alpha in (0, 1] the expectations are replaced by power means, (1/alpha) log E[exp(alpha log ...) | b]. These are
the fixed points of power expectation propagation; 0 is the limit of variational inference (VFE), and 1 gives for the
new rows the fully independent training conditional (FITC). What `bound` returns is then no bound but an estimate.

A prior mean is subtracted from y, m_a and b beforehand. An inducing variable may have a nugget (jitter) of its own: it
is part of K_bb, K_aa and K'_aa, and of the entries of K_ab where an old inducing variable is kept as a new one.

References
----------
.. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations", NIPS
   2017: equations (5) to (9), and the appendix for power expectation propagation.
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
.. [T] Michalis Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009: what
   is left for the first batch, with no old inducing points.
"""

from __future__ import annotations

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray
from cavity.base.special import quiet
from cavity.base.triangles import solve_lower
from cavity.distributions import MultivariateGaussian
from cavity.distributions.divergence import kl
from cavity.models.streaming_gp import online_factors
from cavity.models.streaming_gp.online_factors import NewInducing, OptimalQ, check_alpha, evaluate_expectation

__all__ = ["bound", "expected_log_likelihood", "expected_log_ratio", "free_energy", "optimal"]


def expected_log_ratio(
    b: ArrayLike,
    old_mean: ArrayLike,
    old_covariance: ArrayLike,
    old_prior: ArrayLike,
    K_aa: ArrayLike,
    K_ab: ArrayLike,
    K_bb: ArrayLike,
    *,
    alpha: float = 0.0,
) -> FloatOrArray:
    """E_1(b): the information of the old data about the new inducing values, E[log q(a) - log p'(a) | b].

    Parameters
    ----------
    b : array_like, shape (M_b,) or (n, M_b)
        Values at the new inducing points, minus their prior mean; one set or n of them.
    old_mean : array_like, shape (M_a,)
        m_a: mean of q(a), minus the prior mean; M_a = 0 if there are no old data.
    old_covariance : array_like, shape (M_a, M_a)
        S_a: covariance of q(a).
    old_prior : array_like, shape (M_a, M_a)
        K'_aa: prior covariance of a under the old kernel, with which q(a) was found.
    K_aa : array_like, shape (M_a, M_a)
        Prior covariance of a under the new kernel.
    K_ab : array_like, shape (M_a, M_b)
        Prior covariance of a and b under the new kernel.
    K_bb : array_like, shape (M_b, M_b)
        Prior covariance of b under the new kernel.
    alpha : float in [0, 1], default 0.0
        Of the power mean (1/alpha) log E[(q(a)/p'(a))^alpha | b]; 0 is the expectation of the log.

    Returns
    -------
    float or ndarray (n,)
        E_1 in nats, one for each set of values.

    Raises
    ------
    ValueError, TypeError
        For wrong shapes, values that are not finite, matrices that are not symmetric, or K_aa, K_ab, K_bb that are
        not the covariances of one Gaussian.
    NotPositiveDefiniteError
        If old_covariance, old_prior or K_bb is not positive definite, or the power mean is infinite.

    References
    ----------
    .. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations",
       NIPS 2017: the first expectation in equation (7).
    .. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1.

    Examples
    --------
    The same inducing point and kernel as before: the log ratio itself.

    >>> from cavity.online_bound import expected_log_ratio
    >>> from scipy.stats import norm
    >>> K = [[1.0]]
    >>> value = expected_log_ratio([0.3], [0.5], [[0.2]], K, K, K, K)
    >>> round(value, 6), round(float(norm.logpdf(0.3, 0.5, 0.2**0.5) - norm.logpdf(0.3)), 6)
    (0.749719, 0.749719)
    """
    coordinates, alpha = NewInducing.of(K_bb), check_alpha(alpha)
    old = online_factors.OldExpectation.of(coordinates, alpha, old_mean, old_covariance, old_prior, K_aa, K_ab)
    return evaluate_expectation(coordinates, old, b)


@quiet
def expected_log_likelihood(
    b: ArrayLike,
    y: ArrayLike,
    K_ff_diagonal: ArrayLike,
    K_fb: ArrayLike,
    K_bb: ArrayLike,
    noise_variance: ArrayLike,
    *,
    alpha: float = 0.0,
) -> FloatOrArray:
    """E_2(b): the information of new observations about the new inducing values, E[log p(y | f) | b].

    Parameters
    ----------
    b : array_like, shape (M_b,) or (n, M_b)
        Values at the new inducing points, minus their prior mean; one set or n of them.
    y : array_like, shape (N,)
        Observations, minus the prior mean of f.
    K_ff_diagonal : array_like, shape (N,)
        Prior variance of f in every row.
    K_fb : array_like, shape (N, M_b)
        Prior covariance of f and b.
    K_bb : array_like, shape (M_b, M_b)
        Prior covariance of b.
    noise_variance : float or array_like (N,)
        Variance of the noise, of all rows or of each.
    alpha : float in [0, 1], default 0.0
        Of the power mean (1/alpha) log E[p(y_n | f_n)^alpha | b] of every row; 0 is the expectation of the log.

    Returns
    -------
    float or ndarray (n,)
        E_2 in nats, one for each set of values.

    Raises
    ------
    ValueError, TypeError
        For wrong shapes, values that are not finite, noise that is not positive, or K_ff_diagonal, K_fb, K_bb that are
        not the covariances of one Gaussian.
    NotPositiveDefiniteError
        If K_bb is not positive definite.

    References
    ----------
    .. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations",
       NIPS 2017: the second expectation in equation (7).
    .. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_2.

    Examples
    --------
    >>> from cavity.online_bound import expected_log_likelihood
    >>> from scipy.stats import norm
    >>> value = expected_log_likelihood([0.3], [0.5], [1.0], [[0.8]], [[1.0]], 0.2)
    >>> round(value, 6), round(float(norm.logpdf(0.5, 0.8 * 0.3, 0.2**0.5)) - (1.0 - 0.8**2) / (2 * 0.2), 6)
    (-1.18322, -1.18322)
    """
    coordinates, alpha = NewInducing.of(K_bb), check_alpha(alpha)
    return evaluate_expectation(
        coordinates, online_factors.NewExpectation.of(coordinates, alpha, y, K_ff_diagonal, K_fb, noise_variance), b
    )


@quiet
def optimal(
    old_mean: ArrayLike,
    old_covariance: ArrayLike,
    old_prior: ArrayLike,
    K_aa: ArrayLike,
    K_ab: ArrayLike,
    K_bb: ArrayLike,
    y: ArrayLike,
    K_ff_diagonal: ArrayLike,
    K_fb: ArrayLike,
    noise_variance: ArrayLike,
    *,
    alpha: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of the best q(b), proportional to p(b) exp(E_1(b) + E_2(b)).

    Parameters
    ----------
    old_mean, old_covariance, old_prior, K_aa, K_ab, K_bb : array_like
        As for `expected_log_ratio`.
    y, K_ff_diagonal, K_fb, noise_variance : array_like
        As for `expected_log_likelihood`.
    alpha : float in [0, 1], default 0.0
        Of the power means in E_1 and E_2; 0 is variational inference, 1 expectation propagation (FITC).

    Returns
    -------
    mean : ndarray (M_b,)
        Mean of q(b), without the prior mean.
    covariance : ndarray (M_b, M_b)
        Covariance of q(b).

    Raises
    ------
    ValueError, TypeError
        As for `expected_log_ratio` and `expected_log_likelihood`.
    NotPositiveDefiniteError
        As for these two, or if q(b) is not proper: an old covariance that exceeds its prior.
    OverflowError
        If a result leaves the range of float64.

    Notes
    -----
    With H = K_bb^-1 K_ba, the precision of q(b) is K_bb^-1 + H D_a^-1 H' + K_bb^-1 K_bf noise^-1 K_fb K_bb^-1, and its
    precision times mean is H S_a^-1 m_a + K_bb^-1 K_bf noise^-1 y. For alpha > 0, D_a + alpha Q_a takes the place of
    D_a, noise + alpha diag(Q_f) that of the noise, and (I + alpha D_a^-1 Q_a)^-1 S_a^-1 m_a that of S_a^-1 m_a.

    References
    ----------
    .. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations",
       NIPS 2017: equation (7) and the appendix.
    .. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": q_opt.

    Examples
    --------
    The same inducing point and kernel, which is where the observation is: Bayes' rule.

    >>> from cavity.online_bound import optimal
    >>> K = [[1.0]]
    >>> mean, covariance = optimal([0.5], [[0.2]], K, K, K, K, [1.0], [1.0], K, 0.2)
    >>> mean.round(12).tolist(), covariance.round(12).tolist()
    ([0.75], [[0.1]])
    """
    old = old_mean, old_covariance, old_prior, K_aa, K_ab
    optimum = OptimalQ.of(K_bb, old, (y, K_ff_diagonal, K_fb, noise_variance), alpha)
    half = solve_lower(optimum.factor, optimum.coordinates.factor.T)
    moments = optimum.coordinates.factor @ optimum.w, half.T @ half
    return tuple(check_within_range(moment, "optimal: the moments of q(b)") for moment in moments)


@quiet
def bound(
    old_mean: ArrayLike,
    old_covariance: ArrayLike,
    old_prior: ArrayLike,
    K_aa: ArrayLike,
    K_ab: ArrayLike,
    K_bb: ArrayLike,
    y: ArrayLike,
    K_ff_diagonal: ArrayLike,
    K_fb: ArrayLike,
    noise_variance: ArrayLike,
    *,
    alpha: float = 0.0,
) -> float:
    """The collapsed online bound: log of the integral of p(b) exp(E_1(b) + E_2(b)).

    Parameters
    ----------
    old_mean, old_covariance, old_prior, K_aa, K_ab, K_bb : array_like
        As for `expected_log_ratio`.
    y, K_ff_diagonal, K_fb, noise_variance : array_like
        As for `expected_log_likelihood`.
    alpha : float in [0, 1], default 0.0
        Of the power means in E_1 and E_2; 0 is variational inference, 1 expectation propagation (FITC).

    Returns
    -------
    float
        In nats: by how much the log evidence grows with the new observations. For alpha = 0 it is minus the smallest
        `free_energy`. A sum of such bounds over batches bounds the log evidence of all data while the inducing points
        and the kernel stay the same; else it does not.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefiniteError, OverflowError
        As for `optimal`.

    Notes
    -----
    The integrand is Gaussian: the result is the log of its value at the mean of q(b), plus log |B|^-1/2, where B is the
    precision of q(b) in coordinates in which p(b) is standard normal. No large terms cancel.

    References
    ----------
    .. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations",
       NIPS 2017: equation (9), and the appendix for alpha > 0.

    Examples
    --------
    Without old inducing points, and one at each row, the exact log marginal likelihood.

    >>> import numpy as np
    >>> from cavity.online_bound import bound
    >>> from scipy.stats import multivariate_normal
    >>> K, y, none = np.array([[1.0, 0.6], [0.6, 1.0]]), [0.3, -1.0], np.zeros((0, 0))
    >>> value = bound([], none, none, none, np.zeros((0, 2)), K, y, np.ones(2), K, 0.5)
    >>> round(value, 6), round(float(multivariate_normal([0.0, 0.0], K + 0.5 * np.eye(2)).logpdf(y)), 6)
    (-2.683943, -2.683943)
    """
    old = old_mean, old_covariance, old_prior, K_aa, K_ab
    optimum = OptimalQ.of(K_bb, old, (y, K_ff_diagonal, K_fb, noise_variance), alpha)
    w = optimum.w
    peak = arrays.add_in_order(part.values(w[None])[0] for part in optimum.parts) - 0.5 * float(w @ w)
    return float(
        check_within_range(peak - online_factors.compute_half_log_determinant(optimum.factor), "bound: the terms")
    )


@quiet
def free_energy(
    q_mean: ArrayLike,
    q_covariance: ArrayLike,
    old_mean: ArrayLike,
    old_covariance: ArrayLike,
    old_prior: ArrayLike,
    K_aa: ArrayLike,
    K_ab: ArrayLike,
    K_bb: ArrayLike,
    y: ArrayLike,
    K_ff_diagonal: ArrayLike,
    K_fb: ArrayLike,
    noise_variance: ArrayLike,
) -> float:
    """Variational free energy of any q(b): KL(q(b) || p(b)) - E[E_1(b) + E_2(b)], the expectation under q.

    Parameters
    ----------
    q_mean : array_like, shape (M_b,)
        Mean of q(b), minus the prior mean.
    q_covariance : array_like, shape (M_b, M_b)
        Covariance of q(b).
    old_mean, old_covariance, old_prior, K_aa, K_ab, K_bb : array_like
        As for `expected_log_ratio`.
    y, K_ff_diagonal, K_fb, noise_variance : array_like
        As for `expected_log_likelihood`.

    Returns
    -------
    float
        In nats. It is smallest for the q(b) of `optimal`, where it is minus `bound`; elsewhere it is larger by
        KL(q || q_opt).

    Raises
    ------
    ValueError, TypeError, NotPositiveDefiniteError, OverflowError
        As for `optimal`, and the same for q.

    References
    ----------
    .. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations",
       NIPS 2017: equation (6).
    .. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": the variational free energy F.

    Examples
    --------
    >>> from cavity.online_bound import bound, free_energy, optimal
    >>> K = [[1.0]]
    >>> given = [0.5], [[0.2]], K, K, K, K, [1.0], [1.0], K, 0.2
    >>> round(bound(*given), 6), round(free_energy(*optimal(*given), *given), 6)
    (-0.773293, 0.773293)
    >>> free_energy([0.7], [[0.1]], *given) > free_energy([0.75], [[0.1]], *given)
    True
    """
    coordinates = NewInducing.of(K_bb)
    q_mean = arrays.check_shaped(q_mean, "q_mean", (coordinates.size,))
    q_covariance = arrays.check_symmetric(q_covariance, "q_covariance", coordinates.size)
    factor = arrays.cholesky(q_covariance, "q_covariance")
    parts = online_factors.collect_expectations(
        coordinates, 0.0, (old_mean, old_covariance, old_prior, K_aa, K_ab), (y, K_ff_diagonal, K_fb, noise_variance)
    )
    root, w = solve_lower(coordinates.factor, factor), solve_lower(coordinates.factor, q_mean)
    expected = 0.0
    for part in parts:  # a quadratic form: its value at the mean, and half the trace of curvature times covariance
        information, _ = part.natural()
        expected += part.values(w[None])[0] - 0.5 * np.sum(root * (information @ root))
    prior = MultivariateGaussian(np.zeros(coordinates.size), coordinates.covariance)
    divergence = kl(MultivariateGaussian(q_mean, q_covariance), prior)
    return float(check_within_range(divergence - expected, "free_energy: the terms"))
