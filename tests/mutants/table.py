"""The table of deliberate mistakes, read and checked."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TABLE_PATH = Path(__file__).with_name("table.toml")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: text that stands once in a file, what takes its place, and the nearest tests."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""  # why no test can see it


def read_mutants():
    """Return the mutants of the table, in its order."""
    rows = tomllib.loads(TABLE_PATH.read_text())["mutant"]
    return [Mutant(**row | {"tests": tuple(row["tests"])}) for row in rows]


def find_faults():
    """Return messages about entries that do not fit the tree."""
    table = read_mutants()
    faults = [f"{name}: several mutants have this name" for name, n in Counter(m.name for m in table).items() if n > 1]
    for mutant in table:
        times = (CHECKOUT / mutant.file).read_text().count(mutant.old)
        if times != 1:
            faults.append(f"{mutant.name}: the old text must stand once in {mutant.file}, it does {times} times")
        if mutant.new == mutant.old:
            faults.append(f"{mutant.name}: the new text is the old one")
        faults += [f"{mutant.name}: there is no {test}" for test in mutant.tests if not is_test(test)]
    return faults


def is_test(test):
    """Whether a file of tests, or a test in one (FILE::NAME), exists."""
    file, _, name = test.partition("::")
    return (CHECKOUT / file).is_file() and f"def {name}" in (CHECKOUT / file).read_text()
