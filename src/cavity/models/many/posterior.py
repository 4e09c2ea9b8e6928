"""The posteriors of many responses of one design: arrays, tables of an effect, single posteriors.

References
----------
.. [S] M. Stephens, "False discovery rates: a new deal", Biostatistics 18, 2017.
.. [VW] I. Verdinelli and L. Wasserman, "Computing Bayes factors using a generalization of the Savage-Dickey density
   ratio", Journal of the American Statistical Association 90, 1995.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays, records
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError
from cavity.base.frames import join_names, name_coefficients
from cavity.base.lazy_scipy import special
from cavity.base.loop import CONVERGED_STATUS
from cavity.base.paths import PARQUET_SUFFIXES, decode_path
from cavity.base.public_objects import ArrayLike, BoolArray, Data, FloatArray, IntArray
from cavity.base.records import Array, Nullable, declare, one_of
from cavity.base.results import Posterior, declare_common, format_count, format_table, list_name_rows, shorten_repr
from cavity.base.summary import PROBABILITY_FORMAT, Table, interval_names, make_gaussian_marginals
from cavity.likelihoods.parameters import list_open_parameters
from cavity.models.contrasts import list_combinations, name_combination, parse_combination
from cavity.models.formula.design import Coding
from cavity.models.formula.saved import CODING_SETTING
from cavity.models.likelihood_settings import OPEN_LIKELIHOOD_SETTING
from cavity.models.many import parquet

# by `model_kind`: functions (posteriors, number) and (posteriors, X, groups, levels, offset, exposure) of the families
POSTERIOR_MAKERS: dict[str, Any] = {}


def find_false_sign_rates(mean, sd):
    """Return local false sign rates min(P(> 0), P(< 0)) [S]_, (G,); nan where there is no posterior."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return special.ndtr(-np.abs(mean) / sd)


def find_s_values(rates):
    """Return the mean of all rates up to each, in increasing order: the rate of wrong signs among these [S]_."""
    out, finite = np.full(len(rates), np.nan), np.flatnonzero(np.isfinite(rates))
    order = finite[np.argsort(rates[finite], kind="stable")]
    out[order] = np.cumsum(rates[order]) / np.arange(1, len(order) + 1)
    return out


