"""What posteriors keep of tables, in files: what is written comes back, what was tampered with is refused."""

import numpy as np
import pandas as pd
import pytest
from support.glms import GLM

from cavity.likelihoods import Interval, Probit
from cavity.models import saved

FRAME = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "low": [0.0, 1.0, 2.0, 3.0], "high": [2.0, 2.5, 5.0, 7.0]})


def test_what_is_kept_comes_back():
    posterior = GLM(Interval(), prior_variance=1.0).fit(FRAME, ["low", "high"])
    restored = saved.rebuild(posterior.kind, *posterior.to_arrays())
    assert restored.roles == {"y": ("low", "high")}
    assert (restored.columns, restored.classes) == (("x",), None)
    posterior = GLM(Probit(), prior_variance=1.0).fit(FRAME[["x"]], [3, 1.5, 3, 1.5])
    assert saved.rebuild(posterior.kind, *posterior.to_arrays()).classes == (1.5, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roles": {"y": 3}}, "'roles' must be an object of names of columns"),
        ({"roles": ["y"]}, "'roles' must be an object of names of columns"),
        ({"classes": [None, "a"]}, "'classes' must be a list of strings and numbers"),
        ({"classes": "ab"}, "'classes' must be a list of strings and numbers"),
    ],
)
def test_what_is_no_name_is_refused(change, message):
    arrays, settings = GLM(Probit(), prior_variance=1.0).fit(FRAME[["x"]], np.array([0, 1, 0, 1])).to_arrays()
    with pytest.raises(ValueError, match=message):
        saved.rebuild("glm", arrays, settings | change)
