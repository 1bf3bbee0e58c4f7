"""The extensions only; everything else about the distribution stands in pyproject.toml.

``kproto._codec`` is written in Cython. The modules that every request of the channel, every packet of a capture, or
every row of a table passes are plain Python, which Cython compiles as they stand: those with a .pxd file beside them,
which gives their classes C attributes.
``channel.network._socket_calls`` is written in Cython. KPROTO_CHANNEL=python compiles nothing of the channel: the same
program, slower, whose frames pass by the methods of ``socket``.

KPROTO_DEBUG=1 builds all of them without optimisation, and the codec with bounds checks and line tracing.
KPROTO_CFLAGS and KPROTO_LDFLAGS are added to the compiler's and linker's (the sanitizers come in that way).
"""

import os
from pathlib import Path
from sysconfig import get_platform

from Cython.Build import cythonize
from setuptools import Extension, setup

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
}

# From SSSE3 on (2006, AMD 2011) x86-64 reverses the bytes of four ints at once, if Linux's compilers are told to.
VECTORS = ["-mssse3"] if get_platform() == "linux-x86_64" else []

# Small functions vanish into the loops over rows, which the compiler then makes for each version's form.
MACROS = [("CYTHON_INLINE", "inline __attribute__((always_inline))"), *([("CYTHON_TRACE", "1")] if DEBUG else [])]

FLAGS = {
    "extra_compile_args": [
        *(["-O0", "-g"] if DEBUG else ["-O3", "-g0"]),  # without -g0, Python's own -g takes a quarter of the build
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
    define_macros=MACROS,
    **FLAGS,
)

# Python's own rules for Python's own code: None has no attributes, and an annotation converts nothing.
PYTHON_DIRECTIVES = {"language_level": 3, "nonecheck": True, "annotation_typing": False}


def modules(package: str) -> list[Extension]:
    """The Python modules of a package that have a .pxd file beside them."""
    layouts = (path for path in sorted(Path(package).rglob("*.pxd")) if path.with_suffix(".py").exists())
    return [
        Extension(".".join(path.with_suffix("").parts), [str(path.with_suffix(".py"))], **FLAGS) for path in layouts
    ]


kproto = [*modules("kproto/capture"), *modules("kproto/tables")]
channel = modules("channel")
channel.append(Extension("channel.network._socket_calls", ["channel/network/_socket_calls.pyx"], **FLAGS))
if os.environ.get("KPROTO_CHANNEL") == "python":
    channel.clear()

JOBS = os.cpu_count() or 1
setup(
    package_dir={"": "."},
    ext_modules=[
        *cythonize([codec], compiler_directives=DIRECTIVES),
        *cythonize([*kproto, *channel], compiler_directives=PYTHON_DIRECTIVES, nthreads=JOBS),
    ],
    options={"build_ext": {"parallel": JOBS}},
)
