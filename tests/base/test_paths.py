"""Where files are written and what is opened: links are followed, devices and pipes are refused and stay."""

import io
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from support.specials import SPECIALS, kinds_in, make_special

import cavity
from cavity.base import paths, persistence
from cavity.sources import formats

POSTERIOR = cavity.Clutter().fit(np.random.default_rng(0).normal(size=30))
ERRORS = {"folder": (IsADirectoryError, "is a folder"), "circle": (OSError, "Too many levels of symbolic links")}
NOT_REGULAR = ValueError, "is a device, a pipe or a socket, not a regular file"


@pytest.mark.parametrize("kind", SPECIALS)
def test_what_is_no_regular_file_is_neither_written_nor_read(tmp_path, kind):
    path = make_special(tmp_path, kind)
    before = kinds_in(tmp_path)
    error, message = ERRORS.get(kind, NOT_REGULAR)
    actions = (POSTERIOR.save, cavity.load, persistence.check_output)
    started = time.monotonic()
    for action in actions:
        with pytest.raises(error, match=message) as caught:
            action(path)
        assert str(path) in str(caught.value)
    assert kinds_in(tmp_path) == before
    assert time.monotonic() - started < 10  # and nothing waited for the other end of a pipe


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_links_stay_and_their_target_is_replaced(tmp_path):
    """Of links to links, relative ones, and those whose target is not there yet; nothing is left beside either."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "old.npz").write_bytes(b"old")
    (tmp_path / "second").symlink_to(Path("models", "old.npz"))
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "dangling").symlink_to(Path("models", "new.npz"))
    for link, target in (("first", "old.npz"), ("dangling", "new.npz")):
        POSTERIOR.save(tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert not (tmp_path / "models" / target).is_symlink()
        assert cavity.load(tmp_path / "models" / target).log_evidence == POSTERIOR.log_evidence
        assert cavity.load(tmp_path / link).log_evidence == POSTERIOR.log_evidence
    assert {path.name for path in tmp_path.iterdir()} == {"models", "first", "second", "dangling"}
    assert {item.name for item in (tmp_path / "models").iterdir()} == {"old.npz", "new.npz"}
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere" / "x.npz")
    with pytest.raises(FileNotFoundError, match=r"lost: the folder .*nowhere does not exist"):
        POSTERIOR.save(tmp_path / "lost")


@pytest.mark.parametrize("value", [3, True, None, 2.5, io.BytesIO()])
def test_what_is_no_path(value):
    """A number is one of an open file to `open`, which would read it, and close it."""
    for action in (cavity.load, POSTERIOR.save):
        with pytest.raises(TypeError, match=f"path must be the path of a file, got {type(value).__name__}"):
            action(value)


def test_tables_and_posteriors_do_not_share_suffixes(tmp_path):
    assert all(suffix.endswith(paths.TABLE_SUFFIXES) for suffix in formats.OPENER_OF_SUFFIX)
    for suffix in (*formats.OPENER_OF_SUFFIX, ".CSV"):
        path = tmp_path / f"posterior{suffix}"
        for action in (POSTERIOR.save, lambda path: persistence.check_output(path, archive=True)):
            with pytest.raises(ValueError, match=f"{re.escape(suffix)} has the suffix of a table, .* call it .npz"):
                action(path)
        persistence.check_output(path)  # a table that is written
    assert os.listdir(tmp_path) == []
    for name in ("posterior", "posterior.npz", "posterior.v2", "posterior.csv.old"):
        POSTERIOR.save(os.fsencode(tmp_path / name))
        assert cavity.load(os.fsencode(tmp_path / name)).log_evidence == POSTERIOR.log_evidence


def test_a_check_leaves_what_is_there(tmp_path):
    (tmp_path / "old.npz").write_bytes(b"old")
    for name in ("old.npz", "new.npz", "n" * 250):
        persistence.check_output(tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"old.npz": b"old"}


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder where root cannot make files")
def test_a_folder_where_nothing_can_be_made(tmp_path):
    for path in ("/proc/self/posterior.npz", tmp_path / ("n" * 256)):
        with pytest.raises(OSError, match=re.escape(str(path))):
            persistence.check_output(path)
        with pytest.raises(OSError, match=re.escape(str(path))):
            POSTERIOR.save(path)


def test_an_empty_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (paths.decode_path, paths.resolve_output, paths.open_regular):
        with pytest.raises(ValueError, match="path must be the path of a file, got an empty string"):
            use("")
    assert list(tmp_path.iterdir()) == []
