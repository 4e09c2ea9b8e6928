"""Walks over the syntax trees of sources, which take most of the time of tests that read all of them."""

import ast

STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")


def walk_statements(tree):
    """Return a module and all its statements, without expressions."""
    nodes = [tree]
    for node in nodes:  # which grows
        nodes += [child for name in STATEMENTS for child in getattr(node, name, ())]
    return nodes


def walk_definitions(tree):
    """Return a module, its functions and its classes."""
    return [node for node in walk_statements(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
