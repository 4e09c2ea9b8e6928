"""Updates of a streaming state: an old snapshot, and what comes to it, make a new one."""

from dataclasses import replace

import numpy as np

from cavity.base.arrays import read_only
from cavity.base.loop import CONVERGED
from cavity.models.latent_posterior import choose_schedule
from cavity.models.streaming_gp.absorb import absorbed, assimilated
from cavity.models.streaming_gp.basis import Basis, same_rows
from cavity.models.streaming_gp.carrier import moved
from cavity.models.streaming_gp.history import Watch, surprise_of
from cavity.models.streaming_gp.inducing import Waiting, choose, greedy, within_budget
from cavity.models.streaming_gp.information import Information
from cavity.models.streaming_gp.rescale import multiplied, relearn, rescaled
from cavity.models.streaming_gp.rows import features, is_exact, loss_rates
from cavity.models.streaming_gp.search import learn_batch
from cavity.models.streaming_gp.snapshot import EMPTY
from cavity.runs.executors import Threads, single_blas

CANDIDATES = 1 << 16  # rows of a batch among which inducing points are chosen


class Update:
    """A batch on its way into a snapshot: inducing points for its rows, settings, and the rows themselves.

    Parameters
    ----------
    now : Snapshot
        What is known before.
    rows : BatchRows
        The batch.
    options : Options
        Those of EP.
    threads : Threads
        Who takes blocks.
    """

    def __init__(self, now, rows, options, threads):
        self.now, self.rows, self.threads = now, rows, threads
        self.model, self.basis, self.information, self.waiting = now.model, now.basis, now.information, now.waiting
        self.uniform, self.history = now.uniform, now.history
        self.known = None  # W and residuals of the blocks of rows at the basis, if they are kept
        self.searched = CONVERGED  # the status of the search for settings, if there is one
        self.lost = 0.0  # nats that the rows before lose by giving up inducing points
        self.learning = {}
        model = now.model
        exact = is_exact(model.likelihood)
        self.options = options if exact else choose_schedule(options, model.likelihood, model.alpha)

    def run(self, learn, scales, kept):
        """Return the snapshot with the rows, and words about those that speak against the settings, or None.

        `learn` says whether the covariance is learnt, `scales` which of the likelihood's; `kept` are columns, classes
        and roles.
        """
        now, rows = self.now, self.rows
        self._choose()
        if learn or scales:
            self.searched = self._learn(learn, scales)
        if self.known is None:
            self.known = features(self.basis, rows, self.threads)
        before, model, job = self.information, self.model, self.options.job.final_job()
        arguments = self.basis, before, rows, model, model.alpha
        if is_exact(model.likelihood):
            self.information = absorbed(*arguments, self.threads, self.known)
            job.report(1, rows=rows.n)
            status, n_iter, changes = CONVERGED, 1, EMPTY["change"]
        else:
            done = assimilated(*arguments, replace(self.options, job=job), self.threads, self.known)
            self.information, status, n_iter = done.information, done.status, done.n_iter
            changes = read_only(done.changes)
        status = self.searched if status == CONVERGED else status
        surprise, watch = self._judged(before, learn or scales)
        change = 0.0 if status == self.searched != CONVERGED else float(np.append(np.inf, changes)[-1])
        number, n = now.n_updates + 1, now.n_samples + rows.n
        new = now.after(
            rows=rows.n,
            updates=1,
            lost=self.lost,
            status=status,
            n_iter=n_iter,
            trace=EMPTY | {"change": changes} | self.learning,
            model=model,
            basis=self.basis,
            information=self.information,
            waiting=self.waiting,
            uniform=self.uniform and rows.noise is None,
            history=self.history.with_rows(rows).with_end(number, n, status, change),
            watch=watch,
            **named(now, rows, kept),
        )
        return new, surprise

    def _judged(self, before, learnt):
        """Compare the rows with what was announced for them, unless settings were learnt from them: words, a Watch."""
        now, model = self.now, self.model
        if learnt or now.information.n == 0.0:
            return None, Watch.of(self.information)
        if is_exact(model.likelihood) and model.alpha == 0.0:
            return now.watch.carried(now.information, before).judged(self.information)
        increment = self.information.log_bound - before.log_bound
        return surprise_of(self.rows, model, self.basis.program, increment), now.watch

    def _candidates(self, model, rows):
        """Rows that may become inducing points, nats that a unit of their residual costs, their share, indices."""
        X, index = rows.candidates(CANDIDATES)
        share = rows.n / len(index)
        return X, share * loss_rates(model, X, rows, index), share, index

    def _choose(self):
        """Choose inducing points for the rows, as the settings are."""
        model = self.model
        self.known = features(self.basis, self.rows, self.threads)
        if model.inducing is not None:
            return
        X, weight, share, index = self._candidates(model, self.rows)
        whole = self.known is not None and len(index) == self.rows.n
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
            residual=np.concatenate([part[1] for part in self.known]) if whole else None,
        )
        self.waiting, self.lost = choice.waiting, self.lost + choice.loss
        if choice.basis is not self.basis:
            self.basis, self.information, self.known = choice.basis, choice.information, None

    def _learn(self, covariance, scales):
        """Learn settings from the rows and what is known of those before; return the status of the search."""
        rows, model, basis = self.rows, self.model, self.basis
        fresh = self.information.n == 0.0
        choose_again = self._first_points if fresh and model.inducing is None else None
        options = None if is_exact(model.likelihood) else self.options
        old = None if fresh else (basis, self.information)
        learnt = learn_batch(
            old, basis.Z, rows, model, covariance, scales, self.threads,
            pooled=self.uniform, choose=choose_again, options=options, job=self.options.job,
        )  # fmt: skip
        self.learning = {name: read_only(values) for name, values in learnt.trace.items()}
        self.model = learnt.optimum
        self.basis = Basis.of(learnt.optimum.covariance, learnt.Z, model.jitter, self.threads)
        if fresh:
            self.information = Information.empty(self.basis.n)
        else:
            pooled = self.uniform and is_exact(model.likelihood) and model.alpha == 0.0
            noise = learnt.optimum.likelihood
            log_t = float(np.log(noise.noise_variance / model.likelihood.noise_variance)) if pooled else 0.0
            carried_over = pooled or model.likelihood == noise
            self.uniform = self.uniform and carried_over
            exact = carried_over and learnt.optimum.covariance == model.covariance
            self.history = replace(self.history, changed=self.history.changed or not exact)
            carried, loss = moved(self.information, basis, self.basis, model.alpha, self.threads, log_t)
            self.information, self.lost = carried.factorised(), self.lost + loss
        self.waiting = Waiting.none(self.basis.Z.shape[1])
        self._choose()  # shorter lengthscales want more points
        return learnt.status

    def _first_points(self, model, rows):
        """Inducing points for the first rows, or some of them."""
        X, weight, share, _ = self._candidates(model, rows)
        basis = Basis.of(model.covariance, X[:0], model.jitter, self.threads)
        chosen, _ = greedy(basis, X, weight, model.n_inducing, share * model.tolerance, self.threads)
        return X[chosen] + 0.0


