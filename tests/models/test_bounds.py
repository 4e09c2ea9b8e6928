"""What a call may take: memory that there is, or it refuses before work, and passes whose number max_iter bounds."""

import tracemalloc

import numpy as np
import pytest

import cavity

N = 1 << 17  # 8 N^2 bytes are 137 GB
MEMORY = 1 << 34  # bytes of the machine, 17 GB
ONES = np.ones(4)


def lazy(*shape):
    """An array of ones that takes no memory."""
    return np.broadcast_to(1.0, shape)


TOO_LARGE = {  # a call, and the bytes that its message says
    "glm": (lambda: cavity.GLM("probit").fit(lazy(N, N), lazy(N)), 6 * 8 * N**2),
    "glm in order": (lambda: cavity.GLM("poisson").fit(lazy(N, N), lazy(N), schedule="sequential"), 6 * 8 * N**2),
    "glm adf": (lambda: cavity.GLM("logit").fit(lazy(N, N), lazy(N), method="adf"), 6 * 8 * N**2),
    "glm of few rows": (lambda: cavity.GLM("probit").fit(lazy(N, 2 * N), lazy(N)), 6 * 8 * N**2),
    "glm of wide rows": (lambda: cavity.GLM("probit").fit(lazy(4, N**2), ONES), 2 * 8 * 4 * N**2),
    "linear": (lambda: cavity.LinearRegression().fit(lazy(4, N), ONES), 8 * N**2),
    "logistic": (lambda: cavity.LogisticRegression().fit(lazy(4, N), [0, 0, 1, 1]), 8 * N**2),
    "gp": (lambda: cavity.GaussianProcess("rbf").fit(lazy(N, 1), lazy(N)), 2 * 8 * N**2),
    "gp classes": (lambda: cavity.GaussianProcess("rbf", "probit").fit(lazy(N, 1), lazy(N)), 2 * 8 * N**2),
    "stream": (lambda: cavity.StreamingGP("rbf", n_inducing=N).fit(ONES[:, None], ONES), 8 * 8 * N**2),
    "mixture": (lambda: cavity.GaussianMixture(2).fit(lazy(4, N)), 2 * 8 * N**2),
    "mixture tied": (lambda: cavity.GaussianMixture(2, covariance="tied").fit(lazy(4, N)), 8 * N**2),
    "many components": (lambda: cavity.GaussianMixture(N**2).fit(lazy(4, 1)), 16 * 8 * N**2),
    "unit mixture": (lambda: cavity.UnitMixture(N**2).fit(ONES), 16 * 8 * N**2),
    "factorized": (lambda: cavity.FactorizedGaussian(0.0, lazy(N, N)), 8 * N**2),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_does_not_fit_into_memory_is_refused_before_work_with_its_size(name, monkeypatch):
    call, size = TOO_LARGE[name]
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: MEMORY)
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError, match=rf"\) needs {size} bytes, more than there are"):
            call()
        assert tracemalloc.get_traced_memory()[1] < 1e-3 * size  # some vectors at most
    finally:
        tracemalloc.stop()


def test_sites_of_points_and_factors_of_groups_are_refused_with_their_size(monkeypatch):
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(3000, 2)), {name: rng.integers(0, 200, 3000) for name in "gh"}
    model = cavity.MixedGLM(["g", "h"], "probit", intercept=True)
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 50_000)
    heard = []
    with pytest.raises(MemoryError, match=r"their sites, of shape \(3000, 3\) needs 72000 bytes"):
        cavity.Clutter().fit(x, callback=heard.append)
    with pytest.raises(MemoryError, match=r"sparse factor of a matrix of 402 rows, .* needs [0-9]{6} bytes"):
        model.fit(x[:, :1], x[:, 1] > 0, groups=groups, callback=heard.append)
    assert heard == []


def test_rows_that_are_left_out_need_no_memory(monkeypatch):
    X, y, weights = np.eye(100), np.ones(100), np.repeat([1.0, 0.0], [4, 96])
    model = cavity.GLM("probit", intercept=False)
    expected = model.fit(X, y, sample_weight=weights)
    monkeypatch.setattr("cavity.base.arrays._memory", lambda: 10_000)  # of matrices 4 x 4 and two copies 4 x 100
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=weights).mean, expected.mean)
    with pytest.raises(MemoryError, match=r"\(100, 100\) needs 480000 bytes"):
        model.fit(X, y)
