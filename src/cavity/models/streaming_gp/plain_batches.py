"""Small batches in arrays of the form of the kernels, at given inducing points: an `Update` with nothing to decide.

Results have the bits of an `Update`.
"""

import numpy as np

from cavity.base.observation_digest import ObservationDigest, join_digests
from cavity.models.streaming_gp.inducing_basis import ROWS_PER_BLOCK, Information
from cavity.models.streaming_gp.new_data_factor import RowSites, sum_block
from cavity.models.streaming_gp.predictive_checks import PredictiveCheck, warn_of_surprise
from cavity.models.streaming_gp.rows import CALLING_THREAD
from cavity.models.streaming_gp.single_rows import FLOAT64_DTYPE
from cavity.runs.executors import get_lasting_threads, resolve_n_threads, single_blas

MIN_SHARED_FLOPS = 2e7  # of the triangular solve, some milliseconds: less is not shared by threads
MAX_FLOPS = 2e9  # beyond, an `Update` has tasks between which Ctrl-C interrupts


def take_plain_batch(state, X, y, n_threads=None):
    """Update a StreamingGPState, unless the rows take an `Update`; return whether that is done."""
    now, singles = state._now, state._get_single_rows()
    if not (singles.ready and type(X) is type(y) is np.ndarray and X.dtype is y.dtype is FLOAT64_DTYPE):
        return False
    basis, model, n = singles.basis, now.model, len(y) if y.ndim == 1 else 0
    if model.inducing is None or model.alpha != 0.0 or not 1 < n <= min(ROWS_PER_BLOCK, MAX_FLOPS / basis.n**2):
        return False
    if X.shape != (n, basis.Z.shape[1]) or not (X.flags.c_contiguous and X.flags.aligned):
        return False
    if basis.target.points is None or not (np.isfinite(y).all() and np.isfinite(X).all()):
        return False
    threads = CALLING_THREAD
    if n * basis.n**2 > MIN_SHARED_FLOPS:
        threads = get_lasting_threads(resolve_n_threads(n_threads))
    with np.errstate(over="ignore", invalid="ignore"), single_blas():
        weight = np.ones(1)
        sites = RowSites.gaussian(weight, singles.noise, y - singles.mean, model.alpha)
        new = Information(*sum_block(basis, X, sites, weight, threads))
        information = now.information.plus(new, in_place=True).factorise()
    if now.information.n == 0.0:
        message, check = None, PredictiveCheck.of(information)
    else:
        message, check = now.predictive_check.compare(information)
    digest = join_digests(now.digest, ObservationDigest.of(y, model.likelihood))
    state._now = now.after(rows=n, updates=1, information=information, predictive_check=check, digest=digest)
    warn_of_surprise(message)
    return True
