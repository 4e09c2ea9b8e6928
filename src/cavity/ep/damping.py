"""How much of each site change is made: one rule for all schedules and geometries."""

import numpy as np

MIN_ADAPTED_STEP = 0.05  # damping is never adapted below it, unless less was asked for
STEP_REDUCTION_FACTOR, STEP_GROWTH_FACTOR = 0.6, 1.2  # by which steps change without progress, and with each sign of it
PROGRESS_RATIO = 0.9  # progress is a change below that share of the smallest one since steps were last shortened
PARALLEL_PATIENCE = 1  # sweeps without progress after which steps are shortened where all sites are renewed at once ...
SEQUENTIAL_PATIENCE = 4  # ... and where each sees the changes of those before, which rise and fall on the way


class Damping:
    """The share of each site change that is made in a sweep, from 1 (all of it) downwards.

    It falls by the factor 0.6, down to 0.05, whenever the change has not fallen by a tenth in `wait` sweeps. With each
    such fall it grows by 1.2, up to what the user asked for.

    Parameters
    ----------
    largest : float in (0, 1]
        The share asked for.
    wait : int
        TOGETHER, where all sites are renewed at once and their changes add up, or IN_TURN.

    Attributes
    ----------
    step : float
        The share in use.

    Examples
    --------
    >>> from cavity.ep.damping import TOGETHER, Damping
    >>> damping = Damping(1.0, TOGETHER)
    >>> for change in (4.0, 5.0, 4.0):
    ...     damping.after(change)
    >>> round(damping.step, 2)
    0.72
    """

    __slots__ = ("best", "largest", "smallest", "step", "wait", "waited")

    def __init__(self, largest, wait):
        self.largest = self.step = largest
        self.smallest = min(MIN_ADAPTED_STEP, largest)
        self.wait, self.waited, self.best = wait, 0, np.inf

    def checkpoint_state(self):
        """Return what changes, for `restore`."""
        return {name: getattr(self, name) for name in ("step", "best", "waited")}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def down(self):
        """Share of changes that lower a precision, which endanger cavities: the square of the other, once adapted."""
        return self.step if self.step >= self.largest else self.step**2

    def after(self, change):
        """Adapt to the change of a sweep, divided by the step."""
        if change < PROGRESS_RATIO * self.best:
            self.best, self.waited = change, 0
            self.step = min(STEP_GROWTH_FACTOR * self.step, self.largest)
            return
        self.waited += 1
        if self.waited >= self.wait:
            self.best, self.waited = change, 0
            self.shorten(STEP_REDUCTION_FACTOR)

    def shorten(self, factor):
        """Make steps shorter by a factor, as far as they get."""
        self.step = max(factor * self.step, self.smallest)


class BatchDamping(Damping):
    """The rule of `Damping` for many problems at once: `step` is (B,), and each goes its own way.

    Parameters
    ----------
    largest : float in (0, 1]
        The share asked for.
    wait : int
        TOGETHER, where all sites are renewed at once and their changes add up, or IN_TURN.
    n_problems : int
        B.
    """

    __slots__ = ()

    def __init__(self, largest, wait, n_problems):
        super().__init__(largest, wait)
        self.step, self.best = np.full(n_problems, largest), np.full(n_problems, np.inf)
        self.waited = np.zeros(n_problems)

    def after(self, change):
        """Adapt to the changes (B,) of a sweep, divided by the steps."""
        progress = change < PROGRESS_RATIO * self.best
        waited = np.where(progress, 0, self.waited + 1)
        late = waited >= self.wait
        self.best = np.where(progress | late, change, self.best)
        self.waited, longer = np.where(late, 0, waited), np.minimum(STEP_GROWTH_FACTOR * self.step, self.largest)
        shorter = np.maximum(STEP_REDUCTION_FACTOR * self.step, self.smallest)
        self.step = np.where(progress, longer, np.where(late, shorter, self.step))
