"""
Groups in a table, and how many
===============================

ELBOs of mixtures are absolute, so the largest chooses the number of components.
"""

import cavity

table, about = cavity.data.table("faithful", as_frame=True)
selection = cavity.select_components(cavity.GaussianMixture(1), table, range(1, 7))
selection.plot()

# %%
selection.best.plot(table, title=about["title"])

# %%
print(selection)
