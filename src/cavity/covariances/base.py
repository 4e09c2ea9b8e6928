"""What all covariances share: named positive parameters, Gram matrices and their gradients."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.covariances import slots
from cavity.covariances.program import check_rows, get_program
from cavity.covariances.user_defined import UserDefined
from cavity.runs.executors import Threads, resolve_n_threads

COVARIANCE_KINDS = {}  # the covariances of this library by their class names, filled when the classes are defined


def wrap_number(value):
    """Return a number as a fixed Constant, and anything else as it is."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return value
    return COVARIANCE_KINDS["Constant"](value, fixed=("variance",))


def _compose(kind, left, right):
    """Return a Sum or Product of covariances, of which a factor may be a number; NotImplemented for anything else."""
    if kind == "Product":
        left, right = wrap_number(left), wrap_number(right)
    are_covariances = isinstance(left, Covariance) and isinstance(right, Covariance)
    return COVARIANCE_KINDS[kind]((left, right)) if are_covariances else NotImplemented


def compute_gram(covariance, X, out=None, n_threads=None):
    """Return the covariance matrix of rows with themselves, see `BuiltIn.gram`, also for user-defined ones."""
    X = check_rows(X, "X")
    shape = (len(X), len(X))
    program, threads = get_program(covariance, X.shape[1]), Threads(resolve_n_threads(n_threads))
    if out is None:
        out = arrays.allocate_matrix(shape, "the covariance matrix")
    else:
        out = arrays.check_output_array(out, "out", shape)
    with threads:
        program.gram(X, out, threads)
    return out


