"""Free numbers of the priors of terms: of a covariance matrix of random effects, of the parameters of other terms.

A covariance matrix is V = C C', C lower triangular. Its free numbers are the logs l of the standard deviations in the
units u of the effects, and z = artanh r of the correlations r of two effects given those before both: with the r_im of
row i, C_ij = u_i exp(l_i) r_ij prod_{m<j} sqrt(1 - r_im^2), where r_ii = 1. Whatever they are V is proper. Where
effects determine each other z alone goes to infinity, and the log evidence does not change with it there.
"""

import numpy as np

from cavity.base.errors import check_within_range
from cavity.base.scales import LOG_SCALE
from cavity.likelihoods.parameters import PARAMETER_RANGE
from cavity.models.evaluations import WIDE_LOG_SD
from cavity.priors.densities import LogNormal
from cavity.priors.deviations import PC

MAX_FISHER_Z = 14.0  # of a correlation, 1 - 2e-6, and of a share, 1 - 8e-7
MAX_EFFECTS_Z = 5.0  # of correlations of random effects, 1 - 1e-4: several at the end leave their covariance digits


class FreeCovariance:
    """The map from free numbers to one covariance matrix V (k, k), the setting of a term of random effects."""

    def __init__(self, names, units):
        self.names, self.units, self.k = names, units, len(units)
        self.below = np.tril_indices(self.k, -1)
        self.size = self.k + len(self.below[0])
        self.have_chosen_ends = [False] * self.k + [True] * (self.size - self.k)

    def default_priors(self, upper):
        """Proper priors of standard deviations, for which `upper` spreads of y are large, by their names."""
        return {name: PC(upper * unit) for name, unit in zip(self.names, self.units, strict=False)}

    def factor(self, x):
        """Correlations r (k, k), 1 on the diagonal, the products of sqrt(1 - r_im^2) before each, and C (k, k)."""
        r, left = np.eye(self.k), np.eye(self.k)
        r[self.below] = np.tanh(x[self.k :])
        left[self.below] = 1.0 / np.cosh(x[self.k :])
        before = np.cumprod(np.column_stack([np.ones(self.k), left[:, :-1]]), axis=1)
        return r, before, (self.units * np.exp(x[: self.k]))[:, None] * r * before

    def start(self, log_sd):
        """The free numbers of effects without correlations, whose sd in their units has a log."""
        return np.append(np.full(self.k, log_sd), np.zeros(self.size - self.k))

    def bounds(self):
        """(low, high) of every free number."""
        highest = np.repeat([0.5 * np.log(PARAMETER_RANGE), MAX_EFFECTS_Z], [self.k, self.size - self.k])
        return np.column_stack([-highest, highest])

    def pack(self, covariance):
        """The free numbers of V."""
        factor = np.linalg.cholesky(covariance / self.units / self.units[:, None])
        left = np.sqrt(np.cumsum(factor[:, ::-1] ** 2, axis=1))[:, ::-1]  # of row i from column j on
        i, j = self.below
        return np.append(np.log(left[:, 0]), np.arcsinh(factor[i, j] / left[i, j + 1]))

    def unpack(self, x):
        """V."""
        factor = self.factor(x)[-1]
        return factor @ factor.T

    def slopes(self, x, by_covariance):
        """Derivatives in the free numbers of what has these in V, a symmetric matrix: G with d = tr(G dV)."""
        r, before, factor = self.factor(x)
        by_factor = 2.0 * by_covariance @ factor  # tr(G (dC C' + C dC')) = 2 tr(C' G dC)
        shares = by_factor * factor
        after = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1] - shares  # of the columns after each
        own = by_factor * (self.units * np.exp(x[: self.k]))[:, None] * before * (1.0 - r**2)
        return np.append(np.sum(shares, axis=1), (own - r * after)[self.below])

    def describe(self, x):
        """Standard deviations and then correlations, and their derivatives in the free numbers."""
        covariance = self.unpack(x)
        sd = np.sqrt(np.diagonal(covariance))
        correlation = covariance / sd / sd[:, None]
        slopes_of = np.empty((self.size, self.size))
        for i in range(self.k):
            slopes_of[i] = self.slopes(x, _unit(self.k, i, i)) / (2.0 * sd[i])
        for row, (i, j) in enumerate(zip(*self.below, strict=True), self.k):
            moved = self.slopes(x, _unit(self.k, i, j)) / (sd[i] * sd[j])
            slopes_of[row] = moved - correlation[i, j] * (slopes_of[i] / sd[i] + slopes_of[j] / sd[j])
        return [*sd.tolist(), *correlation[self.below].tolist()], slopes_of

    def correlated_effects(self, i):
        """The numbers of the effects that a free number correlates, () for that of a standard deviation."""
        return tuple(int(side[i - self.k]) for side in self.below) if i >= self.k else ()

    def log_prior(self, x):
        """log |V|/2, which keeps away from zero, and its slopes."""
        z = x[self.k :]
        value = np.sum(x[: self.k] + np.log(self.units)) - np.sum(np.log(np.cosh(z)))
        return float(value), np.append(np.ones(self.k), -np.tanh(z))


