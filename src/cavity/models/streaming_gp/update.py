"""One update of a streaming state: inducing points for the rows, settings, and the rows themselves."""

from dataclasses import dataclass, field, replace

import numpy as np

from cavity.base.arrays import read_only
from cavity.base.errors import within_range
from cavity.base.loop import CONVERGED
from cavity.ep.options import Options
from cavity.likelihoods import Laplace, StudentT
from cavity.models.gp.search import NOT_LEARNT
from cavity.models.latent import SMALLEST_VARIANCE, scheduled
from cavity.models.streaming_gp.absorb import absorbed, assimilated
from cavity.models.streaming_gp.basis import Basis
from cavity.models.streaming_gp.carrier import moved
from cavity.models.streaming_gp.history import History, Watch, surprise_of
from cavity.models.streaming_gp.inducing import Waiting, choose, greedy
from cavity.models.streaming_gp.information import Information
from cavity.models.streaming_gp.rows import features, is_exact
from cavity.models.streaming_gp.search import learn_batch

EMPTY = {
    name: read_only(np.zeros(0)) for name in ("change", "learning")
}  # trace of an update without sweeps or searches
CANDIDATES = 1 << 16  # rows of a batch among which inducing points are chosen


@dataclass(slots=True, eq=False)
class Update:
    """What becomes of a state with further rows; `run` fills it in, and the state is as before until it takes it over.

    Attributes
    ----------
    model, basis, information
        Settings, inducing variables and what is known of them.
    waiting : Waiting
        Rows that were not worth other inducing points.
    uniform : bool
        Whether all rows so far have the noise variance of the model.
    history : History
        What the state has been through.
    watch : Watch
        Since when rows are judged.
    surprise : str or None
        Words about rows that speak against the settings.
    lost : float
        Nats that the rows before lose by giving up inducing points.
    status, n_iter, trace
        Of EP and of the search for settings.
    """

    model: object
    basis: Basis
    information: Information
    waiting: Waiting
    uniform: bool
    history: History
    watch: Watch
    options: Options  # of EP
    rows: object
    threads: object
    surprise: str | None = None
    known: list | None = None  # W and residuals of the blocks of rows
    lost: float = 0.0
    status: str = CONVERGED
    n_iter: int = 1
    trace: dict = field(default_factory=lambda: dict(EMPTY))
    callback: object = None  # of EP

    def run(self, learn, scales):
        """Choose inducing points, learn settings if asked to, and take in the rows."""
        start = self.information
        self._choose()
        at_rest = self._learn(learn, scales) if learn or scales else True
        if self.known is None:
            self.known = features(self.basis, self.rows, self.threads)
        before = self.information
        arguments = self.basis, before, self.rows, self.model, self.model.alpha
        if is_exact(self.model.likelihood):
            self.information = absorbed(*arguments, self.threads, self.known)
            self.uniform = self.uniform and self.rows.noise is None
        else:
            done = assimilated(*arguments, self._ep_options(), self.threads, self.known, callback=self.callback)
            self.information, self.status = done.information, done.status
            self.n_iter, self.trace["change"] = done.n_iter, read_only(done.changes)
        if self.status == CONVERGED and not at_rest:
            self.status = NOT_LEARNT
        self.history = self.history.with_rows(self.rows)
        self._judge(start, before, learn or scales)
        return self

    def _judge(self, start, before, learnt):
        """Compare the rows with what was announced for them; not those that settings were learnt from."""
        model = self.model
        if learnt or start.n == 0.0:
            self.watch = Watch.of(self.information)
        elif is_exact(model.likelihood) and model.alpha == 0.0:
            self.surprise, self.watch = self.watch.carried(start, before).judged(self.information)
        else:
            increment = self.information.log_bound - before.log_bound
            self.surprise = surprise_of(self.rows, model, self.basis.program, increment)

    def _ep_options(self):
        """Options of the engine."""
        return scheduled(self.options, self.model.likelihood, self.model.alpha)

    def _candidates(self, model):
        """Rows that may become inducing points, nats that a unit of their residual costs, their share, indices."""
        X, index = self.rows.candidates(CANDIDATES)
        share = self.rows.n / len(index)
        return X, share * loss_rates(model, X, self.rows, index), share, index

    def _choose(self):
        """Choose inducing points for the rows, as the settings are."""
        model = self.model
        self.known = features(self.basis, self.rows, self.threads)
        if model.inducing is not None:
            return
        X, weight, share, index = self._candidates(model)
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
        """Learn settings from the rows and what is known of those before; whether the search came to rest."""
        rows, model, basis = self.rows, self.model, self.basis
        fresh = self.information.n == 0.0
        choose_again = self._first_points if fresh and model.inducing is None else None
        options = None if is_exact(model.likelihood) else self._ep_options()
        old = None if fresh else (basis, self.information)
        learnt = learn_batch(
            old, basis.Z, rows, model, covariance, scales, self.threads,
            pooled=self.uniform, choose=choose_again, options=options,
        )  # fmt: skip
        self.trace["learning"] = read_only(learnt.values)
        self.model = replace(model, covariance=learnt.covariance, likelihood=learnt.likelihood)
        self.basis = Basis.of(learnt.covariance, learnt.Z, model.jitter, self.threads)
        if fresh:
            self.information = Information.empty(self.basis.n)
        else:
            pooled = self.uniform and is_exact(model.likelihood) and model.alpha == 0.0
            noise = model.likelihood, learnt.likelihood
            log_t = float(np.log(noise[1].noise_variance / noise[0].noise_variance)) if pooled else 0.0
            self.uniform = self.uniform and (pooled or noise[0] == noise[1])
            exact = learnt.covariance == model.covariance and (pooled or noise[0] == noise[1])
            self.history = replace(self.history, changed=self.history.changed or not exact)
            carried, loss = moved(self.information, basis, self.basis, model.alpha, self.threads, log_t)
            self.information, self.lost = carried.factorised(), self.lost + loss
        self.waiting = Waiting.none(self.basis.Z.shape[1])
        self._choose()  # shorter lengthscales want more points
        return learnt.at_rest

    def _first_points(self, model):
        """Inducing points for the first rows."""
        X, weight, share, _ = self._candidates(model)
        Z = np.zeros((0, X.shape[1]))
        chosen, _ = greedy(
            model.covariance, Z, X, weight, model.n_inducing, share * model.tolerance, model.jitter, self.threads
        )
        return X[chosen] + 0.0


def loss_rates(model, X, rows, index):
    """Nats that a unit of residual variance costs at some rows."""
    if is_exact(model.likelihood):
        rate = within_range(0.5 * rows.precision(model.likelihood), "the precisions of the noise")
        return np.broadcast_to(rate, (rows.n,))[index]
    weight = np.broadcast_to(rows.weight(), (rows.n,))[index]
    if isinstance(model.likelihood, Laplace | StudentT):  # observations of f with noise of that size
        return within_range(0.5 * weight / model.likelihood.scale**2, "the precisions of the noise")
    prior = model.covariance._program(X.shape[1]).diagonal(X)
    seen = prior > SMALLEST_VARIANCE
    return np.where(seen, 0.5 * weight / np.where(seen, prior, 1.0), 0.0)
