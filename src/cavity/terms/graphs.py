"""Effects of regions, like those of their neighbours: Gaussian Markov random fields on graphs.

References
----------
.. [FVR] A. Freni-Sterrantino, M. Ventrucci and H. Rue, "A note on intrinsic conditional autoregressive models for
   disconnected graphs", Spatial and Spatio-temporal Epidemiology 26, 2018.
.. [LLB] B. G. Leroux, X. Lei and N. Breslow, "Estimation of disease rates in small areas: a new mixed model for spatial
   dependence", in Statistical Models in Epidemiology, 2000.
.. [RSSR] A. Riebler, S. H. Sorbye, D. Simpson and H. Rue, "An intuitive Bayesian spatial model for disease mapping that
   accounts for scaling", Statistical Methods in Medical Research 25, 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base.arrays import check_choice
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import FloatArray, set_fields
from cavity.terms import intrinsic
from cavity.terms.adjacency import find_components, read_graph
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import read_codes
from cavity.terms.contract import BuiltTerm, Parameter, PriorValue, ScaledStructures, TermPrior, list_variables
from cavity.terms.levels import Levels

FIELD_PRIORS = ("icar", "bym2", "leroux", "car")


@dataclass(frozen=True, slots=True, eq=False)
class MarkovField(StructuredTerm):
    """Effects of regions, each like those of its neighbours: ``bym2(region, W)`` and others in formulas.

    With weights W of neighbours, 1 by default, D the diagonal of their sums and S = D - W, the effects u have the prior

    - "icar": u = sd z, z with the precision c S. In each connected component the effects sum to zero, and c is such
      that the geometric mean of their variances is sd^2, whatever the graph [FVR]_.
    - "bym2": u = sd (phi^(1/2) z + (1 - phi)^(1/2) e), z as of "icar" and e independent N(0, 1): phi is the share of
      the variance that is like that of neighbours [RSSR]_. For each region there are two effects, the parts of u.
    - "leroux": the precision (lam S + (1 - lam) I)/sd^2, 0 < lam < 1 [LLB]_.
    - "car": the precision (D - alpha W)/sd^2, -1 < alpha < 1.

    Of "leroux" and "car" sd is no standard deviation of an effect, but of one given its neighbours: divided by the root
    of 1 - lam + lam d, or of d, d the sum of the region's weights. A region without neighbours has u = N(0, sd^2).

    Parameters
    ----------
    group : str or int
        Column of the levels that have effects of their own, or the number of one of X.
    graph : array_like (E, 2), dict, matrix (n, n), or other object
        Which regions are neighbours: pairs of labels, in any order; a dict of the neighbours of each label, or an
        object that has one as `neighbors`, as weights of libpysal do (their numbers are not read, as they may be
        divided by their sums); a matrix of weights, sparse or not, with `regions`; or a GeoDataFrame, whose polygons
        are neighbours where they touch, and whose index has the labels, if libpysal is installed.
    prior : {"icar", "bym2", "leroux", "car"}, default "bym2"
        The prior of the effects.
    regions : sequence, optional
        Labels of all regions: of a matrix those of its rows; others than those of pairs are without neighbours.
    name_of_graph : str, default "W"
        What the graph is called in the name of the term.

    Raises
    ------
    ValueError, TypeError
        For a graph that is not symmetric, naming the pair; weights that are not positive, neighbours of themselves;
        when a model is fitted, for regions that the graph has not.

    Notes
    -----
    Components that are not connected share the intercept of the model: where their levels may differ at will, a group
    effect of the component stands beside the term. Regions without rows have effects all the same, and so have
    components without any: under their constraint the prior is proper.

    As alpha goes to 1 "car" does not become "icar": the mean of its effects gets a variance like 1/(1 - alpha), and is
    a second intercept.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    >>> region = np.repeat(list("abcd"), 10)
    >>> y = np.random.default_rng(0).poisson(np.repeat([1.0, 2.0, 5.0, 3.0], 10))
    >>> model = cavity.MixedGLM([cavity.terms.MarkovField("region", pairs, "icar")], "poisson")
    >>> posterior = model.fit(np.ones((40, 1)), y, groups={"region": region})
    >>> posterior.effects("icar(region, W)").columns["mean"].round(1).tolist()
    [-0.7, -0.1, 0.7, 0.1]
    """

    group: str | int
    graph: Any
    prior: str = "bym2"
    regions: Sequence[Any] | None = None
    name_of_graph: str = "W"

    def __post_init__(self) -> None:
        check_column(self.group, "group")
        check_choice(self.prior, "prior", FIELD_PRIORS)
        regions, W = read_graph(self.graph, self.regions)
        set_fields(self, graph=W, regions=regions)

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        return f"{self.prior}({self.group}, {self.name_of_graph})"

    variables = property(list_variables)

    @property
    def components(self) -> dict[Any, int]:
        """The number of the connected component of each region."""
        return {self.regions[i]: c for c, members in enumerate(find_components(self.graph)) for i in members}

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with its regions, which have to be all that the column has."""
        levels = Levels((self.group,), (self.regions,), np.arange(len(self.regions))[:, None])
        read_codes(levels, table, what="regions of the graph")
        return BuiltMarkovField(self.name, self.group, self.prior, levels, self.graph)


