"""The boundary check of sparse matrices: what is inconsistent is refused before a kernel follows it."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from support.tolerances import SOLVES

import cavity
from cavity.base.sparse import check_structure, to_csr

ROWS = (np.random.default_rng(0).random((30, 6)) < 0.5) * np.random.default_rng(1).standard_normal((30, 6))
ROWS[:, 0] += 1.0
SIGNS = np.sign(np.random.default_rng(2).standard_normal(30))
WRONG = {  # what is done to a CSR or CSC matrix of 30 rows, and the words about it
    "index too high": (
        "m.indices[3] = 10**6",
        r"X.indices must be at least 0 and below \d+, got 1000000 at position 3",
    ),
    "index negative": ("m.indices[3] = -5", r"X.indices must be .* got -5 at position 3"),
    "index one too high": ("m.indices[:] = max(m.shape)", r"X.indices must be .* got 30 at position 0"),
    "start": ("m.indptr[0] = 2", r"X.indptr must start at 0.* got 2 at position 0"),
    "fall": ("m.indptr[1:3] = [5, 0]", r"X.indptr must start at 0, never fall.* got 0 at position 2"),
    "negative": ("m.indptr[1] = -7", r"X.indptr must .* got -7 at position 1"),
    "middle": ("m.indptr[3] = 10**7", r"X.indptr must .* got 10000000 at position 3"),
    "end": ("m.indptr[-1] = 10**7", r"X.indptr must .* end at most at \d+, .* got 10000000"),
    "fewer pointers": ("m.indptr = m.indptr[:-2]", r"X.indptr must be \d+ integers, got int\d+ of shape"),
    "fewer values": ("m.data = m.data[:-3]", r"X.indptr must .* end at most at"),
    "fewer indices": ("m.indices = m.indices[:-3]", r"X.indices must be \d+ integers, got int\d+ of shape"),
    "more values": ("m.data = np.append(m.data, 1.0)", r"X.indices must be \d+ integers, got int\d+ of shape"),
}
FORMATS = ("csr", "csc", "bsr", "coo", "lil", "dok", "dia")


def altered(kind, code):
    """The rows in a format of scipy, after a change in place."""
    m = getattr(sparse, f"{kind}_array")(ROWS)
    exec(code, {"m": m, "np": np})
    return m


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("case", WRONG)
def test_what_is_inconsistent_is_named(kind, case):
    code, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        to_csr(altered(kind, code), "X")


def test_other_formats_that_are_inconsistent():
    with pytest.raises(ValueError, match=r"X.col must be at least 0 and below 6, got 9 at position 2"):
        to_csr(altered("coo", "m.col[2] = 9"), "X")
    with pytest.raises(ValueError, match=r"X.row must be at least 0 and below 30, got -1 at position 0"):
        to_csr(altered("coo", "m.row[0] = -1"), "X")
    with pytest.raises(ValueError, match="exceeds matrix dimension|indices must"):
        to_csr(altered("bsr", "m.indices[1] = 77"), "X")
    with pytest.raises(ValueError, match=r"X.indices must be at least 0 and below 6, got 50"):
        to_csr(altered("lil", "m.rows[4] = [50]; m.data[4] = [1.0]"), "X")
    with pytest.raises(ValueError, match="X.indices must be .* integers, got float64"):
        to_csr(altered("csr", "m.indices = m.indices * 1.0"), "X")


@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("kind", FORMATS)
def test_all_formats_are_the_same_rows(kind, container):
    m = getattr(sparse, f"{kind}_{container}")(ROWS)
    np.testing.assert_array_equal(to_csr(m, "X").toarray(), ROWS)
    dense = cavity.GLM("probit", approximation="diagonal", intercept=False).fit(ROWS, SIGNS)
    posterior = cavity.GLM("probit", approximation="diagonal", intercept=False).fit(m, SIGNS)
    np.testing.assert_allclose(posterior.mean, dense.mean, rtol=SOLVES)


@pytest.mark.parametrize("intercept", [False, True])
def test_entries_in_any_order_twice_and_unused_are_added_up(intercept):
    """Whatever scipy has cached about their order before."""
    m = sparse.csr_array(ROWS)
    assert m.has_canonical_format
    m.indices = m.indices.copy()
    for start, stop in zip(m.indptr[:-1], m.indptr[1:], strict=True):
        m.indices[start:stop] = m.indices[start:stop][::-1] // 2
    m.data, m.indices = np.append(m.data, [np.nan, 1.0]), np.append(m.indices, [99, -99]).astype(np.int32)
    rows = np.zeros_like(ROWS)
    for i in range(len(ROWS)):
        part = slice(m.indptr[i], m.indptr[i + 1])
        np.add.at(rows[i], m.indices[part], m.data[part])
    model = cavity.GLM("probit", prior_variance=1.0, approximation="diagonal", intercept=intercept)
    added, posterior = model.fit(sparse.csr_array(rows), SIGNS), model.fit(m, SIGNS)
    np.testing.assert_allclose(posterior.mean, added.mean, rtol=SOLVES)
    assert posterior.log_evidence == pytest.approx(added.log_evidence, rel=SOLVES)
    assert len(m.data) == len(m.indices) == m.indptr[-1] + 2  # what was given is not changed


CALLS = f"""
import sys, numpy as np, warnings, cavity
from scipy import sparse
warnings.simplefilter("ignore")
y = np.resize([1.0, -1.0], 30)
model = cavity.GLM("probit", approximation="diagonal", intercept=False)
posterior = model.fit(sparse.csr_array(np.ones((30, 6))), y)
calls = {{
    "fit": lambda m: model.fit(m, y), "adf": lambda m: model.fit(m, y, method="adf"), "predict": posterior.predict,
    "mixture": cavity.GaussianMixture(2).fit, "regression": lambda m: cavity.LinearRegression().fit(m, y),
    "estimator": lambda m: cavity.sklearn.ProbitClassifier(approximation="diagonal").fit(m, y),
    "full estimator": lambda m: cavity.sklearn.ProbitClassifier(approximation="full").fit(m, y),
}}
for name, call in calls.items():
    if ("estimator" in name) != (sys.argv[1] == "estimators"):
        continue
    for code in {[code for code, _ in WRONG.values()]!r}:
        for kind in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix):
            m = kind(np.ones((30, 6)))
            exec(code)
            print(name, code, kind.__name__, end=": ", flush=True)
            try:
                call(m)
            except ValueError as error:
                assert "X.indptr must" in str(error) or "X.indices must" in str(error), error
                print("refused")
