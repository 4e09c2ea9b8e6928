"""The formulas of online bounds: against integration, many digits, sampling; their laws; the slips of the tutorial."""

import inspect
import itertools
import math
import re

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import streaming_gp as reference
from support.examples import examples
from support.tolerances import AT_REST, INTEGRAL, LOSSES, ROOT_EPS, ROUNDING, SOLVES, SUMS

import cavity
from cavity.distributions import MultivariateGaussian
from cavity.models.streaming_gp import online_bound

ALPHAS = pytest.mark.parametrize("alpha", [0.0, 1e-9, 0.3, 1.0])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
NONE = np.zeros((0, 0))


class Problem:
    """Old and new inducing points on the line, two kernels, q(a) from old rows, and new rows."""

    def __init__(self, seed, n_old=3, n_new=4, n_rows=5, jitter=1e-3, same=False):
        rng = np.random.default_rng(seed)
        self.jitter = jitter
        self.k_old = reference.rbf(rng.uniform(0.5, 2), rng.uniform(0.5, 1.5))
        self.k = self.k_old if same else reference.rbf(rng.uniform(0.5, 2), rng.uniform(0.5, 1.5))
        self.Z_a = rng.uniform(-2, 2, (n_old, 1))
        self.Z_b = self.Z_a if same else np.vstack([self.Z_a[:1], rng.uniform(-2, 2, (n_new - 1, 1))])
        X_old, self.X = rng.uniform(-2, 2, (7, 1)), rng.uniform(-2, 2, (n_rows, 1))
        self.m, self.S, _ = reference.batch(
            self.k_old, self.Z_a, X_old, rng.normal(size=7), 0.3, alpha=0.5, jitter=jitter
        )
        self.S = 0.5 * (self.S + self.S.T)
        self.y, self.noise = rng.normal(size=n_rows), rng.uniform(0.1, 1, n_rows)
        self.K_old = reference.prior_of(self.k_old, self.Z_a, jitter)
        self.K_aa = reference.prior_of(self.k, self.Z_a, jitter)
        self.K_ab = reference.between(self.k, self.Z_a, self.Z_b, jitter)
        self.K_bb = reference.prior_of(self.k, self.Z_b, jitter)
        self.K_ff, self.K_fb = np.diag(self.k(self.X, self.X)), self.k(self.X, self.Z_b)
        self.rng = rng

    @property
    def old(self):
        """The arguments of E_1 but the last."""
        return self.m, self.S, self.K_old, self.K_aa, self.K_ab

    @property
    def new(self):
        """The arguments of E_2 but for b and K_bb."""
        return self.y, self.K_ff, self.K_fb, self.noise

    @property
    def all(self):
        """The arguments of optimal and bound."""
        return (*self.old, self.K_bb, *self.new)

    def truth(self, alpha=0, digits=50):
        """Mean, covariance and bound of the paper's formulas in many digits."""
        with mp.workdps(digits):
            many = reference.many_digits
            K_inverse = reference.inverse(many(self.K_bb))
            H, K_fb = many(self.K_ab) @ K_inverse, many(self.K_fb)
            Q = many(self.K_aa) - H @ many(self.K_ab).T
            S_inverse, K_old = reference.inverse(many(self.S)), many(self.K_old)
            m, y = many(self.m), many(self.y)
            D_inverse = S_inverse - reference.inverse(K_old)
            D = reference.inverse(D_inverse)
            noise, residual = many(self.noise), many(self.K_ff) - np.sum(K_fb @ K_inverse * K_fb, axis=1)
            # equation (9): one Gaussian over the new observations and the pseudo-observations of the old ones
            both = np.concatenate([y, D @ S_inverse @ m])
            K = np.vstack([K_fb, many(self.K_ab)])
            n, size = len(both), len(y)
            Sigma = K @ K_inverse @ K.T
            Sigma[range(size), range(size)] += noise + alpha * residual
            Sigma[size:, size:] += D + alpha * Q
            value = reference.log_normal(both, 0 * both, Sigma) + (n - size) * mp.log(2 * mp.pi) / 2
            value += (reference.log_determinant(K_old) - reference.log_determinant(many(self.S))) / 2
            value += reference.log_determinant(D) / 2
            value += (m @ S_inverse @ D @ S_inverse @ m - m @ S_inverse @ m) / 2
            if alpha == 0:
                value -= (np.trace(D_inverse @ Q) + np.sum(residual / noise)) / 2
            else:
                inner = reference.eye(len(Q), Q) + alpha * (D_inverse @ Q)
                share = (1 - mp.mpf(alpha)) / (2 * mp.mpf(alpha))
                value -= share * reference.log_determinant(inner)
                value -= share * np.sum(reference.log(1 + alpha * residual / noise))
            half = K.T @ reference.inverse(Sigma)
            mean, covariance = half @ both, many(self.K_bb) - half @ K
            return reference.plain(mean), reference.plain(covariance), reference.plain(value)


