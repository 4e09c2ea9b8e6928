"""Structured terms in formulas: ``s(x, k=20)``, ``s(x | g)``, ``te(x, z)``, ``rw1(t)`` and others, as terms."""

from __future__ import annotations

import ast
import re

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.results import format_count
from cavity.models.formula.notation import TERM_CALL, TERM_NOTATION, refuse

FUNCTIONS_WITH_SETTINGS = ("seasonal", "precision", "icar", "bym2", "leroux", "car")  # in place of a second column
QUOTED_NAME = re.compile(r"`([^`]+)`")


def parse_term(text, graphs=None):
    """Return the structured term of a part of a formula: that of the group, if this is several levels a row.

    Parameters
    ----------
    text : str
        As ``s(x, by=f)``.
    graphs : dict, optional
        Matrices (Q, levels) and graphs by the names that ``precision(g, Q)`` and ``bym2(region, W)`` have for them.

    Raises
    ------
    ValueError
        Naming what is not understood.
    """
    function, columns, group, options = _read_call(text)
    if isinstance(group, str) and group in columns:
        raise _refuse(text, f"its group must be another column than {group!r}")
    from cavity import terms  # scipy takes a while to load

    if isinstance(group, tuple):
        members, member_options = group
        term = _make_term(terms, text, function, columns, None, options, graphs, has_group=True)
        member_options = _check_options(text, member_options, {"weights"})
        return terms.MultiMembership(tuple(members), **member_options, effects=term)
    return _make_term(terms, text, function, columns, group, options, graphs, has_group=group is not None)


def _make_term(terms, text, function, columns, group, options, graphs, has_group):
    """Return the term of a call, which has effects by group if `has_group`."""
    if function == "s":
        names = {"k", "by", "period", "knots", "extrapolate"}
        return terms.Smooth(*_take(text, columns, 1), group=group, **_check_options(text, options, names))
    if function in ("rw1", "rw2"):
        _check_options(text, options, set())
        return terms.RandomWalk(*_take(text, columns, 1), order=int(function[-1]), group=group)
    if function == "ar1":
        return terms.Autoregressive(*_take(text, columns, 1), group=group, **_check_options(text, options, {"until"}))
    if function.startswith("matern"):
        options = _check_options(text, options, {"max_states"})
        return terms.MaternChain(*_take(text, columns, 1), smoothness=int(function[-2]) / 2, group=group, **options)
    if function == "seasonal":
        column, period = _take(text, columns, 2)
        _check_options(text, options, set())
        return terms.Seasonal(column, period, group=group)
    if has_group:
        raise _refuse(text, "it has no effects by group")
    if function in ("te", "ti"):
        options = _check_options(text, options, {"k", "ranges", "period"})
        return terms.TensorSmooth(_take(text, columns, 2), interaction=function == "ti", **options)
    if function == "mm":
        return terms.MultiMembership(tuple(columns), **_check_options(text, options, {"weights"}))
    column, name = _take(text, columns, 2)
    if name not in (graphs or {}):
        graph_names = ", ".join(map(repr, graphs or {})) or "none"
        raise _refuse(text, f"{name!r} must be one of the graphs= of the model, which has {graph_names}")
    if function != "precision":
        _check_options(text, options, set())
        graph, regions = _split_regions(graphs[name])
        return terms.MarkovField(column, graph, prior=function, regions=regions, name_of_graph=name)
    pair = graphs[name] if isinstance(graphs[name], tuple | list) else ()
    if len(pair) != 2 or np.ndim(pair[0]) != 2:
        message = (
            f"must be a pair of a matrix and the labels of its rows, (Q, levels), got {type(graphs[name]).__name__}"
        )
        raise error_of(f"graphs[{name!r}]", message)
    matrix, levels = pair
    options = _check_options(text, options, {"scale"})
    return terms.GivenPrecision(column, matrix, levels, name_of_matrix=name, **options)


def _split_regions(graph):
    """Return a graph and the labels of its regions, None unless it is a pair of a matrix and these."""
    is_pair = isinstance(graph, tuple) and len(graph) == 2 and np.ndim(graph[0]) == 2
    return graph if is_pair else (graph, None)


def _read_call(text):
    """Return the function of a call, its arguments, the group after a bar or None, and its options.

    A group of several levels a row, ``mm(a, b)``, is a pair of its columns and options.
    """
    quoted, names = text.strip(), []
    for name in dict.fromkeys(QUOTED_NAME.findall(quoted)):
        names.append(name)
        quoted = quoted.replace(f"`{name}`", f"_column_{len(names) - 1}")
    try:
        call = ast.parse(re.sub(r"(?<=[^\W\d])\.(?=\w)", "_dot_", quoted), mode="eval").body
    except SyntaxError:
        raise _refuse(text, "it is no call") from None
    if not isinstance(call, ast.Call):
        raise _refuse(text, "it must stand alone between plus signs")

    def read(node):
        if isinstance(node, ast.Name):
            name = node.id.replace("_dot_", ".")
            return names[int(name.rpartition("_")[2])] if name.startswith("_column_") else name
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise _refuse(
                text, "its arguments are names of columns and numbers; make a column of an expression"
            ) from None

    arguments, group = list(call.args), None
    if arguments and isinstance(arguments[0], ast.BinOp) and isinstance(arguments[0].op, ast.BitOr):
        right = arguments[0].right
        if isinstance(right, ast.Call) and getattr(right.func, "id", None) == "mm":
            group = (
                [read(node) for node in right.args],
                {keyword.arg: read(keyword.value) for keyword in right.keywords},
            )
        else:
            group = read(right)
        arguments[0] = arguments[0].left
    return (
        call.func.id,
        [read(node) for node in arguments],
        group,
        {keyword.arg: read(keyword.value) for keyword in call.keywords},
    )


def _take(text, arguments, count):
    """Return the arguments of a call, which are so many."""
    if len(arguments) != count:
        raise _refuse(text, f"it has {format_count(count, 'argument')} before its options, got {len(arguments)}")
    return arguments


def _check_options(text, options, names):
    """Return the options of a call, all of which it must have."""
    unknown = [name for name in options if name not in names]
    if unknown:
        choices = f"options are {', '.join(sorted(names))}" if names else "there are no options"
        raise _refuse(text, f"{choices}, got {unknown[0]!r}")
    return options


def _refuse(text, message):
    """Return the ValueError for a structured term that is not understood."""
    function = TERM_CALL.fullmatch(text.strip())[1]
    return refuse(text, f"{message}; it is like {TERM_NOTATION[function]}")


def term_variables(text):
    """Return the names of the columns of a structured term."""
    function, columns, group, options = _read_call(text)
    columns = columns[:1] if function in FUNCTIONS_WITH_SETTINGS else columns
    members, member_options = group if isinstance(group, tuple) else ([group], {})
    names = [*columns, *members, options.get("by"), options.get("weights"), member_options.get("weights")]
    flat = [name for entry in names for name in (entry if isinstance(entry, list | tuple) else [entry])]
    return {name for name in flat if isinstance(name, str)}
