"""Moments of one Gaussian times one likelihood that is known by its logarithm alone, for arrays of sites.

For a cavity N(m, v) and a likelihood p the tilted distribution is N(f; m, v) p(f)/Z. EP needs of it, with l = log p,

    log Z,    d1 = (E[f] - m)/v = E[l'],    d2 = (Var[f]/v - 1)/v = E[l''] + Var[l'],    shrink = Var[f]/v.

d1 and d2 are derivatives of log Z in m; the forms in l' and l'' hold where p is smooth (Stein's identity). Three steps,
each over all sites of a chunk at once:

1. l is evaluated on a grid: Chebyshev points over 8 sd of the cavity, and graded points from 8^-7 to 64 sd. Where the
   tilted density is highest at an end of the grid, or p is zero all over it, the same again 64 times as wide.
2. Where l changes little over the 8 sd and its Chebyshev coefficients fall to rounding errors, the Gaussian integrals
   of l' and l'' of its interpolant are the answer; Var[f]/v - 1 would be all cancellation. l'' from points H apart has
   an error eps |l|/H^2, so the interval is widened for as long as that pays.
3. Elsewhere a search closes in on the local maxima of l and of the tilted density and on the ends of the support. What
   it passes become edges of panels, which are halved until the last Legendre coefficients on each are negligible.
"""

import numpy as np
from numpy.polynomial import chebyshev, hermite_e, legendre

from cavity.likelihoods.trapezoidal_rule import COARSE_RULE, FINE_RULE, MAX_END_MASS, NEAR_CENTRE_POINTS

SITES_PER_CHUNK = 1024  # sites at a time: bounds the memory
PANELS_PER_CHUNK = 1024  # panels at a time: few enough for the cache
FLOAT64_EPSILON = np.finfo(float).eps

