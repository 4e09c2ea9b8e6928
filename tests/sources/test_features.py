"""Rows of X in files: the same bits as from an array in memory, whoever reads them; what is kept for each row."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from support.tolerances import INTEGRAL

import cavity
from cavity.sources.features import ROWS_PER_BLOCK, prepare_rows
from cavity.sources.scratch import ScratchVector
from cavity.sources.stored_rows import StoredRows

N, D = 2400, 5
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D)) * [1.0, 10.0, 0.1, 1.0, 1.0]
X[7], X[:, 3] = 0.0, np.round(X[:, 3])
LABELS = np.where(X @ [0.5, 0.1, -3.0, 0.2, 0.0] + RNG.normal(size=N) > 0, "yes", "no")
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0]))
WEIGHTS = RNG.integers(0, 3, N).astype(float)
FIXED = dict(prior_variance=2.0, intercept=False)


@pytest.fixture
def paths(tmp_path):
    """One file, and three of different types."""
    np.save(tmp_path / "x.npy", X)
    for i, part in enumerate(np.split(X, [900, 1400])):
        np.save(tmp_path / f"x{i}.npy", np.asfortranarray(part) if i else part)
    return tmp_path / "x.npy", [tmp_path / f"x{i}.npy" for i in range(3)]


def assert_same(one, other):
    (arrays, settings), (others, more) = one.to_arrays(), other.to_arrays()
    assert settings == more
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (FIXED, {}),
        (FIXED, {"sample_weight": WEIGHTS, "power": 0.5}),
        ({"intercept": True}, {"sample_weight": WEIGHTS}),
        ({"intercept": 3.0, "standardize": True}, {"method": "adf", "sample_weight": WEIGHTS}),
        (FIXED, {"schedule": "sequential", "max_iter": 3}),
        ({}, {"schedule": "stochastic", "max_iter": 5}),
    ],
    ids=["fixed", "power", "intercept", "adf", "sequential", "stochastic"],
)
@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning", "ignore::cavity.SettingsWarning")
def test_files_give_the_bits_of_an_array(paths, settings, options, monkeypatch):
    monkeypatch.setattr("cavity.ep.dense.CACHED_NUMBERS", 256 * D)  # nine groups
    model = cavity.GLM("probit", **settings)
    one = model.fit(X, LABELS, **options)
    for place, threads in zip(paths, (1, 2), strict=True):
        assert_same(one, model.fit(place, LABELS, n_threads=threads, **options))
    new = paths[1]
    np.testing.assert_array_equal(one.predict(new), one.predict(X))
    np.testing.assert_array_equal(one.predict_proba(new), one.predict_proba(X))
    np.testing.assert_array_equal(one.log_density(new, LABELS), one.log_density(X, LABELS))
    np.testing.assert_array_equal(one.sample_y(new, 2, rng=0).shape, (2, N))
    assert_same(one.update(X, LABELS), one.update(new, LABELS))


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_of_two_values_in_files_and_collections_have_their_own_scale(tmp_path, weighted, monkeypatch):
    monkeypatch.setattr("cavity.base.column_statistics.NUMBERS_PER_BLOCK", 4 * 7000)  # three blocks and a part of one
    rng = np.random.default_rng(5)
    n = 24_000
    rows = np.column_stack([rng.normal(size=n), rng.random(n) < 0.001, rng.choice([-0.3, 2.0], n), np.zeros(n)])
    rows[:, 3] = 5.0 * (np.arange(n) < 7000)  # all rows of the first block have one value
    rows[-1, 2] = 9.0  # a third value, in the last row
    labels = rng.random(n) < 0.5
    weight = np.append(rng.integers(0, 3, n - 1), 0.0) if weighted else None
    model = cavity.GLM("logit", intercept=True)
    np.save(tmp_path / "rows.npy", rows)
    one = model.fit(rows, labels, sample_weight=weight)
    places = [tmp_path / "rows.npy", [tmp_path / "rows.npy"]]
    if not weighted:  # rows of weight 0 cannot be left out of a collection
        places.append(pytest.importorskip("dask.array").from_array(rows, chunks=(5000, 4)))
    for place in places:
        assert_same(one, model.fit(place, labels, sample_weight=weight))
    sd = np.sqrt(np.cov(rows.T, aweights=weight, ddof=0).diagonal())
    scale = np.array([sd[0], 0.5, 1.15 if weighted else sd[2], 2.5])
    np.testing.assert_allclose(one.model.prior_variance[1:], (2.5 / scale) ** 2, rtol=INTEGRAL)


def test_learning_from_files(tmp_path):
    np.save(tmp_path / "x.npy", X[:300])
    model = cavity.GLM("negative-binomial", intercept=True)
    one, other = (
        model.fit(rows, COUNTS[:300], offset=0.1 * X[:300, 1], learn=True, max_iter=50)
        for rows in (X[:300], tmp_path / "x.npy")
    )
    assert_same(one, other)


def test_sites_in_scratch_files(paths, set_sizes):
    """The same numbers; what is kept for each row is not, and says why."""
    model = cavity.GLM("probit", **FIXED)
    one = model.fit(X, LABELS)
    set_sizes(MOST_IN_MEMORY=N // 2)
    for options in ({}, {"n_threads": 2}):
        other = model.fit(paths[0], LABELS, **options)
        np.testing.assert_array_equal(other.mean, one.mean)
        assert (other.log_evidence, other.residual, other.n_iter) == (one.log_evidence, one.residual, one.n_iter)
        for name in ("loo_log_density", "sites"):
            with pytest.raises(ValueError, match="not of more than 16777216 rows in files"):
                getattr(other, name)
    for options in ({"method": "adf"}, {"schedule": "sequential", "max_iter": 50}):
        one, other = (model.fit(rows, LABELS, **options) for rows in (X, paths[1]))
        np.testing.assert_array_equal(other.mean, one.mean)
        assert other.log_evidence == one.log_evidence


def test_steps_that_are_taken_back_in_scratch_files(tmp_path, set_sizes):
    """Contradictory labels of a step: steps are shortened, sites shrunk; without the double loop nothing converges."""
    rows = np.column_stack([np.ones(40), np.linspace(-1, 1, 40)])
    y = np.where(np.arange(40) % 3 > 0, 1, -1)
    np.save(tmp_path / "x.npy", rows)
    set_sizes(MOST_IN_MEMORY=10)
    model = cavity.GLM(cavity.likelihoods.Step(), **FIXED)
    with pytest.warns(cavity.ConvergenceWarning, match="no progress|max_iter"):
        posterior = model.fit(tmp_path / "x.npy", y)
    assert not posterior.converged
    assert np.isfinite(posterior.log_evidence)
    assert np.all(posterior.variance > 0)


def test_rows_that_say_nothing_and_fewer_rows_than_columns(tmp_path):
    np.save(tmp_path / "wide.npy", X[:4])
    model = cavity.GLM("probit", **FIXED)
    assert_same(model.fit(X[:4], [0, 1, 1, 0]), model.fit(tmp_path / "wide.npy", [0, 1, 1, 0]))


def test_few_passes_before_the_first_sweep(paths, monkeypatch):
    """One that checks and finds the ends of the columns, two for scales where these are wanted."""
    passes = []
    look = StoredRows.scan_columns
    monkeypatch.setattr(StoredRows, "scan_columns", lambda *a: passes.append("look") or look(*a))
    monkeypatch.setattr(
        "cavity.models.glm.problem.iterate_blocks", lambda *a: passes.append("silent") or iter([]), raising=True
    )
    rows = X[np.arange(N) != 7]
    np.save(paths[0], rows)
    cavity.GLM("probit", **FIXED).fit(paths[0], LABELS[1:], max_iter=20)
    assert passes == ["look"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": (1200, 2, np.nan)}, r"X must be finite, got nan in row 200, column 2 of .*x1\.npy"),
        ({"X": (5, 1, 1e200)}, "latent value of row 5 leaves the range"),
        ({"y": LABELS[:-1]}, "y must have one entry per row of X, that is 2400"),
        ({"method": "both"}, "method must be one of"),
    ],
)
def test_what_is_refused(tmp_path, change, message):
    rows = X.copy()
    if "X" in change:
        row, column, value = change.pop("X")
        rows[row, column] = value
    np.save(tmp_path / "x0.npy", rows[:1000])
    np.save(tmp_path / "x1.npy", rows[1000:])
    values = {"y": LABELS} | change
    with pytest.raises((ValueError, OverflowError), match=message):
        cavity.GLM("probit", **FIXED).fit([tmp_path / "x0.npy", tmp_path / "x1.npy"], **values)


def test_a_file_that_changes_between_passes(paths):
    def replaced(event):
        np.save(paths[0], X + 1.0)

    with pytest.raises(ValueError, match=re.escape(str(paths[0])) + " has changed"):
        cavity.GLM("probit", **FIXED).fit(paths[0], LABELS, callback=replaced)


def test_vectors_of_the_engine(paths, monkeypatch, set_sizes):
    """Of files with many rows they are in scratch files, of arrays never."""
    set_sizes(MOST_IN_MEMORY=100)
    made = []
    init = ScratchVector.__init__
    monkeypatch.setattr(ScratchVector, "__init__", lambda self, *a, **b: made.append(1) or init(self, *a, **b))
    cavity.GLM("probit", **FIXED).fit(X, LABELS)
    assert made == []
    cavity.GLM("probit", **FIXED).fit(paths[0], LABELS)
    assert made


MEMORY = """
import resource, sys
import numpy as np
import cavity
from cavity.runs import passes
from cavity.sources import scratch

