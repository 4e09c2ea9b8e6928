"""Gram matrices of composed covariances, and sums of weights times their derivatives.

A covariance is a program in postfix order, a row [op, first_column, n_columns, first_parameter] an operation: leaves
push k(x_i, z_j), ADD and MULTIPLY replace the two values on top. Coordinates are (C, N), and each leaf has columns of
its own that hold what it measures distances in:

    op                  coordinates               parameters             k, r^2 = sum_c delta_c^2
    CONSTANT            none                      p0                     p0
    WHITE               none                      p0                     p0 where i == j (symmetric only)
    LINEAR              x_c sqrt(v_c)             none                   sum_c left_c right_c
    RBF                 (x_c - origin_c)/l_c      p0                     p0 exp(-r^2/2)
    MATERN12, 32, 52    (x_c - origin_c)/l_c      p0                     p0 P(s) exp(-s), s = r sqrt(1, 3, 5)
    MATERN              (x_c - origin_c)/l_c      p0, n, see below       p0 P(s) exp(-s), s = r sqrt(2 n + 1)
    RATIONAL_QUADRATIC  (x_c - origin_c)/l_c      p0, shape              p0 (1 + r^2/(2 shape))^-shape
    PERIODIC            (x_c - origin_c)/period_c p0, 1/l_c^2 of each c  p0 exp(-2 sum sin^2(pi delta_c)/l_c^2)

with P = 1, 1 + s, 1 + s + s^2/3: [Rasmussen2006] eqs. (4.9), (4.14), (4.16), (4.17), (4.19), (4.31). The parameters of
MATERN are p0, n >= 1, -2 sqrt(2 n + 1), and the coefficients, the highest first, of P, the polynomial of degree n, and
of Q, that of degree n - 1 times (2 n + 1)/(2 n - 1): -dk/d(r^2/2) = p0 Q(s) exp(-s). Derivatives are by the logarithms
of slots, in the order of the program: p0; v_c (LINEAR); p0, l_c (RBF, MATERN...); p0, shape, l_c (RATIONAL_QUADRATIC);
p0, l_c, period_c (PERIODIC).

Design:
* Panels of 8 rows and 64 columns go through the program one after the other, in the first-level cache, values forwards
  and adjoints backwards: no array of N x M but the result or the weights. include/cavity_panels.h has the loops.
* Of a symmetric matrix, panels on and below the diagonal are found and mirrored: rows [start, stop) write the entries
  (i, j) and (j, i), j <= i, so that disjoint ranges of rows may be filled by threads. delta and -delta lead to the
  same bits: the result is exactly symmetric.
* Differences of coordinates are formed first: nearby points far from the origin lose no digits.
* A value depends on its two points alone; sums of rows [start, stop) on the arguments alone, in a fixed order.
Errors: k to a few eps (1 + |log k|) of itself, 0 below 2^-1022; PERIODIC is that of delta rounded to double. r^2 may
overflow: k and its derivatives are 0 then. No nan comes from finite coordinates and parameters unless LINEAR, or a sum
or product of leaves, overflows. At r = 0, where MATERN12 has no derivative, 0 is taken.
Measured on Zen 4 with AVX-512, D = 8, in ns a pair: RBF 1.4 (0.55 of which are the 24 operations of r^2, of which the
processor does one subtraction or addition a cycle), MATERN52 1.9, RATIONAL_QUADRATIC 2.8, PERIODIC 6.8; `contract` of
these 2.1, 2.8, 6.3, 18. A symmetric matrix of 2000 rows takes 4.1 ms with RBF.

[Rasmussen2006] Carl Edward Rasmussen and Christopher K. I. Williams, "Gaussian Processes for Machine Learning", MIT
Press, 2006, chapter 4.
"""

from libc.float cimport DBL_MAX
from libc.math cimport fabs
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from cpython.pycapsule cimport PyCapsule_New

from cavity._core.lane_sums cimport aligned
from cavity._core.reference_points cimport REFERENCE_POINTS, ReferencePoints
from cavity._core.covariance_panels cimport (
    CV_MATERN_HEAD, CV_PANEL, CV_PANEL_COLUMNS, CV_PANEL_ROWS, cv_get_panel, cv_input_sums, cv_join, cv_mirror_panel,
    cv_points, cv_prefetch_panel, cv_put_mirrored, cv_put_panel, cv_slot_sums, cv_values, cv_white_values,
)
from cavity._core.simd cimport CV_LANES, cv_combine
from cavity._core.stream cimport cv_stream_end

