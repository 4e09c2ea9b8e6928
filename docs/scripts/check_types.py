"""Examples of README.md and docs as a user's files, checked by mypy --strict and pyright against the installed package.

    python docs/scripts/check_types.py [FOLDER]

Writes one module per page to FOLDER, a temporary one by default, runs both checkers there, and ends with status 1 if
either has something to say. Prompts of a page are one session; what they print, and examples that show an error or need
files that are not there, are no code.
"""

import doctest
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKERS = (("mypy", "--strict", "--no-error-summary", "."), ("pyright", "--pythonpath", sys.executable, "."))


def blocks_of(text):
    """Return the Python of a page: the examples with prompts, else its fenced blocks."""
    examples = doctest.DocTestParser().get_examples(text)
    if examples:
        return [shown(example) for example in examples]
    return [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def shown(example):
    """Return an example as a statement; one that shows an error may fail."""
    source = example.source
    if example.exc_msg is not None:  # it is there to be refused
        return f"try:\n{indented(source)}except Exception:\n    pass\n"
    return source


def indented(source):
    """Return lines four columns to the right."""
    return re.sub(r"^(?=.)", "    ", source, flags=re.MULTILINE)


def write(folder):
    """Write the examples of every page to a module of its own."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.rst"))]:
        blocks = blocks_of(page.read_text(encoding="utf-8"))
        if blocks:
            (folder / f"{page.stem.lower()}.py").write_text("".join(blocks), encoding="utf-8")


def main(folder):
    """Write the examples, run the checkers, and return whether any of them found something."""
    write(folder)
    failed = False
    for checker, *options in CHECKERS:
        command = [sys.executable, "-m", checker, *options]
        failed |= subprocess.run(command, cwd=folder, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
