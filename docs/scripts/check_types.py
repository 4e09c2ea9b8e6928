"""Examples of README.md and docs as a user's files, checked by mypy --strict and pyright against the installed package.

    python docs/scripts/check_types.py [FOLDER]

Writes one module per page to FOLDER, a temporary one by default, runs both checkers there, and ends with status 1 if
either has something to say. Prompts of a page are one session; a fenced block stands alone. Examples that show an error
are left out. Users need not annotate functions of their own, and that other libraries have no types is for them to
mend.
"""

import doctest
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKERS = (
    ("mypy", "--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--disable-error-code=import-untyped", "."),
    ("pyright", "--pythonpath", sys.executable, "."),
)
PYRIGHT = {"useLibraryCodeForTypes": False}  # what other libraries do not say about themselves is not guessed
ANYTHING = ("dask", "dask.array")  # modules that say wrong things about themselves


def module_of(text):
    """Return the Python of a page, an empty text if there is none."""
    examples = doctest.DocTestParser().get_examples(text)
    if examples:
        return "".join(example.source for example in examples if example.exc_msg is None)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return "\n".join(f"def block_{k}() -> None:\n{textwrap.indent(block, '    ')}" for k, block in enumerate(blocks))


def main(folder):
    """Write the examples of every page to a module, run the checkers, and return whether any found something."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]:
        name = f"examples_of_{page.stem.lower()}.py"
        (folder / name).write_text(module_of(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name in ANYTHING:
        stub = folder.joinpath(*name.split("."), "__init__.pyi")
        stub.parent.mkdir(exist_ok=True)
        stub.write_text("from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n", encoding="utf-8")
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT), encoding="utf-8")
    runs = [subprocess.run([sys.executable, "-m", *command], cwd=folder, check=False) for command in CHECKERS]
    return any(run.returncode for run in runs)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(Path(place)))
