"""Which x86-64 instruction-set levels this CPU and its operating system support."""

cdef extern from "cavity_cpu.h" nogil:
    bint cv_has_v3() noexcept
    bint cv_has_v4() noexcept


def levels():
    """Return the supported levels above the baseline, lowest first, for example ['v3', 'v4']."""
    return [name for name, present in (("v3", cv_has_v3()), ("v4", cv_has_v4())) if present]
