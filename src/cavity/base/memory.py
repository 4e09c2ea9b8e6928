"""How much memory a process may take: that of the machine, or what its container or batch job allows."""

import os
from functools import cache
from math import inf
from pathlib import Path, PurePosixPath

CGROUPS_OF_PROCESS, CGROUP_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def get_allowed_bytes():
    """Return the bytes that this process may take, inf if that is not known."""
    return min(_get_machine_bytes(), _get_cgroup_bytes(CGROUPS_OF_PROCESS, CGROUP_ROOT))


def _get_machine_bytes():
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return inf


@cache  # a process seldom changes its group, and files take longer than a small matrix
def _get_cgroup_bytes(of_process, groups):
    """The least limit of the groups of a process and of those they are in, in both versions of control groups."""
    try:
        lines = of_process.read_text().splitlines()
    except OSError:  # there are none on this system
        return inf
    limits = [inf]
    for line in lines:
        _, controllers, group_path = line.split(":", 2)
        if controllers in ("", "memory"):
            folder, name = (groups, "memory.max") if not controllers else (groups / "memory", "memory.limit_in_bytes")
            inner = PurePosixPath(group_path).relative_to("/")
            limits += [_read_limit(folder / inner_path / name) for inner_path in (inner, *inner.parents)]
    return min(limits)


def _read_limit(path):
    """The number in a file; inf where there is no file, as in containers that see their own group only, or no limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return inf
    return inf if text == "max" else int(text)
