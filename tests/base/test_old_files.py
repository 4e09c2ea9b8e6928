"""Files of every format since 0.3.0 are read, whatever wrote them: tests/golden/make_files.py."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.saved_files import read_contents

import cavity
from cavity import mean_field

PUBLIC_MODULES = (cavity, mean_field)
FILES = Path(__file__).resolve().parents[1] / "golden" / "files"


SETTINGS_NO_LONGER_WRITTEN = {("mixed", "effects_prior"), ("streaming_gp", "waiting.count")}  # by kinds of files


def flatten(settings, prefix=""):
    """Yield settings by names that say where in others they are."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@pytest.mark.parametrize("path", sorted(FILES.glob("*/*.npz")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_bit_of_an_old_file_comes_back(path):
    header, written = read_contents(path)
    assert (header["format"], header["kind"]) == (int(path.parent.name), path.stem)
    arrays, settings = cavity.load(path).to_arrays()
    for name, array in written.items():
        assert np.asarray(arrays[name]).tobytes() == array.tobytes(), name
    now = dict(flatten(json.loads(json.dumps(settings))))
    for name, value in flatten(header["settings"]):
        assert (path.stem, name) in SETTINGS_NO_LONGER_WRITTEN or now[name] == value, name


def test_there_is_a_file_of_each_kind_in_the_format_of_today(tmp_path):
    cavity.Clutter().fit([1.0, 2.0]).save(tmp_path / "now.npz")
    version = read_contents(tmp_path / "now.npz")[0]["format"]
    kinds = {getattr(getattr(module, name), "kind", None) for module in PUBLIC_MODULES for name in module.__all__}
    assert {path.stem for path in (FILES / str(version)).glob("*.npz")} == kinds - {None}
