"""
Which columns matter: logistic regression
=========================================

A data frame, a target by name, and coefficients with their uncertainty. The summary says how sure the sign of each
is.
"""

import cavity

table, about = cavity.data.table("pima", as_frame=True)
posterior = cavity.GLM("type ~ npreg + glu + bp + skin + bmi + ped + age", "logit").fit(table)
posterior.plot(table, title=about["title"])

# %%
# Left are the coefficients times the standard deviations of their columns, so that they can be compared, right whether
# the probabilities that each row gets from all others are right. Below they are in the units of the columns.

print(posterior.summary())
