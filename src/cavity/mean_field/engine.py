"""The engine of mean-field models: coordinate ascent with acceleration, and natural-gradient steps on minibatches.

A model brings states (all factors of q, immutable) and

- ``n_samples``: the ELBO is judged per sample; ``n_rows``: how many rows a sweep sees, None where it sees none;
- ``sweep(state) -> (new_state, elbo)``: every factor set to its optimum once, and the ELBO of the state *given*;
- ``coordinates(state) -> (natural, statistics)``: natural parameters and expected statistics, flat arrays in one order;
- ``at(natural, state)``: the state with these natural parameters, all else as in `state`; where they lie outside the
  domain, one on the way there, or None.

For minibatches also ``estimate(state, batch) -> state``, the optimal factors if all data were like the batch, and
``blend(state, estimate, step) -> state``, the state with the natural parameters (1 - step) old + step estimated.

The engine owns no data. Everything it decides is in nats: a sweep that changes the natural parameters by d and the
expected statistics by s has the change <d, s>/2; near the optimum, where errors shrink by the factor c in a sweep,
the ELBO is at most change/(1 - c) below it.
"""

import math
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from cavity.base import loop
from cavity.base.errors import NumericalWarning, warn
from cavity.base.loop import CONVERGED_STATUS, MAX_ITER_STATUS, STOPPED_STATUS, Outcome, estimate_passes_left
from cavity.base.results import VariationalPosterior
from cavity.mean_field.acceleration import SweepHistory
from cavity.mean_field.options import AscentOptions

# the slowest contraction of so many sweeps counts: extrapolation hides slow directions for a while
CONTRACTION_MEMORY_SWEEPS = 10
MAX_ROUNDING_FALL = 1e-9  # relative fall of the ELBO in a plain sweep that no rounding explains
ELBO_RESOLUTION = 1e-10  # relative difference of two ELBOs that rounding has no part in
MIN_REACH = 2.0  # sweeps' lengths of the first step in the direction of the last sweep
# a contraction above it may belong to the neighbourhood of a saddle, where errors grow at last
MAX_FAST_CONTRACTION = 0.95
# plain sweeps that have to agree that little is left, below FAST and above
CONFIRMING_SWEEPS, SLOW_CONFIRMING_SWEEPS = 1, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanFieldFit(Outcome):
    """How a fit ended. `state` is the last one whose ELBO was evaluated, the best of the fit; `image` its sweep."""

    state: object
    image: object
    elbo: float
    contraction: float | None = None
    predicted_gap: float = math.inf  # inf after stochastic steps

    def outcome(self):
        """Return the fields of a `VariationalPosterior` that are known here, by their names."""
        return {
            field.name: getattr(self, field.name) for field in fields(VariationalPosterior) if hasattr(self, field.name)
        }


def ascend(model, state, options):
    """Sweep until the predicted remaining gain of the ELBO is at most `tol` nats a sample; return the `MeanFieldFit`.

    Parameters
    ----------
    model : object
        See the top of the file.
    state : object
        Where to start.
    options : AscentOptions
        A proposal of its accelerator is accepted only if its ELBO is at least that of the last state.
    """
    accelerate = options.accelerate
    checkpoint = options.job.restore(state)
    climb = _Ascent(model)
    status, close = MAX_ITER_STATUS, 0  # the last evaluations in a row that were as close as `tol`
    if checkpoint is None:
        climb.visit(state)
    else:
        close = climb.restore(checkpoint)
    while True:
        options.job.store(lambda close=close: climb.checkpoint_state() | {"close": close})
        close = close + 1 if climb.predicted_gap() <= options.tol * model.n_samples else 0
        event = {"objective": climb.elbo, "change": climb.change, "left": partial(climb.passes_left, options)}
        stop = options.job.report(climb.n_iter, rows=model.n_rows, **event)
        is_fast = climb.contraction <= MAX_FAST_CONTRACTION
        if close > (CONFIRMING_SWEEPS if is_fast else SLOW_CONFIRMING_SWEEPS) or climb.at_rest():
            status = CONVERGED_STATUS
            break
        if stop:
            status = STOPPED_STATUS
            break
        if climb.n_iter >= options.max_iter:
            break
        # one large step hides slow directions: that little is left has to be seen in the plain sweeps after it as well
        proposal = climb.proposal(accelerate) if accelerate and not close else None
        if proposal is not None:
            climb.visit(proposal, proposed=True)
            continue
        last = climb.elbo
        climb.visit(climb.image)
        if climb.elbo < last - MAX_ROUNDING_FALL * max(1.0, abs(last)):
            warn(
                f"a sweep lowered the ELBO from {last!r} to {climb.elbo!r}: an update is not the optimum of its "
                "factor, or the ELBO is not that of the updates (or their rounding is as large)",
                NumericalWarning,
            )
    return climb.end(status)


