"""Files that are no regular ones: devices and pipes, links to them, links in a circle."""

import os

import pytest

SPECIALS = ("device", "pipe", "link to a device", "link to a pipe", "folder", "circle")


def make_special(folder, kind, name="special.npz"):
    """Make a file of a kind in a folder; return its path. The test is skipped where it cannot be made."""
    path = folder / name
    there = folder / "target" if kind.startswith("link") else path
    try:
        if "device" in kind:
            os.mknod(there, 0o600 | 0o020000, os.makedev(1, 3))  # as /dev/null is on Linux
        elif "pipe" in kind:
            os.mkfifo(there)
        elif kind == "folder":
            there.mkdir()
        else:
            there.symlink_to(there)
        if kind.startswith("link"):
            path.symlink_to(there)
    except (AttributeError, OSError) as error:
        pytest.skip(f"there can be no {kind} here: {error}")
    return path


def kinds_in(folder):
    """Return what is in a folder by its names: the type of each file, and where links lead."""
    return {
        each.name: (os.lstat(each).st_mode, os.readlink(each) if each.is_symlink() else None)
        for each in folder.iterdir()
    }
