"""The memory that a process may take: of the machine, and of control groups of both versions."""

from math import inf

import pytest

import cavity
from cavity.base import memory


def group(folder, name, limit):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{limit}\n")


@pytest.mark.parametrize(
    ("lines", "limits", "expected"),
    [
        ("0::/\n", {"": 4096}, 4096),  # in a container
        ("0::/slurm/job/step\n", {"slurm": 8192, "slurm/job": 5000, "slurm/job/step": "max"}, 5000),
        ("0::/of/the/host\n", {"": 3000}, 3000),  # whose folders a container does not see
        ("0::/user\n", {"user": "max"}, inf),
        ("0::/user\n", {}, inf),
        ("", {"": 4096}, inf),
    ],
)
def test_the_least_limit_of_a_group_and_those_it_is_in(lines, limits, expected, tmp_path):
    (tmp_path / "cgroup").write_text(lines)
    for name, limit in limits.items():
        group(tmp_path / "groups" / name, "memory.max", limit)
    assert memory._get_cgroup_bytes(tmp_path / "cgroup", tmp_path / "groups") == expected


def test_the_first_version_has_a_tree_for_each_resource(tmp_path):
    (tmp_path / "cgroup").write_text("5:cpu,cpuacct:/a\n4:memory:/docker/a:b\n1:name=systemd:/a\n")
    group(tmp_path / "memory", "memory.limit_in_bytes", 9223372036854771712)  # which means none
    group(tmp_path / "memory/docker/a:b", "memory.limit_in_bytes", 7000)
    assert memory._get_cgroup_bytes(tmp_path / "cgroup", tmp_path) == 7000


def test_systems_without_groups_have_the_memory_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CGROUPS_OF_PROCESS", tmp_path / "none")
    assert 2**28 < memory.get_allowed_bytes() == memory._get_machine_bytes()


def test_a_matrix_beyond_the_limit_of_the_group_is_refused(tmp_path, monkeypatch):
    (tmp_path / "cgroup").write_text("0::/job\n")
    group(tmp_path / "job", "memory.max", 10_000)
    monkeypatch.setattr(memory, "CGROUPS_OF_PROCESS", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "CGROUP_ROOT", tmp_path)
    with pytest.raises(MemoryError, match=r"shape \(60, 60\) needs 57600 bytes"):
        cavity.GaussianProcess("rbf").fit([[float(i)] for i in range(60)], range(60))
