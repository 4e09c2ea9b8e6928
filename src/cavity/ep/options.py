"""The options of every fit by EP, and the one place where they are checked."""

from dataclasses import dataclass

from cavity.base import arrays
from cavity.base.public_objects import set_fields
from cavity.jobs.job import Run

EP_SCHEDULES = ("parallel", "sequential")
MIN_POWER = 1e-6  # below it, changes of a site, divided by the power, have few digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Run):
    """Options of a fit by EP, with those of `Run`.

    Attributes
    ----------
    schedule : str
        Which sites are renewed when: all at once, or one after the other; some models have more.
    damping : float
        Largest share of each site change that is made.
    power : float
        Exponent of power EP; 1 is EP.
    max_iter : int
        Most sweeps; of the steps of the double loop, where sweeps do not converge, three times as many.
    tol : float
        Change of the posterior in a sweep, divided by the damping in use, up to which the fit has converged.
    double_loop : int or None
        Most steps of the double loop, if that is less; 0 for none.

    Examples
    --------
    >>> from cavity.ep.options import Options
    >>> Options.checked(damping=0.5, max_iter=10).damping
    0.5
    """

    schedule: str = EP_SCHEDULES[0]
    damping: float = 1.0
    power: float = 1.0
    max_iter: int = 200
    tol: float = 1e-8
    double_loop: int | None = None

    @classmethod
    def checked(cls, *, schedules=EP_SCHEDULES, lowest_damping=0.0, lowest_power=MIN_POWER, **arguments):
        """Return the options that a user gave, checked.

        Parameters
        ----------
        schedules : tuple of str
            Those of the model.
        lowest_damping, lowest_power : float
            The least that is allowed; 0 itself never is.
        **arguments
            Fields of the class; those that are not given have their defaults.

        Returns
        -------
        Options
            With plain numbers.

        Raises
        ------
        ValueError, TypeError
            Naming the option, what was expected and what came.
        """
        options = cls(**arguments)
        set_fields(
            options,
            schedule=arrays.check_choice(options.schedule, "schedule", schedules),
            damping=_check_share(options.damping, "damping", lowest_damping),
            power=_check_share(options.power, "power", lowest_power),
            max_iter=arrays.check_integer(options.max_iter, "max_iter", low=1),
            tol=arrays.check_number(options.tol, "tol", low=0, closed_low=True),
        )
        return options

    def record(self, *names):
        """Return some of the options as a dictionary, as files keep them."""
        return {name: getattr(self, name) for name in names}


def _check_share(value, name, lowest):
    return arrays.check_number(value, name, low=lowest, high=1, closed_low=lowest > 0, closed_high=True)
