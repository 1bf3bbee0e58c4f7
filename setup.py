"""The extensions only; everything else about the distribution stands in pyproject.toml.

``kproto._codec`` is written in Cython. The modules that every request of the channel, every packet of a capture, or
every row of a table passes are plain Python, which Cython compiles as they stand: those with a .pxd file beside them,
which gives their classes C attributes.
``channel.network._socket_calls`` is written in Cython.

KPROTO_PURE=1 compiles the codec alone: the same program, slower, which debuggers, coverage and profilers see whole.
KPROTO_PURE=wheel compiles nothing and marks the wheel: the reference stands in for the codec there (tools/pure-wheels).
KPROTO_CHANNEL=python compiles nothing of the channel, for programs that only read captures.
KPROTO_DEBUG=1 builds all of them without optimisation, and the codec with bounds checks and line tracing.
KPROTO_CFLAGS and KPROTO_LDFLAGS are added to the compiler's and linker's (the sanitizers come in that way).
"""

import os
from pathlib import Path
from sysconfig import get_platform

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

DEBUG = os.environ.get("KPROTO_DEBUG") == "1"

# Reading and writing go through wire.h, which checks every bound itself.
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "binding": False,
    "embedsignature": True,
    "linetrace": DEBUG,
    "emit_code_comments": DEBUG,
}

# From SSSE3 on (2006, AMD 2011) x86-64 reverses the bytes of four ints at once, if Linux's compilers are told to.
VECTORS = ["-mssse3"] if get_platform() == "linux-x86_64" else []

# Small functions vanish into the loops over rows, which the compiler then makes for each version's form.
MACROS = [("CYTHON_INLINE", "inline __attribute__((always_inline))"), *([("CYTHON_TRACE", "1")] if DEBUG else [])]

# Tracebacks name lines of Python; without those of C a module compiles in a tenth less time.
NO_C_LINES = [] if DEBUG else [("CYTHON_CLINE_IN_TRACEBACK", "0")]


def flags(level: str) -> dict[str, list[str]]:
    """The options of compiler and linker at this level of optimisation."""
    return {
        "extra_compile_args": [
            # Python's own -g takes a quarter of the build, its -Wall a sixth; generated code needs neither.
            *(["-O0", "-g"] if DEBUG else [level, "-g0", "-w"]),
            *VECTORS,
            *os.environ.get("KPROTO_CFLAGS", "").split(),
        ],
        "extra_link_args": os.environ.get("KPROTO_LDFLAGS", "").split(),
    }


codec = Extension(
    "kproto._codec",
    ["kproto/_codec.pyx"],
    include_dirs=["kproto"],
    depends=[str(path) for path in sorted(Path("kproto/_cython").iterdir())],
    define_macros=MACROS + NO_C_LINES,
    **flags("-O3"),
)

# Python's own rules for Python's own code: None has no attributes, and an annotation converts nothing.
# No compiled class is pickled.
PYTHON_DIRECTIVES = {
    "language_level": 3,
    "nonecheck": True,
    "annotation_typing": False,
    "auto_pickle": False,
    "emit_code_comments": DEBUG,
}


# Their C attributes are used in every request, their own code seldom.
SELDOM_CALLED = {"channel.metrics", "channel.network.selector_metrics"}


def modules(package: str) -> list[Extension]:
    """The Python modules of a package that have a .pxd file beside them."""
    layouts = (path for path in sorted(Path(package).rglob("*.pxd")) if path.with_suffix(".py").exists())
    names = [path.with_suffix("") for path in layouts]
    return [
        Extension(name, [f"{path}.py"], define_macros=NO_C_LINES, **flags("-Og" if name in SELDOM_CALLED else "-O1"))
        for name, path in ((".".join(path.parts), path) for path in names)
    ]


# -O1 takes less than half the time of -O3, and is as quick: these modules spend their time in the interpreter's C API.
# -Og takes a third less than -O1; a request would take 8 % more instructions by it, and a capture 6 %.
python = [*modules("kproto/capture"), *modules("kproto/logs"), *modules("kproto/tables")]
if os.environ.get("KPROTO_CHANNEL") != "python":
    python += modules("channel")
    python.append(Extension("channel.network._socket_calls", ["channel/network/_socket_calls.pyx"], **flags("-O1")))
PURE = os.environ.get("KPROTO_PURE")
if PURE in ("1", "wheel"):
    python.clear()


class marked(build_py):  # setuptools calls commands by lower-case names
    """Puts a module that says so into a package without extensions."""

    def run(self) -> None:
        """Build as ever, and write the module."""
        super().run()
        text = '"""This kproto was installed without extensions: see kproto.codec."""\n'
        Path(self.build_lib, "kproto", "_pure_wheel.py").write_text(text, encoding="utf-8")


JOBS = os.cpu_count() or 1
setup(
    package_dir={"": "."},
    ext_modules=[
        *cythonize([codec] if PURE != "wheel" else [], compiler_directives=DIRECTIVES),
        *cythonize(python, compiler_directives=PYTHON_DIRECTIVES, nthreads=JOBS),
    ],
    cmdclass={"build_py": marked} if PURE == "wheel" else {},
    options={"build_ext": {"parallel": JOBS}},
)
