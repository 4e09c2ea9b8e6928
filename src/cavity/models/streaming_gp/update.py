"""Updates of a streaming state: batches, merges, forgetting; each makes a new snapshot of an old one.

For a batch at inducing variables b (a before it), the posterior is the optimum [J]_ (q_opt) ::

    q_opt(b) = p(b) exp(E_1(b) + E_2(b))/C,                                                                         (1)
    E_1(b) = E[log q(a) - log p'(a) | b]: `old_data_factor`,                                                        (2)
    E_2(b) = E[log p(y | f) | b]: `new_data_factor`,                                                                (3)

and log C, the increment of the log bound. `inducing_basis` adds the factors and holds q_opt; `online_bound` has the
formulas as the literature writes them.

References
----------
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
"""

from dataclasses import replace

import numpy as np

from cavity.base.arrays import make_read_only
from cavity.base.loop import CONVERGED_STATUS, warn_unconverged
from cavity.base.missing_values import join_dropped
from cavity.base.observation_digest import ObservationDigest, join_digests
from cavity.likelihoods.parameters import list_scales
from cavity.models.latent_posterior import choose_schedule
from cavity.models.process.model import choose_learnt, fill_open_parameters
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information, match_equal_rows
from cavity.models.streaming_gp.inducing_choice import WaitingRows, choose, choose_greedily, reduce_to_budget
from cavity.models.streaming_gp.new_data_factor import add_gaussian_rows, add_rows_by_ep
from cavity.models.streaming_gp.old_data_factor import map_old_factor
from cavity.models.streaming_gp.predictive_checks import PredictiveCheck, find_surprise, warn_of_surprise
from cavity.models.streaming_gp.rescaling import learn_scales, multiply_covariance, rescale_information
from cavity.models.streaming_gp.rows import BatchRows, compute_features, compute_loss_rates, is_exact
from cavity.models.streaming_gp.search import learn_batch
from cavity.models.streaming_gp.single_rows import finish_single_row
from cavity.models.streaming_gp.snapshot import EMPTY_TRACE
from cavity.runs.executors import Threads, single_blas

MAX_CANDIDATE_ROWS = 1 << 16  # rows of a batch among which inducing points are chosen