"""


@pytest.mark.parametrize(("kind", "count"), [("library", 5), pytest.param("estimators", 2, marks=pytest.mark.long)])
def test_no_call_leads_past_the_check(kind, count):
    """In a process of its own: kernels that follow such indices may end it."""
    result = subprocess.run([sys.executable, "-c", CALLS, kind], capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
    assert result.returncode == 0, (lines[-1:], result.stderr)
    assert all(line.endswith(": refused") for line in lines), lines
    assert len(lines) == count * len(WRONG) * 4


def test_the_structure_of_integers_of_any_width_is_checked():
    m = sparse.csr_array(ROWS)
    for dtype in (np.int32, np.int64, np.uint32):
        m.indptr, m.indices = m.indptr.astype(dtype), m.indices.astype(dtype)
        check_structure(m, "X")
    m.indices[5] = 4_000_000_000
    with pytest.raises(ValueError, match="got 4000000000 at position 5"):
        check_structure(m, "X")


def altered_blocks(name, position, value):
    """A BSR matrix one of whose indices or pointers is wrong."""
    X = sparse.bsr_matrix(sparse.random(60, 5, 0.4, random_state=0), blocksize=(2, 1))
    getattr(X, name)[position] = value
    return X


@pytest.mark.parametrize("change", [("indptr", 3, 10**8), ("indices", 0, 99999)])
def test_blocks_are_checked(change):
    y = np.arange(60) % 2
    model = cavity.GLM("probit", prior_variance=1.0, approximation="diagonal", intercept=False)
    for fit in (cavity.source, lambda X: model.fit(X, y)):
        with pytest.raises(ValueError, match=rf"\.{change[0]} must .* got {change[2]} at position {change[1]}"):
            fit(altered_blocks(*change))


def test_estimators_of_scikit_learn_look_before_they_convert():
    estimators = pytest.importorskip("cavity.sklearn")
    lists = sparse.random(60, 5, 0.4, random_state=0).tolil()
    lists.rows[0], lists.data[0] = [7777777], [1.0]
    for X in (altered_blocks("indices", 0, 99999), lists):
        with pytest.raises(ValueError, match=r"X.indices must be at least 0 and below 5"):
            estimators.ProbitClassifier().fit(X, np.arange(60) % 2)


def test_indices_of_any_byte_order():
    X = sparse.random(60, 5, 0.4, random_state=0, format="csr")
    swapped = X.copy()
    swapped.indices = X.indices.astype(">i4")
    np.testing.assert_array_equal(cavity.source(swapped).rows(), X.toarray())
    swapped.indices[4] = -1
    with pytest.raises(ValueError, match="got -1 at position 4"):
        cavity.source(swapped)
