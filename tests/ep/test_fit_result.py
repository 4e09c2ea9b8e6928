"""What a fit by EP leaves behind."""

import numpy as np
import pytest

from cavity import ConvergenceWarning
from cavity.base.loop import CONVERGED_STATUS, MAX_ITER_STATUS
from cavity.ep.fit_result import FitResult
from cavity.ep.options import Options


def fit(status, changes):
    trace = {"change": np.array(changes)}
    return FitResult(belief=None, log_evidence=-1.0, residual=0.5, status=status, n_iter=len(changes), trace=trace)


def test_what_is_not_known_is_none():
    done = fit(CONVERGED_STATUS, [1.0, 1e-9])
    assert done.converged
    assert (done.tau, done.rho, done.loo) == (None, None, None)


def test_one_pass_leaves_nothing_to_do():
    done = FitResult.of_one_pass(belief=None, log_evidence=-1.0, loo=np.zeros(2))
    assert (done.converged, done.n_iter, done.residual, done.trace) == (True, 1, 0.0, {})
    assert done.loo.tolist() == [0.0, 0.0]


def test_only_fits_that_did_not_converge_warn():
    fit(CONVERGED_STATUS, [1e-9]).warn(Options())
    with pytest.warns(ConvergenceWarning, match="max_iter reached .last change 0.5, tol 1e-08, max_iter 7"):
        fit(MAX_ITER_STATUS, [1.0, 0.5]).warn(Options(max_iter=7))
