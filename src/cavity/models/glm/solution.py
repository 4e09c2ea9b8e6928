"""The solution of a GLM: the choice of engine, the moments of the weights, and predictions by them."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.arrays import cholesky, error_of
from cavity.base.errors import name_arguments
from cavity.base.rows import check_moments
from cavity.ep.engine import filter_rows
from cavity.ep.factories import make_engine
from cavity.ep.fit_result import FitResult
from cavity.ep.sites import Sites
from cavity.ep.weights import WeightRoot, make_weights
from cavity.likelihoods.parameters import list_open_parameters
from cavity.models.integral import MAX_AUTO_LEVELS, PointPosterior, SiteMoments, add_integral, choose_integration
from cavity.models.linear.evidence import FreeFactors, LinearEvidence
from cavity.models.linear.evidence_search import Solution, learn_settings
from cavity.models.posterior_mixture import PosteriorMixture
from cavity.models.search import SearchResult
from cavity.sources.features import SPARSE_KIND, iterate_checked_blocks, kind_of


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Moments of the weights; `covariance` is None where they are independent."""

    mean: np.ndarray  # (D,)
    variance: np.ndarray  # (D,)
    covariance: WeightRoot | None

    @classmethod
    def of(cls, mean, covariance):
        """Return weights that may depend on each other."""
        return cls(mean, covariance.variances(), covariance)

    def predict(self, X, offset, prepared=None):
        """Return means and variances of f = x'w + offset at checked rows X; OverflowError where they are not finite.

        `prepared`, if given, scales rows of X as the weights expect them.
        """
        if self.covariance is None and (prepared is None or kind_of(X) == SPARSE_KIND):
            from cavity.models.glm import diagonal  # scipy.sparse takes a while to load

            X = X if prepared is None else prepared(X)
            mean, variance = diagonal.predict(X, self.mean, self.variance, offset)
        else:
            mean, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
            with np.errstate(over="ignore", invalid="ignore"):
                for part, x in iterate_checked_blocks(X):
                    x = x if prepared is None else prepared(x)
                    mean[part] = x @ self.mean
                    variance[part] = (x * x) @ self.variance if self.covariance is None else self.covariance.spread(x)
                mean += offset
        check_moments(mean, variance)
        return mean, variance

    def deviations(self, z):
        """Return rows of independent standard normal numbers as deviations of the weights from their mean."""
        return z * np.sqrt(self.variance) if self.covariance is None else self.covariance.colour(z)

    def sample(self, n, rng):
        """Return draws (n, D)."""
        return self.mean + self.deviations(rng.standard_normal((n, len(self.mean))))

    @property
    def root(self):
        """A root (D, D) of the covariance."""
        root = self.covariance.full_root()
        return np.diag(root) if root.ndim == 1 else root

    def cross(self, rows):
        """The joint covariance (m, m) of linear combinations, rows (m, D)."""
        half = rows @ self.root
        return half @ half.T

    def solve_for(self, index):
        """The covariances of some weights with all, (m, D)."""
        return self.root[index] @ self.root.T

    def combine(self, rows):
        """The posterior of linear combinations of the weights, rows (m, D)."""
        return Weights.of(rows @ self.mean, WeightRoot(rows @ self.root))


def mix_weights(integration):
    """Return the mixture of the weights at the points of an integral."""
    d = integration.means.shape[1]
    roots = [WeightRoot(root.reshape(d, -1)) for root in integration.entries]
    points = [Weights.of(mean, root) for mean, root in zip(integration.means, roots, strict=True)]
    return PosteriorMixture(points, integration.weights)


def match_weights(mixture):
    """Return normal weights of the mean and the covariance of a mixture."""
    difference = np.sqrt(mixture.weights)[:, None] * (np.stack([point.mean for point in mixture.points]) - mixture.mean)
    every = np.eye(len(mixture.mean))
    within = sum(weight * point.cross(every) for weight, point in zip(mixture.weights, mixture.points, strict=True))
    root = cholesky(within + difference.T @ difference, "the covariance of the mixture")
    return Weights.of(mixture.mean, WeightRoot(root))


def measure_prior_gap(weights, prior):
    """Return the log of the density of weights over that of their prior, at the posterior mean."""
    posterior_root = cholesky(weights.cross(np.eye(len(weights.mean))), "the covariance of the weights")
    prior_root = np.diag(prior.root) if prior.root.ndim == 1 else prior.root
    difference = np.linalg.solve(prior_root, weights.mean - prior.mean)
    logs = np.sum(np.log(np.abs(np.diagonal(prior_root)))) - np.sum(np.log(np.diagonal(posterior_root)))
    return float(0.5 * difference @ difference + logs)


class WeightEvidence(LinearEvidence):
    """The log evidence of a GLM with a posterior of weights at the points of an integral."""

    def make_point_posterior(self, point):
        """Return the `PointPosterior` of an `EvidencePoint`."""
        fit, rows = point.fit, self.problem.used
        weights = Weights.of(*make_weights(point.problem.prior.moments, point.geometry, fit.belief))

        def find_moments():
            X = np.concatenate([x for _, x in iterate_checked_blocks(rows.X)])
            moments = weights.predict(X, np.zeros(rows.n) if rows.offset is None else rows.offset)
            return SiteMoments(self.sites(point.settings.likelihood), X, *moments, fit.tau, fit.rho)

        return PointPosterior(point.settings, weights, weights.root.ravel(), fit.loo, find_moments)


MAX_INTEGRATED_WEIGHTS = 2000  # up to which a covariance is held for each point of an integral
MAX_ROW_COPIES = 1e7  # copies of rows in ADF beyond one each: some seconds