@dataclass(frozen=True, eq=False)
class SharedVariance(TermPrior):
    """P = blockdiag(I/(sd^2 (1 - phi)), S/(sd^2 phi)): two parts of an effect, which share its variance.

    `ranks` are those of the parts, `log_determinant` (2) of the contract where both factors are 1.
    """

    ranks: FloatArray
    log_determinant: float

    def evaluate(self, free):
        """Return the prior at the log of sd, and log(phi/(1 - phi))."""
        phi, rest = self.parameters[1].value(free[1]), self.parameters[1].value(-free[1])
        c = np.exp(-2.0 * free[0]) / np.array([phi, rest])
        by_phi = np.array([-rest, phi])  # of log c
        value = self.log_determinant - self.ranks @ (2.0 * free[0] + np.log([phi, rest]))
        slopes = np.stack([-2.0 * c, by_phi * c], axis=1)
        return PriorValue(c, slopes, float(value), np.array([-2.0 * np.sum(self.ranks), self.ranks @ by_phi]))


@dataclass(frozen=True, eq=False)
class WeightedStructures(TermPrior):
    """P = (w_1 S_1 + w_2 S_2)/sd^2 with w = constants + rates x, x the second parameter: log|P| by a factor of P."""

    constants: FloatArray
    rates: FloatArray

    @cached_property
    def factor(self):
        """The factor of the pattern."""
        return intrinsic.PatternFactor(self.rows, self.columns)

    def evaluate(self, free):
        """Return the prior at the log of sd, and the free number of x."""
        share = self.parameters[1]
        weights, by_share = self.constants + self.rates * share.value(free[1]), self.rates * share.slope(free[1])
        log_determinant, inverse = self.factor.invert(weights @ self.structures)
        n, precision = self.factor.n, np.exp(-2.0 * free[0])
        times = np.where(self.rows == self.columns, 1.0, 2.0)
        slope = by_share @ (self.structures @ (times * inverse))  # tr(P^-1 dP)
        coefficients = precision * weights
        slopes = np.stack([-2.0 * coefficients, precision * by_share], axis=1)
        return PriorValue(coefficients, slopes, log_determinant - 2.0 * n * free[0], np.array([-2.0 * n, slope]))


