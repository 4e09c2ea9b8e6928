"""Formulas on the data sets of the package beside the coefficients of statsmodels, by the names that both give."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.tolerances import PRINTED

import cavity

pytest.importorskip("formulae")
pytest.importorskip("pandas")

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "formulas.json").read_text())["models"]


@pytest.mark.parametrize("model", GOLDEN, ids=[f"{model['data']}: {model['formula']}" for model in GOLDEN])
def test_coefficients_are_those_of_statsmodels(model):
    """With a wide prior they are the same where y is Gaussian; else a mean differs from a maximum by the skewness."""
    table, _ = cavity.data.table(model["data"], as_frame=True)
    posterior = cavity.GLM(model["formula"], model["likelihood"], prior_variance=1e12, intercept=1e12).fit(table)
    moments = dict(zip(posterior.coefficient_names, zip(posterior.mean, posterior.sd, strict=True), strict=True))
    assert set(moments) == set(model["names"])
    mean, sd = np.array([moments[name] for name in model["names"]]).T
    errors, is_exact = np.array(model["standard_errors"]), model["likelihood"] == "gaussian"
    gap = np.abs(mean - model["coefficients"]) / errors
    assert np.max(gap) < (1e-4 if is_exact else 0.2)
    assert np.median(gap) < (1e-4 if is_exact else 0.1)
    np.testing.assert_allclose(sd, errors, rtol=100 * PRINTED)
