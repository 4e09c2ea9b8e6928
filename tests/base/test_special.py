"""Parts of divergences."""

import numpy as np

from cavity.base.special import shape_divergence


def test_shapes_that_are_all_equal_diverge_as_each_alone():
    shapes = np.array([0.3, 5.0, 40.0])
    item = [shape_divergence(np.array([a, 2.0 * a]), 7.0)[0] for a in shapes]
    np.testing.assert_array_equal([shape_divergence(float(a), 7.0) for a in shapes], item)
    np.testing.assert_array_equal(shape_divergence(np.full((2, 3), 5.0), 7.0), np.full((2, 3), item[1]))
