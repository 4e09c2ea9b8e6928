"""EP's free energy at a belief q,

    F(q) = KL(q || prior) - sum_i [log Z_i(c_i) + KL(q_i || c_i)]/f_i,                                              (1)

where c_i, a function of the moments of q_i, is the cavity whose tilted distribution has these moments, and f_i the
fraction of the site. Its stationary points with proper cavities are EP's fixed points, where it is minus the log
evidence [HZ]_ [OW]_.

In units of q_i, x = (f - mean)/sd, a cavity is proportional to exp(t x - r x^2/2), and the required one minimises

    J(t, r) = log Z + t^2/(2 r) - log(r)/2 + r/2,     dJ/dt = E x,     dJ/dr = (1 - E x^2)/2,                       (2)

a convex function; E is over the tilted distribution, and log Z_i + KL(q_i || c_i) = J - 1/2 at the minimum. The sites
that a belief implies are

    T_i^f = q_i/c_i:     f tau_i = (1 - r) mean/v - t/sd,     f rho_i = (1 - r)/v,     v = sd^2.                    (3)

References
----------
.. [HZ] Tom Heskes and Onno Zoeter, "Expectation propagation for approximate inference in dynamic Bayesian networks",
   2002.
.. [OW] Manfred Opper and Ole Winther, "Expectation consistent approximate inference", JMLR 6, 2005.
"""

from dataclasses import dataclass

import numpy as np

MAX_NEWTON_STEPS = 40  # Newton steps for the cavities of given moments; about five are typical
MIN_CAVITY_PRECISION = 1e-9  # over the precision of the posterior
CONVERGED_GRADIENT, ACCEPTED_GRADIENT = 1e-13, 1e-7  # of J: where Newton stops, and where its result is used
SUFFICIENT_DECREASE = 1e-4  # of the decrease that the slope predicts: Armijo's rule
ROUNDING_SLOPE = 1e-9  # slopes below which rounding hides the decrease of J: Newton then converges quadratically
ZERO_SLOPE = 1e-24
MAX_STEP_SHARE = 0.9  # of the way to r = 0, where there is no cavity
MAX_STEP_REDUCTIONS, STEP_REDUCTION_FACTOR = 8, 0.3  # of a step that does not lower J
DIFFERENCE_STEP = 1e-5  # relative, of the second derivatives, which are then good to five digits
MAX_SLOW_RATIO = 0.3  # of errors after and before a step: above it second derivatives are found by differences
MAX_NEAR_ERROR = 0.3  # above which steps are those of Gaussian likelihoods
MIN_INFORMING_STEP = 1e-7  # in units of q and relative to r: changes of the gradient along shorter ones are rounding
ROUNDING_GRADIENT = 1e-10  # below which second derivatives are not found anew
GAUSSIAN_HESSIAN = np.diag([1.0, 0.5])  # of J at its minimum
MAX_CRAWLING_STEPS = 4  # in a row towards r = 0 with large errors that do not halve: then there is no cavity
MIN_CRAWLING_ERROR = 0.1
MIN_START_PRECISION = 0.01  # r of a cavity of sites from which the search begins
MIN_RELATIVE_DETERMINANT = 1e-10  # of a Hessian, over the product of its diagonal: below it is taken for singular


def evaluate_free_energy(geometry, sites, belief, start):
    """Return F at a belief (1), the sites its moments imply (3), and their cavities.

    `start` are nearby cavities, or nearby sites: their tau and rho. F is inf, and the rest undefined, where the moments
    of some row have no cavity.
    """
    n, total = geometry.n_rows, 0.0
    inner = start.copy() if isinstance(start, MatchedCavities) else MatchedCavities.flat(n)
    tau, rho = np.empty(n), np.empty(n)

    def implied(part, x):
        mean, variance = geometry.values(belief, part, x)
        fraction = sites.part(sites.fraction, part)
        if isinstance(start, tuple):
            inner.begin(part, mean, variance, *(fraction * site[part] for site in start))
        value = inner.solve(sites, part, mean, np.sqrt(variance))  # the minimum of (2)
        tau[part] = -inner.t[part] / (fraction * np.sqrt(variance))  # (3)
        rho[part] = (1.0 - inner.r[part]) / (fraction * variance)
        tau[part] += rho[part] * mean
        return float(np.sum((value - 0.5) / fraction))  # the sum of (1)

    for values in geometry.each_group(lambda blocks: [implied(*block) for block in blocks]):
        for value in values:
            if not np.isfinite(value):
                return np.inf, tau, rho, inner
            total += value
    return belief.divergence() - total, tau, rho, inner