class Update:
    """The update of a snapshot by a batch: choose inducing points, learn settings, add the factor of the rows.

    Parameters
    ----------
    now : StreamSnapshot
        The snapshot before.
    rows : BatchRows
        The batch.
    options : Options
        Those of EP.
    threads : Threads
        Threads for blocks of rows.
    """

    def __init__(self, now, rows, options, threads):
        self.now, self.rows, self.threads = now, rows, threads
        self.model, self.basis, self.information, self.waiting = now.model, now.basis, now.information, now.waiting
        self.uniform, self.history = now.uniform, now.history
        self.features = None  # W and residuals of the blocks of rows, where they fit into memory
        self.search_status = CONVERGED_STATUS  # of the search for settings, if there is one
        self.loss = 0.0  # nats that the old factor loses by removal of inducing points
        self.learning = {}
        model = now.model
        exact = is_exact(model.likelihood)
        self.options = options if exact else choose_schedule(options, model.likelihood, model.alpha)

    def run(self, learn, scales, names):
        """Return the snapshot with the rows, and a warning that they contradict the settings, or None.

        `learn` says whether the covariance is learnt, `scales` which of the likelihood's; `names` are columns, classes
        and roles.
        """
        now, rows = self.now, self.rows
        self._choose_inducing()
        if learn or scales:
            self.search_status = self._learn_settings(learn, scales)
        before, model, job = self.information, self.model, self.options.job.final_job()
        arguments = self.basis, before, rows, model, model.alpha
        if is_exact(model.likelihood):
            self.information = add_gaussian_rows(*arguments, self.threads, self.features)  # (1), (3)
            job.report(1, rows=rows.n)
            status, n_iter, changes = CONVERGED_STATUS, 1, EMPTY_TRACE["change"]
        else:
            done = add_rows_by_ep(*arguments, replace(self.options, job=job), self.threads, self.features)
            self.information, status, n_iter = done.information, done.status, done.n_iter  # (1), (3) by EP
            changes = make_read_only(done.changes)
        status = self.search_status if status == CONVERGED_STATUS else status
        message, check = self._check_predictions(before, learn or scales)
        change = 0.0 if status == self.search_status != CONVERGED_STATUS else float(np.append(np.inf, changes)[-1])
        number, n = now.n_updates + 1, now.n_samples + rows.n
        new = now.after(
            rows=rows.n,
            updates=1,
            lost=self.loss,
            status=status,
            n_iter=n_iter,
            trace=EMPTY_TRACE | {"change": changes} | self.learning,
            model=model,
            basis=self.basis,
            information=self.information,
            waiting=self.waiting,
            uniform=self.uniform and rows.noise is None,
            history=self.history.with_rows(rows).with_end(number, n, status, change),
            predictive_check=check,
            digest=join_digests(now.digest, ObservationDigest.of(rows.y, model.likelihood)),
            **collect_names(now, rows, names),
        )
        return new, message

    def _check_predictions(self, before, learnt):
        """Compare the rows with their predictions, unless settings were learnt from them: a message, the next check."""
        now, model = self.now, self.model
        if learnt or now.information.n == 0.0:
            return None, PredictiveCheck.of(self.information)
        if is_exact(model.likelihood) and model.alpha == 0.0:
            return now.predictive_check.carry_over(now.information, before).compare(self.information)
        increment = self.information.log_bound - before.log_bound  # log C
        return find_surprise(self.rows, model, self.basis.program, increment), now.predictive_check

    def _sample_candidates(self, model, rows):
        """Return candidate rows for inducing points, their loss rates in nats, their share, and their indices."""
        X, index = rows.sample_rows(MAX_CANDIDATE_ROWS)
        share = rows.n / len(index)
        return X, share * compute_loss_rates(model, X, rows, index), share, index

    def _choose_inducing(self):
        """Choose inducing points for the rows at the current settings."""
        model = self.model
        if model.inducing is not None:
            return
        self.features = compute_features(self.basis, self.rows, self.threads)
        X, weight, share, index = self._sample_candidates(model, self.rows)
        has_all_rows = self.features is not None and len(index) == self.rows.n
        choice = choose(
            self.basis,
            self.information,
            X,
            weight,
            model.n_inducing,
            share * model.tolerance,
            model.alpha,
            self.threads,
            waiting=self.waiting,
            residual=np.concatenate([part[1] for part in self.features]) if has_all_rows else None,
        )
        self.waiting, self.loss = choice.waiting, self.loss + choice.loss
        if choice.basis is not self.basis:
            self.basis, self.information, self.features = choice.basis, choice.information, None

    def _learn_settings(self, covariance, scales):
        """Learn settings from the rows and the old factor; return the status of the search."""
        rows, model, basis = self.rows, self.model, self.basis
        is_first = self.information.n == 0.0
        choose_again = self._choose_first_points if is_first and model.inducing is None else None
        options = None if is_exact(model.likelihood) else self.options
        old = None if is_first else (basis, self.information)
        learnt = learn_batch(
            old, basis.Z, rows, model, covariance, scales, self.threads,
            pooled=self.uniform, choose=choose_again, options=options, job=self.options.job,
        )  # fmt: skip
        self.learning = {name: make_read_only(values) for name, values in learnt.trace.items()}
        self.model = learnt.optimum
        self.basis = InducingBasis.of(learnt.optimum.covariance, learnt.Z, model.jitter, self.threads)
        if is_first:
            self.information = Information.empty(self.basis.n)
        else:
            pooled = self.uniform and is_exact(model.likelihood) and model.alpha == 0.0
            noise = learnt.optimum.likelihood
            log_t = float(np.log(noise.noise_variance / model.likelihood.noise_variance)) if pooled else 0.0
            carried_over = pooled or model.likelihood == noise
            self.uniform = self.uniform and carried_over
            exact = carried_over and learnt.optimum.covariance == model.covariance
            self.history = replace(self.history, changed=self.history.changed or not exact)
            mapped, loss = map_old_factor(self.information, basis, self.basis, model.alpha, self.threads, log_t)  # (2)
            self.information, self.loss = mapped.factorise(), self.loss + loss
        self.waiting = WaitingRows.none(self.basis.Z.shape[1])
        self._choose_inducing()  # shorter lengthscales need more points
        return learnt.status

    def _choose_first_points(self, model, rows):
        """Return inducing points for the first rows, or for a part of them."""
        X, weight, share, _ = self._sample_candidates(model, rows)
        basis = InducingBasis.of(model.covariance, X[:0], model.jitter, self.threads)
        chosen, _ = choose_greedily(basis, X, weight, model.n_inducing, share * model.tolerance, self.threads)
        return X[chosen] + 0.0