seeds = st.integers(0, 10**6)


# ------------------------------------------------------------------------------------------ E_1 and E_2


def averages(values, alpha):
    """Power mean of exp(values) over the last axis, by the nodes' weights."""
    if alpha == 0.0:
        return values @ WEIGHTS
    top = values.max(axis=-1)
    return top + np.log1p(np.expm1(alpha * (values - top[..., None])) @ WEIGHTS) / alpha


@ALPHAS
def test_expected_log_likelihood_is_the_integral(alpha):
    p = Problem(1)
    b = p.rng.normal(size=(3, 4))
    actual = online_bound.expected_log_likelihood(b, *p.new[:3], p.K_bb, p.noise, alpha=alpha)
    H = p.K_fb @ np.linalg.inv(p.K_bb)
    sd = np.sqrt(p.K_ff - np.sum(H * p.K_fb, axis=1))
    f = (b @ H.T)[..., None] + sd[:, None] * NODES
    log_p = -0.5 * np.log(2 * np.pi * p.noise[:, None]) - (p.y[:, None] - f) ** 2 / (2 * p.noise[:, None])
    np.testing.assert_allclose(actual, averages(log_p, alpha).sum(axis=1), rtol=AT_REST)
    one = online_bound.expected_log_likelihood(b[0], *p.new[:3], p.K_bb, p.noise, alpha=alpha)
    assert isinstance(one, float)
    assert one == pytest.approx(actual[0], rel=ROUNDING)


@pytest.mark.long_cases("2-0.3")
@pytest.mark.parametrize(
    ("size", "alpha"),
    [(1, 0.0), (1, 1e-9), (1, 1.0), (2, 0.3), *(pytest.param(2, a, marks=pytest.mark.long) for a in (0.0, 1e-9, 1.0))],
)
def test_expected_log_ratio_is_the_integral(size, alpha):
    p = Problem(2, n_old=size, n_new=2)
    b = p.rng.normal(size=(3, 2))
    actual = online_bound.expected_log_ratio(b, *p.old, p.K_bb, alpha=alpha)
    H = p.K_ab @ np.linalg.inv(p.K_bb)
    values, vectors = np.linalg.eigh(p.K_aa - H @ p.K_ab.T)
    root = vectors * np.sqrt(np.maximum(values, 0))
    grid = np.array(list(itertools.product(NODES, repeat=size)))
    weights = np.prod(list(itertools.product(WEIGHTS, repeat=size)), axis=1)
    for item, value in zip(b, actual, strict=True):
        a = H @ item + grid @ root.T
        ratio = [reference.log_normal(x, p.m, p.S) - reference.log_normal(x, 0 * x, p.K_old) for x in a]
        ratio = np.array(ratio)
        truth = weights @ ratio
        if alpha > 0:
            top = ratio.max()
            truth = top + np.log1p(weights @ np.expm1(alpha * (ratio - top))) / alpha
        assert value == pytest.approx(truth, rel=ROOT_EPS if alpha == AT_REST else AT_REST)


