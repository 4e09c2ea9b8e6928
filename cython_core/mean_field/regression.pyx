"""Newton's method on the ELBO of a linear regression with few columns: precisions of weights and noise, by logarithms.

With q(w) at its optimum and the shapes of the Gamma factors at theirs, the ELBO is a function of the logarithms theta
of the means of the factors alone [Bishop2006, section 10.3]. Up to a constant it is, R'R = [X y]'[X y] triangular::

    sum_k (s_k theta_k - b_k exp theta_k) - sum_i log P_ii - (tau |z - F m|^2 + sum_i alpha_i m_i^2)/2

with F and z the columns of R for X and y, P the triangle of [sqrt(tau) F; diag(sqrt(alpha))], Sigma = (P'P)^-1 and
m = tau Sigma F'z. Derivatives are exact: with C = sqrt(A) Sigma sqrt(A) and u = sqrt(A) m, A = diag(alpha), those for
an alpha of one column are::

    g_i = s_i - b_i alpha_i - (u_i^2 + C_ii)/2,    H_ij = C_ij (u_i u_j + C_ij/2) + [i = j] (g_i - s_i)

Columns that share an alpha are added. (-H + lambda diag s) step = g, lambda = 0 where that is positive
definite and the last step raised the ELBO [NocedalWright2006, section 3.4]. The predicted gain is g'step/2.

Design: one call does any number of evaluations, and everything that decides how it goes on is in `state`, so that
calls of one evaluation each have the same bits. No squares of X are formed: P is found by reflections, row by row.

[Bishop2006] Christopher M. Bishop, Pattern Recognition and Machine Learning, Springer, 2006.
[NocedalWright2006] Jorge Nocedal and Stephen Wright, Numerical Optimization, Springer, 2006.
"""

from libc.math cimport INFINITY, exp, fabs, isfinite, log, log1p, sqrt
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cdef enum:
    RUNNING = 0
    CONVERGED = 1
    NO_PROGRESS = 2
    NOT_FINITE = 3
    SINGULAR = 4
    NO_MEMORY = 5
    HEAD_SIZE = 6                # numbers of `state` before the arrays: evaluations, status, lambda, ELBO, gains

# lambda after a rejected step, where -H is not positive definite, below which it is 0, and at which the search ends
cdef double FIRST_LAMBDA = 1e-4, MIN_LAMBDA = 1e-2, LEAST_LAMBDA = 1e-9, MAX_LAMBDA = 1e12
cdef double GOOD_SHARE = 0.5     # of the predicted gain: where a step gained that much, lambda falls
cdef double MAX_STEP = 4.0       # of a logarithm: precisions change by at most e^4 in a step
cdef double FAR_SWEEP = 1.0      # a plain sweep comes first where it changes a logarithm by more
cdef double ELBO_ROUNDING = 1e-14  # relative: predicted gains below it are rounding errors of the ELBO


cdef struct Problem:
    Py_ssize_t D, K              # columns, learnt precisions
    const double *factor         # (D + 1, D), row stride `stride`
    const double *target         # (D + 1,)
    Py_ssize_t stride, target_stride
    const long long *group       # (D,): whose alpha, -1 where it is known
    const double *known          # (D,): alpha where it is known
    const double *shapes         # (K,)
    const double *rates          # (K,): of the priors
    double tau                   # where it is known


cdef struct Scratch:
    double *triangle             # (D, D + 1)
    double *below                # (D, D + 1)
    double *root                 # (D, D) upper: P^-1
    double *transposed           # (D, D): its transpose
    double *shares               # (D, D): sqrt(A) Sigma sqrt(A)
    double *row                  # (D + 1,)
    double *mean                 # (D,)
    double *alpha                # (D,)
    double *scaled               # (D,): sqrt(A) m
    double *gradient             # (K,)
    double *hessian              # (K, K)
    double *matrix               # (K, K)
    double *step                 # (K,)


cdef inline void add_multiple(double c, const double *x, double *y, Py_ssize_t n) noexcept nogil:
    """y += c x."""
    cdef Py_ssize_t i
    for i in range(n):
        y[i] += c * x[i]


