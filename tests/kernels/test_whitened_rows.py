"""The kernel that whitens rows and adds up their sites: extended precision, refused rows, equal bits of variants."""

import numpy as np
import pytest
from reference import sparse_gp as reference
from support.kernels import same_bits
from support.tolerances import LAST_BIT, SUMS

from cavity import _core, covariances
from cavity.covariances.program import get_program

VARIANTS = _core.variants("whitened_rows")
KERNELS = [_core.load("whitened_rows", variant) for variant in VARIANTS]
MAIN = KERNELS[-1]
SHAPES = [(1, 1), (5, 3), (95, 7), (96, 8), (97, 9), (200, 23), (30, 24), (25, 25), (193, 50)]


def triangle(n):
    """A well-conditioned lower triangle in Fortran order."""
    rng = np.random.default_rng(n)
    return np.asfortranarray(np.tril(rng.normal(size=(n, n)) / n, -1) + np.diag(rng.uniform(0.5, 2.0, n)))


def draw(n_rows, n):
    """Covariances of rows, L, prior variances, and sites on f: tau, rho of either sign, fractions, some zero."""
    rng = np.random.default_rng(100 * n_rows + n)
    K, prior = rng.normal(size=(n_rows, n)) / np.sqrt(n), rng.uniform(20.0, 30.0, n_rows)
    rho, fraction = rng.uniform(-0.01, 2.0, n_rows), rng.choice([0.0, 0.5, 1.0], n_rows)
    return K, triangle(n), prior, rng.normal(size=n_rows), rho, fraction


def add(kernel, K, L, prior, tau, rho, fraction, y=None, *, target=None, X=None, keep=True):
    """W, residuals, A, r and numbers."""
    W, residual = (K.copy() if keep else np.empty((0, len(L)))), np.full(len(prior), np.nan)
    A, r, numbers = np.zeros(L.shape, order="F"), np.zeros(len(L)), np.zeros(5)
    X, y = np.zeros((0, 0)) if X is None else X, np.zeros(0) if y is None else y
    done = kernel.add_rows(target, X, L, W, False, prior, residual, tau, rho, fraction, y, A, r, numbers)
    return (done, W, residual, A, r, numbers)


@pytest.mark.parametrize(("n_rows", "n"), SHAPES)
@pytest.mark.parametrize("observed", [False, True])
def test_sums(n_rows, n, observed):
    K, L, prior, tau, rho, fraction = draw(n_rows, n)
    y = np.linspace(-1.0, 1.0, n_rows) if observed else None
    done, W, residual, A, r, numbers = same_bits([add(k, K, L, prior, tau, rho, fraction, y) for k in KERNELS])
    assert done == n_rows
    expected = np.array([reference.solved(L, row) for row in K])
    np.testing.assert_allclose(W, expected.astype(float), rtol=0, atol=SUMS * np.abs(W).max())
    np.testing.assert_allclose(residual, (prior - np.sum(expected**2, axis=1)).astype(float), rtol=SUMS)
    spread = 1.0 + fraction * rho * residual
    full, moved = reference.added(np.zeros((n, n)), np.zeros(n), W, tau / spread, rho / spread)
    scale = np.sqrt(np.outer(*2 * [np.abs(rho / spread) @ W**2]))
    np.testing.assert_allclose(A / scale, np.tril(full.astype(float)) / scale, rtol=0, atol=SUMS)
    np.testing.assert_allclose(r, moved.astype(float), rtol=0, atol=SUMS * np.max(np.abs(tau / spread) @ np.abs(W)))
    loss = np.where(fraction == 0, rho * residual, np.log(spread) / np.where(fraction == 0, 1.0, fraction))
    squares = -fraction * tau**2 / spread * residual if y is None else rho / spread * y**2
    parts = loss, squares, 0.0 * rho if y is None else rho * y**2, rho * residual
    for number, part in zip(numbers, parts, strict=False):
        np.testing.assert_allclose(number, np.sum(part), rtol=0, atol=SUMS * np.sum(np.abs(part)))
    assert numbers[4] == 0


@pytest.mark.parametrize(("n_rows", "n"), SHAPES)
def test_the_same_whatever_is_known_and_kept(n_rows, n):
    """Covariances from a target or given, W kept or not, or known: the same sums, and those of one row alone."""
    _, _, prior, tau, rho, fraction = draw(n_rows, n)
    rng, program = np.random.default_rng(n), get_program(covariances.RBF(), 2)
    X, L = rng.normal(size=(n_rows, 2)), triangle(n)
    target, K = program.against(rng.normal(size=(n, 2))), np.empty((n_rows, n))
    assert target.fill(X, K) == n_rows
    truth = add(MAIN, K, L, prior, tau, rho, fraction)
    for keep in (False, True):
        _, W, *sums = add(MAIN, 0.0 * K, L, prior, tau, rho, fraction, target=target, X=X, keep=keep)
        same_bits([tuple(truth[2:]), tuple(sums)])
        assert not keep or np.array_equal(W, truth[1])
    A, r, numbers = np.zeros((n, n), order="F"), np.zeros(n), np.zeros(5)
    rest = prior, truth[2], tau, rho, fraction, np.zeros(0), A, r, numbers
    assert MAIN.add_rows(None, np.zeros((0, 0)), L, truth[1], True, *rest) == n_rows
    same_bits([tuple(truth[3:]), (A, r, numbers)])
    single, residual = K[-1:].copy(), np.empty(1)
    _core.best("sparse_gp").solve_rows(L, single, prior[-1:], residual)
    same_bits([(truth[1][-1:], truth[2][-1:]), (single, residual)])


@pytest.mark.parametrize("bad", [0, 3, 100, 199])
def test_refused_rows_leave_no_sums(bad):
    _, L, prior, tau, rho, fraction = draw(200, 9)
    rng, program = np.random.default_rng(0), get_program(covariances.RBF(), 2)
    X, target = rng.normal(size=(200, 2)), program.against(rng.normal(size=(9, 2)))
    X[bad, 1] = np.nan
    done, *_, A, r, numbers = add(MAIN, np.zeros((200, 9)), L, prior, tau, rho, fraction, target=target, X=X)
    assert done == bad
    assert not A.any()
    assert not r.any()
    assert not numbers.any()


def test_residuals_are_not_negative_and_improper_sites_are_counted():
    K, L = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]]), np.eye(2, order="F")
    prior, rho = np.array([25.0 - 1e-14, 5.0, 3.0]), np.array([1.0, -0.25, -0.25])
    *_, residual, A, r, numbers = add(MAIN, K, L, prior, np.ones(3), rho, np.ones(1))
    assert residual.tolist() == [0.0, 4.0, 2.0]
    assert numbers[4] == 1
    np.testing.assert_allclose(numbers[0], np.log(0.5), rtol=LAST_BIT)


def test_without_inducing_variables():
    """The numbers of residuals that are all of the variance."""
    residual, A, r, numbers = np.array([1.0, 2.0]), np.zeros((0, 0), order="F"), np.zeros(0), np.zeros(5)
    rest = residual, residual, np.ones(2), np.ones(2), np.zeros(1), np.ones(2), A, r, numbers
    assert MAIN.add_rows(None, np.zeros((0, 0)), A, np.zeros((2, 0)), True, *rest) == 2
    assert numbers.tolist() == [3.0, 2.0, 2.0, 3.0, 0.0]
