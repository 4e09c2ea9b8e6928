"""One table in every format that is read: fits of it have the same bits."""

import gzip
import pickle
import subprocess
import sys

import numpy as np
import pytest

import cavity

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")
h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
sparse = pytest.importorskip("scipy.sparse")

N, BLOCK = 300, 64
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(-3.0, 1.0, (100, 3)), RNG.normal(2.0, 2.0, (200, 3))])
W = RNG.integers(1, 4, N).astype(float)
NAMES = ["a", "b", "c"]
CUTS = ((0, 10), (10, 200), (200, 300))


def table():
    return pa.table(dict(zip(NAMES, X.T, strict=True)) | {"w": W})


def npy_list(folder):
    for k, (start, stop) in enumerate(CUTS):
        np.save(folder / f"{k}.npy", X[start:stop])
    return [folder / f"{k}.npy" for k in range(len(CUTS))]


def mapped(folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def parquet_folder(folder):
    (folder / "parts").mkdir()
    for k, (start, stop) in enumerate(CUTS):
        parquet.write_table(table()[start:stop], folder / "parts" / f"{k}.parquet", row_group_size=37)
    return folder / "parts"


def in_feather(folder):
    feather.write_feather(table(), folder / "x.feather", chunksize=50)
    return folder / "x.feather"


def in_text(folder):
    lines = [",".join([*NAMES, "w"]), *(",".join(map(repr, row)) for row in np.column_stack([X, W]).tolist())]
    (folder / "x.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder / "x.csv.gz"


def in_hdf5(folder):
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(70, 3))
    return h5py.File(folder / "x.h5", "r")["x"]


class Slices:
    """The least that can be read."""

    shape, dtype = X.shape, X.dtype

    def __getitem__(self, rows):
        return X[rows].tolist()


NAMED = {
    "table in memory": lambda folder: table(),
    "parquet": parquet_folder,
    "feather": in_feather,
    "dataset": lambda folder: dataset.dataset(parquet_folder(folder)),
    "text": in_text,
}
KINDS = {
    "memmap": mapped,
    "npy files": npy_list,
    "zarr": lambda folder: zarr.create_array(store=str(folder / "x.zarr"), data=X, chunks=(40, 2)),
    "hdf5": in_hdf5,
    "slices": lambda folder: Slices(),
    "sparse": lambda folder: sparse.csr_array(X),
    **NAMED,
}


def mixture(data, **options):
    return cavity.GaussianMixture(2).fit(data, tol=1e9, **options)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.sources.blocks.ROWS_PER_CALL", BLOCK)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_have_the_same_bits(tmp_path, kind):
    data = KINDS[kind](tmp_path)
    data = cavity.source(data, columns=NAMES) if kind in NAMED else data
    for n_threads in (1, 2):
        result, expected = mixture(data, n_threads=n_threads), mixture(X)
        assert result.elbo == expected.elbo
        assert result.mean.tobytes() == expected.mean.tobytes()
    assert result.columns == (tuple(NAMES) if kind in NAMED else None)
    column = cavity.source(data, columns="b" if kind in NAMED else 1)
    result, expected = (cavity.UnitMixture(2).fit(y, tol=1e9) for y in (column, X[:, 1].copy()))
    assert (result.elbo, result.columns) == (expected.elbo, ("b",) if kind in NAMED else None)


@pytest.mark.long_cases("dataset")
@pytest.mark.parametrize("kind", NAMED)
def test_weights_by_name_and_in_files(tmp_path, kind):
    data, expected = NAMED[kind](tmp_path), mixture(X, sample_weight=W)
    result = mixture(data, sample_weight="w")
    assert (result.elbo, result.columns, result.roles) == (expected.elbo, tuple(NAMES), {"sample_weight": "w"})
    np.testing.assert_array_equal(result.log_density(data), expected.log_density(X))
    np.save(tmp_path / "weights.npy", W)
    result = mixture(cavity.source(data, columns=NAMES), sample_weight=tmp_path / "weights.npy")
    assert (result.elbo, result.roles) == (expected.elbo, None)
    with pytest.raises((FileNotFoundError, ValueError), match="'z'"):
        mixture(data, sample_weight="z")


GLMS = [pytest.param("full", marks=pytest.mark.long), "diagonal"]


@pytest.mark.parametrize("approximation", GLMS)
@pytest.mark.parametrize("kind", ["parquet", "text"])
def test_regressions_take_y_by_name(tmp_path, kind, approximation):
    model = cavity.GLM("poisson", approximation=approximation, intercept=True)
    posterior = model.fit(NAMED[kind](tmp_path), "w", offset="a", max_iter=5, tol=1e9)
    expected = model.fit(X[:, 1:], W, offset=X[:, 0], max_iter=5, tol=1e9)
    assert posterior.log_evidence == expected.log_evidence
    assert posterior.roles == {"y": "w", "offset": "a"}


CODE = """
import pickle, sys
for source in pickle.load(sys.stdin.buffer):
    print(source.rows().tobytes().hex()[:4096])
"""


def test_sources_go_to_other_processes(tmp_path):
    made = [
        cavity.source(KINDS[kind](tmp_path), columns=[0, 1, 2]) for kind in KINDS if kind not in ("dataset", "slices")
    ]
    for source in made:
        source.read(1)
    done = subprocess.run([sys.executable, "-c", CODE], input=pickle.dumps(made), capture_output=True, check=True)
    assert done.stdout.decode().split() == [X.tobytes().hex()[:4096]] * len(made)


def test_one_shot_iterators_are_refused(tmp_path):
    reader = parquet.ParquetFile(parquet_folder(tmp_path) / "1.parquet").iter_batches()
    for data in (reader, (row for row in X)):
        with pytest.raises(
            TypeError, match="needs several passes over the data, but X is a one-shot iterator .*Parquet"
        ):
            mixture(data)


def test_an_unreadable_value_in_block_17_of_file_3(tmp_path):
    for k in range(5):
        values = X[:, 0].repeat(5)
        if k == 3:
            values[17 * BLOCK + 5] = np.nan
        parquet.write_table(pa.table({"a": values, "b": values * 0.0}), tmp_path / f"{k}.parquet", row_group_size=100)
    with pytest.raises(
        ValueError, match=f"X must be finite, got nan in row {17 * BLOCK + 5}, column 'a' of .*3.parquet"
    ):
        mixture(tmp_path)