def take_rows_in(state, X, observations, learn, run):
    """Update a StreamingGPState by rows, None if there are none; return it."""
    now = state._now
    learn, scales = choose_learnt(now.model, learn, observations.noise is not None, list_scales(now.model.likelihood))
    rows = None if X is None else observations.rows(X, BatchRows)
    dropped = join_dropped(now.dropped, observations.dropped)
    if rows is None or rows.left_out.all():
        state._now = replace(now, dropped=dropped)
        return state
    rows = rows.used()
    model = fill_open_parameters(now.model, rows)
    now = now if model is now.model else replace(now, model=model)
    names = observations.labels | {"columns": now.columns or observations.names, "dropped": dropped}
    with np.errstate(over="ignore", invalid="ignore"):
        if rows.n == 1 and not learn and not scales:
            changes = collect_names(now, rows, names)
            if rows.noise is not None:
                changes |= {"uniform": False, "history": now.history.with_rows(rows)}
            new = state._get_single_rows().from_rows(now, rows, changes)
            if new is not None:
                return finish_single_row(state, new)
        with run.open(now.model, rows.named()) as threads:
            update = Update(now, rows, run, threads)
            new, message = update.run(learn, scales, names)
    state._now = new
    warn_of_surprise(message)
    if new.status not in (CONVERGED_STATUS, update.search_status):  # the search has given its own warning
        change = np.append(np.inf, new.trace["change"])[-1]
        warn_unconverged(new.status, change, run.tol, run.max_iter)
    return state


def collect_names(now, rows, names):
    """Return the changes of a snapshot by rows other than numbers: columns, classes, roles, has_offset."""
    changes = {name: value for name, value in names.items() if value != getattr(now, name)}
    if rows.has_offset and not now.has_offset:
        changes["has_offset"] = True
    return changes


def merge(now, other, names):
    """Return the snapshot with all rows of another one of equal settings: their factors are multiplied.

    `names` are columns, classes and roles of both.
    """
    model, Z = now.model, other.basis.Z
    new = np.setdiff1d(np.arange(len(Z)), match_equal_rows(Z, now.basis.Z)[0])
    with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
        basis = now.basis if model.inducing is not None else now.basis.extend(Z[new], threads)
        more, map_loss = other.information, 0.0
        if not np.array_equal(basis.Z, Z):
            more, map_loss = map_old_factor(more, other.basis, basis, model.alpha, threads)  # (2)
        information = now.information.extend(basis.n).plus(more).factorise()  # (1), E_1 in the place of E_2
        basis, information, loss = reduce_to_budget(basis, information, model.n_inducing, model.alpha, threads)
        return now.after(
            rows=other.n_samples,
            updates=1,
            lost=map_loss + loss,
            basis=basis,
            information=information,
            uniform=now.uniform and other.uniform,
            predictive_check=PredictiveCheck.of(information),
            history=now.history.plus(other.history, now.n_updates + 1, now.n_samples + other.n_samples),
            has_offset=now.has_offset or other.has_offset,
            dropped=join_dropped(now.dropped, other.dropped),
            **names,
        )


def forget(now, factor):
    """Return the snapshot with the likelihood of all rows so far to the power of a factor."""
    with single_blas():
        information = now.information.raise_to(factor)  # exp(factor E_1(b))
    return now.after(
        information=information,
        waiting=now.waiting.scale_weights(factor),
        uniform=now.uniform or factor == 0.0,
        history=now.history.times(factor),
        predictive_check=now.predictive_check.carry_over(now.information, information),
    )


def relearn_scales(now, noise, amplitude):
    """Return the snapshot at the noise variance and the amplitude, if chosen, with the largest bound of all rows."""
    model = now.model
    with Threads(1) as threads, single_blas():
        log_s, log_t, _ = learn_scales(now.information, model.covariance, noise, amplitude)
        information = rescale_information(now.information, log_s, log_t)
        covariance = multiply_covariance(model.covariance, log_s)
        likelihood = replace(model.likelihood, noise_variance=model.likelihood.noise_variance * float(np.exp(log_t)))
        return now.after(
            model=replace(model, covariance=covariance, likelihood=likelihood),
            basis=InducingBasis.of(covariance, now.basis.Z, model.jitter, threads),
            information=information,
            waiting=WaitingRows.none(now.basis.Z.shape[1]),
            predictive_check=PredictiveCheck.of(information),
        )
