"""The reading and writing of ids, compiled for processors without SSSE3: `make sanitize` builds the whole codec so."""

import ctypes
import os
import platform
import random
import struct
import subprocess
from pathlib import Path

import pytest

HEADERS = Path(__file__).parents[2] / "kproto" / "_cython"
SOURCE = """
#include "wire.h"
#ifdef __SSSE3__
#error the compiler may use SSSE3
#endif
void read_ids(int32_t *to, const uint8_t *from, int64_t n, const uint8_t *end) { kp_ids_loose(to, from, n, end); }
int64_t write_ids(uint8_t *to, const int32_t *from, int64_t n) { return kp_put_ids_loose(to, from, n) - to; }
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("compiled")
    target = ["-mno-ssse3"] if platform.machine() == "x86_64" else []
    options = ["-O3", "-w", "-shared", "-fPIC", *target, f"-I{HEADERS}", "-x", "c", "-", "-o", folder / "ids.so"]
    subprocess.run([os.environ.get("CC", "cc"), *options], input=SOURCE, text=True, check=True)
    library = ctypes.CDLL(str(folder / "ids.so"))
    library.write_ids.restype = ctypes.c_int64
    return library


@pytest.mark.parametrize("count", [*range(10), 100])
@pytest.mark.parametrize("behind", [0, 3, 64])
def test_ids_are_read_and_written_without_ssse3(compiled: ctypes.CDLL, count: int, behind: int) -> None:
    draw = random.Random(count)
    ids = [draw.randint(-(2**31), 2**31 - 1) for _ in range(count)]
    wire = struct.pack(f">{count}i", *ids)
    slack = 8  # KP_SLACK: as many ids may be written behind the list, in memory and on the wire

    source = ctypes.create_string_buffer(wire + b"\xee" * behind, len(wire) + behind)
    read = (ctypes.c_int32 * (count + slack))()
    end = ctypes.addressof(source) + len(wire) + behind
    compiled.read_ids(read, source, ctypes.c_int64(count), ctypes.c_void_p(end))
    assert read[:count] == ids

    written = ctypes.create_string_buffer(4 * (count + slack))
    assert compiled.write_ids(written, read, ctypes.c_int64(count)) == len(wire)
    assert written.raw[: len(wire)] == wire
