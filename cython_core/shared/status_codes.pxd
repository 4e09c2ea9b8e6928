"""Status codes: what a kernel returns instead of raising. Python words the messages (cavity.errors)."""

cdef enum Status:
    OK = 0
    OVERFLOWED = 1               # a natural parameter left the range of float64
    DIVIDED_BY_POINT_MASS = 2
