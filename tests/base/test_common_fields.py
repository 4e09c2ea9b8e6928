"""What posteriors keep of tables, in files: what is written comes back, what was tampered with is refused."""

import numpy as np
import pandas as pd
import pytest
from support.glms import GLM
from support.saved_files import load_changed

from cavity.likelihoods import Interval, Probit

FRAME = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "low": [0.0, 1.0, 2.0, 3.0], "high": [2.0, 2.5, 5.0, 7.0]})


def test_what_is_kept_comes_back(tmp_path):
    posterior = GLM(Interval(), prior_variance=1.0).fit(FRAME, ["low", "high"])
    restored = load_changed(posterior, tmp_path)
    assert restored.roles == {"y": ("low", "high")}
    assert (restored.columns, restored.classes) == (("x",), None)
    posterior = GLM(Probit(), prior_variance=1.0).fit(FRAME[["x"]], [3, 1.5, 3, 1.5])
    assert load_changed(posterior, tmp_path).classes == (1.5, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"roles": {"y": 3}}, "'roles' must be an object of names of columns"),
        ({"roles": ["y"]}, "'roles' must be an object of names of columns"),
        ({"classes": [None, "a"]}, "'classes' must be a list of strings and numbers"),
        ({"classes": "ab"}, "'classes' must be a list of strings and numbers"),
    ],
)
def test_what_is_no_name_is_refused(change, message, tmp_path):
    posterior = GLM(Probit(), prior_variance=1.0).fit(FRAME[["x"]], np.array([0, 1, 0, 1]))
    with pytest.raises(ValueError, match=message):
        load_changed(posterior, tmp_path, lambda settings, _: settings.update(change))
