"""`cavity fit mixture` and `cavity predict` as people use them, and the data they are shown with."""

from dataclasses import replace

import numpy as np
import pytest
from support.mixtures import faithful, groups
from support.tolerances import EXPANSION, LAST_BIT, OPTIMUM, PRINTED, SLOPES, SOLVES

import cavity
from cavity import data
from cavity.cli import main


@pytest.fixture(name="faithful", scope="module")
def make_faithful():
    return faithful()


def table_of(printed):
    """Of each component that was printed: {number: (weight, [(column, mean, sd, correlations)])}."""
    result, lines = {}, printed.splitlines()
    for line in lines[next(i for i, line in enumerate(lines) if line.startswith("components")) + 1 :]:
        message = line.split()
        if message[1:2] == ["weight"]:
            rows = []
            result[int(message[0])] = float(message[2].rstrip(",")), rows
        elif line.startswith("       ") and message[0] != "...":
            rows.append((message[0], *(float(word) for word in message[1:])))
        elif line == "fit":
            break
    return result


def test_faithful_is_that_of_r():
    columns, about = data.table("faithful")
    assert list(columns) == list(about["columns"]) == ["eruptions", "waiting"]
    table = np.column_stack(list(columns.values()))
    assert table.shape == (272, 2)
    # summary(faithful) and cov(faithful) as R prints them
    assert table.min(axis=0).tolist() == [1.6, 43.0]
    assert np.median(table, axis=0).tolist() == [4.0, 76.0]
    assert table.max(axis=0).tolist() == [5.1, 96.0]
    assert table.mean(axis=0) == pytest.approx([3.487783, 70.897059], abs=5e-7)
    assert np.cov(table.T).ravel() == pytest.approx([1.302728, 13.977808, 13.977808, 184.823312], abs=5e-7)


def test_faithful_has_two_groups(run, tmp_path, faithful):
    target, picture = tmp_path / "fit.npz", tmp_path / "fit.png"
    arguments = ["--components", "1-4", "--output", target, "--plot", picture]
    status, printed, errors = run("fit", "mixture", "faithful", *arguments)
    assert (status, errors) == (0, "")
    posterior = cavity.load(target)
    lines = [line for line in printed.splitlines() if "<- largest ELBO" in line]
    assert [line.split()[:3] for line in lines] == [["2", f"{posterior.elbo:.6f}", "2"]]
    assert "272 points, columns eruptions, waiting" in printed
    assert f"ELBO             {posterior.elbo:.6f} nats" in printed
    table = table_of(printed)
    assert sorted(table) == [1, 2]
    assert [weight for weight, _ in table.values()] == sorted((w for w, _ in table.values()), reverse=True)
    for k, (weight, rows) in table.items():
        covariance = posterior.covariance[k - 1]
        assert weight == pytest.approx(posterior.weights[k - 1], abs=PRINTED)
        assert [row[0] for row in rows] == ["eruptions", "waiting"]
        assert [row[1] for row in rows] == pytest.approx(posterior.mean[k - 1].tolist(), rel=SLOPES)
        assert [row[2] for row in rows] == pytest.approx(np.sqrt(np.diag(covariance)).tolist(), rel=EXPANSION)
        assert rows[1][3] == pytest.approx(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]), abs=5e-3)
    image = pytest.importorskip("matplotlib.image").imread(picture)
    assert image.std() > 0.05


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("columns", ["2", "4,1,3"])
def test_files_of_ones_own(run, tmp_path, covariance, columns):
    X = groups()
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    np.savetxt(tmp_path / "x.csv", X.astype(np.float32), delimiter=",", fmt="%.17g")
    results = []
    for name in ("x.npy", "x.csv"):
        options = ["--columns", columns, "--components", "3", "--covariance", covariance, "--threads", "2"]
        status, printed, _ = run("fit", "mixture", tmp_path / name, *options)
        assert status == 0
        assert "300 points, columns " + columns.replace(",", ", ") in printed
        assert "number of components" not in printed
        results.append(next(line for line in printed.splitlines() if "ELBO" in line))
    assert results[0] == results[1]
    index = [int(column) - 1 for column in columns.split(",")]
    model = cavity.GaussianMixture(3, covariance=covariance)
    assert f"{model.fit(X[:, index].astype(np.float32)).elbo:.6f}" in results[0]


