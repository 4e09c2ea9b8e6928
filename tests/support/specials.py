"""Files that are no regular ones: devices and pipes, links to them, links in a circle."""

import os

import pytest

SPECIALS = ("device", "pipe", "link to a device", "link to a pipe", "folder", "circle")


def make_special(folder, kind, name="special.npz"):
    """Make a file of a kind in a folder; return its path. The test is skipped where it cannot be made."""
    path = folder / name
    other = folder / "target" if kind.startswith("link") else path
    try:
        if "device" in kind:
            os.mknod(other, 0o600 | 0o020000, os.makedev(1, 3))  # as /dev/null is on Linux
        elif "pipe" in kind:
            os.mkfifo(other)
        elif kind == "folder":
            other.mkdir()
        else:
            other.symlink_to(other)
        if kind.startswith("link"):
            path.symlink_to(other)
    except (AttributeError, OSError) as error:
        pytest.skip(f"there can be no {kind} here: {error}")
    return path


def kinds_in(folder):
    """Return what is in a folder by its names: the type of each file, and where links lead."""
    return {
        path.name: (os.lstat(path).st_mode, os.readlink(path) if path.is_symlink() else None)
        for path in folder.iterdir()
    }
