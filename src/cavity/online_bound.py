"""The formulas of streaming sparse Gaussian processes as they stand in the literature: dense, and one function each.

A Gaussian process f ~ GP(0, k) was observed through the values a = f(Z_a) at old inducing points. What is left of the
old data is q(a) = N(m_a, S_a), found under the prior p"(a) = N(0, K"_aa) of the old kernel. Now there are new
observations y = f + noise, values b = f(Z_b) at new inducing points, and possibly another kernel, that of K_aa, K_ab,
K_bb, K_fb and K_ff. With q(f, b) = p(f | b) q(b), the best q(b) is ::

    q_opt(b) proportional to p(b) exp(E_1(b) + E_2(b)),
    E_1(b) = E[log q(a) - log p"(a) | b],   E_2(b) = E[log p(y | f) | b],

and the log of its normaliser is the collapsed online bound on log p(y | old data) [B]_, for the first batch the bound
of [T]_. `StreamingGP` does the same computation in a form that is stable over many batches and costs less; these
functions are for reading, for checking, and for building something else.

Notes
-----
In terms of beta = K_ab K_bb^-1 b, Q_a = K_aa - K_ab K_bb^-1 K_ba and D_a^-1 = S_a^-1 - K"_aa^-1, ::

    E_1(b) = log N(D_a S_a^-1 m_a; beta, D_a) + [log(|K"_aa| |D_a| / |S_a|) + M_a log(2 pi)
             - m_a" S_a^-1 m_a + m_a" S_a^-1 D_a S_a^-1 m_a - tr(D_a^-1 Q_a)]/2
           = log q(beta) - log p"(beta) - tr(D_a^-1 Q_a)/2,
    E_2(b) = log N(y; K_fb K_bb^-1 b, noise) - tr(noise^-1 Q_f)/2.

The second form of E_1 is the one computed: it needs D_a^-1 only, which is singular where the data say nothing, and
there D_a does not exist. In the tutorial [J]_ three things read differently: the definition of D_a in the box lacks the
inverse (it says D_a for what is D_a^-1); K_aa is written for two matrices, of which the one in D_a, and in the
determinant, is that of the old kernel (K"_aa) and the one in Q_a that of the new; and n in the derivation of E_1 is
M_a.

With alpha in (0, 1] the expectations are replaced by power means, (1/alpha) log E[exp(alpha log ...) | b]. These are
the fixed points of power expectation propagation; 0 is the limit of variational inference (VFE), and 1 gives for the
new rows the fully independent training conditional (FITC). What `bound` returns is then no bound but an estimate.

A prior mean is subtracted from y, m_a and b beforehand. An inducing variable may have a nugget (jitter) of its own: it
is part of K_bb, K_aa and K"_aa, and of the entries of K_ab where an old inducing variable is kept as a new one.

References
----------
.. [B] Thang D. Bui, Cuong V. Nguyen and Richard E. Turner, "Streaming sparse Gaussian process approximations", NIPS
   2017: equations (5) to (9), and the appendix for power expectation propagation.
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
.. [T] Michalis Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009: what
   is left for the first batch, with no old inducing points.
"""

from cavity.models.streaming_gp.online_bound import (
    bound,
    expected_log_likelihood,
    expected_log_ratio,
    free_energy,
    optimal,
)

__all__ = ["bound", "expected_log_likelihood", "expected_log_ratio", "free_energy", "optimal"]