cdef enum Kind:             # as enum cv_leaf
    CONSTANT
    WHITE
    LINEAR
    RBF
    MATERN12
    MATERN32
    MATERN52
    MATERN
    RATIONAL_QUADRATIC
    PERIODIC
    ADD
    MULTIPLY

cdef enum Task:
    FILL
    SLOTS
    INPUTS

cdef enum Status:
    DONE
    MALFORMED
    NO_MEMORY

cdef enum:
    BLOCK_ROWS = 128                    # rows whose coordinates are prepared together, a multiple of CV_PANEL_ROWS
    MIRRORED_STRIDE = BLOCK_ROWS + 8    # a power of two would put mirrored rows into few sets of the first-level cache
    MIN_STREAMED_ENTRIES = 1 << 20      # of a result that is written past the caches: 8 MB
    PANELS_PER_OPERATION = 4            # where derivatives are computed
    CODE_NUMBERS = 4                    # of an operation

cdef struct ProgramCode:
    const int32_t *rows             # (n_operations, CODE_NUMBERS)
    Py_ssize_t n_operations
    const double *parameters        # (n_parameters,)
    Py_ssize_t n_parameters
    Py_ssize_t n_columns            # of the coordinates

cdef struct Operation:
    Kind kind
    Py_ssize_t column, n_columns    # in the caller's coordinates
    Py_ssize_t own_column           # in the prepared ones
    Py_ssize_t slot, n_slots
    Py_ssize_t first, second        # operands of ADD and MULTIPLY
    const double *parameters
    double *value                   # panels
    double *slope
    double *by_shape
    double *adjoint
    double *adjoint_room

cdef struct Program:
    Py_ssize_t n_operations, n_columns, n_slots, depth
    Operation *operation

cdef struct Job:
    Task task
    Program program
    bint symmetric, stream
    Py_ssize_t start, stop
    Py_ssize_t n_left, n_right      # N, M
    const double *left              # (C, N)
    const double *right             # (C, M)
    const double *weights           # (N, M)
    double *out                     # (N, M), or (C, N) for INPUTS
    # scratch
    double *rows                    # (BLOCK_ROWS/8, n_columns, 8)
    double *columns                 # (n_columns, 64)
    double *mirrored                # (64, MIRRORED_STRIDE): a symmetric panel of FILL, transposed
    double *lanes                   # (n_slots, 8), or (BLOCK_ROWS/8, n_columns, 8, 8) for INPUTS


# ------------------------------------------------------------------------------------------------------------ programs


cdef inline Py_ssize_t slots_of(Kind kind, Py_ssize_t n_columns) noexcept nogil:
    if kind == LINEAR:
        return n_columns
    if kind == RATIONAL_QUADRATIC:
        return 2 + n_columns
    return 1 + (2 if kind == PERIODIC else 1) * n_columns


cdef inline Py_ssize_t parameters_of(Kind kind, Py_ssize_t n_columns, const double *parameters,
                                     Py_ssize_t n_parameters) noexcept nogil:
    """How many a leaf has, whose first is the first of n_parameters."""
    if kind == LINEAR:
        return 0
    if kind == MATERN:
        if n_parameters < CV_MATERN_HEAD or not 1 <= parameters[1] <= n_parameters:
            return CV_MATERN_HEAD + n_parameters
        return CV_MATERN_HEAD + 2 * <Py_ssize_t>parameters[1] + 1
    if kind == RATIONAL_QUADRATIC:
        return 2
    return 1 + n_columns if kind == PERIODIC else 1


cdef bint parse_leaf(const int32_t *row, const double *parameters, Py_ssize_t n_parameters, Py_ssize_t n_columns,
                     Program *program, Operation *op) noexcept nogil:
    cdef Py_ssize_t n_left = n_parameters - row[3]
    op.column, op.n_columns = row[1], 0 if op.kind <= WHITE else row[2]
    if op.column < 0 or op.n_columns < 0 or op.column + op.n_columns > n_columns or row[3] < 0 or n_left < 0:
        return False
    op.parameters = parameters + row[3]
    if parameters_of(op.kind, op.n_columns, op.parameters, n_left) > n_left:
        return False
    op.own_column, op.slot, op.n_slots = program.n_columns, program.n_slots, slots_of(op.kind, op.n_columns)
    program.n_columns += op.n_columns
    program.n_slots += op.n_slots
    return True