cdef void reflect_rows(Problem *p, Scratch *s) noexcept nogil:
    """Reduce [triangle; below] (2D, D + 1) to a triangle: row i of `below` begins in column i [Householder]."""
    cdef Py_ssize_t D = p.D, width = p.D + 1, i, j
    cdef double head, norm, scale
    cdef double *top
    for j in range(D):
        top = s.triangle + j * width
        norm = top[j] * top[j]
        for i in range(j + 1):
            norm += s.below[i * width + j] * s.below[i * width + j]
        norm = sqrt(norm)
        if norm == 0.0:
            continue
        head = top[j] + (norm if top[j] >= 0.0 else -norm)
        scale = 1.0 / (norm * fabs(head))                       # 2/|v|^2 of v = (head, column below)
        for i in range(j + 1, width):
            s.row[i] = head * top[i]
        for i in range(j + 1):
            add_multiple(s.below[i * width + j], s.below + i * width + j + 1, s.row + j + 1, D - j)
        for i in range(j + 1, width):
            s.row[i] *= scale
        top[j] = -norm if top[j] >= 0.0 else norm
        add_multiple(-head, s.row + j + 1, top + j + 1, D - j)
        for i in range(j + 1):
            add_multiple(-s.below[i * width + j], s.row + j + 1, s.below + i * width + j + 1, D - j)


cdef bint invert_triangle(Problem *p, Scratch *s) noexcept nogil:
    """root = P^-1, its transpose and mean = root (the right-hand side of P); whether P is regular."""
    cdef Py_ssize_t D = p.D, width = p.D + 1, i, j
    cdef double inverse
    cdef double *out
    memset(s.root, 0, D * D * sizeof(double))
    for i in range(D - 1, -1, -1):
        if s.triangle[i * width + i] == 0.0:
            return False
        out, inverse = s.root + i * D, 1.0 / s.triangle[i * width + i]
        out[i] = -1.0
        for j in range(i + 1, D):
            add_multiple(s.triangle[i * width + j], s.root + j * D + j, out + j, D - j)
        for j in range(i, D):
            out[j] *= -inverse
    for i in range(D):
        s.mean[i] = 0.0
        for j in range(i, D):
            s.mean[i] += s.root[i * D + j] * s.triangle[j * width + D]
            s.transposed[j * D + i] = s.root[i * D + j]
    return True


cdef double fill_covariance(Problem *p, Scratch *s, double scale) noexcept nogil:
    """shares = sqrt(A) Sigma sqrt(A); return tau times the trace of F Sigma F'. The transposed root is overwritten."""
    cdef Py_ssize_t D = p.D, i, j, k
    cdef double trace = 0.0
    memset(s.shares, 0, D * D * sizeof(double))
    for k in range(D):
        for i in range(k + 1):
            s.transposed[k * D + i] *= sqrt(s.alpha[i])
        for i in range(k + 1):
            add_multiple(s.transposed[k * D + i], s.transposed + k * D, s.shares + i * D, i + 1)
    for i in range(D):
        for j in range(i):
            s.shares[j * D + i] = s.shares[i * D + j]
        memset(s.row, 0, D * sizeof(double))
        for k in range(i, D):
            add_multiple(scale * p.factor[i * p.stride + k], s.root + k * D + k, s.row + k, D - k)
        for j in range(i, D):
            trace += s.row[j] * s.row[j]
    return trace


cdef void differentiate(Problem *p, Scratch *s, const double *theta, double misfit) noexcept nogil:
    """Gradient and Hessian of the ELBO at theta; misfit is tau E|y - Xw|^2."""
    cdef Py_ssize_t D = p.D, K = p.K, last = p.K - 1, i, j
    cdef long long a, b
    cdef double pull, bend, spread, bent = 0.0, shrunk = 0.0, quadratic = 0.0
    cdef const double *row
    memset(s.hessian, 0, K * K * sizeof(double))
    memset(s.gradient, 0, K * sizeof(double))
    for i in range(D):
        row, spread, bend = s.shares + i * D, 0.0, 0.0
        for j in range(D):
            spread += row[j] * s.scaled[j]
            bend += row[j] * row[j]
        bent += bend
        shrunk += row[i]
        quadratic += s.scaled[i] * spread
        a = p.group[i]
        if a < 0:
            continue
        s.gradient[a] += 0.5 * (s.scaled[i] * s.scaled[i] + row[i])
        for j in range(D):
            b = p.group[j]
            if b >= 0:
                s.hessian[a * K + b] += row[j] * (s.scaled[i] * s.scaled[j] + 0.5 * row[j])
        if p.tau <= 0.0:
            s.hessian[a * K + last] -= s.scaled[i] * spread + 0.5 * (bend - row[i])
    if p.tau <= 0.0:
        s.gradient[last] = 0.5 * misfit
        # tau d misfit/d log tau = -2 m'A Sigma A m - tr(I) + 2 tr(A Sigma) - tr(A Sigma A Sigma)
        s.hessian[last * K + last] = 0.5 * (2.0 * quadratic + <double> D - 2.0 * shrunk + bent)
    for i in range(K):
        pull = s.gradient[i] + p.rates[i] * exp(theta[i])        # s_k - g_k
        s.hessian[i * K + i] -= pull
        s.gradient[i] = p.shapes[i] - pull
        if p.tau <= 0.0:
            s.hessian[last * K + i] = s.hessian[i * K + last]


