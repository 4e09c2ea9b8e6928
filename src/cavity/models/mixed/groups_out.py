"""Leave-one-group-out: the evidence of the rows of one level under the posterior without their sites."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.public_objects import ArrayLike, Data, FloatArray
from cavity.ep.engine import Engine
from cavity.ep.latent import Latent
from cavity.ep.options import Options
from cavity.ep.sparse import Pattern, Sparse
from cavity.models.approximation_check import check_same_rows
from cavity.models.mixed.effects import Effects
from cavity.models.mixed.equal_rows import merge_equal_rows
from cavity.runs.executors import Threads, single_blas
from cavity.terms.levels import Levels

OF_ROWS = "of the rows of one fit: an update has none, nor has a response of fit_many, but a fit of it alone"


class LeavesGroupsOut:
    """Base of posteriors of mixed models that leave out all rows of a level at once."""

    __slots__ = ()

    def leave_group_out(
        self,
        group: str,
        X: Data,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FloatArray:
        """Return log p(the rows of a level | all other rows) for each level of a group.

        The sites of the rows of a level are removed, those of all others stay as they are, and EP over the rows of the
        level alone, with power=1, finds their evidence under the remaining posterior, whatever the power of the fit:
        `loo_log_density` for many rows together. The
        hyperparameters stay; where they are integrated, densities p_k at the points of weights w_k, which take a fit
        each, are averaged by 1/p = sum_k w_k/p_k, as those of `loo_log_density` are.

        Parameters
        ----------
        group : str
            Name of a group, as "herd"; that of `terms` without effects, or of a structured term by group.
        X : data frame or array_like (N, D)
            The rows of the fit once more.
        y : array_like (N,) or str, optional
            Observations in the form of the likelihood; a formula names them.
        groups : dict of columns (N,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out. By default the weights of the fit.

        Returns
        -------
        ndarray (levels,)
            Of the levels in the order of `effects`; 0 of a level all of whose rows have weight 0.

        Raises
        ------
        ValueError
            For a group that is not there, or rows that are not those of the fit; after `update`. If the
            posterior without the sites of a level is improper, as it may be where sites of outliers under StudentT have
            negative precisions, or if EP over its rows fails, naming the level and the reason; if EP at a point fails.
        """
        if not isinstance(group, str):
            message = f"must be the name of a group, the rows come after it; got {type(group).__name__}"
            raise arrays.error_of("group", message, TypeError)
        names, built_terms = [term.group for term in self._reader.terms], self._reader.structured
        levels = {getattr(built, "group", None): getattr(built, "levels", None) for built in built_terms}
        levels = {name: of_group for name, of_group in levels.items() if isinstance(of_group, Levels)}
        levels |= {term.group: term.levels for term in self._reader.terms}
        if not levels:
            raise arrays.error_of("group", f"must be a group of the model, which has none, got {group!r}")
        arrays.check_choice(group, "group", tuple(levels))
        if self._tau is None:
            raise ValueError(f"leaving groups out needs the sites {OF_ROWS}")
        weights = self._row_weights if sample_weight is None else sample_weight
        rows, values, table = self._observed_rows(X, y, groups, offset, exposure, weights)
        check_same_rows(self, rows)
        matrix = self._layout.rows(rows.X, values)
        codes = values[names.index(group)][0] if group in names else levels[group].codes(table)
        others = rows, matrix, codes, levels[group]
        densities = [group_log_densities(*point, *others) for point in self._fit_points(rows, matrix)]
        if len(densities) == 1:
            return densities[0]
        return -special.logsumexp(-np.stack(densities), axis=0, b=self.integration.weights[:, None])

    def _fit_points(self, rows, matrix):
        """Yield the likelihood, the effects and the sites, tau and rho (N,), at the points of the integral."""
        likelihood, mode, layout, mask = self.model.likelihood, self._mode_effects, self._layout, rows.in_use
        if not self._integrated_names:
            yield likelihood, mode, self._tau, self._rho
            return
        merged = merge_equal_rows(likelihood, rows.used(), matrix[mask])
        pattern = Pattern(merged.matrix, *layout.entries(), mode.order)
        start, mean = merged.gather(self._tau[mask], self._rho[mask]), np.zeros(layout.size)
        mean[: layout.n_fixed] = self.model.prior_mean
        precisions = [layout.precision(self.model.prior_variance, setting) for _, setting in self._weighted_settings]
        for number, (likelihood, precision) in enumerate(zip(self._point_likelihoods, precisions, strict=True)):
            with Threads(1) as threads, single_blas():
                geometry = Sparse(pattern, mean, precision, merged.rows.offset, threads)
                fit = Engine(geometry, merged.make_sites(likelihood), Options.checked(), start).run()
            if fit.status != CONVERGED_STATUS:
                raise ValueError(f"EP at point {number} of the integral ended with: {fit.status}")
            by_row = merged.expand(fit, likelihood)
            sites = rows.scattered(by_row.tau, 0.0), rows.scattered(by_row.rho, 0.0)
            yield likelihood, Effects.of(geometry, fit.belief), *sites


def group_log_densities(likelihood, effects, tau, rho, rows, matrix, codes, levels):
    """Return log p(rows of a level | all other rows) of each level, 0 where none of its rows is in use.

    `tau` and `rho` (N,) are the sites of all rows, `matrix` (N, n) their effects, `codes` (N,) the numbers of their
    levels. ValueError names a level without which the posterior is improper, or for which EP fails.
    """
    densities, order = np.zeros(len(levels)), np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(levels) + 1))
    with Threads(1) as threads, single_blas():
        for level, name in enumerate(levels.names):
            rows_of_level = order[ends[level] : ends[level + 1]]
            rows_of_level = rows_of_level[rows.in_use[rows_of_level]]
            if not len(rows_of_level):
                continue
            sites = tau[rows_of_level], rho[rows_of_level]
            try:
                densities[level] = _log_evidence(
                    likelihood, effects, *sites, rows.part(rows_of_level), matrix[rows_of_level], threads
                )
            except ArithmeticError as error:
                raise ValueError(
                    f"level {name!r} of {levels.group!r} has no log density given all other rows: {error}; the rows of "
                    "the other levels have to be fitted alone for that"
                ) from error
    return densities


def _log_evidence(likelihood, effects, tau, rho, rows, matrix, threads):
    """The log evidence of some rows under q without their sites, N(m, (K^-1 - R)^-1) of their f; ArithmeticError if
    that is improper, or EP fails.
    """
    merged = merge_equal_rows(likelihood, rows, matrix)
    rows, matrix, (tau, rho) = merged.rows, merged.matrix, merged.gather(tau, rho)
    values, vectors = np.linalg.eigh(effects.cross(matrix))
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # K = C C'
    inner = np.eye(len(tau)) - root.T @ (rho[:, None] * root)  # (K^-1 - R)^-1 = C (I - C'R C)^-1 C'
    if not np.linalg.eigvalsh(inner)[0] > 0:
        raise ArithmeticError("without its rows the approximation is improper")
    covariance = root @ np.linalg.solve(inner, root.T)
    mean = matrix @ effects.mean + (0.0 if rows.offset is None else rows.offset)
    mean += covariance @ (rho * mean - tau)
    geometry = Latent(np.ascontiguousarray(0.5 * (covariance + covariance.T)), mean, threads)
    fit = Engine(geometry, merged.make_sites(likelihood), Options.checked()).run()
    if fit.status != CONVERGED_STATUS:
        raise ArithmeticError(f"EP over its rows ended with: {fit.status}")
    return merged.correct(fit, likelihood).log_evidence
