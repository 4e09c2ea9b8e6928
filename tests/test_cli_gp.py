"""`cavity fit gp` as users run it, and the data it is shown with."""

import numpy as np
import pytest

from cavity import data


def test_motorcycle_is_silvermans():
    columns, about = data.table("motorcycle")
    assert list(columns) == list(about["columns"]) == list(about["units"]) == ["time", "acceleration"]
    time, acceleration = columns.values()
    # summary(mcycle) as R prints it
    assert np.quantile(time, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([2.4, 15.6, 23.4, 34.8, 57.6])
    assert np.quantile(acceleration, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([-134.0, -54.9, -13.3, 0.0, 75.0])
    assert [time.mean(), acceleration.mean()] == pytest.approx([25.18, -25.55], abs=5e-3)
    assert (len(time), len(np.unique(time))) == (133, 94)
    assert np.all(np.diff(time) >= 0)


def test_banana_is_that_of_the_benchmark():
    columns, about = data.table("banana")
    assert list(columns) == list(about["columns"]) == ["x", "y", about["target"]]
    x, y, label = columns.values()
    assert [int(np.sum(label == kind)) for kind in (-1, 1)] == [2924, 2376]  # of 5300
    points = np.column_stack([x, y])
    assert len(np.unique(points, axis=0)) == 5300
    assert points.mean(axis=0) == pytest.approx([0, 0], abs=1e-7)
    assert points.std(axis=0, ddof=1) == pytest.approx([1, 1], abs=1e-6)
    # the classifiers of the paper err on 10.7 to 12.3 % of the test points; so does a vote of 15 neighbours
    train, test = points[:400], points[400:]
    nearest = np.argsort(((test[:, None] - train) ** 2).sum(axis=2), axis=1)[:, :15]
    wrong = np.mean(np.sign(label[:400][nearest].sum(axis=1)) != label[400:])
    assert 0.09 < wrong < 0.13