def _fits(stored, settings, sizes):
    """Whether arrays and settings fit each other, as a rule of the record."""
    m = sizes["M"]
    n_weights = m - len(settings.get("effect_names", ()))
    if sizes["T"] != m * (m + 1) // 2:
        return f"array 'covariance' must have triangles of {m} rows, {m * (m + 1) // 2} columns, got {sizes['T']}"
    if n_weights < 1 or sizes.get("D", n_weights) != n_weights:
        return f"setting 'effect_names' must leave as many of {m} columns as 'prior_root' has, or at least one"
    n_columns = n_weights - settings.get("intercept", False)
    if sizes.get("C", n_columns) != n_columns:
        return f"there must be {n_columns} columns, as there are {n_weights} weights, got {sizes['C']}"
    for name, axis in (("parameter_names", "h"), ("shared_names", "s")):
        if len(settings.get(name, ())) != sizes.get(axis, 0):
            return f"setting {name!r} must be as many as there are values, {sizes.get(axis, 0)}"
    learnt, free = settings["parameter_names"], list_open_parameters(settings["likelihood"])
    if tuple(learnt[: len(free)]) != free or (settings["model_kind"] == "glm" and len(learnt) > len(free)):
        return f"setting 'parameter_names' must be those that are open in the likelihood, {', '.join(free) or 'none'}"
    infinite = next((name for name, array in stored.items() if array.dtype.kind == "f" and np.isinf(array).any()), None)
    return None if infinite is None else f"array {infinite!r} must not be infinite"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ManyPosterior(Posterior):
    """The posteriors of the responses of `GLM.fit_many` or `MixedGLM.fit_many`, G of them.

    Notes
    -----
    `status` says "converged", or why a response has no posterior of its own, and what the arrays hold then: nan, or the
    prior for counts that are all 0, or where a search ended whose evidence has no maximum. As of a single fit, weights
    are those of scaled columns where there is `centre`.
    """

    model_kind: str = declare(one_of("glm", "mixed"), 'The model: "glm" or "mixed".')
    likelihood: Any = declare(OPEN_LIKELIHOOD_SETTING, "The likelihood; what is None in it was learnt by response.")
    names: Any = declare(Array("G", "any", "U"), "Names of the responses.")
    mean: FloatArray = declare(Array("G M", "any"), "Posterior means of weights, and of random effects after them.")
    log_evidence: FloatArray = declare(Array("G", "any"), "Estimates of the log evidence, all constants included.")
    n_iter: IntArray = declare(Array("G", "nonnegative", "i"), "Sweeps.")
    status: Any = declare(Array("G", "any", "U"), 'How each ended: "converged", or what is wrong with the response.')
    n_observed: IntArray = declare(Array("G", "nonnegative", "i"), "Rows with a value of each, of positive weight.")
    parameter_names: tuple[str, ...] = declare(records.names(), "What was learnt by response.")
    parameters: FloatArray = declare(Array("G h", "any"), "Its values.")
    prior_mean: FloatArray = declare(Array("G M", "any"), "Prior means.")
    prior_sd: FloatArray = declare(Array("G M", "any"), "Prior standard deviations; factors on `prior_root` if any.")
    prior_root: FloatArray | None = declare(Array("D D", "triangle"), "Root of a prior covariance of weights.", None)
    n_samples: int = declare_common("n_samples")
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(records.names("C")))
    roles: dict[str, Any] | None = declare_common("roles")
    centre: FloatArray | None = declare(Array("C"), "What is subtracted from each column of new rows.", None)
    spread: FloatArray | None = declare(Array("C", "positive"), "What columns are then divided by.", None)
    intercept: bool = declare(records.TRUTH_VALUE, "Whether the first weight is that of a column of ones.", False)
    has_offset: bool = declare_common("has_offset")
    coding: Coding | None = declare(CODING_SETTING, "The formula, and the categories of its columns.", None)
    effect_names: tuple[str, ...] = declare(records.names(), "Names of the random effects.", ())
    shared_names: tuple[str, ...] = declare(records.names(), "What was found from all responses together.", ())
    shared_values: FloatArray | None = declare(Array("s"), "Its values.", None)
    template: dict[str, Any] | None = declare(
        Nullable(records.JSON_OBJECT), "Of a mixed model, one of the single posteriors, as files have it.", None
    )
    _covariance: FloatArray = declare(Array("G T", "any"), name="covariance")

    kind: ClassVar[str] = "many"
    record: ClassVar[Any] = records.Record(rules=(_fits, records.together("centre", "spread")))

    def __repr__(self) -> str:
        done, learnt = int(np.sum(self.converged)), join_names(self.parameter_names)
        likelihood = shorten_repr(self.likelihood)
        rows = [
            ("likelihood", likelihood),
            *list_name_rows(self),
            *([("learnt", learnt)] if self.parameter_names else []),
            *((name, f"{value:.6g}") for name, value in self.shared.items()),
            ("fits", f"{done} converged, {len(self) - done} not"),
        ]
        sizes = f"{format_count(len(self), 'response')}, {format_count(self.n_samples, 'row')}"
        return format_table(f"ManyPosterior: {type(self.likelihood).__name__}, {sizes}", rows)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def converged(self) -> BoolArray:
        """Whether the stopping rules of each response were met, (G,)."""
        return self.status == CONVERGED_STATUS

    @property
    def has_posterior(self) -> BoolArray:
        """Whether each response has one, (G,): not where all counts are 0 and something is learnt by response."""
        return ~(np.isnan(self.mean).any(axis=1) | np.isnan(self.parameters).any(axis=1))

    @property
    def shared(self) -> dict[str, float]:
        """What was found from all responses together, by names."""
        return dict(zip(self.shared_names, () if self.shared_values is None else self.shared_values, strict=True))

    @property
    def n_weights(self) -> int:
        """Number of weights, D, without random effects."""
        return self.mean.shape[1] - len(self.effect_names)

    @property
    def n_features(self) -> int:
        """Number of columns of the rows it takes; an intercept has none."""
        return self.n_weights - self.intercept

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the weights, (D,)."""
        return name_coefficients(self.columns, self.n_weights, self.intercept)

    def covariance(self, response: int | str) -> FloatArray:
        """Return the posterior covariance of the weights of a response, and of its random effects.

        Parameters
        ----------
        response : int or str
            Its number or its name.

        Returns
        -------
        ndarray (M, M)
            In the order of `mean`.
        """
        m = self.mean.shape[1]
        rows, columns = np.tril_indices(m)
        out = np.empty((m, m))
        out[rows, columns] = out[columns, rows] = self._covariance[self._number(response)]
        return out

    def _find_root(self, number):
        """Return the lower Cholesky factor of the covariance of a response; `NotPositiveDefiniteError` for none."""
        try:
            return arrays.cholesky(self.covariance(number), f"the covariance of response {str(self.names[number])!r}")
        except NotPositiveDefiniteError as error:
            message = (
                "weights or effects determine each other to rounding: leave some out, or give a smaller prior variance"
            )
            raise NotPositiveDefiniteError(f"{error}; {message}") from error

    def _number(self, response):
        """Return the number of a response by its number or its name."""
        if isinstance(response, str):
            indices = np.flatnonzero(self.names == response)
            if not indices.size:
                raise arrays.error_of("response", f"must be a name of a response or its number, got {response!r}")
            return int(indices[0])
        number = arrays.check_integer(response, "response", low=-len(self))
        if number >= len(self):
            raise arrays.error_of("response", f"must be below {len(self)}, the number of responses, got {number}")
        return number % len(self)

    def table(self, combination: Any, level: float = 0.95) -> Table:
        """Return the posterior of an effect in all responses, one row each.

        Parameters
        ----------
        combination : str or dict
            Name of a coefficient, an expression of these such as "dose[high] - dose[low]", or weights by names.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            Mean, sd and interval; "lfsr", the local false sign rate: the smaller of the probabilities that the effect
            is above and below 0; "s-value", the mean of all local false sign rates up to this one: the rate of wrong
            signs if this and all clearer effects are called; "log Bayes factor" for the effect against 0, the log of
            prior over posterior density at 0; what was learnt by response; its observed rows; and status.

        Raises
        ------
        ValueError, TypeError
            For names that are no coefficients, and expressions that are not linear.

        Notes
        -----
        Local false sign rates and s-values are those of [S]_; the Bayes factor is the Savage-Dickey ratio [VW]_, at the
        parameters that were learnt. It depends on the prior of the effect, which `share` of `fit_many` learns.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> dose = np.repeat([0.0, 1.0], 20)
        >>> Y = rng.poisson(np.exp(1.0 + np.outer(dose, [0.0, 1.0])))
        >>> posteriors = cavity.GLM("poisson", intercept=True).fit_many(dose[:, None], Y, names=["a", "b"])
        >>> table = posteriors.table("x1")
        >>> table.columns["lfsr"].round(3).tolist(), table.columns["log Bayes factor"].round(1).tolist()
        ([0.424, 0.0], [-3.3, 19.0])
        """
        mean, sd, prior_mean, prior_sd = self._combine(combination)
        rates = find_false_sign_rates(mean, sd)
        factors = _log_density_at_zero(prior_mean, prior_sd) - _log_density_at_zero(mean, sd)
        marginals = make_gaussian_marginals(tuple(self.names.tolist()), mean, sd)
        ends, (low, high) = marginals.interval(level), interval_names(level)
        columns = {"mean": mean, "sd": sd, low: ends[:, 0], high: ends[:, 1], "lfsr": rates}
        columns |= {"s-value": find_s_values(rates), "log Bayes factor": factors}
        formats = dict.fromkeys(("mean", "sd", low, high), "sd") | {"log Bayes factor": 2, "rows": 0}
        formats |= dict.fromkeys(("lfsr", "s-value"), PROBABILITY_FORMAT)
        columns |= dict(zip(self.parameter_names, self.parameters.T, strict=True))
        columns |= {"rows": self.n_observed, "status": self.status.tolist()}
        title = f"{name_combination(combination)} of {len(self)} responses"
        return Table(title, marginals.names, columns, formats)

    def _combine(self, combination):
        """Return mean and sd of a combination of coefficients in all responses, and those of its prior."""
        combination, *others = list_combinations(combination)
        if others:
            raise arrays.error_of("combination", f"must be one expression or dict, got {1 + len(others)}")
        expression = combination if isinstance(combination, str) else name_combination(combination)
        weights = parse_combination(expression, self.coefficient_names) @ self._unscaling()
        weights = np.append(weights, np.zeros(len(self.effect_names)))
        variance = np.sum(self._covariance * _pair_weights(weights), axis=1)
        whitened = weights.copy()
        if self.prior_root is not None:
            whitened[: self.n_weights] = whitened[: self.n_weights] @ self.prior_root
        prior = np.sum(self.prior_mean * weights, axis=1), np.sqrt(np.sum((self.prior_sd * whitened) ** 2, axis=1))
        return np.sum(self.mean * weights, axis=1), np.sqrt(variance), *prior

    def _unscaling(self):
        """Return the matrix that turns weights into coefficients of the columns as they were given."""
        d = self.n_weights
        if self.centre is None:
            return np.eye(d)
        out = np.diag(np.append(np.ones(int(self.intercept)), 1.0 / self.spread))
        if self.intercept:
            out[0, 1:] = -self.centre / self.spread
        return out

    def of(self, response: int | str) -> Any:
        """Return the posterior of one response as an ordinary one.

        Parameters
        ----------
        response : int or str
            Its number or its name.

        Returns
        -------
        GLMPosterior or MixedGLMPosterior
            With the covariance of weights and effects. Sites and leave-one-out densities, which belong to the rows, are
            not kept: a fit of the response alone has them.

        Raises
        ------
        ValueError
            If the response has no posterior, with the reason.
        """
        number = self._number(response)
        if not self.has_posterior[number]:
            message = f"must have a posterior, got {str(self.names[number])!r}: {self.status[number]}"
            raise arrays.error_of("response", message)
        return POSTERIOR_MAKERS[self.model_kind][0](self, number)

    def predict(
        self,
        X: Data,
        *,
        groups: Any = None,
        levels: str = "known",
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent values f of new rows in all responses.

        Parameters
        ----------
        X : array_like (n, D), data frame, path or Source
            Rows, as in the fit.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
        levels : {"known", "new", "zero"}, default "known"
            "known" takes levels of the fit only; "new" others, too, whose effects have their prior, for each row anew;
            "zero" has effects of groups at 0. With the last two columns of groups may be absent.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.

        Returns
        -------
        mean, variance : ndarray (G, n)
            Of f; nan in responses without a posterior.

        Raises
        ------
        ValueError, TypeError
            For rows, columns and levels that do not fit.
        """
        if not self.has_posterior.any():
            raise arrays.error_of("X", "cannot be predicted: no response has a posterior")
        rows, offsets, more = POSTERIOR_MAKERS[self.model_kind][1](self, X, groups, levels, offset, exposure)
        mean = np.matmul(rows, self.mean[:, :, None])[:, :, 0] + (0.0 if offsets is None else offsets)
        variance = [np.sum(self._covariance * _pair_weights(row), axis=1) for row in rows]
        return mean, np.array(variance).T + more

    def to_parquet(self, file: str | PathLike[str]) -> None:
        """Write all posteriors as a Parquet file, a row for each response, which `cavity.load` reads as well.

        Columns are the fields of this class, lists of numbers for means and triangles of covariances; the rest is in
        the metadata of the file. Other programs read some of the columns without the others.

        Parameters
        ----------
        file : str or path-like
            Its path, with the suffix ``.parquet`` or ``.pq``, which `load` needs. It appears whole or not at all.

        Raises
        ------
        ValueError, TypeError
            For another suffix, and for what is no path.
        OSError
            If it is a folder or cannot be written.
        ImportError
            If the arrow extra is not installed, with the command that installs it.
        """
        if not decode_path(file, "file").lower().endswith(PARQUET_SUFFIXES):
            raise arrays.error_of("file", f"must end in {' or '.join(PARQUET_SUFFIXES)}, got {str(file)!r}")
        parquet.write(self, file)

    def summary(self) -> Table:
        """Return a table of the responses: what was learnt, log evidence, observed rows, sweeps and how each fit ended.

        Returns
        -------
        Table
            It shows itself, and has `to_frame` for pandas.
        """
        columns = dict(zip(self.parameter_names, self.parameters.T, strict=True))
        columns |= {"log evidence": self.log_evidence, "rows": self.n_observed, "sweeps": self.n_iter}
        columns |= {"status": self.status.tolist()}
        title = repr(self).partition("\n")[0]
        return Table(title, tuple(self.names.tolist()), columns, {"log evidence": 3, "rows": 0, "sweeps": 0})


def _pair_weights(weights):
    """Return what each entry of a lower triangle counts in the quadratic form of some weights, (T,)."""
    rows, columns = np.tril_indices(len(weights))
    return np.where(rows == columns, 1.0, 2.0) * weights[rows] * weights[columns]


def _log_density_at_zero(mean, sd):
    """Return log N(0; mean, sd^2)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return -0.5 * ((mean / sd) ** 2 + LOG_2PI) - np.log(sd)
