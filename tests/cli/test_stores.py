"""HDF5 files and zarr stores as data of the commands, and what is not written into them."""

import numpy as np
import pytest
from support.commands import runner

X = np.random.default_rng(0).normal(size=(40, 2))


def test_hdf5_files_are_data(tmp_path, capsys):
    h5py, run = pytest.importorskip("h5py"), runner(capsys, "fit", "mixture")
    (tmp_path / "parts").mkdir()
    for name in ("x.h5", "parts/a.h5", "parts/b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["X"] = X
    for name in ("x.h5", "parts"):
        assert run(tmp_path / name, "--components", "1")[0] == 0
    status, _, errors = run(tmp_path / "parts", "--components", "1", "--output", tmp_path / "parts" / "a.h5")
    assert (status, "would be overwritten" in errors) == (2, True)


def test_nothing_is_written_into_a_store_that_is_read(tmp_path, capsys):
    zarr, run = pytest.importorskip("zarr"), runner(capsys, "fit", "mixture")
    zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(10, 2), dtype="f8")[:] = X
    before = (tmp_path / "x.zarr" / "zarr.json").read_bytes()
    target = tmp_path / "x.zarr" / "zarr.json"
    status, _, errors = run(tmp_path / "x.zarr", "--components", "1", "--output", target)
    assert (status, "would be overwritten" in errors) == (2, True)
    assert target.read_bytes() == before