def choose_best(climb, starts, options):
    """Return the fit with the largest ELBO of those from several starts.

    Parameters
    ----------
    climb : callable
        climb(start, options) returns the `MeanFieldFit` from a start.
    starts : iterable
        The starts, in order.
    options : AscentOptions
        Those of all of them, with their number. Their job keeps the best fit so far, and which starts led to it.
    """
    best, done, job = None, 0, options.job
    for number, (start, stage) in enumerate(job.iterate_stages("start", starts, options.n_init)):
        checkpoint = job.restore(MeanFieldFit, start) if number == 0 else None
        if checkpoint is not None:
            best, done = checkpoint["best"], checkpoint["done"]
        if number < done:
            continue
        fit = climb(start, replace(options, job=stage.substage("climb")))
        best = fit if best is None or fit.elbo > best.elbo else best
        if job.stopped:
            break
        job.store(lambda number=number, best=best: {"best": best, "done": number + 1})
    return best


def run_trials(model, states, passes, job):
    """Return the fits to which a few passes lead from each of the states that a fit might begin with."""
    options = AscentOptions(accelerate=True, max_iter=passes, tol=0.0)
    begun = job.without_checkpoint().iterate_stages("trial", states, len(states))
    return [ascend(model, state, replace(options, job=stage)) for state, stage in begun]


def join_fits(first, second, accepted=True):
    """Return one fit of two that followed each other, of which the second one's state counts if `accepted`."""
    trace = {name: np.concatenate([first.trace[name], second.trace[name]]) for name in first.trace}
    elbo = second.trace["elbo"] if accepted else np.full(second.n_iter, first.elbo)
    trace["elbo"] = np.concatenate([first.trace["elbo"], np.maximum(first.elbo, elbo)])
    return replace(second if accepted else first, n_iter=first.n_iter + second.n_iter, trace=second.trace | trace)


def report_outcome(done, n_samples, options):
    """Return the fields of a `VariationalPosterior` that a fit gives; warn if its stopping rule was not met."""
    loop.warn_unconverged(done.status, done.predicted_gap / n_samples, options.tol, options.max_iter)
    return done.outcome()


