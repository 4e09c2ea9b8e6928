"""Symbolic Cholesky factors: the pattern of the factor L of a symmetric matrix.

Davis, Direct Methods for Sparse Linear Systems (SIAM 2006), chapter 4. Pivots are numbered in the order of elimination.
The tree of elimination: the parent of a pivot is the row of the first entry below it in L. The rows of column j are
those of the matrix and those of its children. A supernode is a path of neighbouring pivots whose columns are stored as
one dense panel: its own w rows, then the b rows below, which its columns share, by rows of w entries.

Functions that may take long stop after `budget` steps and return where to go on.
"""

from libc.math cimport INFINITY


def permuted(const long long[::1] indptr,   # in    (n + 1,)
             const int[::1] indices,         # in    the pattern by columns, each entry in one triangle or both
             const int[::1] place,           # in    (n,): number of the pivot of each column
             long long[::1] at,              # out   (n + 1,)
             int[::1] earlier, /):           # out   by pivots: those before it with which it has an entry
    """The strict lower triangle of the permuted matrix, by rows."""
    cdef Py_ssize_t n = place.shape[0], j, e
    cdef int p, q
    with nogil:
        at[:] = 0
        for j in range(n):
            for e in range(indptr[j], indptr[j + 1]):
                p, q = place[indices[e]], place[j]
                if p != q:
                    at[max(p, q)] += 1
        for j in range(1, n + 1):
            at[j] += at[j - 1]
        for j in range(n):                   # from the end of each row to its beginning
            for e in range(indptr[j], indptr[j + 1]):
                p, q = place[indices[e]], place[j]
                if p != q:
                    at[max(p, q)] -= 1
                    earlier[at[max(p, q)]] = min(p, q)


def tree(const long long[::1] at,           # in    (n + 1,)
         const int[::1] earlier,
         int[::1] ancestor,                  # work  (n,)
         int[::1] parent, /):                # out   (n,): -1 at roots
    """The tree of elimination; Liu, The role of elimination trees in sparse factorization (1990), algorithm 4.2."""
    cdef Py_ssize_t n = parent.shape[0], k, e
    cdef int i, above
    with nogil:
        for k in range(n):
            parent[k] = ancestor[k] = -1
            for e in range(at[k], at[k + 1]):
                i = earlier[e]
                while i != -1 and i < k:
                    above = ancestor[i]
                    ancestor[i] = <int> k
                    if above == -1:
                        parent[i] = <int> k
                    i = above


def count(const long long[::1] at,          # in    (n + 1,)
          const int[::1] earlier,
          const int[::1] parent,             # in    (n,)
          int[::1] mark,                     # inout (n,): zeros at first
          int[::1] counts,                   # inout (n,): entries of the columns of L in rows before `start`
          Py_ssize_t start,
          Py_ssize_t budget, /):
    """Add the entries of L in rows from `start` on; return the row to go on with."""
    cdef Py_ssize_t n = parent.shape[0], k = start, e
    cdef int i
    with nogil:
        while k < n and budget > 0:
            mark[k] = <int> k
            counts[k] += 1
            for e in range(at[k], at[k + 1]):
                i = earlier[e]
                while mark[i] != k:
                    mark[i] = <int> k
                    counts[i] += 1
                    budget -= 1
                    i = parent[i]
            budget -= 1 + at[k + 1] - at[k]
            k += 1
    return k


