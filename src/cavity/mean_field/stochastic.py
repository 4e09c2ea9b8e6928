"""Natural-gradient steps on minibatches: of a model's own making, of the blocks of a source, or of a stream.

References
----------
.. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of Machine
   Learning Research 14, 2013, eqs. (25) and (26).
"""

from dataclasses import dataclass
from itertools import islice

import numpy as np

from cavity.mean_field.engine import MeanFieldFit
from cavity.sources.dataset import Dataset
from cavity.sources.minibatches import OneShotMinibatches, iterate_minibatches

PASSES_DONE = "passes done"  # how stochastic fits end: they have no stopping rule


def take_steps(model, state, batches, options, before=0):
    """Take a step of length (t + delay)^-forgetting for minibatch t = 1, 2, ... [H]_; return the state and the lengths.

    The ELBO of all data is the caller's to evaluate, if at all. A fit that goes on skips the minibatches that it has
    seen, of which `before` are not among these.
    """
    checkpoint = options.job.restore(state)
    lengths = [] if checkpoint is None else checkpoint["lengths"].tolist()
    state = state if checkpoint is None else checkpoint["state"]
    for batch in islice(batches, max(len(lengths) - before, 0), None):
        length = (len(lengths) + 1 + options.delay) ** -options.forgetting
        state = model.blend(state, model.estimate(state, batch), length)
        lengths.append(length)
        options.job.store(lambda state=state: {"state": state, "lengths": np.array(lengths)})
        rows = len(batch) if isinstance(batch, np.ndarray) else options.batch_size
        if options.job.report(len(lengths), change=length, rows=rows):
            break
    return state, np.array(lengths)


@dataclass(frozen=True, slots=True, eq=False)
class StochasticRows:
    """The rows of a stochastic fit.

    Attributes
    ----------
    dataset : Dataset
        All rows; of an iterator the first minibatch, from which a fit starts.
    columns : tuple of str or None
        The names of the columns.
    stream : OneShot or None
        The minibatches of an iterator; None for rows that can be read again.
    """

    dataset: Dataset
    columns: tuple | None
    stream: OneShotMinibatches | None = None

    @classmethod
    def open(cls, data, name, n_samples, options, check):
        """Open what a user gave.

        Parameters
        ----------
        data : rows as of `Dataset.open`, or iterator of arrays
            The data.
        name : str
            What they are called in messages.
        n_samples : int or None
            How many rows an iterator holds.
        options : StochasticOptions
            The options.
        check : callable
            Checks a minibatch of an iterator, see `OneShot`.
        """
        if hasattr(data, "__next__"):
            stream = OneShotMinibatches(data, name, n_samples, options.n_epochs, check)
            return cls(Dataset.open(stream.first, name=name), stream.columns, stream)
        if n_samples is not None:
            raise ValueError(f"n_samples is for an iterator and must be left out for rows, got {n_samples!r}")
        dataset = Dataset.open(data, remote=True, name=name)
        return cls(dataset, dataset.names)

    def fit(self, sweeps, state, source, options):
        """Take steps on all minibatches.

        Parameters
        ----------
        sweeps : object
            The model as the engine sees it, see `cavity.mean_field.engine`.
        state : object
            Where to start.
        source : Source
            The rows of the dataset.
        options : StochasticOptions
            The options.

        Returns
        -------
        MeanFieldFit
            Its image is that under a sweep over all data; of a stream, whose data are gone, it is the state itself.
        """
        if self.stream is not None:
            state, lengths = take_steps(sweeps, state, self.stream, options)
            self.stream.warn_surplus()
            return end_steps(state, state, None, lengths, 1)
        checkpoint, steps_per_pass = options.job.restore(state), -(-source.n_rows // options.batch_size)
        passes_done = 0 if checkpoint is None else len(checkpoint["lengths"]) // steps_per_pass  # whole passes
        passes = range(passes_done, options.n_epochs)
        batches = (batch for _ in passes for batch in iterate_minibatches(source, options.batch_size))
        state, lengths = take_steps(sweeps, state, batches, options, before=passes_done * steps_per_pass)
        image, elbo = sweeps.sweep(state)
        return end_steps(state, image, elbo, lengths, count_passes(len(lengths), source.n_rows, options))


def count_passes(n_steps, n_samples, options):
    """Return how many passes, begun ones included, the steps are if the last minibatch of a pass may be smaller."""
    return -(-n_steps // -(-n_samples // options.batch_size))


def end_steps(state, image, elbo, lengths, n_passes):
    """Return the fit that steps of these lengths have led to."""
    return MeanFieldFit(
        state=state, image=image, elbo=elbo, status=PASSES_DONE, n_iter=n_passes, trace={"step": lengths}
    )
