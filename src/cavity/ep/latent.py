"""The geometry of Gaussian processes: sites on function values f = base + g, g ~ N(0, K), N of them.

Sites are kept as they are: the sums (h, g) of the engine are the precisions rho and tau - rho base, (N,) each. Beliefs
are marginals; what they come from, two N x N matrices in all, belongs to the geometry (`latent_solver`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, eigh

from cavity import _core
from cavity.base.triangles import fill_symmetric
from cavity.ep.damping import PROGRESS_RATIO
from cavity.ep.geometry import ROW_GROUPS, MarginalBelief, RowwiseGeometry
from cavity.ep.latent_solver import factorise, find_covariance, find_evidence_weights, find_variances, solve
from cavity.ep.site_updates import kernel as ep_kernel
from cavity.ep.site_updates import visit_sites
from cavity.linalg import tiled
from cavity.runs.executors import split_range

_kernel = _core.best("latent")

MATCHED_ROWS = 1024  # rows whose sites are matched together
JOINT_SITES = 64  # sites whose changes reach the covariance together
MAX_COMPILED_ROWS = 128  # up to which sweeps go through one kernel
SWEEPS_PER_REBUILD = 8  # sweeps after which the running covariance is built anew


@dataclass(frozen=True, slots=True, eq=False)
class LatentBelief(MarginalBelief):
    """Marginals of the function values, their prior means taken away."""

    h: np.ndarray  # (N,): rho
    g: np.ndarray  # (N,): tau - rho base
    mean: np.ndarray  # (N,)
    variance: np.ndarray  # (N,)
    alpha: np.ndarray  # (N,): K^-1 mean
    log_determinant: float  # of I + K R; nan while a sweep goes on

    def prior_gap(self):
        """log of the posterior's density over the prior's, at the posterior mean."""
        return 0.5 * float(self.mean @ self.alpha) + 0.5 * self.log_determinant

    def divergence(self):
        """KL(q || prior)."""
        return self.prior_gap() - 0.5 * float(self.h @ self.variance)


class Latent(RowwiseGeometry):
    """Function values under a Gaussian-process prior; see the head of the file. Two N x N matrices in all."""

    def __init__(self, gram, base, threads, buffer=None):
        self.gram, self.base, self.threads = gram, base, threads
        self.n_rows, self.block, self.groups = len(gram), MATCHED_ROWS, split_range(len(gram), ROW_GROUPS, MATCHED_ROWS)
        self.diagonal = np.diagonal(gram)
        self.buffer = np.empty(gram.shape) if buffer is None else buffer
        self._solver = None, None  # whose triangle the buffer holds, if any
        self._joint, self._age = None, 0  # whose covariance it holds, and for how many sweeps it has been carried on
        self._metric = None, None
        # fresh memory would cost more than its use
        self._work = np.empty((2, min(JOINT_SITES, self.n_rows), self.n_rows))

    # ------------------------------------------------------------------------------------------ beliefs

    def prior(self):
        """The prior as a LatentBelief."""
        zero = np.zeros(self.n_rows)
        return LatentBelief(zero, zero, zero, self.diagonal.copy(), zero, 0.0)

    def belief(self, h, g):
        """The posterior whose sites are (h, g), or None if it is not proper."""
        self._solver, self._joint = (None, None), None
        if not (np.isfinite(h).all() and np.isfinite(g).all()):
            return None
        solver = factorise(self.gram, h, self.buffer, self.threads)
        if solver is None:
            return None
        alpha, mean = solve(self.gram, solver, h, g)  # before the triangle is inverted: it has the digits
        variance = find_variances(self.gram, solver, h, self.threads)
        if not (np.isfinite(mean).all() and (variance > 0).all()):
            return None
        out = LatentBelief(h, g, mean, variance, alpha, solver.log_determinant)
        self._solver = out, solver
        return out

    def converged_belief(self, belief):
        """The belief without the rounding of running sums; None if it is not proper."""
        return belief if np.isfinite(belief.log_determinant) else self.belief(belief.h, belief.g)

    def hold(self, belief, solver):
        """Say that the buffer is the triangle of the solver of a belief."""
        self._solver, self._joint = (belief, solver), None

    def solver(self, belief):
        """The solver of a belief; the buffer holds it until the next call of a method."""
        if self._solver[0] is not belief:
            self._joint = None
            self._solver = belief, factorise(self.gram, belief.h, self.buffer, self.threads)
        return self._solver[1]

    def covariance(self, belief):
        """The covariance of a belief in the lower triangle of the buffer, until the next call of a method."""
        if self._joint is not belief:
            if not belief.h.any():
                np.copyto(self.buffer, self.gram)
            else:
                find_covariance(self.gram, self.solver(belief), belief.h, self.threads)
            self._solver, self._joint, self._age = (None, None), belief, 0
        return self.buffer

    def final_solver(self, belief):
        """The solver of a belief with a triangle that is not inverted, and with its diagonal; it takes the buffer."""
        solver = self.solver(belief)
        if solver.inverted:
            diagonal = solver.find_inverse_diagonal(self.threads)
            solver = factorise(self.gram, belief.h, self.buffer, self.threads)
            solver.diagonal = diagonal
        self._solver, self._joint = (None, None), None
        return solver

    def evidence_weights(self, belief):
        """d log evidence / d K in the lower triangle of the buffer, until the next call of a method."""
        weights = find_evidence_weights(self.solver(belief), belief.alpha, self.threads)
        self._solver = None, None
        return weights

    def sharpen(self, belief, factor):
        """A belief of the same mean with `factor` times the precision of its sites, and some for sites without."""
        h = factor * belief.h + (factor - 1.0) / self.diagonal
        return self.belief(h, belief.alpha + h * belief.mean)

    def coordinates(self, belief, h, g):
        """A change of natural parameters in coordinates in which the Fisher metric of the belief is the identity."""
        if self._metric[0] is not belief:
            joint = fill_symmetric(self.covariance(belief))
            self._metric = belief, (find_root(joint), find_root(0.5 * joint * joint))
        first, second = self._metric[1]
        # sums over Sigma = first first' and Sigma o Sigma/2 = second second': (N,) (N, N) each
        return np.append(h @ second, (g - h * belief.mean) @ first)

    # ------------------------------------------------------------------------------------------ blocks of rows

    def values(self, belief, part, _):
        """The means and variances of f of a block."""
        return self.base[part] + belief.mean[part], belief.variance[part]

    def sum_rows(self, h, g):
        """The sums of the engine, which are (h, g) of the rows as they are."""
        return h, g

    # ------------------------------------------------------------------------------------------ one site after another

    def sweep(self, sites, belief, part, tau, rho, up, down):
        """Visit the sites of a slice of rows one after the other; tau, rho change in place.

        The sites of a block see each other through their joint covariance. A visit turns Sigma into Sigma - c s s', s
        the column of the site at that time; those of a block are U (I + diag(c) V)^-1, U the columns before the block
        and V the part of the s above the diagonal. So the covariance takes a whole block in one product, and the
        schedule is exactly that of one rank-1 update a site.

        Returns
        -------
        belief, skipped, log_z
            The belief of all sites (None if it is not proper), the number of sites left alone, and the sum of log
            normalisers of the others.
        """
        joint, age = self.covariance(belief), self._age
        self._joint = None  # until the sweep is complete
        mean = self.base + belief.mean
        skipped, log_z = 0, 0.0
        for low in range(part.start, part.stop, JOINT_SITES):
            block = slice(low, min(low + JOINT_SITES, part.stop))
            missed, gained = self._visit(joint, mean, sites, block, tau, rho, up, down)
            skipped, log_z = skipped + missed, log_z + gained
        h, g = self.gather(tau, rho)
        variance = np.diagonal(joint).copy()
        if age + 1 >= SWEEPS_PER_REBUILD or not (variance > 0).all():
            return self.belief(h, g), skipped, log_z
        mean -= self.base
        self._joint = LatentBelief(h, g, mean, variance, g - h * mean, np.nan)
        self._age = age + 1
        return self._joint, skipped, log_z

    def run_passes(self, schedule, sites, belief, tau, rho, best, most, tol):
        """Do undamped sequential passes in one call, see `Geometry.run_passes`, until the covariance is built anew.

        Of few values: for more, the products of matrices of `sweep` are faster.
        """
        n = self.n_rows
        if schedule != "sequential" or n > MAX_COMPILED_ROWS or not sites.compiled:
            return None
        joint = self.covariance(belief)
        changes = np.empty(min(most, SWEEPS_PER_REBUILD - 1 - self._age))
        if not changes.size:
            return None
        states = np.empty((2, n + 4, n))
        states[0, :n], states[0, n:] = joint, (belief.mean, belief.variance, tau, rho)
        arguments = sites.arguments(slice(0, n))
        done = ep_kernel.sweep_values(*arguments, self.base, states, best, PROGRESS_RATIO, tol, changes)
        if not done:
            return None
        mean, variance, tau, rho = states[done % 2, n:].copy()
        np.copyto(joint, states[done % 2, :n])
        h, g = self.gather(tau, rho)
        self._joint, self._age = LatentBelief(h, g, mean, variance, g - h * mean, np.nan), self._age + done
        return changes[:done].tolist(), self._joint, (tau, rho), None

    def _visit(self, joint, mean, sites, block, tau, rho, up, down):
        """Visit one block of sites; joint (its lower triangle) and mean, of all values, change in place."""
        columns, parts = self._work[:, : block.stop - block.start]
        _kernel.rows(joint, block.start, block.stop, columns)
        inner = columns[:, block].copy()
        f, before_tau, before_rho = mean[block].copy(), tau[block].copy(), rho[block].copy()
        skipped, log_z = visit_sites(sites, block, f, inner, tau[block], rho[block], up, down)
        d_tau, d_rho = tau[block] - before_tau, rho[block] - before_rho
        scale = 1.0 + d_rho * np.diagonal(inner)
        shift, c = (d_tau - d_rho * f) / scale, d_rho / scale
        system = c[:, None] * inner  # above its diagonal, which is taken to be one
        # the columns s of Sigma as each was visited, (I + diag(c) V)^-T U': (B, B) (B, N)
        columns = blas.dtrsm(1.0, system, columns.T, side=1, lower=0, diag=1, overwrite_b=1).T
        mean += shift @ columns
        n_up = np.count_nonzero(c >= 0)  # steps up, which narrow the covariance, come before those down
        if n_up < len(c):
            order = np.argsort(c < 0, kind="stable")
            columns, c = np.take(columns, order, axis=0, out=parts), c[order]
        np.multiply(columns, np.sqrt(np.abs(c))[:, None], out=parts)
        # Sigma -= sum of c s s' (N, B) (B, N), lower triangle
        tiled.add_squares(joint, parts[n_up:], parts[:n_up], self.threads)
        return skipped, log_z


def find_root(matrix):
    """A square root r of a positive semi-definite matrix, matrix = r r'."""
    values, vectors = eigh(matrix, check_finite=False)
    return vectors * np.sqrt(np.maximum(values, 0.0))  # below zero by rounding only
