"""Sparse Gaussian processes for data that come in batches, or all at once.

References
----------
.. [Bui2017] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
.. [Titsias2009] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.
.. [Snelson2006] E. Snelson and Z. Ghahramani, "Sparse Gaussian processes using pseudo-inputs", NIPS 2006.
.. [BuiYan2017] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point
   approximations using power expectation propagation", JMLR 18, 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cavity.base import arrays
from cavity.base.errors import NumericalWarning, suggest_dropping, warn
from cavity.base.frames import names_of
from cavity.base.public_objects import ArrayLike, Data, FloatOrArray, set_fields
from cavity.covariances.base import Covariance
from cavity.ep.options import EP_SCHEDULES, Options
from cavity.jobs.job import Event, Job
from cavity.likelihoods.parameters import list_open_parameters, list_scales
from cavity.models.process.defaults import resolve_defaults
from cavity.models.process.mean_formula import is_mean_formula, open_mean
from cavity.models.process.model import LatentProcess, observe
from cavity.models.streaming_gp.inducing_basis import has_white
from cavity.models.streaming_gp.rows import is_exact, open_rows
from cavity.models.streaming_gp.state import StreamingGPState, start_state
from cavity.models.streaming_gp.update import take_rows_in
from cavity.sources.dataset import Dataset
from cavity.sources.dense_rows import sample_dense

MATRICES_PER_UPDATE = 8  # M x M that an update needs


@dataclass(frozen=True, slots=True, eq=False)
class StreamingGP(LatentProcess):
    """Sparse Gaussian process whose posterior takes in rows, one or many at a time, in memory that does not grow.

    What the rows say about f is summed up in M inducing variables, values of f at rows Z [Bui2017]_. At fixed Z and
    settings nothing depends on how the rows were divided into batches: the state is that of one fit of all rows, by the
    variational method of [Titsias2009]_ (alpha = 0), FITC [Snelson2006]_ (alpha = 1), or power EP [BuiYan2017]_ in
    between.

    Parameters
    ----------
    covariance : cavity.covariances.Covariance or str, optional
        For example ``cavity.covariances.RBF()``, or names as in `GaussianProcess`, which is like the first rows then;
        the default is "rbf". White is refused: noise belongs to the likelihood.
    likelihood : cavity.likelihoods.Likelihood or str, optional
        Or a name, as in `GaussianProcess`; by default the first y decide. Others than Gaussian are taken in by EP,
        batch by batch.
    mean : float, array_like (1 + D,) or a formula, optional
        Prior mean of f: a number; or a number and a slope for each column. A formula, ``"age + C(site)"``, is that of a
        `GaussianProcess`: the first rows decide on its prior, and must have every category. The default is the median
        of the first y for real numbers if the covariance is left to the data, or a string; else 0.
    inducing : array_like (M, D), optional
        The rows Z, if they are to stay as they are. Without them they are chosen among the rows of the batches.
    n_inducing : int, default 200
        Largest number M of inducing points that are chosen.
    tolerance : float, default 1e-3
        Nats a row: a batch adds inducing points until its rows lose less than that on average, as measured by the mean
        of residual/(2 noise variance); residual is the variance of f that the inducing variables leave. For the
        noise variance stands scale^2 of StudentT and Laplace, and the variance of f of other likelihoods.
    jitter : float, default 1e-8
        Variance of the nugget of an inducing variable, as a share of the variance of f there. It is part of the model,
        and follows the inducing variable through all batches.
    alpha : float in [0, 1], optional
        Power of power EP: 0 is variational, with a bound of the evidence; 1 is FITC, or EP. The default is 0 for the
        likelihood Gaussian, 1 for others, which need more than 0.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain, naming them.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(600, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
    >>> state = cavity.StreamingGP().fit(X[:200], y[:200])
    >>> for start in range(200, 600, 100):
    ...     state = state.update(X[start : start + 100], y[start : start + 100])
    >>> mean, variance = state.predict([[1.5], [4.5]])
    >>> mean.round(1).tolist(), state.n_samples
    ([1.0, -1.0], 600)
    """

    inducing: FloatOrArray = None
    n_inducing: int = 200
    tolerance: float = 1e-3
    jitter: float = 1e-8
    alpha: float | None = None
    inducing_columns: FloatOrArray = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        LatentProcess.__post_init__(self)
        if isinstance(self.mean, str) and not is_mean_formula(self.mean):
            raise ValueError(
                f"mean must be a number, coefficients or a formula, got {self.mean!r}; a mean that is yet to be found "
                "is a part of the covariance: + Constant(), + Linear()"
            )
        if is_mean_formula(self.mean) and self.inducing is not None:
            raise arrays.error_of(
                "inducing", "must be None where the mean is a formula: rows of the batches are chosen"
            )
        likelihood = self.likelihood
        unknown = (
            set() if likelihood is None else {*list_open_parameters(likelihood)}.difference(list_scales(likelihood))
        )
        if unknown:
            kind = type(self.likelihood).__name__
            hint = "give a value, as GaussianProcess or GLM finds on some rows"
            raise ValueError(f"StreamingGP cannot find {min(unknown)} of {kind}: {hint}")
        if isinstance(self.covariance, Covariance) and has_white(self.covariance):
            raise arrays.error_of(
                "covariance",
                "must not have a White part, which no inducing point can represent: give its variance to the "
                "likelihood, Gaussian(noise_variance)",
            )
        numbers = {
            "n_inducing": arrays.check_integer(self.n_inducing, "n_inducing", low=1),
            "tolerance": arrays.check_number(self.tolerance, "tolerance", low=0, closed_low=True),
            "jitter": arrays.check_number(self.jitter, "jitter", low=0, high=1, closed_low=True),
        }
        if self.inducing is not None:
            numbers["inducing_columns"] = names_of(self.inducing)
            numbers["inducing"] = _check_inducing(self.inducing, self.covariance)
            numbers["n_inducing"] = len(numbers["inducing"])
        set_fields(self, **numbers)
        if self.likelihood is None and self.alpha is None:
            return
        exact = is_exact(self.likelihood)
        alpha = (0.0 if exact else 1.0) if self.alpha is None else self.alpha
        alpha = arrays.check_number(alpha, "alpha", low=0, high=1, closed_low=True, closed_high=True)
        if not exact and self.likelihood is not None and alpha < 1e-6:
            raise arrays.error_of(
                "alpha",
                f"must be at least 1e-6 for the likelihood {type(self.likelihood).__name__}, which EP takes in, "
                f"got {alpha!r}",
            )
        set_fields(self, alpha=alpha)

    @suggest_dropping
    def fit(
        self,
        X: Data,
        y: ArrayLike,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        missing: Literal["raise", "drop"] = "raise",
        learn: bool | Literal["covariance"] = True,
        schedule: Literal["auto", "sequential", "parallel"] = "auto",
        damping: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-8,
        n_threads: int | None = None,
        callback: Callable[[Event], object] | None = None,
        progress: bool = False,
    ) -> StreamingGPState:
        """Take in the first rows, or all of them.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, or Source
            Rows. With Gaussian noise those of files are read block by block, and no more than blocks are in memory;
            for other likelihoods `cavity.source` gives them in batches. No rows, an array (0, D), give the prior.
            Dates, in an array of datetime64 or in a table, are days since 1970-01-01 in UTC; those in files have to be
            numbers.
        y : array_like (N,) or str
            Observations in the form of the likelihood: numbers; counts; labels of any two kinds; ordered categories. A
            string, here and below, is the name of a column of X, which is then no feature.
        event : array_like (N,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise_variance : array_like (N,) or str, optional
            Known variance of the noise of each row, in place of that of the Gaussian likelihood.
        sample_weight : array_like (N,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.
        missing : {"raise", "drop"}, default "raise"
            What is done about rows without a value in a column that the fit reads: refuse them, naming the first, or
            leave them out; `dropped` of the posterior counts them.
        learn : bool, "covariance" or the name of a scale, default True
            Whether to learn the free parameters of the covariance and the scale of the likelihood (noise_variance of
            Gaussian, scale of StudentT and Laplace), or one of the two. A scale that is None is learnt in any case.
        schedule : {"auto", "sequential", "parallel"}, default "auto"
            Of EP, here and in updates, as are the next three: renew the sites one after the other, or all at once.
        damping : float in (0, 1], default 1.0
            Largest fraction of each site change that is made.
        max_iter : int, default 200
            Most sweeps; of the steps of the double loop, where sweeps do not converge, three times as many.
        tol : float, default 1e-8
            Stopping rule: a sweep moves no posterior mean by more than tol posterior standard deviations, and no
            variance by more than the relative amount tol (divided by the damping in use).
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.
        callback : callable, optional
            Called as callback(event) with a `cavity.Event` after each sweep, and evaluation of a search; a true result
            stops the fit and keeps what is known.
        progress : bool, default False
            Whether to show progress on stderr: a bar where tqdm is installed, else lines.

        Returns
        -------
        StreamingGPState
            What is known after these rows; it takes in more by its method update.

        Raises
        ------
        ValueError, TypeError
            For bad data or options, before any work; numbers in files that are not finite when they are read.
        MemoryError
            If matrices n_inducing x n_inducing do not fit into the memory of the machine, or those of EP, two N x M.
        NotPositiveDefiniteError
            If given inducing points depend on each other, naming one that is known from those before it.
        OverflowError
            If moments or the bound leave the range of float64.

        Warns
        -----
        ConvergenceWarning
            If a stopping rule was not met; the state is returned all the same, with ``converged=False``.

        Notes
        -----
        Rows cost N M^2 operations a pass, with Gaussian noise in memory for M x M numbers and a few blocks of rows; EP
        keeps two times N x M numbers, and those of a batch only.

        Examples
        --------
        >>> import cavity, numpy as np
        >>> X = np.random.default_rng(0).normal(size=(400, 2))
        >>> y = X[:, 0] * X[:, 1] > 0
        >>> model = cavity.StreamingGP(cavity.covariances.RBF(), cavity.likelihoods.Probit())
        >>> state = model.fit(X[:200], y[:200]).update(X[200:], y[200:])
        >>> state.predict_proba([[1, 1], [1, -1]])[:, 1].round(1).tolist()
        [1.0, 0.0]
        """
        size, state = (
            (self.n_inducing, self.n_inducing),
            f"n_inducing = {self.n_inducing}: the state, {MATRICES_PER_UPDATE} matrices",
        )
        arrays.allocate_matrices(MATRICES_PER_UPDATE, size, f"{state}, each", argument="n_inducing")
        iteration = {"schedule": schedule, "damping": damping, "max_iter": max_iter, "tol": tol}
        job = Job.checked(callback, progress)
        run = Options.checked(schedules=("auto", *EP_SCHEDULES[::-1]), **iteration, n_threads=n_threads, job=job)
        columns = {"y": y, "event": event, "offset": offset, "exposure": exposure}
        columns |= {"noise_variance": noise_variance, "sample_weight": sample_weight}
        X, coding = open_mean(self.mean, X)
        dataset = Dataset.open(X, columns, self.inducing_columns).leave_out(missing)
        rows = None if isinstance(self.covariance, Covariance) and coding is None else sample_dense(dataset)
        observations = observe(self, dataset, needs_rows=rows is not None)
        model = resolve_defaults(self, observations, rows, dataset.column("offset"), constant=None)
        set_fields(model, inducing_columns=self.inducing_columns)
        state = start_state(model, dataset, run, coding)
        return take_rows_in(state, open_rows(dataset, state.n_features), observations, learn, run)


def _check_inducing(inducing, covariance):
    """Return rows for inducing points checked, each of them once."""
    Z = arrays.check_finite_array(inducing, "inducing", ndim=(2,))
    arrays.check_not_empty(Z.shape, "inducing")
    Z = np.ascontiguousarray(Z, dtype=np.float64) + 0.0  # no negative zeros: rows are compared by their bits
    if isinstance(covariance, Covariance):
        covariance.check_columns(Z.shape[1])
    first = np.sort(np.unique(Z, axis=0, return_index=True)[1])
    if len(first) < len(Z):
        missing = np.setdiff1d(np.arange(len(Z)), first)[0]
        warn(
            f"inducing has {len(Z) - len(first)} row(s) that are there already and say nothing more, "
            f"row {missing} for one; they are left out",
            NumericalWarning,
        )
        Z = Z[first]
    return arrays.make_read_only(Z)
