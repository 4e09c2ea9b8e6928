"""Natural-gradient steps on minibatches: of a model's own making, of the blocks of a source, or of a stream.

References
----------
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013, eqs. (25) and (26).
"""

from itertools import islice

import numpy as np

from cavity.sources.minibatches import OneShot, minibatches

NOT_MEASURED = {"converged": False, "contraction": None, "predicted_gap": np.inf}  # of states that no ascent led to
PASSES_DONE = "passes done"  # how stochastic fits end: they have no stopping rule


def take_steps(model, state, batches, options, before=0):
    """Take a step of length (t + delay)^-forgetting for minibatch t = 1, 2, ... [H]_; return the state and the lengths.

    The ELBO of all data is the caller's to evaluate, if at all. A fit that goes on skips the minibatches that it has
    seen, of which `before` are not among these.
    """
    kept = options.job.resumed(state)
    lengths = [] if kept is None else kept["lengths"].tolist()
    state = state if kept is None else kept["state"]
    for batch in islice(batches, max(len(lengths) - before, 0), None):
        length = (len(lengths) + 1 + options.delay) ** -options.forgetting
        state = model.blend(state, model.estimate(state, batch), length)
        lengths.append(length)
        options.job.keep(lambda state=state: {"state": state, "lengths": np.array(lengths)})
        rows = len(batch) if isinstance(batch, np.ndarray) else options.batch_size
        if options.job.after(len(lengths), change=length, rows=rows):
            break
    return state, np.array(lengths)


def stream_of(data, name, n_samples, options, check):
    """Return data that are an iterator as a `OneShot`, None for others; these know how many rows they have."""
    if hasattr(data, "__next__"):
        return OneShot(data, name, n_samples, options.n_epochs, check)
    if n_samples is not None:
        raise ValueError(f"n_samples is for an iterator and must be left out for rows, got {n_samples!r}")
    return None


def fit_rows(sweeps, state, rows, options):
    """Take steps on the minibatches of a source of rows, or of a `OneShot`.

    Parameters
    ----------
    sweeps : object
        The model as the engine sees it, see `cavity.mean_field.engine`.
    state : object
        Where to start.
    rows : Source or OneShot
        The data.
    options : StochasticOptions
        The options.

    Returns
    -------
    state : object
        The state after the last step.
    image : object
        Its image under a sweep over all data; the state itself for a stream, whose data are gone.
    outcome : dict
        The fields of a `VariationalPosterior`.
    """
    if isinstance(rows, OneShot):
        state, lengths = take_steps(sweeps, state, rows, options)
        rows.warn_surplus()
        return state, state, outcome(None, lengths, 1)
    kept, each = options.job.resumed(state), -(-rows.n_rows // options.batch_size)
    seen = 0 if kept is None else len(kept["lengths"]) // each  # whole passes
    batches = (batch for _ in range(seen, options.n_epochs) for batch in minibatches(rows, options.batch_size))
    state, lengths = take_steps(sweeps, state, batches, options, before=seen * each)
    image, elbo = sweeps.sweep(state)
    return state, image, outcome(elbo, lengths, passes(len(lengths), rows.n_rows, options))


def passes(n_steps, n_samples, options):
    """Return how many passes, begun ones included, the steps are if the last minibatch of a pass may be smaller."""
    return -(-n_steps // -(-n_samples // options.batch_size))


def outcome(elbo, lengths, n_passes):
    """Return the fields of a `VariationalPosterior` after steps, which have no stopping rule."""
    return NOT_MEASURED | {"elbo": elbo, "status": PASSES_DONE, "n_iter": n_passes, "trace": {"step": lengths}}
