"""
Classification by a Gaussian process
====================================

Two classes that no line separates. The map shows the probability of the second class; where there are no rows it
returns to one half.
"""

import cavity

table, about = cavity.data.table("banana", as_frame=True)
posterior = cavity.GaussianProcess("rbf", "probit").fit(table.head(400), "class")
posterior.plot(title=about["title"])

# %%
# Rows that were held out:

rest = table.tail(-400)
print(f"mean log probability {posterior.log_density(rest, rest['class']).mean():.3f}")
print(posterior)
