"""Parameters of covariances as slots: what they are, in which order, and the way back."""

import pickle

import numpy as np
import pytest

from cavity.covariances import RBF, Constant, Linear, Periodic, RationalQuadratic, White, slots

WHOLE = RBF(2.0, [1.0, 3.0], fixed=["variance"]) * Constant(0.5) + RBF(bounds={"lengthscale": (0.1, 9.0)}) + Periodic()


def test_slots_are_the_free_numbers_in_the_order_of_their_names():
    result = slots.list_free_slots(WHOLE)
    assert tuple(slot.full_name for slot in result) == WHOLE.parameter_names
    assert [slot.place for slot in result] == [0, 0, 1, 2, 2, 3, 3, 3]
    assert [slot.index for slot in result[:3]] == [0, 1, None]
    np.testing.assert_array_equal([slot.value for slot in result], slots.get_values(WHOLE))
    np.testing.assert_array_equal(np.log(slots.get_values(WHOLE)), WHOLE.log_parameters)
    assert result[4].bounds == (0.1, 9.0)
    assert slots.get_bounds(WHOLE)[0].tolist() == list(slots.DEFAULT_BOUNDS)


def test_roles_say_what_a_number_does_whatever_it_is_called():
    roles = {slot.role for slot in slots.list_free_slots(WHOLE + RationalQuadratic() + Linear() + White())}
    assert roles == {"variance", "lengthscale", "smoothness", "period", "shape"}
    assert [slot.role for slot in slots.list_free_slots(Periodic())] == ["variance", "smoothness", "period"]


def test_other_values_keep_the_structure():
    numbers = 1.5 * slots.get_values(WHOLE)
    other = slots.replace_values(WHOLE, numbers)
    np.testing.assert_array_equal(slots.get_values(other), numbers)
    assert other.parameter_names == WHOLE.parameter_names
    assert other.parameters["rbf_1.variance"] == 2.0  # which is fixed
    assert slots.rebuild(WHOLE, iter(slots.list_leaves(WHOLE))) == WHOLE


def test_nothing_is_free():
    fixed = WHOLE.fix()
    assert slots.list_free_slots(fixed) == []
    assert slots.get_bounds(fixed).shape == (0, 2)
    assert slots.get_values(fixed).shape == (0,)


def test_derivatives_of_fixed_parameters_are_left_out():
    covariance = RBF(2.0, 1.5, fixed=["variance"])
    # one lengthscale for two columns: its derivative is the sum of theirs
    assert slots.gather_free_gradient(covariance, np.array([5.0, 1.0, 2.0]), 2).tolist() == [3.0]


def test_moved_covariances_are_as_if_built_anew():
    X = np.random.default_rng(0).normal(size=(7, 2))
    K, numbers = WHOLE.gram(X), slots.get_values(WHOLE)  # what is worked out here is shared
    moved = WHOLE.with_log_parameters(WHOLE.log_parameters + 0.3)
    anew = pickle.loads(pickle.dumps(moved))
    assert moved == anew
    for of in (lambda each: each.gram(X), lambda each: each.gradient(X, np.eye(7)), lambda each: each.log_prior()[1]):
        np.testing.assert_array_equal(of(moved), of(anew))
    np.testing.assert_array_equal(WHOLE.gram(X), K)
    np.testing.assert_array_equal(slots.get_values(WHOLE), numbers)
    with pytest.raises(ValueError, match="column"):
        moved.gram(X[:, :1])