def test_expectations_against_sampling():
    p, n = Problem(3), 200_000
    b = p.rng.normal(size=4)
    H = np.vstack([p.K_ab, p.K_fb]) @ np.linalg.inv(p.K_bb)
    a = (H @ b)[:3] + p.rng.multivariate_normal(np.zeros(3), p.K_aa - H[:3] @ p.K_ab.T, size=n, method="eigh")
    ratio = MultivariateGaussian(p.m, p.S).log_density(a) - MultivariateGaussian(0 * p.m, p.K_old).log_density(a)
    value = online_bound.expected_log_ratio(b, *p.old, p.K_bb)
    assert abs(ratio.mean() - value) < 5 * ratio.std() / math.sqrt(n)
    sd = np.sqrt(p.K_ff - np.sum(H[3:] * p.K_fb, axis=1))
    f = (H @ b)[3:] + sd * p.rng.normal(size=(n, 5))
    log_p = (-0.5 * np.log(2 * np.pi * p.noise) - (p.y - f) ** 2 / (2 * p.noise)).sum(axis=1)
    value = online_bound.expected_log_likelihood(b, *p.new[:3], p.K_bb, p.noise)
    assert abs(log_p.mean() - value) < 5 * log_p.std() / math.sqrt(n)


def test_expected_log_ratio_as_the_tutorial_prints_it():
    p = Problem(4)
    D_inverse = np.linalg.inv(p.S) - np.linalg.inv(p.K_old)
    D, S_inverse = np.linalg.inv(D_inverse), np.linalg.inv(p.S)
    b = p.rng.normal(size=4)
    beta = p.K_ab @ np.linalg.solve(p.K_bb, b)
    Q = p.K_aa - p.K_ab @ np.linalg.solve(p.K_bb, p.K_ab.T)
    bracket = (
        np.linalg.slogdet(p.K_old)[1] + np.linalg.slogdet(D)[1] - np.linalg.slogdet(p.S)[1] - p.m @ S_inverse @ p.m
    )
    bracket += p.m @ S_inverse @ D @ S_inverse @ p.m - np.trace(D_inverse @ Q) + 3 * np.log(2 * np.pi)
    printed = reference.log_normal(D @ S_inverse @ p.m, beta, D) + 0.5 * bracket
    assert online_bound.expected_log_ratio(b, *p.old, p.K_bb) == pytest.approx(printed, rel=AT_REST)


# ------------------------------------------------------------------------------------------ q_opt and the bound


@pytest.mark.long_cases("0.0")
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@examples(10)
@given(seed=seeds)
def test_optimal_and_bound_in_many_digits(alpha, seed):
    p = Problem(seed)
    mean, covariance = online_bound.optimal(*p.all, alpha=alpha)
    truth = p.truth(alpha)
    sd = np.sqrt(np.diag(truth[1]))
    assert np.max(np.abs(mean - truth[0]) / sd) < 1e-9
    assert np.max(np.abs(covariance - truth[1]) / np.outer(sd, sd)) < 1e-9
    assert online_bound.bound(*p.all, alpha=alpha) == pytest.approx(truth[2], abs=AT_REST)


@examples(25)
@given(seeds)
def test_the_reference_says_the_same_without_inverse_covariances(seed):
    p = Problem(seed)
    old = p.Z_a, p.m, p.S, p.K_old
    for alpha in (0.0, 0.6):
        mean, S, value = reference.online(old, p.k, p.Z_b, p.X, p.y, p.noise, alpha=alpha, jitter=p.jitter)
        actual = online_bound.optimal(*p.all, alpha=alpha)
        np.testing.assert_allclose(actual[0], mean, atol=ROOT_EPS)
        np.testing.assert_allclose(actual[1], S, atol=ROOT_EPS)
        assert online_bound.bound(*p.all, alpha=alpha) == pytest.approx(value, abs=ROOT_EPS)


