"""
A likelihood of your own
========================

Nothing but log p(y | f), in plain NumPy; the moments that EP needs are found by quadrature.
"""

import numpy as np

import cavity


class Cauchy(cavity.likelihoods.Likelihood):
    def log_p(self, y, f):
        return -np.log(np.pi * (1 + (y - f) ** 2))


rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))
y = X @ [2.0, -1.0, 0.5, 0.0] + rng.standard_cauchy(300)
posterior = cavity.GLM(Cauchy(), prior_variance=10.0, intercept=True).fit(X, y)
posterior.plot()

# %%
print(posterior.summary())
