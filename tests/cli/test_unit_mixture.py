"""`cavity fit unit-mixture` as people use it."""

import numpy as np
import pytest

import cavity
from cavity.cli import main


def test_galaxies(capsys, tmp_path):
    target, picture = tmp_path / "fit.npz", tmp_path / "fit.png"
    assert main(["fit", "unit-mixture", "galaxies", "--output", str(target), "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "82 points" in printed
    assert "<- chosen" in printed
    assert "converged" in printed
    posterior = cavity.load(target)
    assert f"ELBO             {posterior.elbo:.6f} nats" in printed
    assert 3 <= len(posterior.mean) <= 10
    assert picture.read_bytes()[:4] == b"\x89PNG"
    plt = pytest.importorskip("matplotlib.image")
    assert plt.imread(picture).std() > 0.05  # something is drawn


def test_given_settings_are_not_learnt(capsys):
    arguments = ["--components", "4", "--noise-variance", "1", "--prior-variance", "100", "--equal-weights"]
    assert main(["fit", "unit-mixture", "galaxies", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "noise_variance   1  (given)" in printed
    assert "prior_variance   100  (given)" in printed
    assert "number of components" not in printed


def test_file_of_ones_own(capsys, tmp_path):
    y = np.random.default_rng(0).normal([[-5.0], [5.0]], 1.0, (2, 60)).ravel()
    np.save(tmp_path / "y.npy", y.astype(np.float32))
    np.savetxt(tmp_path / "y.csv", np.column_stack([y, -y]), delimiter=",", header="a,b", comments="")
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy"), "--components", "2", "--threads", "2"]) == 0
    assert "120 points" in capsys.readouterr().out
    assert main(["fit", "unit-mixture", str(tmp_path / "y.csv"), "--column", "b", "--starts", "2", "--seed", "0"]) == 0
    assert "2    ELBO" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.npy"], "nothing.npy: no such file"),
        (["galaxies", "--components", "0"], "--components must be at least 1, got 0"),
        (["galaxies", "--starts", "2"], "--starts 2 needs --seed"),
        (["galaxies", "--noise-variance", "1e-299"], "--noise-variance must be above"),
        (["galaxies", "--plot", "no/such/folder.png"], "no/such does not exist"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, capsys):
    assert main(["fit", "unit-mixture", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_nan_in_a_file_is_named(capsys, tmp_path):
    y = np.ones(100)
    y[17] = np.nan
    np.save(tmp_path / "y.npy", y)
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy")]) == 2
    assert "row 18: column" in capsys.readouterr().err


@pytest.mark.long_cases("values1")
@pytest.mark.parametrize("values", [np.repeat([1, 2, 3], 40), np.repeat([0, 1, 2, 3, 4], [5, 9, 30, 9, 5])])
def test_numbers_of_components_whose_noise_vanishes_are_left_out(values, capsys, tmp_path):
    np.save(tmp_path / "y.npy", values)
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy")]) == 0
    printed = capsys.readouterr().out
    assert "10   the noise variance falls to zero" in printed
    assert "<- chosen" in printed


@pytest.mark.parametrize("n", [10, pytest.param(100, marks=pytest.mark.long)])
def test_one_group_is_one_component(capsys, tmp_path, n):
    np.save(tmp_path / "y.npy", np.arange(10) if n == 10 else np.random.default_rng(0).normal(size=n))
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy")]) == 0
    printed = capsys.readouterr().out
    assert "(all components coincide)" in printed
    assert next(line for line in printed.splitlines() if "<-" in line).split()[0] == "1"


def test_data_without_spread_are_said(capsys, tmp_path):
    np.save(tmp_path / "y.npy", np.full(50, 3.0))
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy")]) == 2
    assert "noise_variance has fallen to" in capsys.readouterr().err


def test_means_far_from_zero_show_their_digits(capsys, tmp_path):
    y = 1e8 + 1e-3 * np.random.default_rng(0).normal([[0.0], [6.0]], 1.0, (2, 150)).ravel()
    np.save(tmp_path / "y.npy", y)
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy"), "--components", "2"]) == 0
    means = [float(line.split("+-")[0]) for line in capsys.readouterr().out.splitlines() if "+-" in line]
    assert means == pytest.approx([1e8, 1e8 + 6e-3], abs=5e-4, rel=0)


@pytest.mark.long_cases("values1-arguments1", "values2-arguments2")
@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        (np.full(50, 3.0), ["--components", "1", "--noise-variance", "1"]),
        ([2.5], ["--components", "3", "--noise-variance", "1"]),
        (np.random.default_rng(0).standard_cauchy(150), ["--components", "12"]),
        pytest.param(np.arange(200.0), ["--components", "120", "--noise-variance", "1e-4"], marks=pytest.mark.long),
    ],
)
def test_pictures_of_odd_fits(values, arguments, tmp_path):
    np.save(tmp_path / "y.npy", values)
    picture = tmp_path / "fit.png"
    assert main(["fit", "unit-mixture", str(tmp_path / "y.npy"), "--plot", str(picture), *arguments]) == 0
    image = pytest.importorskip("matplotlib.image").imread(picture)
    assert image.std() > 0.05


def test_missing_values_are_named_with_what_to_do(capsys, tmp_path):
    (tmp_path / "y.csv").write_text("delay,flight\n1.5,1\n,2\n3,3\n")
    assert main(["fit", "unit-mixture", str(tmp_path / "y.csv"), "--column", "delay"]) == 2
    assert (
        "line 3: column 'delay' has no value; fill it in, or leave such rows out with --missing drop"
        in capsys.readouterr().err
    )