def test_a_vector_and_a_text_column(run, tmp_path):
    X = groups()
    np.save(tmp_path / "x.npy", X[:, 0])
    status, printed, _ = run("fit", "mixture", tmp_path / "x.npy", "--components", "2")
    assert status == 0
    assert "300 points, columns 1" in printed
    lines = [f"{a},{'xy'[i % 2]},{b}" for i, (a, b) in enumerate(X[:, :2])]
    (tmp_path / "x.csv").write_text("\n".join(["a,kind,b", *lines]) + "\n")
    status, printed, _ = run("fit", "mixture", tmp_path / "x.csv", "--components", "2")
    assert status == 0
    assert "300 points, columns a, b" in printed
    assert "left out         kind (text)" in printed


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_columns_of_one_value(run, tmp_path, suffix):
    X = groups()
    X[:, 2] = 5.0
    data = tmp_path / f"x{suffix}"
    np.save(data, X) if suffix == ".npy" else np.savetxt(data, X, delimiter=",", fmt="%.17g")
    status, printed, _ = run("fit", "mixture", data, "--components", "3", "--output", tmp_path / "fit.npz")
    assert status == 0
    assert "columns 1, 2, 4" in printed
    assert "left out         3 (one value)" in printed
    assert cavity.load(tmp_path / "fit.npz").elbo == cavity.GaussianMixture(3).fit(X[:, [0, 1, 3]]).elbo
    named = ["fit", "mixture", data, "--columns", "1,3", "--components", "2"]
    status, _, errors = run(*named)
    assert status == 2
    assert "column '3' has one value only; leave it out of --columns, or give --covariance-prior" in errors
    assert run(*named, "--covariance-prior", "1")[0] == 0


def test_priors_reach_the_model(run, tmp_path, faithful):
    target = tmp_path / "fit.npz"
    options = {
        "--weights": "stick_breaking",
        "--weight-concentration-prior": 2,
        "--mean-prior": "3,70",
        "--mean-precision-prior": 0.5,
        "--degrees-of-freedom-prior": 4,
        "--covariance-prior": "1,100",
    }
    arguments = [text for pair in options.items() for text in pair]
    assert run("fit", "mixture", "faithful", "--components", 3, *arguments, "--output", target)[0] == 0
    model = cavity.GaussianMixture(
        3,
        weights="stick_breaking",
        weight_concentration_prior=2.0,
        mean_prior=[3.0, 70.0],
        mean_precision_prior=0.5,
        degrees_of_freedom_prior=4.0,
        covariance_prior=np.diag([1.0, 100.0]),
    )
    assert cavity.load(target).model == model
    assert cavity.load(target).elbo == model.fit(faithful).elbo
    for covariance, prior in (("spherical", 2.0), ("diag", [2.0, 2.0]), ("tied", np.diag([2.0, 2.0]))):
        options = ["--covariance", covariance, "--covariance-prior", 2, "--components", 2, "--output", target]
        assert run("fit", "mixture", "faithful", *options)[0] == 0
        model = cavity.GaussianMixture(2, covariance=covariance, covariance_prior=prior)
        assert cavity.load(target).model.covariance_prior == model.covariance_prior


def test_missing_values(run, tmp_path, faithful):
    X = faithful.copy()
    X[::7, 1] = np.nan
    np.save(tmp_path / "x.npy", X)
    lines = [f"{a:g},{'NA' if np.isnan(b) else format(b, 'g')}" for a, b in X]
    (tmp_path / "x.csv").write_text("\n".join(["eruptions,waiting", *lines]) + "\n")
    for name, message in (("x.csv", "'waiting' in line 2"), ("x.npy", "column '2' in row 1, row 8")):
        status, _, errors = run("fit", "mixture", tmp_path / name, "--components", "2")
        assert status == 2
        assert message in errors
        assert "diag" in errors
        target = tmp_path / "fit.npz"
        options = ["--components", "2", "--covariance", "diag", "--output", target, "--plot", tmp_path / "x.png"]
        assert run("fit", "mixture", tmp_path / name, *options)[0] == 0
        assert cavity.load(target).elbo == cavity.GaussianMixture(2, covariance="diag").fit(X).elbo
        status, printed, _ = run("predict", target, tmp_path / name, "--output", tmp_path / "r.npy")
        assert status == 0
        assert np.isfinite(np.load(tmp_path / "r.npy")).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.npy"], "nothing.npy: no such file"),
        (["faithful", "--columns", "duration"], "no column 'duration'; there is eruptions, waiting"),
        (["faithful", "--columns", "1,1"], "--columns: column 'eruptions' is listed twice"),
        (
            ["faithful", "--mean-prior", "1,2,3"],
            "--mean-prior takes one number, or one for each of the 2 columns, got 3",
        ),
        (["faithful", "--covariance", "spherical", "--covariance-prior", "1,2"], "is one number for all columns"),
        (["faithful", "--weight-concentration-prior", "0"], "--weight-concentration-prior must be positive, got 0"),
        (["faithful", "--starts", "2"], "--starts 2 needs --seed"),
        (["faithful", "--covariance-prior", "1,-2"], "--covariance-prior must be positive, got -2"),
        (["faithful", "--tol", "nan"], "--tol must be at least 0, got nan"),
        (["faithful", "--plot", "no/such/folder.png"], "no/such does not exist"),
        (["faithful", "--plot", "a.xyz"], "cannot draw a 'xyz' file"),
    ],
)
def test_bad_input_is_one_sentence(run, arguments, message):
    status, printed, errors = run("fit", "mixture", *arguments)
    assert (status, printed) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("text", ["0", "3-2", "two", "1-", "-3", "2.5"])