def order_by_fill(const long long[::1] at,  # in    (n + 1,)
                  int[::1] lists,            # inout the neighbours of each column, in both triangles
                  int[::1] length,           # inout (n,): of these lists
                  double[::1] score,         # inout (n,): squares of the lengths, then twice the fill, about
                  int[::1] step_of,          # inout (2 n,): -1 at first; columns and elements: the last step they met
                  long long[::1] begin,      # inout (n + 1,): zeros; where the rows of elements begin, and the next
                  int[::1] size,             # inout (2 n,): zeros; rows of elements, and those that the last one lacks
                  int[::1] rows,             # inout of elements: as many as there may be entries of L below its pivots
                  int[::1] order,            # out   (n,)
                  Py_ssize_t start,
                  Py_ssize_t budget, /):
    """Go on to eliminate the column of least fill; return the step to go on with, and n + 1 where `rows` are too few.

    An element is what the rows of a pivot e have become: neighbours of each other [ADD]_. The list of a column has its
    other neighbours v, and its elements as ~e. Let the last element have c + 1 rows, and another one s, of which w are
    not among them. Then the fill of a column of d neighbours is, as if no two of the others shared such rows [RE]_,

        (d^2 - c^2 - sum of w (2 s - w - 2))/2.

    .. [ADD] P. R. Amestoy, T. A. Davis and I. S. Duff, "An approximate minimum degree ordering algorithm", SIAM
       Journal on Matrix Analysis and Applications 17, 1996.
    .. [RE] E. Rothberg and S. C. Eisenstat, "Node selection strategies for bottom-up sparse matrix ordering", SIAM
       Journal on Matrix Analysis and Applications 19, 1998.
    """
    cdef Py_ssize_t n = order.shape[0], step = start, j, k
    cdef long long free, to
    cdef int p, i, x, e, now
    cdef double c, d, w, inside, least
    cdef const double *scores = &score[0]
    with nogil:
        while step < n and budget > 0:
            p, now, free, least = 0, <int> step, begin[n], INFINITY
            for j in range(n):
                if scores[j] < least:
                    p, least = <int> j, scores[j]
            if free + n - step > rows.shape[0]:
                step = n + 1
                break
            order[step], score[p], step_of[p], begin[p] = p, INFINITY, now, free
            for j in range(at[p], at[p] + length[p]):        # its rows, of its elements and other neighbours
                x = lists[j]
                e = ~x if x < 0 else p
                for k in range(begin[e] if x < 0 else j, begin[e] + size[e] if x < 0 else j + 1):
                    i = rows[k] if x < 0 else x
                    if step_of[i] != now:
                        step_of[i] = now
                        rows[free] = i
                        free += 1
                size[e] = 0
            size[p], begin[n] = <int> (free - begin[p]), free
            for k in range(begin[p], free):                  # what other elements have besides
                for j in range(at[rows[k]], at[rows[k]] + length[rows[k]]):
                    e = ~lists[j]
                    if e >= 0 and size[e]:
                        if step_of[n + e] != now:
                            step_of[n + e], size[n + e] = now, size[e]
                        size[n + e] -= 1
            for k in range(begin[p], free):
                i, to = rows[k], at[rows[k]]
                d = c = size[p] - 1.0
                inside = c * c
                for j in range(at[i], at[i] + length[i]):
                    x = lists[j]
                    if x >= 0 and step_of[x] != now:
                        d += 1.0
                    elif x < 0 and size[~x] and size[n + ~x]:
                        w = size[n + ~x]
                        d += w
                        inside += w * (2.0 * size[~x] - w - 2.0)
                    else:
                        continue
                    lists[to] = x
                    to += 1
                lists[to], length[i] = ~p, <int> (to + 1 - at[i])
                d = min(d, n - step - 2.0)
                score[i] = d * d - inside
                budget -= length[i]
            budget -= n // 16                # the search for the least, of eight numbers at a time
            step += 1
    return step


def postorder(const int[::1] parent,        # in    (n,)
              const int[::1] nodes,          # in    (n,): all of them, those that shall come last among sisters first
              int[::1] first,                # work  (n + 1,)
              int[::1] sister,               # work  (n,)
              int[::1] order, /):            # out   (n,)
    """Children before parents, each subtree in one piece."""
    cdef Py_ssize_t n = parent.shape[0], k, done = 0, home
    cdef int node
    with nogil:
        first[:] = -1
        for k in range(n):
            home = parent[nodes[k]] if parent[nodes[k]] >= 0 else n
            sister[nodes[k]] = first[home]
            first[home] = nodes[k]
        node = first[n]
        while node >= 0:
            while first[node] >= 0:
                node = first[node]
            order[done] = node
            done += 1
            while sister[node] < 0 and parent[node] >= 0:
                node = parent[node]
                order[done] = node
                done += 1
            node = sister[node]


cdef inline double seconds(double width, double rows, double call, double spread, double entry) noexcept nogil:
    """What a supernode costs, in products at the speed of BLAS: its products, its updates, its entries and itself."""
    return call + rows * (rows * (width + spread) + entry * width)