cdef bint parse(const ProgramCode *code, Program *program, Py_ssize_t *stack) noexcept nogil:
    """Set up the operations but for their panels; whether the program is one."""
    cdef Operation *op
    cdef const int32_t *row
    cdef Py_ssize_t i, depth = 0
    program.n_operations = code.n_operations
    program.n_columns = program.n_slots = program.depth = 0
    for i in range(program.n_operations):
        op = &program.operation[i]
        row = code.rows + CODE_NUMBERS * i
        if row[0] < CONSTANT or row[0] > MULTIPLY:
            return False
        op.kind = <Kind>row[0]
        if op.kind >= ADD:
            if depth < 2:
                return False
            depth -= 2
            op.first, op.second = stack[depth], stack[depth + 1]
        else:
            if not parse_leaf(row, code.parameters, code.n_parameters, code.n_columns, program, op):
                return False
        stack[depth] = i
        depth += 1
        program.depth = max(program.depth, depth)
    return depth == 1


cdef void place_panels(const Program *program, Task task, double *room) noexcept nogil:
    """For FILL, operations at one depth of the stack share a panel, as in any stack."""
    cdef Operation *op
    cdef Py_ssize_t i, depth = 0
    for i in range(program.n_operations):
        op = &program.operation[i]
        depth -= 1 if op.kind >= ADD else -1
        if task == FILL:
            op.value, op.slope, op.by_shape = room + (depth + 1) * CV_PANEL, room, room + CV_PANEL
        else:
            op.value = room + PANELS_PER_OPERATION * i * CV_PANEL
            op.slope = op.value + CV_PANEL
            op.by_shape = op.slope + CV_PANEL
            op.adjoint_room = op.by_shape + CV_PANEL


cdef void *prepare(Job *job) noexcept nogil:
    """Allocate the scratch; NULL without memory."""
    cdef const Program *program = &job.program
    cdef Py_ssize_t n_columns = program.n_columns, n_lanes = 0, n_panels = program.depth + 2
    cdef Py_ssize_t n_mirrored = CV_PANEL_COLUMNS * MIRRORED_STRIDE if job.task == FILL and job.symmetric else 0
    cdef double *memory
    if job.task != FILL:
        n_panels = PANELS_PER_OPERATION * program.n_operations
        n_lanes = CV_LANES * (program.n_slots if job.task == SLOTS else BLOCK_ROWS * n_columns)
    memory = <double *>malloc(((BLOCK_ROWS + CV_PANEL_COLUMNS) * n_columns + n_mirrored + n_lanes + n_panels * CV_PANEL
                               + 8) * sizeof(double))
    if memory == NULL:
        return NULL
    job.columns = aligned(memory)
    job.rows = job.columns + CV_PANEL_COLUMNS * n_columns
    job.mirrored = job.rows + BLOCK_ROWS * n_columns
    job.lanes = job.mirrored + n_mirrored
    place_panels(program, job.task, job.lanes + n_lanes)
    memset(job.lanes, 0, n_lanes * sizeof(double))
    return memory


# -------------------------------------------------------------------------------------------------------------- panels


cdef void load(const Program *program, const double *x, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t width,
               double *to) noexcept nogil:
    """Coordinates of n points for the leaves, (n_columns, width); those of stationary leaves are halved."""
    cdef const Operation *op
    cdef Py_ssize_t i, c
    cdef double scale
    for i in range(program.n_operations):
        op = &program.operation[i]
        if op.kind < ADD:
            scale = 0.5 if RBF <= op.kind <= RATIONAL_QUADRATIC else 1.0
            for c in range(op.n_columns):
                cv_points(x + (op.column + c) * stride, n, scale, width, to + (op.own_column + c) * width)


