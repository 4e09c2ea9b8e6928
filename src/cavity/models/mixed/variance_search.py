"""Search for covariances of random effects, and parameters of other terms and of the likelihood, of a mixed model."""

from dataclasses import replace

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.errors import NumericalWarning, warn
from cavity.base.lazy_scipy import linalg
from cavity.base.scales import FISHER_Z_SCALE, LOG_SCALE, LOGIT_SCALE
from cavity.ep.engine import renew_block
from cavity.ep.fit_result import FitResult
from cavity.likelihoods import Gaussian
from cavity.likelihoods.parameters import find_unit
from cavity.models.defaults import find_location_and_spread
from cavity.models.evaluations import EvidencePoint, FreeSettings
from cavity.models.hyperpriors import AVOID_ZERO_PRIOR, FLAT_SHARE_PRIOR
from cavity.models.integral import MAX_AUTO_LEVELS, PointPosterior, SiteMoments, choose_integration
from cavity.models.linear.evidence import FactorSettings, LinearEvidence
from cavity.models.linear.evidence_search import choose_likelihoods, maximise_evidence
from cavity.models.linear.moving_search import find_prior_information
from cavity.models.linear.separation import are_all_on_one_side
from cavity.models.mixed.effects import Effects
from cavity.models.mixed.information import PriorDirections, find_likelihood_information
from cavity.models.mixed.response import FixedPointResponse
from cavity.models.search import SearchResult
from cavity.priors import UniformCorrelation

LARGE_IN_SPREADS = 2.5  # standard deviation of an effect that is large, in spreads of y
MIN_SHARE_OF_SQUARES = 1e-2  # that is left of sums of squares: two digits are lost
MIN_MOVED_ROWS = 1 << 12  # from which a search moves with passes: with fewer, fits take as little time
MAX_INFORMING_SITES = 1 << 14  # for the curvature in parameters of the likelihood
MIN_SAMPLED_ROWS, ROWS_A_SAMPLED_ONE = 1 << 18, 16  # from which a search begins on a sample, and rows for one of it
SAMPLE_SEED = 19440606
FIRST_SHARE = 0.5  # sd of a random effect in spreads of y, where the search begins


def list_targets(terms):
    """Return all hyperparameters of terms, as priors may be of them."""
    return [target for term in terms for target in term.prior_targets]


