"""What posteriors of weights share: tables of coefficients, intervals, and what other libraries have for them."""

from typing import Any

import numpy as np

from cavity import likelihoods
from cavity.base import arrays
from cavity.base.errors import missing_extra_error
from cavity.base.frames import name_coefficients
from cavity.base.results import SummaryMixin, find_base_levels, list_notes, title_of
from cavity.base.summary import Table, make_gaussian_marginals, tabulate_marginals, tabulate_ratios
from cavity.base.types import FloatArray, Seed
from cavity.models.contrasts import (
    describe_unknown,
    level_pairs,
    list_combinations,
    name_combination,
    parse_combination,
)


def find_ratio_word(likelihood):
    """Return what exp of a coefficient is: "odds ratio" or "rate ratio"; ValueError where it is none of these."""
    if isinstance(likelihood, likelihoods.Logit) or getattr(likelihood, "link", None) == "logit":
        return "odds ratio"
    if isinstance(likelihood, likelihoods.Poisson | likelihoods.NegativeBinomial):
        return "rate ratio"
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
            multiplies the odds (logit link), or the rate (Poisson and negative binomial).

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
        word = find_ratio_word(self._likelihood)
        marginals, notes = self._marginals(), list_notes(self)
        if "intercept" in marginals.names:
            kind = word.removesuffix(" ratio")
            notes = (f"the row intercept is no ratio: the {kind} where all columns are 0", *notes)
        title = f"{title_of(self)}, {word}s per unit"
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
        return make_gaussian_marginals(self.coefficient_names, self.mean, self.sd).interval(level)

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
        try:
            import arviz
        except ImportError as error:
            raise missing_extra_error("ArviZ", "arviz") from error
        values = self._drawn_per_column(self.sample(arrays.check_integer(draws, "draws", low=1), rng))
        groups = {"posterior": {"coefficients": values[None]}}
        labels = {
            "coords": {"coefficient": list(self._per_column()[0])},
            "dims": {"coefficients": ["coefficient"]},
        }
        newer = int(arviz.__version__.partition(".")[0]) >= 1
        return arviz.from_dict(groups, **labels) if newer else arviz.from_dict(**groups, **labels)

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
            For names that are no coefficients, expressions that are not linear, and if nothing is asked for.

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

    _coding = None  # of a formula

    def _combination(self, combination, names):
        """Return the mean and the variance of an expression or of a dictionary of weights."""
        if isinstance(combination, str):
            weights = parse_combination(combination, names)
        else:
            unknown = next((name for name in combination if name not in names), None)
            if unknown is not None:
                raise arrays.error_of("combinations", describe_unknown(unknown, names))
            values = {name: arrays.check_number(value, "combinations") for name, value in combination.items()}
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
