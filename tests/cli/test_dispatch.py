"""One command loads and runs no more than it needs."""

import numpy as np
from support.commands import runner, write
from support.entered import files_entered

from cavity.cli import COMMAND_TABLE, build_parser

MOST_FILES = 70  # of which 60 are the reading of the table and the fit, two of these integrals; formulas add to them
MOST_FILES_OF_CLI = 8


def test_a_fit_enters_few_files(capsys, tmp_path):
    rng, run = np.random.default_rng(0), runner(capsys, "fit", "glm")
    a, b, noise = rng.normal(size=(3, 60))
    path = write(tmp_path / "x.csv", {"a": a, "b": b, "y": np.where(a + noise > 0, "yes", "no").tolist()})
    results = []
    files = files_entered(lambda: results.append(run(path, "--target", "y")))
    assert results[0][0] == 0
    assert "models/glm/model.py" in files
    assert len(files) <= MOST_FILES
    assert len([file for file in files if file.startswith("cli/")]) <= MOST_FILES_OF_CLI


def test_only_the_command_that_was_typed_has_its_options():
    every = {tuple(name.split()) for name, *_ in COMMAND_TABLE}
    assert set(build_parser().commands) == every
    for message in every:
        assert set(build_parser([*message, "--help"]).commands) == {message}
    for message in ([], ["--help"], ["fit"], ["fit", "--help"], ["nonsense"]):
        assert build_parser(message).commands == {}


def test_help_lists_all_commands_and_models(capsys):
    run = runner(capsys)
    for name, _, help_line in COMMAND_TABLE:
        *above, word = name.split()
        status, text, _ = run(*above, "--help")
        assert status == 0
        assert f"{word} {help_line}" in " ".join(text.split())