class _Ascent:
    """The current state, its image under a sweep, and the history of both."""

    def __init__(self, model):
        self._model = model
        self.history = SweepHistory()
        self.n_iter = 0
        self._elbos, self._changes, self._rates = [], [], []
        self._away, self._reach = False, MIN_REACH
        self.elbo = -np.inf
        self._onward = None  # coordinates of the image, where plain sweeps go next

    def checkpoint_state(self):
        """Return all that decides how the ascent continues."""
        state = {"trace": self.trace(), "history": self.history.checkpoint_state()}
        state |= {"away": self._away, "reach": self._reach, "onward": self._onward}
        return state | {"state": self.state, "image": self.image, "elbo": self.elbo}

    def restore(self, state):
        """Continue from a `checkpoint_state`; return the number of close evaluations saved with it."""
        trace = {name: values.tolist() for name, values in state["trace"].items()}
        self._elbos, self._changes, self._rates = trace["elbo"], trace["change"], trace["contraction"]
        self.n_iter = len(self._elbos)
        self.history.restore(state["history"])
        self._away, self._reach = state["away"], state["reach"]
        self.state, self.image, self.elbo, self._onward = (state[name] for name in ("state", "image", "elbo", "onward"))
        return state["close"]

    @property
    def contraction(self):
        """The slowest contraction seen in the last sweeps; nan before any was measured."""
        rates = [rate for rate in self._rates[-CONTRACTION_MEMORY_SWEEPS:] if not math.isnan(rate)]
        return max(rates, default=np.nan)

    @property
    def change(self):
        """That of the last sweep, in nats."""
        return self._changes[-1]

    def passes_left(self, options):
        """How many plain passes the predicted gap is away from the stopping rule, None where nothing is known."""
        tol = options.tol * self._model.n_samples
        return estimate_passes_left(self.predicted_gap(), tol, self.contraction, options.max_iter - self.n_iter)

    def predicted_gap(self):
        """How far the ELBO is below the optimum, in nats: inf as long as errors do not shrink or nothing is known."""
        rate = self.contraction
        if math.isnan(rate) and self.at_rest():
            rate = 0.0  # nothing is left to measure it by
        return self._changes[-1] / (1.0 - rate) if rate < 1.0 else np.inf

    def at_rest(self):
        """Whether the sweep changed no more than rounding does, and errors were not seen to grow (a saddle point)."""
        return self._changes[-1] <= self.history.noise() and not self.contraction >= 1.0

    def proposal(self, accelerate):
        """Return the state that the history suggests, or None.

        Far from the optimum, sweeps may go one way for long, and the fixed point that Anderson and SQUAREM look for may
        be a saddle of the ELBO. Where their proposals gain less than a sweep would, or are refused while errors grow,
        proposals go on in the direction of the sweep, twice as far each time, as long as this pays.
        """
        natural = self.history.stretch(self._reach) if self._away else getattr(self.history, accelerate)()
        return None if natural is None else self._model.at(natural, self.image)

    def visit(self, state, proposed=False):
        """Sweep from a state and go there; a proposal below the current ELBO is not gone to."""
        self.n_iter += 1
        image, elbo = self._try(state) if proposed else self._model.sweep(state)
        if not (proposed or np.isfinite(elbo)):
            raise ArithmeticError(f"the ELBO of pass {self.n_iter} is {elbo}")
        accepted = not proposed or self.elbo <= elbo < np.inf
        paid = self._paid(elbo) if proposed and accepted else None
        if accepted:
            point = self._model.coordinates(state) if self._onward is None or proposed else self._onward
            self._onward = self._model.coordinates(image)
            self.state, self.image, self.elbo = state, image, float(elbo)
            self.history.add(point, self._onward, in_a_row=not proposed)
        else:
            self.history.restart()
        self._elbos.append(self.elbo)
        self._changes.append(self.history.change())
        self._rates.append(self.history.contraction() if accepted else np.nan)
        if self._away and paid:
            self._reach *= 2.0
        else:
            astray = not accepted and self.contraction >= 1.0
            self._away, self._reach = not self._away and (astray or paid is False), MIN_REACH

    def _paid(self, elbo):
        """Whether a proposal has gained what a sweep would have; None where rounding of the ELBO decides."""
        change, gain = self._changes[-1], elbo - self.elbo
        return gain >= change if change > ELBO_RESOLUTION * max(1.0, abs(elbo)) else None

    def _try(self, proposal):
        """Sweep from a proposal, which may be too far off for the arithmetic; its ELBO is then nan."""
        try:
            with np.errstate(all="ignore"):
                return self._model.sweep(proposal)
        except (ArithmeticError, ValueError):
            return None, np.nan

    def end(self, status):
        """Return the climb as a `MeanFieldFit`."""
        names = "state", "image", "elbo", "n_iter", "contraction"
        checkpoint_values = {name: getattr(self, name) for name in names}
        return MeanFieldFit(status=status, trace=self.trace(), predicted_gap=self.predicted_gap(), **checkpoint_values)

    def trace(self):
        return {
            "elbo": np.array(self._elbos),
            "change": np.array(self._changes),
            "contraction": np.array(self._rates),
        }
