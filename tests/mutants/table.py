"""The table of deliberate mistakes, read and checked."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("table.toml")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: text that stands once in a file, what takes its place, and the nearest tests."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""  # why no test can see it


def mutants():
    """Return the mutants of the table, in its order."""
    rows = tomllib.loads(TABLE.read_text())["mutant"]
    return [Mutant(**row | {"tests": tuple(row["tests"])}) for row in rows]


def faults():
    """Return in words where the table does not fit the tree."""
    found = mutants()
    wrong = [f"{name}: several mutants have this name" for name, n in Counter(m.name for m in found).items() if n > 1]
    for mutant in found:
        times = (ROOT / mutant.file).read_text().count(mutant.old)
        if times != 1:
            wrong.append(f"{mutant.name}: the old text must stand once in {mutant.file}, it does {times} times")
        if mutant.new == mutant.old:
            wrong.append(f"{mutant.name}: the new text is the old one")
        wrong += [f"{mutant.name}: there is no {test}" for test in mutant.tests if not exists(test)]
    return wrong


def exists(test):
    """Whether a file of tests, or a test in one, FILE::NAME, is there."""
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and f"def {name}" in (ROOT / file).read_text()
