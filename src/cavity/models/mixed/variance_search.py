"""Search for covariances of random effects and parameters of the likelihood of a mixed model by the log evidence.

A covariance matrix is V = C C' with C = U diag(exp(l)) B: U the units of the effects, B unit lower triangular. Its free
numbers are l and the entries of B below the diagonal: whatever they are V is proper, and its scale is in l alone.
"""

from dataclasses import replace

import numpy as np

from cavity.base.errors import check_within_range
from cavity.base.lazy_scipy import linalg
from cavity.likelihoods.parameters import PARAMETER_RANGE, find_unit
from cavity.models.defaults import find_location_and_spread
from cavity.models.evaluations import FreeSettings
from cavity.models.linear.evidence import FactorSettings, LinearEvidence
from cavity.models.linear.evidence_search import choose_likelihoods, maximise_evidence
from cavity.models.mixed.effect_layout import invert_covariance

FIRST_SHARE = 0.5  # sd of a random effect in spreads of y, where the search begins
MIN_OWN_SHARE = 1e-2  # of the sd of an effect: below it those before determine it
FLAT_PRIOR, AVOID_ZERO_PRIOR = "flat", "avoid-zero"


class Root:
    """The map from free numbers to one covariance matrix V (k, k)."""

    def __init__(self, units):
        self.units, self.k = units, len(units)
        self.below = np.tril_indices(self.k, -1)
        self.size = self.k + len(self.below[0])

    def factor(self, x):
        """exp(l) in units, (k,), and C (k, k)."""
        triangle = np.eye(self.k)
        triangle[self.below] = x[self.k :]
        scale = self.units * np.exp(x[: self.k])
        return scale, scale[:, None] * triangle

    def covariance(self, x):
        """V."""
        factor = self.factor(x)[1]
        return factor @ factor.T

    def slopes(self, x, by_covariance):
        """Derivatives in the free numbers of what has these in V, a symmetric matrix: G with d = tr(G dV)."""
        scale, factor = self.factor(x)
        by_factor = 2.0 * by_covariance @ factor  # tr(G (dC C' + C dC')) = 2 tr(C' G dC)
        return np.append(np.sum(by_factor * factor, axis=1), (scale[:, None] * by_factor)[self.below])

    def describe(self, x):
        """Standard deviations and then correlations, and their derivatives in the free numbers."""
        covariance = self.covariance(x)
        sd = np.sqrt(np.diagonal(covariance))
        correlation = covariance / sd / sd[:, None]
        slopes_of = np.empty((self.size, self.size))
        for i in range(self.k):
            slopes_of[i] = self.slopes(x, _unit(self.k, i, i)) / (2.0 * sd[i])
        for row, (i, j) in enumerate(zip(*self.below, strict=True), self.k):
            moved = self.slopes(x, _unit(self.k, i, j)) / (sd[i] * sd[j])
            slopes_of[row] = moved - correlation[i, j] * (slopes_of[i] / sd[i] + slopes_of[j] / sd[j])
        return [*sd.tolist(), *correlation[self.below].tolist()], slopes_of


def _unit(k, i, j):
    """The matrix whose product with dV has the trace dV_ij."""
    out = np.zeros((k, k))
    out[i, j] += 0.5
    out[j, i] += 0.5
    return out


