"""Parquet and Arrow files, folders and datasets: the same bits as the array, whatever their groups; what is refused."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from support.source_threads import check_threads_read

import cavity
from cavity.base.labels import Labels
from cavity.sources import arrow
from cavity.sources.dataset import Dataset
from cavity.sources.sources import open_source, open_unchecked

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")
pd = pytest.importorskip("pandas")
dataset = pytest.importorskip("pyarrow.dataset")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

N, BLOCK = 500, 64
RNG = np.random.default_rng(0)
TABLE = pa.table(
    {
        "size": RNG.normal(size=N),
        "count": RNG.integers(0, 9, N),
        "flag": RNG.random(N) < 0.3,
        "small": RNG.normal(size=N).astype(np.float32),
        "maybe": pa.array([None if i == 401 else i % 7 for i in range(N)], type=pa.int8()),
    }
)
X = np.column_stack([column.to_numpy(zero_copy_only=False).astype(float) for column in TABLE.columns])
CUTS = ((0, 10), (10, 10), (10, 333), (333, 500))


def in_parquet(folder, table=TABLE, rows=37):
    parquet.write_table(table, folder / "t.parquet", row_group_size=rows)
    return folder / "t.parquet"


def in_feather(folder, table=TABLE, rows=41):
    feather.write_feather(table, folder / "t.feather", chunksize=rows)
    return folder / "t.feather"


def in_arrow(folder, table=TABLE):
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as file:
        for batch in table.to_batches(max_chunksize=90):
            file.write_batch(batch)
    return folder / "t.arrow"


def in_folder(folder, table=TABLE):
    (folder / "parts").mkdir()
    (folder / "parts" / "_SUCCESS").write_text("")
    for k, (start, stop) in enumerate(CUTS):
        names = table.column_names[::-1] if k == 2 else table.column_names  # the first file says the order
        parquet.write_table(
            table.slice(start, stop - start).select(names), folder / "parts" / f"{k}.parquet", row_group_size=50
        )
    return folder / "parts"


def split(folder, table=TABLE, rows=None):
    table = table.append_column("year", pa.array(np.arange(N) // 200 + 2000))
    dataset.write_dataset(
        table,
        folder / "hive",
        partitioning=dataset.partitioning(pa.schema([("year", pa.int64())]), flavor="hive"),
        format="parquet",
        **({} if rows is None else {"max_rows_per_group": rows, "min_rows_per_group": rows}),
    )
    return folder / "hive"


KINDS = {
    "parquet": in_parquet,
    "text path": lambda folder: str(in_parquet(folder)),
    "one group": lambda folder: in_parquet(folder, rows=N),
    "feather": in_feather,
    "arrow": in_arrow,
    "folder": in_folder,
    "pattern": lambda folder: f"{in_folder(folder)}/[0-3].parquet",
    "list": lambda folder: sorted(in_folder(folder).glob("*.parquet")),
    "other name": lambda folder: in_parquet(folder).rename(folder / "t.data"),
    "dataset": lambda folder: dataset.dataset(in_folder(folder), exclude_invalid_files=True),
    "tiny groups": lambda folder: in_parquet(folder, rows=1),
    "small groups": lambda folder: in_parquet(folder, rows=5),
    "tiny batches": lambda folder: in_feather(folder, rows=1),
    "small batches": lambda folder: in_feather(folder, rows=5),
    "dataset of tiny groups": lambda folder: dataset.dataset(in_parquet(folder, rows=7)),
    "dataset of feather": lambda folder: dataset.dataset(in_feather(folder), format="feather"),
    "dataset in memory": lambda folder: dataset.dataset(TABLE),
    "table": lambda folder: TABLE,
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.sources.blocks.ROWS_PER_CALL", BLOCK)
    monkeypatch.setattr(arrow, "NUMBERS_PER_BATCH", 60)
    monkeypatch.setattr(arrow, "MIN_BATCH_ROWS", 12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_as_an_array(tmp_path, kind):
    source, array = open_source(KINDS[kind](tmp_path), "X", ndim=(2,)), open_source(X, "X", ndim=(2,))
    assert (source.shape, source.block_count, source.names) == (X.shape, array.block_count, tuple(TABLE.column_names))
    assert source.in_memory == (kind in ("table", "dataset in memory"))
    for second in (source, pickle.loads(pickle.dumps(source))):
        for i in (*range(array.block_count), 3, 0, 7):
            np.testing.assert_array_equal(second.read(i), array.read(i))
    np.testing.assert_array_equal(source.rows(100, 403), X[100:403])
    np.testing.assert_array_equal(source.columns([3, 1]).rows(), X[:, [3, 1]])
    np.testing.assert_array_equal(source.column("maybe").rows(400, 403), X[400:403, 4])
    np.testing.assert_array_equal(source.without(["maybe", "size"]).columns([2]).rows(), X[:, [3]])
    np.testing.assert_array_equal(source.sample(9), array.sample(9))


@pytest.mark.parametrize("kind", ["folder", "feather", "dataset"])
def test_threads_read_for_themselves(tmp_path, kind):
    check_threads_read(open_source(KINDS[kind](tmp_path), "X", ndim=(2,)), X)


def test_one_pass_reads_every_batch_once(tmp_path, monkeypatch):
    source, batches = open_source(in_parquet(tmp_path), "X", ndim=(2,)).columns([0, 2]), []
    full = arrow.ParquetReader.batches

    def counted(self, file, group, names, size):
        for batch in full(self, file, group, names, size):
            batches.append(batch.num_rows)
            assert set(batch.schema.names) == {"size", "flag"}
            yield batch

    monkeypatch.setattr(arrow.ParquetReader, "batches", counted)
    for i in range(source.block_count):
        source.read(i)
    assert (sum(batches), max(batches)) == (N, 30)


@pytest.mark.parametrize(
    "tiny", [in_parquet, in_feather, lambda folder, **more: dataset.dataset(in_parquet(folder, **more))]
)
def test_small_groups_are_read_together_and_once_a_fit(tmp_path, monkeypatch, tiny):
    """To begin a group takes longer than to read a thousand numbers; so does opening a file of many groups."""
    monkeypatch.undo()
    begun = []
    for kind in (arrow.ParquetReader, arrow.BatchReader, arrow.FragmentReader):
        whole = kind.batches

        def counted(self, file, group, names, size, full=whole):
            begun.append(group)
            return full(self, file, group, names, size)

        monkeypatch.setattr(kind, "batches", counted)
    model, options = cavity.GaussianMixture(2, covariance="diag"), dict(max_iter=5, tol=0.0)
    columns = TABLE.select(["size", "count"])
    with pytest.warns(cavity.ConvergenceWarning):
        posterior, expected = (model.fit(item, **options) for item in (tiny(tmp_path, table=columns, rows=1), X[:, :2]))
    assert posterior.elbo == expected.elbo
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert len(begun) <= 2 * 3  # threads, and kinds that call each other; not N = 500, in each pass


@pytest.mark.parametrize(
    ("sizes", "spans"),
    [
        ([], ()),
        ([5], ((0, 1),)),
        ([12, 1], ((0, 1), (1, 2))),
        ([13, 0, 1], ((0, 1), (1, 3))),
        ([4, 4, 4, 4], ((0, 3), (3, 4))),
        ([0, 0, 13, 0], ((0, 2), (2, 3), (3, 4))),
        ([1] * 30, ((0, 12), (12, 24), (24, 30))),
    ],
)
def test_groups_that_fit_into_a_batch_are_one(sizes, spans):
    """Batches have 60 numbers here, and no fewer than 12 rows."""
    assert arrow._spans(sizes, TABLE.schema) == spans


def test_categories_of_tiny_groups(tmp_path):
    """Each group has a dictionary of its own, of the values that it holds."""
    message = np.array(["b", "a", "c", "d"])[RNG.integers(0, 4, 60)]
    table = pa.table({"x": np.arange(60.0), "word": pa.array(message).dictionary_encode()})
    pieces = [table.slice(k, 1) for k in range(60)]
    own = pa.concat_tables(
        [piece.set_column(1, "word", pc.dictionary_encode(piece["word"].cast("string"))) for piece in pieces]
    )
    for item in (table, own):
        for store in (in_parquet, in_feather):
            path = store(tmp_path, item.unify_dictionaries() if store is in_feather else item, rows=1)
            assert cavity.source(path).values("word").tolist() == message.tolist()


LABELS = {
    "word": pa.array(["b", "a"] * (N // 2)),
    "code": pa.array(["b", "a"] * (N // 2)).dictionary_encode(),
    "gaps": pa.array(["b", None] * (N // 2)),
}


@pytest.mark.parametrize("store", [in_parquet, in_feather, in_folder])
def test_columns_by_name(tmp_path, store):
    table = TABLE.drop_columns(["maybe"])
    for name, values in LABELS.items():
        table = table.append_column(name, values)
    path = store(tmp_path, table)
    arguments = {"y": "word", "offset": "size", "sample_weight": "count", "exposure": None}
    with pytest.raises(TypeError, match="X .*must hold real numbers, got categories in column 'code'.*get_dummies"):
        Dataset.open(path, arguments)
    source = cavity.source(path).without(["code", "gaps"])
    dataset = Dataset.open(source, arguments)
    rows, roles = dataset.X, dataset.roles
    y, offset, weights, exposure = (dataset.column(name) for name in arguments)
    assert (rows.names, exposure) == (("flag", "small"), None)
    assert roles == {"y": "word", "offset": "size", "sample_weight": "count"}
    assert y.dtype.kind == "U"
    assert y.tolist() == ["b", "a"] * (N // 2)
    for result, name in ((offset, "size"), (weights, "count")):
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, TABLE[name])
    np.testing.assert_array_equal(rows.rows(), X[:, 2:4])
    full = cavity.source(path)
    assert full.values("code").tolist() == y.tolist()
    assert full.values("gaps")[:3].tolist() == ["b", None, "b"]
    with pytest.raises(ValueError, match="y='z': X has no column 'z'; it has 'size'"):
        Dataset.open(path, {"y": "z"})
    with pytest.raises(ValueError, match="data has no column 'z'"):
        cavity.source(path, columns=["size", "z"])
    one = cavity.source(path, columns="size")
    assert (one.shape, one.names) == ((N,), ("size",))


def test_ordered_categories_keep_their_order(tmp_path):
    grades = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1] * 20), ["low", "mid", "high"], ordered=True)
    path = in_parquet(tmp_path, pa.table({"x": np.arange(60.0), "grade": grades}))
    y = Dataset.open(path, {"y": "grade"}).column("y")
    labels = Labels.of(y)
    assert (labels.declared, labels.ordered, labels.values[:3]) == (
        ["low", "mid", "high"],
        True,
        ["low", "high", "mid"],
    )


def test_a_file_of_one_column_is_a_vector(tmp_path):
    path = in_parquet(tmp_path, TABLE.select(["size"]))
    assert open_source(path, "y").shape == (N,)
    posterior = cavity.UnitMixture(2).fit(path, max_iter=3, tol=1e9)
    assert posterior.mean.tolist() == cavity.UnitMixture(2).fit(X[:, 0], max_iter=3, tol=1e9).mean.tolist()
    x = cavity.source(TABLE.select(["size", "count"]))
    assert Dataset.open(x, {"y": path}).column("y").tolist() == X[:, 0].tolist()
    with pytest.raises(ValueError, match="y must be one column, got 'size', 'count'; cavity.source.y, columns='size'"):
        open_source(in_parquet(tmp_path, TABLE.select(["size", "count"])), "y")


@pytest.mark.parametrize("rows", [None, 3])
def test_partitions_are_columns_of_datasets(tmp_path, rows):
    path = split(tmp_path, rows=rows)
    with pytest.raises(ValueError, match=r"a column in the names of folders \('year=200\d'\); give pyarrow.dataset"):
        open_unchecked(path, "X")
    source = open_source(dataset.dataset(path, partitioning="hive"), "X", ndim=(2,))
    assert source.shape == (N, 6)
    years = np.arange(N) // 200 + 2000.0
    order = np.argsort(source.values("year"), kind="stable")
    np.testing.assert_array_equal(source.rows()[order], np.column_stack([X, years]))
    filtered = dataset.dataset(path, partitioning="hive").filter(dataset.field("year") == 2000)
    with pytest.raises(ValueError, match="X must be a dataset of whole files .*filter"):
        open_unchecked(filtered, "X")


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_missing_values_are_judged_by_the_model(tmp_path, covariance):
    path, model = in_folder(tmp_path), cavity.GaussianMixture(2, covariance=covariance)
    if covariance == "diag":
        posterior, expected = (model.fit(data, max_iter=3, tol=1e9) for data in (cavity.source(path), X))
        assert posterior.mean.tobytes() == expected.mean.tobytes()
        assert posterior.columns == tuple(TABLE.column_names)
    else:
        with pytest.raises(ValueError, match="X must be finite, got nan in row 68, column 'maybe' of .*3.parquet; val"):
            model.fit(path)


def test_the_first_bad_number_is_named_by_file_row_and_column(tmp_path):
    values = X[:, 0].copy()
    values[450] = np.inf
    for store, message in (
        (in_folder, "row 117, column 'size' of .*3.parquet"),
        (in_feather, "row 450, column 'size'"),
    ):
        source = open_source(store(tmp_path, TABLE.set_column(0, "size", pa.array(values))), "X", ndim=(2,))
        with pytest.raises(ValueError, match=f"X must be finite, got inf in {message}"):
            cavity.GaussianMixture(1, covariance="diag").fit(source)
        with pytest.raises(ValueError, match="y must be finite, got inf in row"):
            cavity.UnitMixture(1).fit(source.column("size"))


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_the_index_of_a_frame_is_no_column(tmp_path, suffix):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
    for number, item in enumerate((frame, frame[frame["a"] > 1.0], frame.rename_axis("id").loc[[2, 0]])):
        path = tmp_path / f"{number}.{suffix}"
        table = pa.Table.from_pandas(item)
        (parquet.write_table if suffix == "parquet" else feather.write_feather)(table, path)
        assert cavity.source(path).names == ("a", "b")
        assert cavity.source(path).rows().tolist() == item.to_numpy().tolist()


# ---------------------------------------------------------------------------------------------------- what is refused


def two(folder, left, right):
    parquet.write_table(left, folder / "a.parquet")
    parquet.write_table(right, folder / "b.parquet")
    return [folder / "a.parquet", folder / "b.parquet"]


def written(folder, name, content):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def empty_folder(folder):
    (folder / "nothing").mkdir()
    return folder / "nothing"


def cut(folder, size):
    path = in_parquet(folder)
    path.write_bytes(path.read_bytes()[:size])
    return path


AB = pa.table({"a": [1.0], "b": [2.0]})
REFUSED = {
    "missing column": (
        lambda f: two(f, AB, AB.select(["a"])),
        ValueError,
        "b.parquet has no column 'b'; the columns of",
    ),
    "one more": (
        lambda f: two(f, AB.select(["a"]), AB),
        ValueError,
        "b.parquet has the column 'b' too; the columns of",
    ),
    "text in one": (
        lambda f: two(f, AB, AB.set_column(1, "b", pa.array(["x"]))),
        TypeError,
        r"X \(.*b.parquet\) must hold real numbers, got text in column 'b' \(dtype string\)",
    ),
    "dates": (
        lambda f: in_feather(f, pa.table({"a": pa.array([0], pa.date32())})),
        TypeError,
        "got dates or times in column 'a'",
    ),
    "lists": (lambda f: in_parquet(f, pa.table({"a": [[1.0]]})), TypeError, "got other values in column 'a'"),
    "duplicate": (
        lambda f: in_feather(f, pa.table([[1.0], [2.0]], names=["a", "a"])),
        ValueError,
        "t.feather has two columns that are called 'a'",
    ),
    "no columns": (lambda f: in_parquet(f, pa.table({})), ValueError, "t.parquet has no columns"),
    "no rows": (lambda f: in_parquet(f, AB[:0]), ValueError, r"t.parquet\) must not be empty, got shape \(0, 2\)"),
    "no parquet": (
        lambda f: written(f, "x.parquet", b"a,b"),
        ValueError,
        "x.parquet is not a Parquet file that can be",
    ),
    "empty file": (lambda f: written(f, "x.pq", b""), ValueError, "x.pq is not a Parquet file that can be read"),
    "cut": (lambda f: cut(f, 3000), ValueError, "t.parquet is not a Parquet file that can be read"),
    "no arrow": (lambda f: written(f, "x.arrow", b"ARROW"), ValueError, r"x.arrow is not an Arrow \(Feather\) file"),
    "two formats": (lambda f: in_parquet(f).parent / in_feather(f).parent, ValueError, "has files of several formats"),
    "no files": (empty_folder, ValueError, r"is not a file, and has no file that can be read \(.npy"),
    "no match": (lambda f: f"{f}/*.parquet", FileNotFoundError, "no file is called like"),
    "other place": (lambda f: "s3://bucket/x.parquet", FileNotFoundError, "give pyarrow.dataset.dataset"),
    "mixed": (
        lambda f: [in_parquet(f), written(f, "n.npy", np.lib.format.magic(1, 0))],
        ValueError,
        "n.npy is not a .npy file that can be read",
    ),
    "excel": (lambda f: written(f, "t.xlsx", b"PK"), ValueError, "t.xlsx is an Excel workbook, .*pandas.read_excel"),
    "zarr": (
        lambda f: empty_folder(f).rename(f / "t.zarr"),
        ValueError,
        "t.zarr is not a file, and has no file that can be read",
    ),
    "delta": (
        lambda f: written(in_folder(f) / "_delta_log", "0.json", b"{}").parent.parent,
        ValueError,
        "a Delta table",
    ),
    "unknown": (lambda f: written(f, "t.xyz", b"abc"), ValueError, "t.xyz .* not of a format that is read; these are"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path, case):
    make, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        open_source(make(tmp_path), "X", ndim=(2,))


@pytest.mark.parametrize("store", [in_parquet, in_feather, in_folder, "dataset"])
@pytest.mark.parametrize("change", ["shorter", "other numbers", "gone"])
def test_files_that_change_between_passes(tmp_path, store, change):
    path = (in_folder if store == "dataset" else store)(tmp_path)
    data = dataset.dataset(path, exclude_invalid_files=True) if store == "dataset" else path
    source = open_source(data, "X", ndim=(2,))
    source.rows()
    path = path / "3.parquet" if path.is_dir() else path
    if change == "gone":
        path.unlink()
    elif change == "shorter":
        os.truncate(path, path.stat().st_size // 2)
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"X")
        os.utime(path, ns=(0, 0))
    message = "No such file" if change == "gone" and store != "dataset" else "has changed while it was in use"
    with pytest.raises((ValueError, OSError), match=message) as caught:
        source.rows()
    assert path.name in str(caught.value)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may read everything")
def test_no_permission(tmp_path):
    path = in_parquet(tmp_path)
    path.chmod(0)
    with pytest.raises(PermissionError, match=r"t\.parquet"):
        open_unchecked(path, "X")


def test_damage_within_a_file_is_told_by_its_name(tmp_path):
    path = in_parquet(tmp_path)
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"t.parquet cannot be read \("):
        open_source(path, "X", ndim=(2,)).rows()


MEMORY = """
import resource, sys
import pyarrow.parquet
from cavity.runs.executors import Threads
from cavity.sources.sources import open_source
source = open_source(sys.argv[1], "X", ndim=(2,)).columns(range(int(sys.argv[2])))
with Threads(1) as threads:
    source.summary(threads)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other units of ru_maxrss")
def test_memory_is_bounded_whatever_the_size_of_a_row_group(tmp_path, monkeypatch):
    """The file is one row group of 512 MB, which no pass ever holds."""
    columns = {f"c{j}": np.random.default_rng(j).normal(size=4_000_000) for j in range(16)}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=4_000_000, use_dictionary=False)
    few, many = (
        int(
            subprocess.run(
                [sys.executable, "-c", MEMORY, tmp_path / "t.parquet", str(n)], capture_output=True, check=True
            ).stdout
        )
        for n in (1, 16)
    )
    assert many < few + 200


def test_names_of_columns_that_are_no_text(tmp_path):
    feather.write_feather(pa.table({"height": [1.0, 2.0]}), tmp_path / "x.feather", compression="uncompressed")
    content = (tmp_path / "x.feather").read_bytes()
    (tmp_path / "x.feather").write_bytes(content.replace(b"height", b"hei\xca\xcat"))
    with pytest.raises(ValueError, match=r"data: .*x\.feather is not an Arrow \(Feather\) file that can be read"):
        cavity.source(tmp_path / "x.feather")
