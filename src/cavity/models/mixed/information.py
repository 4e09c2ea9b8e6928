"""The average information about hyperparameters: a curvature of the log evidence that costs some solves.

At given sites the log evidence in free numbers x of the prior has the second derivatives of the restricted likelihood
of a linear mixed model. The mean of the observed and the expected ones, the "average information" of [GTC]_, has no
traces: with P the prior's precision, m the posterior mean of the effects less that of the prior, Cov their posterior
covariance and d_i = (dP/dx_i) m,

    A_ij = (d_i' P^-1 d_j - d_i' Cov d_j)/2,                                                                       (1)

both on the subspace of the constraints. Where a parameter multiplies all of a term's precision, P^-1 d_i is a multiple
of m. For parameters of the likelihood there is minus the second derivative at given cavities.

References
----------
.. [GTC] A. R. Gilmour, R. Thompson and B. R. Cullis, "Average information REML: an efficient algorithm for variance
   parameter estimation in linear mixed models", Biometrics 51, 1995.
"""

import numpy as np

DIFFERENCE_STEP = 1e-4  # of a free number of the prior, in differences of its precision
LONG_DIFFERENCE_STEP = 0.05  # of one of the likelihood, in second differences of sums over all rows
MAX_RATIO_ERROR = 1e-6  # of entries that are a multiple of others, as differences leave them


class PriorDirections:
    """The vectors d_i = (dP/dx_i) m of all free numbers of the prior, and P^-1 d_i.

    Parameters
    ----------
    geometry : Sparse
        With the prior.
    problem : MixedProblem
        With the settings at which the derivatives are.
    vector : FreeTerms
        The free numbers.
    """

    def __init__(self, geometry, problem, vector):
        self.geometry, self.layout, self.settings = geometry, problem.layout, problem.settings
        self.slopes = []  # (term, entries of dP) of each free number
        for term, (block_map, block) in enumerate(zip(vector.maps, self.layout.blocks, strict=True)):
            if block_map is not None:
                x = block_map.pack(self.settings[term])
                for step in DIFFERENCE_STEP * np.eye(block_map.size):
                    up, down = (block.precision(block_map.unpack(x + sign * step))[0] for sign in (1.0, -1.0))
                    self.slopes.append((term, (up - down) / (2.0 * DIFFERENCE_STEP)))

    def find(self, step):
        """Return d_i, (k, n), for m = `step` (n,)."""
        directions = np.zeros((len(self.slopes), self.layout.size))
        for direction, (term, entries) in zip(directions, self.slopes, strict=True):
            part, (rows, columns) = self.layout.part(term), self.layout.blocks[term].entries()
            b, is_below = step[part], rows != columns
            direction[part] = np.bincount(rows, entries * b[columns], len(b))
            direction[part] += np.bincount(columns[is_below], (entries * b[rows])[is_below], len(b))
        return directions

    def multiply(self, directions, step):
        """Return P^-1 d_i, (k, n)."""
        products, others, precisions = np.zeros_like(directions), [], {}
        for i, (term, entries) in enumerate(self.slopes):
            if term not in precisions:
                precisions[term] = self.layout.blocks[term].precision(self.settings[term])[0]
            own, part = precisions[term], self.layout.part(term)
            largest = np.argmax(np.abs(own))
            ratio, tol = entries[largest] / own[largest], MAX_RATIO_ERROR * abs(own[largest])
            if np.allclose(entries, ratio * own, rtol=MAX_RATIO_ERROR, atol=tol):
                products[i, part] = ratio * step[part]
            else:
                others.append(i)
        if others:
            products[others] = self.geometry.multiply_prior_covariance(directions[others])
        return products

    def information(self, belief):
        """Return (1), from a belief with the products of these directions with its covariance."""
        directions = self.find(belief.step)
        matrix = 0.5 * (directions @ (self.multiply(directions, belief.step) - belief.solved).T)
        return 0.5 * (matrix + matrix.T)


def find_likelihood_information(free, likelihood, total):
    """Return minus the second derivative of total(likelihood) in each free number, (n,)."""

    def curve(i):
        ends = (total(free.step(likelihood, i, sign * LONG_DIFFERENCE_STEP)) for sign in (1.0, -1.0))
        return (2.0 * middle - sum(ends)) / LONG_DIFFERENCE_STEP**2

    middle = total(likelihood) if free.size else 0.0
    return np.array([curve(i) for i in range(free.size)])
