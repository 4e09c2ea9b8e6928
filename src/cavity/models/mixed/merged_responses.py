"""Equal rows of many responses: which responses have the same ones, and the sites of these; see `equal_rows`."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base.rows import Rows
from cavity.models.mixed.equal_rows import SiteRows, find_first_equal, join_rows, merge_equal_rows


@dataclass(frozen=True, slots=True, eq=False)
class MergedResponses:
    """The sites of responses (A, N) of which the same rows are equal.

    Attributes
    ----------
    firsts : ndarray (M,)
        The number of a row of each site.
    shared : SiteRows
        Of the first response: what does not depend on the observations is that of all.
    joined : MeanSites or TrialSites
        What equal rows are together, in all responses.
    """

    firsts: np.ndarray
    shared: SiteRows
    joined: Any

    @property
    def signs(self):
        """-1 where f of a site is that of its first row times -1, (M,)."""
        return self.shared.signs[self.shared.firsts]


@dataclass(frozen=True, slots=True, eq=False)
class RowMerger:
    """The rule by which rows of a response are one site.

    Attributes
    ----------
    likelihood : Likelihood
        With values for its open parameters or without.
    rows : Rows
        X and weights count.
    matrix : CSR array (N, n)
        All effects.
    """

    likelihood: Any
    rows: Rows
    matrix: Any

    def split(self, y, offset, observed):
        """Yield (numbers, `MergedResponses` or None where each row is a site) for groups of checked responses.

        Those with lists of factors, which no kernel has, are left out.
        """
        may_merge = self._find_merging(offset, observed)
        if not may_merge.all():
            yield np.flatnonzero(~may_merge), None
        numbers = np.flatnonzero(may_merge)
        keys = [observed, offset] if y.ndim == 2 else [observed, offset, y[..., 1] > 0]
        groups = np.unique(np.hstack(keys)[numbers], axis=0, return_inverse=True)[1].ravel()
        for k in range(np.max(groups, initial=-1) + 1):
            members = numbers[groups == k]
            first, rows = members[0], np.flatnonzero(observed[members[0]])
            part = replace(self.rows, y=y[first], offset=offset[first]).part(rows)
            shared = merge_equal_rows(self.likelihood, part, self.matrix[rows])
            if shared.merged is None:
                yield members, None
            if shared.merged is None or self.likelihood._merges_by == "factors":
                continue
            merged, signs = shared.merged.merged, shared.signs
            joined = join_rows(self.likelihood, replace(merged, y=y[members][:, rows]), signs)
            yield members, MergedResponses(rows[shared.firsts], shared, joined)

    def _find_merging(self, offset, observed):
        """Return which responses may have rows that are one site, (B,)."""
        n, kind = self.rows.n, self.likelihood._merges_by
        weights = np.broadcast_to(self.rows.weight(), (n,))
        if kind is None:
            return np.zeros(len(offset), dtype=bool)
        if kind != "factors" and np.any((weights > 1) & (weights == np.floor(weights))):
            return np.ones(len(offset), dtype=bool)  # copies of a row are one site
        signs = np.sign(self.matrix.data[self.matrix.indptr[:-1]]) if kind == "trials" else np.ones(n)
        alike = find_first_equal(self.matrix, np.zeros(n), signs, np.ones(n, dtype=bool))
        values = signs * offset + 0.0
        order = np.lexsort((values, np.broadcast_to(alike, offset.shape), ~observed), axis=1)
        alike, values, counts = alike[order], *(np.take_along_axis(a, order, axis=1) for a in (values, observed))
        same = (alike[:, 1:] == alike[:, :-1]) & (values[:, 1:] == values[:, :-1])
        return np.any(same & counts[:, 1:], axis=1)
