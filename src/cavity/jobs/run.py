"""How a fit runs, checked once: threads, callback, progress and checkpoint; with the options of an algorithm beside."""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from cavity.base.frozen_dataclasses import set_fields
from cavity.jobs.job import SILENT_JOB, Job
from cavity.runs.executors import Threads, resolve_n_threads, single_blas

JOB_ARGUMENTS = ("callback", "progress", "checkpoint", "checkpoint_every")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Base of the options of fits.

    Attributes
    ----------
    n_threads : int
        Threads; the result has the same bits for any number. -1 is all cores; by default the environment variable
        CAVITY_NUM_THREADS counts, else 1.
    job : Job
        Callback, progress and checkpoint.
    """

    n_threads: int | None = None
    job: Job = SILENT_JOB

    def __post_init__(self):
        set_fields(self, n_threads=resolve_n_threads(self.n_threads))

    @classmethod
    def checked(cls, **arguments):
        """Return the run of a fit with these arguments, as a user gave them.

        Parameters
        ----------
        **arguments
            Fields of the class, and callback, progress, checkpoint and checkpoint_every in place of `job`.

        Raises
        ------
        ValueError, TypeError, OSError
            Naming the argument, what was expected and what came.
        """
        watched = {name: arguments.pop(name) for name in JOB_ARGUMENTS if name in arguments}
        return cls(**arguments, **({"job": Job.checked(**watched)} if watched else {}))

    @contextmanager
    def open(self, model, data, *, uses_blas=True, **decisive):
        """A context of the work, with its `Threads`; displays end with it.

        Parameters
        ----------
        model, data, **decisive
            What decides the bits of the result beside these options; see `Checkpoint.opened`.
        uses_blas : bool, default True
            Whether BLAS is called: it has one thread then, which takes some microseconds.
        """
        opened = self.job.open_checkpoint(model, data, options=self, **decisive)
        limit = single_blas() if uses_blas else nullcontext()
        with self.job, opened, Threads(self.n_threads, self.job) as threads, limit:
            yield threads
