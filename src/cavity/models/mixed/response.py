"""The curvature of EP's log evidence in hyperparameters, from how its fixed point moves with them.

Let Phi be the log of the integral of the prior times sites of natural parameters (tau, rho), C the covariance of
(f, -f^2/2) of all rows under the posterior, V_i that of row i alone and T_i that under its tilted distribution. With a
number x_k of the likelihood a site at its cavity moves by s_ik, and the tilted moments of (f, -f^2/2) by
w_ik = V_i s_ik; both are 0 for one of the prior. With u_k the change of the moments under the posterior where sites
move by s_k alone, the fixed point is where they move by

    ds_k = s_k + W dm_k,    dm_k = u_k - w_k + C W dm_k,    W_i = V_i^-1 - T_i^-1,                                  (1)

so that by the implicit function theorem, EP's evidence being stationary in the sites,

    d^2 log Z/dx_k dx_l = d^2 Phi/dx_k dx_l + d^2 sum_i log Z_i/dx_k dx_l - sum_i s_ik' w_il
                          + (u_k - w_k)' (W + W C W + W C W C W + ...) (u_l - w_l),                                 (2)

where Phi moves with the prior and s, and Z_i are the normalisers at constant cavities. W is 0 for a Gaussian tilted
distribution and small where rows say little on their own. Among many rows the term with W is estimated from some of
them, and is the only one where that with WCW, of a sum of all directions and by pairs of rows, is small.
"""

from functools import partial
from itertools import combinations

import numpy as np

from cavity.ep.corrections import find_tilted_cumulants
from cavity.ep.site_updates import find_cavities
from cavity.linalg.row_pairs import RowPairs
from cavity.models.evaluations import EvidencePoint

SHORT_STEP = 3e-4  # of a free number, in one-sided differences of moments
LONG_STEP = 1e-2  # of one of the likelihood, in central differences of sites and second ones of their normalisers
MIN_SAMPLED_ROWS = 1 << 18  # from which some rows stand for all: with fewer, all take less time than a factorisation
MAX_SAMPLED_ROWS, SAMPLE_SEED = 1 << 14, 19500525
MAX_SECOND_SHARE = 1e-3  # of curvatures, by the term with WCW, beyond which the responses of all rows are found
LEAST_SHARE = 5e-4  # of a curvature, by the last terms of (2)
MAX_TERMS = 20  # pairs of terms of (2)
NO_MOMENTS = np.zeros((2, 1))  # of tilted distributions, that the prior does not change


class _RowResponses:
    """Some rows at a fixed point, and how their sites respond: the moments and W of each."""

    def __init__(self, response, rows):
        """`rows` are a slice of all, or the numbers of some."""
        belief, geometry, pattern = response.point.belief, response.point.geometry, response.point.geometry.pattern
        self.rows, self.threads, self.base, self.pairs = rows, geometry.threads, geometry.base[rows], pattern.pairs
        sites = response.sites
        if not isinstance(rows, slice):
            X, sites = pattern.X[rows].tocsr(), sites.of_rows(rows)
            self.pairs = RowPairs(X.indptr, X.indices, X.data, X.shape[1])
            self.pairs.place_in(pattern.indptr, pattern.rows)
        self.mean, self.variance = belief.mean[rows], belief.variance[rows]
        self.sd, self.n_rows = np.sqrt(self.variance), len(self.mean)
        third, fourth, _ = find_tilted_cumulants(
            sites, self.mean, self.variance, response.tau[rows], response.rho[rows]
        )
        scale = geometry.n_rows / self.n_rows / (fourth + 2.0 - third**2)
        # W by its entries in units of (z, -z^2/2), z the standardised f, for as many rows as all
        self.W = -(third**2) * scale, -2.0 * third * scale, 2.0 * (fourth - third**2) * scale

    def respond(self, step, inverse, own):
        """Return W dm and dm in these units, (2, 2, n), for changes of the mean of effects and of their covariance, dm
        less `own` changes of the means and variances of rows.
        """
        own = [values[self.rows] if len(values) > 1 else values for values in own]
        a = (self.pairs.matvec(step) - own[0]) / self.sd
        b = -0.5 * (self.pairs.variances(inverse, self.threads) - own[1]) / self.variance
        return np.array([(self.W[0] * a + self.W[1] * b, self.W[1] * a + self.W[2] * b), (a, b)])

    def add_up(self, a, b):
        """Return the sums of sites that change by numbers in these units."""
        rho = b / self.variance
        g = a / self.sd + (self.mean - self.base) * rho
        return self.pairs.sum(rho, self.threads), self.pairs.transposed(g, self.threads)