@given(seeds)
def test_free_energy_is_smallest_at_the_optimum_by_the_divergence_from_it(seed):
    p = Problem(seed)
    mean, covariance = online_bound.optimal(*p.all)
    least = online_bound.free_energy(mean, covariance, *p.all)
    assert least == pytest.approx(-online_bound.bound(*p.all), abs=ROOT_EPS)
    best = MultivariateGaussian(mean, covariance)
    root = np.linalg.cholesky(covariance)
    for size in (0.01, 1.0):
        other = mean + size * root @ p.rng.normal(size=4)
        spread = root @ (np.eye(4) + size * np.tril(p.rng.uniform(-0.5, 0.5, (4, 4))))
        value = online_bound.free_energy(other, spread @ spread.T, *p.all)
        assert value > least
        assert value - least == pytest.approx(
            cavity.kl(MultivariateGaussian(other, spread @ spread.T), best), abs=ROOT_EPS
        )


def test_free_energy_is_the_average_under_q():
    p = Problem(5, n_new=2)
    mean, root = p.rng.normal(size=2), np.array([[0.4, 0.0], [0.2, 0.3]])
    b = mean + np.array(list(itertools.product(NODES, repeat=2))) @ root.T
    weights = np.prod(list(itertools.product(WEIGHTS, repeat=2)), axis=1)
    inside = online_bound.expected_log_ratio(b, *p.old, p.K_bb)
    inside = inside + online_bound.expected_log_likelihood(b, *p.new[:3], p.K_bb, p.noise)
    inside -= [reference.log_normal(x, mean, root @ root.T) - reference.log_normal(x, 0 * x, p.K_bb) for x in b]
    value = online_bound.free_energy(mean, root @ root.T, *p.all)
    assert value == pytest.approx(-weights @ inside, rel=INTEGRAL)


@ALPHAS
def test_same_inducing_points_and_kernel_without_data_give_the_same_q(alpha):
    p = Problem(6, same=True)
    empty = np.zeros(0), np.zeros(0), np.zeros((0, 3)), 1.0
    mean, covariance = online_bound.optimal(*p.old, p.K_bb, *empty, alpha=alpha)
    np.testing.assert_allclose(mean, p.m, rtol=0, atol=LOSSES)
    np.testing.assert_allclose(covariance, p.S, rtol=0, atol=LOSSES)
    assert online_bound.bound(*p.old, p.K_bb, *empty, alpha=alpha) == pytest.approx(0.0, abs=LOSSES)
    b = p.rng.normal(size=3)
    ratio = reference.log_normal(b, p.m, p.S) - reference.log_normal(b, 0 * b, p.K_old)
    assert online_bound.expected_log_ratio(b, *p.old, p.K_bb, alpha=alpha) == pytest.approx(ratio, abs=INTEGRAL)


def test_old_data_that_say_nothing_change_nothing():
    p = Problem(7)
    q_is_prior = 0 * p.m, p.K_old, p.K_old, p.K_aa, p.K_ab
    no_old = np.zeros(0), NONE, NONE, NONE, np.zeros((0, 4))
    for alpha in (0.0, 1.0):
        with_old = online_bound.bound(*q_is_prior, p.K_bb, *p.new, alpha=alpha)
        assert with_old == pytest.approx(online_bound.bound(*no_old, p.K_bb, *p.new, alpha=alpha), abs=SOLVES)
        assert online_bound.expected_log_ratio(np.ones(4), *q_is_prior, p.K_bb, alpha=alpha) == pytest.approx(
            0, abs=SOLVES
        )
        for a, b in zip(
            online_bound.optimal(*q_is_prior, p.K_bb, *p.new, alpha=alpha),
            online_bound.optimal(*no_old, p.K_bb, *p.new, alpha=alpha),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=0, atol=SOLVES)
    assert online_bound.expected_log_ratio(np.ones(4), *no_old, p.K_bb) == 0.0
    # nothing known at one of two old points: D_a^-1 is singular and D_a does not exist
    S = np.diag([0.25, 1.0])
    K_ab = np.array([[0.5], [0.3]])
    mean, covariance = online_bound.optimal(
        [1.0, 0.0], S, np.eye(2), np.eye(2), K_ab, [[1.0]], [], [], np.zeros((0, 1)), 1.0
    )
    assert covariance[0, 0] == pytest.approx(1 / (1 + 3 * 0.25), rel=ROUNDING)
    assert mean[0] == pytest.approx(covariance[0, 0] * 0.5 * 4, rel=ROUNDING)


