"""What a fit by EP leaves behind."""

import numpy as np
import pytest

from cavity.base.errors import ConvergenceWarning
from cavity.base.loop import CONVERGED, MAX_ITER
from cavity.ep.fit import Fit
from cavity.ep.options import Options


def fit(status, changes):
    trace = {"change": np.array(changes)}
    return Fit(belief=None, log_evidence=-1.0, residual=0.5, status=status, n_iter=len(changes), trace=trace)


def test_report_holds_what_posteriors_tell_of_their_fit():
    done = fit(CONVERGED, [1.0, 1e-9])
    report = done.report()
    assert done.converged
    assert (report["status"], report["n_iter"], report["residual"]) == (CONVERGED, 2, 0.5)
    assert report["trace"] is done.trace
    assert (done.tau, done.rho, done.loo) == (None, None, None)


def test_only_fits_that_did_not_converge_warn():
    fit(CONVERGED, [1e-9]).warn(Options())
    with pytest.warns(ConvergenceWarning, match="max_iter reached .last change 0.5, tol 1e-08, max_iter 7"):
        fit(MAX_ITER, [1.0, 0.5]).warn(Options(max_iter=7))
