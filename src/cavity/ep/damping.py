"""Damping: the share of each site change that a sweep makes, adapted by one rule for all schedules and geometries."""

import numpy as np

MIN_ADAPTED_STEP = 0.05  # lower limit of adapted damping, unless the user requested less
STEP_REDUCTION_FACTOR, STEP_GROWTH_FACTOR = 0.6, 1.2  # without progress, and with it
PROGRESS_RATIO = 0.9  # of the smallest change since steps were last shortened: progress is a change below it
PARALLEL_PATIENCE = 1  # sweeps without progress until steps are shortened, where all sites are renewed at once, ...
SEQUENTIAL_PATIENCE = 4  # ... and one after the other: changes then rise and fall on the way to convergence


class Damping:
    """The share of each site change that is made in a sweep, from 1 (all of it) downwards.

    It falls by the factor 0.6, down to 0.05, whenever the change has not fallen by a tenth in `patience` sweeps.
    With each such fall of the change it grows by 1.2, up to the largest share.

    Parameters
    ----------
    largest : float in (0, 1]
        The share that the user requested.
    patience : int
        PARALLEL_PATIENCE or SEQUENTIAL_PATIENCE.

    Attributes
    ----------
    step : float
        The share in use.

    Examples
    --------
    >>> from cavity.ep.damping import PARALLEL_PATIENCE, Damping
    >>> damping = Damping(1.0, PARALLEL_PATIENCE)
    >>> for change in (4.0, 5.0, 4.0):
    ...     damping.adapt(change)
    >>> round(damping.step, 2)
    0.72
    """

    __slots__ = ("best", "largest", "patience", "smallest", "step", "waited")

    def __init__(self, largest, patience):
        self.largest = self.step = largest
        self.smallest = min(MIN_ADAPTED_STEP, largest)
        self.patience, self.waited, self.best = patience, 0, np.inf

    def checkpoint_state(self):
        """Return the values that sweeps change."""
        return {name: getattr(self, name) for name in ("step", "best", "waited")}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def downward_step(self):
        """Share of changes that lower precisions, which may make cavities improper: `step` squared, once adapted."""
        return self.step if self.step >= self.largest else self.step**2

    def adapt(self, change):
        """Adapt to the change of the posterior in a sweep, divided by the step."""
        if change < PROGRESS_RATIO * self.best:
            self.best, self.waited = change, 0
            self.step = min(STEP_GROWTH_FACTOR * self.step, self.largest)
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.best, self.waited = change, 0
            self.shorten(STEP_REDUCTION_FACTOR)

    def shorten(self, factor):
        """Multiply the step by a factor, down to its lower limit."""
        self.step = max(factor * self.step, self.smallest)


class BatchDamping(Damping):
    """The rule of `Damping` for B independent problems: `step` is (B,).

    Parameters
    ----------
    largest : float in (0, 1]
        The share that the user requested.
    patience : int
        PARALLEL_PATIENCE or SEQUENTIAL_PATIENCE.
    n_problems : int
        B.
    """

    __slots__ = ()

    def __init__(self, largest, patience, n_problems):
        super().__init__(largest, patience)
        self.step, self.best = np.full(n_problems, largest), np.full(n_problems, np.inf)
        self.waited = np.zeros(n_problems)

    def adapt(self, change):
        """Adapt to the changes (B,) of a sweep, divided by the steps."""
        progress = change < PROGRESS_RATIO * self.best
        waited = np.where(progress, 0, self.waited + 1)
        late = waited >= self.patience
        self.best = np.where(progress | late, change, self.best)
        self.waited, longer = np.where(late, 0, waited), np.minimum(STEP_GROWTH_FACTOR * self.step, self.largest)
        shorter = np.maximum(STEP_REDUCTION_FACTOR * self.step, self.smallest)
        self.step = np.where(progress, longer, np.where(late, shorter, self.step))
