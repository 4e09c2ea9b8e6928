"""
Robust regression
=================

Student-t noise, whose scale is learnt, discounts rows that do not belong. Here every tenth target is wrong.
"""

import matplotlib.pyplot as plt
import numpy as np

import cavity

rng = np.random.default_rng(1)
x = np.sort(rng.uniform(-3.0, 3.0, 80))
y = 1.0 + 2.0 * x + rng.normal(0.0, 0.5, 80)
y[::10] += rng.uniform(5.0, 15.0, 8)
X = x[:, None]

robust = cavity.GLM("student-t", intercept=True).fit(X, y)
gaussian = cavity.GLM("gaussian", intercept=True).fit(X, y)
print(cavity.compare({"student-t": robust, "gaussian": gaussian}))

# %%
# The lines with 95 % intervals of the function:

figure, axes = plt.subplots(1, 2, sharey=True, figsize=(9, 4), layout="constrained")
for ax, posterior, name in zip(axes, (gaussian, robust), ("Gaussian noise", "Student-t noise"), strict=True):
    posterior.plot(X, y, column=0, ax=ax, title=name, names=["x"])