def test_first_batch_is_titsias_and_fitc():
    p = Problem(8)
    no_old = np.zeros(0), NONE, NONE, NONE, np.zeros((0, 4))
    for alpha in (0.0, 0.5, 1.0):
        mean, S, value = reference.batch(p.k, p.Z_b, p.X, p.y, p.noise, alpha=alpha, jitter=p.jitter)
        actual = online_bound.optimal(*no_old, p.K_bb, *p.new, alpha=alpha)
        np.testing.assert_allclose(actual[0], mean, atol=LOSSES)
        np.testing.assert_allclose(actual[1], S, atol=LOSSES)
        assert online_bound.bound(*no_old, p.K_bb, *p.new, alpha=alpha) == pytest.approx(value, abs=LOSSES)


def test_alpha_near_zero_is_the_limit():
    p = Problem(9)
    for alpha in (1e-6, 1e-12, 1e-200):
        value = online_bound.bound(*p.all, alpha=alpha)
        assert value == pytest.approx(online_bound.bound(*p.all), abs=100 * alpha + LOSSES)


def test_huge_observations_do_not_cancel():
    # y'y/(2 noise) is 5e15 here, and so is what the posterior gives back of it
    K = np.array([[1.0, 0.3], [0.3, 1.0]])
    given_data = np.array([1e5, -3e4]), np.ones(2), K, 1e-6
    no_old = np.zeros(0), NONE, NONE, NONE, np.zeros((0, 2))
    truth = reference.log_normal(given_data[0], np.zeros(2), K + 1e-6 * np.eye(2))
    assert online_bound.bound(*no_old, K, *given_data) == pytest.approx(truth, rel=SUMS)


# ------------------------------------------------------------------------------------------ the slips


def test_the_boxed_definition_of_the_tutorial_gives_a_wrong_mean():
    """In the box of the tutorial D_a stands for what is D_a^-1; taken literally, the mean is off by much."""
    p = Problem(11)
    mean, _, _ = p.truth()

    def product(D):
        """Mean of p(b) N(D S_a^-1 m_a; beta, D) N(y; K_fb K_bb^-1 b, noise)."""
        K = np.vstack([p.K_ab, p.K_fb])
        both = np.concatenate([D @ np.linalg.solve(p.S, p.m), p.y])
        Sigma = K @ np.linalg.solve(p.K_bb, K.T)
        Sigma[:3, :3] += D
        Sigma[range(3, 8), range(3, 8)] += p.noise
        return K.T @ np.linalg.solve(Sigma, both)

    boxed = np.linalg.inv(p.S) - np.linalg.inv(p.K_old)
    right = np.linalg.norm(product(np.linalg.inv(boxed)) - mean) / np.linalg.norm(mean)
    wrong = np.linalg.norm(product(boxed) - mean) / np.linalg.norm(mean)
    assert right < 1e-8
    assert wrong > 0.3


def test_the_old_kernel_belongs_into_the_old_prior():
    p = Problem(12)
    swapped = p.m, p.S, p.K_aa, p.K_aa, p.K_ab
    mean, _, value = p.truth()
    assert np.max(np.abs(online_bound.optimal(*p.all)[0] - mean)) < 1e-8
    assert np.max(np.abs(online_bound.optimal(*swapped, p.K_bb, *p.new)[0] - mean)) > 1e-2
    assert abs(online_bound.bound(*swapped, p.K_bb, *p.new) - value) > 0.1


# ------------------------------------------------------------------------------------------ errors


