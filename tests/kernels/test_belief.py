"""The kernel of beliefs over few weights: against matrices written out, and the same bits in every variant."""

import numpy as np
import pytest
from reference import belief as reference
from scipy.linalg import lapack
from support.kernels import same_bits
from support.tolerances import ROUNDING, SOLVES, SUMS

from cavity import _core

KERNELS = [_core.load("belief", name) for name in _core.variants("belief")]


def draw(n):
    """h, g and root of columns of very different scale."""
    rng = np.random.default_rng(n)
    root = 10.0 ** rng.uniform(-6, 6, n)
    x = rng.normal(size=(2 * n + 3, n)) / root
    return x.T @ x, rng.normal(size=n) / root, root


def posterior(kernel, h, g, root):
    """Whether there is one; factor, u, triangle and its transpose."""
    n = len(g)
    out = np.full((n, n), np.nan), np.full(n, np.nan), np.full((n, n), np.nan), np.full((n, n), np.nan)
    return kernel.posterior(h, g, root, *out), out


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 17, 33])
def test_posterior(n):
    h, g, root = draw(n)
    results = [posterior(kernel, h, g, root) for kernel in KERNELS]
    assert all(done for done, _ in results)
    factor, u, triangle, wide = same_bits([out for _, out in results])
    np.testing.assert_array_equal(wide, triangle.T)
    np.testing.assert_array_equal(np.triu(factor, 1), 0.0)
    np.testing.assert_array_equal(np.triu(triangle, 1), 0.0)
    expected = reference.posterior(h, g, root)
    for mine, theirs in zip((factor, u, triangle / root), (*expected[:2], expected[2] / root), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=SUMS * np.max(np.abs(theirs), initial=1.0))


@pytest.mark.parametrize("n", [1, 2, 3, 9, 20])
def test_change(n):
    h, g, root = draw(n)
    (_, (factor, u, *_)), (_, (other, v, *_)) = (
        posterior(KERNELS[0], *sums, root) for sums in ((h, g), (1.1 * h, 0.9 * g))
    )
    pair = same_bits([kernel.change(factor, u, other, v, *np.empty((2, n, n))) for kernel in KERNELS])
    np.testing.assert_allclose(pair, reference.change(factor, u, other, v), rtol=SOLVES)
    rest = KERNELS[0].change(factor, u, factor, u, *np.empty((2, n, n)))
    assert rest[0] == 0.0
    assert rest[1] < 1e-14 * n


@pytest.mark.parametrize("bad", [-4.0, np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("place", [(0, 0), (2, 2), (2, 1)])
def test_no_posterior(bad, place):
    h, g, root = np.eye(4), np.zeros(4), np.full(4, 10.0)
    h[place] = bad
    assert [posterior(kernel, h, g, root)[0] for kernel in KERNELS] == [False] * len(KERNELS)


def test_no_posterior_of_a_mean_out_of_range():
    g = np.array([0.0, 1e308, 0.0])
    assert not posterior(KERNELS[0], np.eye(3), g, np.full(3, 10.0))[0]


@pytest.mark.parametrize("exponents", [(-300, 0), (-150, 100), (0, 140)])
def test_scales_far_apart(exponents):
    """A posterior where LAPACK finds one, with a factor whose square is the precision to rounding, or none."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20, 6, 4))
    scale, root = 10.0 ** rng.uniform(*exponents, (20, 4)), 10.0 ** rng.uniform(-150, 150, (20, 4))
    result = 0
    for x_one, s, r in zip(x, scale, root, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            h = s[:, None] * (x_one.T @ x_one) * s
            precision = np.eye(4) + r[:, None] * h * r
        done, (factor, u, *rest) = posterior(KERNELS[0], h, s, r)
        assert done == (np.isfinite(precision).all() and lapack.dpotrf(precision, lower=1)[1] == 0)
        if done:
            result += 1
            lengths = np.sqrt(np.diag(precision))
            rows = factor / lengths[:, None]
            np.testing.assert_allclose(rows @ rows.T, precision / lengths[:, None] / lengths, rtol=0, atol=ROUNDING)
            assert all(np.isfinite(item).all() for item in (u, *rest))
    assert result > 0
