"""zarr arrays, HDF5 datasets and other arrays that give slices, and sparse matrices: the same bits as the array."""

import pickle
import shutil

import numpy as np
import pytest
import scipy.sparse
from support.source_threads import check_threads_read

import cavity
from cavity.base import arrays
from cavity.sources import chunked_arrays
from cavity.sources.dataset import Dataset
from cavity.sources.sources import open_source

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

N, BLOCK = 500, 64
X = np.random.default_rng(0).normal(size=(N, 4))


class Slices:
    """The least that can be read: rows of a list."""

    def __init__(self, array):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype
        self.read = []

    def __getitem__(self, rows):
        self.read.append((rows.start, rows.stop))
        return self._array[rows].tolist()


def in_zarr(folder, array=X, **options):
    options = {"chunks": (30, *array.shape[1:]), **options}
    return zarr.create_array(store=str(folder / "x.zarr"), data=array, **options)


def in_hdf5(folder, array=X, **options):
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=array, **options)
    return h5py.File(folder / "x.h5", "r")["x"]


KINDS = {
    "zarr": in_zarr,
    "one chunk": lambda folder: in_zarr(folder, chunks=(N, 2)),
    "shards": lambda folder: in_zarr(folder, chunks=(10, 4), shards=(100, 4)),
    "hdf5": in_hdf5,
    "hdf5 chunks": lambda folder: in_hdf5(folder, chunks=(70, 3), compression="gzip"),
    "slices": lambda folder: Slices(X),
    "csr": lambda folder: scipy.sparse.csr_matrix(X),
    "csr array": lambda folder: scipy.sparse.csr_array(X),
    "csc": lambda folder: scipy.sparse.csc_array(X),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.sources.blocks.ROWS_PER_CALL", BLOCK)
    monkeypatch.setattr(chunked_arrays, "READ_BYTES", 70 * 32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_as_an_array(tmp_path, kind):
    source, array = open_source(KINDS[kind](tmp_path), "X", ndim=(2,)), open_source(X, "X", ndim=(2,))
    assert (source.shape, source.block_count, source.names) == (X.shape, array.block_count, None)
    assert source.in_memory == kind.startswith("cs")
    for second in (source, pickle.loads(pickle.dumps(source))):
        for i in (*range(array.block_count), 3, 0, 7):
            assert second.read(i).tobytes() == array.read(i).tobytes()
    np.testing.assert_array_equal(source.rows(100, 303), X[100:303])
    np.testing.assert_array_equal(source.columns([3, 1]).rows(), X[:, [3, 1]])
    np.testing.assert_array_equal(source.column(2).rows(), X[:, 2])


@pytest.mark.parametrize("store", [in_zarr, in_hdf5])
def test_other_numbers_and_vectors(tmp_path, store):
    counts = np.arange(100, dtype=">i2")
    source = open_source(store(tmp_path, counts), "y")
    np.testing.assert_array_equal(source.rows(), counts)


def test_chunks_are_read_whole_and_once_a_pass():
    array = Slices(X)
    array.chunks = (30, 4)
    source = open_source(array, "X", ndim=(2,))
    for i in range(source.block_count):
        source.read(i)
    assert array.read == [(start, min(start + 60, N)) for start in range(0, N, 60)]
    source.read(0)
    assert array.read[-2:] == [(0, 60), (60, 120)]


@pytest.mark.parametrize("kind", ["zarr", "hdf5 chunks", "csr"])
def test_threads_read_for_themselves(tmp_path, kind):
    check_threads_read(open_source(KINDS[kind](tmp_path), "X", ndim=(2,)), X)


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "slices"])
def test_nothing_is_loaded_as_a_whole_without_a_word(tmp_path, kind):
    data = KINDS[kind](tmp_path)
    assert arrays.is_sliced(data)
    with pytest.raises(TypeError, match=r"must be in memory here, got a .* of shape \(500, 4\); give numpy.asarray\(X"):
        arrays.check_data_array(data, "X", (2,))
    dataset = Dataset.open(data, {"y": KINDS["slices"](tmp_path)})
    rows, y = dataset.X, dataset.column("y")
    assert rows.shape == y.shape == (N, 4)
    assert type(y) is np.ndarray