@dataclass(slots=True)
class MatchedCavities:
    """Cavities whose tilted distributions have given means and variances: t and r of (2) for each site, (N,).

    `hessian` has about the second derivatives of J there.
    """

    t: np.ndarray
    r: np.ndarray
    hessian: np.ndarray  # (N, 2, 2)

    @classmethod
    def flat(cls, n):
        """Return the cavities of n flat sites."""
        return cls(np.zeros(n), np.ones(n), np.tile(GAUSSIAN_HESSIAN, (n, 1, 1)))

    def copy(self):
        """Return a copy."""
        return MatchedCavities(self.t.copy(), self.r.copy(), self.hessian.copy())

    def begin(self, part, mean, variance, tau, rho):
        """Take the cavities (3) that sites leave to a block of rows, where they are proper."""
        r, t = 1.0 - rho * variance, np.sqrt(variance) * (rho * mean - tau)
        is_proper = (r >= MIN_START_PRECISION) & np.isfinite(t)
        self.r[part], self.t[part] = np.where(is_proper, r, 1.0), np.where(is_proper, t, 0.0)

    def solve(self, sites, part, mean, sd):
        """Find the cavities of a block of rows by Newton's method, all rows at once; return J, -inf where it fails.

        Moments wider than those of a heavy-tailed likelihood have no cavity: r then ends at its bound.
        """
        index = np.arange(len(self.t))[part]
        start = self.t[part].copy(), self.r[part].copy(), self.hessian[part].copy()
        newton = CavityNewton(sites, index, mean, sd, *start)
        newton.run()
        self.t[part], self.r[part], self.hessian[part] = newton.t, newton.r, newton.hessian
        return np.where(newton.measure_errors() < ACCEPTED_GRADIENT, newton.value, -np.inf)


