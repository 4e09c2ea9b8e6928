"""
A smooth curve with bands
=========================

Acceleration of a helmet in a crash. Two noise models; the evidence prefers heavy tails by two nats, which is little.
"""

import cavity

table, about = cavity.data.table("motorcycle", as_frame=True)
gaussian = cavity.GaussianProcess().fit(table, "acceleration")
robust = cavity.GaussianProcess("rbf", "student-t").fit(table, "acceleration")
robust.plot(title=about["title"])

# %%
print(cavity.compare({"gaussian": gaussian, "student-t": robust}))
