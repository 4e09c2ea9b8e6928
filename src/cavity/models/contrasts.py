"""Linear combinations of coefficients: from expressions of their names, from dictionaries, and from pairs of levels."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import combinations

import numpy as np

from cavity.base import arrays
from cavity.base.frames import join_names

PLACEHOLDER_NAME = "coefficient_{}_"  # stands for a name while an expression is parsed
AST_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def parse_combination(text, names):
    """Return the weights (D,) of the named coefficients in a linear expression of them, like "2 * age - sex[M]".

    Raises
    ------
    ValueError
        For names that are no coefficients, products of coefficients, and constants that are added.
    """
    longest_first = sorted(names, key=len, reverse=True)
    forms = (rf"`{re.escape(name)}`|(?<![\w.]){re.escape(name)}(?![\w.\[])" for name in longest_first)
    pattern = re.compile("|".join(forms))
    number = {form: k for k, name in enumerate(names) for form in (name, f"`{name}`")}
    expression = pattern.sub(lambda match: PLACEHOLDER_NAME.format(number[match[0]]), text)
    try:
        value = _evaluate(ast.parse(expression.strip(), mode="eval").body, names)
    except SyntaxError:
        raise arrays.error_of("combinations", f"must be a sum of coefficients, got {text!r}") from None
    except _NotLinearError as error:
        raise arrays.error_of("combinations", f"{error}, got {text!r}") from None
    if value[-1] != 0:
        raise arrays.error_of("combinations", f"must have no constant that is added, got {value[-1]:g} in {text!r}")
    return value[:-1]


class _NotLinearError(Exception):
    """An expression that is not linear in coefficients."""


def _evaluate(node, names):
    """Return the weights of an expression, and behind them its constant, (D + 1,)."""
    value = np.zeros(len(names) + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        value[-1] = node.value
        return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _evaluate(node.operand, names)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp) and type(node.op) in AST_OPERATORS:
        left, right = _evaluate(node.left, names), _evaluate(node.right, names)
        if isinstance(node.op, ast.Add | ast.Sub):
            return AST_OPERATORS[type(node.op)](left, right)
        if not right[:-1].any():
            return AST_OPERATORS[type(node.op)](left, right[-1])
        if isinstance(node.op, ast.Mult) and not left[:-1].any():
            return left[-1] * right
        raise _NotLinearError("must be linear in the coefficients")
    if isinstance(node, ast.Name):
        number = re.fullmatch(PLACEHOLDER_NAME.format(r"(\d+)"), node.id)
        if number:
            value[int(number[1])] = 1.0
            return value
        raise _NotLinearError(describe_unknown(node.id, names))
    available = f"there is {join_names(names)}, and no parameter of the likelihood as a threshold"
    raise _NotLinearError(f"must be a sum of numbers times coefficients: {available}")


def describe_unknown(name, names):
    """Return the message for a name that is no coefficient."""
    close = get_close_matches(str(name), names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"must be of coefficients: there is no {name!r}, but {join_names(names)}{hint}"


def level_pairs(column, names, base_levels):
    """Return the differences of all pairs of levels of a column of categories: names, and weights of coefficients.

    Parameters
    ----------
    column : str
        Its name.
    names : tuple of str
        Those of the coefficients, "column[level]".
    base_levels : dict of str to str
        The level of each column that the others are compared with.
    """
    pattern = re.compile(rf"{re.escape(column)}\[(.*)\]")
    numbers = {match[1]: k for k, match in enumerate(map(pattern.fullmatch, names)) if match}
    if not numbers:
        factors = dict.fromkeys(name.partition("[")[0] for name in names if name.endswith("]") and ":" not in name)
        available = f"there is {join_names(list(factors))}"
        raise arrays.error_of("pairs", f"must be a column of categories, got {column!r}; {available}")
    unit = np.eye(len(names))
    weights = {level: unit[k] for level, k in numbers.items()}
    if column in base_levels:
        weights = {base_levels[column]: np.zeros(len(names))} | weights
    pairs = {f"{column}: {b} - {a}": weights[b] - weights[a] for a, b in combinations(weights, 2)}
    return tuple(pairs), np.array(list(pairs.values()))


def name_combination(combination):
    """Return what a combination is called in tables."""
    if isinstance(combination, str):
        return combination.strip()
    shown = {name if isinstance(name, str) else " ".join(map(str, name)): value for name, value in combination.items()}
    terms = [f"{weight:+g} {name}" for name, weight in shown.items()]
    signed = (re.sub(r"^([+-])(?:1 (?=\D))?", r"\1 ", term) for term in terms)
    return " ".join(signed).removeprefix("+ ")


def list_combinations(combinations):
    """Return combinations as a list: one alone, or several; TypeError for what is none."""
    is_one = isinstance(combinations, str | Mapping) or not np.iterable(combinations)
    several = [combinations] if is_one else list(combinations)
    for combination in several or [combinations]:
        if not isinstance(combination, str | Mapping) or not combination:
            message = f"must be expressions like 'a - b', or dicts of weights by coefficients, got {combination!r}"
            raise arrays.error_of("combinations", message, TypeError)
    return several
