"""Generalised linear models with independent Gaussian weights, for sparse data with millions of columns: ADF and EP.

A row of weight w counts as w copies of itself: the posterior is the prior times prod_i site_i^{w_i}. In EP each row
has one site per nonzero, T = site^w. The cavity lacks the part f = e/w of it, e = power min(1, w); the tilted
distribution is cavity times p^e, and T = (match/cavity)^{1/f}. The formulas are in cython_core/ep/diagonal.pyx.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from cavity.base.frames import describe_column
from cavity.base.loop import iterate
from cavity.ep.damping import SEQUENTIAL_PATIENCE, Damping
from cavity.ep.fit_result import FitResult
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.base import SHARED_ONE
from cavity.models.glm import sparse_rows
from cavity.models.glm.sparse_rows import ChunkedRows, check_width, kernel, split_calls, to_canonical_csr

MOST_HALVINGS = 1000  # of the fraction of a site that its cavity lacks at the end; float64 has 1074
PASSES_WITHOUT_PROGRESS = 80  # undamped passes without halving the change, after which a fit ends


@dataclass(frozen=True, slots=True, eq=False)
class IndependentWeights:
    """Independent Gaussian weights."""

    mean: np.ndarray  # (D,)
    variance: np.ndarray  # (D,)


def fit(likelihood, rows, prior, method="ep", options=None):
    """Approximate the posterior of the weights by independent Gaussians.

    Parameters
    ----------
    likelihood : Likelihood
        p(y|f); without a kernel of its own, rows take milliseconds instead of fractions of a microsecond.
    rows : Rows
        Checked; X a scipy.sparse matrix or array, of which entries of the same row and column are added first, an
        ndarray, or rows in files; these two are made sparse in every pass, some at a time. Weights are copies of each
        row, not negative and not necessarily whole.
    prior : Prior
        Mean and variances of the weights.
    method : {"ep", "adf"}, default "ep"
        "adf" sees each row once, in order: a row of weight w counts floor(w) times, and then with the likelihood to
        the power w - floor(w).
    options : Options, optional
        Those of EP, for which they are needed. A pass has converged if it moves every mean by at most tol posterior
        standard deviations and every variance by at most the relative amount tol (both divided by the damping), and
        skips no row.

    Returns
    -------
    Fit
        Its belief has the moments of the weights. For EP `loo` is the log predictive density of each row given all
        others (given all but one copy of itself, too, where its weight is above 1), nan where the cavity without the
        row is improper; the trace has "change" and "improper", the number of skipped rows, of each pass. For ADF it is
        the log density of each row given the rows before it, all copies of a weighted row together, 0 for a row of
        weight 0. The log evidence is -inf if a row without features has probability 0.

    Raises
    ------
    ValueError
        For ADF with rows of so many copies that it would not end.
    OverflowError
        If the moments of a latent value leave the range of float64, naming the row.

    Notes
    -----
    A row whose cavity is improper is skipped and counted in ``trace["improper"]``. If there are such rows at the end
    (not after convergence), they enter the evidence as in power EP, with the largest f/2^k whose cavity is proper.

    Memory of EP: 16 bytes a nonzero for the sites, 100 a column and 50 a row, beyond the data.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.base.rows import Rows
    >>> from cavity.ep.options import Options
    >>> from cavity.likelihoods import Probit
    >>> from cavity.models.glm import diagonal
    >>> from cavity.models.glm.problem import Prior
    >>> rows = Rows.checked(Probit(), np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), [1, 1, 0])
    >>> result = diagonal.fit(Probit(), rows, Prior.of(0.0, 1.0, 2), options=Options())
    >>> result.status, result.belief.mean.round(3).tolist()
    ('converged', [0.917, -0.211])
    """
    check_width(rows.X)
    rows = replace(rows, X=to_canonical_csr(rows.X)) if sparse.issparse(rows.X) else rows
    variance = np.array(np.broadcast_to(prior.variance, prior.mean.shape))
    if method == "adf":
        return _filter(
            ChunkedRows(likelihood, rows, SILENT_JOB if options is None else options.job), prior.mean, variance
        )
    ep = DiagonalEP(likelihood, rows, prior.mean, variance, options)
    outcome = iterate(ep.step, options, PASSES_WITHOUT_PROGRESS, n_rows=rows.n, holder=ep)
    trace = {"change": outcome.changes[:, 0], "improper": np.array(ep.skipped)}
    ended = dict(status=outcome.status[0], n_iter=int(outcome.n_iter[0]), residual=0.0, trace=trace)
    return FitResult(**ep.results(), **ended)


def predict(X, mean, variance, offset=None):
    """Moments of the latent values for independent weights.

    Parameters
    ----------
    X : scipy.sparse matrix or array, ndarray or StoredRows, shape (N, D)
        Design matrix.
    mean, variance : ndarray (D,)
        Moments of the weights.
    offset : ndarray (N,), optional
        Added to the means.

    Returns
    -------
    mean, variance : ndarray (N,)
        X mean + offset and X^2 variance.
    """
    X = to_canonical_csr(X) if sparse.issparse(X) else X
    check_width(X)
    results, state = np.empty((2, X.shape[0])), np.column_stack([mean, variance])
    if state.size and results.size:
        for chunk, nonzeros in sparse_rows.split_chunks(X):
            compiled = sparse_rows.make_kernel_rows(nonzeros, None if offset is None else offset[chunk])
            for part in split_calls(chunk.stop - chunk.start):
                compiled.moments(*part, state, *results[:, chunk])
    elif offset is not None:
        results[0], results[1] = offset, 0.0
    else:
        results[:] = 0.0
    return tuple(results)


# ---------------------------------------------------------------------------------------------- ADF


def _filter(data, prior_mean, variance):
    """Run ADF over the rows in order; return the Fit. The prior variances become those of the posterior."""
    weights = data.weights
    state, log_z = np.column_stack([prior_mean, variance]), np.zeros(data.n)
    exponent = SHARED_ONE
    if weights is not None:  # of the last copy of a row; 0 for none
        exponent = np.where(weights % 1.0 == 0, np.sign(weights), weights % 1.0)
    for chunk in data.chunks():
        row_weights, row_log_z = chunk.of(weights), log_z[chunk.part]
        for start, stop, fast in chunk.runs(chunk.of(exponent)):
            if fast:
                row = chunk.rows.filter(start, stop, row_weights, state, row_log_z)
                if row >= 0:
                    chunk.refuse(row, *chunk.rows.latent(row, state)[:2])
            else:
                _filter_row(chunk, start, 1.0 if row_weights is None else row_weights[start], state, row_log_z)
        empty_weights = 1.0 if row_weights is None else row_weights[chunk.empty]
        row_log_z[chunk.empty] = _multiply_log_p(empty_weights, chunk.log_p_empty())
    variance[:] = state[:, 1]  # no new pages of memory, which cost more than the copy
    belief = IndependentWeights(state[:, 0].copy(), variance)
    return FitResult.of_one_pass(belief=belief, log_evidence=float(log_z.sum()), loo=log_z)


def _filter_row(chunk, row, weight_left, state, log_z):
    while weight_left > 0:
        mean, variance, usable = chunk.rows.latent(row, state)
        if not usable:
            chunk.refuse(row, mean, variance)
        log_zi, *site = chunk.tilted(row, min(weight_left, 1.0), mean, variance)
        chunk.rows.absorb(row, variance, *site, state)
        log_z[row] += log_zi
        weight_left -= 1.0


def _multiply_log_p(weight, log_p):
    """Weight times log p, 0 for weight 0 even if p is 0."""
    return np.where(weight > 0, weight, 1.0) * np.where(weight > 0, log_p, 0.0)


# ---------------------------------------------------------------------------------------------- EP


class DiagonalEP:
    """EP over independent weights, in the natural parameters of their differences from the prior means."""

    def __init__(self, likelihood, rows, prior_mean, prior_variance, options):
        if prior_mean.any():
            rows = replace(rows, offset=predict(rows.X, prior_mean, np.zeros_like(prior_mean), rows.offset)[0])
        self.data = data = ChunkedRows(likelihood, rows, options.job)
        self.prior_mean, self.prior_variance, self.prior_rho = prior_mean, prior_variance, 1.0 / prior_variance
        self.power, self.weight = options.power, rows.weight()
        self.fraction = self.power / np.maximum(self.weight, 1.0)
        self.exponent = self.power * np.minimum(self.weight, 1.0)
        self.state = self._prior()
        self.sites = np.zeros((sum(chunk.nnz for chunk in data.chunks()), 2))
        self.before = np.empty_like(self.state)
        self.skipped = []
        self.damping = Damping(options.damping, SEQUENTIAL_PATIENCE)

    def _prior(self):
        state = np.zeros((self.data.d, 4))  # tau, rho, and their rounding errors
        state[:, 1] = self.prior_rho
        return state

    def checkpoint_state(self):
        """Return the state of the passes, for `restore`."""
        state = {"state": self.state.copy(), "sites": self.sites.copy(), "damping": self.damping.checkpoint_state()}
        return state | {"skipped": np.array(self.skipped, dtype=np.intp)}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        self.state[:], self.sites[:] = state["state"], state["sites"]
        self.skipped = state["skipped"].tolist()
        self.damping.restore(state["damping"])

    def step(self, active):
        """One pass; see `cavity.base.loop.iterate`."""
        np.copyto(self.before, self.state)
        skipped = 0
        for chunk in self.data.chunks():
            fraction, exponent, sites = chunk.of(self.fraction), chunk.of(self.exponent), self.sites[chunk.sites]
            for start, stop, fast in chunk.runs(exponent):
                if fast:
                    options = fraction, exponent, self.damping.step
                    n_skipped, row = chunk.rows.sweep(start, stop, *options, self.state, sites)
                    skipped += n_skipped
                    if row >= 0:
                        self._refuse(chunk, row, fraction)
                else:
                    skipped += not self._renew(chunk, start, fraction, exponent)
        change = kernel.largest_change(self.before, self.state) / self.damping.step
        self.skipped.append(skipped)
        self.damping.adapt(change)
        return np.array([change]), np.array([skipped == 0])

    def _at(self, values, row):
        return float(values[row if len(values) > 1 else 0])

    def _refuse(self, chunk, row, fraction):
        sites = self.sites[chunk.sites]
        chunk.refuse(row, *chunk.rows.cavity(row, self._at(fraction, row), self.state, sites)[1:3])

    def _cavity(self, chunk, row, fraction):
        """Moments of f under the cavity, None if that is improper."""
        proper, mean, variance, usable = chunk.rows.cavity(row, fraction, self.state, self.sites[chunk.sites])
        if proper and not usable:
            chunk.refuse(row, mean, variance)
        return (mean, variance) if proper else None

    def _renew(self, chunk, row, fraction, exponent):
        """One row in Python; return whether it was not skipped."""
        fraction = self._at(fraction, row)
        cavity = self._cavity(chunk, row, fraction)
        if cavity is None:
            return False
        _, *site = chunk.tilted(row, self._at(exponent, row), *cavity)
        sites = self.sites[chunk.sites]
        return chunk.rows.renew(row, fraction, cavity[1], *site, self.damping.step, self.state, sites)

    def _evaluate_row(self, chunk, row, fraction, exponent):
        """log Z and `excess` of one row in Python; nan for an improper cavity."""
        cavity = self._cavity(chunk, row, fraction)
        if cavity is None:
            return np.nan, 0.0
        excess = chunk.rows.excess(row, fraction, self.state, self.sites[chunk.sites])
        return chunk.tilted(row, exponent, *cavity)[0], excess

    def _evaluate(self, fraction, exponent, out=None, mask=None):
        """log Z and `excess` of all or some rows; log Z is nan where the cavity is improper."""
        log_z, excess = np.zeros((2, self.data.n)) if out is None else out
        for chunk in self.data.chunks():
            chosen = None if mask is None else mask[chunk.part]
            if chosen is None or chosen.any():
                part = chunk.part
                self._evaluate_chunk(chunk, chunk.of(fraction), chunk.of(exponent), log_z[part], excess[part], chosen)
        return log_z, excess

    def _evaluate_chunk(self, chunk, fraction, exponent, log_z, excess, mask):
        runs, sites = chunk.runs(exponent), self.sites[chunk.sites]
        if mask is not None:
            is_compiled = self.data.compiled and self.data.likelihood.any_power
            runs = [(row, row + 1, is_compiled) for row in np.flatnonzero(mask).tolist()]
        for start, stop, fast in runs:
            if fast:
                row = chunk.rows.evaluate(start, stop, fraction, exponent, self.state, sites, log_z, excess)
                if row >= 0:
                    self._refuse(chunk, row, fraction)
            else:
                at = self._at(fraction, start), self._at(exponent, start)
                log_z[start], excess[start] = self._evaluate_row(chunk, start, *at)

    def results(self):
        """Return belief, log evidence and leave-one-out densities, by the names of `Fit`."""
        data = self.data
        self._recompute()
        tau, rho = self.state[:, 0], self.state[:, 1]
        shift, untouched = tau / rho, rho == self.prior_rho
        variance = np.where(untouched, self.prior_variance, 1.0 / rho)
        log_z, excess = self._evaluate(self.fraction, self.exponent)
        improper = np.isnan(log_z)
        loo = log_z.copy()
        fraction = np.array(np.broadcast_to(self.fraction, (data.n,)))
        exponent = np.array(np.broadcast_to(self.exponent, (data.n,)))
        for _ in range(MOST_HALVINGS):
            if not improper.any():
                break
            fraction[improper] *= 0.5
            exponent[improper] *= 0.5
            self._evaluate(fraction, exponent, (log_z, excess), improper)
            improper = np.isnan(log_z)
        else:
            raise ArithmeticError(f"the cavity of row {int(np.argmax(improper))} is lost to rounding; rescale X")
        weight = np.broadcast_to(self.weight, (data.n,))
        if self.power != 1 or weight.min(initial=1.0) < 1:
            loo = self._evaluate(1.0 / np.maximum(self.weight, 1.0), np.ones_like(self.weight))[0]
        terms = (log_z + excess) / fraction
        for chunk in data.chunks():
            if chunk.empty.any():
                log_p, rows = chunk.log_p_empty(), chunk.start + np.flatnonzero(chunk.empty)
                terms[rows], loo[rows] = _multiply_log_p(weight[rows], log_p), log_p
        posterior = np.log1p((rho - self.prior_rho) / self.prior_rho) + self.prior_rho * shift * shift
        log_evidence = float(terms.sum() - 0.5 * posterior.sum())
        return dict(belief=IndependentWeights(self.prior_mean + shift, variance), log_evidence=log_evidence, loo=loo)

    def _recompute(self):
        """Posterior from prior and sites: rounding errors of many passes add up in running sums."""
        fresh = self._prior()
        for chunk in self.data.chunks():
            for part in split_calls(chunk.n if chunk.nnz else 0):
                chunk.rows.add(*part, self.sites[chunk.sites], fresh)
        if not (fresh[:, 1] > 0).all():
            column = int(np.argmin(fresh[:, 1]))
            raise ArithmeticError(
                f"the posterior precision of {describe_column(column)} is lost to rounding; rescale X"
            )
        self.state = fresh
