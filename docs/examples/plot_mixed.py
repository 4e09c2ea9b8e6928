"""
Mixed model: people differ
==========================

Reaction times of 18 people who sleep too little. Each has an intercept and a slope of their own, shrunk towards the
mean of all; standard deviations and their correlation are learnt.
"""

import cavity

people, about = cavity.data.table("sleepstudy", as_frame=True)
posterior = cavity.MixedGLM("Reaction ~ Days + (Days | Subject)").fit(people)
posterior.plot()

# %%
# A person without rows gets the mean of all, and the spread between people as uncertainty:

mean, variance = posterior.predict(people.head(3).assign(Subject=0), levels="new", noise=True)
for day, m, v in zip(people["Days"], mean, variance, strict=False):
    print(f"day {day}: {m:.0f} ms, sd {v**0.5:.0f}")
