"""Compile cython_core/FOLDER/NAME.pyx to cavity._core.NAME, and nothing else.

Cython translates each source to C once; what every module needs of it (memoryviews above all) is in SHARED_MODULE.
Kernels in SIMD_KERNELS are compiled once more for these x86-64 levels, with LEVEL_FLAGS, as cavity._core.LEVEL.NAME;
`cavity._core.best` picks one when the library is imported. All variants are built from the same C without
floating-point contraction, so they return the same bits.

CAVITY_DEBUG=1 builds with bounds, initialisation and None checks, in a folder of its own (pass --force when switching
in place: the modules next to the sources are the same files). CAVITY_SANITIZE=address,undefined builds with these
sanitizers of the compiler besides, in a folder of its own.

CAVITY_ABI3=1 builds for any Python from ABI3_PYTHON on, in the limited API, in a folder of its own (wheel: cp311-abi3).

With SOURCE_DATE_EPOCH, the seconds at which all files of sdist and wheel are dated, both have the same bytes wherever
they are built with the same tools; .ci/reproducible checks it.
"""

import gzip
import os
import platform
import re
import shutil
import sys
import tarfile
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

KERNEL_FOLDER = Path("cython_core")
IS_DEBUG_BUILD = os.environ.get("CAVITY_DEBUG", "") not in ("", "0")
USED_SANITIZERS = os.environ.get("CAVITY_SANITIZE", "")
IS_ABI3_BUILD = os.environ.get("CAVITY_ABI3", "") not in ("", "0")
ABI3_PYTHON, ABI3_VERSION = "cp311", "0x030B0000"
BUILD_KIND = "debug" if IS_DEBUG_BUILD else "abi3" if IS_ABI3_BUILD else "release"
BUILD_FOLDER = Path("build", USED_SANITIZERS.replace(",", "-") or BUILD_KIND)
SHARED_MODULE = "cavity._core._cyutility"
# Kernels compiled for a level besides the baseline: those that it makes faster, measured one by one on Zen 4 and Zen 5
SIMD_KERNELS = {
    "v3": (
        "belief",
        "clutter",
        "clutter_lanes",
        "covariance",
        "dense",
        "ep",
        "factorized",
        "gaussian",
        "gaussian_mixture",
        "regression",
        "simd",
        "sites",
        "sparse_gp",
        "unit_mixture",
        "whitened_rows",
    ),
    "v4": (
        "clutter",
        "clutter_lanes",
        "covariance",
        "dense",
        "ep",
        "gaussian",
        "gaussian_mixture",
        "simd",
        "sites",
        "sparse_gp",
        "unit_mixture",
        "whitened_rows",
    ),
}
# Features one by one: every compiler has these names, that of Zig has no -march=x86-64-v3
V3_FLAGS = ["-mavx2", "-mbmi", "-mbmi2", "-mf16c", "-mfma", "-mlzcnt", "-mmovbe"]
LEVEL_FLAGS = {
    "v3": V3_FLAGS,
    "v4": [*V3_FLAGS, *(f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl")), "-mprefer-vector-width=512"],
}
PUBLIC_MODULES = {"cavity._core.scalar"}  # with docstrings; those of the others are for readers of the source
TEST_MODULES = {"simd"}  # only tests import it: not in the wheels for all Pythons
# From array to memoryview and back
MEMORYVIEW_FUNCTION = re.compile(
    r"static CYTHON_INLINE (void __Pyx_XCLEAR_MEMVIEW\(|__Pyx_memviewslice __Pyx_PyObject_to_MemoryviewSlice_)"
)
CYTHON_DIRECTIVES = dict(
    language_level=3,
    boundscheck=IS_DEBUG_BUILD,
    wraparound=False,
    initializedcheck=IS_DEBUG_BUILD,
    nonecheck=IS_DEBUG_BUILD,
    cdivision=True,
    binding=IS_DEBUG_BUILD,  # plain C functions are smaller, and calls of them no slower
    embedsignature=IS_DEBUG_BUILD,
    emit_code_comments=IS_DEBUG_BUILD,
)
UNIX_FLAGS = ["-O1" if IS_DEBUG_BUILD else "-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
if not IS_DEBUG_BUILD:  # smaller and no slower: no tables for debuggers, and what runs at import only, for size
    UNIX_FLAGS += ["-fvisibility=hidden", "-fno-asynchronous-unwind-tables"]
    UNIX_FLAGS += ["-DCYTHON_SMALL_CODE=__attribute__((cold))"]
MSVC_FLAGS = ["/O2", "/fp:precise"]
LINK_FLAGS = ["-Wl,-s"] if sys.platform == "linux" else []  # no symbol tables
if USED_SANITIZERS:
    LINK_FLAGS = [f"-fsanitize={USED_SANITIZERS}"]
    UNIX_FLAGS += ["-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", *LINK_FLAGS]


def list_headers(source):
    """Return the paths of all .pxd files, and of the .h files that these or a source name, or those name in turn."""
    declarations, headers = sorted(KERNEL_FOLDER.rglob("*.pxd")), {p.name: p for p in KERNEL_FOLDER.rglob("*.h")}
    texts, named = [path.read_text() for path in (source, *declarations)], set()
    while texts:
        text = texts.pop()
        new = {name for name in headers if f'"{name}"' in text} - named
        named |= new
        texts += [headers[name].read_text() for name in new]
    return [*map(str, declarations), *(str(headers[name]) for name in sorted(named))]


def extensions():
    """The shared module, one extension per kernel file, and one more per instruction-set level for SIMD_KERNELS."""
    yield Extension(SHARED_MODULE, [], py_limited_api=IS_ABI3_BUILD)  # Cython writes its source
    for source in sorted(KERNEL_FOLDER.rglob("*.pyx")):
        if IS_ABI3_BUILD and source.stem in TEST_MODULES:
            continue
        headers = list_headers(source)
        for level in ("", *(level for level in LEVEL_FLAGS if source.stem in SIMD_KERNELS[level])):
            name = ".".join(filter(None, ("cavity._core", level, source.stem)))
            folders = [str(KERNEL_FOLDER / "include")]
            yield Extension(name, [str(source)], depends=headers, include_dirs=folders, py_limited_api=IS_ABI3_BUILD)


def level_of(extension):
    """'v3' for cavity._core.v3.clutter, '' for cavity._core.clutter."""
    return extension.name.removeprefix("cavity._core.").rpartition(".")[0]


def link_pxd_root():
    """Return an include root that holds copies of all .pxd files as cavity/_core/*.pxd, where Cython looks for them."""
    root = BUILD_FOLDER / "cython_include"
    package = root / "cavity" / "_core"
    package.mkdir(parents=True, exist_ok=True)
    sources = list(KERNEL_FOLDER.rglob("*.pxd"))
    for stale in {p.name for p in package.glob("*.pxd")} - {p.name for p in sources}:
        (package / stale).unlink()
    for pxd in sources:
        copy = package / pxd.name
        if not copy.exists() or copy.stat().st_mtime < pxd.stat().st_mtime:
            shutil.copy2(pxd, copy)  # copy2 keeps the time stamp: dependency tracking stays right
    return str(root)


def c_path(pyx):
    """Return the path of the C that Cython writes for a source."""
    return (BUILD_FOLDER / "cython" / pyx).with_suffix(".c")


def write_settings(name, *settings):
    """Write settings to a file, if it does not hold them; return its path, which is newer than all that used others."""
    path, text = BUILD_FOLDER / name, repr(settings)
    is_new = not path.exists()
    if is_new or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if is_new:
        os.utime(path, (0, 0))  # what was built before there was a record stays
    return path


def is_translated(extension):
    """Whether this Cython wrote the C of `extension` after the last change of any source.

    If so, cythonize is not called: it would compare with the time stamps of Cython's own .pxd files, which are new in
    every build environment that pip makes.
    """
    from Cython.Utils import file_generated_by_this_cython

    newest = max(path.stat().st_mtime for path in KERNEL_FOLDER.rglob("*.p*"))
    return bool(extension.sources) and all(
        file_generated_by_this_cython(str(c)) and c.stat().st_mtime > newest for c in map(c_path, extension.sources)
    )


def shrink(source):
    """Call what Cython inlines for every argument, of 60 to 200 bytes each: wrappers are smaller and compile faster."""
    text = source.read_text()
    if (shorter := MEMORYVIEW_FUNCTION.sub(r"static __attribute__((noinline)) \1", text)) != text:
        source.write_text(shorter)


def find_headers(source):
    """Return the paths of the headers of this project that a C source includes, directly or not."""
    paths, unread = set(), [source]
    while unread:
        names = re.findall(r'#include "(cavity_\w+\.h)"', Path(unread.pop()).read_text())
        new = {str(KERNEL_FOLDER / "include" / name) for name in names} - paths
        paths |= new
        unread += new
    return sorted(paths)


def copy_for_level(extension, baseline):
    """Return the path of the C source of `extension`, a copy of that of `baseline`.

    A module registers itself in sys.modules under the name for which it was translated. If variants shared a name, the
    variant that is imported first would replace the baseline. Setuptools names object files by the path.
    """
    source = Path(baseline.sources[0])
    copy = source.parent / level_of(extension) / source.name
    if not copy.exists() or copy.stat().st_mtime < source.stat().st_mtime:
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(source.read_text().replace(f'"{baseline.name}"', f'"{extension.name}"'))
    return str(copy)


class BuildCore(build_ext):
    """Cythonize late (metadata and sdist commands never run Cython) and set the flags per level."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self):
        levels = self._usable_levels()
        self.extensions = [e for e in self.extensions if level_of(e) in levels]
        self._cythonize()
        import numpy

        msvc = self.compiler.compiler_type == "msvc"
        for extension in self.extensions:
            extension.extra_compile_args = (MSVC_FLAGS if msvc else UNIX_FLAGS) + levels[level_of(extension)]
            if extension.name == SHARED_MODULE and not msvc:
                extension.extra_compile_args.append("-Os")  # a third of its time; calls take no longer
            extension.extra_link_args = LINK_FLAGS
            extension.include_dirs.append(numpy.get_include())
            extension.define_macros.append(("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"))
            if IS_ABI3_BUILD:
                extension.define_macros.append(("Py_LIMITED_API", ABI3_VERSION))
        compiler = [(variable, os.environ.get(variable)) for variable in ("CC", "CFLAGS", "LDSHARED", "LDFLAGS")]
        flags = [(e.name, e.extra_compile_args, e.extra_link_args, e.define_macros) for e in self.extensions]
        settings = str(write_settings("flags.txt", compiler, flags))
        for extension in self.extensions:
            extension.depends = [*extension.depends, settings]
        super().build_extensions()

    def _usable_levels(self):
        """Return the levels that the compiler builds for its target; the baseline always, the others on x86-64 only."""
        levels = {"": []}
        if platform.machine() in ("x86_64", "AMD64") and self.compiler.compiler_type == "unix":
            levels |= {level: flags for level, flags in LEVEL_FLAGS.items() if self._compiles(flags)}
        return levels

    def _compiles(self, flags):
        probe = Path(self.build_temp) / "probe.c"
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text("int main(void) { return 0; }\n")
        try:
            self.compiler.compile([str(probe)], output_dir=self.build_temp, extra_postargs=flags)
        except Exception as error:  # an older compiler: build without this level
            print(f"skipping {' '.join(flags)}: {error}", file=sys.stderr)
            return False
        return True

    def _cythonize(self):
        """Replace each extension's source by C and its dependencies by headers; Cython tracks cimports itself."""
        from Cython.Build import cythonize
        from Cython.Compiler import Options

        baseline = {e.name: e for e in self.extensions if not level_of(e)}
        for extension in baseline.values():
            extension.depends = []  # of the C only, which Cython writes first
        directives = write_settings("directives.txt", CYTHON_DIRECTIVES, PUBLIC_MODULES).stat().st_mtime
        for path in (BUILD_FOLDER / "cython" / KERNEL_FOLDER).glob("*/*.c"):
            if path.stat().st_mtime < directives:  # Cython compares with sources only
                path.unlink()
        for is_public in (True, False):
            Options.docstrings = is_public or IS_DEBUG_BUILD
            done = cythonize(
                [e for e in baseline.values() if (e.name in PUBLIC_MODULES) == is_public and not is_translated(e)],
                nthreads=self.parallel,
                include_path=[link_pxd_root()],
                build_dir=str(BUILD_FOLDER / "cython"),
                shared_utility_qualified_name=SHARED_MODULE,
                compiler_directives=CYTHON_DIRECTIVES,
            )
            for result in done:  # keep setuptools' own objects
                baseline[result.name].sources = result.sources
        for extension in baseline.values():
            extension.sources = [str(c_path(path)) if path.endswith(".pyx") else path for path in extension.sources]
            if extension.sources and self.compiler.compiler_type == "unix":
                shrink(Path(extension.sources[0]))
            extension.depends = find_headers(extension.sources[0]) if extension.sources else []
        for extension in self.extensions:
            if level := level_of(extension):
                twin = baseline[extension.name.replace(f".{level}.", ".")]
                extension.sources, extension.depends = [copy_for_level(extension, twin)], twin.depends


def plain_mode(mode):
    """Return the permissions of a file in an archive, independent of the umask under which it was made."""
    return 0o755 if mode & 0o100 else 0o644


class PlainWheel(bdist_wheel):
    """A wheel whose files have plain permissions; setuptools dates them by SOURCE_DATE_EPOCH."""

    def write_wheelfile(self, *args, **kwargs):
        super().write_wheelfile(*args, **kwargs)  # the last file before all are packed
        for path in filter(Path.is_file, Path(self.bdist_dir).rglob("*")):
            path.chmod(plain_mode(path.stat().st_mode))


class PlainSdist(sdist):
    """A .tar.gz that does not depend on where it was made: files in order of names, of one date and no owner."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        date = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def plain(entry):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = date, 0, 0, "", ""
            entry.mode = plain_mode(entry.mode)
            return entry

        path = Path(f"{base_name}.tar.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.GzipFile(path, "wb", mtime=date) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(base_dir, filter=plain)
        return str(path)


if __name__ == "__main__":  # Cython's processes may import this file
    setup(
        ext_modules=list(extensions()),
        cmdclass={"build_ext": BuildCore, "sdist": PlainSdist, "bdist_wheel": PlainWheel},
        options={
            "build": {"build_base": str(BUILD_FOLDER)},
            "bdist_wheel": {"py_limited_api": ABI3_PYTHON if IS_ABI3_BUILD else False},
        },
    )
