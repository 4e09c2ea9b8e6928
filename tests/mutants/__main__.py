"""Deliberate mistakes, one at a time, and whether the tests see them: `python tests/mutants [--only NAME] [--list]`.

`table.toml` says what is changed where, and which tests are the nearest. The tree is copied, and only the copy is
changed; of a changed kernel its extensions are built anew, for the baseline instruction set alone. A mutant is killed
by a test that fails, or by the time limit; the same tests must pass in the copy before it is changed. The exit status
is 1 if a mutant survives of which the table does not argue that it is equivalent, 2 if the table does not fit the tree.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import CHECKOUT, TABLE_PATH, find_faults, read_mutants

UNCOPIED_NAMES = (".git", ".venv*", ".hypothesis", ".ruff_cache", "__pycache__", "v3", "v4", "_build", "wheels")
BUILD_SCRIPT = """
import setup, setuptools
setup.LEVEL_FLAGS.clear()
commands = {"build_ext": setup.BuildCore}
options = {"build": {"build_base": str(setup.BUILD_FOLDER)}}
script = ["-q", "build_ext", "--inplace", "-j2"]
setuptools.setup(ext_modules=list(setup.extensions()), cmdclass=commands, options=options, script_args=script)
"""
COMPILED_SUFFIXES = (".pyx", ".pxd", ".h")
BUILD_SECONDS = 1200  # of a header that many kernels include
FAILED_STATUSES = (1, 2)  # what pytest returns after tests that failed and after errors of collection


class Copy:
    """A copy of the tree in which one file at a time is changed."""

    def __init__(self, folder):
        self.root = Path(folder, "tree")
        shutil.copytree(CHECKOUT, self.root, symlinks=True, ignore=shutil.ignore_patterns(*UNCOPIED_NAMES))
        self.passed = set()  # tests that pass where nothing is changed
        packages = Path(sys.executable).parent
        self.environment = os.environ | {
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CAVITY_LEVEL": "baseline",
            "PATH": f"{packages}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, arguments, seconds):
        """Run Python in the copy; return its exit status, None if it took too long, and what it printed."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        return process.returncode, printed

    def test(self, tests, seconds):
        """Run tests up to the first that fails."""
        return self.run(["-m", "pytest", "-n", "0", "-x", "-q", *tests], seconds)

    def build(self):
        """Compile what is not up to date."""
        status, printed = self.run(["-c", BUILD_SCRIPT], BUILD_SECONDS)
        if status != 0:
            raise SystemExit(f"the copy cannot be built:\n{printed}")

    def check(self, tests, seconds):
        """Raise SystemExit unless tests pass where nothing is changed."""
        if tests in self.passed:
            return
        status, printed = self.test(tests, seconds)
        if status != 0:
            raise SystemExit(f"{' '.join(tests)} must pass before anything is changed, got status {status}:\n{printed}")
        self.passed.add(tests)

    def change(self, mutant):
        """Make the mistake."""
        path = self.root / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        if path.suffix in COMPILED_SUFFIXES:
            self.build()

    def restore(self, mutant):
        """Undo the mistake and what was compiled of it, which has newer time stamps."""
        changed = [self.root / mutant.file]
        if changed[0].suffix in COMPILED_SUFFIXES:
            for folder in ("build", "src/cavity/_core"):
                changed += [path for path in (self.root / folder).rglob("*") if path.is_file()]
        for path in changed:
            original = CHECKOUT / path.relative_to(self.root)
            if not original.exists():
                path.unlink()
            elif path.stat().st_mtime != original.stat().st_mtime:
                shutil.copy2(original, path)


def judge(copy, mutant, seconds):
    """Return whether the tests see a mutant, and how."""
    copy.check(mutant.tests, seconds)
    try:
        copy.change(mutant)
        status, printed = copy.test(mutant.tests, seconds)
    finally:
        copy.restore(mutant)
    if status is None:
        return True, f"not done after {seconds} s"
    if status == 0:
        return False, "all tests pass"
    if status not in FAILED_STATUSES and status > 0:
        raise SystemExit(f"{mutant.name}: pytest returned {status}:\n{printed}")
    failed = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return True, failed[0].partition(" - ")[0] if failed else f"status {status}"


def main():
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", action="append", help="mutants whose names begin so; repeatable")
    parser.add_argument("--list", action="store_true", help="print the table and do nothing")
    parser.add_argument("--python", action="store_true", help="leave out mutants that have to be compiled")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of the tests of a mutant")
    options = parser.parse_args()
    faults = find_faults()
    if faults:
        print(*faults, f"{TABLE_PATH} does not fit the tree", sep="\n", file=sys.stderr)
        return 2
    chosen = [m for m in read_mutants() if not options.only or m.name.startswith(tuple(options.only))]
    chosen = [m for m in chosen if not (options.python and m.file.endswith(COMPILED_SUFFIXES))]
    if not chosen:
        parser.error("no mutant has such a name")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:40} {mutant.file}{'  (equivalent)' if mutant.equivalent else ''}")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(folder)
        copy.build()
        for mutant in chosen:
            start = time.monotonic()
            killed, how = judge(copy, mutant, options.seconds)
            verdict = "killed  " if killed else "argued  " if mutant.equivalent else "SURVIVES"
            print(f"{verdict} {mutant.name:40} {time.monotonic() - start:5.0f} s  {how}", flush=True)
            survivors += [mutant.name] if verdict == "SURVIVES" else []
    print(f"{len(chosen)} mutants, {len(survivors)} survive{': ' if survivors else ''}{', '.join(survivors)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
