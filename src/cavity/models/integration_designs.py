"""Integration over a few free numbers about the maximum of their log density: grids, and central composite designs.

With H the negative Hessian of the log density at the maximum x0, H = V L V', and z standard deviations of its normal
approximation, x(z) = x0 + V L^(-1/2) z. A grid has regular steps in u, as far as the log density falls by six [RMC]_,

    z = u + (a + b) u^3/(2 s) + (b - a) u^4/(2 s^2),    s^2 = 1 + u^2,                                             (1)

which lengthens an axis below the centre by a, above by b: 0 where the density falls as a normal one does, more for logs
of standard deviations that may be 0. A central composite design has the centre, points on the axes at r = 1.1 sqrt(m),
and the corners of a two-level factorial of resolution V at the same radius ([RMC]_, section 6.5); with weights

    w_k/w_0 = exp(m 1.1^2/2)/((n - 1)(1.1^2 - 1))                                                                  (2)

times the ratio of densities, the n points have the mass and the variances of a normal distribution exactly. Before
that, each half of an axis is stretched by s = sqrt(2)/sqrt(2 d), d the fall of the log density at z = sqrt(2) [RMC]_,
and the density is multiplied by the product of the s of a point.

References
----------
.. [RMC] H. Rue, S. Martino and N. Chopin, "Approximate Bayesian inference for latent Gaussian models by using
   integrated nested Laplace approximations", JRSS B 71, 2009.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special

METHOD_NAMES = ("grid", "ccd", "mode")  # "mode" is the maximum alone
AXIS_GRID_STEP, PLANE_GRID_STEP = 0.75, 0.8  # of u, for one and for more free numbers
MAX_FALL_NATS = 6.0  # of the log density, where a grid ends
MAX_GRID_STEPS = 12  # from the centre in one direction
SHORTENING_FACTOR, MIN_LENGTHENING = 0.85, 0.01  # of what is added to a half of an axis that ends outside bounds
MAX_REACH = 16.0  # standard deviations of a half of an axis that is lengthened
RADIUS_FACTOR = 1.1  # of a central composite design, times the root of the dimension
AXIS_STEP = np.sqrt(2.0)  # in standard deviations, where the halves of axes are measured
MIN_AXIS_FALL, MAX_AXIS_FALL = 1.0 / 16.0, 16.0  # nats: halves of axes are stretched by at most four
# of predictions from other points: how many, the sd over which values change, their noise, the variance of a constant
MAX_NEIGHBOURS, SMOOTH_LENGTH, NEIGHBOUR_NOISE, CONSTANT_VARIANCE = 16, 3.0, 1e-8, 100.0
MAX_GRID_NUMBERS, MAX_DESIGN_NUMBERS = 2, 8
DESIGN_GENERATORS = {
    5: ((0, 1, 2, 3),),
    6: ((0, 1, 2, 3, 4),),
    7: ((0, 1, 2, 3, 4, 5),),
    8: ((0, 1, 2, 3), (0, 1, 4, 5)),
}


@dataclass(frozen=True, slots=True, eq=False)
class IntegrationPoints:
    """Points of an integral, the values there, and their weights, which sum to one."""

    z: np.ndarray  # (P, m): the first is 0
    x: np.ndarray  # (P, m)
    log_density: np.ndarray  # (P,), without corrections
    weights: np.ndarray  # (P,)
    log_integral: float  # with corrections
    plain_log_integral: float  # without
    values: list  # whatever the function returned beside the log density


def check_integrate(value):
    """Return a setting `integrate`, checked."""
    return arrays.check_choice(value, "integrate", (False, "auto", *METHOD_NAMES))


def choose_method(method, m):
    """Return "grid" or "ccd" for m free numbers, in place of "auto"."""
    return method if method != "auto" else "grid" if m <= MAX_GRID_NUMBERS else "ccd"


def integrate(function, x0, hessian, method, correct=None):
    """Integrate exp of a log density.

    Parameters
    ----------
    function : callable
        function(x, neighbours) returns the log density at x (m,), or None where it has none, and any other value;
        `neighbours` are pairs of a weight and such a value, the nearest first: what is smooth in x is about the sum of
        weights times those of the neighbours.
    x0 : ndarray (m,)
        Its maximum.
    hessian : ndarray (m, m)
        Minus the second derivatives there, positive definite.
    method : {"grid", "ccd"}
        The points.
    correct : callable, optional
        correct(u, values) returns what is added to the log density at all points, (P,).

    Returns
    -------
    IntegrationPoints

    Raises
    ------
    ArithmeticError
        If there is no log density at the maximum.
    """
    eigenvalues, vectors = np.linalg.eigh(hessian)
    to_x = vectors / np.sqrt(eigenvalues)
    evaluations = {}

    def evaluate(z):
        if z not in evaluations:
            others = [other for other, (log_density, _) in evaluations.items() if log_density is not None]
            neighbours = [(weight, evaluations[others[number]][1]) for number, weight in _weigh_neighbours(z, others)]
            evaluations[z] = function(x0 + to_x @ np.array(z), neighbours)
        return evaluations[z]

    m = len(x0)
    top = evaluate((0.0,) * m)[0]
    if top is None:
        raise ArithmeticError("there is no posterior at the maximum")
    u, z, log_weights = (_walk_grid if method == "grid" else _make_composite_design)(evaluate, m, top)
    results = [evaluate(tuple(point)) for point in z.tolist()]
    has_density = np.array([result[0] is not None for result in results])
    u, z, log_weights = u[has_density], z[has_density], log_weights[has_density]
    log_density, values = zip(*(result for result in results if result[0] is not None), strict=True)
    log_density, values = np.array(log_density), list(values)
    plain = log_density + log_weights - 0.5 * np.sum(np.log(eigenvalues))
    total = plain if correct is None else plain + correct(u, values)
    integrals = [float(special.logsumexp(terms)) for terms in (total, plain)]
    return IntegrationPoints(z, x0 + z @ to_x.T, log_density, np.exp(total - integrals[0]), *integrals, values)


def _weigh_neighbours(z, others):
    """Return the numbers of the nearest of other points, and weights by which values there predict that at z: those of
    a Gaussian process with a constant of which nothing is known and a squared exponential covariance.
    """
    if not others:
        return []
    points = np.array(others)
    nearest = np.argsort(np.sum((points - z) ** 2, axis=1), kind="stable")[:MAX_NEIGHBOURS]
    points = np.vstack([z, points[nearest]])
    covariances = np.exp(-0.5 / SMOOTH_LENGTH**2 * np.sum((points[:, None] - points) ** 2, axis=-1)) + CONSTANT_VARIANCE
    gram = covariances[1:, 1:] + NEIGHBOUR_NOISE * np.eye(len(nearest))
    return list(zip(nearest.tolist(), np.linalg.solve(gram, covariances[0, 1:]).tolist(), strict=True))


def _walk_grid(evaluate, m, top):
    """Return u and z of a lattice about 0 that is connected by points whose log density has not fallen far, and the
    logs of the volumes of the cells; halves of axes are lengthened by (1).
    """
    # of each axis, below and above the centre
    lengthening = np.reshape([_find_lengthening(evaluate, m, top, *half) for half in np.ndindex(m, 2)], (m, 2))
    reached = _reach_points(evaluate, top, lengthening)
    if _shorten_last_steps(evaluate, lengthening, reached):
        reached = _reach_points(evaluate, top, lengthening)
    origin = (0,) * m
    ordered = [origin, *sorted(reached - {origin})]
    z, volumes = zip(*(_place(at, lengthening) for at in ordered), strict=True)
    u = find_grid_step(m) * np.array(ordered, dtype=np.float64)
    return u, np.array(z), np.sum(np.log(find_grid_step(m) * np.array(volumes)), axis=1)


def _place(at, lengthening):
    """Return z of a point of a lattice, and its derivative in u, by (1)."""
    u = find_grid_step(len(lengthening)) * np.array(at, dtype=np.float64)
    odd, even = 0.5 * np.sum(lengthening, axis=1), 0.5 * np.diff(lengthening, axis=1)[:, 0]
    s = np.sqrt(1.0 + u**2)
    slope = 1.0 + (odd * (3.0 + 2.0 * u**2) * s + even * u * (4.0 + 2.0 * u**2)) * u**2 / s**4
    return u + odd * u**3 / s + even * u**4 / s**2, slope


def _reach_points(evaluate, top, lengthening):
    """Return the points of a lattice next to those whose log density has not fallen far, and these."""
    m = len(lengthening)
    reached, frontier = {(0,) * m}, [(0,) * m]
    steps = [tuple(sign * (axis == i) for i in range(m)) for axis in range(m) for sign in (-1, 1)]
    while frontier:
        following = []
        for at in frontier:
            for step in steps:
                new = tuple(np.add(at, step).tolist())
                if new in reached or max(map(abs, new)) > MAX_GRID_STEPS:
                    continue
                value = evaluate(tuple(_place(new, lengthening)[0].tolist()))[0]
                reached.add(new)
                if value is not None and value > top - MAX_FALL_NATS:
                    following.append(new)
        frontier = following
    return reached


def _shorten_last_steps(evaluate, lengthening, reached):
    """Lengthen halves of axes less until their last points have a density; return whether any has changed."""
    m, before = len(lengthening), lengthening.copy()
    for axis, side in np.argwhere(lengthening > 0.0).tolist():
        unit = (2 * side - 1) * (np.arange(m) == axis)
        end = max(k for k in range(MAX_GRID_STEPS + 1) if tuple((k * unit).tolist()) in reached) * unit
        while evaluate(tuple(_place(end, lengthening)[0].tolist()))[0] is None:
            lengthening[axis, side] *= SHORTENING_FACTOR
            if lengthening[axis, side] < MIN_LENGTHENING:
                break
    return bool(np.any(lengthening != before))


def find_grid_step(m):
    """Return the step of a grid of m free numbers."""
    return AXIS_GRID_STEP if m == 1 else PLANE_GRID_STEP


def _find_lengthening(evaluate, m, top, axis, side):
    """Return a or b of (1) of half of an axis, by which the log density falls by six nats at u = sqrt(12), as that of a
    normal density does, if it falls by z^2/(2 + 2 k z); 0 where there is no density as far out.
    """
    direction = np.zeros(m)
    direction[axis] = 1.0 if side else -1.0
    near = 2.0 * AXIS_STEP
    value, end = evaluate(tuple((near * direction).tolist()))[0], np.sqrt(2.0 * MAX_FALL_NATS)
    if value is None:
        return 0.0
    k = max(0.5 * near / max(top - value, MIN_AXIS_FALL) - 1.0 / near, 0.0)
    reach = min(MAX_FALL_NATS * k + np.sqrt((MAX_FALL_NATS * k) ** 2 + 2.0 * MAX_FALL_NATS), MAX_REACH)
    if k == 0.0 or evaluate(tuple((reach * direction).tolist()))[0] is None:
        return 0.0
    return (reach - end) / (0.5 * (end**3 / np.sqrt(1.0 + end**2) + end**4 / (1.0 + end**2)))


def _make_composite_design(evaluate, m, top):
    """Return the points of the design, those stretched, and the logs of their weights, with those of the stretching."""
    stretch = np.ones((m, 2))  # below and above the centre
    for axis, side in product(range(m), (0, 1)):
        z = np.zeros(m)
        z[axis] = AXIS_STEP * (1 if side else -1)
        value = evaluate(tuple(z.tolist()))[0]
        fall = MAX_AXIS_FALL if value is None else np.clip(top - value, MIN_AXIS_FALL, MAX_AXIS_FALL)
        stretch[axis, side] = 1.0 / np.sqrt(fall)
    radius = RADIUS_FACTOR * np.sqrt(m)
    axes = radius * np.concatenate([-np.eye(m), np.eye(m)])
    corners = RADIUS_FACTOR * make_two_level_factorial(m)
    points = np.concatenate([np.zeros((1, m)), axes, corners])
    ratio = np.exp(0.5 * radius**2) / ((len(points) - 1) * (RADIUS_FACTOR**2 - 1.0))  # (2)
    # w_0 is such that the mass of a normal density is (2 pi)^(m/2)
    first = 1.0 - 1.0 / RADIUS_FACTOR**2
    log_weights = np.full(len(points), np.log(first * ratio)) + 0.5 * m * np.log(2.0 * np.pi)
    log_weights[0] -= np.log(ratio)
    scale = np.where(points > 0, stretch[:, 1], np.where(points < 0, stretch[:, 0], stretch.mean(axis=1)))
    return points, points * scale, log_weights + np.sum(np.log(scale), axis=1)


def make_two_level_factorial(m):
    """Return the corners of a fraction of resolution V or more of a two-level factorial, (corners, m) of -1 and 1."""
    generators = DESIGN_GENERATORS.get(m, ())
    base = np.array(list(product((-1.0, 1.0), repeat=m - len(generators))))
    return np.column_stack([base, *(np.prod(base[:, columns], axis=1) for columns in generators)])