def supernodes(const int[::1] parent,       # in    (n,): in postorder
               const int[::1] counts,        # in    (n,)
               const double[::1] prices,     # in    (3,): of a supernode, an entry of its update, one of its panel
               int[::1] first,               # out   (n + 1,): first pivots of the supernodes, then n
               int[::1] rows, /):            # work  (n,): rows of their panels
    """Cut the pivots into supernodes; return how many.

    A child with the same rows is joined to its parent, and one with fewer where that is cheaper than two supernodes.
    """
    cdef Py_ssize_t n = parent.shape[0], j, done = 0, s = 0
    cdef double call = prices[0], spread = prices[1], entry = prices[2], one, two
    cdef int start, stop, width, upper
    with nogil:
        for j in range(n):
            if j == 0 or parent[j - 1] != j or counts[j - 1] != counts[j] + 1:
                first[done] = <int> j
                rows[done] = counts[j]
                done += 1
        first[done] = <int> n
        for j in range(done):                # s of them so far, the last one with all that was joined to it
            start, stop = first[j], first[j + 1]
            upper = rows[j]
            while s > 0 and parent[start - 1] == start:
                width = start - first[s - 1]
                two = (seconds(width, rows[s - 1], call, spread, entry)
                       + seconds(stop - start, upper, call, spread, entry))
                one = seconds(stop - first[s - 1], upper + width, call, spread, entry)
                if one > two:
                    break
                s -= 1
                start = first[s]
                upper += width
            first[s] = start
            rows[s] = upper
            s += 1
        first[s] = <int> n
    return s


def below(const long long[::1] at,          # in    (n + 1,)
          const int[::1] earlier,
          const int[::1] member,             # in    (n,): supernode of each pivot
          const int[::1] parent,             # in    (S,): of the supernodes
          int[::1] mark,                     # inout (S,): -1 at first
          long long[::1] free,               # inout (S,): where the next row of each supernode goes
          int[::1] rows,                     # inout rows below the supernodes, ascending
          Py_ssize_t start,
          Py_ssize_t budget, /):
    """Enter rows from `start` on below the supernodes with entries of L in them; return where to go on."""
    cdef Py_ssize_t n = member.shape[0], k = start, e
    cdef int s
    with nogil:
        while k < n and budget > 0:
            mark[member[k]] = <int> k
            for e in range(at[k], at[k + 1]):
                s = member[earlier[e]]
                while mark[s] != k:
                    mark[s] = <int> k
                    rows[free[s]] = <int> k
                    free[s] += 1
                    budget -= 1
                    s = parent[s]
            budget -= 1 + at[k + 1] - at[k]
            k += 1
    return k


def sources(const int[::1] first,           # in    (S + 1,)
            const long long[::1] rows_at,    # in    (S + 1,)
            const int[::1] rows,             # in    rows below the supernodes
            const int[::1] member,           # in    (n,)
            long long[::1] at,               # inout (S + 1,): zeros, or with `source` the sums of what was counted
            double[::1] work,                # out   (S,): products of the updates of each supernode
            int[::1] source,                 # out   by supernodes: those that have rows in it, ascending; empty: count
            int[::1] begin, /):              # out   the number, below the source, of the first of these rows
    """Which supernodes update which."""
    cdef Py_ssize_t S = first.shape[0] - 1, s, k, b, start
    cdef int t
    cdef const int *r
    with nogil:
        for s in range(S):
            r, b, k = &rows[0] + rows_at[s], rows_at[s + 1] - rows_at[s], 0
            while k < b:
                t, start = member[r[k]], k
                while k < b and r[k] < first[t + 1]:
                    k += 1
                if source.shape[0]:
                    source[at[t]] = <int> s
                    begin[at[t]] = <int> start
                    work[t] += <double> (k - start) * (b - start) * (first[s + 1] - first[s])
                    at[t] += 1
                else:
                    at[t + 1] += 1


def rounds(const int[::1] parent,           # in    (S,)
           const double[::1] cost,             # in    (S,)
           double limit,                     # in    of a task of one thread
           int[::1] task,                    # out   (S,): its first supernode from the root, so that tasks are subtrees
           int[::1] turn,                    # inout (S,): zeros, then the round of its task
           double[::1] load, /):             # inout (S,): zeros, then the cost of its task so far
    """Cut the tree into rounds of independent tasks: subtrees of what the rounds before have left.

    A supernode above the limit is a task alone.
    """
    cdef Py_ssize_t S = parent.shape[0], s
    cdef int p
    with nogil:
        for s in range(S):                   # turn and load: those of the children with the last round
            if load[s] > 0.0 and load[s] + cost[s] > limit:
                turn[s] += 1
                load[s] = 0.0
            load[s] += cost[s]
            p = parent[s]
            if p >= 0:
                if turn[s] > turn[p]:
                    turn[p] = turn[s]
                    load[p] = 0.0
                if turn[s] == turn[p]:
                    load[p] += load[s]
        for s in range(S - 1, -1, -1):
            p = parent[s]
            task[s] = task[p] if p >= 0 and turn[p] == turn[s] else <int> s
