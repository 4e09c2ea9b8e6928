"""
A mean among wrong measurements
===============================

Newcomb's 66 timings of light, two of which are far off. `cavity.Clutter` gives each point the probability that it is
clutter.
"""

import cavity

times, about = cavity.data.load("newcomb")
posterior = cavity.Clutter(clutter_weight=0.1, clutter_variance=400.0, clutter_mean=27.0, noise_variance=25.0).fit(
    times
)
posterior.plot(times, names=["time [ns]"], title=about["title"])

# %%
print(posterior)
