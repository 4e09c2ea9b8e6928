"""Sizes at which code changes its way, set by their names: a test need not know the modules of a constant."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import cavity

PACKAGE = Path(cavity.__file__).parent


@cache
def find_modules(name):
    """Return the modules that have a constant: the one that defines it, and those that import it from there."""
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    definition = re.compile(rf"^(?:[A-Z0-9_]+, )*{name}(?:, [A-Z0-9_]+)* = ", re.MULTILINE)
    assert sum(bool(definition.search(text)) for text in texts.values()) == 1, f"not one module defines {name}"
    paths = [path.relative_to(PACKAGE).with_suffix("") for path, text in texts.items() if name in text]
    modules = [import_module(".".join(["cavity", *path.parts])) for path in paths]
    return [module for module in modules if hasattr(module, name)]


def set_sizes(patch, **sizes):
    """Set constants until a monkeypatch is undone."""
    for name, value in sizes.items():
        for module in find_modules(name):
            patch.setattr(module, name, value)