class CavityNewton:
    """The minimisation of J (2) for some rows; arrays are (n,), the gradient (n, 2).

    The first steps, with m and V the tilted mean and variance of x,

        t <- t - m/V,    r <- r + 1 - 1/V,                                                                      (4)

    lead downhill, and to the minimum if the likelihood is Gaussian; they are taken where V < 1. Others are Newton's,
    with second derivatives that each step updates by the change of the gradient (Broyden, Fletcher, Goldfarb and
    Shanno's formula). Where steps make little progress these are found by differences.
    """

    def __init__(self, sites, index, mean, sd, t, r, hessian):
        self.sites, self.index, self.mean, self.sd = sites, index, mean, sd
        self.t, self.r, self.hessian = t, r, hessian
        self.value, self.gradient = self.evaluate(slice(None), t, r)

    def run(self):
        """Iterate until every row has converged or makes no progress, or one cannot be solved."""
        active, crawled = np.arange(len(self.t)), np.zeros(len(self.t), dtype=np.intp)
        is_stale = np.zeros(len(self.t), dtype=bool)
        if not np.all(np.isfinite(self.value)):
            return
        for _ in range(MAX_NEWTON_STEPS):
            before = self.measure_errors()
            active = active[before[active] > CONVERGED_GRADIENT]
            if active.size == 0:
                return
            is_far, is_narrow = before[active] > MAX_NEAR_ERROR, self.measure_variances(active) < 1.0
            is_new = is_stale[active] | (is_far & ~is_narrow)
            if is_new.any():
                self.hessian[active[is_new]] = self.find_hessian(active[is_new])
            (step, slope), old = self.step(active, is_far & ~is_new), self.r[active]
            moved = self.line_search(active, step, slope)
            after = self.measure_errors()[active]
            crawls = (self.r[active] < old) & (after > MIN_CRAWLING_ERROR) & (after > 0.5 * before[active])
            crawled[active] = np.where(crawls, crawled[active] + 1, 0)
            if np.any(is_new & ~moved & ~(after < ACCEPTED_GRADIENT)) or np.max(crawled) > MAX_CRAWLING_STEPS:
                return
            only_rounding = (slope > -ROUNDING_SLOPE) & (after > 0.5 * before[active])
            has_ended = ~moved | (slope >= -ZERO_SLOPE) | only_rounding
            is_slow = ~is_new & (has_ended | (after > MAX_SLOW_RATIO * before[active])) & (after > ROUNDING_GRADIENT)
            is_stale[active] = is_slow
            active = active[is_slow | ~has_ended]

    def is_at_bound(self):
        """Return which rows are at the bound of r while J falls beyond it."""
        return (self.r <= MIN_CAVITY_PRECISION) & (self.gradient[:, 1] > 0)

    def measure_errors(self):
        """Return the differences of the tilted moments from the required ones, in units of sd."""
        return np.maximum(np.abs(self.gradient[:, 0]), ~self.is_at_bound() * np.abs(self.gradient[:, 1]))

    def measure_variances(self, rows):
        """Return the tilted variances of x (n,) of some rows."""
        return 1.0 - 2.0 * self.gradient[rows, 1] - self.gradient[rows, 0] ** 2

    def step(self, rows, is_far):
        """Return the step (n, 2) for some rows, and its slope (n,): (4) where `is_far`, Newton's elsewhere.

        r does not move where it is at its bound.
        """
        hessian, pull, fixed = self.hessian[rows], self.gradient[rows], self.is_at_bound()[rows]
        hessian[fixed, 0, 1] = hessian[fixed, 1, 0] = pull[fixed, 1] = 0.0
        step = -solve_pairs(hessian, pull)
        v = self.measure_variances(rows)
        is_far = is_far & (v > 0.0)  # else rounding has left no variance
        step[is_far] = np.column_stack([-pull[is_far, 0] / v[is_far], ~fixed[is_far] * (1.0 - 1.0 / v[is_far])])
        return step, np.einsum("ni,ni->n", step, pull)

    def line_search(self, rows, step, slope):
        """Shorten the step until J falls enough, and go there; return for which rows this succeeds."""
        farthest = -MAX_STEP_SHARE * self.r[rows]
        length = farthest / np.minimum(step[:, 1], farthest)
        todo, moved = np.arange(rows.size), np.zeros(rows.size, dtype=bool)
        for _ in range(MAX_STEP_REDUCTIONS):
            at = rows[todo]
            t = self.t[at] + length[todo] * step[todo, 0]
            r = np.maximum(self.r[at] + length[todo] * step[todo, 1], MIN_CAVITY_PRECISION)
            value, gradient = self.evaluate(at, t, r)
            good = value <= self.value[at] + SUFFICIENT_DECREASE * length[todo] * slope[todo]
            good |= slope[todo] > -ROUNDING_SLOPE
            good &= np.isfinite(value)
            done = at[good]
            self.update_hessian(done, t[good], r[good], gradient[good])
            self.t[done], self.r[done] = t[good], r[good]
            self.value[done], self.gradient[done] = value[good], gradient[good]
            moved[todo[good]] = True
            todo = todo[~good]
            if todo.size == 0:
                break
            length[todo] *= STEP_REDUCTION_FACTOR
        return moved

    def update_hessian(self, rows, t, r, gradient):
        """Update second derivatives of some rows by their gradients at new points, where the steps there inform."""
        s, y = np.column_stack([t - self.t[rows], r - self.r[rows]]), gradient - self.gradient[rows]
        pull, fall = np.einsum("nij,nj->ni", self.hessian[rows], s), np.einsum("ni,ni->n", s, y)
        informs = np.abs(s[:, 0]) / np.sqrt(self.r[rows]) + np.abs(s[:, 1]) / self.r[rows] > MIN_INFORMING_STEP
        informs &= (fall > 0.0) & (r > MIN_CAVITY_PRECISION)
        s, y, pull, fall = s[informs], y[informs], pull[informs], fall[informs, None, None]
        length = np.einsum("ni,ni->n", s, pull)[:, None, None]
        change = y[:, :, None] * y[:, None, :] / fall - pull[:, :, None] * pull[:, None, :] / length
        self.hessian[rows[informs]] += change

    def find_hessian(self, rows):
        """Return the Hessians of J (n, 2, 2) by differences; a Gaussian's where they are not positive definite."""
        t, r, gradient = self.t[rows], self.r[rows], self.gradient[rows]
        hessian, zero = np.empty((len(t), 2, 2)), 0.0 * r
        steps = (DIFFERENCE_STEP * np.sqrt(r), zero), (zero, DIFFERENCE_STEP * r)
        for column, (dt, dr) in enumerate(steps):
            moved = self.evaluate(rows, t + dt, r + dr)[1]
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                hessian[:, :, column] = (moved - gradient) / (dt + dr)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite fail the comparisons
            hessian = 0.5 * (hessian + np.swapaxes(hessian, 1, 2))
            a, b, c = hessian[:, 0, 0], hessian[:, 0, 1], hessian[:, 1, 1]
            is_definite = (a > 0) & (a * c - b**2 > MIN_RELATIVE_DETERMINANT * a * c)
        return np.where(is_definite[:, None, None], hessian, GAUSSIAN_HESSIAN)

    def evaluate(self, rows, t, r):
        """Return J and its gradient (2) for some rows; J is nan where tilted moments cannot be integrated."""
        mean, sd = self.mean[rows], self.sd[rows]
        log_z, tau, rho = self.sites.match(self.index[rows], mean + sd * t / r, sd * sd / r, strict=False)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rho_x = r + sd * sd * rho
            mean_x = (t + sd * (tau - rho * mean)) / rho_x
            gradient = np.column_stack([mean_x, 0.5 * (1.0 - 1.0 / rho_x - mean_x**2)])
            value = log_z + 0.5 * (t * t / r - np.log(r) + r)
        return np.where(np.all(np.isfinite(gradient), axis=1), value, np.nan), gradient


def solve_pairs(matrices, vectors):
    """Solve n symmetric positive definite 2 x 2 systems; where rounding left one singular, by its diagonal."""
    a, b, c = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]
    determinant = a * c - b * b
    b = np.where(determinant > 0, b, 0.0)
    determinant = np.where(determinant > 0, determinant, np.maximum(a * c, np.finfo(float).tiny))
    first = (c * vectors[:, 0] - b * vectors[:, 1]) / determinant
    second = (a * vectors[:, 1] - b * vectors[:, 0]) / determinant
    return np.column_stack([first, second])
