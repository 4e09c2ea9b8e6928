"""
Counts that vary more than Poisson
==================================

Ticks on the heads of red grouse chicks: the variance is far above the mean. The negative binomial learns by how much,
and the evidence says that it is needed.
"""

import pandas as pd

import cavity
from cavity.plot import PITDisplay

table, about = cavity.data.table("grouseticks", as_frame=True)
columns = pd.DataFrame(
    {
        "height": (table["HEIGHT"] - 460.0) / 100.0,
        "in 96": (table["YEAR"] == "96").astype(float),
        "in 97": (table["YEAR"] == "97").astype(float),
    }
)
fits = {
    name: cavity.GLM(name, intercept=True).fit(columns, table["TICKS"]) for name in ("poisson", "negative-binomial")
}
for name, posterior in fits.items():
    print(f"{name:<18} log evidence {posterior.log_evidence:.0f}")
print(fits["negative-binomial"].summary())

# %%
# Are the predictions of the left-out rows right? The PIT histogram of a calibrated model is flat.

PITDisplay.from_posterior(fits["negative-binomial"], columns, table["TICKS"])
