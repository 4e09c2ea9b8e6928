"""Options of a mean-field fit, checked once, when they are put together."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import set_fields
from cavity.jobs.job import Run
from cavity.mean_field.acceleration import ACCELERATOR_NAMES

LARGEST_TO_SQUARE = 1e150  # squares of data beyond it overflow
LEAST_TO_SQUARE = 1e-140  # squares of differences below it underflow
LEAST_TO_INVERT, LARGEST_TO_INVERT = 1e-300, 1e300  # of settings that are positive: beyond, inverses are no numbers

LEAST_ARRAYS = 16  # of numbers for every component, that a fit of a mixture holds at least
TRIAL_PASSES = 20  # over a sample of the data, that decide where a mixture starts


def _check_counts(options, *names):
    """Check fields of options that are integers from 1."""
    set_fields(options, **{name: arrays.check_integer(getattr(options, name), name, low=1) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class AscentOptions(Run):
    """Options of coordinate ascent, with those of `Run`.

    Attributes
    ----------
    accelerate : False or {"anderson", "squarem"}
        The method that proposes where to go; True is the first one. False leaves plain sweeps.
    max_iter : int
        Most passes: sweeps, those of rejected proposals included.
    tol : float
        Predicted gain of the ELBO in nats per sample at which to stop.
    n_init : int
        Starts, of which those after the first are drawn by `rng`.
    rng : numpy.random.Generator or None
        Source of randomness; a seed gives the same bits again.
    """

    accelerate: bool | str
    max_iter: int
    tol: float
    n_init: int = 1
    rng: Any = None

    def __post_init__(self):
        if isinstance(self.accelerate, bool | np.bool_):
            accelerate = ACCELERATOR_NAMES[0] if self.accelerate else False
        else:
            accelerate = arrays.check_choice(self.accelerate, "accelerate", ACCELERATOR_NAMES)
        set_fields(self, accelerate=accelerate, tol=arrays.check_number(self.tol, "tol", low=0, closed_low=True))
        _check_counts(self, "max_iter", "n_init")
        if self.n_init > 1 and self.rng is None:
            raise ValueError("n_init > 1 draws starting points and needs rng, a seed or a numpy.random.Generator")
        set_fields(self, rng=None if self.rng is None else arrays.make_generator(self.rng))
        Run.__post_init__(self)

    def after(self, *fits):
        """Return the options of what follows fits: the passes that are left, and a job that counts theirs."""
        passes = sum(fit.n_iter for fit in fits)
        return replace(self, max_iter=self.max_iter - passes, job=self.job.continued_after(passes, fits[0].elbo))


@dataclass(frozen=True, slots=True, kw_only=True)
class StochasticOptions(Run):
    """Options of natural-gradient steps on minibatches, with those of `Run`.

    Attributes
    ----------
    batch_size : int
        Rows of a minibatch; the last one of an epoch may be smaller.
    n_epochs : int
        How often every row is seen.
    delay, forgetting : float
        Step t = 1, 2, ... has the length (t + delay)^-forgetting.
    """

    batch_size: int
    n_epochs: int
    delay: float
    forgetting: float

    def __post_init__(self):
        delay = arrays.check_number(self.delay, "delay", low=0, closed_low=True)
        forgetting = arrays.check_number(self.forgetting, "forgetting", low=0.5, high=1, closed_high=True)
        set_fields(self, delay=delay, forgetting=forgetting)
        _check_counts(self, "batch_size", "n_epochs")
        Run.__post_init__(self)


TRIAL_OPTIONS = AscentOptions(accelerate=True, max_iter=TRIAL_PASSES + 1, tol=0.0)  # where no ascent follows


def check_room(n_components, width):
    """Raise MemoryError if memory cannot hold what a fit of so many components holds, `width` numbers of each."""
    description = f"n_components={n_components}: {LEAST_ARRAYS} arrays of the components, each"
    arrays.allocate_matrices(LEAST_ARRAYS, (n_components, width), description, argument="n_components")
