"""What decides the last bits, in words: in files, and between workers."""

import threadpoolctl

import cavity
from cavity import _core
from cavity.base import build_description, persistence


def test_words_name_version_kernels_and_blas():
    message = build_description.describe_build()
    assert message.startswith(f"cavity {cavity.__version__} with {_core.variants('gaussian_mixture')[-1]} kernels and ")
    for item in threadpoolctl.threadpool_info():
        assert item["user_api"] != "blas" or item["version"] in message


def test_a_blas_that_nobody_knows(monkeypatch):
    monkeypatch.setattr(threadpoolctl, "threadpool_info", list)
    build_description._describe_loaded_blas.cache_clear()
    assert build_description.describe_blas() == "no known BLAS"
    build_description._describe_loaded_blas.cache_clear()


def test_files_say_what_wrote_them(tmp_path):
    cavity.Clutter().fit([0.1, 2.3]).save(tmp_path / "file.npz")
    header, _ = persistence.read_with_header(tmp_path / "file.npz", ["clutter"])
    assert header["build"] == build_description.describe_build()