# half-width in sd, points and degree of the interpolants of l
GRID_REACH_SD, CHEBYSHEV_POINTS, CHEBYSHEV_DEGREE = 8.0, 51, 24
CHEBYSHEV_NODES = np.sort(
    np.append(np.cos(np.pi * (np.arange(CHEBYSHEV_POINTS // 2) + 0.5) / CHEBYSHEV_POINTS) * [[1.0], [-1.0]], 0.0)
)
CHEBYSHEV_TRANSFORM = 2.0 / CHEBYSHEV_POINTS * chebyshev.chebvander(CHEBYSHEV_NODES, CHEBYSHEV_POINTS - 1)
CHEBYSHEV_TRANSFORM[:, 0] *= 0.5
_GRADED_NODES = np.concatenate([8.0 ** np.arange(-7, 1), [10.0, 12.0, 16.0, 20.0, 25.0, 32.0, 40.0, 50.0, 64.0]])
GRID_NODES = np.sort(np.concatenate([GRID_REACH_SD * CHEBYSHEV_NODES, _GRADED_NODES, -_GRADED_NODES]))
# where the Chebyshev points are in the grid
CHEBYSHEV_IN_GRID = np.searchsorted(GRID_NODES, GRID_REACH_SD * CHEBYSHEV_NODES)
GRID_GROWTH, MAX_GRID_GROWTHS = 64.0, 5  # growth of the grid, and how often

MAX_SMOOTH_CHANGE_NATS = 2.0  # change of l over the inner grid, in nats, up to which the Hermite rule is exact
HERMITE_NODES, HERMITE_WEIGHTS = hermite_e.hermegauss(20)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / HERMITE_WEIGHTS.sum()
INTERVAL_WIDTHS = 8.0 ** np.arange(8)  # intervals of interpolation, relative to the first
MAX_INTERVAL_CHANGE_NATS = 100.0  # change of l over one of them from which on it is no use
MAX_CURVATURE_ERROR = 1e-13  # relative rounding error in l'' at which not to look for a wider one

MAX_UNRESOLVED_NATS = 1.0  # nats by which a maximum may exceed its neighbours before one looks closer
SUPPORT_NATS = 120.0  # nats below the top at which the end of the support no longer matters
ZOOM_POINTS, MAX_ZOOMS = np.arange(8) / 8.0, 20  # points between a maximum and its neighbours, and how often
MAX_MAXIMA_PER_SITE = 64  # maxima per site that are followed at a time

LOBATTO_ORDER = 24  # of the Gauss-Lobatto rule; its end points see what hides between a panel's edge and the next node
_LEGENDRE_SLOPE, _LEGENDRE_CURVATURE = (legendre.legder(np.eye(LOBATTO_ORDER + 1)[-1], k) for k in (1, 2))
LOBATTO_NODES = np.concatenate([[-1.0], legendre.legroots(_LEGENDRE_SLOPE).real, [1.0]])  # complex from NumPy 2.5 on
LOBATTO_NODES[1:-1] -= legendre.legval(LOBATTO_NODES[1:-1], _LEGENDRE_SLOPE) / legendre.legval(
    LOBATTO_NODES[1:-1], _LEGENDRE_CURVATURE
)
_LEGENDRE_VALUES = legendre.legvander(LOBATTO_NODES, LOBATTO_ORDER)
LOBATTO_WEIGHTS = 2.0 / (LOBATTO_ORDER * (LOBATTO_ORDER + 1) * _LEGENDRE_VALUES[:, -1] ** 2)
_LEGENDRE_TRANSFORM = LOBATTO_WEIGHTS[:, None] * _LEGENDRE_VALUES * (2.0 * np.arange(LOBATTO_ORDER + 1) + 1.0)
_MOMENT_WEIGHTS = LOBATTO_WEIGHTS[:, None] * np.column_stack(
    [np.ones(LOBATTO_ORDER + 1), LOBATTO_NODES, LOBATTO_NODES**2]
)
PANEL_RULES = np.column_stack([_MOMENT_WEIGHTS, _LEGENDRE_TRANSFORM[:, -5:-1]])  # moments, last coefficients

# edges for every site, in sd
PANEL_EDGES_SD = np.array([-64.0, -12.0, -7.0, -4.0, -2.0, 0.0, 2.0, 4.0, 7.0, 12.0, 64.0])
# of the last coefficients, ten times the error of a jump or kink, and far more where p is smooth
PANEL_TOLERANCE = 1e-11
FINEST_TOLERANCE = 1e-3  # factor to the tolerance, where p is nearly flat, at which rounding errors begin
PROMISED_ACCURACY = 1e-10  # of a site
ROUNDING_SHARE = 1e-7  # of a panel, up to which an error that halving does not lower passes for rounding of log_p
MAX_HALVINGS, MAX_PANELS_PER_SITE = 80, 2000  # rounds of halving, and panels of a site


class NotIntegrableError(ValueError):
    """A likelihood, or what takes its place, that no rule integrates to the promised precision."""


class _Integrands:
    """Cavities and likelihoods, the values of log p checked."""

    def __init__(self, log_p, index, mean, variance):
        self._log_p, self.index, self.mean, self.variance, self.sd = log_p, index, mean, variance, np.sqrt(variance)

    def take(self, part):
        return _Integrands(self._log_p, self.index[part], self.mean[part], self.variance[part])

    def log_p(self, f, site):
        """Return log p at the rows of f, of the sites `site` counted among these."""
        index = self.index[site]
        values = np.asarray(self._log_p(f, index))
        if values.dtype.kind == "c":
            raise TypeError(f"log_p must return real numbers, got {values.dtype}: np.real takes their real parts")
        values = np.asarray(values, dtype=np.float64)
        if values.shape != f.shape:
            location = f"for sites {index[0]} to {index[-1]}, the first at f = {f[0, 0]:g}"
            raise ValueError(f"log_p must return an array of shape {f.shape}, got {values.shape} {location}")
        wrong = ~(values < np.inf)
        if wrong.any():
            i, k = np.argwhere(wrong)[0]
            raise ValueError(f"log_p must be finite or -inf, got {values[i, k]} for site {index[i]} at f = {f[i, k]:g}")
        return values

    def refuse(self, site, description):
        cavity = f"cavity mean {self.mean[site]:g}, sd {self.sd[site]:g}"
        raise NotIntegrableError(f"log_p of site {self.index[site]} {description} ({cavity})")


def log_tilted(log_p, mean, variance):
    """Log normaliser of cavity times likelihood, and its first two derivatives in the cavity's mean.

    Parameters
    ----------
    log_p : callable
        log_p(f, index) -> log p of site index[i] at f[i, :], for f (n, k) and index (n,); may be -inf. It may
        overwrite f.
    mean, variance : ndarray (N,)
        Moments of the cavities, finite, the variances positive.

    Returns
    -------
    log_z, d1, d2, shrink : ndarray (N,)
        As in the head of this file; shrink = 1 + variance d2 without cancellation.

    Raises
    ------
    ValueError
        If log_p returns nan, inf or another shape than that of f, if it is -inf wherever it was evaluated, or cannot
        be integrated.

    Notes
    -----
    The errors of log_z (relative where |log_z| > 1), sd d1, variance d2 and shrink are below 1e-10, where log_p has
    digits enough: rounding errors e in it, e = 1e-16 |log_p| at best, mean errors of about e in all four. Narrow
    cavities of smooth likelihoods do better in d1 and d2, to e/H and e/H^2 for the widest interval H, in units of f,
    over which a polynomial of degree 24 represents log_p. Jumps cannot be placed more finely than float64 is spaced.

    log_p is not known between the points of the grid. What matters must show there: by its height, or as a slope that
    leads to it. A spike much narrower than half an sd is found from its tails, but missed on a flat plateau, and so is
    a support as narrow as that.
    """
    return _run_in_chunks(_integrate, log_p, mean, variance)


def log_tilted_of_pass(log_p, mean, variance):
    """`log_tilted` to 1e-9, for EP's passes: by rules of few nodes where their error estimates are small.

    log_p is called once for a thousand sites, at 51 points about the cavities; once more, at 67 where they are,
    for tilted distributions that are narrower by a tenth or more; and by adaptive quadrature where these are too few.
    """
    return _run_in_chunks(_integrate_with_few_nodes, log_p, mean, variance)


def _run_in_chunks(results_of, log_p, mean, variance):
    """Return what results_of(sites) returns, (4, n), for so many sites at a time."""
    results = np.empty((4, mean.size))
    with np.errstate(all="ignore"):
        for start in range(0, mean.size, SITES_PER_CHUNK):
            index = np.arange(start, min(start + SITES_PER_CHUNK, mean.size))
            results[:, index] = results_of(_Integrands(log_p, index, mean[index], variance[index]))
    return tuple(results)


def _integrate(sites):
    """Return the results (4, n) of some sites."""
    (f, log_p, scale), results = _evaluate_grid(sites), np.empty((4, sites.index.size))
    change = np.ptp(log_p[:, CHEBYSHEV_IN_GRID], axis=1)
    smooth = np.flatnonzero((change <= MAX_SMOOTH_CHANGE_NATS) & (scale == sites.sd))
    if smooth.size:
        results[:, smooth], good = _integrate_smooth(sites.take(smooth), log_p[smooth][:, CHEBYSHEV_IN_GRID])
        smooth = smooth[good]
    rest = np.delete(np.arange(sites.index.size), smooth)
    if rest.size:
        results[:, rest] = _integrate_adaptively(sites.take(rest), f[rest], log_p[rest], scale[rest])
    return results


def _evaluate_grid(sites):
    """Return the grid, log p there, and the unit of the grid, which is the cavity's sd if the mass is in reach."""
    mean, scale, todo = sites.mean[:, None], sites.sd[:, None].copy(), np.arange(sites.index.size)
    f = mean + scale * GRID_NODES
    log_p = sites.log_p(f.copy(), todo).copy()
    for _ in range(MAX_GRID_GROWTHS + 1):
        # not from f - mean, which is 0 where the cavity is narrower than float64 is spaced
        log_h = log_p[todo] - 0.5 * (scale[todo] / sites.sd[todo, None] * GRID_NODES) ** 2
        todo = todo[np.isin(np.argmax(log_h, axis=1), (0, GRID_NODES.size - 1))]  # 0 also where all are -inf
        if not todo.size:
            return f, log_p, scale[:, 0]
        scale[todo] *= GRID_GROWTH
        f[todo] = mean[todo] + scale[todo] * GRID_NODES
        log_p[todo] = sites.log_p(f[todo], todo)
    zero = np.isneginf(log_p[todo[0]]).all()
    sites.refuse(todo[0], "is -inf wherever it was evaluated" if zero else "rises faster than the cavity falls")


# ---------------------------------------------------------------------------------------------- smooth likelihoods


def _tabulate_bases():
    """Chebyshev polynomials on each interval at the nodes of the Hermite rule, and their derivatives per sd."""
    for width in GRID_REACH_SD * INTERVAL_WIDTHS:
        unit = np.eye(CHEBYSHEV_DEGREE + 1)
        series = unit, chebyshev.chebder(unit), chebyshev.chebder(unit, 2)
        yield [
            np.ascontiguousarray(chebyshev.chebval(HERMITE_NODES / width, s)) / width**k for k, s in enumerate(series)
        ]


INTERPOLATION_BASES = tuple(_tabulate_bases())


def _integrate_smooth(sites, log_p):
    """Return the results by interpolation of log p, which is given at the Chebyshev points, and where they are good."""
    sd, todo = sites.sd, np.arange(sites.sd.size)
    results, error = np.empty((4, sd.size)), np.full(sd.size, np.inf)
    for wider, bases in zip(INTERVAL_WIDTHS, INTERPOLATION_BASES, strict=True):
        width = GRID_REACH_SD * wider * sd[todo]
        if wider > 1.0:
            log_p = sites.log_p(sites.mean[todo, None] + width[:, None] * CHEBYSHEV_NODES, todo)
        centre = log_p[:, CHEBYSHEV_POINTS // 2]
        change = log_p - centre[:, None]
        size, coefficients = np.abs(change).max(axis=1), change @ CHEBYSHEV_TRANSFORM
        tail = np.abs(coefficients[:, CHEBYSHEV_DEGREE + 1 :]).max(axis=1)
        rounding = FLOAT64_EPSILON * np.abs(log_p).max(axis=1) + size * np.spacing(np.abs(sites.mean[todo])) / width
        resolved = (size <= MAX_INTERVAL_CHANGE_NATS) & (tail <= rounding)
        wrong = np.where(resolved, tail + 0.1 * rounding, np.inf) / wider**2
        better = wrong < error[todo]
        todo, centre, coefficients = todo[better], centre[better], coefficients[better, : CHEBYSHEV_DEGREE + 1]
        error[todo] = wrong[better]
        log_ratio, slope, curvature = (coefficients @ basis for basis in bases)
        log_z = np.log1p(np.expm1(log_ratio) @ HERMITE_WEIGHTS)
        weights = np.exp(log_ratio - log_z[:, None]) * HERMITE_WEIGHTS
        d1 = np.sum(weights * slope, axis=1)
        d2 = np.sum(weights * (curvature + (slope - d1[:, None]) ** 2), axis=1)
        results[:, todo] = centre + log_z, d1 / sd[todo], d2 / sites.variance[todo], 1.0 + d2
        todo = todo[error[todo] > MAX_CURVATURE_ERROR * (np.abs(d2) + d1 * d1)]
        if not todo.size:
            break
    return results, error < np.inf


# ---------------------------------------------------------------------------------------------- all the others


def _mark_unresolved(log_p, log_h, floor):
    """Mark local maxima of log p and log h that stick out, and what is next to a zero of p; not the first and last."""
    mask = np.zeros(log_p.shape, dtype=bool)
    for values in (log_p, log_h):
        left, right = values[:, 1:-1] - values[:, :-2], values[:, 1:-1] - values[:, 2:]
        rise = np.maximum(left, right)
        mask[:, 1:-1] |= (left >= 0.0) & (right > 0.0) & (rise > MAX_UNRESOLVED_NATS)
    mask[:, 1:-1] |= (rise == np.inf) & (log_h[:, 1:-1] > floor[:, None])
    return mask


def _search_maxima(sites, f, log_p):
    """Close in on maxima and ends of the support, from the grid.

    Returns the highest points of the sites, (log p - (f - m)^2/(2 v), f, log p), and (site, f) of what was passed.
    """
    n, passed = sites.index.size, []
    site, top = np.arange(n), np.full((3, n), -np.inf)
    for _ in range(MAX_ZOOMS):
        log_h = log_p - 0.5 * (f - sites.mean[site, None]) ** 2 / sites.variance[site, None]
        row, column = np.arange(site.size), np.argmax(log_h, axis=1)
        best = np.array([values[row, column] for values in (log_h, f, log_p)])
        row = np.argsort(best[0], kind="stable")  # the highest of a site comes last and stays
        row = row[best[0, row] > top[0, site[row]]]
        top[:, site[row]] = best[:, row]

        row, column = np.nonzero(_mark_unresolved(log_p, log_h, top[0, site] - SUPPORT_NATS))
        site, low, middle, high = site[row], f[row, column - 1], f[row, column], f[row, column + 1]
        passed.append((np.tile(site, 3), np.concatenate([low, middle, high])))
        wide = high - low > 32.0 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        site, low, middle, high = site[wide], low[wide, None], middle[wide, None], high[wide, None]
        if not 0 < site.size <= MAX_MAXIMA_PER_SITE * n:
            break
        f = np.hstack([low + (middle - low) * ZOOM_POINTS, middle + (high - middle) * ZOOM_POINTS, high])
        log_p = sites.log_p(f.copy(), site)
    return top, [np.concatenate(column) for column in zip(*passed, strict=True)]


def _make_panels(site, edges):
    """Return (site, left, right) of the panels between edges."""
    order = np.lexsort((edges, site))
    site, edges = site[order], edges[order]
    inside = (site[1:] == site[:-1]) & (edges[1:] > edges[:-1])
    return site[1:][inside], edges[:-1][inside], edges[1:][inside]


def _measure_panels(sites, top, site, left, right):
    """Apply the rule on panels to the tilted density over its value at the top.

    Returns rows: moments 0, 1, 2 about the centre of the panel and the size of the last coefficients.
    """
    if site.size > PANELS_PER_CHUNK:
        parts = [slice(start, start + PANELS_PER_CHUNK) for start in range(0, site.size, PANELS_PER_CHUNK)]
        return np.concatenate([_measure_panels(sites, top, site[p], left[p], right[p]) for p in parts], axis=1)
    _, peak, log_peak = top[:, site, None]
    half = 0.5 * (right - left)
    step = half[:, None] * (1.0 + LOBATTO_NODES)
    t = left[:, None] - peak + step
    exponent = sites.log_p(left[:, None] + step, site) - log_peak
    exponent -= t * (0.5 * t + (peak - sites.mean[site, None])) / sites.variance[site, None]
    zeroth, first, second, *last = (np.exp(exponent) @ PANEL_RULES).T * half
    return np.array([zeroth, first * half, second * half**2, np.abs(last).max(axis=0)])


def _integrate_adaptively(sites, f, log_p, scale):
    """Return the results by adaptive quadrature, given the grid and log p there."""
    n, mean, variance = sites.index.size, sites.mean, sites.variance
    top, (site, edges) = _search_maxima(sites, f, log_p)
    change = np.where(scale == sites.sd, np.ptp(log_p[:, CHEBYSHEV_IN_GRID], axis=1), np.inf)
    rounding = 4.0 * FLOAT64_EPSILON * np.abs(top[2])
    tolerance = PANEL_TOLERANCE * np.fmin(np.fmax(change, FINEST_TOLERANCE), 1.0) + rounding

    edges = np.append(edges, mean[:, None] + scale[:, None] * PANEL_EDGES_SD)
    site, left, right = _make_panels(np.append(site, np.repeat(np.arange(n), PANEL_EDGES_SD.size)), edges)
    values, final = _measure_panels(sites, top, site, left, right), np.zeros(site.size, dtype=bool)

    def total(moment):
        return np.bincount(site, weights=moment, minlength=n)

    for depth in range(MAX_HALVINGS):
        half = 0.5 * (right - left)
        centre = left - top[1, site] + half
        norm = total(values[0])
        shift = total(values[1] + centre * values[0]) / norm
        centre -= shift[site]
        spread = total(values[2] + 2.0 * centre * values[1] + centre**2 * values[0]) / norm
        # errors in moments 1 and 2 about the mean, in units of the sd, are that of moment 0 times the distance
        farthest = (np.abs(centre) + half) ** 2 / np.maximum(spread, np.finfo(float).tiny)[site]
        error = np.where(values[3] > 0.0, values[3] * np.maximum(farthest, 1.0) / norm[site], 0.0)
        rough = ~(error <= tolerance[site]) & ~final
        rough &= half > 2.0 * np.spacing(np.maximum(np.abs(left), np.abs(right)))
        split = rough & (np.bincount(site, minlength=n) <= MAX_PANELS_PER_SITE)[site]
        if not split.any() or depth == MAX_HALVINGS - 1:
            break
        old, middle = values[:, split], (left + half)[split]
        new = np.tile(site[split], 2), np.append(left[split], middle), np.append(middle, right[split])
        fresh = _measure_panels(sites, top, *new)
        noisy = fresh[3].reshape(2, -1).min(axis=0) > old[3] / 16.0
        noisy &= old[3] < (ROUNDING_SHARE + 16.0 * rounding[site[split]]) * old[0]
        site, left, right = (np.append(a[~split], b) for a, b in zip((site, left, right), new, strict=True))
        values, final = np.append(values[:, ~split], fresh, axis=1), np.append(final[~split], np.tile(noisy, 2))

    failed = ~(total(np.where(rough, error, 0.0)) <= PROMISED_ACCURACY)
    if failed.any():
        sites.refuse(np.argmax(failed), "cannot be integrated to 1e-10")
    offset, shrink = top[1] - mean, spread / variance
    log_z = top[2] - 0.5 * offset**2 / variance + np.log(norm / np.sqrt(2.0 * np.pi * variance))
    return log_z, (offset + shift) / variance, (shrink - 1.0) / variance, shrink


# ---------------------------------------------------------------------------------------------- few nodes

CENTRE_NODES = slice(COARSE_RULE.count // 2 - 1, COARSE_RULE.count // 2 + 2)


def _integrate_with_few_nodes(sites):
    """Return the results (4, n) by rules of few nodes; where these are not good to 1e-9, those of `_integrate`."""

    def log_h(part, x):
        log_p = sites.log_p(sites.mean[part, None] + sites.sd[part, None] * x, part)
        return log_p - 0.5 * x * x

    values = log_h(np.arange(sites.index.size), COARSE_RULE.points[None])
    (log_z, shift, more), good, h = COARSE_RULE(values)
    results = np.array([log_z, shift / sites.sd, more / sites.variance, 1.0 + more])
    close = values[:, COARSE_RULE.count : COARSE_RULE.count + NEAR_CENTRE_POINTS.size]
    # from the nodes, or beyond these
    hidden = np.max(close, axis=1) > np.max(values[:, CENTRE_NODES], axis=1) + MAX_UNRESOLVED_NATS
    hidden |= (values[:, 0] > values[:, 1]) | (values[:, COARSE_RULE.count - 1] > values[:, COARSE_RULE.count - 2])
    rest = np.flatnonzero(~good & ~hidden)
    if rest.size:
        # from the node before the first of these to that after the last
        mass = h[rest] * COARSE_RULE.bound > 0.1 * MAX_END_MASS
        first, last = np.argmax(mass, axis=1), COARSE_RULE.count - 1 - np.argmax(mass[:, ::-1], axis=1)
        centre = 0.5 * (COARSE_RULE.nodes[first] + COARSE_RULE.nodes[last])
        scale = (last - first + 2) / (COARSE_RULE.count - 1)
        points = centre[:, None] + scale[:, None] * FINE_RULE.points
        (log_z, shift, more), good[rest], _ = FINE_RULE(log_h(rest, points))
        shift, shrink = centre + scale * shift, scale * scale * (1.0 + more)
        sd, variance = sites.sd[rest], sites.variance[rest]
        results[:, rest] = log_z + np.log(scale), shift / sd, (shrink - 1.0) / variance, shrink
    rest = np.flatnonzero(hidden | ~good)
    if rest.size:
        results[:, rest] = _integrate(sites.take(rest))
    return results
