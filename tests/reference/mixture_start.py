"""Starting labels by their definitions: sums over explicit differences, cuts tried one by one."""

import numpy as np


def total(points, weight, labels):
    """Weighted squared distances of the points to the means of their clusters."""
    result = 0.0
    for k in set(labels.tolist()):
        inside = labels == k
        mean = np.average(points[inside], axis=0, weights=weight[inside])
        result += np.sum(weight[inside, None] * (points[inside] - mean) ** 2)
    return result


def first_axis(points, weight):
    """The unit vector along which the points vary most, its first entry of at least half the largest size positive."""
    centred = points - np.average(points, axis=0, weights=weight)
    axis = np.linalg.svd(np.sqrt(weight)[:, None] * centred)[2][0]
    large = [entry for entry in axis if abs(entry) >= 0.5 * max(abs(axis))]
    return axis * np.sign(large[0])


def best_cut(points, weight):
    """The labels 0 and 1 of the best cut across the first axis, and how much it lowers the total along that axis."""
    place = points @ first_axis(points, weight)[:, None]
    full = total(place, weight, np.zeros(len(points), dtype=int))
    cuts = [(place[:, 0] > t).astype(int) for t in np.sort(place[:, 0])[:-1]]
    gains = [full - total(place, weight, labels) for labels in cuts]
    return cuts[int(np.argmax(gains))], max(gains)


def seeds(points, weight, k, tried):
    """Greedy centres: the best for the total of the farthest point and `tried` quantiles of weight times distance."""
    mean = np.average(points, axis=0, weights=weight)
    rows = sorted(range(len(points)), key=lambda n: (points[n] - mean) @ first_axis(points, weight))
    chosen = []
    for _ in range(k):
        against = [points[n] for n in chosen] or [mean]
        distance = [min(np.sum((points[n] - c) ** 2) for c in against) for n in rows]
        mass = weight[rows] * distance
        share = np.cumsum(mass) / np.sum(mass)
        candidates = [rows[np.argmax(share > (i + 0.5) / tried)] for i in range(tried)] + [rows[np.argmax(distance)]]
        chosen.append(min(candidates, key=lambda n: nearest_total(points, weight, points[[*chosen, n]])))
    return points[chosen]


def nearest_total(points, weight, centres):
    """Weighted squared distances of the points to their nearest centres."""
    return sum(w * min(np.sum((p - c) ** 2) for c in centres) for p, w in zip(points, weight, strict=True))


def lloyd(points, weight, centres):
    """Labels that do not change any more, every point at the centre nearest to it."""
    labels = None
    while True:
        new = np.array([np.argmin([np.sum((p - c) ** 2) for c in centres]) for p in points])
        if labels is not None and np.array_equal(new, labels):
            return labels
        labels = new
        centres = [np.average(points[labels == k], axis=0, weights=weight[labels == k]) for k in range(len(centres))]


def adjusted_rand(one, other):
    """Agreement of two partitions, 1 if they are the same, 0 on average for random ones of these sizes."""

    def pairs(counts):
        return np.sum(counts * (counts - 1) / 2)

    table = np.array([[np.sum((one == a) & (other == b)) for b in np.unique(other)] for a in np.unique(one)])
    together, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / pairs(np.array(len(one)))
    largest = 0.5 * (rows + columns)
    return 1.0 if largest == expected else (together - expected) / (largest - expected)