class FreeTermParameters:
    """The map from free numbers to the values of the open parameters of a structured term."""

    def __init__(self, name, parameters, values, spread):
        """`values` has those of the parameters, None where they are open; `spread` is that of y in units of f."""
        self.values, self.parameters = list(values), parameters
        self.open = [i for i, value in enumerate(self.values) if value is None]
        self.names = name_parameters(name, [parameters[i].name for i in self.open])
        self.spread, self.size = spread, len(self.open)
        self.have_chosen_ends = [parameters[i].search is not None for i in self.open]

    def _unit(self, i):
        """What the free number of a standard deviation or a length is about, its log."""
        parameter = self.parameters[i]
        size = self.spread * parameter.unit if parameter.is_sd else parameter.unit
        return np.log(size) if parameter.scale == "log" else 0.0

    def default_priors(self, upper):
        """Proper priors of positive parameters, standard deviations of `upper` spreads of y being large, by names."""
        return {
            name: PC(upper * np.exp(self._unit(i)))
            if self.parameters[i].is_sd
            else LogNormal(float(np.exp(self._unit(i))), WIDE_LOG_SD)
            for name, i in zip(self.names, self.open, strict=True)
            if self.parameters[i].scale == LOG_SCALE
        }

    def start(self, log_sd):
        """The free numbers of standard deviations, whose logs in units of the spread are given; of 0 for others."""
        return np.array([self._unit(i) + (log_sd if self.parameters[i].is_sd else 0.0) for i in self.open])

    def bounds(self):
        """(low, high) of every free number."""
        return np.array([self._bounds(i) for i in self.open]).reshape(-1, 2)

    def _bounds(self, i):
        """(low, high) of the free number of a parameter."""
        parameter = self.parameters[i]
        if parameter.search is not None:
            return [parameter.free(value) for value in parameter.search]
        far = MAX_FISHER_Z if parameter.scale in ("fisher z", "logit") else 0.5 * np.log(PARAMETER_RANGE)
        return [self._unit(i) - far, self._unit(i) + far]

    def pack(self, values):
        """The free numbers of the values of all parameters."""
        return np.array([self.parameters[i].free(values[i]) for i in self.open])

    def unpack(self, x):
        """The values of all parameters."""
        values = list(self.values)
        for i, number in zip(self.open, x, strict=True):
            values[i] = self.parameters[i].value(number)
        return tuple(values)

    def slopes(self, x, by_free):
        """Derivatives in the open free numbers, from those in all."""
        return by_free[self.open]

    def describe(self, x):
        """Values of the open parameters, and their derivatives in the free numbers."""
        pairs = [(self.parameters[i], number) for i, number in zip(self.open, x, strict=True)]
        slopes = np.diag([parameter.slope(number) for parameter, number in pairs]).reshape(self.size, self.size)
        return [parameter.value(number) for parameter, number in pairs], slopes

    def correlated_effects(self, i):
        """The numbers of the effects that a free number correlates: none."""
        return ()

    def log_prior(self, x):
        """The log of the standard deviations, which keeps them away from zero, and its slopes."""
        slopes = np.array([1.0 if self.parameters[i].is_sd else 0.0 for i in self.open])
        return float(slopes @ x), slopes


def _unit(k, i, j):
    """The matrix whose product with dV has the trace dV_ij."""
    out = np.zeros((k, k))
    out[i, j] += 0.5
    out[j, i] += 0.5
    return out


def find_units(term, spread):
    """Units of the effects of a term: what moves f by a spread of y in a typical row."""
    size = np.sqrt(np.mean((term.Z / np.max(np.abs(term.Z), axis=0)) ** 2, axis=0)) * np.max(np.abs(term.Z), axis=0)
    with np.errstate(over="ignore"):
        units = check_within_range(spread / size, "effects in the scale of y and X")
        check_within_range(np.where(units**2 > 0.0, units**2, np.inf), "variances of effects in the scale of y and X")
        return units


def component_names(term):
    """Names of the standard deviations and correlations of the effects of a term."""
    group, columns = term.group, term.columns
    below = zip(*np.tril_indices(len(columns), -1), strict=True)
    return [f"sd({column} | {group})" for column in columns] + [
        f"corr({columns[j]}, {columns[i]} | {group})" for i, j in below
    ]


def name_parameters(term, names):
    """Return the names of parameters of a structured term: "sd(s(x))", and "sd(rw1(t), start)" of its "sd(start)"."""
    parts = [name.rstrip(")").partition("(") for name in names]
    return [f"{first}({term}, {rest})" if rest else f"{first}({term})" for first, _, rest in parts]
