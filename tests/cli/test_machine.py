"""The command line under random tables, options and damage: every command ends as `cavity --help` says.

No traceback; status 2 comes with one sentence that names an option or a file, and with all files as they were; what is
said to have converged has no nan.
"""

import json
import re
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import BytesIO, StringIO
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule
from support.damages import damages
from support.examples import examples

from cavity.cli import build_parser, main
from cavity.cli.options import Number

# ------------------------------------------------------------------------------------------ tables

ODD = ["", "NA", "nan", "inf", "-1e308", "1e308", "1e400", "5e-324", "1,5", '"', '"a', "a,b", "x", "0x10", "1_000"]
ODD += [" 2 ", "\n", "\r", "\x00", "é", "'", "=", "#"]
NAMES = [["a", "b", "y", "z"], ["a", "b", "y", "z"], ["a", "b", "a", ""], ["1", "x y", '"c,d"', "é"]]
SCALES = [1.0, 1.0, 1.0, 1e-150, 1e-8, 1e8, 1e150, 1e300]


def column(rng, kind, scale, n):
    """The cells of a column: numbers of that scale, ties, counts, a constant or text."""
    if kind == "text":
        return rng.choice(["no", "yes", "maybe"], n).tolist()
    values = {
        "normal": lambda: rng.normal(size=n) * scale,
        "far": lambda: (1.0 + 1e-9 * rng.normal(size=n)) * scale,
        "ties": lambda: rng.integers(0, 2, n) * scale,
        "count": lambda: rng.poisson(3.0, n) * 1.0,
        "constant": lambda: np.full(n, scale),
    }[kind]()
    return [repr(value) for value in values.tolist()]


KINDS = ["normal", "normal", "normal", "far", "ties", "ties", "count", "constant", "text"]
COLUMNS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(SCALES)), min_size=1, max_size=4)
PLACE = st.integers(0, 60)
LINES = st.sampled_from([[], [""], ["1", "2", "3", "4", "5"]])


