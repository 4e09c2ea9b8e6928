"""What decides the last bits of results beside the data: the library, the instructions of its kernels, its BLAS."""

import sys
from functools import cache

from cavity import __version__, _core


def describe_build():
    """Return words for all of it, in this process; SciPy's BLAS counts once it is loaded."""
    return f"cavity {__version__} with {_core.variants('gaussian_mixture')[-1]} kernels and {describe_blas()}"


def describe_blas():
    """Return words for the BLAS libraries of this process: their names, versions and what CPU they compute for."""
    return _describe_loaded_blas("scipy.linalg" in sys.modules)


@cache
def _describe_loaded_blas(_):
    """Look for libraries, which costs half a millisecond."""
    from threadpoolctl import threadpool_info

    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    libraries = {(library["internal_api"], library["version"], library.get("architecture")) for library in blas}
    return ", ".join(sorted(" ".join(filter(None, map(str, parts))) for parts in libraries)) or "no known BLAS"