class FreeTerms(FreeSettings):
    """Free numbers of the priors of terms, then those of the likelihood."""

    warns_of_flat = True

    def __init__(self, problem, names, likelihood):
        """`names` are those of open parameters of the likelihood."""
        rows, terms, settings = problem.used, problem.terms, problem.settings
        spread = find_location_and_spread(likelihood, rows)[1]
        self.fixed, priors = settings, problem.model.priors
        self.avoids_zero = priors == AVOID_ZERO_PRIOR
        self.scan = (0.0, np.inf) if are_all_on_one_side(likelihood, rows) else (0.0,)  # effects may take all of y
        self.maps = [term.free_parameters(setting, spread) for term, setting in zip(terms, settings, strict=True)]
        self.open = [m for m in self.maps if m is not None]
        size = sum(m.size for m in self.open)
        super().__init__(size, likelihood, names, find_unit(rows.y), priors, list_targets(terms))

    def parts(self, x):
        """The free numbers of each term that has some."""
        ends = np.cumsum([m.size for m in self.open])
        return np.split(x[: self.n_prior], ends[:-1]) if self.open else []

    def start(self, log_factor, likelihood):
        """The vector of a factor on the variances that the search begins with."""
        start = np.log(FIRST_SHARE) + 0.5 * log_factor
        return np.concatenate([*(m.start(start) for m in self.open), self.free.pack(likelihood)])

    def unpack(self, x):
        """The settings of a vector."""
        parts = iter(self.parts(x))
        pairs = zip(self.maps, self.fixed, strict=True)
        settings = tuple(fixed if m is None else m.unpack(next(parts)) for m, fixed in pairs)
        return FactorSettings(settings, self.likelihood_at(x))

    def prior_bounds(self):
        """(low, high) of every free number of a term."""
        return np.concatenate([np.zeros((0, 2)), *(m.bounds() for m in self.open)])

    @property
    def least_value(self):
        """See `FreeSettings`."""
        return -np.inf if self.avoids_zero else super().least_value

    @property
    def chosen_ends(self):
        """The places of free numbers of terms that are looked for in a range that the term chooses."""
        flags = [flag for m in self.open for flag in m.have_chosen_ends]
        return frozenset(np.flatnonzero(flags).tolist())

    def describe_prior(self, settings):
        """Names and values of what is open of the priors, and their derivatives in the free numbers."""
        names, values, blocks = [], [], []
        for m, part in zip(self.open, self.parts(self.pack(settings)), strict=True):
            components, jacobian = m.describe(part)
            names += m.names
            values += components
            blocks.append(jacobian)
        return names, values, blocks[0] if len(blocks) == 1 else linalg.block_diag(np.zeros((0, 0)), *blocks)

    def pack(self, settings):
        """The vector of some settings."""
        pairs = zip(self.maps, settings.prior, strict=True)
        parts = [m.pack(setting) for m, setting in pairs if m is not None]
        return np.concatenate([*parts, self.free.pack(settings.likelihood)])

    def flat(self, x, i, sign, earlier):
        """A component beyond which the evidence does not fall, in words: what, where, and what that means.

        `sign` is positive where that is towards larger ones, `earlier` has the numbers before i of which this was said.
        None for a correlation of an effect that is one of those.
        """
        names, values, _ = self.describe(self.unpack(x))
        firsts = np.cumsum([0, *(m.size for m in self.open)])
        number = int(np.searchsorted(firsts, i, side="right")) - 1
        first = firsts[number]
        effects = self.open[number].correlated_effects(i - first)
        if any(first + effect in earlier for effect in effects):
            return None
        if effects:
            meaning = "; the data show no variation of one effect that others do not explain"
            return names[i], f"{np.tanh(x[i]):.6g}", meaning
        if not names[i].startswith("sd"):  # a share or a length
            return names[i], f"{values[i]:.6g}", ""
        meaning = "do not limit these effects" if sign > 0 else "show no such effect"
        return names[i], f"{values[i]:.2g}", f"; the data {meaning}"

    def add_default_priors(self, terms):
        """Give a proper prior to what has none: standard deviations a PC prior whose upper value is large in the unit
        of the effects, correlations a uniform one, parameters of the likelihood a wide one about where they start.
        """
        upper = LARGE_IN_SPREADS if self.likelihood.link == "identity" else 1.0
        defaults = {LOGIT_SCALE: FLAT_SHARE_PRIOR, FISHER_Z_SCALE: UniformCorrelation()}
        positive = {name: prior for m in self.open for name, prior in m.default_priors(upper).items()}
        for target in list_targets(terms):
            prior = positive.get(target.name) if target.scale == LOG_SCALE else defaults[target.scale]
            if prior is not None:
                self.priors.setdefault(target.name, (prior, target.scale))
        super().add_default_priors()

    def log_prior(self, settings):
        """That of the priors of hyperparameters, or one that keeps variances away from zero, and its slopes."""
        if not self.avoids_zero:
            return super().log_prior(settings)
        values, slopes = 0.0, [np.zeros(0)]
        for m, part in zip(self.open, self.parts(self.pack(settings)), strict=True):
            value, slope = m.log_prior(part)
            values += value
            slopes.append(slope)
        return float(values), np.concatenate(slopes)


