"""Priors of structured terms by dense algebra, and what every term does."""

import numpy as np
import pytest

from cavity.terms.saved import describe_term, restore_term
from support.tolerances import INTEGRAL, OPTIMUM


def dense_precision(prior, free):
    """P as a dense matrix, from the definition of the contract."""
    value = prior.evaluate(free)
    k = int(prior.rows.max()) + 1
    P = np.zeros((k, k))
    P[prior.rows, prior.columns] = value.coefficients @ prior.structures
    return P + np.tril(P, -1).T, value


def subspace_log_determinant(P, A):
    """log |V'P V| + log |A A'| of an orthonormal basis V of the subspace A b = 0, by its eigenvalues."""
    if A is None:
        return np.linalg.slogdet(P)[1]
    V = np.linalg.svd(A)[2][len(A) :].T
    return float(np.sum(np.log(np.linalg.eigvalsh(V.T @ P @ V)))) + np.linalg.slogdet(A @ A.T)[1]


def assert_prior(prior, free):
    """(2) of the contract against eigenvalues on the subspace, derivatives against differences; P and its values."""
    P, value = dense_precision(prior, free)
    assert value.log_determinant == pytest.approx(subspace_log_determinant(P, prior.constraints), abs=INTEGRAL)
    for i, step in enumerate(1e-6 * np.eye(len(free))):
        up, down = prior.evaluate(free + step), prior.evaluate(free - step)
        slope = (up.log_determinant - down.log_determinant) / 2e-6
        assert value.log_determinant_slopes[i] == pytest.approx(slope, rel=OPTIMUM)
        differences = (up.coefficients - down.coefficients) / 2e-6
        np.testing.assert_allclose(value.slopes[:, i], differences, rtol=OPTIMUM, atol=OPTIMUM)
    return P, value


def assert_restored(term, table):
    """A term that comes back from what a file has of it makes the same rows; return it as built, and as restored."""
    built = term.build(table)
    second = restore_term(describe_term(built))
    rows = {key: values[5:9] for key, values in table.items()}
    np.testing.assert_array_equal(built.design(rows).toarray(), second.design(rows).toarray())
    assert built.design(rows).shape == (4, built.size)
    settings = restore_term(describe_term(term))
    assert settings.name == term.name
    assert settings.build(table).size == built.size
    return built, second
