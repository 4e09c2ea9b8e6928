"""
A table in many files
=====================

A folder of Parquet files is read block by block in every pass, so it may be larger than memory. The checkpoint lets a
job that was killed go on; the bits are those of the same rows in memory.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import cavity

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
for part in range(4):
    dose, age = rng.normal(size=25_000), rng.normal(size=25_000)
    ill = rng.random(25_000) < 1 / (1 + np.exp(1.0 - 0.8 * dose - 0.2 * age))
    pd.DataFrame({"dose": dose, "age": age, "ill": ill.astype(int)}).to_parquet(folder / f"part{part}.parquet")

model = cavity.GLM("logit", intercept=True)
posterior = model.fit(folder, "ill", n_threads=2, checkpoint=folder.with_suffix(".checkpoint"))
posterior.plot()

# %%
print(posterior.summary())
