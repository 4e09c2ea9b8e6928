"""Moments of one Gaussian times one likelihood given by its logarithm alone, for arrays of sites at a time.

For a cavity N(m, v) and a likelihood p the tilted distribution is N(f; m, v) p(f)/Z. Everything that EP wants of it is

    log Z,    d1 = (E[f] - m)/v = E[l'],    d2 = (Var[f]/v - 1)/v = E[l''] + Var[l'],    shrink = Var[f]/v

with l = log p; d1 and d2 are derivatives of log Z in m, and the right-hand sides hold where p is smooth (Stein). Three
steps, each over all sites of a chunk at once:

1. l is evaluated on a grid of the cavity: Chebyshev points over 8 sd, and a graded part from 8^-7 to 64 sd; where the
   tilted density still rises at the ends of the grid, on the same grid 64 times as wide.
2. Where l changes little over the 8 sd and its Chebyshev coefficients fall to rounding errors, the Gaussian integrals
   of l' and l'' of its interpolant are the answer. The moments would not do: there Var[f]/v - 1 is all cancellation.
   As l'' from points H apart has an error eps l/H^2, the interval widens for as long as that lowers the error.
3. Elsewhere a search closes in on the local maxima of l and of the tilted density and on the ends of the support. What
   it saw on its way are the edges of panels; panels are halved until Gauss-Lobatto rules agree on all moments.
"""

import numpy as np
from numpy.polynomial import chebyshev, hermite_e, legendre

CHUNK = 4096  # sites at a time: bounds the memory
TOLERANCE = 1e-11  # of a panel, relative to the whole of a site
PROMISED = 1e-10  # of a site
FINEST = 1e-3  # part of the tolerance at which rounding errors of a sum begin

