"""Tables of measurements name the version of cavity that was measured, and none is too old.

The policy: a table may be of the current minor version or of one of the two released before it. A release runs anew
those that are older than a change of what they measure, too, which no test can see.
"""

import re
from pathlib import Path

import pytest

import cavity

CHECKOUT = Path(__file__).parent.parent
MAX_MINOR_VERSIONS_BEHIND = 2
NEVER_RELEASED = {(0, 3)}
STATEMENT = re.compile(r"Measured\s+with\s+cavity\s+(\d+)\.(\d+)\.\d+")
# number of tables in a page
TABLES_OF_PAGES = {"README.md": 2, "docs/stopping.rst": 1, "docs/experiments.rst": 1, "docs/smooths.rst": 1}
INCLUDED = sorted(path.name for path in (CHECKOUT / "docs").glob("*_table.inc"))


def read_versions(text):
    """Return (major, minor) of each version that a text says was measured."""
    return [(int(major), int(minor)) for major, minor in STATEMENT.findall(text)]


def is_stale(measured, current):
    """Whether a table of one version is too old for another."""
    skipped = sum(measured < version < current for version in NEVER_RELEASED)
    return measured[0] != current[0] or current[1] - measured[1] - skipped > MAX_MINOR_VERSIONS_BEHIND


def check(name, number):
    versions = read_versions((CHECKOUT / name).read_text())
    current = tuple(map(int, cavity.__version__.split(".")[:2]))
    assert len(versions) == number, f'{name} must say "Measured with cavity VERSION" once for each of {number} table(s)'
    stale = [version for version in versions if is_stale(version, current)]
    assert not stale, f"{name} was measured with {stale}, which is too old for {cavity.__version__}: measure again"


@pytest.mark.parametrize("name", INCLUDED)
def test_included_tables_name_a_recent_version(name):
    check(f"docs/{name}", 1)


@pytest.mark.parametrize("name", TABLES_OF_PAGES)
def test_tables_of_pages_name_a_recent_version(name):
    check(name, TABLES_OF_PAGES[name])


def test_tables_of_readme_are_of_this_version():
    current = tuple(map(int, cavity.__version__.split(".")[:2]))
    assert read_versions((CHECKOUT / "README.md").read_text()) == [current, current]


def test_all_included_tables_are_checked():
    pages = [path.read_text() for path in (CHECKOUT / "docs").rglob("*.rst")]
    included = {name for page in pages for name in re.findall(r"^\.\. include:: (\S+\.inc)$", page, re.MULTILINE)}
    assert included == set(INCLUDED)


@pytest.mark.parametrize(
    ("measured", "current", "stale"),
    [
        ((0, 3), (0, 3), False),
        ((0, 1), (0, 3), False),
        ((0, 1), (0, 4), False),
        ((0, 1), (0, 5), True),
        ((0, 2), (0, 6), True),
        ((0, 9), (1, 0), True),
    ],
)
def test_stale_versions(measured, current, stale):
    assert is_stale(measured, current) is stale