cdef void evaluate(const Job *job, const double *left, Py_ssize_t diagonal, Py_ssize_t n_groups) noexcept nogil:
    """Values of all operations at the panel; the last is the covariance."""
    cdef const Program *program = &job.program
    cdef const Operation *op
    cdef Py_ssize_t i
    for i in range(program.n_operations):
        op = &program.operation[i]
        if op.kind >= ADD:
            cv_join(op.kind == MULTIPLY, program.operation[op.first].value, program.operation[op.second].value,
                    n_groups, op.value)
        elif op.kind == WHITE:
            cv_white_values(op.parameters, job.symmetric, diagonal, op.value)
        else:
            cv_values(job.task != FILL, op.kind, op.parameters, op.n_columns, left + op.own_column * CV_PANEL_ROWS,
                      job.columns + op.own_column * CV_PANEL_COLUMNS, n_groups, op.value, op.slope, op.by_shape)


cdef void descend(const Job *job, const double *left, Py_ssize_t n_groups, double *lanes) noexcept nogil:
    """Adjoints of all operations from that of the last, and what they add to the sums of the leaves."""
    cdef const Program *program = &job.program
    cdef Operation *op
    cdef Operation *first
    cdef Operation *second
    cdef const double *x
    cdef const double *z
    cdef Py_ssize_t i
    for i in range(program.n_operations - 1, -1, -1):
        op = &program.operation[i]
        if op.kind >= ADD:
            first, second = &program.operation[op.first], &program.operation[op.second]
            first.adjoint = second.adjoint = op.adjoint
            if op.kind == MULTIPLY:
                first.adjoint, second.adjoint = first.adjoint_room, second.adjoint_room
                cv_join(True, op.adjoint, second.value, n_groups, first.adjoint)
                cv_join(True, op.adjoint, first.value, n_groups, second.adjoint)
            continue
        x, z = left + op.own_column * CV_PANEL_ROWS, job.columns + op.own_column * CV_PANEL_COLUMNS
        if job.task == SLOTS:
            cv_slot_sums(op.kind, op.parameters, op.n_columns, x, z, n_groups, op.adjoint, op.value, op.slope,
                         op.by_shape, lanes + op.slot * CV_LANES)
        else:
            cv_input_sums(op.kind, op.parameters, op.n_columns, x, z, n_groups, op.adjoint, op.value, op.slope,
                          lanes + op.own_column * CV_PANEL_ROWS * CV_LANES)