class MixedEvidence(LinearEvidence):
    """The log evidence of a mixed model at given settings of terms and parameters of the likelihood.

    With Gaussian noise it is exact: the sums over rows of the sites are those of unit noise over its variance, and are
    found once. With w the weights, m the posterior means of f and q the posterior of the effects a,

        log p(y) = sum_i w_i log N(y_i; m_i, s^2) + log p(E a) - log q(E a),                                       (1)
        d log p(y)/d log s^2 = sum_i [w_i (y_i - m_i)^2/s^2 - w_i]/2 + tr(X'W X Cov a)/(2 s^2).                    (2)
    """

    def __init__(self, problem, vector, threads, options, needs_sites=False):
        """With `needs_sites` all fits are by EP, as leave-one-out densities need it."""
        super().__init__(problem, vector, threads, options)
        self.is_exact, self._sums = not needs_sites and type(problem.model.likelihood) is Gaussian, None
        self._last = None  # of passes: the sites of the last one, their belief and its likelihood
        self._first_sums = None, None  # first sites, and their sums over rows
        self.last_point = None  # of `at`

    def for_integral(self, start):
        """The same evidence for an integral: each point has sites, and the first fit starts from some."""
        return super().for_integral(start, needs_sites=True)

    def make_point_posterior(self, point):
        """Return the `PointPosterior` of an `EvidencePoint`."""
        merged, fit = self.problem.sites, point.fit
        effects, sites = Effects.of(point.geometry, point.belief), self.sites(point.settings.likelihood)
        moments = SiteMoments(sites, merged.matrix.tocsr(), fit.belief.mean, fit.belief.variance, fit.tau, fit.rho)
        loo = merged.expand(fit, point.settings.likelihood).loo
        return PointPosterior(point.settings, effects, effects.entries, loo, lambda: moments, effects.pin_precisions)

    def at(self, settings, **options):
        """Return the `EvidencePoint` of some settings; `options` replace those of EP."""
        if self._last is not None and self._last[0] is self.start:
            self._renew_last(self.problem_at(settings).geometry(self.threads))
        self._last = None
        self.last_point = self._exact_at(settings) if self.is_exact else super().at(settings, **options)
        return self.last_point

    def _exact_at(self, settings, informs=False):
        """Return the `EvidencePoint` of Gaussian noise."""
        problem, noise = self.problem_at(settings), settings.likelihood.noise_variance
        geometry, rows, weights = problem.geometry(self.threads, self.job), problem.sites.rows, problem.sites.weights
        if self._sums is None:
            residual = rows.y - geometry.base
            self._sums = geometry.sum_rows(weights.copy(), weights * residual)
            self._squares = float(np.sum(weights * residual**2))
        directions = PriorDirections(geometry, problem, self.vector) if informs else None
        sums = (total / noise for total in self._sums)
        belief = geometry.belief(*sums, has_marginals=False, find_directions=directions and directions.find)
        if belief is None:
            raise ArithmeticError("there is no posterior at these settings")
        misfit = self._measure_misfit(problem, geometry, belief, noise) - 2.0 * self.constant(settings.likelihood)
        log_density = -0.5 * (float(np.sum(weights)) * (LOG_2PI + np.log(noise)) + misfit)
        point = EvidencePoint(settings, log_density - belief.prior_gap(), belief, geometry, None, problem)
        if informs:  # that about log s^2 is about that of independent residuals
            of_noise = np.full(self.vector.free.size, 0.5 * float(np.sum(weights)))
            point.information = linalg.block_diag(directions.information(belief), np.diag(of_noise))
        return point

    def gives_information(self, n_rows):
        """Whether a search moves with passes from afar: among few rows fits take as little time."""
        return n_rows >= MIN_MOVED_ROWS and self.vector.n_prior > 0

    def sample_rows(self):
        """Return the evidence of some of many rows, from whose maximum a search of all of them begins; else None."""
        problem, n = self.problem, self.problem.sites.rows.n
        if self.is_exact or n < MIN_SAMPLED_ROWS or problem.sites.merged is not None:
            return None
        size = max(MIN_SAMPLED_ROWS // ROWS_A_SAMPLED_ONE, n // ROWS_A_SAMPLED_ONE)
        index = np.sort(np.random.default_rng(SAMPLE_SEED).choice(n, size, replace=False))
        return type(self)(problem.with_sites(index), self.vector, self.threads, self.options)

    def start_from(self, few):
        """Start from the sites of the evidence of some rows, without sites of others."""
        self.start = np.zeros(self.problem.sites.rows.n), np.zeros(self.problem.sites.rows.n)
        for values, of_few in zip(self.start, few.start, strict=True):
            values[few.problem.sites.firsts] = of_few

    def pass_at(self, settings, informs=False):
        """Return the `EvidencePoint` of some settings from the first sites, which then are renewed once.

        With `informs` it has the information. Its log evidence is nan; None where there is no posterior, or cavities
        are improper.
        """
        try:
            return self._exact_at(settings, informs) if self.is_exact else self._renew_at(settings, informs)
        except (ArithmeticError, np.linalg.LinAlgError):
            return None

    def _renew_at(self, settings, informs):
        """Return the `EvidencePoint` of a pass, whose sites are renewed by the next one."""
        problem = self.problem_at(settings)
        geometry = problem.geometry(self.threads, self.job)
        last, sums = self._last, None
        if last is not None and last[0] is not self.start:  # the sites have been replaced
            last = None
        if last is not None:
            sums = self._renew_last(geometry)
            if sums is None:
                return None
        elif self.start is None:
            first = geometry.first(self.sites(settings.likelihood), self.options)
            self.start = (geometry.vector(), geometry.vector()) if first is None else first
        directions = PriorDirections(geometry, problem, self.vector) if informs else None
        if sums is None:
            if self._first_sums[0] is not self.start:
                self._first_sums = self.start, geometry.gather(*self.start)
            sums = self._first_sums[1]
        belief = geometry.belief(*sums, find_directions=directions and directions.find)
        if belief is None:
            return None
        change = np.inf if last is None else belief.change_from(last[1])
        outcome = {"status": "", "n_iter": 1, "trace": {"change": [change]}, "log_evidence": np.nan, "residual": np.nan}
        fit = FitResult(belief=belief, tau=self.start[0], rho=self.start[1], **outcome)
        point = EvidencePoint(settings, np.nan, belief, geometry, fit, problem)
        self._last = self.start, belief, settings.likelihood
        if informs:
            free, every = self.vector.free, -(-geometry.n_rows // MAX_INFORMING_SITES)
            total = self._make_total(point, free, every)[0]
            of_likelihood = np.diag(find_likelihood_information(free, settings.likelihood, total))
            point.information = linalg.block_diag(directions.information(belief), of_likelihood)
        return point

    def _renew_last(self, geometry):
        """Renew the sites of the last pass; return their sums, None where cavities are improper."""
        start, belief, likelihood = self._last
        new = geometry.vector(), geometry.vector()
        (*sums, skipped), new = geometry.sums(renew_block, self.sites(likelihood), start, belief, 1.0, 1.0, new=new)
        if skipped:
            return None
        self.start = new
        return sums

    def find_converged_gradient(self, x, tol):
        """Return the gradient of the log evidence and log prior at a vector by passes, None where noise is Gaussian."""
        return None if self.is_exact else super().find_converged_gradient(x, tol)

    def estimate_change(self, settings, to_settings):
        """See `LinearEvidence`: with the sites of the last point, of which the evidence is stationary there."""
        last, pack = self.last_point, self.vector.pack
        is_at = not self.is_exact and last is not None and np.array_equal(pack(settings), pack(last.settings))
        if not is_at or to_settings.likelihood != settings.likelihood:
            return np.nan
        belief = self.problem_at(to_settings).geometry(self.threads).belief(last.belief.h, last.belief.g, False)
        return np.nan if belief is None else belief.log_integral() - last.belief.log_integral()

    def find_curvature(self, x, free):
        """See `LinearEvidence`: by the response of the fixed point, None where noise is Gaussian."""
        if self.is_exact:
            return None
        try:
            curvature = FixedPointResponse(self, x).find_curvature(free)
        except (ArithmeticError, np.linalg.LinAlgError):
            return None
        of_prior = find_prior_information(self.vector, x)[np.ix_(free, free)]
        return curvature + of_prior if curvature is not None and np.isfinite(curvature).all() else None

    def find_start(self, settings):
        """Return the sites that the last fit starts from: those of Gaussian noise do not depend on anything else."""
        if not self.is_exact:
            return self.start
        precisions = self.problem.sites.weights / settings.likelihood.noise_variance
        return precisions * self.problem.sites.rows.y, precisions  # as matched: the first sweep leaves them alone

    def likelihood_gradient(self, point, free):
        """Derivatives in the free numbers of the likelihood."""
        if point.fit is not None or not free.size:
            return super().likelihood_gradient(point, free)
        weights, likelihood = point.problem.sites.weights, point.settings.likelihood
        misfit = self._measure_misfit(point.problem, point.geometry, point.belief, likelihood.noise_variance)
        misfit -= 2.0 * self.constant(likelihood)
        return np.array([0.5 * (misfit - float(np.sum(weights)) + point.belief.trace)])  # (2)

    def _measure_misfit(self, problem, geometry, belief, noise):
        """Return the weighted sum of squares of y less the posterior means of f, over the noise variance.

        From the sums over rows, unless these cancel to too few digits.
        """
        (H, g), step, size = self._sums, belief.step, np.abs(belief.step)
        squares = self._squares - 2.0 * float(g @ step) + float(step @ geometry.pattern.product(H, step))
        largest = self._squares + 2.0 * float(np.abs(g) @ size)
        largest += float(size @ geometry.pattern.product(np.abs(H), size))
        if not squares > MIN_SHARE_OF_SQUARES * largest:
            f = geometry.base + geometry.pattern.pairs.matvec(belief.step, self.threads)
            squares = float(np.sum(problem.sites.weights * (problem.sites.rows.y - f) ** 2))
        return squares / noise

    def problem_at(self, settings):
        """The problem with these settings of terms."""
        return replace(self.problem, settings=settings.prior)

    def best(self, settings):
        """The problem of a model with these settings."""
        problem = self.problem_at(settings)
        return replace(problem, model=replace(problem.model, likelihood=settings.likelihood))

    def sites(self, likelihood):
        """The sites of the rows, equal ones once."""
        if self._sites is None or self._sites[0] is not likelihood:
            self._sites = likelihood, self.problem.sites.make_sites(likelihood, self.options.power)
        return self._sites[1]

    def constant(self, likelihood):
        """The log evidence of the rows less that of the sites."""
        return self.problem.sites.constant(likelihood)

    def _fit(self, geometry, likelihood, *arguments):
        """Run the engine; return the fit with the log evidence of the rows, None where arithmetic fails."""
        fit = super()._fit(geometry, likelihood, *arguments)
        return fit and self.problem.sites.correct(fit, likelihood)

    def prior_gradient(self, point, vector):
        """Derivatives in the free numbers of terms: of the expected log prior, as sites are constants."""
        layout, belief, pattern = point.problem.layout, point.belief, point.geometry.pattern
        rows, columns = pattern.rows[pattern.prior], pattern.columns[pattern.prior]
        moments = layout.split_entries(belief.inverse[pattern.prior] + belief.step[rows] * belief.step[columns])
        parts, gradients = iter(vector.parts(vector.pack(point.settings))), []
        for block_map, setting, entries, block in zip(
            vector.maps, point.settings.prior, moments, layout.blocks, strict=True
        ):
            if block_map is not None:
                gradients.append(block_map.slopes(next(parts), block.slopes(setting, entries)))
        return np.concatenate(gradients)


def _fix_smallest(problem, vector, likelihood):
    """Return the problem with the smallest standard deviations of the search; warn that y does not determine them."""
    x = np.clip(vector.start(-np.inf, likelihood), *vector.bounds(vector.free.pack(likelihood)).T)
    settings = vector.unpack(x)
    warn(
        f"y has no variation from which {', '.join(vector.describe_prior(settings)[0])} could be found: effects are "
        "taken to be none; give effect_covariances or priors",
        NumericalWarning,
    )
    return replace(problem, settings=settings.prior)


def learn_settings(problem, names, threads, options, varies=True):
    """Maximise the log evidence over what is open of terms and likelihood, if y `varies`.

    Returns
    -------
    search : SearchResult
        Its maximum.
    evidence : MixedEvidence
        Of the open settings.
    method : str or None
        How hyperparameters are integrated.
    """
    starts = choose_likelihoods(problem, names)
    vector = FreeTerms(problem, names, starts[0])
    levels = [len(term.levels) for term in problem.terms if hasattr(term, "levels")]
    is_small = bool(levels) and min(levels) <= MAX_AUTO_LEVELS
    method = choose_integration(problem.model.integrate, vector.size, is_small, options.power)
    if method in ("grid", "ccd"):
        vector.add_default_priors(problem.terms)
    elif vector.n_prior and not (varies or vector.priors or vector.avoids_zero):
        problem = _fix_smallest(problem, vector, starts[0])
        vector = FreeTerms(problem, names, starts[0])
    evidence = MixedEvidence(problem, vector, threads, options)
    if not vector.size:
        return SearchResult(problem), evidence, method
    search = maximise_evidence(evidence, starts, options.job)
    evidence.last_point = None  # which is large
    return search, evidence, method
