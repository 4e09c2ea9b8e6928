"""scikit-learn's kernels translated: the numbers and gradients of scikit-learn itself, for any tree of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from support.examples import examples
from support.tolerances import SOLVES, SUMS

import cavity
from cavity.sklearn.gp import kernels

FIXED = "fixed"


def rows(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def agrees(kernel, n_features, seed=0):
    """Gram, cross-Gram, diagonal and gradient are those of the kernel."""
    X, Z = rows(7, n_features, seed), rows(4, n_features, seed + 1)
    result = kernels.link_kernel(kernel, n_features)
    K, slopes = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(result.covariance.gram(X), K, rtol=SOLVES, atol=SUMS)
    np.testing.assert_allclose(result.covariance.cross(X, Z), kernel(X, Z), rtol=SOLVES, atol=SUMS)
    np.testing.assert_allclose(result.covariance.diagonal(X), kernel.diag(X), rtol=SOLVES)
    weights = np.random.default_rng(seed).normal(size=K.shape)
    weights += weights.T
    gradient = result.in_theta(result.covariance.gradient(X, weights), kernel.n_dims)
    expected = np.einsum("ij,ijp->p", weights, slopes)
    scale = np.einsum("ij,ijp->p", np.abs(weights), np.abs(slopes)) + np.sum(np.abs(weights * K))
    np.testing.assert_array_less(np.abs(gradient - expected), 1e-12 * scale + 1e-14)


@pytest.mark.parametrize("n_features", [1, 3])
@pytest.mark.parametrize(
    "kernel",
    [
        ConstantKernel(2.5),
        WhiteKernel(0.3),
        RBF(0.7),
        RBF([0.7]),
        Matern(0.7, nu=0.5),
        Matern(1.3, nu=1.5),
        Matern(0.9, nu=2.5),
        Matern(0.9, nu=np.inf),
        Matern(1.1, "fixed", nu=4.5),  # whose derivatives are rough differences
        RationalQuadratic(0.8, 1.7),
        RationalQuadratic(0.8, 1.7, length_scale_bounds=FIXED),
        RationalQuadratic(0.8, 1.7, alpha_bounds=FIXED),
        DotProduct(0.6),
        DotProduct(0.0, FIXED),
        2.0 * RBF(0.5) + WhiteKernel(0.1),
        ConstantKernel(2.0, FIXED) * RBF(0.5, FIXED) + WhiteKernel(0.1, FIXED),
        (RBF(0.5) + DotProduct(1.5)) * Matern(2.0) + 0.5,
        (DotProduct(1.5) + RationalQuadratic()) ** 2 * RBF(0.4) ** 3,
        Exponentiation(RBF(0.5), 1),
    ],
)
def test_numbers_and_gradients_are_those_of_scikit_learn(kernel, n_features):
    agrees(kernel, n_features)


@pytest.mark.parametrize("kernel", [RBF([0.5, 1.0, 2.0]), Matern([0.5, 1.0, 2.0], nu=0.5), Matern([2.0, 1.0, 9.0])])
def test_a_lengthscale_for_each_column(kernel):
    agrees(kernel, 3)
    agrees(ConstantKernel(3.0) * kernel**2 + kernel, 3)


@pytest.mark.parametrize("fixed", [{}, {"periodicity_bounds": FIXED}, {"length_scale_bounds": FIXED}])
def test_periods(fixed):
    agrees(ExpSineSquared(0.8, 1.9, **fixed), 1)
    agrees(2.0 * RBF(3.0) * ExpSineSquared(0.8, 1.9, **fixed) + WhiteKernel(), 1)


POSITIVE = st.floats(0.1, 10.0)
BOUNDS = st.sampled_from([(1e-5, 1e5), FIXED])
LEAVES = st.one_of(
    st.builds(ConstantKernel, POSITIVE, BOUNDS),
    st.builds(WhiteKernel, POSITIVE, BOUNDS),
    st.builds(RBF, POSITIVE, BOUNDS),
    st.builds(RBF, st.tuples(POSITIVE, POSITIVE).map(list), BOUNDS),
    st.builds(Matern, POSITIVE, BOUNDS, st.sampled_from([0.5, 1.5, 2.5, np.inf])),
    st.builds(RationalQuadratic, POSITIVE, POSITIVE, BOUNDS, BOUNDS),
    st.builds(DotProduct, POSITIVE, BOUNDS),
)
TREES = st.recursive(
    LEAVES,
    lambda kernels: st.one_of(
        st.builds(lambda a, b: a + b, kernels, kernels),
        st.builds(lambda a, b: a * b, kernels, kernels),
        st.builds(Exponentiation, kernels, st.integers(1, 3)),
    ),
    max_leaves=5,
)


@examples(25)
@given(TREES, st.integers(0, 99))
def test_any_tree(kernel, seed):
    agrees(kernel, 2, seed)


@examples(25)
@given(TREES)
def test_theta_is_that_of_the_kernel(kernel):
    theta = kernels.theta_of(kernel)
    moved = kernels.with_theta(kernel, theta + 0.5)
    np.testing.assert_allclose(moved.theta, kernel.theta + 0.5, atol=SUMS)
    np.testing.assert_array_equal(kernel.theta, theta)  # as it was
    assert kernels.bounds_of(kernel).shape == (len(theta), 2)
    agrees(moved, 2)


@pytest.mark.parametrize(
    ("kernel", "n_features", "message"),
    [
        (Matern(nu=0.8), 1, r"Matern\(length_scale=1, nu=0.8\) has no counterpart: use nu = 0.5, 1.5, 2.5, ..., 10.5"),
        (PairwiseKernel(), 1, "PairwiseKernel.* has no counterpart: use kernels of scikit-learn with"),
        *((RBF() ** p, 1, "exponent must be whole, from 1 to 64") for p in (0.5, -1, 0, 65, np.inf, np.nan)),
        (ExpSineSquared(), 2, "of 2 columns has no counterpart.*in every column"),
        (RBF([1.0, 2.0]), 3, "lengthscale"),
        (RationalQuadratic([1.0, 2.0]), 2, "RationalQuadratic has one length_scale for all columns"),
        (RBF(-1.0), 1, "length_scale of kernel RBF must be positive and finite, got -1.0"),
        (RBF() + 0.0 * WhiteKernel(), 1, "constant_value of kernel ConstantKernel must be positive and finite, got 0"),
    ],
)
def test_kernels_without_a_counterpart(kernel, n_features, message):
    with pytest.raises(ValueError, match=message):
        kernels.link_kernel(kernel, n_features)


def test_subclasses_may_be_anything():
    class Other(RBF):
        pass

    with pytest.raises(ValueError, match="test_kernels.*Other.* has no counterpart"):
        kernels.link_kernel(Other(), 1)


def test_what_is_no_kernel():
    with pytest.raises(TypeError, match="kernel must be one of sklearn.gaussian_process.kernels or .*got 'rbf'"):
        kernels.check_kernel("rbf")
    with pytest.raises(ValueError, match="kernel cannot be a CompoundKernel"):
        kernels.check_kernel(CompoundKernel([RBF()]))


def test_covariances_are_taken_as_they_are():
    covariance = cavity.covariances.RBF(2.0, [0.5, 1.0], fixed=("variance",)) + cavity.covariances.White(0.1)
    result = kernels.link_kernel(covariance, 2)
    assert result.covariance is covariance
    np.testing.assert_array_equal(kernels.theta_of(covariance), np.log([0.5, 1.0, 0.1]))
    np.testing.assert_array_equal(kernels.bounds_of(covariance), covariance.log_bounds)
    gradient = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(result.in_theta(gradient, 3), gradient)
    moved = kernels.with_theta(covariance, np.log([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(np.exp(moved.log_parameters), [1.0, 2.0, 3.0])
