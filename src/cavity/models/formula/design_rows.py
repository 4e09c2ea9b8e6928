"""Rows of a design matrix that are evaluated when they are read: the matrix of a long file is never in memory."""

import threading
from dataclasses import replace

import numpy as np

from cavity.models.formula.evaluation import evaluate_columns
from cavity.runs.merge import split_rows
from cavity.sources.source_parts import NamedRows
from cavity.sources.sources import Source

LARGEST_DESIGN = 1 << 25  # numbers of a design matrix of rows in files that are evaluated at once: 256 MB
EVALUATED_ROWS = 1 << 16  # whose offsets are evaluated at a time
EVALUATION_LOCK = threading.Lock()  # formulae changes its terms when it evaluates them


class DesignRows(NamedRows):
    """Rows (N, D) that a matrix of formulae makes of a pandas table."""

    in_memory = False

    def __init__(self, matrix, table, names, intercept):
        super().__init__("X", (len(table), len(names)), names)
        self._matrix, self._table, self._intercept = matrix, table, intercept

    def fill(self, out, start, state):
        """Evaluate the rows from `start` on into out (n, D)."""
        out[...] = self.evaluate(start, start + len(out)).values

    def evaluate(self, start, stop):
        """Return the `Evaluated` columns of some rows."""
        with EVALUATION_LOCK:
            return evaluate_columns(self._matrix, self._table.iloc[start:stop], self._intercept, checked=False)


def evaluate_in_blocks(matrix, table, intercept=True):
    """Return the `Evaluated` columns for a table, whose values are a Source of rows where they are many.

    The Source does not check that they are finite.
    """
    first = evaluate_columns(matrix, table.iloc[:1], intercept, checked=False)
    if len(table) * len(first.names) <= LARGEST_DESIGN:
        return evaluate_columns(matrix, table, intercept)
    rows = DesignRows(matrix, table, first.names, intercept)
    offset = first.offset
    if offset is not None:
        spans = split_rows(len(table), EVALUATED_ROWS)
        offset = np.concatenate([rows.evaluate(start, stop).offset for start, stop in spans])
    return replace(first, values=Source([rows], "X"), offset=offset)