REACH, POINTS, DEGREE = 8.0, 51, 24  # half-width in sd, points and degree of the Chebyshev interpolants
CHEBYSHEV = np.sort(np.append(np.cos(np.pi * (np.arange(POINTS // 2) + 0.5) / POINTS) * [[1.0], [-1.0]], 0.0))
COEFFICIENTS = 2.0 / POINTS * chebyshev.chebvander(CHEBYSHEV, POINTS - 1)
COEFFICIENTS[:, 0] *= 0.5
FLAT = 2.0  # change of l over the grid in nats up to which the Hermite rule is exact
HERMITE, HERMITE_WEIGHTS = hermite_e.hermegauss(20)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / HERMITE_WEIGHTS.sum()
WIDENING = 8.0 ** np.arange(8)  # of the interval on which l is interpolated
STEADY = 1e-13  # error of d2 from which on wider intervals are not tried
STEEP = 100.0  # change of l over a wider interval at which rounding errors begin to grow

_GRADED = np.concatenate([8.0 ** np.arange(-7, 1), [10.0, 12.0, 16.0, 20.0, 25.0, 32.0, 40.0, 50.0, 64.0]])
GRID = np.sort(np.concatenate([REACH * CHEBYSHEV, _GRADED, -_GRADED]))
INNER = np.searchsorted(GRID, REACH * CHEBYSHEV)  # where the Chebyshev points are in the grid
FARTHER = 64.0, 3  # growth of the grid where the density rises at its ends, and how often
ZOOM = np.arange(17) / 16.0  # points between the neighbours of a local maximum
ZOOMS = 20  # each divides the width by 8
RESOLVED = 1.0  # nats a maximum may be above its neighbours before one looks closer
PANELS = np.array([-64.0, -12.0, -7.0, -4.0, -2.0, 0.0, 2.0, 4.0, 7.0, 12.0, 64.0])  # edges for every site, in sd
CUT = 120.0  # nats below the top at which the end of the support no longer matters
CANDIDATES = 64  # maxima per site that are followed at a time

ORDER = 24  # of the Gauss-Lobatto rule; its end points see what hides between a panel's edge and the next node
_SLOPE, _BEND = (legendre.legder(np.eye(ORDER + 1)[-1], k) for k in (1, 2))
NODES = np.concatenate([[-1.0], legendre.legroots(_SLOPE), [1.0]])
NODES[1:-1] -= legendre.legval(NODES[1:-1], _SLOPE) / legendre.legval(NODES[1:-1], _BEND)
_LEGENDRE = legendre.legvander(NODES, ORDER)
WEIGHTS = 2.0 / (ORDER * (ORDER + 1) * _LEGENDRE[:, -1] ** 2)
_SERIES = WEIGHTS[:, None] * _LEGENDRE * (2.0 * np.arange(ORDER + 1) + 1.0)
RULES = np.column_stack([WEIGHTS, WEIGHTS * NODES, WEIGHTS * NODES**2, _SERIES[:, -5:-1]])  # moments, last coefficients
NOISE = 1e-7  # part of a panel at which an error that halving does not lower is taken for rounding errors of log p
SHARP = 0.6  # part of its variation that a density makes in one step where it jumps
DEPTH, MOST = 80, 2000  # cuts of a panel, and panels of a site


class _Likelihood:
    """log p of some sites, its values checked."""

    def __init__(self, log_p, index, mean, variance):
        self.log_p, self.index, self.mean, self.variance, self.sd = log_p, index, mean, variance, np.sqrt(variance)

    def __len__(self):
        return self.index.size

    def __call__(self, f, site):
        """Return log p at the rows f of the sites `site`, counted among these."""
        index, f = self.index[site], f.view()
        f.flags.writeable = False
        values = np.asarray(self.log_p(f, index), dtype=np.float64)
        if values.shape != f.shape:
            at = f"sites {index[0]} to {index[-1]} at f = {f[0, 0]:g}, ..."
            raise ValueError(f"log_p must return an array of shape {f.shape}, got {values.shape} for {at}")
        wrong = ~(values < np.inf)
        if wrong.any():
            i, k = np.argwhere(wrong)[0]
            raise ValueError(f"log_p must be finite or -inf, got {values[i, k]} for site {index[i]} at f = {f[i, k]!r}")
        return values

    def take(self, sites):
        return _Likelihood(self.log_p, self.index[sites], self.mean[sites], self.variance[sites])

    def refuse(self, site, what):
        where = f"with cavity mean {self.mean[site]:g} and sd {self.sd[site]:g}"
        raise ValueError(f"log_p of site {self.index[site]} {where} {what}")


def log_tilted(log_p, mean, variance):
    """Log normaliser of cavity times likelihood and its first two derivatives in the cavity's mean.

    Parameters
    ----------
    log_p : callable
        log_p(f, index) -> log p of the site index[i] at f[i, :], for f (n, k) and index (n,); -inf is allowed.
    mean, variance : ndarray (N,)
        Moments of the cavities, finite, variances positive.

    Returns
    -------
    log_z, d1, d2, shrink : ndarray (N,)
        As in the head of this file; shrink = 1 + variance d2, without cancellation.

    Notes
    -----
    The error of log_z is 1e-10, relative where |log_z| > 1, that of d1 is 1e-10/sd, those of variance d2 and of shrink
    are 1e-10, or larger by what float64 loses inside log_p: rounding errors of log p of a size e cannot but give errors
    e, e/sd and e/variance, where l is not smooth enough for wider intervals. Neither can a jump or kink be placed more
    finely than the spacing of float64 at f.

    Nothing is known of log_p between the points where it is evaluated: a feature must be seen, as a slope that leads to
    it or as a value, from a grid of half an sd, finer towards the cavity's mean. A spike much narrower than that, on a
    likelihood that is flat around it, can be missed.
    """
    results = np.empty((4, mean.size))
    with np.errstate(all="ignore"):
        for start in range(0, mean.size, CHUNK):
            part = slice(start, min(start + CHUNK, mean.size))
            index = np.arange(part.start, part.stop)
            results[:, part] = _chunk(_Likelihood(log_p, index, mean[part], variance[part]))
    return tuple(results)


def _chunk(likelihood):
    f, log_p, scale, results = *_look(likelihood), np.empty((4, len(likelihood)))
    smooth = np.flatnonzero((np.ptp(log_p[:, INNER], axis=1) <= FLAT) & (scale == likelihood.sd))
    if smooth.size:
        results[:, smooth], good = _smooth(likelihood.take(smooth), log_p[smooth][:, INNER])
        smooth = smooth[good]
    rest = np.delete(np.arange(len(likelihood)), smooth)
    if rest.size:
        results[:, rest] = _adaptive(likelihood.take(rest), f[rest], log_p[rest], scale[rest])
    return results


def _look(likelihood):
    """Return the grid, log p there, and the unit of the grid, which is the cavity's sd but for the farthest tails."""
    mean, sd, scale = likelihood.mean, likelihood.sd, likelihood.sd.copy()
    f = mean[:, None] + scale[:, None] * GRID
    todo = np.arange(len(likelihood))
    log_p = likelihood(f, todo).copy()
    for _ in range(FARTHER[1] + 1):
        log_h = log_p[todo] - 0.5 * ((f[todo] - mean[todo, None]) / sd[todo, None]) ** 2
        todo = todo[np.isin(np.argmax(log_h, axis=1), (0, GRID.size - 1))]  # nothing but -inf counts as the first
        if not todo.size:
            return f, log_p, scale
        scale[todo] *= FARTHER[0]
        f[todo] = mean[todo, None] + scale[todo, None] * GRID
        log_p[todo] = likelihood(f[todo], todo)
    zero = np.isneginf(log_p[todo]).all(axis=1)
    site = todo[np.argmax(zero)]
    likelihood.refuse(site, "is -inf wherever it was evaluated" if zero.any() else "rises faster than the cavity falls")


# ---------------------------------------------------------------------------------------------- smooth likelihoods


def _bases():
    """Chebyshev polynomials on each interval at the nodes of the Hermite rule, and their derivatives in units of sd."""
    for wider in WIDENING:
        z, unit = HERMITE / (REACH * wider), np.eye(DEGREE + 1)
        yield tuple(
            np.ascontiguousarray(chebyshev.chebval(z, chebyshev.chebder(unit, k) if k else unit)) / (REACH * wider) ** k
            for k in range(3)
        )


BASES = tuple(_bases())


def _smooth(likelihood, log_p):
    """Return the results by interpolation of log p, given at the Chebyshev points, and where they are good."""
    sd = likelihood.sd
    results, error = np.empty((4, sd.size)), np.full(sd.size, np.inf)
    good, todo = np.zeros(sd.size, dtype=bool), np.arange(sd.size)
    for wider, bases in zip(WIDENING, BASES, strict=True):
        if wider > 1.0:
            f = likelihood.mean[todo, None] + (REACH * wider) * sd[todo, None] * CHEBYSHEV
            log_p = likelihood(f, todo)
        centre = log_p[:, POINTS // 2]
        change = log_p - centre[:, None]
        size = np.abs(change).max(axis=1)
        coefficients = change @ COEFFICIENTS
        tail = np.abs(coefficients[:, DEGREE + 1 :]).max(axis=1)
        rounding = np.finfo(float).eps * np.abs(log_p).max(axis=1)
        rounding += size * np.spacing(np.abs(likelihood.mean[todo])) / (REACH * wider * sd[todo])
        tail = np.where((size <= STEEP) & (tail <= rounding), tail + 0.1 * rounding, np.inf) / wider**2
        better = tail < error[todo]
        todo, centre, coefficients = todo[better], centre[better], coefficients[better, : DEGREE + 1]
        error[todo], good[todo] = tail[better], True
        log_ratio, slope, curvature = (coefficients @ basis for basis in bases)
        log_z = np.log1p(np.expm1(log_ratio) @ HERMITE_WEIGHTS)
        weights = np.exp(log_ratio - log_z[:, None]) * HERMITE_WEIGHTS
        d1 = np.sum(weights * slope, axis=1)
        slope -= d1[:, None]
        d2 = np.sum(weights * (curvature + slope * slope), axis=1)
        results[:, todo] = centre + log_z, d1 / sd[todo], d2 / sd[todo] ** 2, 1.0 + d2
        todo = todo[error[todo] > STEADY * (np.abs(d2) + d1 * d1)]
        if not todo.size:
            break
    return results, good


# ---------------------------------------------------------------------------------------------- all the others


def _unresolved(log_p, log_h, floor):
    """Mark local maxima of log p and log h that stick out, and what is next to a zero of p; not the first and last."""
    mask = np.zeros(log_p.shape, dtype=bool)
    for values in (log_p, log_h):
        left, right = values[:, 1:-1] - values[:, :-2], values[:, 1:-1] - values[:, 2:]
        rise = np.maximum(left, right)
        mask[:, 1:-1] |= (left >= 0.0) & (right > 0.0) & (rise > RESOLVED)
    mask[:, 1:-1] |= (rise == np.inf) & (log_h[:, 1:-1] > floor[:, None])
    return mask


def _search(likelihood, f, log_p):
    """Close in on maxima and ends of the support.

    Returns the highest points, (log p - (f - mean)^2/(2 v), f, log p) of each site, and (site, f) of what was passed.
    """
    mean, sd = likelihood.mean, likelihood.sd
    site, top, passed = np.arange(mean.size), np.full((3, mean.size), -np.inf), []
    for _ in range(ZOOMS):
        log_h = log_p - 0.5 * ((f - mean[site, None]) / sd[site, None]) ** 2
        row, column = np.arange(site.size), np.argmax(log_h, axis=1)
        best = np.array([values[row, column] for values in (log_h, f, log_p)])
        row = np.argsort(best[0], kind="stable")  # the highest of a site comes last and stays
        row = row[best[0, row] > top[0, site[row]]]
        top[:, site[row]] = best[:, row]
        row, column = np.nonzero(_unresolved(log_p, log_h, top[0, site] - CUT))
        low, middle, high = (f[row, column + k] for k in (-1, 0, 1))
        site = site[row]
        passed.append((np.tile(site, 3), np.concatenate([low, middle, high])))
        wide = high - low > 32.0 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        site, low, high = site[wide], low[wide], high[wide]
        if not 0 < site.size <= CANDIDATES * mean.size:
            break
        f = low[:, None] + (high - low)[:, None] * ZOOM
        log_p = likelihood(f, site)
    return top, [np.concatenate(column) for column in zip(*passed, strict=True)]


def _measure(likelihood, top, site, left, right):
    """Apply the rule to the tilted density over its value at the top.

    Returns the moments 0, 1, 2 of panels about their centres and the error of the first, and where to cut: in the
    middle, or on both sides of where the density jumps.
    """
    half = 0.5 * (right - left)
    step = half[:, None] * (1.0 + NODES)
    f, t = left[:, None] + step, (left - top[1, site])[:, None] + step
    offset = (top[1] - likelihood.mean)[site, None]
    h = np.exp(likelihood(f, site) - top[2, site, None] - t * (0.5 * t + offset) / likelihood.variance[site, None])
    sums = (h @ RULES).T * half
    sums[1] *= half
    sums[2] *= half * half
    changes = np.abs(np.diff(h, axis=1))
    row, cell = np.arange(site.size), np.argmax(changes, axis=1)
    sharp, middle = changes[row, cell] > SHARP * changes.sum(axis=1), left + half
    cuts = (np.where(sharp, f[row, cell + k], middle) for k in (0, 1))
    return np.array([*sums[:3], np.abs(sums[3:]).max(axis=0), *cuts])


def _adaptive(likelihood, f, log_p, scale):
    """Return the results by adaptive quadrature, given the grid and log p there."""
    n, variance = len(likelihood), likelihood.variance
    top, (site, edges) = _search(likelihood, f, log_p)
    change = np.where(scale == likelihood.sd, np.ptp(log_p[:, INNER], axis=1), np.inf)
    tolerance = TOLERANCE * np.fmin(np.fmax(change, FINEST), 1.0) + 4.0 * np.finfo(float).eps * np.abs(top[2])

    site = np.append(site, np.repeat(np.arange(n), PANELS.size))
    edges = np.append(edges, likelihood.mean[:, None] + scale[:, None] * PANELS)
    order = np.lexsort((edges, site))
    site, edges = site[order], edges[order]
    inside = (site[1:] == site[:-1]) & (edges[1:] > edges[:-1])
    site, left, right = site[1:][inside], edges[:-1][inside], edges[1:][inside]
    values, final = _measure(likelihood, top, site, left, right), np.zeros(site.size, dtype=bool)

    def total(moment):
        return np.bincount(site, weights=moment, minlength=n)

    for _ in range(DEPTH):
        centre, half = left - top[1, site] + 0.5 * (right - left), 0.5 * (right - left)
        norm = total(values[0])
        mean = total(values[1] + centre * values[0]) / norm
        centre -= mean[site]
        spread = total(values[2] + 2.0 * centre * values[1] + centre * centre * values[0]) / norm
        farthest = (np.abs(centre) + half) ** 2 / np.maximum(spread, np.finfo(float).tiny)[site]
        error = np.where(values[3] > 0.0, values[3] * np.maximum(farthest, 1.0) / norm[site], 0.0)
        rough = ~(error <= tolerance[site]) & ~final
        rough &= half > 2.0 * np.spacing(np.maximum(np.abs(left), np.abs(right)))
        split = rough & (np.bincount(site, minlength=n) <= MOST)[site]
        if not split.any():
            break
        edges, old = np.array([left, *values[4:], right])[:, split], values[:, split]
        inside = edges[1:] > edges[:-1]
        new = np.broadcast_to(site[split], inside.shape)[inside], edges[:-1][inside], edges[1:][inside]
        fresh, errors = _measure(likelihood, top, *new), np.zeros(inside.shape)
        errors[inside] = fresh[3]
        noisy = (errors[[0, 2]].min(axis=0) > old[3] / 16.0) & (old[3] < NOISE * old[0]) & ~inside[1]
        site, left, right = (np.append(a[~split], b) for a, b in zip((site, left, right), new, strict=True))
        values = np.append(values[:, ~split], fresh, axis=1)
        final = np.append(final[~split], np.broadcast_to(noisy, inside.shape)[inside])
    failed = ~(total(np.where(rough, error, 0.0)) <= PROMISED)
    if failed.any():
        likelihood.refuse(np.argmax(failed), "cannot be integrated to 1e-10")
    offset, shrink = top[1] - likelihood.mean, spread / variance
    log_z = top[2] - 0.5 * offset**2 / variance + np.log(norm / np.sqrt(2.0 * np.pi * variance))
    return log_z, (offset + mean) / variance, (shrink - 1.0) / variance, shrink