class FixedPointResponse:
    """The curvature (2) at sites near a fixed point.

    Parameters
    ----------
    evidence : MixedEvidence
        Its `start` are the sites.
    x : ndarray (n,)
        The free numbers that these belong to.
    """

    def __init__(self, evidence, x):
        self.evidence, self.x, (self.tau, self.rho) = evidence, x, evidence.start
        self.settings = evidence.vector.unpack(x)
        self.sites = evidence.sites(self.settings.likelihood)
        problem = evidence.problem_at(self.settings)
        geometry = problem.geometry(evidence.threads)
        last, pack = evidence.last_point, evidence.vector.pack
        if last is not None and last.fit.tau is self.tau and np.array_equal(pack(last.settings), pack(self.settings)):
            self.point = last
        else:
            self.point = self._make_point(self.settings, problem, geometry, geometry.gather(*evidence.start), True)
        self.sums = self.point.belief.h, self.point.belief.g

    def find_curvature(self, free):
        """Return minus the second derivatives of the log evidence in some free numbers, (k, k).

        None where sites stand for parts of rows, or terms of (2) do not become small.
        """
        if not np.all(self.sites.fraction == 1.0):
            return None
        n_prior = self.evidence.vector.n_prior
        of_prior = [i for i in free if i < n_prior]
        own, directions, moments = self._differentiate_likelihood([i - n_prior for i in free if i >= n_prior])
        moves = [partial(self._move_prior, i) for i in of_prior]
        moves += [partial(self._move_sites, *direction) for direction in directions]
        changes = [*zip(moves, [NO_MOMENTS] * len(of_prior) + moments, strict=True)]
        rows = _RowResponses(self, _choose_rows(self.point.geometry.n_rows))
        matrix, slopes, responses = np.empty((len(free), len(free))), self._find_slopes(self.point), []
        for line, (move, moment) in zip(matrix, changes, strict=True):  # points are large: one at a time
            point = move()
            line[: len(of_prior)] = ((self._find_slopes(point) - slopes) / SHORT_STEP)[of_prior]
            line[len(of_prior) :] = [self._multiply(point, direction) for direction in directions]
            responses.append(rows.respond(*self._subtract(point), moment))
            del point
        matrix[len(of_prior) :, len(of_prior) :] += own
        response = self._add_terms(rows, responses, changes, np.abs(np.diagonal(matrix)))
        return None if response is None else -0.5 * (matrix + matrix.T) - response

    def _make_point(self, settings, problem, geometry, sums, has_marginals=False):
        """Return the point of some sums of sites."""
        belief = geometry.belief(*sums, has_marginals=has_marginals)
        if belief is None:
            raise ArithmeticError("there is no posterior near these settings")
        return EvidencePoint(settings, np.nan, belief, geometry, None, problem)

    def _move_prior(self, i):
        """Return the point after a step of a free number of the prior, at these sites."""
        settings = self.evidence.vector.unpack(self.x + SHORT_STEP * (np.arange(len(self.x)) == i))
        problem = self.evidence.problem_at(settings)
        return self._make_point(settings, problem, problem.geometry(self.evidence.threads), self.sums)

    def _move_sites(self, h, g):
        """Return the point after a step along a direction of sums of sites."""
        sums = self.sums[0] + SHORT_STEP * h, self.sums[1] + SHORT_STEP * g
        return self._make_point(self.settings, self.point.problem, self.point.geometry, sums)

    def _find_slopes(self, point):
        """Return the slopes in the free numbers of the prior."""
        vector = self.evidence.vector
        return self.evidence.prior_gradient(point, vector) if vector.n_prior else np.zeros(0)

    def _multiply(self, point, sums):
        """Return the product of the change of moments to a point with a direction of sums of sites."""
        return self.point.geometry.pair_moments(point.belief, self.point.belief, 0.5 * SHORT_STEP, *sums)

    def _subtract(self, point):
        """Return the changes of the mean of effects and of their covariance to a point, for a step of one."""
        at, belief = point.belief, self.point.belief
        return (at.step - belief.step) / SHORT_STEP, (at.inverse - belief.inverse) / SHORT_STEP

    # ------------------------------------------------------------------------------------------ sites at their cavities

    def _differentiate_likelihood(self, numbers):
        """Return the second and third sums of (2) in free numbers of the likelihood, the sums of s of each, and w."""
        if not numbers:
            return 0.0, [], []
        geometry, mean, free = self.point.geometry, self.point.belief.mean, self.evidence.vector.free
        m, v, proper = find_cavities(mean, self.point.belief.variance, self.tau, self.rho, 1.0)
        if not np.all(proper):
            raise ArithmeticError("cavities are improper")
        middle = self._add_up(self.settings.likelihood, m, v)
        changes, totals = zip(*(self._differentiate(i, m, v) for i in numbers), strict=True)
        own = np.diag(np.array(totals) - 2.0 * middle) / LONG_STEP**2
        for i, j in combinations(range(len(numbers)), 2):
            both = 0.0
            for step in (LONG_STEP, -LONG_STEP):
                other = free.step(self.settings.likelihood, numbers[i], step)
                both += self._add_up(free.step(other, numbers[j], step), m, v)
            own[i, j] = own[j, i] = 0.5 * (both + 2.0 * middle - totals[i] - totals[j]) / LONG_STEP**2
        for row, (tau, rho, *_) in zip(own, changes, strict=True):
            row -= [float(shift @ (tau - mean * rho) - 0.5 * spread @ rho) for _, _, shift, spread in changes]
        sums = [geometry.sum_rows(rho, tau - rho * geometry.base) for tau, rho, *_ in changes]
        return own, sums, [change[2:].copy() for change in changes]

    def _differentiate(self, i, m, v):
        """Return the slopes of tau and rho of sites at cavities and of their tilted moments in a free number, (4, N),
        and the sum of `_add_up` on both sides.
        """
        free, likelihood, out = self.evidence.vector.free, self.settings.likelihood, np.empty((4, len(m)))
        ends = [free.step(likelihood, i, step) for step in (LONG_STEP, -LONG_STEP)]
        sites = [self.evidence.sites(end) for end in ends]

        def differ(start, stop):
            part, total, values = slice(start, stop), 0.0, []
            for of_end in sites:
                log_z, tau, rho = of_end.match(part, m[part], v[part])
                variance = 1.0 / (1.0 / v[part] + rho)
                values.append(np.array([tau, rho, (m[part] / v[part] + tau) * variance, variance]))
                total += float(np.sum(log_z))
            out[:, part] = (values[0] - values[1]) / (2.0 * LONG_STEP)
            return total

        total = sum(self.evidence.threads.imap(differ, self.point.geometry.groups))
        return out, total + sum(self._find_rest(end) for end in ends)

    def _add_up(self, likelihood, m, v):
        """Return the sum of log normalisers at cavities under a likelihood, and what else depends on it."""
        sites, groups = self.evidence.sites(likelihood), self.point.geometry.groups
        totals = self.evidence.threads.imap(lambda a, b: sites.total(m[a:b], v[a:b], slice(a, b)), groups)
        return sum(totals) + self._find_rest(likelihood)

    def _find_rest(self, likelihood):
        return self.evidence.problem.rows.log_p_known(likelihood)[1] + self.evidence.constant(likelihood)

    # ------------------------------------------------------------------------------------------ responses of sites

    def _add_terms(self, rows, responses, changes, sizes):
        """Return the last line of (2) from the responses of rows, None if it does not converge.

        `changes` are functions of points after a step and w, `sizes` those of the curvatures beside it.
        """
        if not isinstance(rows.rows, slice):
            if self._measure_second_term(rows, responses, sizes) <= MAX_SECOND_SHARE:
                return _multiply_responses(responses)
            rows = _RowResponses(self, slice(None))
            responses = [rows.respond(*self._subtract(move()), moment) for move, moment in changes]
        total = _multiply_responses(responses)
        for _ in range(MAX_TERMS):
            sums, term = [rows.add_up(*change) for change, _ in responses], np.empty_like(total)
            for k, direction in enumerate(sums):
                point = self._move_sites(*direction)
                term[k] = [self._multiply(point, other) for other in sums]
                responses[k] = rows.respond(*self._subtract(point), NO_MOMENTS)
            total = total + 0.5 * (term + term.T)
            more = _multiply_responses(responses)
            if any(np.all(np.abs(np.diagonal(last)) <= LEAST_SHARE * sizes) for last in (term, more)):
                return total + more
            total = total + more
        return None

    def _measure_second_term(self, rows, responses, sizes):
        """Return dm' W C W dm of a sum of directions, each in units of its curvature, by pairs of every other row."""
        change = np.sum([change / np.sqrt(size) for (change, _), size in zip(responses, sizes, strict=True)], axis=0)
        is_even = np.arange(rows.n_rows) % 2 == 0
        point = self._move_sites(*rows.add_up(*(2.0 * is_even * change)))
        return abs(self._multiply(point, rows.add_up(*(2.0 * ~is_even * change))))


def _choose_rows(n):
    """Return all of n rows, or the numbers of some by chance: equal distances may be those of rows of one kind."""
    if n < MIN_SAMPLED_ROWS:
        return slice(None)
    return np.sort(np.random.default_rng(SAMPLE_SEED).choice(n, MAX_SAMPLED_ROWS, replace=False))


def _multiply_responses(responses):
    """Return dm' W dm by pairs of directions."""
    changes, moments = np.reshape(responses, (len(responses), 2, -1)).transpose(1, 0, 2)
    product = changes @ moments.T
    return 0.5 * (product + product.T)