class FreeCovariances(FreeSettings):
    """Numbers of open covariances, then free numbers of the likelihood."""

    scan = (0.0,)
    warns_of_flat = True

    def __init__(self, terms, covariances, names, likelihood, rows, prior):
        """`covariances` are None where they are open; `names` are those of open parameters."""
        unit = find_location_and_spread(likelihood, rows)[1]
        self.fixed, self.prior = covariances, prior
        self.roots = [
            Root(_units(term, unit)) if covariance is None else None
            for term, covariance in zip(terms, covariances, strict=True)
        ]
        self.open = [(term, root) for term, root in zip(terms, self.roots, strict=True) if root is not None]
        super().__init__(sum(root.size for _, root in self.open), likelihood, names, find_unit(rows.y))

    def parts(self, x):
        """The free numbers of each open covariance."""
        ends = np.cumsum([root.size for _, root in self.open])
        return np.split(x[: self.n_prior], ends[:-1]) if self.open else []

    def start(self, log_factor, likelihood):
        """The vector of a factor on the variances that the search begins with."""
        start = np.log(FIRST_SHARE) + 0.5 * log_factor
        parts = [np.append(np.full(root.k, start), np.zeros(root.size - root.k)) for _, root in self.open]
        return np.concatenate([*parts, self.free.pack(likelihood)])

    def unpack(self, x):
        """The settings of a vector."""
        parts = iter(self.parts(x))
        both = zip(self.roots, self.fixed, strict=True)
        covariances = tuple(fixed if root is None else root.covariance(next(parts)) for root, fixed in both)
        return FactorSettings(covariances, self.likelihood_at(x))

    def prior_bounds(self):
        """(low, high) of every number of a covariance."""
        far = 0.5 * np.log(PARAMETER_RANGE)
        counts = [[root.k, root.size - root.k] for _, root in self.open]
        highest = np.repeat([far, np.inf] * len(counts), np.ravel(counts).astype(np.intp))
        return np.column_stack([-highest, highest])

    def describe_prior(self, settings, _):
        """Standard deviations and correlations of open covariances, and their derivatives in the free numbers."""
        names, values, blocks = [], [], [np.zeros((0, 0))]
        for (term, root), part in zip(self.open, self.parts(self.pack(settings)), strict=True):
            components, jacobian = root.describe(part)
            names += component_names(term)
            values += components
            blocks.append(jacobian)
        return names, values, linalg.block_diag(*blocks)

    def opened(self, settings):
        """Roots and values of the open covariances."""
        pairs = zip(self.roots, settings.prior, strict=True)
        return [(root, covariance) for root, covariance in pairs if root is not None]

    def pack(self, settings):
        """The vector of some settings."""
        parts = []
        for root, covariance in self.opened(settings):
            factor = np.linalg.cholesky(covariance / root.units / root.units[:, None])
            diagonal = np.diagonal(factor)
            parts.append(np.append(np.log(diagonal), (factor / diagonal[:, None])[root.below]))
        return np.concatenate([*parts, self.free.pack(settings.likelihood)])

    def flat(self, x, i, way):
        """A component beyond which the evidence does not fall, in words: what, where, and what that means.

        `way` is positive where that is towards larger ones.
        """
        names, values, _ = self.describe(self.unpack(x))
        firsts = np.cumsum([0, *(root.size for _, root in self.open)])
        which = int(np.searchsorted(firsts, i, side="right")) - 1
        first, root = firsts[which], self.open[which][1]
        effect = i - first
        if effect < root.k and root.factor(x[first : first + root.size])[1][effect, effect] < MIN_OWN_SHARE * values[i]:
            meaning = "; as far as these data tell the effects of a level determine each other"
            return f"part of {names[i]} that is not explained by the effects before it", "0", meaning
        meaning = "nothing limits these effects" if way > 0 else "there is no such effect"
        return names[i], f"{values[i]:.2g}", f"; as far as these data tell {meaning}"

    def log_prior(self, settings):
        """That of the open covariances, and its slopes: log |V|/2 of each to keep away from zero, or nothing."""
        if self.prior == FLAT_PRIOR:
            return 0.0, np.zeros(0)
        value = sum(0.5 * np.linalg.slogdet(covariance)[1] for _, covariance in self.opened(settings))
        parts = [np.append(np.ones(root.k), np.zeros(root.size - root.k)) for _, root in self.open]
        return float(value), np.concatenate([np.zeros(0), *parts])


def _units(term, spread):
    """Units of the effects of a term: what moves f by a spread of y in a typical row."""
    size = np.sqrt(np.mean((term.Z / np.max(np.abs(term.Z), axis=0)) ** 2, axis=0)) * np.max(np.abs(term.Z), axis=0)
    with np.errstate(over="ignore"):
        return check_within_range(spread / size, "effects in the scale of y and X")


def component_names(term):
    """Names of the standard deviations and correlations of the effects of a term."""
    group, columns = term.group, term.columns
    below = zip(*np.tril_indices(len(columns), -1), strict=True)
    return [f"sd({column} | {group})" for column in columns] + [
        f"corr({columns[j]}, {columns[i]} | {group})" for i, j in below
    ]


class MixedEvidence(LinearEvidence):
    """The log evidence of a mixed model at given covariances and parameters of the likelihood."""

    def problem_at(self, settings):
        """The problem with these covariances."""
        return replace(self.problem, covariances=settings.prior)

    def best(self, settings):
        """The problem of a model with these settings."""
        problem = self.problem_at(settings)
        return replace(problem, model=replace(problem.model, likelihood=settings.likelihood))

    def prior_gradient(self, point, vector):
        """Derivatives in the free numbers of covariances: of the expected log prior, as sites are constants.

        With W = V^-1, J levels and S the sum of the second moments of their effects it is tr(G dV), where
        G = (W S W - J W)/2.
        """
        layout, belief, pattern = point.problem.layout, point.fit.belief, point.geometry.pattern
        rows, columns = pattern.rows[pattern.prior], pattern.columns[pattern.prior]
        moments = layout.second_moments(belief.inverse[pattern.prior] + belief.step[rows] * belief.step[columns])
        parts, gradients = iter(vector.parts(vector.pack(point.settings))), []
        for root, covariance, sums, (levels, _) in zip(
            vector.roots, point.settings.prior, moments, layout.shapes, strict=True
        ):
            if root is not None:
                precision = invert_covariance(covariance)
                slopes_of = 0.5 * (precision @ sums @ precision - levels * precision)
                gradients.append(root.slopes(next(parts), slopes_of))
        return np.concatenate(gradients)


def learn_settings(problem, names, threads, options):
    """Maximise the log evidence over open covariances and what is named of the likelihood; return a `SearchResult`."""
    starts = choose_likelihoods(problem, names)
    covariances, prior = problem.covariances, problem.model.effects_prior
    vector = FreeCovariances(problem.terms, covariances, names, starts[0], problem.used, prior)
    return maximise_evidence(MixedEvidence(problem, vector, threads, options), starts, options.job)
