"""EP's free energy at a belief,

    F(q) = KL(q || prior) - sum_i [log Z_i(c_i) + KL(q_i || c_i)]/f_i,

where c_i is the cavity whose tilted distribution has the moments of q_i: a function of these moments alone. At EP's
fixed points with proper cavities, which are its stationary points, it is minus the log evidence [HZ]_ [OW]_.

References
----------
.. [HZ] Tom Heskes and Onno Zoeter, "Expectation propagation for approximate inference in dynamic Bayesian networks",
   2002.
.. [OW] Manfred Opper and Ole Winther, "Expectation consistent approximate inference", JMLR 6, 2005.
"""

import numpy as np

INNER_ITER = 40  # Newton steps for the cavities of given moments; about five are typical
SMALLEST_CAVITY = 1e-9  # precision over that of the posterior in the double loop


def free_energy(geometry, sites, belief, start):
    """F at a belief, the sites its moments imply, and the cavities they leave; `start` are cavities nearby, or None."""
    n, total = geometry.n_rows, 0.0
    inner = Cavities(n) if start is None else start.copy()
    tau, rho = np.empty(n), np.empty(n)
    for part in geometry.blocks(0, geometry.n_rows):
        _, mean, variance = geometry.values(belief, part)
        fraction = sites.part(sites.fraction, part)
        value = inner.solve(sites, part, mean, np.sqrt(variance))
        tau[part] = -inner.t[part] / (fraction * np.sqrt(variance))
        rho[part] = (1.0 - inner.r[part]) / (fraction * variance)
        tau[part] += rho[part] * mean
        total += float(np.sum((value - 0.5) / fraction))
    return belief.divergence() - total, tau, rho, inner


class Cavities:
    """Cavities whose tilted distributions have given means and variances, in units of these: t, r per site.

    With x = (f - mean)/sd the cavity is proportional to exp(t x - r x^2/2); (t, r) minimises the convex function
    J = log Z + t^2/(2 r) - log(r)/2 + r/2, whose gradient is the tilted (E x, (1 - E x^2)/2).
    """

    def __init__(self, n):
        self.t, self.r = np.zeros(n), np.ones(n)

    def copy(self):
        """A copy to start from."""
        other = Cavities(0)
        other.t, other.r = self.t.copy(), self.r.copy()
        return other

    def solve(self, sites, part, mean, sd):
        """Find the cavities of a block of rows by Newton's method, all rows at once; return J, -inf where it fails.

        Heavy-tailed likelihoods give no cavity to moments wider than their own: r then ends at its bound.
        """
        index = np.arange(len(self.t))[part]
        t, r = self.t[part].copy(), self.r[part].copy()
        value, gradient = self._evaluate(sites, index, mean, sd, t, r)
        active = np.flatnonzero(np.isfinite(value))
        for _ in range(INNER_ITER):
            held = (r <= SMALLEST_CAVITY) & (gradient[:, 1] > 0)  # at the bound of r, and J falls beyond it
            active = active[np.maximum(np.abs(gradient[:, 0]), ~held * np.abs(gradient[:, 1]))[active] > 1e-13]
            if active.size == 0:
                break
            hessian = self._hessian(
                sites, (index[active], mean[active], sd[active]), t[active], r[active], gradient[active]
            )
            pull = gradient[active]
            still = held[active]
            hessian[still, 0, 1] = hessian[still, 1, 0] = pull[still, 1] = 0.0
            step = -_solve_pairs(hessian, pull)
            slope = np.einsum("ni,ni->n", step, pull)
            # never to r <= 0, where there is no cavity
            falling = np.minimum(step[:, 1], -0.9 * r[active])
            length = -0.9 * r[active] / falling
            todo, fine = np.arange(active.size), np.zeros(active.size, dtype=bool)
            for _ in range(20):
                at = active[todo]
                new_t = t[at] + length[todo] * step[todo, 0]
                new_r = np.maximum(r[at] + length[todo] * step[todo, 1], SMALLEST_CAVITY)
                new_value, new_gradient = self._evaluate(sites, index[at], mean[at], sd[at], new_t, new_r)
                # below 1e-9 the decrease drowns in rounding; Newton is then in its quadratic phase
                good = (new_value <= value[at] + 1e-4 * length[todo] * slope[todo]) | (slope[todo] > -1e-9)
                good &= np.isfinite(new_value)
                done = at[good]
                t[done], r[done], value[done] = new_t[good], new_r[good], new_value[good]
                gradient[done] = new_gradient[good]
                fine[todo[good]] = True
                todo = todo[~good]
                if todo.size == 0:
                    break
                length[todo] *= 0.3
            active = active[fine & (slope < -1e-24)]
        self.t[part], self.r[part] = t, r
        held = (r <= SMALLEST_CAVITY) & (gradient[:, 1] > 0)
        missed = np.maximum(np.abs(gradient[:, 0]), ~held * np.abs(gradient[:, 1]))
        return np.where(missed < 1e-7, value, -np.inf)

    def _hessian(self, sites, where, t, r, gradient):
        """Second derivatives of J by differences, which are good to five digits; positive definite."""
        index, mean, sd = where
        hessian = np.empty((len(t), 2, 2))
        for column, (dt, dr) in enumerate(((1e-5 * np.sqrt(r), 0.0 * r), (0.0 * r, 1e-5 * r))):
            moved = self._evaluate(sites, index, mean, sd, t + dt, r + dr)[1]
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                hessian[:, :, column] = (moved - gradient) / (dt + dr)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not sound
            hessian = 0.5 * (hessian + np.swapaxes(hessian, 1, 2))
            determinant = hessian[:, 0, 0] * hessian[:, 1, 1] - hessian[:, 0, 1] ** 2
            sound = (hessian[:, 0, 0] > 0) & (determinant > 1e-10 * hessian[:, 0, 0] * hessian[:, 1, 1])
        gaussian = np.zeros_like(hessian)
        gaussian[:, 0, 0], gaussian[:, 1, 1] = 1.0, 0.5
        return np.where(sound[:, None, None], hessian, gaussian)

    @staticmethod
    def _evaluate(sites, index, mean, sd, t, r):
        """J and its gradient for some rows."""
        m, v = mean + sd * t / r, sd * sd / r
        log_z, tau, rho = sites.match(index, m, v, strict=False)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # tilted distributions too far away
            rho_x = r + sd * sd * rho
            mean_x = (t + sd * (tau - rho * mean)) / rho_x
            gradient = np.column_stack([mean_x, 0.5 * (1.0 - 1.0 / rho_x - mean_x**2)])
            value = log_z + 0.5 * (t * t / r - np.log(r) + r)
        return np.where(np.all(np.isfinite(gradient), axis=1), value, np.nan), gradient


def _solve_pairs(matrices, vectors):
    """Solve n symmetric positive definite 2 x 2 systems; where rounding left one singular, by its diagonal."""
    a, b, c = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]
    determinant = a * c - b * b
    b = np.where(determinant > 0, b, 0.0)
    determinant = np.where(determinant > 0, determinant, np.maximum(a * c, np.finfo(float).tiny))
    first = (c * vectors[:, 0] - b * vectors[:, 1]) / determinant
    second = (a * vectors[:, 1] - b * vectors[:, 0]) / determinant
    return np.column_stack([first, second])
