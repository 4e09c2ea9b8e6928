"""Mixed models saved and read back: equal in every bit, by formula or not, and damaged files refused."""

import numpy as np
import pytest
from support.saved_files import load_changed
from support.tolerances import SOLVES

import cavity
from cavity import data

SLEEP = data.table("sleepstudy", as_frame=True)[0]


@pytest.fixture(scope="module", params=["formula", "frame", "arrays"])
def case(request):
    """A posterior, and what its methods take for rows."""
    if request.param == "formula":
        pytest.importorskip("formulae")
        model, values = cavity.MixedGLM("Reaction ~ scale(Days) + (Days | Subject)"), {"X": SLEEP}
    elif request.param == "frame":
        model = cavity.MixedGLM([cavity.RandomEffects("Subject", "Days")], intercept=True)
        values = {"X": SLEEP, "y": "Reaction"}
    else:
        X = np.column_stack([np.ones(180), SLEEP["Days"]])
        model = cavity.MixedGLM([cavity.RandomEffects("Subject", 1, correlated=False)])
        values = {"X": X, "y": SLEEP["Reaction"].to_numpy(), "groups": {"Subject": [f"p{i}" for i in SLEEP["Subject"]]}}
    return model.fit(**values), values


def test_all_of_it_comes_back(case, tmp_path):
    posterior, values = case
    posterior.save(tmp_path / "first.npz")
    restored = cavity.load(tmp_path / "first.npz")
    restored.save(tmp_path / "second.npz")
    assert (tmp_path / "first.npz").read_bytes() == (tmp_path / "second.npz").read_bytes()
    assert restored.model == posterior.model
    assert repr(restored) == repr(posterior)
    assert repr(restored.summary()) == repr(posterior.summary())
    rows = {name: value for name, value in values.items() if name != "y"}
    np.testing.assert_array_equal(restored.predict(**rows), posterior.predict(**rows))
    np.testing.assert_array_equal(restored.loo_log_density, posterior.loo_log_density)
    left = restored.leave_group_out("Subject", **values)
    np.testing.assert_array_equal(left, posterior.leave_group_out("Subject", **values))
    updated = restored.update(**values)
    assert updated.log_evidence == pytest.approx(posterior.update(**values).log_evidence, rel=SOLVES)
    with pytest.raises(ValueError, match="must have levels of the fit"):
        restored.predict(
            **rows | ({"groups": {"Subject": ["new"] * 180}} if "groups" in rows else {"X": SLEEP.assign(Subject=1)})
        )


@pytest.mark.parametrize("name", ["effects_mean", "effects_indptr", "reader_levels_0"])
def test_damaged_arrays_are_named(case, name, tmp_path):
    def shorten(_, arrays):
        arrays[name] = arrays[name][:-1]

    with pytest.raises(ValueError, match="effects"):
        load_changed(case[0], tmp_path, shorten)
