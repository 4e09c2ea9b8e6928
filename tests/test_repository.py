"""What the repository holds: files that people wrote, none above a megabyte, and no more code than was agreed."""

import ast
import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from support import tolerances
from support.source_trees import walk_definitions

import cavity

CHECKOUT = Path(__file__).parent.parent
HIDDEN_NAMES = {".ci", ".github", ".gitignore"}  # every other hidden file or folder is a tool's
MAX_BYTES = 2**20
LARGER_FILES = set()  # paths that may be above it
MAX_CODE_LINES = {"src": 45_865, "tests": 53_400}
# of src some 5,300 are structured terms, graphs and chains, 2,300 integrals over hyperparameters and corrections of EP,
# 1,700 fits of many responses, 2,900 formulas, missing values, averages over rows, and checks of models
MAX_TOLERANCES_OUTSIDE_THE_TABLE = 33
TOLERANCE = re.compile(r"\b(rtol|atol|rel|abs)=([^,\n]*\d(\.\d|e)|[\w.]*\(\n)")  # with a number, or with more lines


def list_tracked(*options):
    """Return the paths that git tracks."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", *options]
    listing = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return [path for path in listing.split("\0") if path]


def count_code_lines(text):
    """Count the lines of Python code that are not blank and neither comment nor docstring."""
    lines = {i for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in walk_definitions(ast.parse(text)):
        if ast.get_docstring(node, clean=False):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_no_files_of_tools_are_tracked():
    paths = list_tracked()
    assert "README.md" in paths
    hidden = {part for path in paths for part in PurePosixPath(path).parts if part.startswith(".")}
    assert hidden <= HIDDEN_NAMES
    assert list_tracked("--cached", "--ignored", "--exclude-standard") == []


def test_no_conflict_of_a_merge_was_committed():
    for path in (CHECKOUT / name for name in list_tracked() if name.endswith((".md", ".rst", ".py"))):
        assert not path.exists() or "\n<<<<<<< " not in path.read_text(), path


def test_large_files_are_listed():
    large = {
        path for path in list_tracked() if (CHECKOUT / path).is_file() and (CHECKOUT / path).stat().st_size > MAX_BYTES
    }
    assert large == LARGER_FILES


def test_code_lines_are_counted():
    text = (
        '"""Doc."""\n\nX = (\n    1,  # one\n)\n\n# comment\ndef f():\n    """Doc\n\n    more.\n    """\n    return X\n'
    )
    assert count_code_lines(text) == 5


@pytest.mark.parametrize(("folder", "most"), MAX_CODE_LINES.items())
def test_the_repository_keeps_to_its_budget_of_lines(folder, most):
    """Delete what became dead, or agree on more: a few people carry this code."""
    total = sum(count_code_lines(path.read_text()) for path in (CHECKOUT / folder).rglob("*.py"))
    assert total <= most


def list_tolerances(tree):
    """Return the numbers in the tolerances of comparisons, 0 left out."""
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    values = [node.value for node in keywords if node.arg in ("rtol", "atol", "rel", "abs")]
    constants = [node for value in values for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return {node.value for node in constants if isinstance(node.value, float) and node.value}


def test_tolerances_come_from_the_table():
    texts = (path.read_text() for path in (CHECKOUT / "tests").rglob("test_*.py"))
    numbers = set().union(*(list_tolerances(ast.parse(text)) for text in texts if TOLERANCE.search(text)))
    assert not numbers & {value for name, value in vars(tolerances).items() if name.isupper()}
    assert len(numbers) <= MAX_TOLERANCES_OUTSIDE_THE_TABLE, numbers


def test_all_files_with_a_version_name_that_of_the_package():
    lines = {
        "pyproject.toml": 'version = "{}"',
        "CITATION.cff": "version: {}",
        ".ci/recipe/recipe.yaml": '  version: "{}"',
    }
    for name, line in lines.items():
        assert line.format(cavity.__version__) in (CHECKOUT / name).read_text().splitlines(), name
