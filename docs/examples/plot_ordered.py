"""
Ordered outcomes
================

Grades that have an order and no distances: the ordered probit learns where one ends and the next begins.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import cavity

rng = np.random.default_rng(0)
table = pd.DataFrame({"waited": rng.uniform(0.0, 60.0, 300), "returning": rng.integers(0, 2, 300).astype(float)})
feeling = 1.0 - 0.05 * table["waited"] + 0.6 * table["returning"] + rng.normal(size=300)
table["grade"] = pd.cut(feeling, [-np.inf, -1.0, 0.0, 1.0, np.inf], labels=["bad", "fair", "good", "great"])

posterior = cavity.GLM("ordered-probit", standardize=True).fit(table, "grade")
print(posterior.summary())

# %%
# Probabilities of the four grades by waiting time, for a first visit:

visits = pd.DataFrame({"waited": np.linspace(0.0, 60.0, 121), "returning": 0.0})
shares = posterior.predict_proba(visits, as_frame=True)
figure, ax = plt.subplots(layout="constrained")
ax.stackplot(visits["waited"], shares.T, labels=shares.columns, colors=plt.get_cmap("cividis")(np.linspace(0, 1, 4)))
ax.set(xlabel="minutes waited", ylabel="probability", xlim=(0, 60), ylim=(0, 1))
figure.legend(loc="outside right upper", reverse=True)
