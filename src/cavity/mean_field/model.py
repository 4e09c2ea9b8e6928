"""Models of one's own in plain Python, and their fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import IntArray, Public, Seed
from cavity.base.records import Record, Setting, declare
from cavity.base.results import VariationalPosterior, format_table
from cavity.distributions import factors as families
from cavity.jobs.job import Event, Job
from cavity.mean_field import engine, stochastic
from cavity.mean_field.options import AscentOptions, StochasticOptions

if TYPE_CHECKING:
    from cavity.distributions.family import Distribution

FACTORS_SETTING = Setting(
    f"an object of names out of {', '.join(families.FAMILIES_BY_NAME)}",
    lambda names: isinstance(names, dict) and all(f in [*families.FAMILIES_BY_NAME] for f in names.values()),
)


def _declare_arrays(settings):
    declared = {}
    for index, (name, family) in enumerate(settings["factors"].items()):
        declared |= families.declare_arrays(f"factor_{name}", family, index)
    return declared


def _split_factors(factors):
    """Return what files have of factors: their families, and their arrays."""
    saved = {"names": {name: type(factor).__name__ for name, factor in factors.items()}}
    for name, factor in factors.items():
        saved |= families.to_arrays(f"factor_{name}", factor)
    return saved


def _join_factors(names, **stored):
    """Return the factors of which a file has that."""
    return {name: families.from_arrays(f"factor_{name}", family, stored) for name, family in names.items()}


class Model(Public):
    """A model whose posterior is approximated by independent factors q = q_1 q_2 ..., for subclasses to fill in.

    The factors are distributions of `cavity.distributions`, by name in a dict. In a conditionally conjugate model the
    best factor given the others is of the family of its complete conditional, with natural parameters averaged over
    the other factors (eq. 10.9 of [B]_)::

        q*(z_j) proportional to exp(E[natural parameters of p(z_j | the rest)]' t(z_j))

    A subclass computes these averages from the moments of the other factors.

    Attributes
    ----------
    n_samples : int
        Number of observations; the stopping rule is per observation.

    References
    ----------
    .. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 10.1.

    Examples
    --------
    The mean of Gaussian data whose precision is unknown too (section 10.1.3 of [B]_, here without the coupling of the
    two priors):

    >>> import cavity, numpy as np
    >>> class Location(cavity.mean_field.Model):
    ...     def __init__(self, x):
    ...         self.x, self.n_samples = x, len(x)
    ...     def initial(self):
    ...         return {"mean": cavity.Gaussian(0.0, 0.01), "precision": cavity.distributions.Gamma(1.0, 1.0)}
    ...     def update(self, name, q):
    ...         if name == "mean":
    ...             tau = q["precision"].mean
    ...             return cavity.Gaussian(tau * self.x.sum(), 0.01 + tau * len(self.x))
    ...         return cavity.distributions.Gamma(1.0 + len(self.x) / 2, 1.0 + self.squares(q) / 2)
    ...     def squares(self, q):
    ...         return np.sum((self.x - q["mean"].mean) ** 2) + len(self.x) * q["mean"].variance
    ...     def expected_log_joint(self, q):
    ...         mean, precision = q["mean"], q["precision"]
    ...         log_tau = precision.statistics[0]
    ...         likelihood = 0.5 * len(self.x) * (log_tau - np.log(2 * np.pi)) - 0.5 * precision.mean * self.squares(q)
    ...         prior = 0.5 * np.log(0.01 / (2 * np.pi)) - 0.005 * (mean.mean**2 + mean.variance) - precision.mean
    ...         return likelihood + prior
    >>> posterior = cavity.mean_field.fit(Location(np.array([4.1, 5.3, 4.7, 5.9, 5.0])))
    >>> round(posterior["mean"].mean, 3), round(posterior["precision"].mean, 3), round(posterior.elbo, 3)
    (4.994, 1.579, -9.141)
    """

    n_samples = 1

    def initial(self) -> Mapping[str, Distribution]:
        """Return where to start.

        Returns
        -------
        dict of str to distribution
            The factors, in the order in which a sweep renews them.
        """
        raise NotImplementedError(f"{type(self).__name__} must define initial()")

    def update(self, name: str, q: Mapping[str, Distribution]) -> Any:
        """Return the best factor given the others.

        Parameters
        ----------
        name : str
            Which factor.
        q : dict of str to distribution
            The current factors.

        Returns
        -------
        distribution
            q*(z_name), of the same family and shape as ``q[name]``.
        """
        raise NotImplementedError(f"{type(self).__name__} must define update(name, q)")

    def expected_log_joint(self, q: Mapping[str, Distribution]) -> float:
        """Return E_q[log p(data, z)], with all constants; the engine adds the entropies of the factors.

        Parameters
        ----------
        q : dict of str to distribution
            The current factors.

        Returns
        -------
        float
            The expectation, in nats.
        """
        raise NotImplementedError(f"{type(self).__name__} must define expected_log_joint(q)")

    def minibatch(self, rows: IntArray) -> Model:
        """Return the model of a few rows, weighted as if all rows were like them (for `fit_stochastic`).

        Parameters
        ----------
        rows : ndarray of int
            Which of the n_samples rows.

        Returns
        -------
        Model
            The same model with the terms of these rows taken n_samples/len(rows) times.
        """
        raise NotImplementedError(f"{type(self).__name__} must define minibatch(rows) for stochastic fits")


def fit(
    model: Model,
    *,
    initial: Mapping[str, Distribution] | None = None,
    accelerate: bool | Literal["anderson", "squarem"] = True,
    max_iter: int = 1000,
    tol: float = 1e-10,
    callback: Callable[[Event], object] | None = None,
    progress: bool = False,
) -> MeanFieldPosterior:
    """Fit a mean-field approximation by coordinate ascent.

    Parameters
    ----------
    model : Model
        The model with its data.
    initial : dict of str to distribution, optional
        Where to start; ``model.initial()`` if None.
    accelerate : bool or {"anderson", "squarem"}, default True
        Extrapolate from the last sweeps, in natural parameters: by Anderson's method (True), by squared extrapolation,
        or not at all (False). What would lower the ELBO is not accepted.
    max_iter : int, default 1000
        Most passes over the data, those of rejected extrapolations included.
    tol : float, default 1e-10
        Stopping rule: the predicted remaining gain of the ELBO is at most tol nats per row.
    callback : callable, optional
        Called as callback(event) with a `cavity.Event` after each pass; a true result stops the fit and keeps what is
        known.
    progress : bool, default False
        Whether to show progress on stderr: a bar where tqdm is installed, else lines.

    Returns
    -------
    MeanFieldPosterior
        The frozen factors with their ELBO.

    Raises
    ------
    TypeError, ValueError
        For a model that is none or whose updates change a factor's family or shape, and for options out of range.
    ArithmeticError
        If the ELBO is not finite.

    Warns
    -----
    ConvergenceWarning
        If the stopping rule was not met; the posterior has ``converged=False``.
    NumericalWarning
        If a plain sweep lowers the ELBO by more than rounding: an update or the ELBO is wrong.

    Notes
    -----
    A sweep that moves the natural parameters by d and the expected statistics by s has changed q by <d, s>/2 nats.
    With c the rate at which errors shrink per sweep (`MeanFieldPosterior.contraction`, the largest eigenvalue of the
    sweep that its history shows), the ELBO is about <d, s>/2/(1 - c) below the optimum. An optimum is local: start
    from several places and compare the ELBOs.

    Examples
    --------
    >>> import cavity
    >>> class Rate(cavity.mean_field.Model):  # of the Poisson counts 2, 0 and 4; one factor is exact
    ...     n_samples = 3
    ...     def initial(self):
    ...         return {"rate": cavity.distributions.Gamma(1.0, 1.0)}
    ...     def update(self, name, q):
    ...         return cavity.distributions.Gamma(1.0 + 6.0, 1.0 + 3.0)
    ...     def expected_log_joint(self, q):
    ...         log_rate, rate = q["rate"].statistics
    ...         return 6.0 * log_rate - 4.0 * rate
    >>> posterior = cavity.mean_field.fit(Rate())
    >>> posterior["rate"].mean, posterior.converged
    (1.75, True)
    """
    state = _check(model, initial)
    job = Job.checked(callback, progress)
    options = AscentOptions(accelerate=accelerate, max_iter=max_iter, tol=tol, job=job)
    with options.job:
        done = engine.ascend(ModelSweeps(model), state, options)
    return MeanFieldPosterior(factors=done.state, **engine.report_outcome(done, model.n_samples, options))


def fit_stochastic(
    model: Model,
    *,
    batch_size: int,
    n_epochs: int = 1,
    delay: float = 1.0,
    forgetting: float = 0.7,
    rng: Seed | None = None,
    initial: Mapping[str, Distribution] | None = None,
    callback: Callable[[Event], object] | None = None,
    progress: bool = False,
) -> MeanFieldPosterior:
    """Fit a mean-field approximation by natural-gradient steps on minibatches [H]_, one epoch being one pass.

    Step t moves the natural parameters by the share (t + delay)^-forgetting towards the best factors for its minibatch.

    Parameters
    ----------
    model : Model
        The model with its data; it has to define `Model.minibatch`.
    batch_size : int
        Rows per minibatch; the last one of an epoch may be smaller.
    n_epochs : int, default 1
        How often every row is seen.
    delay : float, default 1.0
        At least 0; larger values make the first steps smaller.
    forgetting : float in (0.5, 1], default 0.7
        The exponent; with 1 and ``delay=0`` the natural parameters are the average over all minibatches.
    rng : seed or numpy.random.Generator, optional
        Shuffles the rows anew in every epoch; without it rows are visited in their order.
    initial : dict of str to distribution, optional
        Where to start; ``model.initial()`` if None.
    callback : callable, optional
        Called as callback(event) with a `cavity.Event` after each step; a true result stops the fit and keeps what is
        known.
    progress : bool, default False
        Whether to show progress on stderr: a bar where tqdm is installed, else lines.

    Returns
    -------
    MeanFieldPosterior
        The factors after the last step, with the ELBO of all data. There is no stopping rule: `converged` is False,
        `status` says "passes done", `trace` has the step sizes, and `n_iter` counts epochs.

    Raises
    ------
    TypeError, ValueError
        For a model or options out of range.

    References
    ----------
    .. [H] Matthew Hoffman, David Blei, Chong Wang and John Paisley, "Stochastic variational inference", Journal of
       Machine Learning Research 14, 2013.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> class Rate(cavity.mean_field.Model):  # Poisson counts, exact in one epoch with forgetting=1, delay=0
    ...     def __init__(self, counts, scale=1.0):
    ...         self.counts, self.scale, self.n_samples = counts, scale, len(counts)
    ...     def initial(self):
    ...         return {"rate": cavity.distributions.Gamma(1.0, 1.0)}
    ...     def update(self, name, q):
    ...         c, s = self.counts, self.scale
    ...         return cavity.distributions.Gamma(1.0 + s * c.sum(), 1.0 + s * len(c))
    ...     def expected_log_joint(self, q):
    ...         log_rate, rate = q["rate"].statistics
    ...         return self.counts.sum() * log_rate - (len(self.counts) + 1) * rate
    ...     def minibatch(self, rows):
    ...         return Rate(self.counts[rows], self.n_samples / len(rows))
    >>> counts = np.arange(12.0) % 5
    >>> q = cavity.mean_field.fit_stochastic(Rate(counts), batch_size=4, delay=0, forgetting=1)
    >>> round(q["rate"].mean, 6), q.status
    (1.692308, 'passes done')
    """
    state = _check(model, initial)
    steps = {"batch_size": batch_size, "n_epochs": n_epochs, "delay": delay, "forgetting": forgetting}
    options = StochasticOptions(**steps, job=Job.checked(callback, progress))
    generator = None if rng is None else arrays.make_generator(rng)
    batches = (_make_minibatch(model, rows) for rows in _draw_minibatches(model.n_samples, options, generator))
    sweeps = ModelSweeps(model)
    with options.job:
        state, lengths = stochastic.take_steps(sweeps, state, batches, options)
    n_passes = stochastic.count_passes(len(lengths), model.n_samples, options)
    done = stochastic.end_steps(state, state, sweeps.elbo(state), lengths, n_passes)
    return MeanFieldPosterior(factors=done.state, **done.outcome())


def _draw_minibatches(n, options, generator):
    for _ in range(options.n_epochs):
        order = np.arange(n) if generator is None else generator.permutation(n)
        for start in range(0, n, options.batch_size):
            yield order[start : start + options.batch_size]


def _make_minibatch(model, rows):
    batch = model.minibatch(rows)
    if not isinstance(batch, Model):
        raise TypeError(f"minibatch(rows) must return a cavity.mean_field.Model, got {type(batch).__name__}")
    return batch


def _check(model, initial):
    """Return the initial factors of a model that is one."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a cavity.mean_field.Model, got {type(model).__name__}")
    arrays.check_integer(model.n_samples, "model.n_samples", low=1)
    state = model.initial() if initial is None else initial
    if not isinstance(state, dict) or not state:
        raise TypeError(f"the initial factors must be a dict of distributions by name, got {state!r}")
    for name, factor in state.items():
        if not isinstance(name, str):
            raise TypeError(f"the names of factors must be strings, got {name!r}")
        if not isinstance(factor, tuple(families.SAVED_ATTRIBUTES)):
            raise TypeError(f"factor {name!r} must be a distribution of cavity.distributions, got {factor!r}")
    return dict(state)


