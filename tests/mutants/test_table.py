"""The table of deliberate mistakes fits the tree: each one is there to be made, and its tests to be run."""

from mutants.table import find_faults, read_mutants


def test_every_mutant_can_be_made():
    assert len(read_mutants()) >= 15
    assert find_faults() == []
