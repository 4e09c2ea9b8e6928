"""Rows made sparse some at a time: the bits of a sparse matrix, and no copy of all of them."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse

import cavity
from cavity import likelihoods
from cavity.models.glm import sparse_rows

PROBIT = likelihoods.Probit()


class Cauchy(likelihoods.Likelihood):
    """A likelihood in Python."""

    def log_p(self, y, f):
        return -np.log1p((y - f) ** 2) - np.log(np.pi)


@pytest.mark.sample(2)
@pytest.mark.parametrize("likelihood", [PROBIT, Cauchy()], ids=["compiled", "python"])
@pytest.mark.parametrize(
    "options", [{}, {"method": "adf"}, {"power": 0.5}, {"weights": True}, {"weights": True, "method": "adf"}]
)
def test_any_rows_give_the_bits_of_sparse_ones(likelihood, options, tmp_path, monkeypatch):
    """Arrays and files are made sparse some rows at a time."""
    n = 90 if likelihood is PROBIT else 24
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3)) * rng.integers(0, 2, (n, 3))
    x[: n // 3] = rng.normal(size=(n // 3, 3))  # some chunks have no zeros
    y = np.sign(rng.normal(size=n))
    options = {"max_iter": 6} | options
    if options.pop("weights", False):
        options["sample_weight"] = rng.integers(0, 5, n) / 2.0
    if "method" in options:
        del options["max_iter"]
    monkeypatch.setattr(sparse_rows, "CHUNK_NUMBERS", 30)
    np.save(tmp_path / "x.npy", x)
    model = cavity.GLM(likelihood, prior_mean=0.3, prior_variance=2.0, approximation="diagonal", intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        one, *others = (model.fit(rows, y, **options) for rows in (sparse.csr_array(x), x, tmp_path / "x.npy"))
    for other in others:
        for name in ("mean", "variance", "log_evidence", "n_iter", "_loo"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)
    for rows in (x, tmp_path / "x.npy"):
        np.testing.assert_array_equal(one.predict(rows), one.predict(sparse.csr_array(x)))


def test_memory_beyond_the_data(monkeypatch):
    """For EP the sites, 16 bytes a nonzero, and little else; nothing of the size of the data is copied."""
    monkeypatch.setattr(sparse_rows, "CHUNK_NUMBERS", 10_000)
    monkeypatch.setattr("cavity.base.scales.NUMBERS_TOGETHER", 10_000)
    rng = np.random.default_rng(0)
    rows = sparse.csr_array((rng.normal(size=400_000), rng.integers(0, 20, 400_000), np.arange(0, 400_001, 8)))
    rows.sum_duplicates()
    y = np.arange(rows.shape[0]) % 2
    for x, adf, ep in ((rows, 1.0, 2.6), (rows.toarray()[:, :8] + 3.0, 1.1, 3.3)):
        size = x.nbytes if isinstance(x, np.ndarray) else x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
        for method, most in (("adf", adf), ("ep", ep)):
            options = {} if method == "adf" else {"max_iter": 1}
            tracemalloc.start()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cavity.ConvergenceWarning)
                cavity.GLM("probit", approximation="diagonal", intercept=False).fit(x, y, method=method, **options)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < most * size, (method, peak / size)
