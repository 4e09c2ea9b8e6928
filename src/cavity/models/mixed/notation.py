"""Formulas in lme4's notation taken apart: observations, fixed effects, and the groups of random ones.

What stands between the plus signs is the package formulae's; what has to be known before is which random effects share
a covariance matrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cavity.base.arrays import error_of

UNDERSTOOD = (
    "a formula is like 'y ~ x * z + offset(w) + (1 + x | g) + (0 + x || h) + (1 | a/b) + (1 | a:b)', with y, log(y), "
    "y > 3, or p(successes, trials) before the ~"
)
NAME = re.compile(r"\s*(?:`([^`]+)`|([^\W\d_][\w.]*))\s*")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Group:
    """What stands in a pair of parentheses with a bar: columns, whether they are correlated, and names of groups."""

    columns: str
    correlated: bool
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """A formula taken apart: observations, fixed effects, and random effects."""

    y: str
    fixed: str
    random: tuple[Group, ...]

    @classmethod
    def of(cls, formula):
        """Take a formula apart; ValueError naming what is not understood."""
        if not isinstance(formula, str):
            raise error_of("formula", f"must be a string, got {formula!r}; {UNDERSTOOD}", TypeError)
        sides = [side.strip() for _, side in split(formula, "~")]
        if len(sides) != 2 or not all(sides):
            raise refused(formula, "it must have observations before a ~, and effects after it")
        fixed, random = "", []
        for mark, text in split(sides[1], "+-"):
            inner = text.strip()
            bars = [] if not inner.startswith("(") or not inner.endswith(")") else split(inner[1:-1], "|")
            if len(bars) < 2:
                fixed += mark + text
            elif mark == "-":
                raise refused(inner, "random effects cannot be subtracted")
            else:
                random.append(_group(inner, bars))
        if "|" in QUOTED.sub("", fixed):
            raise refused(fixed, "random effects stand in parentheses of their own")
        return cls(sides[0], fixed.strip() or "1", tuple(random))


def split(text, marks):
    """Split a text at marks outside of brackets and quotes: pairs of the mark before a part, and the part."""
    parts, start, before, waiting = [], 0, "", []
    for i, char in enumerate(text):
        if waiting and (waiting[-1] in "'\"`" or char == waiting[-1]):
            if char == waiting[-1]:
                waiting.pop()
        elif char in "'\"`" or char in CLOSING:
            waiting.append(CLOSING.get(char, char))
        elif char in CLOSING.values():
            raise refused(text, f"there is a {char} too much")
        elif char in marks and not waiting:
            parts.append((before, text[start:i]))
            start, before = i + 1, char
    if waiting:
        raise refused(text, f"a {waiting[-1]} is missing")
    return [*parts, (before, text[start:])]


def _group(text, bars):
    """What a pair of parentheses says, whose inside was split at its bars."""
    columns, *between, groups = (part.strip() for _, part in bars)
    if not columns or not groups or len(between) > 1 or any(between):
        raise refused(text, "random effects are like (1 + x | g), or (1 + x || g) without correlations")
    nested, names = [], ()
    for part in groups.split("/"):
        found = [NAME.fullmatch(each) for each in part.split(":")]
        if not all(found):
            words = "groups are columns, g, or combinations of them, a:b or a/b for a and a:b"
            raise refused(text, f"{words}; make a column of anything else")
        names += tuple(each[1] or each[2] for each in found)
        nested.append(names)
    return Group(columns, not between, tuple(nested))


def refused(text, words):
    return error_of("formula", f"has a part that is not understood, {text.strip()!r}: {words}; {UNDERSTOOD}")