class Covariance(UserDefined):
    """Base of all covariances k(x, z): positive semi-definite functions of two rows.

    Covariances are frozen. ``a + b`` and ``a * b`` are covariances, and so is ``2.0 * a``, whose number is a fixed
    `Constant`. Two are equal if they are built of equal parts in the same order.

    Notes
    -----
    A covariance of your own is a frozen dataclass that derives from this class and has ``gram(self, X, Z)``: the
    covariances (n, m) of rows X (n, D) with rows Z (m, D), which are blocks of the rows of a model. Fields that are
    numbers, or arrays of them (with ``eq=False``), are positive parameters and are learnt; fields annotated as int, and
    strings, tuples and all else, are settings. Attributes or fields `fixed`, `bounds` and `priors` mean what they mean
    in `RBF`. Two methods are optional: ``diagonal(self, X)``, the variances (n,), and ``gradients(self, X, Z)``, a dict
    of the derivatives of the matrix in the log of every parameter, (n, m), or (K, n, m) for an array of K; without it
    derivatives are differences. What holds such a covariance is saved by pickle.

    Examples
    --------
    >>> from cavity.covariances import RBF, White
    >>> covariance = 2.0 * RBF(lengthscale=[1.0, 0.5]) + White(0.1)
    >>> covariance.parameter_names
    ('rbf.variance', 'rbf.lengthscale[0]', 'rbf.lengthscale[1]', 'white.variance')
    >>> covariance.gram([[0.0, 0.0], [0.0, 0.5]]).round(3).tolist()
    [[2.1, 1.213], [1.213, 2.1]]

    One of your own, of paths that begin at 0:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from cavity.covariances import Covariance
    >>> @dataclass(frozen=True)
    ... class Brownian(Covariance):
    ...     variance: float = 1.0
    ...
    ...     def gram(self, X, Z):
    ...         return self.variance * np.minimum(X, Z.T)
    >>> (Brownian(2.0) + White(0.1)).gram([[1.0], [3.0]]).tolist()
    [[2.1, 2.0], [2.0, 6.1]]
    """

    __slots__ = ()
    __array_ufunc__ = None  # numbers of numpy leave * to this class

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        is_base = getattr(cls, "_op", None) is None and getattr(cls, "_step", None) is None
        if cls.__module__.startswith(__package__) and not is_base:
            COVARIANCE_KINDS[cls.__name__] = cls

    def __add__(self, other: Covariance) -> Covariance:
        return _compose("Sum", self, other)

    def __mul__(self, other: Covariance | float) -> Covariance:
        return _compose("Product", self, other)

    def __rmul__(self, other: Covariance | float) -> Covariance:
        return _compose("Product", other, self)

    def cross(self, X: ArrayLike, Z: ArrayLike, *, n_threads: int | None = None) -> FloatArray:
        """Matrix of the covariances of rows with other rows; `White` is 0, even for equal ones.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        Z : array_like, shape (M, D)
            Other rows.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        ndarray, shape (N, M)
            The covariances.

        Raises
        ------
        ValueError, TypeError, OverflowError, MemoryError
            As for `gram`.
        """
        X = check_rows(X, "X")
        Z = check_rows(Z, "Z", like=X)
        program, threads = get_program(self, X.shape[1]), Threads(resolve_n_threads(n_threads))
        out = arrays.allocate_matrix((len(X), len(Z)), "the matrix of covariances")
        with threads:
            program.cross(X, Z, out, threads)
        return out

    def diagonal(self, X: ArrayLike) -> FloatArray:
        """Variance of every row: the diagonal of `gram`.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N,)
            k(x, x), `White` included.
        """
        X = check_rows(X, "X")
        return get_program(self, X.shape[1]).diagonal(X)

    def gradient(
        self, X: ArrayLike, weights: ArrayLike, Z: ArrayLike | None = None, *, n_threads: int | None = None
    ) -> FloatArray:
        """Gradient of sum_ij weights_ij k(x_i, z_j) in the logs of the free parameters.

        No matrix is stored for any parameter.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        weights : array_like, shape (N, M)
            Weights; symmetric (N, N) without Z.
        Z : array_like, shape (M, D), optional
            Other rows, as for `cross`; without them the derivatives are those of `gram`.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        ndarray, shape (n_free,)
            In the order of `parameter_names`.

        Raises
        ------
        ValueError, TypeError, OverflowError
            As for `gram`, and for weights of another shape.
        """
        X, Z, weights, threads = self._contraction(X, weights, Z, n_threads)
        with threads:
            return slots.compute_gradient(self, X, weights, Z, threads)

    def diagonal_gradient(self, X: ArrayLike, weights: ArrayLike) -> FloatArray:
        """Gradient of sum_i weights_i k(x_i, x_i) in the logs of the free parameters.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        weights : array_like, shape (N,)
            Weights.

        Returns
        -------
        ndarray, shape (n_free,)
            In the order of `parameter_names`.
        """
        X = check_rows(X, "X")
        weights = arrays.check_shaped(weights, "weights", (len(X),))
        return slots.gather_free_gradient(self, get_program(self, X.shape[1]).diagonal_contract(X, weights), X.shape[1])

    def input_gradient(
        self, X: ArrayLike, weights: ArrayLike, Z: ArrayLike | None = None, *, n_threads: int | None = None
    ) -> FloatArray:
        """Gradient of sum_ij weights_ij k(x_i, z_j) in the rows X.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        weights : array_like, shape (N, M)
            Weights; symmetric (N, N) without Z.
        Z : array_like, shape (M, D), optional
            Other rows, which stay where they are; without them both arguments are the rows X, and both move.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        ndarray, shape (N, D)
            The derivatives; `Matern12`, which has a kink where two rows are equal, adds 0 there.

        Raises
        ------
        ValueError, TypeError, OverflowError
            As for `gradient`.
        """
        X, Z, weights, threads = self._contraction(X, weights, Z, n_threads)
        with threads:
            program = get_program(self, X.shape[1])
            moved = program.contract_inputs(X, weights, Z, threads)
            return moved if Z is not None else 2.0 * moved + program.white_inputs(X, np.diag(weights))

    @property
    def _has_own_diagonal(self):
        return type(self).diagonal is not Covariance.diagonal

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter by its name, the fixed ones too: floats, or (D,) arrays."""
        return {
            f"{label}.{name}": getattr(leaf, name) for label, leaf in slots.label_leaves(self) for name in leaf._slots
        }

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the free parameters, one for every number: the order of all vectors of parameters."""
        return slots.get_layout(self).names

    @property
    def log_parameters(self) -> FloatArray:
        """The logs of the free parameters, (n_free,)."""
        return np.log(slots.get_values(self))

    @property
    def log_bounds(self) -> FloatArray:
        """The logs of the bounds of the free parameters, (n_free, 2)."""
        return slots.get_layout(self).log_bounds.copy()

    def with_log_parameters(self, vector: ArrayLike) -> Self:
        """Return the covariance with other values of the free parameters.

        Parameters
        ----------
        vector : array_like, shape (n_free,)
            Logs of the free parameters, in the order of `parameter_names`. One that is that of the old value, or of a
            bound, gives this value to the last bit.

        Returns
        -------
        Covariance
            Of the same structure.

        Raises
        ------
        ValueError
            For a vector of another length, or outside of `log_bounds`.
        """
        layout = slots.get_layout(self)
        (low, high), logs = layout.bounds.T, layout.log_bounds.T
        vector = arrays.check_shaped(vector, "vector", (len(layout.names),))
        outside = (vector < logs[0]) | (vector > logs[1])
        if outside.any():
            i = int(np.argmax(outside))
            raise ValueError(
                f"vector must lie in log_bounds, got {float(vector[i])!r} for {layout.names[i]}, whose log is in "
                f"[{logs[0, i]:g}, {logs[1, i]:g}]"
            )
        # exp(log(bound)) may miss it by a rounding, to either side
        values, old = np.minimum(np.maximum(np.exp(vector), low), high), slots.get_values(self)
        for exact, log in ((low, logs[0]), (high, logs[1]), (old, np.log(old))):
            values[vector == log] = exact[vector == log]
        return slots.replace_values(self, values)

    def log_prior(self) -> tuple[float, FloatArray]:
        """Log prior density of the free parameters, and its gradient in their logs.

        The density is that of the parameters themselves, not of their logs; those without a prior, and the fixed ones,
        add nothing.

        Returns
        -------
        value : float
            Sum of the log densities of all priors; one prior covers every entry of an array.
        gradient : ndarray, shape (n_free,)
            In the order of `parameter_names`.
        """
        layout = slots.get_layout(self)
        if not layout.has_priors:
            return 0.0, np.zeros(len(layout.names))
        parts = [slots.evaluate_log_prior(leaf) for leaf in slots.list_leaves(self)]
        return float(arrays.add_in_order(value for value, _ in parts)), np.concatenate([slope for _, slope in parts])

    def fix(self, *names: Any) -> Self:
        """Return the covariance with some parameters fixed: they keep their values when parameters are learnt.

        Parameters
        ----------
        *names : str
            Names in `parameters` ("rbf.variance"), leaves ("rbf") for all they have, or none for all parameters.

        Returns
        -------
        Covariance
            Of the same values.
        """
        return self._refixed(names, lambda leaf, chosen: {*leaf.fixed, *chosen})

    def free(self, *names: Any) -> Self:
        """Return the covariance with some parameters no longer fixed.

        Parameters
        ----------
        *names : str
            As for `fix`.

        Returns
        -------
        Covariance
            Of the same values.

        Raises
        ------
        ValueError
            If a value is outside of its bounds.
        """
        return self._refixed(names, lambda leaf, chosen: {*leaf.fixed} - {*chosen})

    def check_columns(self, n_features: int) -> None:
        """Raise ValueError unless the covariance takes rows of that width.

        Parameters
        ----------
        n_features : int
            The number of columns D of X.
        """
        n_features = arrays.check_integer(n_features, "n_features", low=1)
        for label, leaf in slots.label_leaves(self):
            leaf._check_columns(label, n_features)

    def to_settings(self) -> dict[str, Any]:
        """Return the covariance as a JSON-able dictionary, for `from_settings`.

        Returns
        -------
        dict
            Kind, parameters, and what differs from the defaults.

        Raises
        ------
        TypeError
            If it, or one of its priors, is of your own, of which no more than the name would be known.
        """
        raise TypeError(
            f"{type(self).__name__} is a covariance of your own, of which a file would hold no more than the name: "
            "save what holds it with pickle, pickle.dump(posterior, file), and keep the module that has its class"
        )

    def _checked_program(self, n_features):
        """Return the program for rows of a width, which is checked."""
        programs = slots.get_layout(self).programs
        if n_features in programs:
            return programs[n_features].of(slots.list_leaves(self))
        self.check_columns(n_features)
        programs[n_features] = self._program(n_features)
        return programs[n_features]

    def _contraction(self, X, weights, Z, n_threads):
        """Return the checked arguments of a contraction."""
        X = check_rows(X, "X")
        self.check_columns(X.shape[1])
        if Z is None:
            weights = arrays.check_symmetric(weights, "weights", len(X), copy=False)
        else:
            Z = check_rows(Z, "Z", like=X)
            weights = arrays.check_shaped(weights, "weights", (len(X), len(Z)))
        return X, Z, weights, Threads(resolve_n_threads(n_threads))

    def _refixed(self, names, chosen_of):
        pairs = slots.label_leaves(self)
        names_of_parameters = [f"{label}.{name}" for label, leaf in pairs for name in leaf._slots]
        for name in names:
            if name not in names_of_parameters and name not in dict(pairs):
                raise ValueError(f"there is no parameter {name!r}; there are {', '.join(names_of_parameters)}")
        leaves = []
        for label, leaf in pairs:
            chosen = [n for n in leaf._slots if not names or label in names or f"{label}.{n}" in names]
            fixed = chosen_of(leaf, chosen)
            leaves.append(leaf._with(fixed=tuple(name for name in leaf._slots if name in fixed)))
        return slots.rebuild(self, iter(leaves))


class BuiltIn(Covariance):
    """Base of the covariances of this library, leaves, sums and products."""

    __slots__ = ("_layout",)

    def gram(self, X: ArrayLike, *, out: FloatArray | None = None, n_threads: int | None = None) -> FloatArray:
        """Covariance matrix of rows with themselves.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        out : ndarray, shape (N, N), optional
            Where to write it: float64 in C order.
        n_threads : int, optional
            Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
            use and the work is worth, at most CAVITY_NUM_THREADS.

        Returns
        -------
        ndarray, shape (N, N)
            Symmetric to the last bit.

        Raises
        ------
        ValueError, TypeError
            For rows that are not finite or not of the width that the covariance takes, or another `out`.
        OverflowError
            If a column divided by its lengthscale, or a covariance, leaves the range of float64.
        MemoryError
            If the matrix does not fit, with the bytes it needs.
        """
        return compute_gram(self, X, out, n_threads)