def named(now, rows, kept):
    """Return what rows change in a snapshot beside numbers: columns, classes, roles, whether there are offsets."""
    changes = {name: value for name, value in kept.items() if value != getattr(now, name)}
    if rows.has_offset and not now.has_offset:
        changes["has_offset"] = True
    return changes


def merged(now, other, names):
    """Return the snapshot with all rows of another one of equal settings; `names` are fields of both."""
    model, Z = now.model, other.basis.Z
    new = np.setdiff1d(np.arange(len(Z)), same_rows(Z, now.basis.Z)[0])
    with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
        basis = now.basis if model.inducing is not None else now.basis.extended(Z[new], threads)
        more, lost = other.information, 0.0
        if not np.array_equal(basis.Z, Z):
            more, lost = moved(more, other.basis, basis, model.alpha, threads)
        information = now.information.extended(basis.n).plus(more).factorised()
        basis, information, given_up = within_budget(basis, information, model.n_inducing, model.alpha, threads)
        return now.after(
            rows=other.n_samples,
            updates=1,
            lost=lost + given_up,
            basis=basis,
            information=information,
            uniform=now.uniform and other.uniform,
            watch=Watch.of(information),
            history=now.history.plus(other.history, now.n_updates + 1, now.n_samples + other.n_samples),
            has_offset=now.has_offset or other.has_offset,
            **names,
        )


def forgotten(now, factor):
    """Return the snapshot with all rows so far to the power of a factor."""
    with single_blas():
        information = now.information.to_the(factor)
    return now.after(
        information=information,
        waiting=now.waiting.times(factor),
        uniform=now.uniform or factor == 0.0,
        history=now.history.times(factor),
        watch=now.watch.carried(now.information, information),
    )


def relearnt(now, noise, amplitude):
    """Return the snapshot at the noise variance and the amplitude, if they are asked for, that suit all rows best."""
    model = now.model
    with Threads(1) as threads, single_blas():
        log_s, log_t, _ = relearn(now.information, model.covariance, noise, amplitude)
        information = rescaled(now.information, log_s, log_t)
        covariance = multiplied(model.covariance, log_s)
        likelihood = replace(model.likelihood, noise_variance=model.likelihood.noise_variance * float(np.exp(log_t)))
        return now.after(
            model=replace(model, covariance=covariance, likelihood=likelihood),
            basis=Basis.of(covariance, now.basis.Z, model.jitter, threads),
            information=information,
            waiting=Waiting.none(now.basis.Z.shape[1]),
            watch=Watch.of(information),
        )