cdef double evaluate(Problem *p, Scratch *s, const double *theta, bint *regular) noexcept nogil:
    """The ELBO up to its constant at theta, with derivatives; mean, root of q(w) are left in the scratch."""
    cdef Py_ssize_t D = p.D, width = p.D + 1, i, j
    cdef double tau = p.tau, scale, value = 0.0, part, squares = 0.0, residual = 0.0, misfit
    for i in range(p.K):
        value += p.shapes[i] * theta[i] - p.rates[i] * exp(theta[i])
    if tau <= 0.0:
        tau = exp(theta[p.K - 1])
    scale = sqrt(tau)
    memset(s.below, 0, D * width * sizeof(double))
    for i in range(D):
        s.alpha[i] = p.known[i] if p.group[i] < 0 else exp(theta[p.group[i]])
        s.below[i * width + i] = sqrt(s.alpha[i])
        for j in range(D):
            s.triangle[i * width + j] = scale * p.factor[i * p.stride + j] if j >= i else 0.0
        s.triangle[i * width + D] = scale * p.target[i * p.target_stride]
    reflect_rows(p, s)
    regular[0] = invert_triangle(p, s)
    if not regular[0]:
        return -INFINITY
    misfit = fill_covariance(p, s, scale)
    for i in range(D + 1):
        part = p.target[i * p.target_stride]
        for j in range(i, D):
            part -= p.factor[i * p.stride + j] * s.mean[j]
        residual += (scale * part) * (scale * part)
    for i in range(D):
        s.scaled[i] = sqrt(s.alpha[i]) * s.mean[i]
        squares += s.scaled[i] * s.scaled[i]
        value -= log(fabs(s.triangle[i * width + i]))
    differentiate(p, s, theta, residual + misfit)
    return value - 0.5 * (residual + squares)


cdef bint solve(double *a, double *x, Py_ssize_t n) noexcept nogil:
    """x = a^-1 x of a symmetric matrix, whose upper triangle is overwritten by its factor; whether a is positive."""
    cdef Py_ssize_t i, j
    cdef double pivot
    for i in range(n):
        if not a[i * n + i] > 0.0:
            return False
        pivot = 1.0 / sqrt(a[i * n + i])
        for j in range(i, n):
            a[i * n + j] *= pivot
        for j in range(i + 1, n):
            add_multiple(-a[i * n + j], a + i * n + j, a + j * n + j, n - j)
        x[i] *= pivot
        add_multiple(-x[i], a + i * n + i + 1, x + i + 1, n - i - 1)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            x[i] -= a[i * n + j] * x[j]
        x[i] /= a[i * n + i]
    return True


cdef bint find_step(Problem *p, Scratch *s, const double *gradient, double damping) noexcept nogil:
    """step = (-H + damping diag s)^-1 g, H follows g; whether the matrix is positive definite."""
    cdef Py_ssize_t K = p.K, i
    for i in range(K * K):
        s.matrix[i] = -gradient[K + i]
    for i in range(K):
        s.matrix[i * K + i] += damping * p.shapes[i]
        s.step[i] = gradient[i]
    return solve(s.matrix, s.step, K)


cdef void propose(Problem *p, Scratch *s, double *state, double tol) noexcept nogil:
    """Find where to go from theta, and how much is gained there; sets the status if that is too little."""
    cdef Py_ssize_t K = p.K, i
    cdef double *theta = state + HEAD_SIZE
    cdef double *proposal = theta + K
    cdef double *gradient = proposal + K
    cdef double damping = state[2], longest = 0.0, slope = 0.0, bend = 0.0, share
    cdef bint positive = find_step(p, s, gradient, 0.0)
    state[4] = 0.0 if positive else INFINITY
    for i in range(K):
        state[4] += 0.5 * gradient[i] * s.step[i]
    if positive and state[4] <= max(tol, ELBO_ROUNDING * max(1.0, fabs(state[3]))):
        state[1] = CONVERGED
        return
    if not positive:
        damping = max(damping, MIN_LAMBDA)
    while damping > 0.0 and not find_step(p, s, gradient, damping) and damping <= MAX_LAMBDA:
        damping *= 10.0
    state[2] = damping
    if damping > MAX_LAMBDA:
        state[1] = NO_PROGRESS
    for i in range(K):
        longest = max(longest, fabs(s.step[i]))
        slope += gradient[i] * s.step[i]
        bend += damping * p.shapes[i] * s.step[i] * s.step[i]
    share = 1.0 if longest <= MAX_STEP else MAX_STEP / longest
    state[5] = share * slope - 0.5 * share * share * (slope - bend)
    for i in range(K):
        proposal[i] = theta[i] + share * s.step[i]
    if state[0] == 1.0:
        longest = 0.0
        for i in range(K):
            s.step[i] = -log1p(-gradient[i] / p.shapes[i])       # the plain sweep
            longest = max(longest, fabs(s.step[i]))
        if FAR_SWEEP < longest < INFINITY:
            for i in range(K):
                proposal[i] = theta[i] + s.step[i]


