"""Starting labels: against their definitions, on clusters that are there to be found, and their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reference import mixture_start as ref
from support.examples import examples
from support.tolerances import SOLVES

from cavity.models.mixture import start


def clusters(seed, k, d, apart=10.0):
    """Clusters of unit variance whose centres are at least `apart` apart, in coordinates of unit spread."""
    rng = np.random.default_rng(seed)
    centres = []
    while len(centres) < k:
        drawn = rng.uniform(-1, 1, size=d) * apart * (k if d == 1 else 1.2 * np.sqrt(k))
        if all(np.linalg.norm(drawn - other) > apart for other in centres):
            centres.append(drawn)
    truth = np.repeat(np.arange(k), rng.integers(20, 200, size=k))
    points = np.array(centres)[truth] + rng.normal(size=(len(truth), d))
    return points / points.std(axis=0), truth


def every_start(points, weight, k):
    return {
        m: start.choose_labels(points, weight, k, m, np.random.default_rng(0))
        for m in (*start.DETERMINISTIC_METHODS, "random")
    }


@pytest.mark.long_cases("5")
@pytest.mark.sample(2)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_kmeans_is_that_of_the_definition(monkeypatch, d):
    monkeypatch.setattr(start, "CONVERGED_FALL_SHARE", 0.0)
    for seed in range(4):
        rng = np.random.default_rng([seed, d])
        points, weight = rng.normal(size=(60, d)), rng.uniform(0.2, 3.0, size=60)
        centres = ref.seeds(points, weight, 4, start.SEED_CANDIDATES)
        expected = ref.lloyd(points, weight, centres)
        labels = start.choose_labels(points, weight, 4, "kmeans")
        assert ref.adjusted_rand(labels, expected) == 1.0


def test_the_first_cut_is_the_best_across_the_first_axis(monkeypatch):
    monkeypatch.setattr(start, "MAX_ROUNDS_AFTER_SPLITS", 0)  # labels are then those of the nearest of the two means
    for seed in range(5):
        rng = np.random.default_rng(seed)
        points, weight = rng.normal(size=(50, 3)) * [1.0, 0.5, 0.7], rng.uniform(0.2, 3.0, size=50)
        cloud = start._order_points(points, weight, False)
        expected, gain = ref.best_cut(points, weight)
        result, members, above = start._split_cluster(cloud, np.arange(50))
        assert result * weight.max() == pytest.approx(gain, rel=SOLVES)
        labels = np.empty(50, dtype=int)
        labels[cloud.order[members]] = above
        assert ref.adjusted_rand(labels, expected) == 1.0
        means = [np.average(points[expected == j], axis=0, weights=weight[expected == j]) for j in (0, 1)]
        nearest = np.argmin([np.sum((points - m) ** 2, axis=1) for m in means], axis=0)
        assert ref.adjusted_rand(start.choose_labels(points, weight, 2, "split"), nearest) == 1.0


def test_principal_shares_are_equal_and_in_order():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(240, 3)) @ rng.normal(size=(3, 3))
    labels = start.choose_labels(points, None, 6, "principal")
    assert np.bincount(labels).tolist() == [40] * 6
    place = points @ ref.first_axis(points, np.ones(240))
    assert np.all(np.diff(labels[np.argsort(place)]) >= 0)
    heavy = np.where(place > np.median(place), 3.0, 1.0)
    shares = np.bincount(start.choose_labels(points, heavy, 4, "principal"), heavy)
    np.testing.assert_allclose(shares, heavy.sum() / 4, atol=2.0)


@pytest.mark.sample(5)
@pytest.mark.parametrize("d", [1, 2, 8])
@pytest.mark.parametrize("k", [5, 9, 14, 20])
def test_separated_clusters_are_all_found(k, d):
    for seed in range(3):
        points, truth = clusters([seed, d], k, d)
        result = {m: ref.adjusted_rand(labels, truth) for m, labels in every_start(points, None, k).items()}
        assert result["kmeans"] == 1.0
        assert max(result["split"], result["random"]) == 1.0


@pytest.mark.sample(2)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("direction", [np.eye(64)[3], np.full(64, 0.125)])
@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2), marks=pytest.mark.long)])
def test_a_small_cluster_far_away_among_many_columns_is_found(k, direction, seeds):
    for seed in seeds:
        points = np.random.default_rng(seed).normal(size=(2060, 64))
        points[2000:] += 8.0 * direction
        labels = start.choose_labels(points, None, k, "split")
        own = np.bincount(labels[2000:]).argmax()
        assert np.sum(labels[2000:] == own) >= 58
        assert np.sum(labels[:2000] == own) <= 5


def test_two_kinds_of_eruptions():
    rng = np.random.default_rng(0)  # moments of the two groups of the Old Faithful data
    short = rng.multivariate_normal([2.04, 54.5], [[0.07, 0.44], [0.44, 34.0]], size=97)
    long = rng.multivariate_normal([4.29, 80.0], [[0.17, 0.94], [0.94, 36.0]], size=175)
    points = np.vstack([short, long])
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    truth = np.repeat([0, 1], [97, 175])
    for method in ("kmeans", "split", "random"):
        assert ref.adjusted_rand(every_start(points, None, 2)[method], truth) > 0.97


@examples(60)
@given(
    hnp.arrays(float, st.tuples(st.integers(1, 30), st.integers(1, 4)), elements=st.integers(-3, 3)),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_any_points_get_labels(points, k, seed):
    """Repeated points, constant columns, more components than points, weights of zero."""
    weight = np.random.default_rng(seed).integers(0, 3, size=len(points)).astype(float)
    distinct = len(np.unique(points, axis=0))
    for w in (None, weight if weight.any() else None):
        for labels in every_start(points, w, k).values():
            assert labels.shape == (len(points),)
            used = np.unique(labels)
            assert used.tolist() == list(range(len(used)))
            assert len(used) <= min(k, distinct)
            for row in np.unique(points, axis=0):
                assert len(set(labels[np.all(points == row, axis=1)])) == 1


@pytest.mark.parametrize("k", [1, 7, 50])
def test_as_many_clusters_as_there_are_distinct_points(k):
    points = np.repeat(np.random.default_rng(0).normal(size=(7, 3)), 5, axis=0)
    for method in ("kmeans", "split", "random"):
        labels = every_start(points, None, k)[method]
        assert len(np.unique(labels)) == min(k, 7)


def test_labels_follow_the_rows_and_do_not_depend_on_where_and_how_large():
    points, _ = clusters(3, 8, 3)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, size=len(points))
    order = np.random.default_rng(5).permutation(len(points))
    for method, labels in every_start(points, weight, 6).items():
        moved = {
            "rows": start.choose_labels(points[order], weight[order], 6, method, np.random.default_rng(0)),
            "place": start.choose_labels(points + 5.0, weight, 6, method, np.random.default_rng(0))[order],
            "scale": start.choose_labels(0.25 * points, 1e300 * weight, 6, method, np.random.default_rng(0))[order],
        }
        for other in moved.values():
            np.testing.assert_array_equal(other, labels[order])


@pytest.mark.long_cases("split")
@pytest.mark.parametrize("method", start.DETERMINISTIC_METHODS)
def test_a_whole_weight_is_a_repeated_point(method):
    """Points of weight zero neither count as farthest nor decide the numbers of the clusters."""
    for seed in range(36):
        rng = np.random.default_rng(seed)
        points, weight = rng.standard_t(5.0, size=(400, 2)), rng.integers(0, 9, size=400)
        labels = start.choose_labels(points, weight.astype(float), 10, method)
        other = start.choose_labels(np.repeat(points, weight, axis=0), None, 10, method)
        np.testing.assert_array_equal(np.repeat(labels, weight), other)


def test_missing_entries_stand_at_the_mean_of_those_seen():
    points, truth = clusters(8, 5, 4)
    rng = np.random.default_rng(9)
    holes = rng.random(points.shape) < 0.02
    filled = np.where(holes, np.nanmean(np.where(holes, np.nan, points), axis=0), points)
    for method in start.DETERMINISTIC_METHODS:
        labels = start.choose_labels(np.where(holes, np.nan, points), None, 5, method, missing=True)
        np.testing.assert_array_equal(labels, start.choose_labels(filled, None, 5, method))
        full = ~holes.any(axis=1)
        if method == "kmeans":
            assert ref.adjusted_rand(labels[full], truth[full]) > 0.99
    empty = np.column_stack([points, np.full(len(points), np.nan)])  # a column of which nothing was seen
    np.testing.assert_array_equal(
        start.choose_labels(empty, None, 5, "kmeans", missing=True), start.choose_labels(points, None, 5, "kmeans")
    )


def test_candidates_differ_as_partitions():
    points = np.random.default_rng(10).normal(size=(300, 2))
    result = list(start.propose_labels(points, None, 6))
    assert len(result) == 3
    for i, one in enumerate(result):
        assert all(ref.adjusted_rand(one, other) < 1.0 for other in result[:i])
    assert len(list(start.propose_labels(points, None, 1))) == 1
    apart, _ = clusters(11, 6, 2)
    assert len(list(start.propose_labels(apart, None, 6))) == 2  # kmeans and split agree


def test_random_starts_depend_on_the_generator_alone():
    points = np.random.default_rng(12).normal(size=(500, 2))
    one, same, other = (start.choose_labels(points, None, 8, "random", np.random.default_rng(s)) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert ref.adjusted_rand(one, other) < 1.0
