"""Helpers of several test files; `GOLDEN` is the folder of fixed numbers and the scripts that made them."""

from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