def arguments(**changes):
    """The arguments of `bound` on a small problem, some replaced."""
    values = dict(zip(inspect.signature(online_bound.bound).parameters, Problem(13).all, strict=False)) | changes
    return list(values.values())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"old_mean": [[1.0]]}, ValueError, "old_mean must have 1 dimension"),
        ({"old_mean": [1.0, np.nan, 0.0]}, ValueError, "old_mean must be finite, got old_mean[1] = nan"),
        ({"old_mean": [1.0, 0.0]}, ValueError, "old_covariance must have shape (n, n) with n = 2, got (3, 3)"),
        ({"old_covariance": np.triu(np.ones((3, 3)))}, ValueError, "old_covariance must be symmetric"),
        ({"old_covariance": -np.eye(3)}, cavity.NotPositiveDefiniteError, "old_covariance must be positive definite"),
        ({"old_prior": np.zeros((3, 3))}, cavity.NotPositiveDefiniteError, "old_prior must be positive definite"),
        ({"K_bb": -np.eye(4)}, cavity.NotPositiveDefiniteError, "K_bb must be positive definite"),
        ({"K_bb": np.zeros((0, 0))}, ValueError, "K_bb must not be empty"),
        ({"K_ab": np.zeros((4, 3))}, ValueError, "K_ab must have shape (3, 4), got (4, 3)"),
        ({"K_aa": 1e-3 * np.eye(3)}, ValueError, "K_aa must be at least what K_ab and K_bb explain"),
        ({"K_ff_diagonal": np.zeros(5)}, ValueError, "K_ff_diagonal must be at least what K_fb and K_bb explain"),
        ({"K_ff_diagonal": np.ones(4)}, ValueError, "K_ff_diagonal must have shape (5,), got (4,)"),
        ({"K_fb": np.ones((5, 3))}, ValueError, "K_fb must have shape (5, 4), got (5, 3)"),
        ({"y": np.array(["a"])}, TypeError, "y must hold real numbers"),
        ({"noise_variance": 0.0}, ValueError, "noise_variance must be positive, got 0.0"),
        (
            {"noise_variance": np.ones(3)},
            ValueError,
            "noise_variance must be a number or have shape (5,) like y, got (3,)",
        ),
        ({"y": np.full(5, 1e300), "noise_variance": 1e-300}, OverflowError, "leave the range of float64"),
    ],
)
def test_errors_name_the_argument(changes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        online_bound.bound(*arguments(**changes))
    with pytest.raises(error, match=re.escape(message)):
        online_bound.free_energy(np.zeros(4), np.eye(4), *arguments(**changes))


def test_errors_of_b_alpha_and_q():
    p = Problem(13)
    with pytest.raises(ValueError, match=re.escape("b must have 4 values like K_bb has rows, got shape (3,)")):
        online_bound.expected_log_ratio(np.zeros(3), *p.old, p.K_bb)
    with pytest.raises(ValueError, match="b must be finite"):
        online_bound.expected_log_likelihood([np.inf] * 4, *p.new[:3], p.K_bb, p.noise)
    with pytest.raises(ValueError, match=re.escape("alpha must be in [0, 1], got 1.5")):
        online_bound.bound(*p.all, alpha=1.5)
    with pytest.raises(TypeError, match="alpha must be a number"):
        online_bound.optimal(*p.all, alpha="fitc")
    with pytest.raises(cavity.NotPositiveDefiniteError, match="q_covariance must be positive definite"):
        online_bound.free_energy(np.zeros(4), -np.eye(4), *p.all)
    # an old covariance above its prior: exp(E_1) grows, and the power mean is infinite
    K = [[1.0]]
    with pytest.raises(cavity.NotPositiveDefiniteError, match="the power mean to be finite"):
        online_bound.bound([0.0], [[2.0]], K, [[9.0]], [[0.0]], K, [], [], np.zeros((0, 1)), 1.0, alpha=1.0)
    with pytest.raises(cavity.NotPositiveDefiniteError, match=re.escape("the precision of q(b) must be positive")):
        online_bound.bound([0.0], [[9.0]], K, [[9.0]], [[2.9]], K, [], [], np.zeros((0, 1)), 1.0)


def test_inputs_of_any_kind_are_left_alone():
    p = Problem(14)
    value = online_bound.bound(*p.all)
    lists = [item.tolist() for item in p.all]
    assert online_bound.bound(*lists) == value
    frozen = [np.asfortranarray(entry) for entry in p.all]
    for each in frozen:
        each.flags.writeable = False
    assert online_bound.bound(*frozen) == value
    assert online_bound.bound(*(np.repeat(element, 2, axis=0)[::2] for element in p.all)) == value
