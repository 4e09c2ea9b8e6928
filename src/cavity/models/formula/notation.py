"""Formulas in lme4's notation split into observations, fixed effects, and the groups of random effects.

What stands between the plus signs is read by the package formulae; what has to be known before is which random effects
share a covariance matrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cavity.base.arrays import error_of

NOTATION_HELP = (
    "a formula is like 'y ~ x * z + offset(w) + (1 + x | g) + (0 + x || h) + (1 | a/b) + (1 | a:b) + s(x)', with y, "
    "log(y), y > 3, p(successes, trials), or surv(time, event) before the ~"
)
TERM_NOTATION = {
    "s": "s(x), s(x, k=20), s(x, by=z), s(x | g), s(x, period=24)",
    "te": "te(x, z), te(x, z, k=(8, 5)), te(x, z, period=(None, 7))",
    "ti": "ti(x, z)",
    "rw1": "rw1(t), rw1(t | g), rw1(t | mm(a, b, weights=(1, -1)))",
    "rw2": "rw2(t), rw2(t | g)",
    "ar1": "ar1(t), ar1(t | g)",
    "matern12": "matern12(t), matern12(t | g)",
    "matern32": "matern32(t), matern32(t | g), matern32(t, max_states=500)",
    "matern52": "matern52(t), matern52(t | g)",
    "seasonal": "seasonal(t, 12)",
    "precision": "precision(g, Q)",
    "icar": "icar(region, W)",
    "bym2": "bym2(region, W)",
    "leroux": "leroux(region, W)",
    "car": "car(region, W)",
    "mm": "mm(a, b), mm(a, b, weights=(1, -1))",
}
TERM_CALL = re.compile(rf"({'|'.join(TERM_NOTATION)})\s*\(.*\)", re.DOTALL)
COLUMN_NAME = re.compile(r"\s*(?:`([^`]+)`|([^\W\d_][\w.]*))\s*")
QUOTED_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}
ALL_OTHER_COLUMNS = "."


@dataclass(frozen=True, slots=True)
class GroupEffects:
    """A pair of parentheses with a bar: columns, whether their effects are correlated, and names of groups."""

    columns: str
    correlated: bool
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class FormulaParts:
    """A formula split into observations, fixed effects, random effects, and structured terms."""

    y: str
    fixed: str
    random: tuple[GroupEffects, ...]
    structured: tuple[str, ...] = ()

    @classmethod
    def of(cls, formula):
        """Split a formula; ValueError naming the part that is not understood."""
        if not isinstance(formula, str):
            raise error_of("formula", f"must be a string, got {formula!r}; {NOTATION_HELP}", TypeError)
        sides = [side.strip() for _, side in split(formula, "~")]
        if len(sides) != 2 or not all(sides):
            raise refuse(formula, "it must have observations before a ~, and effects after it")
        fixed, random, structured = "", [], []
        for mark, text in split(sides[1], "+-"):
            inner = text.strip()
            bars = [] if not inner.startswith("(") or not inner.endswith(")") else split(inner[1:-1], "|")
            if is_structured_term(inner):
                if mark == "-":
                    raise refuse(inner, "structured terms cannot be subtracted")
                structured.append(inner)
            elif len(bars) < 2:
                fixed += mark + text
            elif mark == "-":
                raise refuse(inner, "random effects cannot be subtracted")
            else:
                random.append(_parse_group_effects(inner, bars))
        if "|" in QUOTED_TEXT.sub("", fixed):
            raise refuse(fixed, "random effects stand in parentheses of their own")
        return cls(sides[0], fixed.strip() or "1", tuple(random), tuple(structured))

    @property
    def has_all_others(self):
        """Whether the fixed effects have a dot: all columns that the formula does not name elsewhere."""
        return any(text.strip() == ALL_OTHER_COLUMNS for _, text in split(self.fixed, "+-"))

    def expand(self, names):
        """Return the parts with the named columns in place of the dot."""
        columns = " + ".join(map(quote_name, names)) or "1"
        terms = [
            (mark, columns if text.strip() == ALL_OTHER_COLUMNS else text.strip())
            for mark, text in split(self.fixed, "+-")
        ]
        return replace(self, fixed=" ".join(f"{mark} {text}".strip() for mark, text in terms))

    def to_text(self):
        """Return the formula as one text."""
        random = [
            f"({part.columns} {'|' if part.correlated else '||'} {':'.join(map(quote_name, group))})"
            for part in self.random
            for group in part.groups
        ]
        return f"{self.y} ~ {' + '.join([self.fixed, *random, *self.structured])}"


def quote_name(name):
    """Return the name of a column as a formula has it."""
    return name if COLUMN_NAME.fullmatch(name) and "`" not in name else f"`{name}`"


def is_formula(value):
    """Return whether a setting is a formula: a text with ~."""
    return isinstance(value, str) and "~" in value


def has_random_effects(formula):
    """Return whether a formula has random effects or structured terms."""
    parts = FormulaParts.of(formula)
    return bool(parts.random or parts.structured)


def is_structured_term(text):
    """Return whether a part of a formula is the call of a structured term."""
    return TERM_CALL.fullmatch(text.strip()) is not None


def split(text, marks):
    """Split a text at marks outside of brackets and quotes: pairs of the mark before a part, and the part."""
    parts, start, before, closing = [], 0, "", []
    for i, char in enumerate(text):
        if closing and (closing[-1] in "'\"`" or char == closing[-1]):
            if char == closing[-1]:
                closing.pop()
        elif char in "'\"`" or char in CLOSING_BRACKETS:
            closing.append(CLOSING_BRACKETS.get(char, char))
        elif char in CLOSING_BRACKETS.values():
            raise refuse(text, f"there is a {char} too much")
        elif char in marks and not closing:
            parts.append((before, text[start:i]))
            start, before = i + 1, char
    if closing:
        raise refuse(text, f"a {closing[-1]} is missing")
    return [*parts, (before, text[start:])]


def _parse_group_effects(text, bars):
    """Return the effects of a pair of parentheses, whose inside was split at its bars."""
    columns, *between, groups = (part.strip() for _, part in bars)
    if not columns or not groups or len(between) > 1 or any(between):
        raise refuse(text, "random effects are like (1 + x | g), or (1 + x || g) without correlations")
    nested, names = [], ()
    for part in groups.split("/"):
        matches = [COLUMN_NAME.fullmatch(name) for name in part.split(":")]
        if not all(matches):
            message = "groups are columns, g, or combinations of them, a:b or a/b for a and a:b"
            raise refuse(text, f"{message}; make a column of anything else")
        names += tuple(match[1] or match[2] for match in matches)
        nested.append(names)
    return GroupEffects(columns, not between, tuple(nested))


def refuse(text, message):
    """Return the ValueError for a part of a formula that is not understood."""
    return error_of("formula", f"has a part that is not understood, {text.strip()!r}: {message}; {NOTATION_HELP}")
