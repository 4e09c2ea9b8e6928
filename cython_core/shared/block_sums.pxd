"""Sums over runs of blocks, along the tree of cavity.runs.merge: neighbours first, whatever the run.

They are on a stack of arrays of `size` numbers: one for each binary digit of the number of blocks so far.
"""


cdef inline Py_ssize_t levels_of(Py_ssize_t n_blocks) noexcept nogil:
    """The most arrays on the stack."""
    cdef Py_ssize_t levels = 1
    while n_blocks > 0:
        levels, n_blocks = levels + 1, n_blocks // 2
    return levels


cdef inline Py_ssize_t add_top(double *stack, Py_ssize_t size, Py_ssize_t depth) noexcept nogil:
    """Add the top of the stack to what is below it; the depth that is left."""
    cdef double *below = stack + (depth - 2) * size
    cdef Py_ssize_t i
    for i in range(size):
        below[i] += below[size + i]
    return depth - 1


cdef inline Py_ssize_t add_equal(double *stack, Py_ssize_t size, Py_ssize_t depth, Py_ssize_t count) noexcept nogil:
    """Add up runs of equal length when the sums of block number `count`, from 1 on, are on top; the depth left."""
    while count % 2 == 0:
        depth, count = add_top(stack, size, depth), count // 2
    return depth


cdef inline void add_rest(double *stack, Py_ssize_t size, Py_ssize_t depth) noexcept nogil:
    """Add up all there is, into the first array."""
    while depth > 1:
        depth = add_top(stack, size, depth)
