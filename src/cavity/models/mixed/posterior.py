"""The posterior of a mixed model: effects, variance components, predictions, what leaving rows or groups out says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cavity import likelihoods
from cavity.base import arrays, summary
from cavity.base.errors import within_range
from cavity.base.frames import coefficient_names, some
from cavity.base.labels import recoded
from cavity.base.loop import CONVERGED
from cavity.base.results import counted, drawn, name_lines, short, table
from cavity.base.rows import Rows, with_exposure
from cavity.base.types import ArrayLike, Data, FloatArray, Seed
from cavity.distributions.gaussian import Gaussian
from cavity.ep.options import Options
from cavity.models.coefficients import Coefficients
from cavity.models.latent import LatentPosterior, log_density
from cavity.models.learnt import Learnt
from cavity.models.leave_one_out import LeavesOneOut
from cavity.models.mixed.effects import Effects
from cavity.models.mixed.given import Reader
from cavity.models.mixed.groups_out import group_log_densities
from cavity.models.mixed.layout import Layout
from cavity.models.mixed.learn import component_names
from cavity.models.mixed.saved import RECORD
from cavity.models.mixed.solution import updated

if TYPE_CHECKING:
    from cavity.models.mixed.model import MixedGLM


def posterior_of(solution, reader, **labels):
    """Return the posterior of a solution; new rows are read by the `Reader`."""
    problem, fit, effects = solution.problem, solution.fit, solution.effects
    rows, d = problem.rows, problem.layout.n_fixed
    loo = rows.scattered(fit.loo, np.nan)
    if rows.left_out.any():
        out = rows.part(rows.left_out)
        values = [(term.codes[rows.left_out], term.Z[rows.left_out]) for term in problem.terms]
        offset = np.zeros(out.n) if out.offset is None else out.offset
        moments = effects.predict(problem.layout.rows(out.X, values), offset)
        loo[rows.left_out] = log_density(problem.model.likelihood, out.y, *moments)
    names = [term.name for term in problem.terms]
    covariances = {name: arrays.read_only(each) for name, each in zip(names, problem.covariances, strict=True)}
    status = fit.status if solution.searched == CONVERGED or not fit.converged else solution.searched
    return MixedGLMPosterior(
        model=replace(problem.model, covariances=covariances),
        mean=effects.mean[:d],
        variance=effects.variance[:d],
        covariance=effects.covariance(np.arange(d)),
        log_evidence=fit.log_evidence,
        converged=status == CONVERGED,
        n_iter=fit.n_iter,
        status=status,
        residual=fit.residual,
        n_samples=rows.n,
        effective_parameters=fit.belief.trace,
        trace=fit.trace,
        learnt=solution.learnt,
        has_offset=rows.has_offset,
        _effects=effects,
        _reader=reader,
        _loo=loo,
        _tau=rows.scattered(fit.tau, 0.0),
        _rho=rows.scattered(fit.rho, 0.0),
        _influence=rows.scattered(fit.influence, 0.0),
        **labels,
    )


@dataclass(frozen=True, eq=False, repr=False)
class MixedGLMPosterior(Coefficients, LeavesOneOut, LatentPosterior):
    """The approximate posterior of all effects of a `MixedGLM`.

    Attributes
    ----------
    model : MixedGLM
        The settings in numbers, those that were learnt or left to the data included: `covariances` of all terms.
    mean, variance : ndarray (D,)
        Posterior moments of the fixed effects.
    covariance : ndarray (D, D)
        Their posterior covariance, the uncertainty of the random effects taken into account.
    log_evidence : float
        EP's estimate of log p(y | X) at these covariances, fixed and random effects integrated out, all constants
        included; exact for Gaussian noise.
    converged : bool
        Whether the stopping rules of `MixedGLM.fit` were met.
    n_iter : int
        Passes and steps of the double loop of the last fit.
    status : str
        Why the iteration ended.
    residual : float
        How far the sites are from their fixed point, as of `GLMPosterior`.
    n_samples : int
        Rows seen, those of updates included.
    effective_parameters : float
        How many of all effects the data have determined: the trace of X'RX times the posterior covariance, R the
        precisions of the sites.
    trace : dict of ndarray
        "change" and "improper" for every pass of the last fit, "double_loop" the number of its steps, "learning" the
        log evidence plus log prior of every fixed point on the way of the search, and "seconds" when it was known,
        since the search began. Files do not keep the last two.
    learnt : Learnt or None
        Standard deviations, correlations and parameters of the likelihood that maximise the log evidence, with standard
        errors from its curvature; see `variance_components`.
    classes, has_offset, chosen
        As of `GLMPosterior`.
    """

    model: MixedGLM
    mean: FloatArray
    variance: FloatArray
    covariance: FloatArray
    log_evidence: float
    converged: bool
    n_iter: int
    status: str
    residual: float
    n_samples: int
    effective_parameters: float
    trace: dict[str, Any]
    _effects: Effects
    _reader: Reader
    _loo: FloatArray | None
    _tau: FloatArray | None
    _rho: FloatArray | None
    _influence: FloatArray | None
    learnt: Learnt | Any = None
    classes: tuple[Any, ...] | None = None
    has_offset: bool = False
    chosen: tuple[Any, ...] | None = None

    kind: ClassVar[str] = "mixed"
    record: ClassVar[Any] = RECORD

    def __repr__(self) -> str:
        done = "converged" if self.converged else f"NOT CONVERGED: {self.status}"
        lines = [("likelihood", short(self.model.likelihood))]
        for term in self._reader.terms:
            sd = np.sqrt(np.diagonal(self.model.covariances[term.name]))
            each = ", ".join(f"{value:.4g}" for value in sd)
            lines.append((term.name, f"{counted(len(term.levels), 'level')}, sd {each}"))
        return table(
            f"MixedGLMPosterior: {type(self.model.likelihood).__name__}, {counted(len(self.mean), 'fixed effect')}, "
            f"{self._layout.size - len(self.mean)} random effects, {self.n_samples} rows",
            [
                *lines,
                *name_lines(self),
                ("log_evidence", f"{self.log_evidence:.6f}"),
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(self.sd, precision=4, threshold=8)),
                ("fit", f"EP, {done}, {counted(self.n_iter, 'pass')}"),
            ],
        )

    # ------------------------------------------------------------------------------------------ effects

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the fixed effects, (D,): "intercept" for that of an added column of ones, then those of X."""
        return coefficient_names(self.columns, len(self.mean), self._reader.intercept)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns of X, if it had any: those that a formula makes, or those of a data frame."""
        return self._reader.columns

    @property
    def roles(self) -> dict[str, Any] | None:
        """Names of the columns that were y, groups, ..., by these words, where they were given by name."""
        return self._reader.roles

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms of random effects: the group, or "1 + x | group" where there are more than intercepts."""
        return tuple(term.name for term in self._reader.terms)

    @property
    def _layout(self):
        """Where effects stand."""
        return Layout(len(self.mean), tuple(term.shape for term in self._reader.terms))

    def _number(self, term):
        """The number of a term by its name."""
        return self.terms.index(arrays.choice(term, "term", self.terms))

    def effects(self, term: str, level: float = 0.95) -> summary.Table:
        """Return the random effects of a term as a table: one row for each level and column.

        Parameters
        ----------
        term : str
            Its name, one of `terms`.
        level : float in (0, 1), default 0.95
            Probability of the intervals.

        Returns
        -------
        Table
            Mean, sd, interval and P(>0); ``effects(term).to_frame()`` is a data frame.

        Raises
        ------
        ValueError
            For a term that is not there, naming those that are.
        """
        part = self._layout.part(self._number(term))
        columns, levels = self.effect_names(term)
        ends = columns if len(columns) > 1 else ("",)
        names = tuple(f"{level} {end}".rstrip() for level in levels for end in ends)
        mean, sd = self._effects.mean[part], np.sqrt(self._effects.variance[part])
        return summary.summarized(f"Effects of {term}", summary.gaussian(names, mean, sd), level)

    def effect_names(self, term: str) -> tuple[tuple[str, ...], list[str]]:
        """Return what the effects of a term are called.

        Parameters
        ----------
        term : str
            Its name, one of `terms`.

        Returns
        -------
        columns : tuple of str
            What the k effects of a level are coefficients of; "intercept" of the constant.
        levels : list of str
            The levels, those of several columns joined by ":".
        """
        found = self._reader.terms[self._number(term)]
        return found.columns, found.levels.names

    def plot(self, title: str | None = None) -> Any:
        """Draw the fixed effects, and those of each term from the smallest to the largest; needs the plot extra.

        Parameters
        ----------
        title : str, optional
            What the data are.

        Returns
        -------
        matplotlib.figure.Figure
            To be saved with ``savefig``.
        """
        return drawn("mixed_figure", self, title)

    def effect_moments(self, term: str) -> tuple[FloatArray, FloatArray]:
        """Return the posterior means and variances of the effects of a term.

        Parameters
        ----------
        term : str
            Its name, one of `terms`.

        Returns
        -------
        mean, variance : ndarray (levels, k)
            Of the levels in the order of `effects`, and of the k columns of the term.
        """
        number = self._number(term)
        part, shape = self._layout.part(number), self._layout.shapes[number]
        return self._effects.mean[part].reshape(shape), self._effects.variance[part].reshape(shape)

    def _place(self, key):
        """The place of an effect: the name of a fixed one, or (term, level) or (term, level, column)."""
        if isinstance(key, str):
            return self.coefficient_names.index(arrays.choice(key, "effect", self.coefficient_names))
        if not (isinstance(key, tuple) and len(key) in (2, 3)):
            words = f"must be the name of a fixed effect, (term, level) or (term, level, column), got {key!r}"
            raise arrays.wrong("effect", words, TypeError)
        number = self._number(key[0])
        term, k = self._reader.terms[number], 0
        if len(key) == 3:
            k = term.columns.index(arrays.choice(key[2], "column", term.columns))
        elif len(term.columns) > 1:
            raise arrays.wrong("effect", f"must say which of {some(term.columns)} of the term is meant, got {key!r}")
        return self._layout.starts[number] + term.levels.number(key[1]) * len(term.columns) + k

    def joint(self, effects: Any) -> tuple[FloatArray, FloatArray]:
        """Return the joint moments of some effects.

        Parameters
        ----------
        effects : sequence of str or tuple
            Names of fixed effects, and (term, level) or (term, level, column) of random ones.

        Returns
        -------
        mean : ndarray (m,)
            Posterior means.
        covariance : ndarray (m, m)
            Their joint posterior covariance.

        Raises
        ------
        ValueError, TypeError
            For an effect that is not there.
        """
        index = np.array([self._place(each) for each in effects], dtype=np.intp)
        return self._effects.mean[index], self._effects.covariance(index)

    def contrast(self, weights: Mapping[Any, float]) -> Gaussian:
        """Return the posterior of a linear combination of effects, as the difference of two levels.

        Parameters
        ----------
        weights : dict of float
            Weights of effects, which are named as in `joint`.

        Returns
        -------
        Gaussian
            With `mean` and `variance`.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> group = np.repeat(["a", "b"], 4)
        >>> model = cavity.MixedGLM("g", "gaussian", covariances={"g": 1.0})
        >>> posterior = model.fit(np.ones((8, 1)), [1.0, 1.2, 0.8, 1.1, 2.0, 2.1, 1.8, 2.2], groups={"g": group})
        >>> difference = posterior.contrast({("g", "b"): 1.0, ("g", "a"): -1.0})
        >>> round(float(difference.mean), 2), round(float(difference.variance), 3)
        (0.99, 0.014)
        """
        if not isinstance(weights, Mapping) or not weights:
            raise arrays.wrong("weights", f"must be a dict of weights by effects, got {weights!r}", TypeError)
        mean, covariance = self.joint(weights)
        values = np.array([arrays.number(each, "weights") for each in weights.values()])
        return Gaussian(mean=float(values @ mean), variance=float(values @ covariance @ values))

    def variance_components(self) -> summary.Table:
        """Return standard deviations and correlations of random effects, and parameters of the likelihood.

        Returns
        -------
        Table
            The values, and the standard errors of the logs of standard deviations, and of correlations and other
            parameters themselves, from the curvature of the log evidence; none of what was given.
        """
        names, values, errors = [], [], []
        learnt = {} if self.learnt is None else dict(zip(self.learnt.names, self.learnt.sd, strict=True))
        for term in self._reader.terms:
            covariance = np.atleast_2d(self.model.covariances[term.name])
            sd = np.sqrt(np.diagonal(covariance))
            below = np.tril_indices(len(sd), -1)
            found = [*sd, *(covariance / sd / sd[:, None])[below]]
            for name, value in zip(component_names(term), found, strict=True):
                error = learnt.get(name)
                names.append(name)
                values.append(value)
                errors.append(np.nan if error is None else error / value if name.startswith("sd(") else error)
        for name in learnt:
            if name not in names:
                names.append(name)
                values.append(self.learnt.values[self.learnt.names.index(name)])
                errors.append(np.nan if learnt[name] is None else learnt[name])
        columns = {"value": np.array(values), "standard error": np.array(errors)}
        notes = ("standard errors of sds are those of their logs",)
        return summary.Table("Variance components", tuple(names), columns, {}, notes)

    def _below(self, level):
        return self.variance_components()

    # ------------------------------------------------------------------------------------------ rows

    @property
    def loo_log_density(self) -> FloatArray:
        """log p(y_i | the other rows) for every row, (N,): free with EP, from the cavities.

        Raises
        ------
        ValueError
            After `update`, or if a cavity without a row is improper, naming the row.
        """
        if self._loo is None:
            raise ValueError("leave-one-out densities are of the rows of one fit: an update has none")
        return self._proper_loo()

    def _influences(self):
        if isinstance(self.model.likelihood, likelihoods.Gaussian):
            return self._influence, None
        return self._influence, self.effective_parameters

    @property
    def sites(self) -> Gaussian:
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        if self._tau is None:
            raise ValueError("sites are of the rows of one fit: an update has none")
        return Gaussian(self._tau, self._rho)

    def rows(self, X: Data, groups: Any = None, levels: str = "known") -> NewRows:
        """Return new rows with their groups, as one thing that all methods take as X.

        Parameters
        ----------
        X : data frame or array_like (n, D)
            As in the fit.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new"}, default "known"
            Whether every level must be one of the fit; effects of "new" ones are drawn from their prior, for each row
            anew.

        Returns
        -------
        NewRows
            For `predict`, `predict_proba`, `log_density`, `quantile`, `sample_y` and `expected`.
        """
        return NewRows(X, groups, arrays.choice(levels, "levels", ("known", "new")))

    def predict(
        self,
        X: Data | NewRows,
        *,
        groups: Any = None,
        levels: str = "known",
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise: bool = False,
        trials: ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent value f of new rows, or a new observation y: mean and variance.

        Parameters
        ----------
        X : data frame or array_like (n, D)
            Rows, as in the fit; or `rows`.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new"}, default "known"
            Whether every level must be one of the fit; effects of "new" ones are drawn from their prior.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to.
        noise : bool, default False
            Whether to predict a new observation y instead of f.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation; by default 1.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f, or of y, under the posterior.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for levels that the fit had not, naming them, unless levels="new".
        """
        rows = X if isinstance(X, NewRows) else self.rows(X, groups, levels)
        return self._observed(rows.X, self._latent(rows, offset, exposure), noise, trials)

    def _read(self, X, **others):
        """Rows of all effects as CSR, variances of new levels, and other arguments by their names."""
        rows = X if isinstance(X, NewRows) else NewRows(X)
        fixed, values, others = self._reader.read(rows.X, rows.groups, rows.levels, others)
        extra = np.zeros(len(fixed))
        for term, (codes, Z) in zip(self._reader.terms, values, strict=True):
            new = codes < 0
            covariance = np.atleast_2d(self.model.covariances[term.name])
            extra[new] += np.einsum("ij,jk,ik->i", Z[new], covariance, Z[new])
        return self._layout.rows(fixed, values), extra, others

    def _latent(self, X, offset, exposure):
        rows, extra, others = self._read(X, offset=offset, exposure=exposure)
        known = self._known_part(others["offset"], others["exposure"], len(extra))
        mean, variance = self._effects.predict(rows, np.zeros(len(extra)) if known is None else known)
        return mean, variance + extra

    def _drawn(self, X, n, rng, offset, exposure):
        rows, extra, others = self._read(X, offset=offset, exposure=exposure)
        known = self._known_part(others["offset"], others["exposure"], len(extra))
        f = (rows @ self._effects.sample(n, rng).T).T + rng.standard_normal((n, len(extra))) * np.sqrt(extra)
        return within_range(f if known is None else f + known, "sample_y: the draws of f")

    def _taken(self, X, offset, exposure):
        raise NotImplementedError  # rows come with groups: see _read

    def log_density(
        self,
        X: Data | NewRows,
        y: ArrayLike | None = None,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> FloatArray:
        """Log predictive density of new observations, integrated over the posterior.

        Parameters
        ----------
        X : data frame, array_like (n, D) or NewRows
            Rows, as in the fit.
        y : array_like (n,) or str, optional
            Observations; with a formula those it says.
        offset : float or array_like (n,), optional
            Known part of f; wanted where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to.

        Returns
        -------
        ndarray (n,)
            log p(y | x, data).
        """
        rows, extra, others = self._read(X, y=y, offset=offset, exposure=exposure)
        known = self._known_part(others["offset"], others["exposure"], len(extra))
        mean, variance = self._effects.predict(rows, np.zeros(len(extra)) if known is None else known)
        y = Rows.checked(self.model.likelihood, rows, recoded(others["y"], self.model.likelihood, self.classes)).y
        return log_density(self.model.likelihood, y, mean, variance + extra)

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw fixed effects from the posterior.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray (n, D)
            The draws.
        """
        n, rng = arrays.integer(n, "n", low=0), arrays.generator(rng)
        factor = arrays.cholesky(np.asarray(self.covariance), "covariance")
        return self.mean + rng.standard_normal((n, len(self.mean))) @ factor.T

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

        The sites of the rows of a level are taken away, those of all others stay as they are, and EP over the rows of
        the level alone finds their evidence under what is left: `loo_log_density` for many rows together. The
        covariances stay.

        Parameters
        ----------
        group : str
            Name of a group, as "herd"; that of `terms` without effects.
        X : data frame or array_like (N, D)
            The rows of the fit once more.
        y : array_like (N,) or str, optional
            Observations; a formula says what they are.
        groups : dict of columns (N,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        ndarray (levels,)
            Of the levels in the order of `effects`.

        Raises
        ------
        ValueError
            For a group that is not there, or rows that are not as many as those of the fit; after `update`.
        """
        names = tuple(dict.fromkeys(term.group for term in self._reader.terms))
        term = names.index(arrays.choice(group, "group", names))
        if self._tau is None:
            raise ValueError("leaving groups out needs the sites of the rows of one fit: an update has none")
        rows, values = self._observed_rows(X, y, groups, offset, exposure, sample_weight)
        if rows.n != self.n_samples:
            raise ValueError(f"X must hold the {self.n_samples} rows of the fit, got {rows.n}")
        number = next(i for i, each in enumerate(self._reader.terms) if each.group == names[term])
        matrix = self._layout.rows(rows.X, values)
        n_levels = len(self._reader.terms[number].levels)
        known = self.model.likelihood, self._effects, self._tau, self._rho
        return group_log_densities(*known, rows, matrix, values[number][0], n_levels)

    def _observed_rows(self, X, y, groups, offset, exposure, sample_weight):
        """Checked rows with observations, and (codes, Z) of each term."""
        given = {"y": y, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        fixed, values, found = self._reader.read(X, groups, "known", given)
        likelihood = self.model.likelihood
        known = with_exposure(likelihood, found["offset"], found["exposure"], fixed)
        y = recoded(found["y"], likelihood, self.classes)
        return Rows.checked(likelihood, fixed, y, known, found["sample_weight"]), values

    def update(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> MixedGLMPosterior:
        """Take in new rows by EP on top of what is known, at the same covariances and parameters of the likelihood.

        Parameters
        ----------
        X : data frame or array_like (n, D)
            New rows, of levels of the fit.
        y : array_like (n,) or str, optional
            Observations; a formula says what they are.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        offset : array_like (n,) or str, optional
            Known part of f.
        exposure : array_like (n,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        sample_weight : array_like (n,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        MixedGLMPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all rows. It has no sites and no
            leave-one-out densities.

        Raises
        ------
        ValueError
            For a level that the fit had not, naming it.
        """
        rows, values = self._observed_rows(X, y, groups, offset, exposure, sample_weight)
        matrix = self._layout.rows(rows.used().X, [tuple(each[rows.in_use] for each in pair) for pair in values])
        fit, effects = updated(self.model.likelihood, rows.used(), matrix, self._effects, Options.checked())
        fit.warn(Options.checked())
        d = len(self.mean)
        return replace(
            self,
            mean=effects.mean[:d],
            variance=effects.variance[:d],
            covariance=effects.covariance(np.arange(d)),
            log_evidence=self.log_evidence + fit.log_evidence,
            converged=self.converged and fit.converged,
            status=fit.status if self.converged else self.status,
            n_iter=fit.n_iter,
            residual=fit.residual,
            n_samples=self.n_samples + rows.n,
            effective_parameters=self.effective_parameters + fit.belief.trace,
            trace=fit.trace,
            has_offset=self.has_offset or rows.has_offset,
            _effects=effects,
            **dict.fromkeys(("_loo", "_tau", "_rho", "_influence")),
        )


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """Rows with their groups; see `MixedGLMPosterior.rows`."""

    X: Any
    groups: Any = None
    levels: str = "known"

    def __len__(self):
        return len(self.X)