def test_what_is_in_memory_is_not_sliced():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X)
    for data in (
        X,
        X.tolist(),
        table,
        table[0],
        table.index,
        pd.array([1, 2]),
        np.float64(1.0),
        None,
        "x",
        3,
        memoryview(X),
    ):
        assert not arrays.is_sliced(data)
    with pytest.raises(TypeError, match="must be dense here, got a sparse matrix .*; give X.toarray"):
        arrays.check_data_array(scipy.sparse.csr_array(X), "X", (2,))
    with pytest.raises(TypeError, match="must be in memory here, got a Source .*; give X.rows"):
        arrays.check_data_array(cavity.source(X), "X", (2,))


REFUSED = {
    "no rows": (lambda f: in_zarr(f, X[:0]), ValueError, r"X must not be empty, got shape \(0, 4\)"),
    "no numbers": (lambda f: in_hdf5(f, X.astype("S8")), TypeError, "X must hold real numbers, got dtype .S8"),
    "complex": (lambda f: in_zarr(f, X + 0j), TypeError, "X must hold real numbers, got dtype complex128"),
    "a cube": (
        lambda f: in_zarr(f, X[:, :, None]),
        ValueError,
        r"X must have 2 dimension\(s\), got shape \(500, 4, 1\)",
    ),
    "sparse complex": (lambda f: scipy.sparse.csr_array(X + 0j), TypeError, "real numbers, got dtype complex128"),
    "sparse of nothing": (lambda f: scipy.sparse.csr_array((0, 3)), ValueError, "X must not be empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    make, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        open_source(make(tmp_path), "X", ndim=(2,))


def test_bad_numbers_are_named(tmp_path):
    bad = X.copy()
    bad[401, 3] = np.nan
    for data in (in_zarr(tmp_path, bad), in_hdf5(tmp_path, bad), scipy.sparse.csr_array(bad)):
        with pytest.raises(ValueError, match=r"X must be finite, got X\[401, 3\] = nan"):
            cavity.GaussianMixture(1).fit(data)


def test_arrays_that_change_between_passes(tmp_path):
    array = in_zarr(tmp_path)
    source = open_source(array, "X", ndim=(2,))
    source.rows()
    zarr.open_array(str(tmp_path / "x.zarr"))[3] = 0.0
    with pytest.raises(ValueError, match=r"X \(.*x.zarr\) has changed while it was in use"):
        source.rows()
    source = open_source(in_hdf5(tmp_path), "X", ndim=(2,))
    source.rows()
    with open(tmp_path / "x.h5", "ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match=r"X \(.*x.h5\) has changed while it was in use"):
        source.rows(30, 40)
    shrinking = Slices(X)
    source = open_source(shrinking, "X", ndim=(2,))
    shrinking._array = X[:400]
    with pytest.raises(
        ValueError, match=r"X has changed while it was in use: its rows 384 to 448 have shape \(16, 4\)"
    ):
        source.rows()
    shrinking.shape = (400, 4)
    with pytest.raises(ValueError, match="X has changed while it was in use; start again with the array as it is now"):
        source.rows()


def test_files_that_vanish_within_the_only_pass(tmp_path):
    array = in_zarr(tmp_path, chunks=(10, 4))
    part = cavity.source(array)
    rows = np.empty((N // 2, 4))
    part.fill(rows, 0)
    for place in (tmp_path / "x.zarr").rglob(f"c/{(N - 1) // 10}"):  # zarr would give zeros for it
        shutil.rmtree(place)
    with pytest.raises(ValueError, match=r"\(.*x.zarr\) has changed while it was in use"):
        part.fill(np.empty((N - N // 2, 4)), N // 2)
