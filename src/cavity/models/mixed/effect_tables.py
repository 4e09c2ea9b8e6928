"""Effects of a mixed model by name: tables, joint moments, contrasts, variance components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cavity import likelihoods
from cavity.base import arrays, summary
from cavity.base.frames import join_names, name_coefficients
from cavity.base.public_objects import FloatArray, Seed
from cavity.distributions.gaussian import Gaussian
from cavity.models.coefficients import Coefficients, check_weights
from cavity.models.hyperparameters import choose_scale, label_thresholds
from cavity.models.integrated_effects import IntegratedEffects
from cavity.models.mixed.curves import StructuredCurves
from cavity.models.mixed.effect_layout import EffectLayout, StructuredBlock
from cavity.models.mixed.free_parameters import component_names, name_parameters

NOISE_PARAMETER = "noise_variance"


def make_covariance(names, covariance, values):
    """Return a covariance matrix with other values of some standard deviations and correlations, by their names."""
    k = len(covariance)
    sd, below = np.sqrt(np.diagonal(covariance)), np.tril_indices(k, -1)
    correlation = covariance / sd / sd[:, None]
    sd = np.array([values.get(name, value) for name, value in zip(names, sd, strict=False)])
    for name, i, j in zip(names[k:], *below, strict=True):
        correlation[i, j] = correlation[j, i] = values.get(name, correlation[i, j])
    return correlation * sd * sd[:, None]


class NamedEffects(IntegratedEffects, StructuredCurves, Coefficients):
    """Base of posteriors of fixed and random effects.

    Subclasses have `mean`, `hyperparameters`, `model`, ``_effects``, the `Effects`, and ``_reader`` with the terms.
    """

    __slots__ = ()

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the fixed effects, (D,): "intercept" for that of an added column of ones, then those of X."""
        return name_coefficients(self.columns, len(self.mean), self._reader.intercept)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns of X, if it had any: those that a formula makes, or those of a data frame."""
        return self._reader.coefficient_columns

    @property
    def centre(self) -> FloatArray | Any:
        """What is subtracted from each column of new rows before the fixed effects apply, (D,), or None."""
        return self._reader.centre

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
        """The order of all effects."""
        structured = [StructuredBlock(term.size, term.prior) for term in self._reader.structured]
        return EffectLayout(len(self.mean), (*(term.block for term in self._reader.terms), *structured))

    @property
    def _settings(self):
        """The settings of all terms: covariance matrices, and values of parameters."""
        settings = self.model.effect_covariances
        terms = [settings[term.name] for term in self._reader.terms]
        return [*terms, *(tuple(settings[term.name].values()) for term in self._reader.structured)]

    @property
    def _weighted_settings(self):
        """Pairs of weights and settings of all terms: of the points of the integral, or one."""
        if self.integration is None or not self.integration.names:
            return [(1.0, self._settings)]
        terms, structured = self._reader.terms, self._reader.structured
        pairs = []
        for weight, values in zip(self.integration.weights, self.integration.values, strict=True):
            integrated = dict(zip(self.integration.names, values.tolist(), strict=True))
            settings = []
            for term, setting in zip(terms, self._settings, strict=False):
                settings.append(make_covariance(component_names(term), setting, integrated))
            for term, setting in zip(structured, self._settings[len(terms) :], strict=True):
                names = name_parameters(term.name, [p.name for p in term.prior.parameters])
                settings.append(tuple(integrated.get(name, value) for name, value in zip(names, setting, strict=True)))
            pairs.append((weight, settings))
        return pairs

    def _find_term(self, term):
        """The number of a term by its name, or by that of its group where this has one term."""
        numbers = [number for number, other in enumerate(self._reader.terms) if other.group == term]
        if len(numbers) == 1:
            return numbers[0]
        available = (*self.terms, *self.structured_terms) if self.structured_terms else self.terms
        return available.index(arrays.check_choice(term, "term", available))

    def effects(self, term: str, level: float = 0.95, *, wide: bool = False) -> summary.Table:
        """Return the random effects of a term as a table: one row for each level and column.

        Parameters
        ----------
        term : str
            Its name, one of `terms` or `structured_terms`; that of the group will do where it has one term.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        wide : bool, default False
            Whether to return one row for each level, with mean and sd of the effect of each column.

        Returns
        -------
        Table
            Mean, sd, interval and P(>0); ``effects(term).to_frame()`` is a data frame.

        Raises
        ------
        ValueError
            For a term that is not there, naming those that are.
        """
        if term in self.structured_terms:
            built, part, _ = self._find_structured(term)
            marginals = self._effect_marginals(tuple(built.effect_names()), np.arange(part.start, part.stop))
            return summary.tabulate_marginals(f"Effects of {term}", marginals, level)
        part = self._layout.part(self._find_term(term))
        columns, levels = self.effect_names(term)
        if arrays.check_flag(wide, "wide"):
            mean, variance = self.effect_moments(term)
            cells, formats = {}, {}
            for k, column in enumerate(columns):
                cells |= {f"{column} mean": mean[:, k], f"{column} sd": np.sqrt(variance[:, k])}
                formats |= dict.fromkeys((f"{column} mean", f"{column} sd"), f"{column} sd")
            return summary.Table(f"Effects of {term}", tuple(levels), cells, formats)
        ends = columns if len(columns) > 1 else ("",)
        names = tuple(f"{level} {end}".rstrip() for level in levels for end in ends)
        marginals = self._effect_marginals(names, np.arange(part.start, part.stop))
        return summary.tabulate_marginals(f"Effects of {term}", marginals, level)

    def effect_names(self, term: str) -> tuple[tuple[str, ...], list[str]]:
        """Return the names of the effects of a term.

        Parameters
        ----------
        term : str
            Its name, one of `terms`.

        Returns
        -------
        columns : tuple of str
            The columns whose coefficients the k effects of a level are; "intercept" for the constant.
        levels : list of str
            The levels, those of several columns joined by ":".
        """
        named_term = self._reader.terms[self._find_term(term)]
        return named_term.columns, named_term.levels.names

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
        number = self._find_term(term)
        part, shape = self._layout.part(number), self._reader.terms[number].shape
        return self._effects.mean[part].reshape(shape), self._effects.variance[part].reshape(shape)

    def _find_index(self, key):
        """The index of an effect: the name of a fixed one, or (term, level) or (term, level, column)."""
        if isinstance(key, str):
            return self.coefficient_names.index(arrays.check_choice(key, "effect", self.coefficient_names))
        if not (isinstance(key, tuple) and len(key) in (2, 3)):
            message = f"must be the name of a fixed effect, (term, level) or (term, level, column), got {key!r}"
            raise arrays.error_of("effect", message, TypeError)
        number = self._find_term(key[0])
        term, k = self._reader.terms[number], 0
        if len(key) == 3:
            k = term.columns.index(arrays.check_choice(key[2], "column", term.columns))
        elif len(term.columns) > 1:
            raise arrays.error_of(
                "effect", f"must say which of {join_names(term.columns)} of the term is meant, got {key!r}"
            )
        return self._layout.starts[number] + term.levels.number(key[1]) * len(term.columns) + k

    def _weight_marginals(self):
        return self._effect_marginals(self.coefficient_names, np.arange(len(self.mean)))

    def _marginals(self):
        return self._weight_marginals()

    @property
    def _effect_posterior(self):
        return self._effects

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
        index = np.array([self._find_index(effect) for effect in effects], dtype=np.intp)
        return self._effects.mean[index], self._effects.covariance(index)

    def contrast(self, weights: Mapping[Any, float]) -> Gaussian:
        """Return the posterior of a linear combination of effects, as the difference of two levels.

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
        >>> import cavity, numpy as np
        >>> group = np.repeat(["a", "b"], 4)
        >>> model = cavity.MixedGLM("g", "gaussian", effect_covariances={"g": 1.0})
        >>> posterior = model.fit(np.ones((8, 1)), [1.0, 1.2, 0.8, 1.1, 2.0, 2.1, 1.8, 2.2], groups={"g": group})
        >>> difference = posterior.contrast({("g", "b"): 1.0, ("g", "a"): -1.0})
        >>> round(float(difference.mean), 2), round(float(difference.variance), 3)
        (0.99, 0.014)
        """
        mean, covariance = self.joint(check_weights(weights))
        values = np.array([arrays.check_number(weight, "weights") for weight in weights.values()])
        return Gaussian(mean=float(values @ mean), variance=float(values @ covariance @ values))

    def variance_components(self, level: float = 0.95) -> summary.Table:
        """Return standard deviations and correlations of random effects, and parameters of the likelihood.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            The values, with the noise as the standard deviation ``sd(residual)``; their standard errors, on the scale
            of the values, from the curvature of the log evidence; and intervals, which are normal approximations of the
            logs of standard deviations and other positive parameters, of Fisher's z of correlations, of logits of
            shares, and of thresholds as they are. What was given, and what the evidence does not limit, has a value
            only.
        """
        fitted = self.hyperparameters
        by_name, estimates = {}, {}
        if fitted is not None:
            by_name = {name: estimate for name, *estimate in zip(fitted.names, fitted.values, fitted.sd, strict=True)}
        for term in self._reader.terms:
            covariance = self.model.effect_covariances[term.name]
            sd = np.sqrt(np.diagonal(covariance))
            correlations = (covariance / sd / sd[:, None])[np.tril_indices(len(sd), -1)]
            for name, value in zip(component_names(term), [*sd, *correlations], strict=True):
                estimates[name] = value, by_name.pop(name, (None, None))[1]
        for term in self._reader.structured:
            values = self.model.effect_covariances[term.name]
            for name, value in zip(name_parameters(term.name, values), values.values(), strict=True):
                estimates[name] = value, by_name.pop(name, (None, None))[1]
        if NOISE_PARAMETER in self.model.likelihood.parameters:  # d sd = d variance / (2 sd)
            error, sd = by_name.pop(NOISE_PARAMETER, (None, None))[1], np.sqrt(self.model.likelihood.noise_variance)
            estimates["sd(residual)"] = sd, None if error is None else error / (2.0 * sd)
        estimates |= by_name
        values, errors = zip(*estimates.values(), strict=True) if estimates else ((), ())
        scales = [choose_scale(name, self.model.likelihood) for name in estimates]
        notes = (fitted.note,) if fitted is not None and fitted.note else ()
        return summary.tabulate_estimates(
            "Variance components",
            label_thresholds(estimates, self.classes),
            values,
            errors,
            notes,
            scales=scales,
            level=level,
        )

    def icc(self) -> summary.Table:
        """Return the intraclass correlations: the share of each term of random intercepts in the variance given x.

        On the scale of f: the variance of the residual is that of the noise, 1 for probit and pi^2/3 for logit links
        (Nakagawa, Johnson and Schielzeth, "The coefficient of determination R2 and intra-class correlation coefficient
        from generalized linear mixed-effects models revisited and expanded", Journal of the Royal Society Interface 14,
        2017, table 2).

        Returns
        -------
        Table
            A share for each term, at the variances of the fit.

        Raises
        ------
        ValueError
            Where effects have other columns than the intercept, whose variance depends on the row, and for likelihoods
            whose residual has no variance on that scale.
        """
        likelihood, terms = self.model.likelihood, self._reader.terms
        if isinstance(likelihood, likelihoods.Gaussian):
            residual = likelihood.noise_variance
        elif isinstance(likelihood, likelihoods.Logit | likelihoods.OrderedLogit) or (
            likelihood.takes_trials and likelihood.link == "logit"
        ):
            residual = np.pi**2 / 3.0
        elif isinstance(likelihood, likelihoods.Cloglog):
            residual = np.pi**2 / 6.0
        elif isinstance(likelihood, likelihoods.Probit | likelihoods.OrderedProbit | likelihoods.Binomial):
            residual = 1.0
        else:
            name = type(likelihood).__name__
            raise arrays.error_of("icc", f"needs Gaussian noise, or a logit or probit link, got {name}")
        covariances = [self.model.effect_covariances[term.name] for term in terms]
        if not terms or any(covariance.shape != (1, 1) for covariance in covariances):
            raise arrays.error_of("icc", "needs effects (1 | g), as the variance of others depends on the row")
        variances = np.array([float(covariance[0, 0]) for covariance in covariances])
        shares = variances / (variances.sum() + residual)
        return summary.Table("Intraclass correlations", tuple(term.name for term in terms), {"share": shares})

    def _below(self, level):
        if self.integration is not None and self.integration.names:
            return self.integration.table(level)
        table = self.variance_components(level)
        return table if table.names else None

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw fixed effects from the posterior.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n, D)
            The draws.
        """
        n, rng = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        if self.integration is not None:
            return self._effects.sample(n, rng)[:, : len(self.mean)]
        factor = arrays.cholesky(np.asarray(self.covariance), "covariance")
        return self.mean + rng.standard_normal((n, len(self.mean))) @ factor.T