cdef void ascend(Problem *p, Scratch *s, double *state, double[::1] mean, double[:, ::1] root, double[:, ::1] trace,
                 Py_ssize_t most, double tol) noexcept nogil:
    """Evaluate `most` proposals, or fewer if the status is set before."""
    cdef Py_ssize_t K = p.K, D = p.D, n
    cdef double *theta = state + HEAD_SIZE
    cdef double *gradient = theta + 2 * K
    cdef double value
    cdef bint regular, first
    for _ in range(most):
        first = state[0] == 0.0
        value = evaluate(p, s, theta + K, &regular)
        n = <Py_ssize_t> state[0]
        state[0] += 1.0
        if value < INFINITY and (value >= state[3] or (first and isfinite(value))):
            if value - state[3] >= GOOD_SHARE * state[5]:
                state[2] = 0.0 if state[2] <= LEAST_LAMBDA else 0.1 * state[2]
            state[3] = value
            memcpy(theta, theta + K, K * sizeof(double))
            memcpy(gradient, s.gradient, K * sizeof(double))
            memcpy(gradient + K, s.hessian, K * K * sizeof(double))
            memcpy(&mean[0], s.mean, D * sizeof(double))
            memcpy(&root[0, 0], s.root, D * D * sizeof(double))
        elif first:
            state[1] = NOT_FINITE if regular else SINGULAR
            return
        else:
            state[2] = max(10.0 * state[2], FIRST_LAMBDA)
        propose(p, s, state, tol)
        trace[n, 0], trace[n, 1] = state[3], state[4]
        if state[1] != RUNNING:
            return


def climb(const double[:, :] factor,       # in (D + 1, D): the triangle of X
          const double[:] target,          # in (D + 1,): the column of y
          const long long[::1] group,      # in (D,): which of the learnt alpha, -1 where it is known
          const double[::1] known,         # in (D,): alpha where it is known
          const double[::1] shapes,        # in (K,): of the factors, that of the noise last
          const double[::1] rates,         # in (K,): of the priors
          double tau,                      # in: the precision of the noise, 0 where it is learnt
          double[::1] state,               # inout (6 + 3 K + K^2,): see the enum, theta, proposal, gradient, Hessian
          double[::1] mean,                # out (D,)
          double[:, ::1] root,             # out (D, D): of the covariance
          double[:, ::1] trace,            # out (max_iter, 2): ELBO up to its constant and predicted gain
          Py_ssize_t most,
          double tol, /):
    """Evaluate at most `most` points; state[1] says how that ended. `factor` has unit strides along its rows."""
    cdef Problem p
    cdef Scratch s
    cdef Py_ssize_t D = mean.shape[0], K = shapes.shape[0], width = D + 1
    cdef double *memory = <double *> calloc(2 * D * width + 3 * D * D + 4 * width + 2 * K * (K + 1) + 1, sizeof(double))
    if memory == NULL:
        state[1] = NO_MEMORY
        return
    p.D, p.K, p.tau = D, K, tau
    p.factor, p.stride = &factor[0, 0], factor.strides[0] // <Py_ssize_t> sizeof(double)
    p.target, p.target_stride = &target[0], target.strides[0] // <Py_ssize_t> sizeof(double)
    p.group, p.known = &group[0], &known[0]
    p.shapes, p.rates = &shapes[0] if K else NULL, &rates[0] if K else NULL
    s.triangle = memory
    s.below = s.triangle + D * width
    s.root = s.below + D * width
    s.transposed = s.root + D * D
    s.shares = s.transposed + D * D
    s.row = s.shares + D * D
    s.mean = s.row + width
    s.alpha = s.mean + width
    s.scaled = s.alpha + width
    s.gradient = s.scaled + width
    s.hessian = s.gradient + K
    s.matrix = s.hessian + K * K
    s.step = s.matrix + K * K
    with nogil:
        ascend(&p, &s, &state[0], mean, root, trace, most, tol)
    free(memory)
