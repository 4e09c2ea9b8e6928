"""Divergences of mixture factors: both forms against `cavity.kl`, on both sides of the limit."""

import numpy as np
import pytest
from support.tolerances import INTEGRAL, LAST_BIT, ROOT_EPS, SOLVES

import cavity
from cavity.base.triangles import invert_lower
from cavity.distributions import Dirichlet, Gamma, Wishart
from cavity.models.mixture import elbo

SIZES = [1.0, 1e3, 0.9 * elbo.MAX_SHAPE_OF_TEXTBOOK_FORM, 4 * elbo.MAX_SHAPE_OF_TEXTBOOK_FORM, 1e12]


@pytest.mark.parametrize("size", SIZES)
def test_gamma_and_dirichlet(size):
    rng = np.random.default_rng(0)
    a, b, r, s = rng.gamma(3.0, size, (4, 5))
    expected = np.sum(cavity.kl(Gamma(a, r), Gamma(b, s)))
    assert elbo.compute_gamma_kl(a, r, b, s) == pytest.approx(expected, rel=SOLVES, abs=ROOT_EPS)
    assert elbo.compute_dirichlet_kl(a, b) == pytest.approx(
        cavity.kl(Dirichlet(a), Dirichlet(b)), rel=SOLVES, abs=ROOT_EPS
    )
    pairs = np.stack([a, b], axis=1), np.stack([r, s], axis=1)
    expected = np.sum(cavity.kl(*map(Dirichlet, pairs)))
    assert elbo.compute_dirichlet_kl(*pairs) == pytest.approx(expected, rel=SOLVES, abs=ROOT_EPS)
    assert elbo.compute_gamma_kl(a, r, a, r) == elbo.compute_dirichlet_kl(a, a) == 0.0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_wisharts(size, dim):
    rng = np.random.default_rng(dim)
    root = rng.normal(size=(2, 3, dim, dim))
    nu, nu0 = dim + rng.gamma(3.0, size, (2, 3))
    scatter = np.array([nu, nu0])[:, :, None, None] * (root @ np.swapaxes(root, -1, -2) + np.eye(dim))
    factor = np.linalg.cholesky(scatter)
    inverse = np.array([invert_lower(item) for item in factor[0]])
    result = elbo.compute_wishart_kls(nu, factor[0], inverse, nu0, factor[1])
    for k in range(3):
        expected = cavity.kl(Wishart(nu[k], scatter[0, k]), Wishart(nu0[k], scatter[1, k]))
        assert result[k] == pytest.approx(expected, rel=INTEGRAL, abs=ROOT_EPS)
    same = elbo.compute_wishart_kls(nu, factor[0], inverse, nu, factor[0])
    np.testing.assert_allclose(same, 0.0, atol=LAST_BIT * size)
