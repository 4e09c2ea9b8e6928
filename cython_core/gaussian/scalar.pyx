"""One scaled Gaussian as a C object: the fast path of `cavity.Gaussian` for single factors.

A Python class with three NumPy scalars spends microseconds on a product of two numbers. This base class keeps a
single Gaussian as three C doubles and multiplies it in well under a microsecond; arrays go to `_combine`, which the
Python subclass defines.
"""

from cavity._core.gaussian cimport combine_one
from cavity._core.status_codes cimport OK

cdef extern from "Python.h":
    void *PyType_GetSlot(type, int)    # which the limited API has, too
    int Py_tp_new

ctypedef object (*NewCall)(object, object, void *)

cdef NewCall new_base                    # that of the type
cdef tuple NO_ARGUMENTS = ()


cdef class GaussianBase:
    """Natural parameters of a batch of scaled Gaussians: floats for the batch shape (), read-only arrays else."""

    cdef double t, r, g
    cdef object arrays                   # None, or the tuple (tau, rho, log_scale)

    @property
    def tau(self):
        """Precision times mean; for a point mass (`rho` infinite) its location."""
        return self.t if self.arrays is None else self.arrays[0]

    @property
    def rho(self):
        """Precision: negative or zero for improper factors, infinite for a point mass."""
        return self.r if self.arrays is None else self.arrays[1]

    @property
    def log_scale(self):
        """Log of the integral, extended to improper factors; the log value at 0 where `rho` is zero."""
        return self.g if self.arrays is None else self.arrays[2]

    def __mul__(self, other):
        return product(self, other, 1.0)

    def __truediv__(self, other):
        return product(self, other, -1.0)


new_base = <NewCall> PyType_GetSlot(GaussianBase, Py_tp_new)


cdef object product(GaussianBase f, object other, double sign):
    cdef GaussianBase g, result
    cdef double t, r, c
    if not isinstance(other, GaussianBase):
        return NotImplemented
    g = <GaussianBase> other
    if f.arrays is None and g.arrays is None:
        if combine_one(sign, &f.t, f.r, f.g, &g.t, g.r, g.g, &t, &r, &c, 1) == OK:
            result = make(type(f))
            result.t, result.r, result.g = t, r, c
            return result
    return f._combine(other, sign)   # arrays, or an error to be worded


cdef inline GaussianBase make(type cls):
    return <GaussianBase> new_base(cls, NO_ARGUMENTS, NULL)


def from_arrays(type cls, tau, rho, log_scale):
    """A `cls` around three read-only arrays of one non-empty shape."""
    cdef GaussianBase result = make(cls)
    result.arrays = (tau, rho, log_scale)
    return result


def from_floats(type cls, double tau, double rho, double log_scale):
    """A `cls` of batch shape ()."""
    cdef GaussianBase result = make(cls)
    result.t, result.r, result.g = tau, rho, log_scale
    return result
