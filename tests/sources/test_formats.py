"""Text files as sources, among files that fit together or do not."""

import gzip
import os

import numpy as np
import pytest

import cavity
from cavity.sources import formats
from cavity.sources.dataset import Dataset
from cavity.sources.sources import open_source

ROWS = np.random.default_rng(0).normal(size=(40, 2))


def text(folder, name, rows=ROWS, header="a,b"):
    lines = [header, *(",".join(map(repr, row)) for row in rows.tolist())]
    content = "\n".join(lines).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def test_text_files_are_tables(tmp_path):
    paths = [text(tmp_path, "a.csv", ROWS[:9]), text(tmp_path, "b.csv.gz", ROWS[9:, ::-1], "b,a")]
    source = open_source(paths, "X", ndim=(2,))
    assert (source.shape, source.names) == ((40, 2), ("a", "b"))
    assert source.rows().tobytes() == ROWS.tobytes()
    dataset = Dataset.open(tmp_path, {"y": "b"})
    X, y, roles = dataset.X, dataset.column("y"), dataset.roles
    assert (X.names, roles) == (("a",), {"y": "b"})
    np.testing.assert_array_equal(y, ROWS[:, 1])
    assert cavity.source(paths[0], columns="b").rows().tolist() == ROWS[:9, 1].tolist()


def test_labels_of_text(tmp_path):
    (tmp_path / "t.tsv").write_text("x\tkind\n1\tu\n2\tv\n3\tu\n")
    dataset = Dataset.open(str(tmp_path / "t.tsv"), {"y": "kind"})
    X, y = dataset.X, dataset.column("y")
    assert (X.rows().tolist(), y.tolist()) == ([[1.0], [2.0], [3.0]], ["u", "v", "u"])
    with pytest.raises(TypeError, match="X .*must hold real numbers, got text in column 'kind'"):
        Dataset.open(str(tmp_path / "t.tsv"), {"y": "x"})


def test_missing_labels_are_no_class(tmp_path):
    (tmp_path / "t.csv").write_text("x,kind\n1,u\n2,\n3,v\n4,u\n")
    assert cavity.source(tmp_path / "t.csv").values("kind").tolist() == ["u", None, "v", "u"]
    with pytest.raises(ValueError, match="y must hold a label in every row, got None in row 1"):
        cavity.GLM("probit", intercept=True).fit(tmp_path / "t.csv", "kind")


def test_files_of_several_formats(tmp_path):
    np.save(tmp_path / "z.npy", ROWS)
    text(tmp_path, "a.csv")
    for names in (["a.csv", "z.npy"], ["z.npy", "a.csv"]):
        with pytest.raises(ValueError, match="X: .*z.npy has no names of columns, and .*a.csv has"):
            open_source([tmp_path / name for name in names], "X", ndim=(2,))
    with pytest.raises(ValueError, match="has files of several formats in it"):
        open_source(tmp_path, "X", ndim=(2,))
    with pytest.raises(ValueError, match="t.csv.zip is an archive, which is not read; unpack it"):
        open_source(text(tmp_path, "t.csv.zip"), "X", ndim=(2,))
    with pytest.raises(FileNotFoundError, match="X must be real numbers or the path .* there is no file '.*none.csv'"):
        open_source(tmp_path / "none.csv", "X", ndim=(2,))


def test_folders_of_very_many_files(tmp_path, monkeypatch):
    """They are not listed to their end: of a whole file system that would take hours."""
    monkeypatch.setattr(formats, "MOST_IN_FOLDER", 6)
    text(tmp_path, "a.csv")
    (tmp_path / "deeper").mkdir()
    text(tmp_path / "deeper", "b.csv")
    (tmp_path / ".hidden").mkdir()
    for place in (tmp_path / ".hidden", tmp_path / "_hidden"):
        place.mkdir(exist_ok=True)
        for k in range(20):
            text(place, f"{k}.csv")
    (tmp_path / "circle").symlink_to(tmp_path)
    assert cavity.source(tmp_path).shape == (80, 2)
    for k in range(3):
        (tmp_path / "deeper" / f"{k}").mkdir()
    with pytest.raises(ValueError, match=r"has more than 6 files and folders in it; give .* a pattern as 'folder/\*"):
        cavity.source(tmp_path)
    listed = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda folder: (listed.append(item[0]) or item for item in walk(folder)))
    for k in range(20):
        (tmp_path / "deeper" / "0" / f"{k}").mkdir()
    with pytest.raises(ValueError, match="has more than 6"):
        cavity.source(tmp_path)
    assert len(listed) < 5


@pytest.mark.parametrize("library", ["zarr", "h5py"])
def test_paths_of_zarr_and_hdf5_with_one_array_are_read(library, tmp_path):
    module, X = pytest.importorskip(library), np.random.default_rng(0).normal(size=(30, 2))
    path = tmp_path / ("rows.h5" if library == "h5py" else "rows.zarr")
    if library == "h5py":
        with module.File(path, "w") as file:
            file["X"] = X
    else:
        module.create_array(path, shape=X.shape, chunks=(10, 2), dtype="f8")[:] = X
    for place in (path, str(path)):
        np.testing.assert_array_equal(cavity.source(place).rows(), X)
        expected = cavity.GaussianMixture(1).fit(X)
        np.testing.assert_array_equal(cavity.GaussianMixture(1).fit(place).mean, expected.mean)
    several = tmp_path / ("several.h5" if library == "h5py" else "several.zarr")
    group = module.File(several, "w") if library == "h5py" else module.open_group(several, mode="w")
    for name in ("X", "Z"):
        if library == "h5py":
            group[name] = X
        else:
            group.create_array(name, shape=X.shape, dtype="f8")[:] = X
    with pytest.raises(TypeError, match=r"data must be an array, got a (File|Group) that holds 'X', 'Z'"):
        cavity.source(group)
    if library == "h5py":
        group["empty"] = module.Empty("f8")
        with pytest.raises(ValueError, match=r"data must not be empty, got an HDF5 dataset without a shape"):
            cavity.source(group["empty"])
        group.close()
    with pytest.raises(ValueError, match=rf"holds .*'X', 'Z'.*, not one array; give {library}\.\w+\(.*\)\['name'\]"):
        cavity.source(several)
    damaged = tmp_path / ("damaged.h5" if library == "h5py" else "damaged.zarr")
    if library == "h5py":
        damaged.write_bytes(b"junk")
    else:
        damaged.mkdir()
        (damaged / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match=f"damaged.* cannot be read by {library}"):
        cavity.source(damaged)


def test_formats_that_are_not_read_are_named(tmp_path):
    (tmp_path / "rows.foo").write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError, match=r"rows\.foo \(\.foo\) is not of a format that is read; these are: \.npy, .*\.zarr"
    ):
        cavity.source(tmp_path / "rows.foo")