cdef void visit(const Job *job, Py_ssize_t panel, Py_ssize_t i, Py_ssize_t n_rows, Py_ssize_t j,
                Py_ssize_t n_columns) noexcept nogil:
    """The panel of rows from i and columns from j on, the `panel`-th of its block."""
    cdef Operation *last = &job.program.operation[job.program.n_operations - 1]
    cdef const double *left = job.rows + panel * job.program.n_columns * CV_PANEL_ROWS
    cdef Py_ssize_t stride = job.n_right, diagonal = i - j, n_groups = (n_columns + CV_LANES - 1) // CV_LANES
    if job.symmetric:
        n_groups = min(n_groups, (diagonal + n_rows + CV_LANES - 1) // CV_LANES)
        n_columns = min(n_columns, n_groups * CV_LANES)
    if job.task != FILL:
        cv_prefetch_panel(job.weights + i * stride + j, stride)
    evaluate(job, left, diagonal, n_groups)
    if job.task == FILL:
        cv_put_panel(job.stream, last.value, job.symmetric, n_rows, n_columns, diagonal, job.out + i * stride + j,
                     stride)
        if job.symmetric:
            cv_mirror_panel(last.value, n_groups, job.mirrored + panel * CV_PANEL_ROWS, MIRRORED_STRIDE)
        return
    last.adjoint = last.adjoint_room
    cv_get_panel(job.weights + i * stride + j, stride, job.symmetric, n_rows, n_columns, diagonal, last.adjoint)
    descend(job, left, n_groups,
            job.lanes + (panel * job.program.n_columns * CV_PANEL_ROWS * CV_LANES if job.task == INPUTS else 0))


# -------------------------------------------------------------------------------------------------------------- blocks


cdef void add_inputs(const Job *job, Py_ssize_t i, Py_ssize_t n_rows) noexcept nogil:
    """Add the lanes of the rows of a block to out, and set them to 0."""
    cdef const Program *program = &job.program
    cdef const Operation *op
    cdef double *lanes
    cdef double factor
    cdef Py_ssize_t o, c, r
    for o in range(program.n_operations):
        op = &program.operation[o]
        factor = -2.0 if RBF <= op.kind <= RATIONAL_QUADRATIC else 1.0      # coordinates are halved
        if op.kind < ADD:
            for c in range(op.n_columns):
                for r in range(n_rows):
                    lanes = job.lanes + (((r // CV_PANEL_ROWS) * program.n_columns + op.own_column + c)
                                         * CV_PANEL_ROWS + r % CV_PANEL_ROWS) * CV_LANES
                    job.out[(op.column + c) * job.n_left + i + r] += factor * cv_combine(lanes)
    memset(job.lanes, 0, BLOCK_ROWS * program.n_columns * CV_LANES * sizeof(double))


cdef void block(const Job *job, Py_ssize_t i, Py_ssize_t n_rows) noexcept nogil:
    """All columns of n_rows <= BLOCK_ROWS rows from i on."""
    cdef const Program *program = &job.program
    cdef Py_ssize_t n_panels = (n_rows + CV_PANEL_ROWS - 1) // CV_PANEL_ROWS
    cdef Py_ssize_t n_columns = i + n_rows if job.symmetric else job.n_right
    cdef Py_ssize_t panel, at, tile, j
    for panel in range(n_panels):
        at = panel * CV_PANEL_ROWS
        load(program, job.left + i + at, job.n_left, min(<Py_ssize_t>CV_PANEL_ROWS, n_rows - at), CV_PANEL_ROWS,
             job.rows + panel * program.n_columns * CV_PANEL_ROWS)
    for tile in range((n_columns + CV_PANEL_COLUMNS - 1) // CV_PANEL_COLUMNS):
        j = tile * CV_PANEL_COLUMNS
        load(program, job.right + j, job.n_right, min(<Py_ssize_t>CV_PANEL_COLUMNS, job.n_right - j), CV_PANEL_COLUMNS,
             job.columns)
        for panel in range(n_panels):
            at = panel * CV_PANEL_ROWS
            if not job.symmetric or j <= i + min(at + CV_PANEL_ROWS, n_rows) - 1:
                visit(job, panel, i + at, min(<Py_ssize_t>CV_PANEL_ROWS, n_rows - at), j,
                      min(<Py_ssize_t>CV_PANEL_COLUMNS, job.n_right - j))
        if job.task == FILL and job.symmetric:
            cv_put_mirrored(job.stream, job.mirrored, min(<Py_ssize_t>CV_PANEL_COLUMNS, n_columns - j), n_rows,
                            MIRRORED_STRIDE, i - j, job.out + j * job.n_right + i, job.n_right)
    if job.task == INPUTS:
        add_inputs(job, i, n_rows)


cdef void add_slots(const Job *job) noexcept nogil:
    """out = the lanes of all slots, combined."""
    cdef const Operation *op
    cdef Py_ssize_t o, slot
    cdef bint of_halves
    for o in range(job.program.n_operations):
        op = &job.program.operation[o]
        for slot in range(op.n_slots if op.kind < ADD else 0):
            of_halves = RBF <= op.kind <= RATIONAL_QUADRATIC and slot >= op.n_slots - op.n_columns
            job.out[op.slot + slot] = (4.0 if of_halves else 1.0) * cv_combine(job.lanes + (op.slot + slot) * CV_LANES)


cdef Status work(Job *job, const ProgramCode *code, Py_ssize_t *stack) noexcept nogil:
    cdef void *memory
    cdef Py_ssize_t step, at
    if not parse(code, &job.program, stack):
        return MALFORMED
    memory = prepare(job)
    if memory == NULL:
        return NO_MEMORY
    for step in range((job.stop - job.start + BLOCK_ROWS - 1) // BLOCK_ROWS):
        at = job.start + step * BLOCK_ROWS
        block(job, at, min(<Py_ssize_t>BLOCK_ROWS, job.stop - at))
    if job.task == SLOTS:
        add_slots(job)
    if job.stream:
        cv_stream_end()
    free(memory)
    return DONE


cdef Status run_without_gil(Job *job, const ProgramCode *code) noexcept nogil:
    """Do the job."""
    cdef Py_ssize_t *stack = <Py_ssize_t *>malloc((code.n_operations + 1) * sizeof(Py_ssize_t))
    cdef Status status = NO_MEMORY
    job.program.operation = <Operation *>malloc((code.n_operations + 1) * sizeof(Operation))
    if stack != NULL and job.program.operation != NULL:
        status = work(job, code, stack)
    free(job.program.operation)
    free(stack)
    return status


cdef ProgramCode code_of(const int32_t[:, ::1] code, const double[::1] parameters, Py_ssize_t n_columns) noexcept:
    """The arrays of a program as pointers."""
    cdef ProgramCode out
    out.rows, out.n_operations = &code[0, 0] if code.shape[0] else NULL, code.shape[0]
    out.parameters, out.n_parameters = &parameters[0] if parameters.shape[0] else NULL, parameters.shape[0]
    out.n_columns = n_columns
    return out


cdef int run(Job *job, const int32_t[:, ::1] code, const double[::1] parameters, Py_ssize_t n_columns) except -1:
    """Do the job, or raise."""
    cdef ProgramCode program = code_of(code, parameters, n_columns)
    cdef Status status
    with nogil:
        status = run_without_gil(job, &program)
    if status == NO_MEMORY:
        raise MemoryError
    if status == MALFORMED:
        raise ValueError("not a program: an unknown operation, operands, columns or parameters that are not there")
    return 0


cdef Job job_of(Task task, const double[:, ::1] left, const double[:, ::1] right, bint symmetric, Py_ssize_t start,
                Py_ssize_t stop) noexcept:
    cdef Job job
    job.task, job.symmetric, job.stream, job.start, job.stop = task, symmetric, False, start, stop
    job.left = &left[0, 0] if left.shape[0] else NULL
    job.right = &right[0, 0] if right.shape[0] else NULL
    return job


# ---------------------------------------------------------------------------------------------------------- operations


def fill(const int32_t[:, ::1] code,        # in  (n_operations, 4)
         const double[::1] parameters,      # in  (P,)
         const double[:, ::1] left,         # in  (C, N), finite
         const double[:, ::1] right,        # in  (C, M); N and M > 0; left itself if symmetric
         bint symmetric,
         Py_ssize_t start,
         Py_ssize_t stop,
         double[:, ::1] out, /):            # out (N, M): rows [start, stop); if symmetric (i, j) and (j, i), j <= i
    """Covariances of rows [start, stop) with all columns."""
    cdef Job job = job_of(FILL, left, right, symmetric, start, stop)
    job.n_left, job.n_right = out.shape[0], out.shape[1]
    job.out = &out[0, 0]
    job.stream = job.n_left * job.n_right >= MIN_STREAMED_ENTRIES
    run(&job, code, parameters, left.shape[0])


def contract(const int32_t[:, ::1] code,    # in  (n_operations, 4)
             const double[::1] parameters,  # in  (P,)
             const double[:, ::1] left,     # in  (C, N), finite
             const double[:, ::1] right,    # in  (C, M); N and M > 0; left itself if symmetric
             bint symmetric,
             Py_ssize_t start,
             Py_ssize_t stop,
             const double[:, ::1] weights,  # in  (N, M); symmetric if `symmetric`: entries j <= i are read
             double[::1] out, /):           # out (G,)
    """Sums over rows [start, stop) and all columns of weights dk/dlog(slot).

    If symmetric, over i in [start, stop) and j <= i, those with j < i counted twice.
    """
    cdef Job job = job_of(SLOTS, left, right, symmetric, start, stop)
    job.n_left, job.n_right = weights.shape[0], weights.shape[1]
    job.weights, job.out = &weights[0, 0], &out[0] if out.shape[0] else NULL
    run(&job, code, parameters, left.shape[0])


def contract_inputs(const int32_t[:, ::1] code,     # in  (n_operations, 4)
                    const double[::1] parameters,   # in  (P,)
                    const double[:, ::1] left,      # in  (C, N), finite
                    const double[:, ::1] right,     # in  (C, M); N and M > 0
                    Py_ssize_t start,
                    Py_ssize_t stop,
                    const double[:, ::1] weights,   # in  (N, M)
                    double[:, ::1] left_out, /):    # out (C, N), columns [start, stop)
    """Sums over all columns j of weights_ij dk_ij/dleft_ci, right held fixed, for rows i in [start, stop)."""
    cdef Job job = job_of(INPUTS, left, right, False, start, stop)
    cdef Py_ssize_t c
    job.n_left, job.n_right = weights.shape[0], weights.shape[1]
    job.weights, job.out = &weights[0, 0], &left_out[0, 0] if left_out.shape[0] else NULL
    if stop > start:
        for c in range(left_out.shape[0]):
            memset(&left_out[c, start], 0, (stop - start) * sizeof(double))
    run(&job, code, parameters, left.shape[0])


cdef struct Points:                         # the arrays of a Target
    ReferencePoints head                    # first: its address is that of the whole
    ProgramCode code
    const double *right                     # (C, n_points)
    const int32_t *columns                  # (C,)
    const double *origin                    # (C,)
    const double *divisors                  # (C,)
    double reach


cdef Py_ssize_t fill_rows(const ReferencePoints *reference, const double *X, Py_ssize_t n, double *out) noexcept nogil:
    """`Target.fill`; -1 without memory."""
    cdef const Points *points = <const Points *>reference
    cdef Py_ssize_t n_columns = points.code.n_columns, i, c, width = reference.n_features
    cdef double *left = <double *>malloc((n * n_columns + 1) * sizeof(double))
    cdef double at
    cdef Job job
    if left == NULL:
        return -1
    for i in range(n):
        for c in range(width):
            if not fabs(X[i * width + c]) <= DBL_MAX:
                free(left)
                return i
        for c in range(n_columns):
            at = (X[i * width + points.columns[c]] - points.origin[c]) / points.divisors[c]
            if not fabs(at) <= points.reach:
                free(left)
                return i
            left[c * n + i] = at
    job.task, job.symmetric, job.stream, job.start, job.stop = FILL, False, False, 0, n
    job.left, job.right, job.n_left, job.n_right, job.out = left, points.right, n, reference.n_points, out
    if run_without_gil(&job, &points.code) != DONE:
        n = -1
    free(left)
    return n


cdef class Target:
    """Points Z, scaled once, with which rows are compared as they come. Its arguments are not checked.

    `points` is for kernels, see reference_points.pxd.
    """

    cdef const int32_t[:, ::1] code
    cdef const double[::1] parameters
    cdef const double[:, ::1] right
    cdef const int32_t[::1] columns
    cdef const double[::1] origin, divisors
    cdef Points numbers
    cdef readonly object points

    def __init__(self,
                 const int32_t[:, ::1] code,    # (n_operations, 4)
                 const double[::1] parameters,  # (P,)
                 const double[:, ::1] right,    # (C, M): coordinates of Z, M > 0
                 const int32_t[::1] columns,    # (C,): coordinates of a row are (row[columns] - origin)/divisors
                 const double[::1] origin,      # (C,)
                 const double[::1] divisors,    # (C,)
                 double reach,                  # coordinates up to which covariances are known to be finite
                 Py_ssize_t n_features, /):     # D
        cdef Points *numbers = &self.numbers
        self.code, self.parameters, self.right, self.columns = code, parameters, right, columns
        self.origin, self.divisors = origin, divisors
        numbers.head.fill, numbers.head.n_points, numbers.head.n_features = fill_rows, right.shape[1], n_features
        numbers.code, numbers.reach = code_of(code, parameters, columns.shape[0]), reach
        if columns.shape[0]:
            numbers.right, numbers.columns = &right[0, 0], &columns[0]
            numbers.origin, numbers.divisors = &origin[0], &divisors[0]
        self.points = PyCapsule_New(numbers, REFERENCE_POINTS, NULL)

    def fill(self,
             const double[:, ::1] X,        # in  (n, D)
             double[:, ::1] out, /):        # out (n, M)
        """Covariances of rows with Z. Returns n, or the first row that is not finite or out of reach: no out then."""
        cdef Py_ssize_t n = X.shape[0]
        if n == 0:
            return 0
        with nogil:
            n = fill_rows(&self.numbers.head, &X[0, 0] if X.shape[1] else NULL, n, &out[0, 0])
        if n < 0:
            raise MemoryError
        return n