def test_numbers_of_components(capsys, text):
    with pytest.raises(SystemExit):
        main(["fit", "mixture", "faithful", f"--components={text}"])
    assert f"expected a number from 1 or a range like 2-8, got {text!r}" in capsys.readouterr().err


def test_many_columns_and_components_are_cut_short(run, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", 20.0 * rng.normal(size=(30, 16))[rng.integers(0, 30, 900)] + rng.normal(size=(900, 16)))
    options = ["--components", "30", "--covariance", "diag", "--weight-concentration-prior", "1", "--max-iter", "20"]
    _, printed, _ = run("fit", "mixture", tmp_path / "x.npy", *options, "--plot", tmp_path / "x.png")
    assert "... and 4 more columns" in printed
    assert len(table_of(printed)) == 12 or "without points" in printed
    assert len(printed.splitlines()) < 200


# ------------------------------------------------------------------------------------------------------------ predict


def test_predictions_are_those_of_the_library(run, tmp_path, faithful):
    target = tmp_path / "fit.npz"
    run("fit", "mixture", "faithful", "--components", "3", "--output", target)
    posterior = cavity.load(target)
    expected = np.column_stack([posterior.responsibilities(faithful), posterior.log_density(faithful)])
    status, printed, _ = run("predict", target, "faithful", "--output", tmp_path / "r.npy")
    assert status == 0
    assert "272 rows, columns r1, ..., r3, log_density" in printed
    assert float(next(line for line in printed.splitlines() if "log density" in line).split()[2]) == pytest.approx(
        expected[:, -1].mean(), abs=OPTIMUM
    )
    np.testing.assert_array_equal(np.load(tmp_path / "r.npy"), expected)
    assert run("predict", target, "faithful", "--output", tmp_path / "r.csv")[0] == 0
    header, *lines = (tmp_path / "r.csv").read_text().splitlines()
    assert header == "r1,r2,r3,log_density"
    assert np.array_equal([[float(cell) for cell in line.split(",")] for line in lines], expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_predictions_block_by_block(run, tmp_path, monkeypatch, threads):
    from cavity.cli import predict

    X = groups(1000)
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    posterior = cavity.GaussianMixture(3).fit(X[:, [2, 0]])
    posterior.save(tmp_path / "fit.npz")
    monkeypatch.setattr("cavity.sources.sources.rows_per_block", lambda width: 64)
    sizes, mixture = [], predict.mixture_predictor

    def counting(fitted):
        text = mixture(fitted)
        return replace(text, of=lambda rows, known: sizes.append(len(rows)) or text.of(rows, known))

    monkeypatch.setattr(predict, "mixture_predictor", counting)
    arguments = ["--columns", "3,1", "--output", tmp_path / "r.npy", "--threads", threads]
    assert run("predict", tmp_path / "fit.npz", tmp_path / "x.npy", *arguments)[0] == 0
    assert sorted(sizes) == [1000 % 64] + 15 * [64]
    expected = np.column_stack([posterior.responsibilities(X[:, [2, 0]]), posterior.log_density(X[:, [2, 0]])])
    np.testing.assert_allclose(np.load(tmp_path / "r.npy"), expected, rtol=SOLVES, atol=LAST_BIT)


def test_predictions_of_a_unit_mixture(run, tmp_path):
    target = tmp_path / "fit.npz"
    run("fit", "unit-mixture", "galaxies", "--components", "3", "--output", target)
    assert run("predict", target, "galaxies", "--output", tmp_path / "r.npy")[0] == 0
    y, posterior = data.load("galaxies")[0], cavity.load(target)
    expected = np.column_stack([posterior.responsibilities(y), posterior.log_density(y)])
    np.testing.assert_array_equal(np.load(tmp_path / "r.npy"), expected)


def test_predictions_are_of_the_columns_of_the_fit(run, tmp_path, faithful):
    """Any other numbers once passed for them, with -597 nats a row and status 0."""
    target, output = tmp_path / "fit.npz", tmp_path / "r.npy"
    assert run("fit", "mixture", "faithful", "--components", "2", "--output", target)[0] == 0
    assert run("predict", target, "faithful", "--output", output)[0] == 0
    expected = np.load(output)
    posterior = cavity.load(target)
    assert posterior.columns == ("eruptions", "waiting")
    rows = [f"{k},{b!r},{a!r},x" for k, (a, b) in enumerate(faithful.tolist())]
    (tmp_path / "more.csv").write_text("\n".join(["id,waiting,eruptions,note", *rows]) + "\n")
    for chosen in ([], ["--columns", "waiting,eruptions"], ["--columns", "3,2"]):
        assert run("predict", target, tmp_path / "more.csv", *chosen, "--output", output)[0] == 0
        np.testing.assert_array_equal(np.load(output), expected)
    output.write_bytes(b"as it was")
    (tmp_path / "other.csv").write_text("waiting,length\n1,2\n3,4\n")
    for data_set, other in ((tmp_path / "other.csv", "waiting, length"), ("banana", "x, y, class")):
        status, printed, errors = run("predict", target, data_set, "--output", output)
        assert (status, printed) == (2, "")
        assert "no column 'eruptions'" in errors
        assert f"which the fit had; there is {other}; choose with --columns" in errors
        assert output.read_bytes() == b"as it was"
    chosen = "--columns", "length,waiting"  # asked for
    assert run("predict", target, tmp_path / "other.csv", *chosen, "--output", output)[0] == 0
    # columns of arrays have numbers for names: positions
    np.save(tmp_path / "x.npy", np.column_stack([faithful, faithful]))
    fitted = "fit", "mixture", tmp_path / "x.npy", "--columns", "4,3", "--components", "2", "--output", target
    assert run(*fitted)[0] == 0
    for path, columns in (("x.npy", [3, 2]), ("y.npy", [0, 1])):
        np.save(tmp_path / "y.npy", faithful[:, ::-1])
        assert run("predict", target, tmp_path / path, "--output", output)[0] == 0
        X = np.load(tmp_path / path)[:, columns]
        np.testing.assert_array_equal(np.load(output)[:, -1], cavity.load(target).log_density(X))


def test_predictions_of_a_unit_mixture_are_of_its_column(run, tmp_path):
    target, output = tmp_path / "fit.npz", tmp_path / "r.npy"
    (tmp_path / "y.csv").write_text("a,b\n" + "".join(f"{v},{-v}\n" for v in (1.0, 1.2, 5.0, 5.1, 5.2)))
    assert (
        run("fit", "unit-mixture", tmp_path / "y.csv", "--column", "b", "--components", "1", "--output", target)[0] == 0
    )
    assert run("predict", target, tmp_path / "y.csv", "--output", output)[0] == 0
    posterior = cavity.load(target)
    np.testing.assert_array_equal(np.load(output)[:, -1], posterior.log_density([-1.0, -1.2, -5.0, -5.1, -5.2]))
    assert posterior.columns == posterior.update([-1.0]).columns == ("b",)
    assert "no column 'b', which the fit had" in run("predict", target, "galaxies", "--output", output)[2]


def test_what_cannot_be_predicted(run, tmp_path, faithful):
    target, other, output = tmp_path / "fit.npz", tmp_path / "other.npz", tmp_path / "r.npy"
    cavity.GaussianMixture(2).fit(faithful).save(target)
    cavity.FactorizedGaussian(0.0, [[1.0, 0.5], [0.5, 1.0]]).fit().save(other)
    bad = faithful.copy()
    bad[200, 1] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    output.write_bytes(b"as it was")
    cases = [
        ([other, "faithful"], "holds a FactorizedGaussianPosterior, which does not predict new rows"),
        ([target, "galaxies"], "the posterior has 2 columns, got 1 (velocity)"),
        ([target, "pima"], "got 7 (npreg, glu, bp, skin, bmi, ...); choose with --columns"),
        ([target, tmp_path / "bad.npy"], "missing values in column '2' in row 201"),
        ([target, "nothing.csv"], "no such file"),
        ([tmp_path / "bad.npy", "faithful"], "is not a file written by cavity"),
    ]
    for arguments, message in cases:
        status, printed, errors = run("predict", *arguments, "--output", output)
        assert (status, printed) == (2, "")
        assert message in errors
        assert output.read_bytes() == b"as it was"
    assert (
        "must be a .npy or .csv or .parquet file"
        in run("predict", target, "faithful", "--output", tmp_path / "r.txt")[2]
    )
    assert "is the posterior's file" in run("predict", target, "faithful", "--output", target)[2]
