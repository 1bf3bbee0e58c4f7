"""The extension only; everything else about the distribution stands in pyproject.toml.

KPROTO_DEBUG=1 builds it with bounds checks and line tracing, without optimisation. KPROTO_CFLAGS and KPROTO_LDFLAGS
are added to the compiler's and linker's (the sanitizers come in that way).
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

codec = Extension(
    "kproto._codec",
    ["kproto/_codec.pyx"],
    include_dirs=["kproto"],
    depends=[str(path) for path in sorted(Path("kproto/_cython").iterdir())],
    extra_compile_args=[*(["-O0", "-g"] if DEBUG else ["-O3"]), *VECTORS, *os.environ.get("KPROTO_CFLAGS", "").split()],
    extra_link_args=os.environ.get("KPROTO_LDFLAGS", "").split(),
    define_macros=MACROS,
)

setup(
    package_dir={"": "."},
    ext_modules=cythonize([codec], compiler_directives=DIRECTIVES),
)