def solve(problem, method, run, threads, names=(), groups=None, before=None):
    """Solve a problem by EP or ADF.

    Parameters
    ----------
    problem : GLMProblem
        Rows, likelihood and prior.
    method : "ep" or "adf"
        How.
    run : Options
        Those of EP, and the job.
    threads : Threads
        For the work on blocks.
    names : tuple of str
        What is learnt.
    groups : ndarray or None
        The groups of prior variances that are learnt, see `check_groups`.
    before : WeightRoot, optional
        Of the posterior that is the prior of an update.

    Returns
    -------
    Solution
    """
    rows, prior = problem.used, problem.prior
    if problem.model.approximation == "diagonal":
        from cavity.models.glm import diagonal  # scipy.sparse takes a while to load

        if method == "adf":
            _count_copies(rows.weights)
        fit = diagonal.fit(problem.model.likelihood, rows, prior, method, run)
        return Solution(problem, fit, Weights(fit.belief.mean, fit.belief.variance, None))
    if rows.n == 0:
        _check_no_open_parameters(problem.model.likelihood)
        covariance = WeightRoot(prior.root) if before is None else before
        return Solution(problem, _make_empty_fit(method), Weights.of(prior.mean, covariance))
    if run.schedule == "stochastic" and (run.power != 1 or np.any(rows.weight() < 1)):
        message = "schedule='stochastic' averages whole sites: power must be 1 and weights at least 1"
        raise name_arguments(ValueError(message), "schedule", "power")
    if method == "adf":
        search, (geometry, fit) = SearchResult(problem), _filter_rows(problem, threads)
    else:
        search, evidence, integral = SearchResult(problem), None, None
        if names or problem.model.integrate is not False:
            integral = check_integral(problem, names, groups, run.power)
            prepare = FreeFactors.add_default_priors if integral in ("grid", "ccd") else None
            search, evidence = learn_settings(problem, names, groups, threads, run, WeightEvidence, prepare)
        problem = search.optimum
        sites = Sites(problem.model.likelihood, rows.y, rows.weights, run.power)
        geometry = problem.geometry(threads, run.job)
        last = run.job.final_job().substage("last")
        fit = make_engine(geometry, sites, replace(run, job=last), search.start).run()
    weights = Weights.of(*make_weights(problem.prior.moments, geometry, fit.belief))
    fit, integration, status = replace(fit, trace=fit.trace | search.trace), None, search.status
    if method == "ep" and integral is not None:
        fit, integration, _, status = add_integral(fit, evidence, search, run.job, integral, (fit.tau, fit.rho))
    return Solution(problem, fit, weights, search.hyperparameters, status, integration)


def check_integral(problem, names, groups, power):
    """Return the method of the integral over hyperparameters of these names, or None; ValueError for many weights, and
    for powers of EP other than 1.
    """
    n_free = len(names) if groups is None else len(names) - 1 + len(np.unique(groups[groups >= 0]))
    method = choose_integration(problem.model.integrate, n_free, problem.used.n <= MAX_AUTO_LEVELS, power)
    if method is not None and len(problem.prior.mean) > MAX_INTEGRATED_WEIGHTS:
        message = f"must be False for more than {MAX_INTEGRATED_WEIGHTS} weights, got {len(problem.prior.mean)} of them"
        raise error_of("integrate", message)
    return method


def _check_no_open_parameters(likelihood):
    """Raise ValueError if a likelihood has open parameters but there are no rows to find them from."""
    for name in list_open_parameters(likelihood):
        raise ValueError(
            f"{name} of {type(likelihood).__name__} cannot be found: every row of X is 0 or has weight 0; give a number"
        )


def _make_empty_fit(method):
    """Return the fit of no rows."""
    trace = {} if method == "adf" else dict(change=np.zeros(1), improper=np.zeros(1), double_loop=np.array(0))
    none = dict.fromkeys(("tau", "rho", "loo"), np.zeros(0))
    return FitResult.of_one_pass(belief=None, log_evidence=0.0, trace=trace, **none)


def _filter_rows(problem, threads):
    """Run ADF over the rows in order; a row of weight w > 1 is repeated."""
    rows = _repeat_rows(problem.used)
    geometry = replace(problem, used=rows).geometry(threads)
    belief, log_z = filter_rows(geometry, Sites(problem.model.likelihood, rows.y, rows.weights))
    if belief is None:
        raise ArithmeticError("ADF lost the posterior to rounding; rescale the columns of X")
    return geometry, FitResult.of_one_pass(belief=belief, log_evidence=log_z)


def _count_copies(weights):
    """Return how often ADF repeats rows of these weights, None for once; ValueError for too many copies."""
    if weights is None:
        return None
    times = np.ceil(weights)
    copies = np.sum(times - np.minimum(times, 1.0))
    if copies > MAX_ROW_COPIES:
        raise ValueError(
            f"ADF takes in a row of weight w that many times; the weights need {copies:.3g} copies of rows, "
            f"more than {MAX_ROW_COPIES:.0e}: use method='ep'"
        )
    return times


def _repeat_rows(rows):
    """Return rows of weight w > 1 repeated, whole copies first, with the weights that remain."""
    times = _count_copies(rows.weights)
    if times is None:
        return rows
    times = times.astype(np.intp)
    index = np.repeat(np.arange(len(times)), times)
    weights = np.ones(len(index))
    weights[np.cumsum(times) - 1] = rows.weights - (times - 1)
    return replace(rows.part(index), weights=weights)