@dataclass(frozen=True, eq=False)
class BuiltMarkovField(BuiltTerm):
    """A `MarkovField` with its regions in order."""

    name: str
    group: str | int
    form: str
    levels: Levels
    W: Any

    variables = property(list_variables)

    @property
    def size(self):
        """The number of effects."""
        return len(self.levels) * (2 if self.form == "bym2" else 1)

    def effect_names(self):
        """Return the names of the regions; of "bym2" those of the two parts of their effects."""
        names = self.levels.names
        return names if self.form != "bym2" else [f"{name} {part}" for part in ("own", "shared") for name in names]

    @cached_property
    def prior(self):
        """That of the effects."""
        if self.form in ("leroux", "car"):
            return self._proper_prior()
        S, A, rank, constant = self._scale_components()
        n, sd = len(self.levels), Parameter("sd")
        if self.form == "icar":
            rows, columns, entries = intrinsic.lower_triangle(S)
            return ScaledStructures((sd,), rows, columns, entries[None], A, (0,), (1.0,), (rank,), constant)
        S = sparse.block_diag([sparse.eye_array(n), S], format="csc")  # own parts fill nothing where they come first
        rows, columns, entries = intrinsic.lower_triangle(S)
        structures = np.stack([np.where(rows < n, 0.0, entries), np.where(rows < n, entries, 0.0)])
        A = None if A is None else np.hstack([np.zeros_like(A), A])
        parameters = sd, Parameter("phi", "logit")
        return SharedVariance(parameters, rows, columns, structures, A, np.array([rank, n], dtype=float), constant)

    def _scale_components(self):
        """The scaled structure of "icar", its constraints (r, n) or None, its rank, and (2) of the contract for it."""
        S, degree, n = self._structure()
        scale, constraints, constant = np.ones(n), [], 0.0
        for members in find_components(self.W):
            m = len(members)
            if m > 1:
                inner, variances = intrinsic.analyse(S[members][:, members], np.ones((m, 1)))
                scale[members] = intrinsic.geometric_mean(variances)
                constant += inner + 2.0 * np.log(m) + (m - 1.0) * np.log(scale[members[0]])  # A = N'
                constraints.append(np.isin(np.arange(n), members).astype(float))
        S = sparse.diags_array(scale) @ S + sparse.diags_array((degree == 0.0).astype(float))
        return S, np.stack(constraints) if constraints else None, n - len(constraints), constant

    def _structure(self):
        """S = D - W, the diagonal of D, and the number of regions."""
        degree = self.W.sum(axis=1)
        return sparse.csc_array(sparse.diags_array(degree) - self.W), degree, len(degree)

    def _proper_prior(self):
        """That of "leroux" or "car": with 1 on the diagonal for regions without neighbours."""
        S, degree, n = self._structure()
        alone = (degree == 0.0).astype(float)
        if self.form == "leroux":
            matrices = S + sparse.diags_array(alone), sparse.eye_array(n)
            share, constants, rates = Parameter("lam", "logit"), [0.0, 1.0], [1.0, -1.0]
        else:
            matrices = sparse.diags_array(degree + alone), -self.W
            share, constants, rates = Parameter("alpha", "fisher z"), [1.0, 0.0], [0.0, 1.0]
        rows, columns, _ = intrinsic.lower_triangle(S)
        structures = np.stack([sparse.csr_array(matrix)[rows, columns] for matrix in matrices])
        constants, rates = np.array(constants), np.array(rates)
        diagonal = (constants + rates * share.value(0.0)) @ structures[:, rows == columns]
        parameters = Parameter("sd", unit=intrinsic.geometric_mean(np.sqrt(diagonal))), share
        return WeightedStructures(parameters, rows, columns, structures, None, constants, rates)

    def grid(self, n):
        """Return the table of all regions."""
        return {self.group: np.array(self.levels.labels[0], dtype=object)}

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns, the effect of a region each, or its two parts."""
        codes = read_codes(self.levels, table, levels, "regions of the graph")
        codes, n = codes[:, None], len(self.levels)
        columns = codes + n * np.arange(self.size // n)
        keep = np.broadcast_to(codes >= 0, columns.shape)
        ends = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        return sparse.csr_array((np.ones(ends[-1]), columns[keep], ends), (len(codes), self.size))

    def extra_variance(self, table, free, levels="known"):
        """Return the variance of new regions, which have no neighbours."""
        new = read_codes(self.levels, table, levels, "regions of the graph") < 0
        return np.where(new, np.exp(2.0 * free[0]), 0.0) if new.any() and levels == "new" else None
