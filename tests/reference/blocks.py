"""Naive twins of what blocks are merged and summarised by."""

from fractions import Fraction


def tree(parts, add):
    """The pairwise sum as it is defined: the largest power of two of the parts that leaves some, and the rest."""
    if len(parts) == 1:
        return parts[0]
    half = 1
    while 2 * half < len(parts):
        half *= 2
    return add(tree(parts[:half], add), tree(parts[half:], add))


def mean(values):
    """The exact mean, as a fraction."""
    return sum(map(Fraction, values)) / len(values)
