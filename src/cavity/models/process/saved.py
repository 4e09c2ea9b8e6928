"""What files of latent processes hold alike."""

from cavity import covariances
from cavity.base.records import NONNEGATIVE, SHARE, TABLE, Made, integer

COVARIANCE_SETTING = Made(covariances.from_settings, TABLE, lambda covariance: covariance.to_settings())
EP_OPTIONS = {"damping": SHARE, "max_iter": integer(1), "tol": NONNEGATIVE}  # of EP