class ModelSweeps:
    """A model of named factors as the engine sees it."""

    def __init__(self, model):
        self._model = model
        self.n_samples = self.n_rows = model.n_samples

    def elbo(self, q):
        return float(self._model.expected_log_joint(q)) + arrays.add_in_order(factor.entropy() for factor in q.values())

    def sweep(self, q):
        new = dict(q)
        for name in q:
            new[name] = self._update(self._model, name, new)
        return new, self.elbo(q)

    def estimate(self, q, batch):
        return {name: self._update(batch, name, q) for name in q}

    def blend(self, q, estimate, step):
        (old, _), (new, _) = self.coordinates(q), self.coordinates(estimate)
        return self.at((1.0 - step) * old + step * new, q)

    @staticmethod
    def _update(model, name, q):
        factor, before = model.update(name, q), q[name]
        if type(factor) is not type(before) or factor.natural.shape != before.natural.shape:
            raise ValueError(f"update({name!r}, q) must return a factor like {before!r}, got {factor!r}")
        return factor

    @staticmethod
    def coordinates(q):
        return families.join_coordinates(q.values())

    @staticmethod
    def at(natural, q):
        factors = families.step_towards(q.values(), natural)
        return None if factors is None else dict(zip(q, factors, strict=True))


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class MeanFieldPosterior(VariationalPosterior):
    """The factors of a mean-field fit; ``posterior[name]`` is the factor of that name."""

    factors: dict[str, Any] = declare(None, "The factors q_j by their names.")

    kind: ClassVar[str] = "mean_field"
    record: ClassVar[Any] = Record(
        _declare_arrays,
        {"factors": FACTORS_SETTING},
        places={"factors": "factors.names", "factor_": "factors.factor_"},
        forms={"factors": (_split_factors, _join_factors)},
    )

    def __getitem__(self, name: str) -> Any:
        return self.factors[name]

    def __repr__(self) -> str:
        rows = [(name, f"{type(factor).__name__}") for name, factor in self.factors.items()]
        return format_table(f"MeanFieldPosterior: {len(self.factors)} factor(s)", [*rows, *self.outcome_rows()])
