"""
Comparing three models
======================

Is diabetes better explained by all seven columns, by three of them, or by a smooth function of those three? The rows
and the target must be the same; evidences and leave-one-out densities are then comparable as they stand.
"""

import matplotlib.pyplot as plt

import cavity

table, about = cavity.data.table("pima", as_frame=True)
table = table.drop(columns="set")
few = table[["glu", "bmi", "ped", "type"]]
scaled = few.assign(**{name: (few[name] - few[name].mean()) / few[name].std() for name in ("glu", "bmi", "ped")})
fits = {
    "seven columns": cavity.GLM("logit", intercept=True, standardize=True).fit(table, "type"),
    "three columns": cavity.GLM("logit", intercept=True, standardize=True).fit(few, "type"),
    "smooth function": cavity.GaussianProcess("rbf", "logit").fit(scaled, "type"),
}
comparison = cavity.compare(fits)
print(comparison)

# %%
# The two scores need not agree. The evidence measures how well the model predicts all rows from the prior, and that of
# the smooth function was maximised over its variance and lengthscale, which flatters it; leave-one-out measures how
# well each row is predicted from all others. Differences below two standard errors of their own decide nothing:

frame = comparison.to_frame()
figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
ax.errorbar(frame["loo_difference"], frame.index, xerr=2 * frame["difference_se"], fmt="o", capsize=4)
ax.axvline(0.0, color="gray", linewidth=0.8)
ax.set(xlabel="leave-one-out log density, beside the best, ± 2 standard errors", ylim=(-0.6, 2.6))
