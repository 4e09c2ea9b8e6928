"""
A stream: predict, then learn
=============================

Carbon dioxide at Mauna Loa, year by year. Each year is predicted before it is taken in, which is an honest score of
the model.
"""

import cavity
from cavity import covariances
from cavity.plot import PrequentialDisplay

table, about = cavity.data.table("co2", as_frame=True)
X, y = table[["year"]], table["co2"]
season = covariances.RBF(10.0, 100.0) * covariances.Periodic(1.0, 1.0, period=1.0)
covariance = covariances.RBF(4.0, 3.0) + season
model = cavity.StreamingGP(covariance, cavity.likelihoods.Gaussian(0.15), mean=[315 - 1.3 * 1959, 1.3])
state = model.fit(X[:12], y[:12], learn=False)
PrequentialDisplay.from_posterior(state, X[12:], y[12:], batch=12)

# %%
# The state after all years: its inducing points, below the curve, carry what 468 rows say.

for start in range(12, 468, 12):
    state.update(X[start : start + 12], y[start : start + 12])
state.plot(X, y, target="CO2 [ppm]", title=about["title"])

# %%
print(state)
