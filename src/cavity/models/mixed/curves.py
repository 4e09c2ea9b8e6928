"""Structured terms of a mixed model after a fit: degrees of freedom, curves with bands, differences, derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cavity.base import arrays, summary
from cavity.base.lazy_scipy import sparse, special
from cavity.base.public_objects import FloatArray, Seed
from cavity.models.formula.columns import column_names, get_column
from cavity.models.mixed.effect_layout import StructuredBlock
from cavity.models.mixed.structured_rows import design_rows

MAX_USED_SHARE = 0.8  # of the degrees of freedom of a smooth, above which more knots are advised


class StructuredCurves:
    """Base of posteriors with structured terms; subclasses have `_effects`, `_layout`, `_settings` and ``_reader``."""

    __slots__ = ()

    @property
    def structured_terms(self) -> tuple[str, ...]:
        """Names of the structured terms: smooths, walks and others, as formulas have them."""
        return tuple(term.name for term in self._reader.structured)

    def _find_structured(self, term):
        """The built term of a name, its effects, a slice, and its setting."""
        arrays.check_choice(term, "term", self.structured_terms)
        number = self.structured_terms.index(term)
        index = len(self._reader.terms) + number
        return self._reader.structured[number], self._layout.part(index), self._settings[index]

    def term_summary(self) -> summary.Table:
        """Return how much of each structured term the data have determined.

        Returns
        -------
        Table
            Of each term "edf", the effective degrees of freedom: the number of its effects beside constraints, less the
            trace of its prior precision times its posterior covariance. Lines and other fixed effects of a term are not
            among them; mgcv counts one for the line of a smooth. "of" is the largest edf can be, and columns after it
            have the values of the parameters of the prior. A note names terms that use more than 0.8 of it, for which
            more knots may give another curve, if the column has values for them.
        """
        names, rows, advised = [], [], []
        parameters = dict.fromkeys(p.name for term in self._reader.structured for p in term.prior.parameters)
        rows_of, columns_of = self._layout.entries()
        for term in self._reader.structured:
            _, part, setting = self._find_structured(term.name)
            block = StructuredBlock(term.size, term.prior)
            is_inside = (columns_of >= part.start) & (columns_of < part.stop)
            entries = block.precision(setting)[0]
            most = term.size - (0 if term.prior.constraints is None else len(term.prior.constraints))
            edf = most - self._mode_effects.trace_with(rows_of[is_inside], columns_of[is_inside], entries)
            values = {p.name: value for p, value in zip(term.prior.parameters, setting, strict=True)}
            names.append(term.name)
            rows.append([edf, float(most), *(values.get(name, np.nan) for name in parameters)])
            if term.has_knots and not term.is_full and edf > MAX_USED_SHARE * most:
                advised.append(f"{term.name} uses {edf:.1f} of {most} degrees of freedom: try a larger k")
        columns = dict(
            zip(("edf", "of", *parameters), np.reshape(rows, (len(rows), 2 + len(parameters))).T, strict=True)
        )
        formats = {"edf": 2} | dict.fromkeys(parameters, summary.FOUR_FIGURES)
        return summary.Table("Structured terms", tuple(names), columns, formats, tuple(advised))

    def curve(
        self,
        term: str,
        at: Any = None,
        *,
        reference: Mapping[str, Any] | None = None,
        derivative: bool | str = False,
        level: float = 0.95,
        n_points: int = 100,
    ) -> summary.Table:
        """Return the values of a structured term with bands.

        Parameters
        ----------
        term : str
            Its name, one of `structured_terms`.
        at : dict of columns, or data frame, optional
            Where: values of the columns that the term reads, numbers for one that does not change. By default a grid
            over the range, for each level of a factor or group, or all states of a walk.
        reference : dict, optional
            A point with which all are compared: the result are differences to the value there. Their sd is exact, but
            too large for two times between the same states, or beyond the same end, of ``matern``.
        derivative : bool or str, default False
            Whether to return the derivative in the variable of a smooth, per unit of it; of a surface, the name of the
            variable.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        n_points : int, default 100
            Number of points of the grid, for each level; of a surface about so many in all.

        Returns
        -------
        Table
            The columns of the term, and mean, sd and interval of its part of f: the effects and the fixed effects of
            the term, as "s(x) slope", whose column is 0 in the middle of the range. A slope that is an effect of its
            own in the formula, as in ``x + s(x)``, is not part of the term.

        Raises
        ------
        ValueError
            For a term that is not there, columns that are missing, and derivatives of terms that have none.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> x = np.linspace(0.0, 1.0, 100)
        >>> y = np.sin(6.0 * x) + 0.1 * np.random.default_rng(0).normal(size=100)
        >>> posterior = cavity.MixedGLM("y ~ s(x)").fit({"x": x, "y": y})
        >>> table = posterior.curve("s(x)", {"x": [0.25, 0.75]}, reference={"x": 0.5})
        >>> table.columns["mean"].round(1).tolist()
        [0.8, -1.2]
        """
        level = arrays.check_number(level, "level", low=0.0, high=1.0)
        built, table, rows, extra = self._curve_rows(term, at, reference, derivative, n_points)
        mean, variance = self._effects.predict(rows)
        sd = np.sqrt(variance + extra)
        low, high = (mean + sign * special.ndtri(0.5 + 0.5 * level) * sd for sign in (-1.0, 1.0))
        columns = {str(name): np.asarray(values) for name, values in table.items()}
        tails = summary.interval_names(level)
        columns |= {"mean": mean, "sd": sd, tails[0]: low, tails[1]: high}
        noun = "Values" if reference is None else "Differences"
        if derivative:
            noun = "Derivative" if reference is None else "Differences of the derivative"
        names = tuple(str(i) for i in range(len(mean)))
        return summary.Table(f"{noun} of {built.name}", names, columns, dict.fromkeys(("mean", "sd", *tails), "sd"))

    def sample_curve(self, term: str, n: int, rng: Seed, at: Any = None) -> FloatArray:
        """Draw whole curves of a structured term from the posterior.

        Parameters
        ----------
        term : str
            Its name, one of `structured_terms`.
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.
        at : dict of columns, or data frame, optional
            Where: values of the columns that the term reads, numbers for one that does not change. By default a grid
            over the range, for each level of a factor or group, or all states of a walk.

        Returns
        -------
        ndarray (n, m)
            Values at the m points; what is beyond the range of a smooth has its line.
        """
        _, _, rows, _ = self._curve_rows(term, at, None, False, 100)
        draws = self._effects.sample(arrays.check_integer(n, "n", low=0), arrays.make_generator(rng))
        return (rows @ draws.T).T

    def _curve_rows(self, term, at, reference, derivative, n):
        """The built term, its table, and for each point a row of all effects and the variance beside it."""
        built, part, setting = self._find_structured(term)
        table = built.grid(arrays.check_integer(n, "n_points", low=2)) if at is None else _read_points(built, at, "at")
        column = _find_derivative_column(built, derivative)

        def make_rows(points):
            if column is not None:
                return self._extend(*built.derivative_design(points, column), built, part)
            return self._extend(design_rows(built, points, values=setting), built.fixed_columns(points), built, part)

        find_variance = built.extra_variance if column is None else built.derivative_variance
        free = StructuredBlock(built.size, built.prior).free(setting)
        rows, extra = make_rows(table), find_variance(table, free)
        extra = 0.0 if extra is None else extra
        if reference is not None:
            origin = _read_points(built, reference, "reference")
            base, beyond = make_rows(origin), find_variance(origin, free)
            if beyond is not None:
                shared = built.extra_covariance(table, origin, free, column is not None)
                differs = [np.asarray(table[name]) != np.asarray(values)[0] for name, values in origin.items()]
                total = extra + beyond[0] - (0.0 if shared is None else 2.0 * shared)
                extra = np.where(np.any(differs, axis=0), np.maximum(total, 0.0), 0.0)
            rows = sparse.csr_array(rows - sparse.csr_array(np.ones((rows.shape[0], 1))) @ base[[0]])
            rows.eliminate_zeros()
        return built, table, rows, extra

    def _leave_out(self, rows, terms):
        """Rows of all effects (M, n) without those of some terms, and the fixed effects that belong to them."""
        if not terms:
            return rows
        keep, first = np.ones(self._layout.size), len(self.mean) - len(self._reader.null_names)
        for name in terms:
            index = (*self.terms, *self.structured_terms).index(name)
            keep[self._layout.part(index)] = 0.0
            if name in self.structured_terms:
                built = self._find_structured(name)[0]
                own = [first + j for j, name in enumerate(self._reader.null_names) if name.startswith(built.name)]
                keep[own] = 0.0
        rows = sparse.csr_array(rows @ sparse.diags_array(keep))
        rows.eliminate_zeros()
        return rows

    def _extend(self, Z, fixed, built, part):
        """Rows of all effects from those of a term and its fixed columns, by their names."""
        names, d = self._reader.null_names, len(self.mean)
        first = d - len(names)
        X = np.zeros((Z.shape[0], d))
        for name, values in fixed.items():
            if name in names:
                j = first + names.index(name)
                spread = self._reader.spread
                X[:, j] = values if spread is None else values / spread[j - self._reader.intercept]
        size = self._layout.size
        left, right = sparse.csr_array((len(X), part.start - d)), sparse.csr_array((len(X), size - part.stop))
        return sparse.csr_array(sparse.hstack([sparse.csr_array(X), left, Z, right], format="csr"))


def _find_derivative_column(built, derivative):
    """The variable in which a derivative is taken, None for values; ValueError or TypeError for what has none."""
    columns = {str(column): column for column in built.derivative_variables}
    if not isinstance(derivative, str) and not arrays.check_flag(derivative, "derivative"):
        return None
    if not columns:
        raise arrays.error_of("derivative", f"must be False, as {built.name} has no derivative, got {derivative!r}")
    if isinstance(derivative, str) or len(columns) > 1:
        return columns[arrays.check_choice(derivative, "derivative", tuple(columns))]
    return built.derivative_variables[0]


def _read_points(built, points, argument):
    """The columns of a term from those of a user, numbers broadcast."""
    available = column_names(points)
    if available is None:
        message = f"must be a dict or data frame with the columns of {built.name}, got {type(points).__name__}"
        raise arrays.error_of(argument, message, TypeError)
    names = built.variables
    if any(str(name) not in available for name in names):
        names = built.point_variables
    missing = [name for name in names if str(name) not in available]
    if missing:
        raise arrays.error_of(argument, f"must have the columns of {built.name}: {missing[0]!r} missing")
    keys = {name: name if isinstance(points, Mapping) and name in points else str(name) for name in names}
    values = {name: get_column(points, key) for name, key in keys.items()}
    length = max((len(value) for value in values.values() if np.ndim(value)), default=1)
    return {
        name: value if np.ndim(value) else np.array([value] * length, dtype=object if isinstance(value, str) else None)
        for name, value in values.items()
    }