@st.composite
def texts(draw):
    """The ending and the bytes of a text file: columns; in some some odd cells, or a line of too many or few fields."""
    columns, names, rng = draw(COLUMNS), draw(st.sampled_from(NAMES)), np.random.default_rng(draw(st.integers(0, 3)))
    n = draw(st.sampled_from([12, 12, 30, 30, 5, 2, 1, 0]))
    rows = [list(row) for row in zip(*(column(rng, *item, n) for item in columns), strict=True)]
    if draw(st.integers(0, 3)) == 3:
        for i, j, odd in draw(st.lists(st.tuples(PLACE, PLACE, st.sampled_from(ODD)), max_size=3 * (n > 0))):
            rows[i % n][j % len(columns)] = odd
        for i, fields in draw(st.lists(st.tuples(PLACE, LINES), max_size=1)):
            rows.insert(i % (n + 1), fields)
    ending, separator = draw(st.sampled_from([("csv", ","), ("csv", ","), ("csv", ";"), ("tsv", "\t"), ("txt", " ")]))
    header = draw(st.sampled_from([[names[: len(columns)]], [names[: len(columns)]], []]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return ending, end.join(separator.join(row) for row in [*header, *rows, []]).encode()


@st.composite
def arrays(draw):
    """The ending and the bytes of a .npy file."""
    shape = draw(st.sampled_from([(12, 3), (12, 2), (12, 1), (9,), (1, 2), (0, 2), (3, 0), (0,), (2, 2, 2)]))
    values = np.random.default_rng(0).normal(size=shape) * draw(st.sampled_from(SCALES))
    values[..., -1:] = np.round(values[..., -1:]) % 2
    if draw(st.booleans()) and values.size:
        values.flat[0] = draw(st.sampled_from([np.nan, np.inf, 0.0]))
    with np.errstate(over="ignore", invalid="ignore"):
        values, file = values.astype(draw(st.sampled_from(["f8", "f8", "f4", ">f8", "i4", "?", "U2"]))), BytesIO()
    np.save(file, values)
    return "npy", file.getvalue()


# ------------------------------------------------------------------------------------------ options

RIGHT, WRONG = "right", "wrong"
NUMBERS = {
    RIGHT: ["1", "0.5", "0.9", "1e-8"],
    WRONG: ["2", "0", "-1", "nan", "inf", "1e-300", "1e300", "1e150", "x", "", "1,2"],
}
COUNTS = {  # what can be asked for in no time, or not at all
    "max_iter": {RIGHT: ["20", "2"], WRONG: ["0", "-3", "1.5"]},
    "starts": {RIGHT: ["1"], WRONG: ["2", "0"]},
    "components": {RIGHT: ["1", "2", "1-2"], WRONG: ["0", "2-1", "99", f"{10**15}"]},
    "threads": {RIGHT: ["1", "2"], WRONG: ["0", "many"]},
    "checkpoint_every": {RIGHT: ["0"], WRONG: ["-1", "nan"]},
    "inducing": {RIGHT: ["4", "1"], WRONG: ["0"]},
    "batch": {RIGHT: ["5", "12"], WRONG: ["2", "0"]},
    "seed": {RIGHT: ["3"], WRONG: ["-1"]},
}
WORDS = {
    "covariance": {RIGHT: ["rbf", "linear", "matern32*constant"], WRONG: ["rbf+linear*periodic", "rbf(2,0.5)", "rbf("]},
    "formula": {RIGHT: ["y ~ a + (1 | b)", "y ~ (a | b)", "a ~ (1 | b)"], WRONG: ["a ~ 1", "y ~", "y ~ (1 | none)"]},
    "sep": {RIGHT: [","], WRONG: [";", "tab", "ab", ""]},
    "encoding": {RIGHT: ["utf-8"], WRONG: ["cp1252", "none"]},
    "classes": {RIGHT: ["0,1", "0.0,1.0"], WRONG: ["no,yes", "no", ""]},
}
OF_COLUMNS = ["target", "features", "offset", "exposure", "weights", "categorical", "trials", "column", "columns"]
COLUMN_WORDS = {RIGHT: ["1", "2"], WRONG: ["a", "y", "9", "none", "2,1", "a,a", "", ","]}
WORDS |= COUNTS | {name: COLUMN_WORDS for name in OF_COLUMNS}
FILES = ["output", "checkpoint", "plot", "config", "resume", "posterior", "data", "help"]  # which the rules give
ALWAYS = ["target", "column", "formula", "max_iter"]  # what most tables need
COMMANDS = build_parser().commands
MODELS = [message[1] for message in COMMANDS if message[0] == "fit"]


def values(action):
    """What may be typed for an option, right or wrong."""
    if action.dest in WORDS:
        return WORDS[action.dest]
    if action.choices is not None:
        return {RIGHT: list(action.choices), WRONG: ["none"]}
    return NUMBERS if isinstance(action.type, Number) else {RIGHT: [None], WRONG: [None]}


def typed(action, kind):
    """An option as it is typed."""
    name = action.option_strings[0]
    return st.sampled_from(values(action)[kind]).map(lambda word: name if word is None else f"{name}={word}")


def options(command):
    """Some options of a command, few of them wrong."""
    truth = [action for action in command._actions if action.option_strings and action.dest not in FILES]
    has_target = any(action.dest == "target" for action in truth)  # for which a formula may stand
    always = [name for name in ALWAYS if name != "formula" or not has_target]
    needed = st.tuples(*(typed(action, RIGHT) for action in truth if action.dest in always))
    right = st.lists(st.sampled_from(truth).flatmap(lambda action: typed(action, RIGHT)), max_size=2)
    wrong = st.sampled_from(truth).flatmap(lambda action: typed(action, WRONG)).map(lambda word: [word])
    none = st.just([])
    return st.tuples(needed, right, st.one_of(none, none, none, wrong)).map(lambda parts: [*chain(*parts)])


OPTIONS = {text: options(command) for text, command in COMMANDS.items()}
MODEL, ENDINGS = st.sampled_from(MODELS), st.sampled_from(["npy", "npy", "csv", "parquet", "x"])
OUTPUTS = st.sampled_from(["new"] * 5 + ["old", "none", "missing"])


@cache
def healthy(model):
    """The bytes of a table, of a posterior of it, and of a checkpoint, None if there is none."""
    rng, labels = np.random.default_rng(1), np.arange(12) % 2
    rows = [f"{a!r},{c},{y}" for a, c, y in zip(rng.normal(size=12).tolist(), np.arange(12) % 3, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        table, out, checkpoint = (Path(folder) / name for name in ("table.csv", "out.npz", "checkpoint.npz"))
        table.write_text("\n".join(["a,b,y", *rows, ""]))
        column = {"column": "a", "target": "y", "formula": "a ~ (1 | b)", "learn": "never"}
        phrase = [f"--{name}={word}" for name, word in column.items() if name in dests(model)]
        phrase += [f"--checkpoint={checkpoint}"] if "checkpoint" in dests(model) else []
        assert main(["fit", model, str(table), *phrase, f"--output={out}"]) == 0
        stored = checkpoint.read_bytes() if checkpoint.exists() else None
        return table.read_bytes(), out.read_bytes(), stored


def dests(model):
    """The names of the options of a model."""
    return {action.dest for action in COMMANDS["fit", model]._actions}


RESUMABLE = [model for model in MODELS if "checkpoint" in dests(model)]
CONFIGS = ["max-iter = 3", "tol = 1e-3\nquiet = true", "threads = 0", "max-iter = [1", "none = 1", "\x00"]


# ------------------------------------------------------------------------------------------ the machine


class Commands(RuleBasedStateMachine):
    """Tables, posteriors and checkpoints in a folder, which commands read and write."""

    data, posteriors, checkpoints = Bundle("data"), Bundle("posteriors"), Bundle("checkpoints")

    def __init__(self):
        super().__init__()
        self.folder, self.count = Path(tempfile.mkdtemp()), 0

    def teardown(self):
        shutil.rmtree(self.folder)

    def new(self, ending, content=None):
        """A path that nobody has; a file, if there is content."""
        self.count += 1
        path = self.folder / f"file{self.count}.{ending}"
        if content is not None:
            path.write_bytes(content)
        return path

    def held(self):
        """The bytes of all files."""
        return {path: path.read_bytes() for path in self.folder.iterdir()}

    def run(self, *command, writes=(), checkpoint=None):
        """Run a command that may write some files, and hold it to the laws; return its status."""
        before, out, err = self.held(), StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = main([str(word) for word in command])
            except SystemExit as stop:  # of argparse
                status = stop.code
        out, err, after = out.getvalue(), err.getvalue(), self.held()
        label = f"{command}: {status}\n{out}\n{err}"
        assert status in (0, 1, 2), label
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        if status == 2:
            assert out == "", label
            self.check_sentence(err, label)
            absorbed = {path for path in writes if f"the state before is saved in {path};" in err}
            assert changed <= {checkpoint, *absorbed}, label
            return status
        assert changed <= {checkpoint, *writes}, label
        assert all(line.startswith("cavity: checkpoint ") for line in err.splitlines()), label
        if "--json" in command:
            assert isinstance(json.loads(out), dict), label
        if status == 0:
            assert not re.search(r"\bnan\b", out, re.IGNORECASE), label
        return status

    def check_sentence(self, err, label):
        """One sentence that names an option or a file; above those of argparse stands the usage."""
        usage, *lines = re.split(r"(?m)^cavity.*?: error: ", err)
        assert len(lines) == 1, label
        assert lines[0].count("\n") == 1, label
        assert usage == "" or usage.startswith("usage: cavity"), label
        assert str(self.folder) in lines[0] or "--" in lines[0], label

    def written(self, to, ending, old):
        """The words that ask for an output, and its path: a new file, one that is there, none, or in no folder."""
        if to == "none":
            return [], None
        path = self.folder / "missing" / "out" if to == "missing" else old if to == "old" else self.new(ending)
        return [f"--output={path}"], path

    @initialize(target=data, model=MODEL)
    def healthy_table(self, model):
        """There is one at least."""
        return self.new("csv", healthy(model)[0])

    @initialize(target=posteriors, model=MODEL)
    def healthy_posterior(self, model):
        """Of that table."""
        return self.new("npz", healthy(model)[1])

    @initialize(target=checkpoints, model=st.sampled_from(RESUMABLE))
    def healthy_checkpoint(self, model):
        """Of that table, too."""
        return self.new("npz", healthy(model)[2])

    @rule(target=data, table=st.one_of(texts(), arrays()))
    def table(self, table):
        """One more."""
        return self.new(*table)

    @rule(target=posteriors, draw=st.data(), model=MODEL, table=data, to=OUTPUTS, json=st.booleans())
    def fit(self, draw, model, table, to, json):
        """Of any model; what it saved can be read."""
        phrase, path = self.written(to, "npz", table)
        phrase += draw.draw(OPTIONS["fit", model]) + ["--json"] * json
        if self.run("fit", model, table, *phrase, writes=[path]) == 2 or path is None:
            return multiple()
        assert self.run("info", path) == 0
        return path

    @rule(draw=st.data(), model=MODEL, table=data, content=st.sampled_from(CONFIGS))
    def fit_with_config(self, draw, model, table, content):
        """Options from a file, which may be wrong."""
        path = self.new("toml", content.encode())
        self.run("fit", model, table, *draw.draw(OPTIONS["fit", model]), f"--config={path}")

    @rule(target=checkpoints, draw=st.data(), model=st.sampled_from(RESUMABLE), table=data)
    def fit_with_checkpoint(self, draw, model, table):
        """The same command again ends in the same way."""
        path = self.new("npz")
        command = ("fit", model, table, *draw.draw(OPTIONS["fit", model]), f"--checkpoint={path}")
        status = self.run(*command, checkpoint=path)
        assert self.run(*command, checkpoint=path) == status
        return path if path.exists() else multiple()

    @rule(draw=st.data(), model=st.sampled_from(RESUMABLE), table=data, path=checkpoints)
    def fit_with_checkpoint_of_another(self, draw, model, table, path):
        """A checkpoint of something else, or damaged."""
        phrase = draw.draw(OPTIONS["fit", model])
        self.run("fit", model, table, *phrase, f"--checkpoint={path}", checkpoint=path)

    @rule(draw=st.data(), path=posteriors, table=data, to=OUTPUTS)
    def resume(self, draw, path, table, to):
        """A stream goes on, from what may be no stream."""
        phrase, out = self.written(to, "npz", path)
        phrase += draw.draw(OPTIONS["fit", "streaming-gp"])
        self.run("fit", "streaming-gp", table, f"--resume={path}", *phrase, writes=[out])

    @rule(draw=st.data(), path=posteriors, table=data, to=OUTPUTS, ending=ENDINGS)
    def predict(self, draw, path, table, to, ending):
        """Of any table with any posterior."""
        phrase, out = self.written(to, ending, table)
        status = self.run("predict", path, table, *phrase, *draw.draw(OPTIONS["predict",]), writes=[out])
        if status == 0 and ending == "npy":
            assert not np.isnan(np.load(out)).any()

    @rule(target=data, path=consumes(data), damage=damages())
    def damage_table(self, path, damage):
        """It stays one of the tables."""
        path.write_bytes(damage(path.read_bytes()))
        return path

    @rule(path=st.one_of(posteriors, checkpoints), damage=damages(), json=st.booleans())
    def damage_result(self, path, damage, json):
        """Whatever was saved."""
        path.write_bytes(damage(path.read_bytes()))
        self.run("info", path, *["--json"] * json)


TestCommands = pytest.mark.long(Commands.TestCase)
TestCommands.settings = settings(examples(10), stateful_step_count=12)
