"""
Which columns matter: logistic regression
=========================================

A data frame, a target by name, and coefficients with their uncertainty. The summary says how sure the sign of each
is.
"""

import cavity

table, about = cavity.data.table("pima", as_frame=True)
columns = table.drop(columns=["set", "type"])
columns = (columns - columns.mean()) / columns.std()  # of one scale, so that coefficients can be compared
posterior = cavity.GLM("logit", intercept=True).fit(columns, table["type"])
posterior.plot(columns, table["type"], title=about["title"])

# %%
# Left are the coefficients for columns in units of their standard deviations, right whether the probabilities that each
# row gets from all others are right.

print(posterior.summary())