path, n = sys.argv[1], int(sys.argv[2])
scratch.MOST_IN_MEMORY, passes.MAX_AHEAD_BYTES = 1000, 1 << 20
model = cavity.GLM("probit", prior_variance=1.0, intercept=False)
model.fit(path, np.arange(n) % 2, max_iter=1, method="adf")  # what is loaded and read ahead is no memory of a row
y = (np.arange(n) % 3 == 0).astype(float)
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + int(sys.argv[3]), resource.RLIM_INFINITY))
print(model.fit(path, y, callback=lambda event: event.stage == 'fit' and event.n_iter == 2).n_iter)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are those of Linux")
@pytest.mark.skipif("CAVITY_SANITIZE" in os.environ, reason="sanitizers reserve terabytes of addresses")
def test_memory_is_that_of_y_and_a_few_vectors(tmp_path):
    """The rows are 32 MB, their sites as vectors of the engine 6 MB; both stay in files."""
    n = 200_000
    np.save(tmp_path / "x.npy", RNG.normal(size=(n, 20)))
    limit = 40 * n + (20 << 20)
    code = [sys.executable, "-c", MEMORY, str(tmp_path / "x.npy"), str(n), str(limit)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr


def test_sites_in_scratch_files_are_kept_by_checkpoints(paths, tmp_path, set_sizes):
    """A fit that ends after its third sweep goes on from the file that it leaves."""
    set_sizes(MOST_IN_MEMORY=100)
    model, checkpoint = cavity.GLM("probit", **FIXED), tmp_path / "fit.checkpoint"
    one = model.fit(paths[0], LABELS)
    reports = []

    def interrupted(event):
        if event.stage == "fit" and event.n_iter == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(paths[0], LABELS, callback=interrupted, checkpoint=checkpoint)
    other = model.fit(paths[0], LABELS, callback=reports.append, checkpoint=checkpoint)
    assert next(event.n_iter for event in reports if event.stage == "fit") > 2
    assert_same(one, other)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("n", [0, 1, ROWS_PER_BLOCK, 2 * ROWS_PER_BLOCK + 1])
def test_prepared_rows_are_those_of_one_go(n, scaled, intercept):
    X = np.asfortranarray(np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32))
    centre, spread = (np.array([0.1, -2.0]), np.array([3.0, 0.7])) if scaled else (None, None)
    expected = X.astype(float)
    if scaled:
        expected = (expected - centre) / spread
    if intercept:
        expected = np.column_stack([np.ones(n), expected])
    result = prepare_rows(X, centre, spread, intercept)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result, expected, strict=True)
