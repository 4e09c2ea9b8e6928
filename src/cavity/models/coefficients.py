"""What posteriors of weights share: tables of coefficients, intervals, Bayes factors, and forms for other libraries.

References
----------
.. [VW] I. Verdinelli and L. Wasserman, "Computing Bayes factors using a generalization of the Savage-Dickey density
   ratio", Journal of the American Statistical Association 90, 1995.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cavity import likelihoods
from cavity.base import arrays, summary
from cavity.base.constants import LOG_2PI
from cavity.base.errors import missing_extra_error
from cavity.base.frames import join_names, name_coefficients
from cavity.base.lazy_scipy import linalg
from cavity.base.public_objects import FloatArray, Seed
from cavity.base.results import SummaryMixin, find_base_levels, list_notes, title_of
from cavity.base.summary import Table, make_gaussian_marginals, tabulate_marginals, tabulate_ratios
from cavity.distributions.gaussian import Gaussian
from cavity.models.contrasts import (
    describe_unknown,
    level_pairs,
    list_combinations,
    name_combination,
    parse_combination,
)
from cavity.models.linear.prior import Prior


def load_arviz():
    """Return the module arviz; ImportError, with the command that installs it, if there is none."""
    try:
        import arviz
    except ImportError as error:
        raise missing_extra_error("ArviZ", "arviz") from error
    return arviz


def make_inference_data(groups, coords, dims):
    """Return groups of variables (1, draws, ...) as ArviZ has them: from 1.0 on an xarray.DataTree."""
    arviz = load_arviz()
    is_tree = int(arviz.__version__.partition(".")[0]) >= 1
    labels = {"coords": coords, "dims": dims}
    return arviz.from_dict(groups, **labels) if is_tree else arviz.from_dict(**groups, **labels)


def check_weights(weights):
    """Return the weights of a contrast, a dict with something in it."""
    if not isinstance(weights, Mapping) or not weights:
        raise arrays.error_of("weights", f"must be a dict of weights by effects, got {weights!r}", TypeError)
    return weights


class TermBayesFactors:
    """Method of posteriors of weights with a `model` that has their Gaussian prior."""

    __slots__ = ()

    def bayes_factors(self, terms: str | Sequence[str] | None = None) -> summary.Table:
        """Compare the model with the models in which all coefficients of a term are 0.

        Parameters
        ----------
        terms : str or sequence of str, optional
            Names of columns, of columns of categories, or of interactions like "a:b"; by default all but the intercept.

        Returns
        -------
        Table
            For each term the number of its coefficients, and the log of the Bayes factor for the model with them: the
            difference of the log evidences of the two models. Above 0 the evidence favours the term.

        Raises
        ------
        ValueError
            For a term that is not there.

        Notes
        -----
        The Bayes factor is p(w_T = 0) / p(w_T = 0 | data), prior over posterior density of the coefficients of the term
        at 0 (Savage-Dickey ratio [VW]_), both Gaussian; parameters that were learnt count as known. It depends on
        `prior_variance`: the wider the prior, the more the data have to say for a term.

        Examples
        --------
        >>> import cavity
        >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
        >>> posterior = cavity.GLM("Reaction ~ Days").fit(table)
        >>> print(posterior.bayes_factors())
        Bayes factors of terms, by the Savage-Dickey ratio
                coefficients  log Bayes factor
          Days             1             31.98
        """
        members = {}
        for k, name in enumerate(self.coefficient_names):
            members.setdefault(":".join(part.partition("[")[0] for part in name.split(":")), []).append(k)
        names = [name for name in members if name != "intercept"] if terms is None else terms
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if name not in members:
                available = f"there is {join_names(list(members))}"
                raise arrays.error_of("terms", f"must be of the model, got {name!r}; {available}")
        prior = Prior.of(self.model.prior_mean, self.model.prior_variance, len(self.mean))
        variance = (
            prior.variance if prior.variance.ndim == 2 else np.diag(np.broadcast_to(prior.variance, self.mean.shape))
        )
        factors = []
        for name in names:
            index = np.array(members[name])
            part = np.ix_(index, index)
            before = log_density_at_zero(prior.mean[index], variance[part])
            factors.append(before - log_density_at_zero(self.mean[index], self.covariance[part]))
        columns = {"coefficients": [len(members[name]) for name in names], "log Bayes factor": np.array(factors)}
        formats = {"coefficients": 0, "log Bayes factor": 2}
        return summary.Table("Bayes factors of terms, by the Savage-Dickey ratio", tuple(names), columns, formats)


def log_density_at_zero(mean, covariance):
    """Return log N(0; mean, covariance)."""
    root = arrays.cholesky(np.asarray(covariance), "covariance")
    scaled = linalg.solve_triangular(root, mean, lower=True)
    return float(-0.5 * (scaled @ scaled + len(mean) * LOG_2PI) - np.sum(np.log(np.diagonal(root))))


def find_ratio_word(likelihood):
    """Return what exp of a coefficient is, "odds ratio" for example; ValueError where it is no ratio."""
    if isinstance(likelihood, likelihoods.Logit | likelihoods.OrderedLogit) or likelihood.link == "logit":
        return "odds ratio"
    if likelihood.takes_exposure:
        return "rate ratio"
    if isinstance(likelihood, likelihoods.Cloglog) or getattr(likelihood, "effect", None) == "hazard":
        return "hazard ratio"
    if likelihood.link == "log":
        return "time ratio" if likelihood.takes_event else "mean ratio"
    way_out = "without it the summary is in units of f"
    if isinstance(likelihood, likelihoods.Probit | likelihoods.Binomial):
        name = "logit" if isinstance(likelihood, likelihoods.Probit) else "binomial"
        way_out = f"a fit with likelihood={name!r} has odds ratios"
    message = f"needs a logit or log link, got {type(likelihood).__name__}: {way_out}"
    raise arrays.error_of("exponentiate", message)


class Coefficients(SummaryMixin):
    """Base of posteriors N(mean, covariance) of weights that have `coefficient_names`."""

    __slots__ = ()
    _independent = False  # whether only variances are known

    @property
    def sd(self) -> FloatArray:
        """Posterior standard deviations of the weights, (D,)."""
        return np.sqrt(self.variance)

    def summary(self, level: float = 0.95, *, exponentiate: bool = False) -> Table:
        """Return a table of the coefficients: mean, sd, interval, and the probability P(>0).

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        exponentiate : bool, default False
            Whether to return exp of the coefficients, medians and intervals: by which factor a unit of a column
            multiplies the odds (logit link), the rate (counts), the mean or the time (log link), or the hazard.

        Returns
        -------
        Table
            It shows itself, and has `to_frame` for pandas. What else was learnt is in a table below.

        Raises
        ------
        ValueError
            For exponentiate=True and another link.
        """
        if not arrays.check_flag(exponentiate, "exponentiate"):
            return super().summary(level)
        ratio_name = find_ratio_word(self._likelihood)
        marginals, notes = self._marginals(), list_notes(self)
        if "intercept" in marginals.names:
            kind = ratio_name.removesuffix(" ratio")
            notes = (f"the row intercept is no ratio: the {kind} where all columns are 0", *notes)
        title = f"{title_of(self)}, {ratio_name}s per unit"
        return tabulate_ratios(title, marginals, level, notes=notes, below=self._below(level))

    def interval(self, level: float = 0.95) -> FloatArray:
        """Return intervals of the weights, each of which holds its weight with that probability.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        ndarray (D, 2)
            Lower and upper ends, of the same weights as `mean`.
        """
        if hasattr(level, "columns") or np.ndim(level):
            hint = "interval is about coefficients; predict, quantile and sample_y are about rows"
            raise arrays.error_of("level", f"must be a number, got {type(level).__name__}: {hint}", TypeError)
        return self._weight_marginals().interval(level)

    def to_scipy(self) -> Any:
        """Return the posterior of the weights as a frozen distribution of scipy.stats.

        Returns
        -------
        scipy.stats distribution
            ``multivariate_normal``; where weights are independent, or there is one only, ``norm`` with loc and scale
            for each. Of the same weights as `mean`.
        """
        from scipy import stats  # takes a while to load

        if self._independent or len(self.mean) == 1:
            return stats.norm(self.mean, self.sd)
        return stats.multivariate_normal(self.mean, self.covariance, allow_singular=True)

    def to_arviz(self, draws: int = 1000, *, rng: Seed) -> Any:
        """Return draws of the coefficients for ArviZ, which plots and summarises them; needs the arviz extra.

        Parameters
        ----------
        draws : int, default 1000
            How many, independent of each other: one chain.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        arviz.InferenceData
            Its posterior has the variable ``coefficients`` with the dimension ``coefficient``, the names; they are
            those of `summary`, per unit of the columns as they were given. From ArviZ 1.0 on it is an xarray.DataTree.

        Raises
        ------
        ImportError
            If ArviZ is not installed, with the command that installs it.
        """
        load_arviz()
        values = self._drawn_per_column(self.sample(arrays.check_integer(draws, "draws", low=1), rng))
        coords, dims = {"coefficient": list(self._per_column()[0])}, {"coefficients": ["coefficient"]}
        return make_inference_data({"posterior": {"coefficients": values[None]}}, coords, dims)

    def _weight_marginals(self):
        """Those of the weights."""
        return make_gaussian_marginals(self.coefficient_names, self.mean, self.sd)

    def _marginals(self):
        """Those of the coefficients, per unit of the columns as they were given."""
        names, mean, variance = self._per_column()
        return make_gaussian_marginals(names, mean, np.sqrt(variance))

    def covariance_table(self, *, correlation: bool = False) -> Table:
        """Return the posterior covariance of the coefficients of `summary`, as a table with their names.

        Parameters
        ----------
        correlation : bool, default False
            Return correlations instead.

        Returns
        -------
        Table
            Rows and columns by names; ``covariance_table().to_frame()`` is a data frame.
        """
        names, matrix = self._per_column()[0], self._covariance_per_column()
        if correlation:
            sd = np.sqrt(np.diagonal(matrix))
            matrix = matrix / sd / sd[:, None]
        form = 3 if correlation else None
        title = f"Posterior {'correlations' if correlation else 'covariances'} of {len(names)} coefficients"
        columns = dict(zip(names, matrix.T, strict=True))
        return Table(title, names, columns, dict.fromkeys(columns, form))

    def contrasts(self, combinations: Any = None, *, pairs: str | None = None, level: float = 0.95) -> Table:
        """Return the posterior of linear combinations of coefficients, as differences of levels.

        Parameters
        ----------
        combinations : str, dict or sequence of these, optional
            Expressions of the names of coefficients, like "10 * Days" or "sex[M] - sex[F]", names that are no words in
            backticks; or weights by names. Coefficients are those of `summary`.
        pairs : str, optional
            A column of categories: the differences of all pairs of its levels.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            Mean, sd, interval and P(>0) of each.

        Raises
        ------
        ValueError, TypeError
            For names that are no coefficients, expressions that are not linear, and if nothing is requested.

        Examples
        --------
        >>> import cavity
        >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
        >>> posterior = cavity.GLM("Reaction ~ Days").fit(table)
        >>> print(posterior.contrasts(["10 * Days", "intercept + 9 * Days"]))
        Linear combinations of coefficients
                                  mean    sd    2.5%   97.5%   P(>0)
          10 * Days              104.6  12.4    80.4   128.9  >0.999
          intercept + 9 * Days  345.58  6.61  332.63  358.54  >0.999
        """
        names = self._per_column()[0]
        if (combinations is None) == (pairs is None):
            raise arrays.error_of("combinations", "must be given, or pairs, one of the two")
        if pairs is not None:
            rows, weights = level_pairs(pairs, names, find_base_levels(self))
            mean, variance = self._combined(names, weights)
        else:
            several = list_combinations(combinations)
            moments = [self._combination(combination, names) for combination in several]
            rows = tuple(map(name_combination, several))
            mean, variance = np.array(moments).T
        marginals = make_gaussian_marginals(rows, mean, np.sqrt(variance))
        return tabulate_marginals("Linear combinations of coefficients", marginals, level)

    def contrast(self, weights: Mapping[Any, float]) -> Gaussian:
        """Return the posterior of one linear combination of coefficients, for further computation.

        Parameters
        ----------
        weights : dict of float
            Weights of effects by their names: those of `summary`, and (term, level) or (term, level, column) of levels.

        Returns
        -------
        Gaussian
            With `mean` and `variance`.

        Examples
        --------
        >>> import cavity
        >>> table, about = cavity.data.table("sleepstudy", as_frame=True)
        >>> later = cavity.GLM("Reaction ~ Days").fit(table).contrast({"Days": 10.0})
        >>> round(float(later.mean), 1), round(float(later.variance) ** 0.5, 1)
        (104.6, 12.4)
        """
        mean, variance = self._combination(check_weights(weights), self._per_column()[0], "weights")
        return Gaussian(mean=float(mean), variance=float(variance))

    _coding = None  # of a formula

    def _combination(self, combination, names, argument="combinations"):
        """Return the mean and the variance of an expression or of a dictionary of weights."""
        if isinstance(combination, str):
            weights = parse_combination(combination, names)
        else:
            unknown = next((name for name in combination if name not in names), None)
            if unknown is not None:
                raise arrays.error_of(argument, describe_unknown(unknown, names))
            values = {name: arrays.check_number(value, argument) for name, value in combination.items()}
            weights = np.array([values.get(name, 0.0) for name in names])
        mean, variance = self._combined(names, weights[None])
        return mean[0], variance[0]

    def _combined(self, names, weights):
        """Return the means and variances of combinations of coefficients, weights (m, D)."""
        _, mean, variance = self._per_column()
        if self._independent:
            return weights @ mean, weights**2 @ variance
        return weights @ mean, np.sum(weights @ self._covariance_per_column() * weights, axis=1)

    def _per_column(self):
        """Return names, means and variances of the coefficients of the columns as they were given."""
        return self.coefficient_names, self.mean, self.variance

    def _covariance_per_column(self):
        """Return the covariance of these coefficients."""
        return self.covariance

    def _drawn_per_column(self, weights):
        """Return draws of these coefficients, (n, D), of draws of the weights."""
        return weights


class ColumnCoefficients(Coefficients):
    """Base of posteriors of a weight for each column of X, after that of an `intercept` if there is one."""

    __slots__ = ()

    @property
    def n_features(self) -> int:
        """Number of columns of the rows it takes; an intercept has none."""
        return len(self.mean) - self.intercept

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the weights, (D,): "intercept" for that of the column of ones, then the columns, or x1, x2, ..."""
        return name_coefficients(self.columns, len(self.mean), self.intercept)
